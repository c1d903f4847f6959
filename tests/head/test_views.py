"""What is worked out for people from the state alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hermesd.core.model import Goal, Phase, StopRule
from hermesd.head.api.ranking import leaderboard
from hermesd.head.api.views import ranked_view, signed, study_view
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pieces import whole
from tests.core.playbook import Playbook, play, submitted


def view(book: Playbook) -> pb.Study:
    study = book.state.studies["s"]
    return whole(study_view(book.state, study, whole(leaderboard(book.state, study))))


def measured(book: Playbook, name: str, seconds: float) -> None:
    """The trial has done 20 of 100 steps, at so many seconds each."""
    trial = book.state.trials[name]
    book.state.put(replace(trial, step=20, planned_steps=100, step_seconds={"cpu": seconds}))


def seen(book: Playbook, name: str) -> pb.Trial:
    board = whole(leaderboard(book.state, book.state.studies["s"]))
    return ranked_view(book.state, book.state.trials[name], board)


def test_what_is_to_be_high_has_its_own_sign_and_zero_none() -> None:
    study = replace(play(trials=1).state.studies["s"], signal_goal=Goal.MAXIMIZE)
    assert [str(signed(study, loss)) for loss in (-0.5, 0.0, None)] == ["0.5", "0.0", "None"]


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


def test_the_end_is_told_between_the_fastest_and_the_slowest_for_trials_not_measured() -> None:
    book = play(trials=4)
    measured(book, "s/0", 0.1)
    once = view(book)
    assert once.remaining_least_seconds == once.remaining_most_seconds == once.remaining_seconds
    for name, seconds in (("s/1", 0.1), ("s/2", 0.4)):
        measured(book, name, seconds)
    seen = view(book)
    assert seen.remaining_least_seconds == pytest.approx(8 + 8 + 32 + 10)
    assert seen.remaining_most_seconds == pytest.approx(8 + 8 + 32 + 40)


def test_a_trial_that_has_not_begun_will_take_as_long_to_start_as_others_did() -> None:
    book = play(trials=3)
    for name, start in (("s/0", 4.0), ("s/1", 6.0)):
        measured(book, name, 0.1)
        began = replace(book.state.trials[name], attempt=1, longest_start_seconds=start)
        book.state.put(began)
    assert view(book).remaining_seconds == pytest.approx(8 + 8 + 10 + 5)


def test_the_longest_trial_is_the_least_that_remains() -> None:
    book = play(trials=2, devices=2)
    measured(book, "s/0", 0.1)
    measured(book, "s/1", 1.0)
    assert view(book).remaining_seconds == pytest.approx(80)


def test_how_long_a_trial_takes_is_learned_from_those_that_have_completed() -> None:
    book = play(trials=4)
    one = book.trial("s/0")
    book.state.put(replace(one, step=20, step_seconds={"cpu": 0.1}))

    assert (seen(book, "s/0").expected_steps, seen(book, "s/0").HasField("remaining_seconds")) == (
        0,
        False,
    )
    book.state.put(replace(book.trial("s/3"), phase=Phase.COMPLETED, step=70))
    assert (seen(book, "s/0").expected_steps, seen(book, "s/3").expected_steps) == (70, 0)
    assert seen(book, "s/0").remaining_seconds == pytest.approx(5.0)
    assert seen(book, "s/1").expected_steps == 70
    assert not seen(book, "s/1").HasField("remaining_seconds"), "how fast it is nobody knows"
    # One 50 steps at 0.1 s, two that have not begun 70 each.
    assert view(book).remaining_seconds == pytest.approx(5 + 7 + 7)
    book.state.put(replace(book.state.trials["s/0"], planned_steps=40))
    assert seen(book, "s/0").remaining_seconds == pytest.approx(2.0), "what it says itself counts"
    book.state.put(replace(book.state.trials["s/0"], paused=True))
    assert not seen(book, "s/0").HasField("remaining_seconds")


def test_no_trial_takes_longer_than_its_study_allows() -> None:
    book = play(trials=3, stop=StopRule(max_seconds=45.0))
    one = replace(book.trial("s/0"), planned_steps=1_000_000, step=50, step_seconds={"cpu": 0.1})
    book.state.put(replace(one, use=replace(one.use, busy_seconds=5.0)))
    assert seen(book, "s/0").remaining_seconds == pytest.approx(40.0)
    assert seen(book, "s/0").expected_steps == 450
    assert not seen(book, "s/1").HasField("remaining_seconds"), "it was not measured"
    assert view(book).remaining_seconds == pytest.approx(40 + 45 + 45)
    book.state.put(replace(one, planned_steps=None))
    assert seen(book, "s/0").remaining_seconds == pytest.approx(45.0)
    assert view(book).remaining_seconds == pytest.approx(3 * 45), "no length is known"
    book.state.put(replace(one, planned_steps=100))
    assert seen(book, "s/0").remaining_seconds == pytest.approx(5.0), "the plan ends before"


def test_trials_that_stop_early_tell_how_much_of_a_plan_the_others_need() -> None:
    book = play(trials=4)
    for name, planned in (("s/0", 20_000), ("s/1", 40_000)):
        fresh = replace(book.state.trials[name], planned_steps=planned, step_seconds={"cpu": 0.1})
        book.state.put(replace(fresh, step=20))
    assert seen(book, "s/0").remaining_seconds == pytest.approx(1998.0)
    done = replace(book.trial("s/3"), phase=Phase.COMPLETED, step=80, planned_steps=20_000)
    book.state.put(done)
    assert (seen(book, "s/0").expected_steps, seen(book, "s/1").expected_steps) == (80, 160)
    assert seen(book, "s/0").remaining_seconds == pytest.approx(6.0)
    # Steps of 6 s and 14 s, and a trial that has not begun, as long as the median of 80, 80, 160.
    assert view(book).remaining_seconds == pytest.approx(6 + 14 + 8)
    book.state.put(replace(book.state.trials["s/0"], step=90))
    assert not seen(book, "s/0").HasField("remaining_seconds"), "it has gone on for longer"
    book.state.put(replace(done, step=20_000))
    assert seen(book, "s/1").expected_steps == 40_000


def test_other_studies_have_their_share_of_the_devices() -> None:
    book = play(trials=8, devices=4)
    book.tell(submitted(8, "other"), submitted(1, "small"), submitted(8, "hers", owner="her"))
    for number in range(8):
        measured(book, f"s/{number}", 0.1)
    studies = book.state.studies

    def change(name: str, **changes: Any) -> None:
        studies[name] = replace(studies[name], **changes)

    for name in ("other", "small", "hers"):
        change(name, pool="elsewhere")
    alone = 8 * 8.0 / 4
    assert view(book).remaining_seconds == pytest.approx(alone)
    change("other", pool=studies["s"].pool)
    assert view(book).remaining_seconds == pytest.approx(alone * 2), "alike, of one user"
    change("small", pool=studies["s"].pool)
    assert view(book).remaining_seconds == pytest.approx(alone * 4 / 1.5), "one trial, one device"
    change("hers", pool=studies["s"].pool)
    assert view(book).remaining_seconds == pytest.approx(alone * 6), "users alike, then studies"
    change("other", priority=-1)
    change("small", priority=-1)
    assert view(book).remaining_seconds == pytest.approx(alone * 2), "they wait for ours"
    change("hers", device_kind="other")
    change("s", device_kind="cpu")
    assert view(book).remaining_seconds == pytest.approx(alone)
