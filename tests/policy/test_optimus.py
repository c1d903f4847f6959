"""Optimus at width one: the loss fit, steps to convergence, and who is nearest to it."""

from __future__ import annotations

import math

import pytest

from hermesd.core.losses import Chunk
from hermesd.core.trial import Trial
from hermesd.policy.curve import InverseFit, fit_inverse
from hermesd.policy.elastic.loss import settles_at, without_outliers
from hermesd.policy.published.optimus import OptimusWidth1
from tests.policy.trials import curve, trained, trial

POLICY = OptimusWidth1()


def falling(number: int, count: int, slope: float, **known: object) -> Trial:
    """A trial whose losses are 1 / (slope k + 1), at a tenth of a second each."""
    values = [1 / (slope * step + 1) for step in range(1, count + 1)]
    return trained(number, values, **{"step_seconds": {"cpu": 0.1}, **known})


def test_the_drop_of_an_epoch_is_met_where_the_equation_says() -> None:
    # l = 1 / k, epochs of 1: 1 / k - 1 / (k + 1) = 1 / (k (k + 1)) is 1 / 6 at k = 2
    assert settles_at(InverseFit(1.0, 0.0, 0.0), 1 / 6, 1) == pytest.approx(2.0)
    # An offset of 1 comes one step nearer.
    assert settles_at(InverseFit(1.0, 1.0, 0.0), 1 / 6, 1) == pytest.approx(1.0)
    # Half the slope and twice the epoch: x = k / 2 is where it was.
    assert settles_at(InverseFit(0.5, 0.0, 0.0), 1 / 6, 2) == pytest.approx(4.0)
    assert settles_at(InverseFit(0.0, 1.0, 0.0), 1 / 6, 1) == 0.0
    assert settles_at(InverseFit(1.0, 9.0, 0.0), 1 / 6, 1) == 0.0


def test_the_floor_is_scanned_from_zero_to_the_lowest_loss() -> None:
    # Losses from 4 to 3.1 above a floor of 3: a scan by their own range would never come to 0.
    fit = fit_inverse(curve([1 / (0.02 * k + 0.2) for k in range(1, 21)]), floor_from_zero=True)
    assert fit is not None
    assert (fit.slope, fit.offset, fit.floor) == pytest.approx((0.02, 0.2, 0.0), abs=1e-9)
    below = fit_inverse(curve([-3.0, -3.5, -3.6]), floor_from_zero=True)
    assert below is not None
    assert below.floor < -3.6


def test_a_chunk_of_many_iterations_stands_at_its_middle() -> None:
    ends = [(1, 3), (4, 8), (9, 15)]
    middles = [(first + last) / 2 for first, last in ends]
    chunks = [
        Chunk(a, b, b - a + 1, (b - a + 1) / middle, 0.0, 1.0)
        for (a, b), middle in zip(ends, middles, strict=True)
    ]
    fit = fit_inverse(chunks, floor_from_zero=True)
    assert fit is not None
    assert (fit.slope, fit.offset, fit.floor) == pytest.approx((1.0, 0.0, 0.0), abs=1e-9)


def test_steps_left_are_those_to_convergence_and_the_epochs_that_prove_it() -> None:
    # l = 1 / (k + 1) has fallen by 1/2 x 1/6 of its largest (1/2) an epoch at (k+1)(k+2) = 12:
    # k = 2, and two epochs more. The floor of 0 is found exactly.
    policy = OptimusWidth1(threshold=1 / 6, epoch=1.0001, epochs=2)
    one = falling(0, 3, 1.0)
    kind, seconds = policy.score(one)
    # An epoch of 2 steps: x (x + 2) = 2 x 12 is met at x = 4 (k = 3); 3 + 2 x 2 - 3 = 4 steps.
    assert (kind, seconds) == (1.0, pytest.approx(4 * 0.1))


def test_the_planned_end_is_never_passed() -> None:
    far = falling(0, 10, 0.1, planned_steps=25)
    assert POLICY.score(far) == (1.0, pytest.approx(15 * 0.1))


def test_unexplored_first_then_the_least_time_and_the_converged_last() -> None:
    near, far = falling(0, 50, 0.5, planned_steps=400), falling(1, 50, 0.1, planned_steps=4000)
    done = falling(2, 390, 5.0, planned_steps=400)
    scores = [POLICY.score(each) for each in (trial(3), near, far, done)]
    assert scores == sorted(scores)
    assert [kind for kind, _ in scores] == [0.0, 1.0, 1.0, 2.0]


def test_without_a_fit_or_a_speed_the_plan_or_nothing_is_known() -> None:
    short = trained(0, [2.0, 1.0], planned_steps=12, step_seconds={"cpu": 0.5})
    assert POLICY.score(short) == (1.0, 5.0)
    assert POLICY.score(trained(0, [2.0, 1.0], step_seconds={"cpu": 0.5})) == (1.0, math.inf)
    assert POLICY.score(falling(0, 20, 0.1, step_seconds={})) == (1.0, math.inf)


def test_an_outlier_becomes_its_neighbors_average() -> None:
    values = [8.0, 7.0, 99.0, 5.0, 4.0, 3.0]
    smooth = [chunk.mean for chunk in without_outliers(curve(values))]
    assert smooth == [8.0, 7.0, (8.0 + 7.0 + 5.0 + 4.0) / 4, 5.0, 4.0, 3.0]
    assert without_outliers(curve(values[:3])) == curve(values[:3])


def test_words_say_where_it_stands() -> None:
    assert POLICY.words(trial()) == "unexplored"
    assert POLICY.words(falling(0, 390, 5.0, planned_steps=400)) == "converged, about 1 s left"
