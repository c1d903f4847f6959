"""What a trial used over time, kept as points beside its metrics, under names of our own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hermesd.core.events import Reported
from hermesd.core.node_messages import Series
from hermesd.core.progress import METRICS_KEPT
from hermesd.core.state import State
from hermesd.head.points import Points

EXAMPLES_PER_SECOND = "hermes/examples_per_second"
STEPS_PER_SECOND = "hermes/steps_per_second"
MEMORY_BYTES = "hermes/memory_bytes"
CPU_USE = "hermes/cpu_use"
OURS = frozenset({EXAMPLES_PER_SECOND, STEPS_PER_SECOND, MEMORY_BYTES, CPU_USE})


def kept(state: State, points: Sequence[Points]) -> Sequence[Points]:
    """The points of those metrics that are kept of their trial, and our own."""
    trial = state.trials.get(points[0].run.trial) if points else None
    if trial is None or len(trial.metrics) < METRICS_KEPT:
        return points
    return [one for one in points if one.metric in trial.metrics or one.metric in OURS]


def with_usage(report: Reported, series: Iterable[Series]) -> list[Points]:
    """The points of a report: its metrics, and the rates of the interval that it covers."""
    points = [Points(report.run, one.metric, one.steps, one.values) for one in series]
    steps = sum(chunk.size for chunk in report.chunks)
    measured = {MEMORY_BYTES: float(report.memory_bytes)}
    if report.busy_seconds > 0:
        measured[EXAMPLES_PER_SECOND] = report.examples / report.busy_seconds
        measured[STEPS_PER_SECOND] = steps / report.busy_seconds
        measured[CPU_USE] = report.cpu_seconds / report.busy_seconds
    at = [report.step]
    return points + [Points(report.run, name, at, [v]) for name, v in measured.items() if v]
