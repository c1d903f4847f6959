"""A study whose first trials all fail in one way: stopped, and only where that is certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hermesd.core.events import Retried, RunFailed, Submitted
from hermesd.core.fast_replace import replace
from hermesd.core.model import OnSameFailure, Phase, Plugin, RetryAction, RetryRule, Scalar, Stage
from hermesd.core.trial import CODE, USAGE
from tests.core.playbook import (
    Playbook,
    completed,
    joined,
    parked,
    play,
    reported,
    run,
    started,
    submitted,
)

STUDY = OnSameFailure.STUDY
IMPORT = "Traceback (most recent call last):\n  line\nModuleNotFoundError: No module named 'tqdm'"
ARGUMENTS = "the program called sys.exit(2): train.py: error: unrecognized arguments: --lrr={}"


def failed(
    name: str, detail: str = IMPORT, kind: str = "exception", step: int = 0, signature: str = "x"
) -> RunFailed:
    return RunFailed(run(name), kind, detail, signature, step)


def grid(values: Sequence[Scalar], **changes: Any) -> Submitted:
    """A study of one hyper-parameter."""
    event = submitted(len(values), on_same_failure=STUDY, **changes)
    specs = zip(event.trials, values, strict=True)
    return replace(
        event,
        trials=tuple(replace(each, stages=(Stage(None, (("lr", v),)),)) for each, v in specs),
    )


def phases(book: Playbook) -> list[Phase]:
    return [trial.phase for trial in book.state.trials.values()]


def stopped(book: Playbook) -> bool:
    """Whether any trial was ended that has not come to an end itself."""
    return any(t.ending or t.phase is Phase.STOPPED for t in book.state.trials.values())


def test_the_third_trial_that_fails_as_the_first_two_stops_the_study() -> None:
    book = play(5, devices=3, on_same_failure=STUDY)
    book.tell(failed("s/0#1")).tell(failed("s/1#1"))
    assert not stopped(book)
    book.tell(failed("s/2#1"))
    assert book.trial("s/2").phase is Phase.FAILED
    assert book.trial("s/4").reason == (
        "the first 3 trials failed alike before their first step: "
        "ModuleNotFoundError: No module named 'tqdm' (retry.on_same_failure: study)"
    )
    running = [trial.id for trial in book.state.trials.values() if trial.run]
    for trial in running:
        book.tell(failed(str(book.trial(trial).run_id), "stopped", "exit"))
    assert phases(book) == [Phase.FAILED] * 3 + [Phase.STOPPED] * 2


def test_a_study_stopped_as_its_own_fault_is_held_against_no_device() -> None:
    book = play(5, devices=3, on_same_failure=STUDY)
    book.tell(failed("s/0#1")).tell(failed("s/1#1"))
    assert len(book.state.strikes) == 2
    book.tell(failed("s/2#1"))
    assert Phase.STOPPED in phases(book)
    assert book.state.strikes == {}


def test_a_study_of_an_older_journal_and_one_that_says_so_goes_on() -> None:
    book = play(5, devices=3)
    for number in range(3):
        book.tell(failed(f"s/{number}#1"))
    assert not stopped(book)


def test_arguments_that_a_program_refuses_end_the_trial_at_its_first_try() -> None:
    book = play(2, devices=1, on_same_failure=OnSameFailure.GO_ON).tell(joined(2, node="m"))
    book.tell(failed("s/0#1", ARGUMENTS.format(1), USAGE))
    assert book.trial("s/0").phase is Phase.FAILED
    assert not book.state.strikes, "no device is held to account for it"


def test_code_that_cannot_be_unpacked_is_fetched_by_three_trials_once_each() -> None:
    book = play(5, devices=1, on_same_failure=STUDY)
    for number in range(3):
        book.tell(failed(f"s/{number}#1", "code snapshot 12ab: too deep", CODE))
    assert phases(book) == [Phase.FAILED] * 3 + [Phase.STOPPED] * 2
    assert not book.state.strikes


def test_values_that_the_error_quotes_do_not_make_it_another_error() -> None:
    book = Playbook().tell(grid([0.1, 0.01, 1, 10])).tell(joined(1))
    for number, value in enumerate([0.1, 0.01, 1]):
        book.tell(failed(f"s/{number}#1", ARGUMENTS.format(value), USAGE))
    assert phases(book) == [Phase.FAILED] * 3 + [Phase.STOPPED]


def test_errors_that_differ_stop_nothing() -> None:
    book = play(4, devices=4, on_same_failure=STUDY)
    for number, error in enumerate(("KeyError: 'a'", "KeyError: 'b'", "KeyError: 'a'")):
        book.tell(failed(f"s/{number}#1", error))
    assert not stopped(book)


@pytest.mark.parametrize("rest", ["trained", "completed", "parked", "later"])
def test_one_trial_that_comes_past_that_place_keeps_the_study_going(rest: str) -> None:
    book = play(6, devices=4, on_same_failure=STUDY, policy=Plugin("round_robin"))
    book.tell(started("s/3#1"))
    if rest == "trained":
        book.tell(reported("s/3#1", 1, [1.0]))
    elif rest == "completed":
        book.tell(completed("s/3#1"))
    elif rest == "parked":
        book.tell(parked("s/3#1", 0))
    for number in range(3):
        book.tell(failed(f"s/{number}#1", step=1 if rest == "later" else 0))
    assert not stopped(book)


@pytest.mark.parametrize(("seconds", "goes_on"), [((1, 1, 1), True), ((9, 1, 1), False)])
def test_a_trial_that_shows_no_steps_and_has_outrun_the_others_keeps_the_study_going(
    seconds: tuple[int, ...], goes_on: bool
) -> None:
    book = play(5, devices=2, on_same_failure=STUDY)
    assert book.busy("n/1") == "s/1#1"
    for trial, each in zip(("s/0#1", "s/2#1", "s/3#1"), seconds, strict=True):
        book.at(book.now + each).tell(failed(trial, ARGUMENTS.format(1), USAGE))
    assert book.busy("n/1") == "s/1#1"
    assert stopped(book) is not goes_on


@pytest.mark.parametrize("kind", ["lost", "killed", "out_of_memory", "hung"])
def test_what_may_be_the_machine_s_doing_stops_nothing(kind: str) -> None:
    book = play(4, devices=4, on_same_failure=STUDY)
    for number in range(3):
        book.tell(failed(f"s/{number}#1", kind=kind))
    assert not stopped(book)


def test_one_node_alone_stops_no_study_that_another_could_run() -> None:
    book = play(4, devices=3, on_same_failure=STUDY).tell(joined(1, node="m"))
    for number in range(3):
        book.tell(failed(f"s/{number}#1"))
    assert not stopped(book), "node m has not been tried"
    book.tell(failed("s/3#1"))
    assert all(trial.ending or trial.phase.final for trial in book.state.trials.values())


def test_a_rule_about_the_place_comes_before() -> None:
    rules = (RetryRule("tqdm", RetryAction.NOT_HERE),)
    book = play(5, devices=8, on_same_failure=STUDY, retry_rules=rules)
    for number in range(3):
        book.tell(failed(f"s/{number}#1"))
    assert not stopped(book)


def test_trials_that_are_retried_are_counted_anew() -> None:
    book = Playbook().tell(grid([1, 2, 3, 4])).tell(joined(1))
    for number in range(3):
        book.tell(failed(f"s/{number}#1", ARGUMENTS.format(number + 1), USAGE))
    book.tell(Retried(tuple(book.state.trials), "again"))
    assert book.busy() == "s/0#2"
    book.tell(failed("s/0#2", ARGUMENTS.format(1), USAGE))
    assert not stopped(book)
