"""What an entry ended: kept beside it in the journal, so that a watcher need not fold.

Most entries end nothing. The others name each trial that reached a final phase and each study
whose last trial did.
"""

from __future__ import annotations

from typing import NamedTuple

from hermesd.core.commands import Command
from hermesd.core.events import (
    Cancelled,
    Event,
    NodeJoined,
    NodeLost,
    ParkLost,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import StudyId, TrialId
from hermesd.core.state import State
from hermesd.record import Form

FINISHED = "finished"


class Outcome(NamedTuple):
    """A trial in its final phase, or a study with the word `finished`."""

    subject: TrialId | StudyId
    phase: str
    reason: str = ""


_FORM: Form[tuple[Outcome, ...]] = Form(tuple[Outcome, ...])


def write(outcomes: tuple[Outcome, ...]) -> str:
    """The outcomes as text; nothing for none."""
    return _FORM.write(outcomes) if outcomes else ""


def read(text: str) -> tuple[Outcome, ...]:
    """The outcomes that were written."""
    return _FORM.read(text) if text else ()


def unfinished(state: State, entry: Event | Command) -> tuple[TrialId, ...]:
    """The trials that this entry could end, before it is applied."""
    match entry:
        case Cancelled(chosen):
            touched = list(chosen)
        case NodeJoined(node) | NodeLost(node):
            touched = [s.run.trial for s in state.slots.values() if s.run and s.device.node == node]
        case RunStarted() | Reported() | RunSuspended() | RunCompleted() | RunFailed() | ParkLost():
            touched = [entry.run.trial]
        case _:
            return ()
    known = [trial for trial in dict.fromkeys(touched) if trial in state.trials]
    return tuple(trial for trial in known if not state.trials[trial].phase.final)


def ended(state: State, before: tuple[TrialId, ...]) -> tuple[Outcome, ...]:
    """What the entry ended, after it was applied; `before` comes from `unfinished`."""
    trials = [state.trials[name] for name in before if state.trials[name].phase.final]
    studies = dict.fromkeys(trial.spec.study for trial in trials)
    return (
        *(Outcome(trial.id, str(trial.phase), trial.reason) for trial in trials),
        *(Outcome(study, FINISHED) for study in studies if not state.active[study]),
    )
