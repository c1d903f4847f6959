"""A study that a head exported, as the curves of a simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hermesd.cli import app
from hermesd.core.events import Reported
from hermesd.core.history import SwitchCost
from hermesd.core.model import Goal, RunId, Tier
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.refusal import Refused
from hermesd.simulate.curves import Switch
from hermesd.simulate.exports import open_export
from hermesd.simulate.reading import read
from tests.core.playbook import study
from tests.head.heads import Node, world
from tests.simulate.small import trainings
from tests.simulate.study_exports import entry, exported, points, started, trial, with_stages
from tests.study_specs import spec


def test_trials_are_jobs_at_their_measured_speed(tmp_path: Path) -> None:
    trials = [
        with_stages(trial(0, 4, busy=2.0), lr=0.1),
        with_stages(trial(1, 2, busy=6.0), lr=0.2),
        with_stages(trial(2, 0, busy=0.0), lr=0.3),
    ]
    path = exported(
        tmp_path / "digits.jsonl",
        study(),
        trials,
        points(0, 1, [1, 2], [4.0, 3.0]),
        points(0, 2, [3, 4], [2.0, 1.0]),
        points(1, 1, [1, 2], [5.0, 5.0]),
        {"type": "entry", "seq": 1, "at": 0.0, "kind": "Bind", "body": {}},
    )
    curves = read(path)
    assert (curves.name, curves.whole) == ("digits", True)
    assert [job.losses for job in curves.jobs] == [(4.0, 3.0, 2.0, 1.0), (5.0, 5.0)]
    assert [job.step_seconds for job in curves.jobs] == [0.5, 3.0]
    assert curves.jobs[1].parameters == (("lr", 0.2),)


def test_steps_that_were_trained_again_count_once_and_gaps_are_bridged(tmp_path: Path) -> None:
    path = exported(
        tmp_path / "s.jsonl",
        study(),
        [with_stages(trial(0, 6, busy=6.0))],
        points(0, 1, [2, 4, 6], [10.0, 8.0, 100.0]),
        points(0, 2, [5, 6], [7.0, 6.0]),
    )
    assert read(path).jobs[0].losses == (10.0, 10.0, 9.0, 8.0, 7.0, 6.0)


def test_a_maximised_signal_is_turned_and_a_broken_one_ends_there(tmp_path: Path) -> None:
    path = exported(
        tmp_path / "s.jsonl",
        study(signal_goal=Goal.MAXIMIZE),
        [with_stages(trial(0, 3, busy=3.0)), with_stages(trial(1, 3, busy=3.0))],
        points(0, 1, [1, 2, 3], [0.1, 0.5, 0.9]),
        points(1, 1, [1, 2, 3], [0.1, 0.2, "nan"]),
    )
    first, second = read(path).jobs
    assert first.losses == (-0.1, -0.5, -0.9)
    assert (second.losses, second.diverges) == ((-0.1, -0.2), True)


def test_only_an_announced_length_is_told_and_one_that_stopped_early_is_not_broken(
    tmp_path: Path,
) -> None:
    path = exported(
        tmp_path / "s.jsonl",
        study(),
        [with_stages(trial(0, 2, busy=2.0, planned_steps=1000)), with_stages(trial(1, 2, 2.0))],
        points(0, 1, [1, 2], [4.0, 3.0]),
        points(1, 1, [1, 2], [5.0, 5.0]),
    )
    told, silent = read(path).jobs
    assert (told.steps, told.announced, told.diverges) == (2, 1000, False)
    assert (silent.steps, silent.announced, silent.diverges) == (2, None, False)


@pytest.mark.parametrize("value", [1e308, -1e308])
def test_a_loss_without_measure_or_a_trial_without_seconds_can_be_simulated(
    value: float, tmp_path: Path
) -> None:
    path = exported(
        tmp_path / "s.jsonl",
        study(),
        [with_stages(trial(number, 2, busy=0.0)) for number in (0, 1)],
        entry(0.5, Reported(RunId("s/1", 1), 1, ())),
        points(0, 1, [1, 2], [value, -value]),
        points(1, 1, [1, 2], [5.0, 4.0]),
        started(0, 1, 1e308),
    )
    words = ["simulate", str(path), "--policy", "best_first,asha", "--orders", "1"]
    done = CliRunner().invoke(app, [*words, "--devices", "1", "--processes", "1"])
    assert done.exit_code == 0, done.output
    assert [job.step_seconds for job in read(path).jobs] == [1.0, 1.0]


@pytest.mark.parametrize("busy", [-1.0, 1e308])
def test_seconds_that_are_none_are_refused(busy: float, tmp_path: Path) -> None:
    one = with_stages(trial(0, 2, busy=busy))
    path = exported(tmp_path / "s.jsonl", study(), [one], points(0, 1, [1, 2], [5.0, 4.0]))
    with pytest.raises(Refused, match="the busy_seconds of s/0 to be seconds"):
        read(path)


def test_the_costs_of_switching_and_starting_are_those_that_were_measured(tmp_path: Path) -> None:
    costs = {Tier.PARK: SwitchCost(0.25, 0.5)}
    one = with_stages(trial(0, 1, busy=1.0, costs=costs))
    lines = [points(0, 1, [1], [1.0]), started(0, 1, 4.0), started(1, 1, 2.0), started(0, 2, 0.5)]
    assert read(exported(tmp_path / "a.jsonl", study(), [one], *lines)).switch == Switch(
        leaving=0.25, resuming=0.5, starting=3.0
    )
    never = with_stages(trial(0, 1, busy=1.0))
    path = exported(tmp_path / "b.jsonl", study(), [never], lines[0])
    assert read(path).switch == Switch.split(1.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "an export of a study: its first line has the type study"),
        ("hello\n", "line 1 to be one that `hermesctl study export` writes"),
        ('{"type":"study","version":2,"study":{}}\n', "an export of version 1, not 2"),
        ('{"type":"study","version":1,"study":{}}\n', "line 1 to be one"),
    ],
)
def test_what_is_no_export_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(text)
    with pytest.raises(Refused, match=why) as refused:
        read(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("flags", "noted"), [([], False), (["--trials", "4"], True)])
def test_trials_that_are_not_drawn_are_noted(flags: list[str], noted: bool, tmp_path: Path) -> None:
    trials = [with_stages(trial(n, 3, busy=3.0)) for n in range(5)]
    curves = [points(n, 1, [1, 2, 3], [3.0, 2.0, 1.0 + n]) for n in range(5)]
    file = exported(tmp_path / "s.jsonl", study(), trials, *curves)
    words = ["simulate", str(file), "--policy", "fifo", "--orders", "1", "--processes", "1"]
    result = CliRunner().invoke(app, [*words, *flags])
    assert result.exit_code == 0, result.output
    note = f"hermesd: note: --trials 4 has no effect on {file}, which is run whole: 5 trials\n"
    assert result.stderr == note * noted


def test_an_archive_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"expected an exported study .*, not an archive"):
        open_export(trainings(tmp_path / "small.npz"))


def test_a_study_that_reported_nothing_is_refused(tmp_path: Path) -> None:
    path = exported(tmp_path / "s.jsonl", study(), [with_stages(trial(0, 0, busy=0.0))])
    with pytest.raises(Refused, match="at least one trial that reported loss"):
        read(path)


async def test_what_a_head_exports_can_be_run_under_other_policies(tmp_path: Path) -> None:
    async with world(tmp_path / "head") as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec({"lr": {"values": [1.0, 2.0, 3.0]}}))
        for floor in (3.0, 1.0, 2.0):
            launch = await node.start()
            await node.report(launch, 1, [floor + 8 / step for step in range(1, 31)])
            await node.complete(launch, 30)
        await node.settle()
        call = head.control.ExportStudy(pb.ExportStudyRequest(study="digits"))
        text = b"".join([response.data async for response in call])
        node.call.cancel()
    path = tmp_path / "digits.jsonl"
    path.write_bytes(text)
    assert sorted(job.steps for job in read(path).jobs) == [30, 30, 30]
    words = ["simulate", str(path), "--policy", "round_robin,fifo", "--orders", "1"]
    done = CliRunner().invoke(app, [*words, "--devices", "1", "--processes", "1", "-o", "json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [(row["file"], row["bin"], row["policy"]) for row in rows] == [
        ("digits", "all", "round_robin"),
        ("digits", "all", "fifo"),
    ]
    # 30 iterations in 0.5 s each time, and 0.1 s to start each of three.
    assert rows[1]["makespan"]["mean"] == pytest.approx(3 * (0.5 + 0.1))
