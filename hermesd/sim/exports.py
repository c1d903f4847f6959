"""A study that `hermesctl study export` wrote, as curves: last night's study under another policy.

Its trials are the jobs: as long as they were trained, with the measured speeds and costs of
suspending, resuming, starting and ending. What a trial showed at a step is known from that step on,
as it was then.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from hermesd.core.commands import Launch
from hermesd.core.events import (
    PolicyFailed,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import Goal, RunId, Study, Time, TrialId
from hermesd.core.trial import Trial
from hermesd.record import Entry, Form, UnreadableEntry, decode
from hermesd.refusal import FieldError, Refused
from hermesd.sim.archives import OTHERWISE, ZIP
from hermesd.sim.curves import (
    MOST_SECONDS,
    NO_PASSES,
    Curves,
    Job,
    Passes,
    Switch,
    elapsed,
    until_broken,
)

# How long a trial's iterations took, and what came before and after them, read off its
# reports.
#
# What a program does after a pass over its data, such as validation, is found where its signal is
# told once a pass: suspends and ends of quanta that fall into it come after it.
#
# The first iteration is the one in which a framework traces or compiles the program. What
# it takes more than the others is told apart where later reports say how fast these are, and
# supposed to be the study's usual where they do not.

# Later reports say how fast a trial is if they are about so many of its iterations.
TELLING_SHARE = 0.25
# How long what follows a pass takes is read off so many reports of a trial.
TELLING_REPORTS = 4


@dataclass(frozen=True, slots=True)
class RecordedPace:
    """Seconds of an iteration, and how many more the first one takes, and the last of a pass."""

    step_seconds: float
    opening_seconds: float
    passes: Passes = NO_PASSES


def paces(
    trials: Sequence[Trial], entries: Sequence[tuple[Time, Entry]], pass_steps: Sequence[int]
) -> list[RecordedPace]:
    """Each trial's pace; one without reports has the study's usual.

    `pass_steps` are the iterations of a pass over the data of each, 1 where they are not known.
    """
    seconds, firsts = _pass_seconds(trials, entries, pass_steps), _first_reports(entries)
    known: dict[TrialId, RecordedPace] = {}
    for trial, steps in zip(trials, pass_steps, strict=True):
        passes = Passes(steps, seconds) if steps > 1 else NO_PASSES
        if (each := _pace(trial, firsts, passes)) is not None:
            known[trial.id] = each
    opening = _median_or_zero([each.opening_seconds for each in known.values()])
    for trial in trials:
        busy = trial.use.busy_seconds
        trained = trial.step - (trial.forked.step if trial.forked else 0)
        if trial.id not in known and trained > 0 and busy:
            theirs = opening if opening < busy else 0.0
            known[trial.id] = RecordedPace((busy - theirs) / trained, theirs)
    usual = RecordedPace(
        _median_or_zero([each.step_seconds for each in known.values()], 1.0), opening
    )
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
    return max(0.0, _median_or_zero(found))


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
    return _median_or_zero([each for each in seconds if 0 <= each <= MOST_SECONDS])


def _first_reports(entries: Sequence[tuple[Time, Entry]]) -> dict[TrialId, Reported]:
    """The first report of each trial that began at its first iteration."""
    firsts: dict[TrialId, Reported] = {}
    for _, entry in entries:
        if isinstance(entry, Reported) and entry.run.attempt == 1 and entry.step:
            firsts.setdefault(entry.run.trial, entry)
    return firsts


def _pace(trial: Trial, firsts: Mapping[TrialId, Reported], passes: Passes) -> RecordedPace | None:
    """What the reports say by themselves."""
    first, busy = firsts.get(trial.id), trial.use.busy_seconds
    if first is None or not busy or trial.step - first.step < TELLING_SHARE * trial.step:
        return None
    later = busy - first.busy_seconds - elapsed(first.step, trial.step, 0.0, passes)
    each = later / (trial.step - first.step)
    opening = first.busy_seconds - elapsed(0, first.step, each, passes)
    if each > 0 and opening > 0:
        return RecordedPace(each, opening, passes)
    # All of it adds up to what was measured.
    each = (busy - elapsed(0, trial.step, 0.0, passes)) / trial.step
    return RecordedPace(each, 0.0, passes) if each > 0 else RecordedPace(busy / trial.step, 0.0)


def _median_or_zero(values: Sequence[float], otherwise: float = 0.0) -> float:
    return statistics.median(values) if values else otherwise


FORMAT = 1
# The figures' trailing mean, as a share of the longest job: 20 iterations of 1,000.
SMOOTHED_SHARE = 0.02
# A study of more iterations than these in all takes gigabytes to look at.
MOST_ITERATIONS = 20_000_000
# A suspend and a resume on cores, where a trial is parked: by benchmarks/switches.py.
PARKED_SECONDS, CORES = 0.015, re.compile(r"cpu(-\d+%)?")
# How `study export --to x.csv` begins.
POINTS_AS_CSV = b"trial,attempt,metric,step,value"
# What is read of the journal: when trials got a device and gave it back, how far they were at what
# time, and whether the policy failed.
_READ = (Launch, RunStarted, Reported, RunSuspended, RunCompleted, RunFailed, PolicyFailed)
READ = frozenset(kind.__name__ for kind in _READ)

_STUDY: Form[Study] = Form(Study)
_TRIAL: Form[Trial] = Form(Trial)
_ATTEMPT: TypeAdapter[int] = TypeAdapter(int)
_STEPS: TypeAdapter[list[int]] = TypeAdapter(list[int])
_VALUES: TypeAdapter[list[float]] = TypeAdapter(list[float])


class _Piece(NamedTuple):
    """What one attempt of a trial showed, by step."""

    attempt: int
    values: dict[int, float]


@dataclass(frozen=True, slots=True)
class Exported:
    """A study and what is known of its past."""

    study: Study
    #: Those that were trained at all, by number; each is the job at its place in `curves`.
    trials: tuple[Trial, ...]
    curves: Curves
    #: The launches, starts, reports and ends of runs, and failures of the policy, with their times.
    entries: tuple[tuple[Time, Entry], ...]
    #: So many others reported no loss.
    untrained: int
    #: So many of `trials` went on where another one was, and have its past in `curves`.
    forks: int


@dataclass(slots=True)
class _Lines:
    """The lines of an export, sorted by what they are about."""

    study: Study | None = None
    trials: list[Trial] = field(default_factory=list)
    pieces: dict[str, list[_Piece]] = field(default_factory=dict)
    entries: list[tuple[Time, Entry]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)


def read_export(path: Path) -> Curves:
    """The trials of an exported study that were trained at all, by number.

    Raises:
        Refused: the file cannot be read, or is no export of this format.
    """
    return open_export(path).curves


def open_export(path: Path) -> Exported:
    """An exported study with its past.

    Raises:
        Refused: the file cannot be read, is no export of this format, or no trial was trained.
    """
    lines = _sorted(path)
    study = lines.study
    if study is None:
        raise _refused(path, "an export of a study: its first line has the type study")
    sign = -1.0 if study.signal_goal is Goal.MAXIMIZE else 1.0
    on_nan = study.stop.on_nan
    curves = [(trial, _curve(pieces, sign, on_nan)) for trial, pieces in _with_past(lines)]
    trained = [(trial, curve) for trial, curve in curves if curve.known]
    if not trained:
        raise _refused(path, f"at least one trial that reported {study.signal}")
    if (count := sum(curve.length for _, curve in trained)) > MOST_ITERATIONS:
        raise _refused(path, f"at most {MOST_ITERATIONS:,} iterations in all, not {count:,}")
    for trial, _ in trained:
        if not 0 <= trial.use.busy_seconds <= MOST_SECONDS * max(trial.step, 1):
            raise _refused(path, f"the busy_seconds of {trial.id} to be seconds, 0 or more")
    return Exported(
        study,
        tuple(trial for trial, _ in trained),
        Curves(path.stem, _jobs(trained, lines.entries), _switch(lines), whole=True),
        tuple(lines.entries),
        len(curves) - len(trained),
        sum(trial.forked is not None for trial, _ in trained),
    )


def _with_past(lines: _Lines) -> Iterator[tuple[Trial, list[_Piece]]]:
    """What each trial showed, that of a fork after what its parent had shown by then."""
    trials = {trial.id: trial for trial in lines.trials}
    for trial in lines.trials:
        found, begin = [*lines.pieces.get(trial.id, [])], trial.forked
        seen, until = {trial.id}, math.inf
        while begin is not None and begin.trial not in seen:
            seen.add(begin.trial)
            until = min(until, begin.step)
            found += [
                _Piece(piece.attempt, {s: v for s, v in piece.values.items() if s <= until})
                for piece in lines.pieces.get(begin.trial, [])
                if piece.attempt <= begin.attempt
            ]
            begin = trials[begin.trial].forked if begin.trial in trials else None
        yield trial, found


def _sorted(path: Path) -> _Lines:
    """Every line of the file, read."""
    lines = _Lines()
    for number, line in enumerate(_text(path), 1):
        try:
            found = json.loads(line)
            match found["type"]:
                case "study":
                    lines.study = _study(path, found)
                case "trial":
                    lines.trials.append(_TRIAL.read(json.dumps(found["trial"])))
                case "points" if lines.study and found["metric"] == lines.study.signal:
                    lines.pieces.setdefault(found["trial"], []).append(_piece(found))
                case "entry" if found["kind"] in READ:
                    entry = decode(found["kind"], json.dumps(found["body"]))
                    lines.entries.append((float(found["at"]), entry))
                case "device":
                    lines.kinds.add(str(found["device"]["kind"]))
                case _:
                    pass  # other entries, other metrics
        except (ValueError, KeyError, TypeError, ValidationError, UnreadableEntry, RecursionError):
            raise _refused(
                path, f"line {number} to be one that `hermesctl study export` writes"
            ) from None
    return lines


def _text(path: Path) -> Iterable[str]:
    try:
        data = path.read_bytes()
        if data.startswith(ZIP):
            raise _refused(path, "an exported study (`hermesctl study export`), not an archive")
        if not data.strip():
            raise _refused(path, "the lines of an exported study; it is empty")
        if path.suffix == ".csv" or data.startswith(POINTS_AS_CSV):
            raise _refused(path, "an exported study; these are points as CSV: export to .jsonl")
        return data.decode("utf-8").splitlines()
    except OSError as error:
        raise _refused(path, f"a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise _refused(path, "the JSON Lines of an exported study, or an .npz archive") from None


def _study(path: Path, found: dict[str, Any]) -> Study:
    if found["version"] != FORMAT:
        raise _refused(path, f"an export of version {FORMAT}, not {found['version']}")
    return _STUDY.read(json.dumps(found["study"]))


def _refused(path: Path, expected: str) -> Refused:
    return Refused(FieldError("curves", str(path), expected))


def _piece(found: dict[str, Any]) -> _Piece:
    """A line of points. Raises ValueError, KeyError or ValidationError."""
    steps = _STEPS.validate_python(found["steps"])
    values = _VALUES.validate_python(found["values"])
    return _Piece(_ATTEMPT.validate_python(found["attempt"]), dict(zip(steps, values, strict=True)))


class _Curve(NamedTuple):
    """What a trial showed."""

    steps: tuple[int, ...]
    #: The losses at `steps`, finite up to its `length`.
    known: tuple[float, ...]
    length: int
    #: It showed no number at the step after that.
    broken: bool

    def losses(self) -> tuple[float, ...]:
        """The loss at each step: the last one shown by then, before the first that."""
        places = np.searchsorted(self.steps, np.arange(1, self.length + 1), side="right") - 1
        filled: list[float] = np.array(self.known)[np.maximum(places, 0)].tolist()
        return tuple(filled)


def _curve(pieces: list[_Piece], sign: float, on_nan: bool) -> _Curve:
    """The signal where it was shown; where steps were trained twice, the later attempt counts.

    Without `on_nan` a trial goes on when its loss is no number: nothing was shown there.
    """
    merged: dict[int, float] = {}
    for attempt in sorted({piece.attempt for piece in pieces}):
        fresh: dict[int, float] = {}
        for piece in pieces:
            if piece.attempt == attempt:
                fresh.update(piece.values)
        first = min(fresh, default=0)
        merged = {step: value for step, value in merged.items() if step < first} | fresh
    steps = sorted(step for step in merged if step > 0)
    last = max(steps, default=0)
    if not on_nan:
        steps = [step for step in steps if math.isfinite(merged[step])]
    known = until_broken(sign * np.array([merged[step] for step in steps]))
    broken = len(known) < len(steps)
    ended = steps[len(known)] - 1 if broken else last
    return _Curve(tuple(steps[: len(known)]), known, ended, broken)


def _jobs(
    trained: list[tuple[Trial, _Curve]], entries: Sequence[tuple[Time, Entry]]
) -> tuple[Job, ...]:
    """The trials as jobs at their measured paces."""
    longest = max((curve.length for _, curve in trained), default=0)
    smoothing = max(1, round(SMOOTHED_SHARE * longest))
    passes = [_pass_steps(curve) for _, curve in trained]
    measured = paces([trial for trial, _ in trained], entries, passes)
    return tuple(
        Job(
            curve.losses(),
            pace.step_seconds,
            trial.planned_steps,
            smoothing,
            trial.spec.parameters,
            pace.opening_seconds,
            curve.broken,
            None if len(curve.steps) == curve.length else curve.steps,
            pace.passes,
        )
        for (trial, curve), pace in zip(trained, measured, strict=True)
    )


def _pass_steps(curve: _Curve) -> int:
    """The iterations of a pass over the data, if the signal was told once in each; else 1."""
    each = curve.steps[0]
    return each if curve.steps == tuple(range(each, each * len(curve.steps) + 1, each)) else 1


def _switch(lines: _Lines) -> Switch:
    """The usual seconds of each; what was never measured takes what it takes for any file.

    On cores nothing has to leave them: there, a switch that was never measured takes a park's.
    """
    costs = [cost for trial in lines.trials if (cost := trial.switch_cost)]
    starts = [
        entry.start_seconds
        for _, entry in lines.entries
        if isinstance(entry, RunStarted) and entry.run.attempt == 1
    ]
    anywhere = Switch.split(OTHERWISE.switch)
    on_cores = bool(lines.kinds) and all(CORES.fullmatch(kind) for kind in lines.kinds)
    usual = Switch.split(PARKED_SECONDS) if on_cores else anywhere
    return Switch(
        _median([cost.suspend_seconds for cost in costs], usual.leaving),
        _median([cost.resume_seconds for cost in costs], usual.resuming),
        _median(starts, anywhere.starting),
        ending(lines.entries),
    )


def _median(measured: Iterable[float], otherwise: float) -> float:
    known = [seconds for seconds in measured if 0 < seconds <= MOST_SECONDS]
    return statistics.median(known) if known else otherwise
