"""A study that `hermesctl study export` wrote, as curves: last night under another policy.

Its trials are the jobs, as long as they were trained, with the speeds and the costs of suspending,
resuming and starting that were measured. A step without a point of its own lies on the line
between its neighbours.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from hermesd.core.events import RunStarted
from hermesd.core.model import Goal, Study
from hermesd.core.trial import Trial
from hermesd.record import Form, Unreadable, decode
from hermesd.refusal import FieldError, Refused
from hermesd.simulate.archives import OTHERWISE
from hermesd.simulate.curves import Curves, Floats, Job, Switch, until_broken

FORMAT = 1
# The figures' trailing mean, as a share of the longest job: 20 iterations of 1,000.
SMOOTHED_SHARE = 0.02

_STUDY: Form[Study] = Form(Study)
_TRIAL: Form[Trial] = Form(Trial)
_VALUES: TypeAdapter[list[float]] = TypeAdapter(list[float])


def read_export(path: Path) -> Curves:
    """The trials of an exported study that were trained at all, by number.

    Raises:
        Refused: the file cannot be read, or is no export of this format.
    """
    study: Study | None = None
    trials: list[Trial] = []
    points: dict[str, list[dict[str, Any]]] = {}
    starts: list[float] = []
    for number, line in enumerate(_lines(path), 1):
        try:
            found = json.loads(line)
            match found["type"]:
                case "study":
                    study = _study(path, found)
                case "trial":
                    trials.append(_TRIAL.read(json.dumps(found["trial"])))
                case "points" if study is not None and found["metric"] == study.signal:
                    points.setdefault(found["trial"], []).append(found)
                case "entry" if found["kind"] == RunStarted.__name__:
                    started = decode(found["kind"], json.dumps(found["body"]))
                    if isinstance(started, RunStarted) and started.run.attempt == 1:
                        starts.append(started.start_seconds)
        except (ValueError, KeyError, TypeError, ValidationError, Unreadable):
            raise _refused(
                path, f"line {number} to be one that `hermesctl study export` writes"
            ) from None
    if study is None:
        raise _refused(path, "an export of a study: its first line has the type study")
    sign = -1.0 if study.signal_goal is Goal.MAXIMIZE else 1.0
    curves = [(trial, sign * _curve(points.get(trial.id, []))) for trial in trials]
    jobs = _jobs(
        [(trial, curve) for trial, curve in curves if len(curve) and np.isfinite(curve[0])]
    )
    if not jobs:
        raise _refused(path, f"at least one trial that reported {study.signal}")
    return Curves(path.stem, jobs, _switch(trials, starts), whole=True)


def _lines(path: Path) -> Iterable[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
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


def _jobs(trained: list[tuple[Trial, Floats]]) -> tuple[Job, ...]:
    """The trials as jobs; one whose speed was not measured has the study's usual speed."""
    speeds = [_step_seconds(trial) for trial, _ in trained]
    usual = statistics.median([each for each in speeds if each] or [1.0])
    longest = max((len(curve) for _, curve in trained), default=0)
    smoothing = max(1, round(SMOOTHED_SHARE * longest))
    return tuple(
        Job(until_broken(curve), seconds or usual, len(curve), smoothing, trial.spec.parameters)
        for (trial, curve), seconds in zip(trained, speeds, strict=True)
    )


def _step_seconds(trial: Trial) -> float:
    """Seconds of an iteration, as the trial's reports have them; 0 without any."""
    return trial.use.busy_seconds / trial.step if trial.step else 0.0


def _switch(trials: Iterable[Trial], starts: Sequence[float]) -> Switch:
    """The usual seconds of each; what was never measured takes what it takes for any file."""
    costs = [cost for trial in trials if (cost := trial.switch_cost)]
    usual = Switch.split(OTHERWISE.switch)
    return Switch(
        _median([cost.suspend_seconds for cost in costs], usual.leaving),
        _median([cost.resume_seconds for cost in costs], usual.resuming),
        _median(starts, usual.starting),
    )


def _median(measured: Iterable[float], otherwise: float) -> float:
    known = [seconds for seconds in measured if seconds]
    return statistics.median(known) if known else otherwise
