"""The embedded head as a real process: started once, found again, stopped, never mistaken."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hermesctl import AsyncClient
from hermesctl.cli import app
from hermesctl.errors import ExitCode, HermesError, Refused, Unreachable, UsageError
from hermesctl.sdk import local
from hermesd.head.journal import schema
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import FakeHead, trial

STAND_IN = Path(__file__).with_name("local_head.py")


@pytest.fixture
def spawned(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that the tested code starts; none outlives its test."""
    processes: list[subprocess.Popen[bytes]] = []
    spawn = local._spawn

    def remembered(state: Path, flags: list[str]) -> subprocess.Popen[bytes]:
        processes.append(spawn(state, flags))
        return processes[-1]

    root = str(STAND_IN.parents[2])
    monkeypatch.setattr(local, "COMMAND", (sys.executable, str(STAND_IN)))
    monkeypatch.setattr(local, "_spawn", remembered)
    monkeypatch.setenv("PYTHONPATH", root)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


async def test_it_is_started_once_found_again_and_stopped(
    spawned: list[subprocess.Popen[bytes]], state: Path
) -> None:
    assert not (await local.find(os.environ)).answers
    async with AsyncClient(local=True) as client:
        assert (await client.server_info()).version == "0.1.0"
    async with AsyncClient(local=True), AsyncClient():
        pass
    (process,) = spawned
    found = await local.find(os.environ)
    assert (found.answers, found.pid) == (True, process.pid)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    assert await local.stop(os.environ)
    assert process.wait() == 0
    assert not await local.stop(os.environ)
    found = await local.find(os.environ)
    assert (found.answers, found.pid) == (False, None)


def test_looking_at_what_a_study_would_be_starts_nothing(
    spawned: list[subprocess.Popen[bytes]], state: Path, project: Path
) -> None:
    for words in (["submit", "--dry-run"], ["preview"]):
        told = CliRunner().invoke(app, [*words, str(project / "study.yaml"), "--local"])
        assert told.exit_code == 0, told.output
        assert "2 trials, policy best_first" in told.stdout
        assert "checked without one" in told.stderr
    assert not spawned
    CliRunner().invoke(app, ["preview", str(project / "study.yaml"), "--local", "--try"])
    assert len(spawned) == 1, "a trial takes a node"


async def test_a_start_is_over_when_the_node_is_there(
    spawned: list[subprocess.Popen[bytes]], state: Path
) -> None:
    await local.start(os.environ, slots=12)
    async with AsyncClient() as client:
        assert [node.connected for node in await client.nodes()] == [True]


async def test_a_node_that_stays_away_keeps_no_start_for_ever(
    spawned: list[subprocess.Popen[bytes]], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "ATTACH_SECONDS", 0.0)
    await local.start(os.environ, slots=11)
    assert (await local.find(os.environ)).answers


async def test_two_starts_at_once_make_one_head(
    spawned: list[subprocess.Popen[bytes]], state: Path
) -> None:
    await asyncio.gather(*(local.start(os.environ) for _ in range(4)))
    assert len(spawned) == 1


async def test_it_is_started_again_after_it_died(
    spawned: list[subprocess.Popen[bytes]], state: Path
) -> None:
    await local.start(os.environ)
    spawned[0].kill()
    spawned[0].wait()
    assert (state / "head.sock").exists()
    await local.start(os.environ)
    assert len(spawned) == 2
    assert (await local.find(os.environ)).pid == spawned[1].pid


async def test_a_start_that_fails_shows_the_end_of_the_log(
    spawned: list[subprocess.Popen[bytes]], state: Path
) -> None:
    with pytest.raises(HermesError, match=r"exit code 3\):\n  \\x1b\[31mno such slots"):
        await local.start(os.environ, slots=13)


async def test_a_start_that_is_refused_gives_the_reason_and_the_way_out(state: Path) -> None:
    """At once, and without what an earlier start has logged."""
    (state / "head").mkdir(parents=True)
    (state / "local.log").write_text("hermesd: of long ago\n")
    with closing(sqlite3.connect(state / "head" / schema.NAME)) as journal:
        journal.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        journal.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(Refused) as refused:
        await local.start(os.environ)
    words = str(refused.value)
    assert f"has schema version {schema.VERSION + 1}, this head knows {schema.VERSION}" in words
    assert "set HERMES_STATE to another folder" in words
    assert "of long ago" not in words


