"""Trials of several devices of which one is slow: they continue on others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hermesd.core.events import FidelityKnown, Paused, Unpaused
from hermesd.core.model import Fidelity, Plugin, Stage
from tests.core.playbook import (
    Playbook,
    joined,
    quantum_ended,
    reported,
    run,
    started,
    submitted,
    trial_spec,
    written,
)

TURNS = Plugin("round_robin", (("quantum_seconds", 30.0),))


def trains(
    book: Playbook,
    name: str,
    seconds: float,
    step: int = 0,
    planned: int = 10_000,
    fidelity: Fidelity = Fidelity.EXACT,
) -> Playbook:
    """A run that does ten steps after its first, each in so many seconds."""
    book.tell(started(name, step, planned), FidelityKnown(run(name), fidelity, "", "torch-ddp"))
    book.tell(reported(name, step + 1, [1.0], busy_seconds=seconds))  # the first compiles
    return book.tell(reported(name, step + 11, [1.0] * 10, busy_seconds=10 * seconds))


def pairs(*seconds: float, devices: int = 8, slow: Any = None, **changes: Any) -> Playbook:
    """Trials of two devices each whose steps take so long; the last is as `slow` says."""
    book = Playbook().tell(submitted(len(seconds), devices=2, policy=TURNS, **changes))
    book.tell(joined(devices))
    for number, each in enumerate(seconds):
        trains(book, f"s/{number}#1", each, **(slow or {} if each == seconds[-1] else {}))
    book.heard()
    return book.at(30)


def test_a_trial_below_half_the_median_speed_goes_on_on_other_devices() -> None:
    book = pairs(1.0, 0.9, 2.5)
    book.tell(quantum_ended("s/2#1", 0, 11)).expect("suspend s/2#1 by checkpoint")
    assert book.scheduler.explain("s/2", 30.0).last_decision.endswith(
        "it continues on other devices: on these it is 0.4 times as fast as is usual, "
        "to save 1.5e+04 s for 0.1 s"
    )
    book.tell(written("s/2#1", 11)).expect("launch s/2#2 on n/6, n/7 for 30 s from s/2#1@11")


def test_it_stays_away_from_them_later_as_long_as_there_are_others() -> None:
    book = pairs(1.0, 0.9, 2.5)
    book.tell(quantum_ended("s/2#1", 0, 11)).tell(written("s/2#1", 11)).heard()
    trains(book, "s/2#2", 1.0, 11)
    book.tell(quantum_ended("s/2#2", 0, 22)).expect("renew s/2#2.1 for 30 s")
    book.tell(Paused(("s/2",), "r")).tell(written("s/2#2", 22)).heard()
    book.tell(Unpaused(("s/2",), "u")).expect("launch s/2#3 on n/6, n/7 for 30 s from s/2#2@22")


def test_it_has_them_again_rather_than_none() -> None:
    book = pairs(1.0, 0.9, 2.5)
    book.tell(quantum_ended("s/2#1", 0, 11)).heard()
    book.tell(submitted(1, "t", devices=2, policy=TURNS)).expect(
        "launch t/0#1 on n/6, n/7 for 30 s"
    )
    book.tell(written("s/2#1", 11)).expect("launch s/2#2 on n/4, n/5 for 30 s from s/2#1@11")


def test_it_has_them_again_rather_than_wait_for_others() -> None:
    book = pairs(1.0, 0.9, 2.5, devices=6)
    book.tell(joined(2, "m")).heard()
    book.tell(quantum_ended("s/2#1", 0, 11)).expect("suspend s/2#1 by checkpoint")
    book.tell(submitted(1, "t", devices=2)).expect("launch t/0#1 on m/0, m/1")
    book.tell(written("s/2#1", 11)).expect("launch s/2#2 on n/4, n/5 for 30 s from s/2#1@11")


def test_one_that_is_as_slow_elsewhere_stays_there() -> None:
    book = pairs(1.0, 0.9, 2.5)
    book.tell(quantum_ended("s/2#1", 0, 11)).tell(written("s/2#1", 11)).heard()
    trains(book, "s/2#2", 2.5, 11)
    book.at(60).tell(quantum_ended("s/2#2", 0, 22)).expect("renew s/2#2.1 for 30 s")


@pytest.mark.parametrize(
    "book",
    [
        pytest.param(lambda: pairs(1.0, 1.0, 1.9), id="it has more than half of the speed"),
        pytest.param(lambda: pairs(2.5), id="there is no other to compare it with"),
        pytest.param(lambda: pairs(1.0, 0.9, 2.5, devices=7), id="too few others are free"),
        pytest.param(
            lambda: pairs(1.0, 0.9, 2.5, slow={"planned": 11}), id="it is nearly at its end"
        ),
        pytest.param(
            lambda: pairs(1.0, 0.9, 2.5, slow={"fidelity": Fidelity.PARK_ONLY}),
            id="no checkpoint brings it back",
        ),
    ],
)
def test_it_goes_on_where_it_is_if(book: Any) -> None:
    told = book()
    number = max(int(name.rpartition("/")[2]) for name in told.state.trials)
    told.tell(quantum_ended(f"s/{number}#1", 0, 11)).expect(f"renew s/{number}#1.1 for 30 s")


def test_steps_of_another_batch_are_not_compared() -> None:
    book = Playbook()
    event = submitted(3, devices=2, policy=TURNS)
    large = replace(trial_spec("s/2"), stages=(Stage(None, (("batch_size", 64),)),))
    book.tell(replace(event, trials=(*event.trials[:2], large)), joined(8))
    for number, seconds in enumerate((1.0, 0.9, 2.5)):
        trains(book, f"s/{number}#1", seconds)
    book.heard()
    book.at(30).tell(quantum_ended("s/2#1", 0, 11)).expect("renew s/2#1.1 for 30 s")
