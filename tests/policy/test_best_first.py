"""Best first: probes, ranking and the size of quanta, against the rule's own numbers."""

from __future__ import annotations

import pytest

from hermesd.core.model import Quantum, Use
from hermesd.core.policy import Facts
from hermesd.policy.best_first import BestFirst
from tests.policy.trials import costing, trained, trial

POLICY = BestFirst()


def test_a_first_quantum_is_at_least_half_a_second() -> None:
    assert POLICY.quantum(trial(), Facts()) == Quantum(0.5)


def test_a_first_quantum_is_twice_the_typical_switch() -> None:
    assert POLICY.quantum(trial(), Facts(0.4, 0.6)) == Quantum(2.0)


def test_a_first_quantum_is_two_percent_of_the_planned_length() -> None:
    # 2 % of 1,000 steps of 0.1 s
    facts = Facts(0.4, 0.6, 0.1)
    seconds = POLICY.quantum(trial(planned_steps=1000), facts).seconds
    assert seconds == pytest.approx(20 * 0.1)
    assert POLICY.quantum(trial(planned_steps=5000), facts).seconds == pytest.approx(10.0)


def test_a_first_quantum_of_unknown_length_is_twenty_steps() -> None:
    assert POLICY.quantum(trial(), Facts(step_seconds=0.1)).seconds == pytest.approx(2.0)


def test_own_measurements_beat_the_typical_ones() -> None:
    use, speed = Use(busy_seconds=5.0), {"cpu": 0.1}
    each = trained(0, [1.0] * 50, costs=costing(1.0, 2.0), use=use, step_seconds=speed)
    # 5 c = 15 s, 0.3 x 5 s served, first = max(2 c = 6 s, 20 x 0.1 s)
    assert POLICY.quantum(each, Facts(9.0, 9.0, 9.0)).seconds == pytest.approx(15.0)


def test_later_quanta_grow_with_the_service_received() -> None:
    each = trained(0, [1.0] * 50, served_seconds=100.0, costs=costing(0.1, 0.1))
    assert POLICY.quantum(each, Facts()).seconds == pytest.approx(30.0)
    staying = trained(0, [1.0] * 400, costs=costing(0.1, 0.1), use=Use(busy_seconds=200.0))
    assert POLICY.quantum(staying, Facts()).seconds == pytest.approx(60.0)


def test_a_later_quantum_is_never_shorter_than_the_first() -> None:
    use, speed = Use(busy_seconds=20.0), {"cpu": 0.1}
    each = trained(0, [1.0] * 200, planned_steps=10_000, use=use, step_seconds=speed)
    # first = 200 steps x 0.1 s = 20 s; 0.3 x 20 s = 6 s
    assert POLICY.quantum(each, Facts()).seconds == pytest.approx(20.0)


def test_a_probe_cut_short_is_finished_before_it_counts() -> None:
    # 2 % of 1,000 are 20 steps; 5 are done at 0.1 s each
    begun = trained(0, [1.0] * 5, planned_steps=1000, step_seconds={"cpu": 0.1})
    done = trained(1, [1.0] * 20, planned_steps=1000)
    assert POLICY.score(begun) == POLICY.score(trial(2))
    assert POLICY.score(begun) < POLICY.score(done)
    assert POLICY.quantum(begun, Facts()).seconds == pytest.approx(1.5)


def test_unprobed_first_then_the_lowest_loss() -> None:
    good, bad = trained(0, [1.0] * 30), trained(1, [2.0] * 30)
    silent, broken = trial(2, quanta=1), trained(3, [float("nan")] * 30)
    scores = [POLICY.score(each) for each in (trial(4), good, bad, silent)]
    assert scores == sorted(scores)
    assert scores[1] < scores[2] < scores[3]
    assert POLICY.score(silent) == POLICY.score(broken)


def test_the_loss_is_the_mean_of_the_last_tenth() -> None:
    # 40 iterations: the last 4 count
    each = trained(0, [9.0] * 36 + [1.0, 2.0, 3.0, 4.0])
    assert POLICY.score(each) == (1.0, 2.5)


def test_at_least_three_losses_count() -> None:
    each = trained(0, [9.0] * 17 + [1.0, 2.0, 3.0])
    assert POLICY.score(each) == (1.0, 2.0)