@pytest.mark.parametrize("slots", [None, "x"], ids=["environment", "flag"])
async def test_a_wrong_setting_is_a_misuse_that_no_other_folder_mends(
    slots: str | None, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_NODE_CPU_SLOTS", "-2")
    with pytest.raises(UsageError) as refused:
        await local.start(os.environ, slots=slots)
    words = str(refused.value)
    assert f"node.cpu_slots = {slots or -2}: expected" in words
    assert "HERMES_STATE" not in words


async def test_a_head_that_never_answers_is_given_up_on(
    spawned: list[subprocess.Popen[bytes]], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "START_SECONDS", 0.0)
    with pytest.raises(Unreachable, match="did not answer in 0 s"):
        await local.start(os.environ, slots=14)


async def test_one_that_is_coming_back_is_waited_for(
    spawned: list[subprocess.Popen[bytes]], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = local._spawn

    def lost_the_race(state: Path, flags: list[str]) -> subprocess.Popen[bytes]:
        loser = spawn(state, ["--slots", "15"])
        loser.wait()
        spawn(state, [])
        return loser

    monkeypatch.setattr(local, "_spawn", lost_the_race)
    await local.start(os.environ)
    loser, winner = spawned
    assert loser.returncode == 4
    assert (await local.find(os.environ)).pid == winner.pid


async def test_a_head_of_ones_own_is_left_alone(
    spawned: list[subprocess.Popen[bytes]], state: Path
) -> None:
    """It keeps the very state that the embedded one would."""
    (state / "head").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(state / "head" / "head.sock"))
        own.listen()
        with pytest.raises(Refused, match=r"a hermesd head of yours runs.* Leave out --local"):
            await local.start(os.environ)
    assert spawned == []


async def test_a_foreign_process_with_a_known_number_is_left_alone(state: Path) -> None:
    for number in (os.getpid(), "x", 2**31, ""):
        (state / "running.lock").write_text(str(number))
        assert not await local.stop(os.environ)


def test_the_commands(spawned: list[subprocess.Popen[bytes]], state: Path) -> None:
    def hermesctl(*args: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["local", *args], catch_exceptions=False)
        return result.exit_code, result.output

    assert hermesctl("status") == (ExitCode.UNREACHABLE, hermesctl("status")[1])
    assert "does not run" in hermesctl("status")[1]
    assert "it runs; hermesctl local stop ends it" in hermesctl("start")[1]
    assert hermesctl("start")[1] == "it runs already\n"
    assert hermesctl("start", "--slots", "2")[1] == (
        "it runs already, with a slot for each core; to change that: hermesctl local stop, then"
        " hermesctl local start --slots 2\n"
    )
    code, text = hermesctl("status", "-o", "json")
    assert (code, json.loads(text)["pid"]) == (0, spawned[0].pid)
    assert "stopped" in hermesctl("stop")[1]
    assert "it does not run" in hermesctl("stop")[1]


def test_a_stop_that_loses_steps_says_so_and_asks(head: FakeHead, state: Path) -> None:
    going = {"state": types.TRIAL_STATE_RUNNING, "step": 40}
    known = {"fidelity": types.FIDELITY_PARK_ONLY, "fidelity_reason": "no boundaries seen"}
    saved = types.Checkpoint(id="c", step=40)
    head.add_study("digits", trial(1, **going, **known), trial(2, **{**going, "step": 0}, **known))
    head.add_study("kept", trial(1, study="kept", **going, fidelity=types.FIDELITY_EXACT))
    head.add_study("image", trial(1, study="image", **going, **known, checkpoint=saved))
    with (state / "running.lock").open("w") as lock:
        print(os.getpid(), file=lock, flush=True)
        result = CliRunner().invoke(app, ["local", "stop"], catch_exceptions=False)
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.replace("\n", " ") == (
        "no checkpoint can be taken of digits/1 (40 steps): after a stop it starts over (no"
        " boundaries seen) Stop your head and node? There is no terminal to ask on, so nothing was"
        " done; add --yes to do it "
    )


def test_ctrl_c_while_the_head_starts_leaves_one_that_can_be_used(
    state: Path, tmp_path: Path
) -> None:
    """In a terminal it goes to everything of the terminal's, which the head is not."""
    (script := tmp_path / "train.py").write_text("print('loss: 1')")
    command = [sys.executable, "-m", "hermesctl.cli"]
    submit = subprocess.Popen(
        [*command, "submit", str(script), "--local"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert submit.stderr is not None
    assert submit.stderr.readline().startswith("starting a head and a node")
    os.killpg(submit.pid, signal.SIGINT)
    said = submit.communicate()[1]
    assert submit.returncode == ExitCode.INTERRUPTED
    assert "nothing was submitted; your local head stays: hermesctl local stop ends it" in said
    try:
        subprocess.run([*command, "local", "start"], check=True)
        listed = subprocess.run([*command, "study", "ls", "-o", "json"], stdout=subprocess.PIPE)
        assert json.loads(listed.stdout)["studies"] == []
    finally:
        stopped = subprocess.run([*command, "local", "stop"], stderr=subprocess.PIPE, text=True)
    assert "stopped" in stopped.stderr
