"""Two or more studies side by side: their results, how soon they were reached, and what differs.

Pure: records from what the head said about each study.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hermesctl.sdk.events import Event
from hermesctl.sdk.likeness import signal_of
from hermesctl.sdk.records import Curve, Leaderboard, Params, Study, TrialState
from hermesctl.yaml_text import Data

# At how many steps and times the curves are read.
ROWS = 8
# What only names a study.
_NAMES = frozenset({"name", "description", "project", "entity"})


@dataclass(frozen=True, slots=True)
class StudyTrace:
    """What is known of one study: its best trial's curve, and the best value of all by the time
    since its submission, in seconds."""

    study: Study
    leaderboard: Leaderboard
    curve: Curve
    record: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class ComparedStudy:
    """One of the studies that are compared."""

    study: str
    policy: str
    trials: int
    #: How many of its trials have ended.
    ended: int
    best_trial: str
    #: The best trial's value of the metric; None without one.
    best: float | None
    #: The best trial's.
    params: Params
    #: How long its trials trained on devices.
    busy_seconds: float
    #: From its submission to its end, or to its last report.
    seconds: float
    #: The best trial's value at each of the comparison's steps; None before its first.
    by_step: tuple[float | None, ...]
    #: The best value of any trial by each of the comparison's times; None before the first.
    by_time: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class StudyComparison:
    """Studies side by side, in the given order, by one metric."""

    metric: str
    goal: str
    mode: str
    #: Eighths of the shortest of the curves.
    steps: tuple[int, ...]
    #: Eighths of the time of the longest study.
    seconds: tuple[float, ...]
    studies: tuple[ComparedStudy, ...]
    #: Each key of their study files, with dots, that is not the same in all of them, with its
    #: values in their order; None where it is not given.
    differences: Mapping[str, tuple[Data, ...]]


def traced(
    study: Study, leaderboard: Leaderboard, curve: Curve, events: Iterable[Event]
) -> StudyTrace:
    """What the head says of a study, with its events, reports among them."""
    record: list[tuple[float, float]] = []
    for at, value in _values(study, leaderboard.metric, events):
        best = record[-1][1] if record else value
        better = value > best if leaderboard.metric_goal == "maximize" else value < best
        record.append((at - study.submitted_unix_seconds, value if better else best))
    return StudyTrace(study, leaderboard, curve, tuple(record))


def compared(traces: Sequence[StudyTrace]) -> StudyComparison:
    """The studies side by side, by the metric of the first one's leaderboard."""
    board = traces[0].leaderboard
    last_steps = [trace.curve.steps[-1] for trace in traces if trace.curve.steps]
    last_times = [trace.record[-1][0] for trace in traces if trace.record]
    steps = _eighths(min(last_steps, default=0))
    whole = tuple(dict.fromkeys(max(1, round(step)) for step in steps))
    seconds = _eighths(max(last_times, default=0.0))
    return StudyComparison(
        board.metric,
        board.metric_goal,
        board.metric_mode,
        whole,
        seconds,
        tuple(_side(trace, whole, seconds) for trace in traces),
        _differences([trace.study for trace in traces]),
    )


def _values(study: Study, metric: str, events: Iterable[Event]) -> Iterator[tuple[float, float]]:
    """The metric's finite values by their times: of the signal each report's mean, which says more
    than its last iteration."""
    name = signal_of(study.spec).name
    for event in events:
        known = {each.name: each.last for each in event.metrics}
        value = event.loss if metric == name and event.loss is not None else known.get(metric)
        if value is not None and math.isfinite(value):
            yield event.at_unix_seconds, value


def _eighths(end: float) -> tuple[float, ...]:
    return tuple(end * part / ROWS for part in range(1, ROWS + 1)) if end > 0 else ()


def _side(trace: StudyTrace, steps: Sequence[int], seconds: Sequence[float]) -> ComparedStudy:
    study, first = trace.study, next(iter(trace.leaderboard), None)
    end = trace.record[-1][0] if trace.record else 0.0
    if study.finished and study.finished_unix_seconds is not None:
        end = study.finished_unix_seconds - study.submitted_unix_seconds
    times, values = [at for at, _ in trace.record], [value for _, value in trace.record]
    return ComparedStudy(
        study=study.id,
        policy=study.policy_label or study.policy,
        trials=study.trial_count,
        ended=sum(study.counts.get(state, 0) for state in TrialState if state.final),
        best_trial=first.id if first is not None else "",
        best=first.metric if first is not None else None,
        params=first.params if first is not None else {},
        busy_seconds=study.busy_seconds,
        seconds=end,
        by_step=tuple(_at(trace.curve.steps, trace.curve.values, step) for step in steps),
        by_time=tuple(_at(times, values, at) for at in seconds),
    )


def _at(places: Sequence[float], values: Sequence[float], place: float) -> float | None:
    """The value at the last of the places up to `place`."""
    index = bisect_right(places, place)
    return values[index - 1] if index else None


def _differences(studies: Sequence[Study]) -> dict[str, tuple[Data, ...]]:
    files = [
        {**dict(_flat(_written_out(study.spec), "")), "code": study.code_sha256[:12] or None}
        for study in studies
    ]
    keys = dict.fromkeys(key for file in files for key in file)
    found = {key: tuple(file.get(key) for file in files) for key in keys}
    return {
        key: values
        for key, values in found.items()
        if key.partition(".")[0] not in _NAMES and any(value != values[0] for value in values)
    }


def _written_out(spec: Mapping[str, Data]) -> dict[str, Data]:
    """A spec with what a study file may leave out of its signal and its metric, and which those
    have that were chosen later."""
    metric = spec.get("metric")
    named = metric if isinstance(metric, Mapping) else {"name": metric}
    whole: dict[str, Data] = {"goal": "minimize", "mode": "last", **named}
    return {**spec, "signal": signal_of(spec)._asdict(), **({"metric": whole} if metric else {})}


def _flat(data: Mapping[str, Data], path: str) -> Iterator[tuple[str, Data]]:
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
