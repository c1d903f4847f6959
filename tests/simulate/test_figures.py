"""Every figure of the worked example, by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermesd.core.model import Plugin
from hermesd.policy import SHIPPED
from hermesd.sim.bound import Beaten, bound_of, check, shortest_first
from hermesd.sim.curves import Curves, Job, Switch
from hermesd.sim.figures import Figures, effort_of, figures_of, top_places
from hermesd.sim.orders import ALL, draw, goal_of
from tests.simulate.small import EXAMPLE, SLOW, STEEP, order, play

TURNS = Plugin("round_robin", (("quantum_seconds", 2.0),))


def assert_near(figures: Figures, expected: Figures) -> None:
    assert asdict(figures) == pytest.approx(asdict(expected))


def test_the_figures_of_fifo() -> None:
    figures = figures_of(EXAMPLE, play(EXAMPLE, Plugin("fifo")))
    # The lowest loss stands at 10, 9, 8, 7 from 1.64, 2.64, 3.64, 4.64 s on and at 4, 2, 1 from
    # 7.28, 8.28, 9.28 s on; the floor is 1, and 10 counts as 1.
    auc = 2.64 + 8 / 9 + 7 / 9 + 2.64 * 6 / 9 + 3 / 9 + 1 / 9
    expected = Figures(7.28, 9.28, 7.28, auc, 9.28, 9.28, (4.64 + 9.28) / 2)
    assert_near(figures, expected)


def test_the_figures_of_turns() -> None:
    outcome = play(EXAMPLE, TURNS)
    # 10 and 9 at 1.64 and 2.64 s, 4 at 5.64 s, 2 and 1 at 10.28 and 11.28 s.
    auc = 2.64 + 3.0 * 8 / 9 + 4.64 * 3 / 9 + 1 / 9
    assert_near(figures_of(EXAMPLE, outcome), Figures(5.64, 11.28, 5.64, auc, 11.28, 11.28, 9.96))
    effort = effort_of(outcome)
    assert effort.switches == 2
    assert effort.overhead == pytest.approx(2.0 / 11.28)


def test_the_bound_of_one_device() -> None:
    """The good trial at once; each device-second is needed; both curves side by side."""
    auc = 2.64 + 3 / 9 + 1 / 9
    expected = Figures(2.64, 4.64, 2.64, auc, 4.64, 9.28, (4.64 + 9.28) / 2)
    assert_near(bound_of(EXAMPLE, 1), expected)


def test_the_bound_counts_what_it_takes_to_leave() -> None:
    """Two good trials, at their steps 2 and 1 of 4: the shorter first, then 0.36 s to leave it."""
    two = order(STEEP, (3.0, 3.0, 3.0, 3.0))
    assert bound_of(two, 1).time_to_good == pytest.approx((1.64 + (1.64 + 0.36 + 2.64)) / 2)
    assert bound_of(two, 2).time_to_good == pytest.approx((1.64 + 2.64) / 2)


def test_the_bound_counts_a_long_first_iteration_and_the_end() -> None:
    """2 s more before each first iteration ends, and half a second after each last one."""
    opened = tuple(replace(each, opening_seconds=2.0) for each in EXAMPLE.jobs)
    slow = replace(EXAMPLE, jobs=opened, switch=replace(EXAMPLE.switch, ending=0.5))
    bound = bound_of(slow, 1)
    assert bound.time_to_good == pytest.approx(4.64)
    assert bound.time_to_best == pytest.approx(7.14)
    assert bound.makespan == pytest.approx(14.28)
    check(figures_of(slow, play(slow, Plugin("fifo"))), bound, "fifo")


def test_within_two_percent_of_the_best_comes_before_the_best() -> None:
    close = order(SLOW, (10.0, 1.17, 1.0))
    assert figures_of(close, play(close, Plugin("fifo"))).near_best == pytest.approx(7.28)
    wide = order(SLOW, (10.0, 1.19, 1.0))
    assert figures_of(wide, play(wide, Plugin("fifo"))).near_best == pytest.approx(8.28)


def test_the_top_are_the_good_trials_that_end_lowest() -> None:
    finals = [3.0, 1.0, 9.0, 2.0, 0.5, 2.5]
    six = order(*[(10.0, 1.0, final) for final in finals])
    assert top_places(six) == [4, 1, 3, 5]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.integers(1, 3))
def test_shortest_first_has_the_least_sum_of_all_schedules(
    lengths: list[float], devices: int
) -> None:
    least = math.inf
    for sequence in itertools.permutations(lengths):
        for places in itertools.product(range(devices), repeat=len(lengths)):
            free = [0.0] * devices
            total = 0.0
            for length, place in zip(sequence, places, strict=True):
                free[place] += length
                total += free[place]
            least = min(least, total)
    assert sum(shortest_first(lengths, devices)) == pytest.approx(least)


losses = st.lists(st.floats(0, 10), min_size=1, max_size=25)


@st.composite
def curves(draw_: st.DrawFn) -> Curves:
    smoothing = draw_(st.integers(1, 5))
    switch = Switch(*(draw_(st.floats(0, 3)) for _ in range(3)))
    jobs = []
    for recorded in draw_(st.lists(losses, min_size=1, max_size=6)):
        seconds = draw_(st.floats(0.05, 3))
        announced = draw_(st.sampled_from([len(recorded), len(recorded) + 2, 1, None]))
        diverges = draw_(st.sampled_from([False, False, True]))
        last = len(recorded)
        told = draw_(st.none() | st.sets(st.integers(1, last)))
        points = None if told is None else (*sorted(told - {last}), last)
        one = Job(tuple(recorded), seconds, announced, smoothing, (), 0.0, diverges, points)
        jobs.append(one)
    return Curves("drawn", tuple(jobs), switch)


@settings(max_examples=150)
@given(
    curves(),
    st.sampled_from(sorted(policy.name for policy in SHIPPED)),
    st.sampled_from([Plugin("free"), Plugin("homes", (("G_thres", 2),))]),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_no_policy_beats_the_bound(
    drawn: Curves, policy: str, placement: Plugin, devices: int, number: int
) -> None:
    one = draw(drawn, goal_of(drawn), ALL, 0, number, seed=0)
    outcome = play(one, Plugin(policy), devices, placement)
    check(figures_of(one, outcome), bound_of(one, devices), policy)
    trained = np.zeros(len(one.jobs), int)
    for stay in outcome.stays:
        assert stay.first == trained[stay.trial]
        trained[stay.trial] = stay.last
    assert trained.tolist() == [each.steps for each in one.jobs]


def test_a_bound_that_is_beaten_is_loud() -> None:
    bound = bound_of(EXAMPLE, 1)
    better = replace(bound, time_to_good=2.0)
    with pytest.raises(Beaten, match=r"time_to_good 2\.0 s is below the bound"):
        check(better, bound, "a wrong simulator")


def test_one_job_reaches_its_bound() -> None:
    alone = order(STEEP)
    assert_near(figures_of(alone, play(alone, Plugin("fifo"))), bound_of(alone, 1))
