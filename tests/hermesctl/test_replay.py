"""`hermesctl study replay`: against a real head, and what it says in words."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from hermesctl import AsyncClient, Refused, UsageError
from hermesctl.errors import ExitCode
from hermesctl.render.replay_views import replay_view, shared, verdict
from hermesctl.sdk.likeness import ran_meanwhile
from hermesctl.sdk.records import Study
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, world
from tests.hermesctl.fake_head import trial
from tests.hermesctl.past_study import LATE, STEPS, falling, hermesctl, started, trained
from tests.hermesctl.test_render import detail, shown
from tests.study_specs import plugin, spec

ASHA = "asha:eta=2,min_rung=5,max_rung=20"
FIFO = types.Schedule(policy=plugin("fifo"))


async def test_what_asha_would_have_ended_and_that_it_would_have_been_wrong(tmp_path: Path) -> None:
    curves = [LATE, falling(3.0), falling(4.0), falling(5.0)]
    async with trained(tmp_path, curves, schedule=FIFO) as head:
        told = await hermesctl(head, "study", "replay", "dig", "--policy", f"{ASHA},fifo")
        assert (told.code, told.stderr) == (ExitCode.OK, "")
        assert (
            "digits: 4 trials on 1 device; by the signal the best is digits/1, loss 1"
            in told.stdout
        )
        assert "what happened (fifo)" in told.stdout
        assert f"{ASHA} would have ended" in told.stdout
        assert "wrong: the best, digits/1, is among them, and digits/2" in told.stdout
        assert "58.3 % of the iterations saved" in told.stdout
        assert "rung 0 (step 5)" in told.stdout
        assert "fifo holds no trial back" in told.stdout

        asked = ("study", "replay", "digits", "--policy", ASHA)
        document = await hermesctl(head, *asked, "-o", "json")
        found = json.loads(document.stdout)
        assert (found["version"], found["study"], found["devices"]) == (1, "digits", 1)
        assert (found["meanwhile"], found["happened"]["simulated_switches"]) == ([], 0)
        (policy,) = found["policies"]
        assert policy["given_up"]["best_held_back"] is True
        assert policy["given_up"]["trials"][0]["trial"] == "digits/1"

        async with AsyncClient(f"unix:{head.directory / 'head.sock'}") as client:
            same = await client.replay("digits", ASHA)
            assert {"version": 1, **same} == found
            with pytest.raises(UsageError, match="did you mean asha"):
                await client.replay("digits", "ashaa")
            (user,) = await client.users()
            assert (user.studies, user.max_devices) == (1, None)
            with pytest.raises(Refused, match="gives out no certificates"):
                await client.invite("alice")

        rows = await hermesctl(head, *asked, "-o", "csv")
        listed = list(csv.DictReader(io.StringIO(rows.stdout)))
        assert [row["trial"] for row in listed] == [f"digits/{n}" for n in range(1, 5)]
        assert listed[0]["held_back"] == "true"

        refused = await hermesctl(head, "study", "replay", "digits", "--policy", "ashaa")
        assert refused.code == ExitCode.USAGE
        assert "did you mean asha" in refused.stderr
        missing = await hermesctl(head, "study", "replay", "nothing")
        assert missing.code == ExitCode.NOT_FOUND


async def test_a_study_that_reported_nothing_cannot_be_replayed(tmp_path: Path) -> None:
    async with world(tmp_path / "head") as head:
        await head.submit()
        told = await hermesctl(head, "study", "replay", "digits")
        assert told.code == ExitCode.USAGE
        assert "curves = digits: expected at least one trial that reported loss" in told.stderr


def study(name: str, span: tuple[float, float | None], **changes: Any) -> Study:
    """A study that was submitted and finished then, and used devices."""
    begun, over = span
    one = detail(trial(1)).study
    times = {"submitted_unix_seconds": begun, "finished_unix_seconds": over}
    return replace(one, id=name, **times, **{"busy_seconds": 1.0, **changes})


def said(**given_up: Any) -> str:
    whole = {"held_back": 3, "best_held_back": False, "pick": "s/1", "regret": 0.0}
    whole |= {"regret_share": 0.0, "seconds": 60.0, "iterations": 25, **given_up}
    replay = {"trials": 4, "iterations": 100, "best": "s/1"}
    return verdict(replay, {"policy": "asha", "given_up": whole})


def test_the_verdict_says_whether_it_was_wrong() -> None:
    assert said() == (
        "asha would have ended 3 of 4; right: the best, s/1, stands first, trained to its end"
    )
    assert said(best_held_back=True).endswith("stands first, though not to its end")
    assert said(pick="s/2", regret=0.5, regret_share=0.125) == (
        "asha would have ended 3 of 4; wrong: the best, s/1, does not stand first, and s/2, which"
        " then stands first, ends 0.5 worse (12.5 % of the way from the start)"
    )
    assert "; nearly right: the best, s/1," in said(pick="s/2", regret=0.1, regret_share=0.02)
    assert said(pick="s/2", regret=None, regret_share=None).endswith("ends without a loss")
    assert said(held_back=4, best_held_back=True).startswith(
        "asha would have let none of 4 train to its end; right"
    )
    assert said(held_back=0) == "asha holds no trial back: it would have ended none"


def test_the_best_of_the_leaderboard_is_named_where_it_is_another() -> None:
    figures = dict.fromkeys(("time_to_good", "near_best", "time_to_best", "makespan"), 1.0)
    happened = {"policy": "boom, then fifo", "figures": figures, "switches": 1}
    happened |= {"own": "boom", "simulated": None, "unsimulated": "policy boom raised Oops: 1"}
    happened |= {"simulated_switches": None, "away_seconds": 0.0}
    replay = {"study": "digits", "trials": 2, "devices": 1, "best": "digits/2", "policies": []}
    replay |= {"good": 1, "good_loss": 0.375, "devices_had": 1, "meanwhile": []}
    replay |= {"signal": "loss", "best_loss": 0.25, "untrained": 0, "partly": 0, "forks": 1}
    replay |= {"happened": happened | {"error": None}}
    ranked = {"finished": True, "best_trial": "digits/1", "best_metric": 0.5}
    ranked |= {"ranking": pb.Ranking(metric=types.Metric(name="val_loss"))}
    other = shown(replay_view(replay, detail(trial(1), trial(2), **ranked).study, wide=False))
    assert "by the signal the best is digits/2, loss 0.25, smoothed" in other
    assert "the leaderboard goes by val_loss 0.5 of digits/1" in other
    assert "what happened (boom, then fifo)" in other
    said = "good, mean: the mean time until the good trials, 1 of 2, come to loss 0.375; within 2 %"
    assert said in other
    assert "1 of 2 forked: these have their parent's past, which a simulated trial" in other
    assert "boom, simulated" not in other
    assert "the study's own policy is not simulated: policy boom raised Oops: 1" in other
    same = detail(trial(1), trial(2), **ranked | {"best_trial": "digits/2"}).study
    assert "leaderboard" not in shown(replay_view(replay, same, wide=False))


def test_devices_that_others_had_are_told_with_who_they_were() -> None:
    happened = {"figures": {"makespan": 300.0}, "away_seconds": 60.0}
    replay = {"devices_had": 2, "happened": happened, "meanwhile": []}
    assert shared(replay) == ""
    happened["away_seconds"] = 360.0
    assert shared(replay).startswith(
        "for 6 min of 10 min of device time its trials waited for devices: other studies had"
    )
    named = shared(replay | {"meanwhile": ["a", "b", "c", "d"]})
    assert ": meanwhile other studies ran (a, b, c …); a simulated study has" in named


def test_a_study_ran_meanwhile_if_it_used_devices_of_the_pool_in_that_time() -> None:
    mine = study("mine", (100.0, 200.0))
    assert ran_meanwhile(mine, study("other", (150.0, 300.0)))
    assert ran_meanwhile(mine, study("goes-on", (50.0, None)))
    assert not ran_meanwhile(mine, study("before", (50.0, 99.0)))
    assert not ran_meanwhile(mine, study("after", (200.0, None)))
    assert not ran_meanwhile(mine, study("waited", (150.0, 300.0), busy_seconds=0.0))
    assert not ran_meanwhile(mine, study("elsewhere", (150.0, 300.0), pool="gpus"))
    assert not ran_meanwhile(mine, mine)


async def test_a_study_that_goes_on_is_replayed_as_far_as_it_has_come(tmp_path: Path) -> None:
    async with world(tmp_path / "head") as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec({"lr": {"values": [1.0, 2.0, 3.0]}}, schedule=FIFO))
        launch = await node.start()
        await node.report(launch, 1, falling(3.0))
        await node.complete(launch, STEPS)
        await node.report(await node.start(), 1, LATE[:20])
        await node.settle()
        told = await hermesctl(head, "study", "replay", "digits", "--policy", ASHA)
        node.call.cancel()
    assert told.code == ExitCode.OK, told.stderr
    assert "digits: 2 trials on 1 device; by the signal the best is digits/1" in told.stdout
    assert "1 trial without a loss so far: left out" in told.stdout
    assert "1 of 2 not trained to the end" in told.stdout


async def test_an_interrupt_ends_the_simulation_as_well(tmp_path: Path) -> None:
    async with trained(tmp_path, [falling(3.0), falling(4.0)]) as head:
        command = await started(head, "study", "replay", "digits")
        process = psutil.Process(command.pid)
        while not process.children():
            assert command.returncode is None
            await asyncio.sleep(0.01)
        simulations = process.children()
        command.send_signal(signal.SIGINT)
        said = await command.communicate()
    assert (command.returncode, *said) == (ExitCode.INTERRUPTED, b"", b"")
    _, alive = psutil.wait_procs(simulations, timeout=60)
    assert not alive
