"""A study that a head exported, as the curves of a simulation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from hermesd.cli import app
from hermesd.core.events import Reported
from hermesd.core.model import Goal, Plugin, Quantum, RunId, StopRule, Tier
from hermesd.core.policy import Facts, Score
from hermesd.core.trial import SwitchCost, Trial
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.refusal import Refused
from hermesd.sim.bound import bound_of, check
from hermesd.sim.compare import read
from hermesd.sim.curves import Switch
from hermesd.sim.drive import Drive
from hermesd.sim.exports import open_export
from hermesd.sim.figures import figures_of
from hermesd.sim.orders import ALL, draw, goal_of
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


def test_steps_that_were_trained_again_count_once_and_a_gap_has_the_loss_before(
    tmp_path: Path,
) -> None:
    path = exported(
        tmp_path / "s.jsonl",
        study(),
        [with_stages(trial(0, 6, busy=6.0))],
        points(0, 1, [2, 4, 6], [10.0, 8.0, 100.0]),
        points(0, 2, [5, 6], [7.0, 6.0]),
    )
    (job,) = read(path).jobs
    assert (job.losses, job.points) == ((10.0, 10.0, 10.0, 8.0, 7.0, 6.0), (2, 4, 5, 6))


# Two trials of eight iterations of 1 s, whose signal is told after the fourth and the eighth.
def validated(tmp_path: Path) -> Path:
    trials = [with_stages(trial(number, 8, busy=8.0)) for number in (0, 1)]
    shown = [points(number, 1, [4, 8], [5.0 + number, 1.0]) for number in (0, 1)]
    return exported(tmp_path / "s.jsonl", study(), trials, *shown)


class Watching:
    """Turns of two seconds; keeps what it saw of the first trial at each step."""

    name: ClassVar[str] = "watching"

    def __init__(self) -> None:
        self.seen: dict[int, float | None] = {}

    def score(self, trial: Trial) -> Score:
        if trial.spec.number == 0:
            self.seen[trial.step] = trial.loss
        return (1.0, 0.0) if trial.phase.on_device else (0.0, trial.rested)

    def quantum(self, trial: Trial, facts: Facts) -> Quantum:
        return Quantum(2.0)

    def words(self, trial: Trial) -> str:
        return "in its turn"


def test_a_loss_is_known_to_policies_once_it_was_reported_and_not_before(tmp_path: Path) -> None:
    curves, policy = read(validated(tmp_path)), Watching()
    order = draw(curves, goal_of(curves), ALL, 2, 0, 0)
    Drive(order, 1, Plugin("watching"), Plugin("free"), make=lambda plugin: policy).run()
    assert {step: policy.seen[step] for step in (0, 2, 4, 6)} == {0: None, 2: None, 4: 5.0, 6: 5.0}


def test_before_its_first_loss_a_trial_has_come_to_nothing(tmp_path: Path) -> None:
    curves = read(validated(tmp_path))
    assert curves.jobs[0].smoothed.tolist() == [math.inf] * 3 + [5.0] * 4 + [1.0]
    assert goal_of(curves).start == 5.5
    order = draw(curves, goal_of(curves), ALL, 2, 0, 0)
    outcome = Drive(order, 2, Plugin("fifo"), Plugin("free")).run()
    # 0.64 s to start, then both are there with their eighth iteration.
    figures = figures_of(order, outcome)
    assert figures.time_to_good == figures.near_best == pytest.approx(8.64)
    check(figures, bound_of(order, 2), "fifo")


@pytest.mark.parametrize(
    "line",
    [
        {"steps": [1, 2], "values": [1.0]},
        {"steps": [1, 2]},
        {"steps": ["first"], "values": [1.0]},
        {"steps": [1], "values": [None]},
        {"steps": [1], "values": [1.0], "attempt": "x"},
    ],
)
def test_points_that_are_none_are_refused(line: dict[str, Any], tmp_path: Path) -> None:
    told = {"type": "points", "trial": "s/0", "attempt": 1, "metric": "loss", **line}
    path = exported(tmp_path / "s.jsonl", study(), [with_stages(trial(0, 2, busy=2.0))], told)
    with pytest.raises(Refused, match="line 3 to be one that `hermesctl study export` writes"):
        read(path)


def test_more_iterations_than_can_be_looked_at_are_refused(tmp_path: Path) -> None:
    """A program that numbers its steps by the examples that it has seen."""
    one = with_stages(trial(0, 10**9, busy=2.0))
    path = exported(tmp_path / "s.jsonl", study(), [one], points(0, 1, [1, 10**9], [2.0, 1.0]))
    with pytest.raises(Refused, match="at most 20,000,000 iterations in all, not 1,000,000,000"):
        read(path)


def test_a_maximized_signal_is_turned_and_a_broken_one_ends_there(tmp_path: Path) -> None:
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


def test_where_a_study_goes_on_such_a_loss_was_not_shown(tmp_path: Path) -> None:
    lines = [points(0, 1, [1, 2, 3, 4], [0.9, "nan", 0.4, "inf"]), points(1, 1, [1], ["nan"])]
    trials = [with_stages(trial(0, 4, busy=4.0)), with_stages(trial(1, 1, busy=1.0))]
    goes_on = study(stop=StopRule(on_nan=False))
    (job,) = read(exported(tmp_path / "s.jsonl", goes_on, trials, *lines)).jobs
    assert (job.losses, job.points, job.diverges) == ((0.9, 0.9, 0.4, 0.4), (1, 3), False)


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
        ("", "the lines of an exported study; it is empty"),
        ('{"type":"none"}\n', "an export of a study: its first line has the type study"),
        ("trial,attempt,metric,step,value\nd/0,1,loss,1,2.5\n", "points as CSV: export to .jsonl"),
        ("[" * 200_000, "line 1 to be one that `hermesctl study export` writes"),
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
