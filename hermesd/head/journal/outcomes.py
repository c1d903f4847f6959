"""What followed from an entry: kept beside it in the journal, so that a watcher need not fold.

Most entries have no outcome beyond what they say. The others name each trial that reached a final
phase, each study whose last trial did, and the studies that were on a node or device.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from hermesd.core.commands import Command
from hermesd.core.events import (
    Cancelled,
    DeviceFailed,
    Event,
    Extended,
    Forgiven,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    NotCopied,
    OutcomeTold,
    ParkLost,
    PopulationEnded,
    Reclaimed,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
    SearchLimited,
    WidthGivenUp,
    Yielded,
)
from hermesd.core.failure_effects import may_end
from hermesd.core.model import DeviceId, OnThirdFailure, StudyId, TrialId
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.record import Form

FINISHED = "finished"
TOUCHED = "touched"


class JournalOutcome(NamedTuple):
    """A trial in its final phase, or a study with the word `finished` or `touched`."""

    subject: TrialId | StudyId
    phase: str
    reason: str = ""


_FORM: Form[tuple[JournalOutcome, ...]] = Form(tuple[JournalOutcome, ...])


def write(outcomes: tuple[JournalOutcome, ...], behind: str = "") -> str:
    """The outcomes as text, behind others that were written; nothing for none."""
    text = _FORM.write(outcomes) if outcomes else ""
    return f"{behind[:-1]},{text[1:]}" if behind and text else behind or text


def read(text: str) -> tuple[JournalOutcome, ...]:
    """The outcomes that were written."""
    return _FORM.read(text) if text else ()


def touched(state: State, entry: Event | Command) -> tuple[JournalOutcome, ...]:
    """The studies that a node's or device's event meets, before it is applied.

    Those of which something runs or is parked there, or that the node brings with it.
    """
    match entry:
        case NodeJoined(node, live=live):
            devices = {slot.device.id for slot in state.slots.values() if slot.device.node == node}
            brought = [item.run.trial for item in live]
        case NodeSilent(node) | NodeLost(node) | NodeDrained(node) | NodeUndrained(node):
            devices = {slot.device.id for slot in state.slots.values() if slot.device.node == node}
            brought = []
        case DeviceFailed(device):
            devices, brought = {device}, []
        case Forgiven(place) | Yielded(place) | Reclaimed(place):
            slots = state.slots.values()
            devices = {s.device.id for s in slots if place in (s.device.id, s.device.node)}
            brought = []
        case _:
            return ()
    studies = {state.trials[trial].spec.study for trial in brought if trial in state.trials}
    for study, active in state.active.items():
        if any(_is_on(state.trials[trial], devices) for trial in active):
            studies.add(study)
    return tuple(JournalOutcome(study, TOUCHED) for study in sorted(studies))


def _is_on(trial: Trial, devices: Container[DeviceId]) -> bool:
    if trial.run is not None:
        return any(device in devices for device in trial.run.devices)
    kept = trial.kept
    return kept is not None and kept.tier.in_process and kept.device in devices


def touches(text: str, study: StudyId) -> bool:
    """Whether what was written names this study as touched."""
    return JournalOutcome(study, TOUCHED) in read(text)


def unfinished(state: State, entry: Event | Command) -> tuple[TrialId, ...]:
    """The trials that this entry could end, before it is applied."""
    match entry:
        case Cancelled(chosen):
            touched = list(chosen)
        case OutcomeTold(trial) | NotCopied(trial=trial) | WidthGivenUp(trial):
            touched = [trial]
        case PopulationEnded(study):
            touched = _active_of(state, [study])
        case Extended():
            touched = [trial for trial, _ in entry.ended]
        case NodeJoined(node) | NodeLost(node):
            touched = [s.run.trial for s in state.slots.values() if s.run and s.device.node == node]
            touched += _of_strict_studies(state, touched)
        case RunFailed():
            touched = [entry.run.trial, *_of_strict_studies(state, [entry.run.trial])]
            failing = state.trials.get(entry.run.trial)
            if failing is not None and entry.step == 0 and may_end(state, failing):
                touched += _active_of(state, [failing.spec.study])
        case RunStarted() | Reported() | RunSuspended() | RunCompleted() | ParkLost():
            touched = [entry.run.trial]
        case _:
            return ()
    riders = [each for trial in touched for each in state.riding.riders.get(trial, ())]
    known = [trial for trial in dict.fromkeys((*touched, *riders)) if trial in state.trials]
    return tuple(trial for trial in known if not state.trials[trial].phase.final)


def _of_strict_studies(state: State, trials: Iterable[TrialId]) -> list[TrialId]:
    """The trials that end with these, if these fail for good."""
    known = (state.trials[trial].spec.study for trial in trials if trial in state.trials)
    strict = [s for s in known if state.studies[s].on_third_failure is OnThirdFailure.STUDY]
    return _active_of(state, strict)


def _active_of(state: State, studies: Iterable[StudyId]) -> list[TrialId]:
    return [trial for study in dict.fromkeys(studies) for trial in state.active[study]]


def ended(
    state: State,
    entry: Event | Command,
    before: tuple[TrialId, ...],
    studies: Iterable[StudyId] = (),
) -> tuple[JournalOutcome, ...]:
    """What the entry ended, after it was applied; `before` comes from `unfinished`. It is known to
    have ended trials of some studies."""
    trials = ended_trials(state, before)
    touched = dict.fromkeys((*studies, *(state.trials[t.subject].spec.study for t in trials)))
    if isinstance(entry, SearchLimited):
        touched[entry.study] = None
    over = [study for study in touched if state.is_over(study)]
    return (*trials, *(JournalOutcome(study, FINISHED) for study in over))


def ended_trials(state: State, before: tuple[TrialId, ...]) -> tuple[JournalOutcome, ...]:
    """Of the trials that could end, those that have."""
    trials = [state.trials[name] for name in before if state.trials[name].phase.final]
    return tuple(JournalOutcome(each.id, str(each.phase), each.reason) for each in trials)
