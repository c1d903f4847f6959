"""What a finished trial has won is there however its extension ends."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    Cancelled,
    Event,
    Extended,
    FidelityKnown,
    Retried,
    RunCompleted,
    RunFailed,
)
from hermesd.core.model import Fidelity, Phase, Plugin, Stage, StopRule, TrialSpec
from hermesd.core.placement import make_placement
from hermesd.core.trial import Result
from hermesd.head.api.ranking import leaderboard
from hermesd.pieces import whole
from hermesd.policy import make_policy
from tests.core.playbook import (
    LEASE,
    Playbook,
    checkpoint,
    checkpointed,
    completed,
    crashed,
    joined,
    killed,
    parked,
    play,
    quantum_ended,
    reported,
    run,
    started,
    submitted,
    trial_spec,
    written,
)

KEPT = [field.name for field in fields(Result)]
LONGER = Extended("s", ("s/0",), StopRule(max_steps=99), (("epochs", 2),), (("x",),), "r1")


def finished(*end: Event, **changes: object) -> Playbook:
    """A trial that ended at step 5 with a checkpoint there and a loss of 0.5."""
    book = play(max_failures=1, **changes).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 5, [0.5], metrics=(("loss", 0.5),)))
    return book.tell(*end)


def rank(book: Playbook) -> int:
    return whole(leaderboard(book.state, book.state.studies["s"])).ranks["s/0"]


@pytest.mark.parametrize(
    ("book", "phase"),
    [
        (finished(completed("s/0#1", 5)), Phase.COMPLETED),
        (finished(written("s/0#1", 5), stop=StopRule(max_steps=5)), Phase.STOPPED),
    ],
)
def test_a_trial_that_cannot_be_extended_is_as_it_was(book: Playbook, phase: Phase) -> None:
    before = book.trial()
    assert (before.phase, rank(book)) == (phase, 1)
    book.tell(LONGER).tell(started("s/0#2", 5 if before.checkpoint else 0))
    book.tell(reported("s/0#2", 9, [7.0], metrics=(("loss", 7.0),)))
    book.tell(crashed("s/0#2", 9))
    after = book.trial()
    assert after.reason == "not extended: it broke"
    assert after.not_extended == "it broke"
    kept = KEPT
    assert {n: getattr(after, n) for n in kept} == {n: getattr(before, n) for n in kept}
    assert (rank(book), after.result) == (1, None)
    assert [each.detail for each in after.failures] == ["it broke"]


def test_an_extension_that_ends_is_the_new_result() -> None:
    book = finished(completed("s/0#1", 5)).tell(LONGER).tell(started("s/0#2"))
    book.tell(reported("s/0#2", 9, [0.25], metrics=(("loss", 0.25),))).tell(completed("s/0#2", 9))
    trial = book.trial()
    assert (trial.phase, trial.step, trial.result, trial.reason) == (Phase.COMPLETED, 9, None, "")
    assert trial.metrics["loss"].last == 0.25


def test_an_extension_that_is_cancelled_before_it_got_further_is_none() -> None:
    book = finished(completed("s/0#1", 5)).tell(LONGER).tell(Cancelled(("s/0",), "r2"))
    book.tell(killed("s/0#2"))
    assert (book.trial().phase, rank(book)) == (Phase.COMPLETED, 1)
    assert book.trial().reason == "not extended: stopped by a person"


def test_an_extension_that_is_cancelled_when_it_has_got_further_may_go_on() -> None:
    book = exact().tell(LONGER).tell(started("s/0#2", 5)).tell(checkpointed("s/0#2", 8))
    book.tell(reported("s/0#2", 8, [0.25])).tell(Cancelled(("s/0",), "r2"))
    book.tell(killed("s/0#2", 8))
    assert (book.trial().phase, book.trial().step) == (Phase.CANCELLED, 8)
    book.tell(Retried(("s/0",), "r3")).tell(started("s/0#3", 8))
    for attempt in (3, 4, 5):
        book.tell(crashed(f"s/0#{attempt}", 8))
    assert (book.trial().phase, book.trial().step, rank(book)) == (Phase.COMPLETED, 5, 1)


def exact() -> Playbook:
    """A trial that completed at step 5 of 5, has a checkpoint there and goes on exactly."""
    book = play(max_failures=3).tell(started("s/0#1", planned=5))
    book.tell(FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", "keras"))
    book.tell(reported("s/0#1", 5, [0.5], metrics=(("loss", 0.5),)))
    return book.tell(RunCompleted(run("s/0#1"), 5, checkpoint("s/0#1", 5)))


def unable(kind: str, detail: str) -> RunFailed:
    return RunFailed(run("s/0#2"), kind, detail, "exit status 2", 0)


@pytest.mark.parametrize("kind", ["restore", "exit", "exception"])
def test_an_extension_ends_at_its_programs_first_failure(kind: str) -> None:
    book = exact()
    before = book.trial()
    book.heard()
    book.tell(LONGER).expect("launch s/0#2 on n/0 from s/0#1@5")
    book.tell(FidelityKnown(run("s/0#2"), Fidelity.PARK_ONLY, "no boundaries seen yet", "none"))
    book.tell(unable(kind, "the program called sys.exit(2)\nfit.py: error: no --nosuch"))
    book.expect()
    after = book.trial()
    assert after.reason == "not extended: fit.py: error: no --nosuch"
    assert {n: getattr(after, n) for n in KEPT} == {n: getattr(before, n) for n in KEPT}
    assert (after.planned_steps, after.fidelity, rank(book)) == (5, Fidelity.EXACT, 1)


def test_a_machine_that_fails_under_an_extension_is_tried_again() -> None:
    book = exact().tell(LONGER)
    book.heard()
    book.tell(unable("lost", "its host died")).expect("launch s/0#3 on n/0 from s/0#1@5")
    book.tell(started("s/0#3", 5)).tell(reported("s/0#3", 9, [0.25])).tell(completed("s/0#3", 9))
    assert (book.trial().phase, book.trial().step) == (Phase.COMPLETED, 9)


@pytest.mark.parametrize("further", [0, 4, 76])
def test_an_extension_that_begins_anew_is_none(further: int) -> None:
    """However far it comes until it hears that it is to stop."""
    book = exact()
    before = book.trial()
    book.tell(LONGER)
    book.heard()
    book.tell(started("s/0#2", 0)).expect("stop s/0#2")
    if further:
        book.tell(reported("s/0#2", further, [9.0], metrics=(("loss", 9.0),)))
        book.tell(checkpointed("s/0#2", further))
    book.tell(completed("s/0#2", further)).expect()
    after = book.trial()
    assert {n: getattr(after, n) for n in KEPT} == {n: getattr(before, n) for n in KEPT}
    assert "its checkpoint of step 5 could not be used" in after.reason


def test_an_extension_that_has_got_further_has_its_tries() -> None:
    book = exact().tell(LONGER).tell(started("s/0#2", 5)).tell(checkpointed("s/0#2", 8))
    book.heard()
    book.tell(crashed("s/0#2", 9)).expect("launch s/0#3 on n/0 from s/0#2@8")


def test_an_extension_without_anything_more_to_do_is_none() -> None:
    book = exact()
    before = book.trial()
    book.tell(LONGER).tell(started("s/0#2", 5)).tell(completed("s/0#2", 5))
    after = book.trial()
    assert {n: getattr(after, n) for n in KEPT} == {n: getattr(before, n) for n in KEPT}
    assert after.reason == "not extended: its program had nothing more to do"


def test_a_failed_trial_that_fails_again_is_failed() -> None:
    book = finished(crashed("s/0#1", 5)).tell(Retried(("s/0",), "r1")).tell(crashed("s/0#2"))
    assert (book.trial().phase, rank(book)) == (Phase.FAILED, 0)


def at_rate(spec: TrialSpec, rate: float) -> TrialSpec:
    return replace(spec, stages=(Stage(None, (("lr", rate),)),))


def trained(book: Playbook, losses: float, to_the_end: bool = False) -> None:
    """The trial on the device has a quantum, or trains to its end."""
    busy = book.busy()
    assert busy is not None
    trial = book.trial(busy.partition("#")[0])
    begun = [] if trial.phase is Phase.RUNNING else [started(busy, trial.step, 1_000)]
    curve = [losses + 1.0 / (step + 1) for step in range(60)]
    book.tell(*begun, reported(busy, trial.step + 60, curve, busy_seconds=10.0))
    if to_the_end:
        book.tell(completed(busy, trial.step + 60))
        return
    grant = trial.run.grant if trial.run is not None else 0
    book.at(book.now + 10.0).tell(quantum_ended(busy, grant, trial.step + 60))
    if book.trial(trial.id).phase is Phase.SUSPENDING:
        book.tell(parked(busy, trial.step + 60))


@pytest.mark.parametrize("policy", ["guided", "best_first", "hermes"])
@pytest.mark.parametrize("earlier", [0, 10])
@pytest.mark.parametrize("more", [0, 2])
def test_trials_at_other_points_are_ranked_as_if_they_had_always_been_there(
    policy: str, earlier: int, more: int
) -> None:
    book = Playbook().tell(joined(1))
    for name, count in (("old", earlier), ("s", 16)):
        event = submitted(count or 1, name, policy=Plugin(policy), submitted=book.now)
        specs = [at_rate(spec, 0.01 * (1 + place)) for place, spec in enumerate(event.trials)]
        book.tell(replace(event, trials=tuple(specs)))
        for number in range(count or 1) if name == "old" else range(6):
            trained(book, 1.0 - 0.05 * number, to_the_end=name == "old")
        book.at(book.now + 1.0)
    open_ones = [trial.spec for trial in book.state.trials.values() if not trial.attempt]
    other = tuple(at_rate(spec, 1.0 - dict(spec.parameters)["lr"] ** 0.5) for spec in open_ones)
    added = tuple(at_rate(trial_spec(f"s/{number}"), 0.5) for number in range(16, 16 + more))
    change = Extended("s", (), StopRule(), (), (), "r", source=b"new", redrawn=other, added=added)
    book.tell(change)
    for number in range(3):
        trained(book, 0.5 - 0.1 * number)
    fresh = Scheduler(book.state, make_policy, make_placement, LEASE)
    assert book.scheduler.next_up("s", 20, book.now) == fresh.next_up("s", 20, book.now)
    told = [each.explain("s/9", book.now).ranking for each in (book.scheduler, fresh)]
    assert told[0] == told[1]
