"""How long a trial's iterations took, and what came before and after them, read off its reports.

What a program does after a pass over its data, such as validation, is found where its signal is
told once a pass: suspends and ends of quanta that fall into it come after it.

Rule: the first iteration is the one in which a framework traces or compiles the program. What it
takes more than the others is told apart where later reports say how fast these are, and supposed
to be the study's usual where they do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hermesd.core.events import Reported, RunCompleted
from hermesd.core.model import RunId, Time, TrialId
from hermesd.core.trial import Trial
from hermesd.record import Entry
from hermesd.simulate.curves import MOST_SECONDS, NO_PASSES, Passes, elapsed

# Later reports say how fast a trial is if they are about so many of its iterations.
TELLING_SHARE = 0.25
# How long what follows a pass takes is read off so many reports of a trial.
TELLING_REPORTS = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of an iteration, and how many more the first one takes, and the last of a pass."""

    step_seconds: float
    opening_seconds: float
    passes: Passes = NO_PASSES


def paces(
    trials: Sequence[Trial], entries: Sequence[tuple[Time, Entry]], pass_steps: Sequence[int]
) -> list[Pace]:
    """Each trial's pace; one without reports has the study's usual.

    `pass_steps` are the iterations of a pass over the data of each, 1 where they are not known.
    """
    seconds, firsts = _pass_seconds(trials, entries, pass_steps), _first_reports(entries)
    known: dict[TrialId, Pace] = {}
    for trial, steps in zip(trials, pass_steps, strict=True):
        passes = Passes(steps, seconds) if steps > 1 else NO_PASSES
        if (each := _pace(trial, firsts, passes)) is not None:
            known[trial.id] = each
    opening = _median([each.opening_seconds for each in known.values()])
    for trial in trials:
        busy = trial.use.busy_seconds
        if trial.id not in known and trial.step and busy:
            theirs = opening if opening < busy else 0.0
            known[trial.id] = Pace((busy - theirs) / trial.step, theirs)
    usual = Pace(_median([each.step_seconds for each in known.values()], 1.0), opening)
    return [known.get(trial.id, usual) for trial in trials]


def _pass_seconds(
    trials: Sequence[Trial], entries: Sequence[tuple[Time, Entry]], pass_steps: Sequence[int]
) -> float:
    """What the last iteration of a pass usually takes more: the median of what the reports of each
    trial say, by least squares; 0 where they tell nothing."""
    lengths = {trial.id: steps for trial, steps in zip(trials, pass_steps, strict=True)}
    rows: dict[TrialId, list[tuple[int, int, float]]] = {}
    last: dict[RunId, int] = {}
    for _, entry in entries:
        if not isinstance(entry, Reported):
            continue
        before, last[entry.run] = last.get(entry.run), entry.step
        steps = lengths.get(entry.run.trial, 1)
        # Right at a pass's end nobody knows whether the report came before or after what follows.
        if steps > 1 and before and before % steps and entry.step % steps:
            ended = entry.step // steps - before // steps
            row = entry.step - before, ended, entry.busy_seconds
            rows.setdefault(entry.run.trial, []).append(row)
    found = []
    for theirs in rows.values():
        table = np.array(theirs)
        fitted, _, rank, _ = np.linalg.lstsq(table[:, :2], table[:, 2])
        if len(theirs) >= TELLING_REPORTS and rank == 2:
            found.append(float(fitted[1]))
    return max(0.0, _median(found))


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


def _pace(trial: Trial, firsts: Mapping[TrialId, Reported], passes: Passes) -> Pace | None:
    """What the reports say by themselves."""
    first, busy = firsts.get(trial.id), trial.use.busy_seconds
    if first is None or not busy or trial.step - first.step < TELLING_SHARE * trial.step:
        return None
    later = busy - first.busy_seconds - elapsed(first.step, trial.step, 0.0, passes)
    each = later / (trial.step - first.step)
    opening = first.busy_seconds - elapsed(0, first.step, each, passes)
    if each > 0 and opening > 0:
        return Pace(each, opening, passes)
    # All of it adds up to what was measured.
    each = (busy - elapsed(0, trial.step, 0.0, passes)) / trial.step
    return Pace(each, 0.0, passes) if each > 0 else Pace(busy / trial.step, 0.0)


def _median(values: Sequence[float], otherwise: float = 0.0) -> float:
    return statistics.median(values) if values else otherwise
