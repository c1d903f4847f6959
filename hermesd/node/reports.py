"""A host's words as facts of the node's machine: pure, no I/O.

Rule: losses turn "lower is better" here and nowhere else; the points stay as reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from hermesd.core.bounds import LARGEST_COUNT
from hermesd.core.events import Reported
from hermesd.core.losses import Chunk, chunked_points
from hermesd.core.model import Checkpoint, Fidelity, Goal, NodeId, RunId, Tier
from hermesd.core.node_messages import (
    Completed,
    Failed,
    HostFact,
    Judged,
    Left,
    Parked,
    Planned,
    Progress,
    Saved,
    Series,
    Started,
)
from hermesd.node.frames import Frame


def fact_of(frame: Frame, trial: str, goal: Goal, signal: str, node: NodeId) -> HostFact | None:
    """The fact that a host's event states; None for kinds that state none.

    Raises KeyError, TypeError, ValueError or OverflowError when a field is missing or of the wrong
    kind.
    """
    run = RunId(trial, int(frame["attempt"]))
    match frame["kind"]:
        case "started" | "resumed":
            awaits_step = bool(frame.get("awaits_step", False))
            return Started(run, _count(frame["step"]), awaits_step)
        case "planned":
            return Planned(run, _count(frame["steps"]))
        case "fidelity":
            return Judged(
                run,
                Fidelity(frame["level"]),
                str(frame.get("reason") or ""),
                str(frame.get("framework") or ""),
            )
        case "reported":
            return progress(run, frame, goal, signal)
        case "parked":
            memory, cause = _count(frame.get("memory_bytes") or 0), str(frame.get("cause") or "")
            waited = float(frame.get("boundary_seconds") or 0.0)
            midway = not frame.get("at_boundary", True)
            return Parked(run, _count(frame["step"]), memory, cause, waited, midway)
        case "checkpointed":
            return Saved(run, checkpoint_of(frame, run, node))
        case "suspended":
            kept = frame.get("checkpoint")
            return Left(
                run,
                Tier(frame["tier"]),
                _count(frame["step"]),
                checkpoint_of(kept, run, node) if kept else None,
                str(frame.get("cause") or ""),
            )
        case "completed":
            kept = frame.get("checkpoint")
            final = checkpoint_of(kept, run, node) if kept else None
            return Completed(run, _count(frame["step"]), final)
        case "failed":
            return Failed(
                run,
                str(frame["error_kind"]),
                str(frame.get("detail") or ""),
                str(frame.get("error_signature") or ""),
                _count(frame.get("step") or 0),
            )
        case _:
            return None


def _count(value: Any) -> int:
    """A number of things, as the head takes it."""
    if not 0 <= (number := int(value)) <= LARGEST_COUNT:
        raise ValueError(f"{number}: expected a number from 0 to {LARGEST_COUNT}")
    return number


def checkpoint_of(frame: Frame, run: RunId, node: NodeId) -> Checkpoint:
    """A checkpoint by its global name: the trial's, then that of its directory."""
    return Checkpoint(
        f"{run.trial}@{frame['id']}",
        run.trial,
        run.attempt,
        _count(frame["step"]),
        str(frame["sha256"]),
        _count(frame["bytes"]),
        (node,),
    )


def progress(run: RunId, frame: Frame, goal: Goal, signal: str) -> Progress:
    """A report: the signal as chunks, every metric as points."""
    points = [(int(step), {k: float(v) for k, v in m.items()}) for step, m in frame["points"]]
    # A program numbers its steps as it likes; what the head would not take must end here.
    steps = [int(frame["first_step"]), *(step for step, _ in points)]
    if steps != sorted(steps) or steps[0] < 0 or max(steps) > LARGEST_COUNT:
        expected = f"expected rising ones, to {LARGEST_COUNT}"
        raise ValueError(f"steps {steps[0]}..{steps[-1]}: {expected}")
    sign = -1.0 if goal is Goal.MAXIMIZE else 1.0
    losses = [(step, sign * metrics[signal]) for step, metrics in points if signal in metrics]
    summary = frame["signal"]
    ends = [float(summary[key]) for key in ("min", "max") if summary.get(key) is not None]
    extremes = [sign * value for value in ends if math.isfinite(value)]
    finite = all(math.isfinite(loss) for _, loss in losses) and len(extremes) == len(ends)
    chunks: tuple[Chunk, ...] = ()
    if losses:
        chunks = _stretched(chunked_points(int(frame["first_step"]), losses), extremes)
    series = series_of(points)
    return Progress(
        Reported(
            run,
            _count(frame["last_step"]),
            chunks,
            tuple((one.metric, one.values[-1]) for one in series),
            busy_seconds=float(frame["busy_seconds"]),
            cpu_seconds=float(frame.get("cpu_seconds") or 0.0),
            examples=_count(frame.get("examples") or 0),
            memory_bytes=_count(frame.get("memory_bytes") or 0),
            not_finite=not finite,
            number=_count(frame.get("seq") or 0),
        ),
        series,
    )


def series_of(points: Iterable[tuple[int, dict[str, float]]]) -> tuple[Series, ...]:
    """The points by metric."""
    by_metric: dict[str, tuple[list[int], list[float]]] = {}
    for step, metrics in points:
        for metric, value in metrics.items():
            steps, values = by_metric.setdefault(metric, ([], []))
            steps.append(step)
            values.append(value)
    return tuple(Series(metric, tuple(s), tuple(v)) for metric, (s, v) in by_metric.items())


def _stretched(chunks: tuple[Chunk, ...], extremes: Sequence[float]) -> tuple[Chunk, ...]:
    """The chunks with the extremes of all iterations, thinned ones included, as low and high."""
    if not chunks or not extremes:
        return chunks
    made = list(chunks)
    lowest = min(range(len(made)), key=lambda i: made[i].low)
    made[lowest] = made[lowest]._replace(low=min(made[lowest].low, *extremes))
    highest = max(range(len(made)), key=lambda i: made[i].high)
    made[highest] = made[highest]._replace(high=max(made[highest].high, *extremes))
    return tuple(made)
