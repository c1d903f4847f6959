"""What a trial used over time, kept as points beside its metrics, under names that begin with
`hermes/`."""

from __future__ import annotations

from hermesd import wire
from hermesd.core.events import Reported
from hermesd.core.progress import METRICS_KEPT
from hermesd.core.state import State
from hermesd.head.journal.points import Block
from hermesd.pb.hermes.v1 import node_pb2 as pb

EXAMPLES_PER_SECOND = "hermes/examples_per_second"
STEPS_PER_SECOND = "hermes/steps_per_second"
MEMORY_BYTES = "hermes/memory_bytes"
CPU_USE = "hermes/cpu_use"
DEVICE_USE = "hermes/device_use"
DEVICE_MEMORY_BYTES = "hermes/device_memory_bytes"
OURS = frozenset(
    {
        EXAMPLES_PER_SECOND, STEPS_PER_SECOND, MEMORY_BYTES, CPU_USE, DEVICE_USE,
        DEVICE_MEMORY_BYTES,
    }
)  # fmt: skip


def kept(state: State, block: Block) -> Block:
    """The points of those metrics that are kept of their trial, and our own."""
    trial = state.trials.get(block.run.trial)
    if trial is None or len(trial.metrics) < METRICS_KEPT:
        return block
    series = wire.points_from_proto(pb.MetricPoints.FromString(block.points))
    known = (one for one in series if one.metric in trial.metrics or one.metric in OURS)
    return Block(block.run, wire.points_to_proto(known).SerializeToString())


def with_usage(report: Reported, points: pb.MetricPoints, device_use: float | None = None) -> Block:
    """The points of a report, to which the rates of the interval that it covers are added.

    `device_use` is how busy its device was found meanwhile, 0 to 1, if it was looked at. All are
    points under names of our own: nothing ranks or stops by them.
    """
    steps = sum(chunk.size for chunk in report.chunks)
    measured = {MEMORY_BYTES: float(report.memory_bytes)}
    if report.busy_seconds > 0:
        measured[EXAMPLES_PER_SECOND] = report.examples / report.busy_seconds
        measured[STEPS_PER_SECOND] = steps / report.busy_seconds
        measured[CPU_USE] = report.cpu_seconds / report.busy_seconds
    measured[DEVICE_MEMORY_BYTES] = float(report.device_memory_bytes)
    ours = {name: value for name, value in measured.items() if value}
    if device_use is not None:  # that it stood idle is told, too
        ours[DEVICE_USE] = device_use
    points.metrics.extend(ours)
    points.counts.extend([1] * len(ours))
    points.steps.extend([report.step] * len(ours))
    points.values.extend(ours.values())
    return Block(report.run, points.SerializeToString())
