"""Tiresias: queues by attained service, and the Gittins index, worked out by hand."""

from __future__ import annotations

import pytest

from hermesd.core.model import Quantum
from hermesd.core.policy import Facts
from hermesd.core.trial import Trial, Use
from hermesd.policy.published.tiresias import Tiresias, gittins
from tests.policy.trials import on_device, trained, trial

FACTS = Facts()
QUEUES = Tiresias(thresholds=(10.0, 40.0))


def served(number: int, seconds: float, **known: object) -> Trial:
    """A trial that has had a device for so long."""
    return trained(number, [1.0], **{"served_seconds": seconds, **known})


def test_the_queue_is_the_number_of_thresholds_reached() -> None:
    queues = [QUEUES.score(served(0, seconds))[0] for seconds in (0.0, 9.9, 10.0, 39.9, 40.0, 1e6)]
    assert queues == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]


def test_inside_a_queue_who_came_first_goes_first_whatever_the_service() -> None:
    early, late = served(1, 39.0, submitted=1.0), served(0, 11.0, submitted=2.0)
    assert QUEUES.score(early) < QUEUES.score(late)
    assert QUEUES.score(served(2, 5.0, submitted=9.0)) < QUEUES.score(early)


def test_the_stay_that_goes_on_counts() -> None:
    staying = on_device(served(0, 8.0, use=Use(busy_seconds=12.0)))
    assert QUEUES.score(staying)[0] == 1.0


def test_a_turn_ends_at_the_threshold_or_after_the_quantum() -> None:
    assert QUEUES.quantum(trial(), FACTS) == Quantum(10.0)
    assert QUEUES.quantum(served(0, 4.0), FACTS) == Quantum(6.0)
    assert QUEUES.quantum(served(0, 9.999), FACTS) == Quantum(1.0)
    assert QUEUES.quantum(served(0, 10.0), FACTS) == Quantum(30.0)
    assert QUEUES.quantum(served(0, 500.0), FACTS) == Quantum(30.0)


def test_gittins_of_two_durations() -> None:
    # d = 1: (1/2) / ((1 + 1) / 2) = 1/2; d = 10: 1 / ((1 + 10) / 2) = 2/11
    assert gittins(0.0, (10.0, 1.0)) == pytest.approx(1 / 2)
    # Past the short one only d = 9 is left: 1 / 9
    assert gittins(1.0, (10.0, 1.0)) == pytest.approx(1 / 9)
    assert gittins(10.0, (10.0, 1.0)) == 0.0


def test_gittins_takes_the_best_of_all_further_services() -> None:
    # d = 4: (1/3) / 4 = 1/12; d = 5: (2/3) / ((4 + 5 + 5) / 3) = 1/7; d = 6: 1 / ((4+5+6)/3) = 1/5
    assert gittins(0.0, (4.0, 5.0, 6.0)) == pytest.approx(1 / 5)


def test_with_durations_the_largest_index_goes_first() -> None:
    policy = Tiresias(durations=(1.0, 10.0))
    fresh, beyond, nearly = trial(0), served(1, 1.0), served(2, 9.0)
    # 1/2, 1/9 and 1/1: one second from its end beats all
    assert policy.score(nearly) < policy.score(fresh) < policy.score(beyond)
    assert policy.score(fresh) == (-0.5, 0.0)
    assert policy.quantum(fresh, FACTS) == Quantum(30.0)


def test_words_say_the_queue_or_the_index() -> None:
    assert QUEUES.words(served(0, 12.0)) == "queue 1 of 2, served 12.0 s"
    assert Tiresias(durations=(4.0,)).words(trial()) == "Gittins index 0.25 after 0.0 s"
