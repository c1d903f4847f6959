"""What is good, and which orders are drawn: fixed, so that figures of different people compare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hermesd.refusal import Refused
from hermesd.sim.curves import Curves, Switch
from hermesd.sim.orders import ALL, draw, goal_of, good_jobs
from tests.simulate.small import job


def stock(*lows: float, start: float = 10.0) -> Curves:
    """Jobs that fall from `start` to each of these."""
    return Curves("stock", tuple(job((start, low)) for low in lows), Switch.split(1.0))


def test_good_is_within_a_tenth_of_the_way_from_the_best() -> None:
    curves = stock(*np.linspace(0, 0.9, 20), *np.linspace(1.1, 9, 80))
    goal = goal_of(curves)
    assert (goal.best, goal.start) == (0.0, 10.0)
    assert goal.theta == pytest.approx(1.0)
    assert good_jobs(curves, goal) == list(range(20))


def test_the_goal_is_raised_until_sixteen_are_good() -> None:
    curves = stock(*range(9), *np.linspace(8.1, 9, 91))
    goal = goal_of(curves)
    assert goal.theta == pytest.approx(sorted(job.losses[-1] for job in curves.jobs)[15])
    assert len(good_jobs(curves, goal)) == 16


def test_the_goal_is_lowered_if_more_than_two_fifths_are_good() -> None:
    curves = stock(*np.linspace(0, 0.9, 50), *np.linspace(5, 9, 50))
    goal = goal_of(curves)
    assert goal.theta == pytest.approx(np.quantile([job.losses[-1] for job in curves.jobs], 0.25))
    assert len(good_jobs(curves, goal)) == 25


@pytest.mark.parametrize(("best", "expected"), [(0.9, 1.0), (-0.9, -0.81), (0.0, 0.0)])
def test_good_may_be_nine_tenths_of_the_optimum(best: float, expected: float) -> None:
    curves = stock(*[best] * 20, *np.linspace(1.1, 9, 80))
    assert goal_of(curves, "optimum").theta == pytest.approx(expected)
    assert goal_of(curves).theta == pytest.approx(best + 0.1 * (10 - best))
    few = stock(best, *np.linspace(2, 3, 20), *np.linspace(4, 9, 80))
    assert len(good_jobs(few, goal_of(few, "optimum"))) == 16, "raised, as the other is"


@pytest.mark.parametrize(("bin_type", "good"), [(1, 4), (2, 12)])
def test_an_order_is_drawn_as_documented(bin_type: int, good: int) -> None:
    curves = stock(*np.linspace(0, 0.9, 20), *np.linspace(1.1, 9, 80))
    goal = goal_of(curves)
    drawn = draw(curves, goal, bin_type, 16, 7, seed=0)
    chance = np.random.default_rng(1_000 * bin_type + 7)
    expected = np.concatenate(
        (
            chance.choice(np.arange(20), good, replace=False),
            chance.choice(np.arange(20, 100), 16 - good, replace=False),
        )
    )
    chance.shuffle(expected)
    assert drawn.jobs == tuple(curves.jobs[each] for each in expected)
    assert [int(expected[place]) < 20 for place in range(16)] == [
        p in drawn.good for p in range(16)
    ]
    assert len(drawn.good) == good
    assert draw(curves, goal, bin_type, 16, 7, seed=0) == drawn
    assert draw(curves, goal, bin_type, 16, 7, seed=1) != drawn
    assert draw(curves, goal, bin_type, 16, 8, seed=0) != drawn


def test_all_trials_begin_in_the_file_s_own_order() -> None:
    curves = stock(*np.linspace(0, 9, 30))
    goal = goal_of(curves)
    assert draw(curves, goal, ALL, 16, 0, seed=3).jobs == curves.jobs
    shuffled = draw(curves, goal, ALL, 16, 1, seed=3).jobs
    assert shuffled != curves.jobs
    assert sorted(each.losses for each in shuffled) == sorted(each.losses for each in curves.jobs)


@pytest.mark.parametrize(
    ("trials", "told"),
    [
        (120, r"120 trials for bin 1, 30 good and 90 not; it has 100, 20 and 80: give --trials 82"),
        (1, r"1 trials for bin 1, 0 good and 1 not; it has 100, 20 and 80: give --trials 3"),
    ],
)
def test_an_order_that_cannot_be_drawn_is_refused(trials: int, told: str) -> None:
    curves = stock(*np.linspace(0, 0.9, 20), *np.linspace(1.1, 9, 80))
    with pytest.raises(Refused, match=f"expected {told}, or --bin all"):
        draw(curves, goal_of(curves), 1, trials, 0, seed=0)
    nearest = int(told.split()[-1])
    assert len(draw(curves, goal_of(curves), 1, nearest, 0, seed=0).jobs) == nearest


def test_trials_that_make_no_bin_are_run_whole_instead() -> None:
    curves = stock(*np.linspace(0, 0.9, 20))
    goal = replace(goal_of(curves), theta=1.0)
    with pytest.raises(Refused, match=r"it has 20, 20 and 0: give --bin all$"):
        draw(curves, goal, 1, 16, 0, seed=0)
