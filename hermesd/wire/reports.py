"""A report as a message and back: losses in chunks, metrics as the points they were reported in.

The points go beside what is folded; of them the fold gets each metric's last value and its range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan

from hermesd.core.events import Reported
from hermesd.core.losses import Chunk
from hermesd.core.node.messages import Series
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.wire.nouns import Malformed, run_of


def report_to_proto(report: Reported, points: Iterable[Series]) -> pb.Report:
    """The message of a report and its points."""
    return pb.Report(
        trial=report.run.trial,
        attempt=report.run.attempt,
        step=report.step,
        planned_steps=report.planned_steps or 0,
        chunks=[
            pb.LossChunk(
                first_step=chunk.first_step,
                last_step=chunk.last_step,
                count=chunk.size,
                total=chunk.total,
                low=chunk.low,
                high=chunk.high,
            )
            for chunk in report.chunks
        ],
        points=points_to_proto(points),
        busy_seconds=report.busy_seconds,
        examples=report.examples,
        memory_bytes=report.memory_bytes,
        cpu_seconds=report.cpu_seconds,
        not_finite=report.not_finite,
        number=report.number,
        device_memory_bytes=report.device_memory_bytes,
    )


def points_to_proto(points: Iterable[Series]) -> pb.MetricPoints:
    """The message of points of several metrics."""
    series = list(points)
    return pb.MetricPoints(
        metrics=[one.metric for one in series],
        counts=[len(one.steps) for one in series],
        steps=[step for one in series for step in one.steps],
        values=[value for one in series for value in one.values],
    )


def points_from_proto(message: pb.MetricPoints) -> tuple[Series, ...]:
    """The points that travel beside a report. Raises Malformed."""
    metrics, counts, values = _columns(message)
    steps = tuple(message.steps[:])
    found, end = [], 0
    for metric, count in zip(metrics, counts, strict=True):
        begin, end = end, end + count
        found.append(Series(metric, steps[begin:end], values[begin:end]))
    return tuple(found)


def _columns(message: pb.MetricPoints) -> tuple[Sequence[str], Sequence[int], tuple[float, ...]]:
    """Metrics, how many points each has, and the values. Raises Malformed."""
    # A slice is copied by the library at once, an iteration asks it for each number.
    metrics, counts, values = message.metrics[:], message.counts[:], tuple(message.values[:])
    if len(metrics) != len(counts) or min(counts, default=1) < 1:
        raise Malformed(
            f"report.points: {len(metrics)} metrics with {counts[:8]} points, expected as many"
            " numbers as metrics, each at least 1"
        )
    if not sum(counts) == len(message.steps) == len(values):
        raise Malformed(
            f"report.points: {len(message.steps)} steps and {len(values)} values,"
            f" expected {sum(counts)} of each"
        )
    return metrics, counts, values


def report_from_proto(message: pb.Report) -> Reported:
    """The report that a message stands for. Raises Malformed."""
    if any(chunk.count < 1 for chunk in message.chunks):
        raise Malformed("report.chunks: a chunk without an iteration, expected 1 or more")
    metrics, ranges = _last_and_ranges(message.points)
    return Reported(
        run=run_of(message, "report"),
        step=message.step,
        chunks=tuple(
            Chunk(c.first_step, c.last_step, c.count, c.total, c.low, c.high)
            for c in message.chunks
        ),
        metrics=metrics,
        planned_steps=message.planned_steps or None,
        busy_seconds=message.busy_seconds,
        cpu_seconds=message.cpu_seconds,
        examples=message.examples,
        memory_bytes=message.memory_bytes,
        not_finite=message.not_finite,
        ranges=ranges,
        number=message.number,
        device_memory_bytes=message.device_memory_bytes,
    )


def _last_and_ranges(
    message: pb.MetricPoints,
) -> tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float, float], ...]]:
    """Each metric's last value, and the lowest and highest number of those that have several
    values; NaN is none."""
    metrics, counts, values = _columns(message)
    last, ranges, end = [], [], 0
    for metric, count in zip(metrics, counts, strict=True):
        begin, end = end, end + count
        last.append((metric, values[end - 1]))
        if count > 1 and (numbers := [each for each in values[begin:end] if not isnan(each)]):
            ranges.append((metric, min(numbers), max(numbers)))
    return tuple(last), tuple(ranges)
