"""How long a trial's iterations took, and what came before and after them, read off its reports.

Rule: the first iteration is the one in which a framework traces or compiles the program. What it
takes more than the others is told apart where later reports say how fast these are, and supposed
to be the study's usual where they do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hermesd.core.events import Reported, RunCompleted
from hermesd.core.model import Time, TrialId
from hermesd.core.trial import Trial
from hermesd.record import Entry
from hermesd.simulate.curves import MOST_SECONDS

# Later reports say how fast a trial is if they are about so many of its iterations.
TELLING_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of an iteration, and how many more the first one takes."""

    step_seconds: float
    opening_seconds: float


def paces(trials: Sequence[Trial], entries: Sequence[tuple[Time, Entry]]) -> list[Pace]:
    """Each trial's pace; one without reports has the study's usual."""
    firsts = _first_reports(entries)
    known = {trial.id: each for trial in trials if (each := _pace(trial, firsts)) is not None}
    opening = _median([each.opening_seconds for each in known.values()])
    for trial in trials:
        busy = trial.use.busy_seconds
        if trial.id not in known and trial.step and busy:
            theirs = opening if opening < busy else 0.0
            known[trial.id] = Pace((busy - theirs) / trial.step, theirs)
    usual = Pace(_median([each.step_seconds for each in known.values()], 1.0), opening)
    return [known.get(trial.id, usual) for trial in trials]


def ending(entries: Sequence[tuple[Time, Entry]]) -> float:
    """The usual seconds from a trial's last report to its completion; 0 if none completed."""
    reported: dict[TrialId, Time] = {}
    seconds = []
    for at, entry in entries:
        match entry:
            case Reported(run):
                reported[run.trial] = at
            case RunCompleted(run) if run.trial in reported:
                seconds.append(at - reported[run.trial])
    return _median([each for each in seconds if 0 <= each <= MOST_SECONDS])


def _first_reports(entries: Sequence[tuple[Time, Entry]]) -> dict[TrialId, Reported]:
    """The first report of each trial that began at its first iteration."""
    firsts: dict[TrialId, Reported] = {}
    for _, entry in entries:
        if isinstance(entry, Reported) and entry.run.attempt == 1 and entry.step:
            firsts.setdefault(entry.run.trial, entry)
    return firsts


def _pace(trial: Trial, firsts: Mapping[TrialId, Reported]) -> Pace | None:
    """What the reports say by themselves."""
    first, busy = firsts.get(trial.id), trial.use.busy_seconds
    if first is None or not busy or trial.step - first.step < TELLING_SHARE * trial.step:
        return None
    each = (busy - first.busy_seconds) / (trial.step - first.step)
    opening = first.busy_seconds - first.step * each
    # All of it adds up to what was measured.
    return Pace(each, opening) if each > 0 and opening > 0 else Pace(busy / trial.step, 0.0)


def _median(values: Sequence[float], otherwise: float = 0.0) -> float:
    return statistics.median(values) if values else otherwise
