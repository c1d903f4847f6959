"""First in, first out, round-robin and SLAQ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.model import Quantum
from hermesd.core.policy import Facts
from hermesd.policy.curve import InverseFit, fit_inverse
from hermesd.policy.fifo import Fifo
from hermesd.policy.published.slaq import Slaq, predicted_reduction
from hermesd.policy.round_robin import RoundRobin
from tests.policy.trials import curve, losses, on_device, trained, trial


def test_fifo_follows_submission_and_never_ends_a_quantum() -> None:
    early, late = trial(1, submitted=1.0), trial(0, submitted=2.0)
    assert Fifo().score(early) < Fifo().score(late)
    assert Fifo().quantum(early, Facts()) == Quantum()


def test_fifo_lets_whoever_has_a_device_go_on() -> None:
    assert Fifo().score(on_device(trial(9, submitted=5.0))) < Fifo().score(trial(0))


def test_round_robin_takes_who_waited_longest_and_the_occupant_last() -> None:
    long, short = trial(5, rested=1.0), trial(4, rested=2.0)
    just_ran = on_device(trial(0, rested=0.0))
    scores = [RoundRobin().score(each) for each in (long, short, just_ran)]
    assert scores == sorted(scores)
    assert len(set(scores)) == 3


def test_round_robin_gives_thirty_seconds() -> None:
    assert RoundRobin().quantum(trial(), Facts()) == Quantum(30.0)


def test_slaq_as_the_hermes_paper_has_it_takes_the_highest_loss() -> None:
    high, low = trained(0, [5.0] * 3), trained(1, [1.0] * 3)
    broken = trained(2, [float("nan")] * 3)
    scores = [Slaq().score(each) for each in (trial(3), high, low, broken)]
    assert scores == sorted(scores)
    assert scores[1] == (1.0, -5.0)


def inverse(count: int, slope: float, offset: float, floor: float) -> list[float]:
    return [1 / (slope * step + offset) + floor for step in range(1, count + 1)]


def test_the_fit_finds_a_curve_of_its_own_family() -> None:
    values = inverse(17, 0.5, 0.5, 2.0)
    fit = fit_inverse(curve(values))
    assert fit is not None
    assert fit.at(100) == pytest.approx(1 / 50.5 + 2.0, abs=0.02)
    assert [fit.at(step) for step in range(8, 18)] == pytest.approx(values[7:], abs=0.02)


def test_the_fit_recovers_exact_parameters_when_the_floor_is_tried() -> None:
    # Means from 1 down to 1/11 above the floor: it lies a tenth of the span below the lowest.
    fit = fit_inverse(curve(inverse(11, 1.0, 0.0, 3.0)))
    assert fit is not None
    assert (fit.slope, fit.offset, fit.floor) == pytest.approx((1.0, 0.0, 3.0), abs=1e-6)


def test_a_rising_curve_fits_as_flat() -> None:
    fit = fit_inverse(curve([1.0, 2.0, 3.0, 4.0]))
    assert fit is not None
    assert fit.slope == 0.0


@pytest.mark.parametrize("values", [[], [1.0, 2.0], [1.0] * 9, [float("nan")] * 9])
def test_no_fit_without_three_different_finite_losses(values: list[float]) -> None:
    assert fit_inverse(curve(values)) is None


def test_the_fits_value_is_infinite_where_it_has_none() -> None:
    assert InverseFit(0.0, 0.0, 1.0).at(5) == float("inf")


def test_slaqs_own_reading_is_the_predicted_share_of_the_largest_drop() -> None:
    # f(k) = 1 / k; a next quantum of 11 more: (1/11 - 1/22) / (1 - 1/11)
    each = trained(0, inverse(11, 1.0, 0.0, 0.0))
    assert predicted_reduction(each) == pytest.approx((1 / 11 - 1 / 22) / (10 / 11), rel=1e-4)


def test_slaqs_own_reading_ignores_the_scale_of_a_loss() -> None:
    small = trained(0, inverse(11, 1.0, 0.0, 0.0))
    large = trained(1, [1000 * each for each in inverse(11, 1.0, 0.0, 0.0)])
    assert predicted_reduction(small) == pytest.approx(predicted_reduction(large))


def test_slaqs_own_reading_prefers_what_still_falls() -> None:
    policy = Slaq(reading="predicted_reduction")
    falling = trained(0, inverse(20, 0.05, 1.0, 0.0))
    settled = trained(1, [*inverse(20, 5.0, 0.0, 0.0), *[0.01] * 60])
    flat = trained(2, [1.0] * 20)
    scores = [policy.score(each) for each in (trial(3), falling, settled, flat)]
    assert scores == sorted(scores)
    assert policy.score(flat) == (1.0, 0.0)


def test_a_longer_quantum_promises_a_larger_drop() -> None:
    each = trained(0, inverse(11, 1.0, 0.0, 0.0))
    longer = replace(each, latest=losses(*[1.0] * 50))
    assert predicted_reduction(longer) > predicted_reduction(each)
