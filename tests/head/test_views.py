"""What is worked out for people from the state alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.head.api.ranking import RankedTrials
from hermesd.head.api.views import study_view
from hermesd.pb.hermes.v1 import control_pb2 as pb
from tests.core.playbook import Playbook, play


def view(book: Playbook) -> pb.Study:
    study = book.state.studies["s"]
    return study_view(book.state, study, RankedTrials(book.state, study))


def measured(book: Playbook, name: str, seconds: float) -> None:
    """The trial has done 20 of 100 steps, at so many seconds each."""
    trial = book.state.trials[name]
    book.state.put(replace(trial, step=20, planned_steps=100, step_seconds={"cpu": seconds}))


def test_the_end_is_unknown_until_a_speed_is_measured() -> None:
    book = play(trials=4)
    book.state.put(replace(book.trial("s/0"), planned_steps=100))
    assert not view(book).HasField("remaining_seconds")


def test_a_trial_that_was_not_measured_is_taken_for_the_median() -> None:
    book = play(trials=4)
    for name, seconds in (("s/0", 0.1), ("s/1", 0.1), ("s/2", 0.4)):
        measured(book, name, seconds)
    # Three have 80 steps left, the fourth 100 at 0.1 s; one device.
    assert view(book).remaining_seconds == pytest.approx(8 + 8 + 32 + 10)


def test_the_longest_trial_is_the_least_that_remains() -> None:
    book = play(trials=2, devices=2)
    measured(book, "s/0", 0.1)
    measured(book, "s/1", 1.0)
    assert view(book).remaining_seconds == pytest.approx(80)
