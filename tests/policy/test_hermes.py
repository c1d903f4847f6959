"""Hermes against numbers worked out by hand from the paper's definitions."""

from __future__ import annotations

from typing import Any

import pytest

from hermesd.core.model import Milestone, Quantum
from hermesd.core.policy import Facts
from hermesd.core.trial import Trial
from hermesd.policy.curve import convergence
from hermesd.policy.published.hermes import Hermes
from tests.policy.trials import losses, on_device, trained, trial

FACTS = Facts()


def after(*quanta: list[float], **known: Any) -> Trial:
    """A trial with these losses, quantum by quantum."""
    seen = [losses(*quantum) for quantum in quanta]
    before = seen[-2] if len(seen) > 1 else None
    return trial(quanta=len(seen), first=seen[0], before=before, latest=seen[-1], **known)


def test_after_one_quantum_c_is_the_range_per_iteration() -> None:
    assert convergence(after([5.0, 4.0, 2.0, 3.0])) == (5.0 - 2.0) / 4


def test_later_c_is_the_drop_of_the_middle_per_iteration() -> None:
    # loss(0) = (5 + 2) / 2 = 3.5; loss(1) = (3 + 1) / 2 = 2; |L(1)| = 3
    assert convergence(after([5.0, 2.0], [3.0, 1.0, 2.0])) == (3.5 - 2.0) / 3


def test_only_the_latest_two_quanta_count() -> None:
    assert convergence(after([90.0, 80.0], [3.0, 1.0], [1.0, 1.0])) == (2.0 - 1.0) / 2


def test_a_rising_loss_is_a_negative_convergence() -> None:
    rising = after([1.0, 1.0], [2.0, 4.0])
    assert convergence(rising) == (1.0 - 3.0) / 2
    assert Hermes().words(rising) == "loss rises by 1 an iteration"


def test_a_trial_that_never_ran_has_none_and_goes_first() -> None:
    steep = after([100.0, 0.0])
    assert convergence(trial()) is None
    assert Hermes().score(trial()) < Hermes().score(steep)


def test_without_a_loss_nothing_converges_and_nan_goes_last() -> None:
    silent, rising = trial(quanta=1), after([1.0], [2.0])
    broken = trained(1, [float("nan")] * 3)
    assert convergence(silent) == 0.0
    scores = [Hermes().score(each) for each in (after([2.0, 1.0]), silent, rising, broken)]
    assert scores == sorted(scores)


def test_the_largest_c_goes_first() -> None:
    slow, fast = after([2.0, 1.0]), after([2.0, 0.0])
    assert Hermes().score(fast) < Hermes().score(slow)


def test_the_winner_may_stay_or_literally_makes_way() -> None:
    winner, other = on_device(after([9.0, 0.0])), after([1.0, 1.0])
    assert Hermes().score(winner) < Hermes().score(other)
    literal = Hermes(winner_may_stay=False)
    assert literal.score(winner) > literal.score(other)
    assert literal.score(winner) > literal.score(after([1.0], [2.0]))


def test_the_first_quantum_is_ten_seconds_without_milestones() -> None:
    assert Hermes().quantum(trial(), FACTS) == Quantum(10.0)


def test_milestones_are_percentages_of_the_first_quantums_loss() -> None:
    # loss(0) = (5 + 3) / 2 = 4
    ahead = Hermes().quantum(after([5.0, 3.0]), FACTS).milestones
    assert [each.percent for each in ahead] == [25.0, 50.0, 75.0, 90.0]
    assert [each.loss for each in ahead] == pytest.approx([3.0, 2.0, 1.0, 0.4])


def test_each_milestone_passed_adds_ten_seconds_and_is_no_longer_ahead() -> None:
    seconds = []
    for passed in (0.0, 25.0, 50.0, 75.0, 90.0):
        quantum = Hermes().quantum(after([4.0, 4.0], milestone_percent=passed), FACTS)
        assert [each.percent for each in quantum.milestones] == [
            each for each in (25.0, 50.0, 75.0, 90.0) if each > passed
        ]
        seconds.append(quantum.seconds)
    assert seconds == [10.0, 20.0, 30.0, 40.0, 50.0]


def test_milestones_of_a_signal_below_zero_lie_further_down() -> None:
    quantum = Hermes(milestones=(50.0,)).quantum(after([-0.25, -0.75]), FACTS)
    assert quantum.milestones == (Milestone(50.0, -0.75),)


def test_no_milestones_from_a_first_loss_that_is_no_number() -> None:
    assert Hermes().quantum(trained(0, [float("inf")] * 2), FACTS).milestones == ()


def test_growth_by_preemptions_counts_them_and_sets_no_milestones() -> None:
    policy = Hermes(growth_on="preemptions", growth_seconds=5.0)
    grown = [policy.quantum(after([4.0], preemptions=n), FACTS) for n in (0, 1, 3)]
    assert grown == [Quantum(10.0), Quantum(15.0), Quantum(25.0)]
