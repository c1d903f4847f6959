"""A study that `hermesctl study export` wrote, as curves: last night under another policy.

Its trials are the jobs, as long as they were trained, with the speeds and the costs of suspending,
resuming, starting and ending that were measured. A step without a point of its own lies on the line
between its neighbours.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from hermesd.core.commands import Launch
from hermesd.core.events import PolicyFailed, Reported, RunCompleted, RunStarted
from hermesd.core.model import Goal, Study, Time
from hermesd.core.trial import Trial
from hermesd.record import Entry, Form, Unreadable, decode
from hermesd.refusal import FieldError, Refused
from hermesd.simulate.archives import OTHERWISE, ZIP
from hermesd.simulate.curves import MOST_SECONDS, Curves, Floats, Job, Switch, until_broken
from hermesd.simulate.paces import ending, paces

FORMAT = 1
# The figures' trailing mean, as a share of the longest job: 20 iterations of 1,000.
SMOOTHED_SHARE = 0.02
# A suspend and a resume on cores, where a trial is parked: by benchmarks/switches.py.
PARKED_SECONDS, CORES = 0.015, re.compile(r"cpu(-\d+%)?")
# What is read of the journal: when trials got a device, how far they were at what time, and
# whether the policy failed.
READ = frozenset(
    kind.__name__ for kind in (Launch, RunStarted, Reported, RunCompleted, PolicyFailed)
)

_STUDY: Form[Study] = Form(Study)
_TRIAL: Form[Trial] = Form(Trial)
_VALUES: TypeAdapter[list[float]] = TypeAdapter(list[float])


@dataclass(frozen=True, slots=True)
class Exported:
    """A study and what is known of its past.

    `trials` are those that were trained at all, by number; each is the job at its place in
    `curves`. So many others are `untrained`: they reported no loss. `entries` are the launches,
    starts, reports, completions and failures of the policy with their times.
    """

    study: Study
    trials: tuple[Trial, ...]
    curves: Curves
    entries: tuple[tuple[Time, Entry], ...]
    untrained: int


@dataclass(slots=True)
class _Lines:
    """The lines of an export, sorted by what they are about."""

    study: Study | None = None
    trials: list[Trial] = field(default_factory=list)
    points: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
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
    curves = [(trial, sign * _curve(lines.points.get(trial.id, []))) for trial in lines.trials]
    trained = [(trial, curve) for trial, curve in curves if len(curve) and np.isfinite(curve[0])]
    if not trained:
        raise _refused(path, f"at least one trial that reported {study.signal}")
    for trial, _ in trained:
        if not 0 <= trial.use.busy_seconds <= MOST_SECONDS * max(trial.step, 1):
            raise _refused(path, f"the busy_seconds of {trial.id} to be seconds, 0 or more")
    return Exported(
        study,
        tuple(trial for trial, _ in trained),
        Curves(path.stem, _jobs(trained, lines.entries), _switch(lines), whole=True),
        tuple(lines.entries),
        len(curves) - len(trained),
    )


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
                    lines.points.setdefault(found["trial"], []).append(found)
                case "entry" if found["kind"] in READ:
                    entry = decode(found["kind"], json.dumps(found["body"]))
                    lines.entries.append((float(found["at"]), entry))
                case "device":
                    lines.kinds.add(found["device"]["kind"])
                case _:
                    pass  # other entries, other metrics
        except (ValueError, KeyError, TypeError, ValidationError, Unreadable):
            raise _refused(
                path, f"line {number} to be one that `hermesctl study export` writes"
            ) from None
    return lines


def _text(path: Path) -> Iterable[str]:
    try:
        data = path.read_bytes()
        if data.startswith(ZIP):
            raise _refused(path, "an exported study (`hermesctl study export`), not an archive")
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


def _curve(pieces: list[dict[str, Any]]) -> Floats:
    """The signal at every step; where steps were trained twice, the later attempt counts."""
    merged: dict[int, float] = {}
    for attempt in sorted({piece["attempt"] for piece in pieces}):
        fresh: dict[int, float] = {}
        for piece in pieces:
            if piece["attempt"] == attempt:
                values = _VALUES.validate_python(piece["values"])
                fresh.update(zip(map(int, piece["steps"]), values, strict=True))
        first = min(fresh, default=0)
        merged = {step: value for step, value in merged.items() if step < first} | fresh
    if not merged:
        return np.empty(0)
    steps = sorted(merged)
    return np.interp(np.arange(1, steps[-1] + 1), steps, [merged[step] for step in steps])


def _jobs(
    trained: list[tuple[Trial, Floats]], entries: Sequence[tuple[Time, Entry]]
) -> tuple[Job, ...]:
    """The trials as jobs at their measured paces."""
    longest = max((len(curve) for _, curve in trained), default=0)
    smoothing = max(1, round(SMOOTHED_SHARE * longest))
    measured = paces([trial for trial, _ in trained], entries)
    return tuple(
        Job(
            losses := until_broken(curve),
            pace.step_seconds,
            trial.planned_steps,
            smoothing,
            trial.spec.parameters,
            pace.opening_seconds,
            diverges=len(losses) < len(curve),
        )
        for (trial, curve), pace in zip(trained, measured, strict=True)
    )


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
