"""Devices of unequal speeds: what they take, who gets them, and a bound that stays one."""

from __future__ import annotations

import json
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hermesd.cli import app
from hermesd.core.model import Plugin
from hermesd.policy import SHIPPED
from hermesd.sim.bound import bound_of, check, shared, shortest_first
from hermesd.sim.curves import Job, Switch
from hermesd.sim.drive import Drive, SimulatedOutcome
from hermesd.sim.figures import figures_of
from hermesd.sim.orders import LossGoal, SubmissionOrder
from tests.simulate.small import EXAMPLE, order, trainings

LENGTHS = st.lists(st.floats(0.1, 10), min_size=1, max_size=5)
SPEEDS = st.lists(st.sampled_from([1.0, 0.7, 0.5, 0.1, 1.5]), min_size=1, max_size=3)
PLACEMENTS = [
    Plugin("free"),
    Plugin("free", (("speeds", "equal"),)),
    Plugin("homes", (("G_thres", 2), ("rebalance", "node"))),
    Plugin("swap", (("G_thres", 2),)),
]


def drive(
    jobs: SubmissionOrder,
    speeds: tuple[float, ...],
    policy: str = "fifo",
    placement: str = "measured",
) -> SimulatedOutcome:
    free = Plugin("free", (("speeds", placement),))
    return Drive(jobs, len(speeds), Plugin(policy), free, speeds).run()


def test_iterations_take_as_long_as_their_device_takes_and_switches_as_they_always_do() -> None:
    stays = drive(EXAMPLE, (1.0, 0.5)).stays
    assert {(each.trial, each.device): each.ended for each in stays} == {
        (0, 0): pytest.approx(0.64 + 4),
        (1, 1): pytest.approx(0.64 + 8),
    }


def test_the_shortest_left_is_on_the_fastest() -> None:
    assert shared([3.0, 1.0, 2.0], [0.5, 1.0]) == pytest.approx([1.0, 2.5, 4.75])


@given(LENGTHS, SPEEDS)
def test_no_schedule_without_preemption_ends_sooner(
    works: list[float], speeds: list[float]
) -> None:
    least = sum(shared(works, speeds))
    for sequence in permutations(works[:4]):
        for places in product(range(len(speeds)), repeat=len(sequence)):
            free = [0.0] * len(speeds)
            total = 0.0
            for work, place in zip(sequence, places, strict=True):
                free[place] += work / speeds[place]
                total += free[place]
            assert total >= sum(shared(sequence, speeds)) * (1 - 1e-9)
    equal = sum(shortest_first(works, len(speeds)))
    assert sum(shared(works, [1.0] * len(speeds))) == pytest.approx(equal)
    assert least >= equal / max(speeds) * (1 - 1e-9)


@st.composite
def orders(draw: st.DrawFn) -> SubmissionOrder:
    curves = st.lists(st.floats(0, 10), min_size=1, max_size=25)
    jobs = []
    for losses in draw(st.lists(curves, min_size=1, max_size=6)):
        announced = draw(st.sampled_from([len(losses), len(losses) + 2, None]))
        setting = ("batch_size", draw(st.sampled_from([16, 50])))
        seconds, diverges = draw(st.floats(0.05, 3)), draw(st.sampled_from([False, False, True]))
        jobs.append(Job(tuple(losses), seconds, announced, 1, (setting,), diverges=diverges))
    lows = [min(each.losses) for each in jobs]
    goal = LossGoal(float(np.median(lows)), 10.0, min(lows))
    good = tuple(place for place, low in enumerate(lows) if low <= goal.theta)
    return SubmissionOrder(
        tuple(jobs), good, goal, Switch(*(draw(st.floats(0, 3)) for _ in range(3)))
    )


@settings(max_examples=200)
@given(
    orders(),
    SPEEDS,
    st.sampled_from(sorted(policy.name for policy in SHIPPED)),
    st.sampled_from(PLACEMENTS),
)
def test_no_policy_beats_the_bound(
    one: SubmissionOrder, speeds: list[float], policy: str, placement: Plugin
) -> None:
    outcome = Drive(one, len(speeds), Plugin(policy), placement, speeds).run()
    check(figures_of(one, outcome), bound_of(one, len(speeds), speeds), f"{policy} {placement}")
    trained = [0] * len(one.jobs)
    for stay in outcome.stays:
        assert stay.first == trained[stay.trial]
        trained[stay.trial] = stay.last
    assert trained == [each.steps for each in one.jobs]


def test_the_leader_goes_on_on_the_fastest() -> None:
    falls = [10.0 * 0.99**step for step in range(400)]
    worse = [[10.0 - share * (10.0 - loss) for loss in falls] for share in (0.5, 0.4, 0.3)]
    jobs = order(*worse, falls)
    measured = drive(jobs, (0.5, 1.0), "best_first")
    equal = drive(jobs, (0.5, 1.0), "best_first", "equal")
    last = [stay for stay in measured.stays if stay.trial == 3][-1]
    assert last.device == 1
    assert measured.finished[3] < equal.finished[3]


def test_the_last_trial_does_not_stay_on_a_slow_device_beside_an_idle_one() -> None:
    jobs = order([5.0] * 20, [5.0] * 200)
    slow, moved = (drive(jobs, (1.0, 0.25), "round_robin", each) for each in ("equal", "measured"))
    assert slow.finished[1] == pytest.approx(0.64 + 800)
    assert moved.finished[1] < 300
    assert [stay.device for stay in moved.stays if stay.trial == 1] == [1, 0]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trainings(tmp_path_factory.mktemp("curves") / "digits_incep.npz")


def simulated(file: Path, devices: str, output: str = "json") -> str:
    words = ["simulate", str(file), "--policy", "asha,asha:placement=swap", "--orders", "2"]
    words += ["--bin", "1", "--devices", devices, "--processes", "1", "-o", output]
    result = CliRunner().invoke(app, words)
    return result.output


def test_figures_name_the_speeds(file: Path) -> None:
    found = json.loads(simulated(file, "2,100:50"))["rows"]
    assert [(row["devices"], row.get("speeds")) for row in found] == [
        (2, None),
        (2, None),
        (2, [1.0, 0.5]),
        (2, [1.0, 0.5]),
    ]
    assert "2 devices (100:50)" in simulated(file, "100:50", "table")


@pytest.mark.parametrize("devices", ["100:", "100:0", "100:fast", "1.5:1"])
def test_speeds_that_will_not_do_are_refused(file: Path, devices: str) -> None:
    result = CliRunner().invoke(app, ["simulate", str(file), "--devices", devices])
    assert result.exit_code == 2
    assert "100:70:50" in " ".join(result.output.split())
