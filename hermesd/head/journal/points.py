"""Metric points as bytes, and curves made of the pieces that the runs of a trial left.

A block is what one report brought, in the form of its message. A piece has its steps as
little-endian 64-bit integers and its values as 64-bit floats, in two blobs of equal length.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from hermesd import wire
from hermesd.codec import Malformed
from hermesd.core.events import Reported
from hermesd.core.fast_replace import replace
from hermesd.core.losses import Chunk, chunked_points, extend
from hermesd.core.model import Goal, RunId, Study, TrialId
from hermesd.pb.hermes.v1.node_pb2 import MetricPoints

STEP, VALUE = np.dtype("<i8"), np.dtype("<f8")


class Block(NamedTuple):
    """Points of several metrics that a run reported at once: a packed `MetricPoints`."""

    run: RunId
    points: bytes


class Piece(NamedTuple):
    """Packed points of one attempt, as they are stored."""

    trial: TrialId
    attempt: int
    metric: str
    steps: bytes
    values: bytes


class StoredCurve(NamedTuple):
    """Steps in increasing order and the value at each."""

    steps: list[int]
    values: list[float]


def pack(curve: StoredCurve) -> tuple[bytes, bytes]:
    """The steps and the values as a piece has them."""
    # Few points are usual: there numpy takes three times as long.
    steps = struct.pack(f"<{len(curve.steps)}q", *curve.steps)
    return steps, struct.pack(f"<{len(curve.values)}d", *curve.values)


def joined(blocks: Iterable[bytes]) -> dict[str, StoredCurve]:
    """The points of several blocks by metric, in the order of the blocks."""
    found: dict[str, StoredCurve] = {}
    for metric, steps, values in wire.points_from_proto(MetricPoints.FromString(b"".join(blocks))):
        known = found.setdefault(metric, StoredCurve([], []))
        known.steps.extend(steps)
        known.values.extend(values)
    return found


def unpack(piece: Piece) -> StoredCurve:
    """The steps and values of a piece as they were reported."""
    steps, values = np.frombuffer(piece.steps, STEP), np.frombuffer(piece.values, VALUE)
    return StoredCurve(steps.tolist(), values.tolist())


def is_readable(piece: Piece) -> bool:
    """Whether a piece holds points: a disk may have changed it."""
    try:
        curve = unpack(piece)
    except (ValueError, TypeError):
        return False
    return len(curve.steps) == len(curve.values) and isinstance(piece.metric, str)


def is_block(points: bytes) -> bool:
    """Whether these bytes are a block: a disk may have changed them."""
    try:
        joined([points])
    except (DecodeError, Malformed, ValueError, TypeError):
        return False
    return True


def counting(pieces: Iterable[Piece]) -> dict[int, StoredCurve]:
    """The points that count, by attempt: each step is there once.

    Where a trial fell back to a checkpoint and trained steps again, the later attempt counts, and
    of what came before the newest one nothing beyond its begin; a report that came twice counts
    once.
    """
    by_attempt: dict[int, dict[int, float]] = {}
    for piece in pieces:
        by_attempt.setdefault(piece.attempt, {}).update(zip(*unpack(piece), strict=True))
    found: dict[int, StoredCurve] = {}
    later: set[int] = set()
    begin = math.inf
    for attempt in sorted(by_attempt, reverse=True):
        points = by_attempt[attempt]
        steps = sorted(step for step in points if step < begin and step not in later)
        found[attempt] = StoredCurve(steps, [points[step] for step in steps])
        later.update(steps)
        if begin == math.inf and points:
            begin = min(points)
    return dict(sorted((attempt, curve) for attempt, curve in found.items() if curve.steps))


def curve(pieces: Iterable[Piece], limit: int = 0) -> StoredCurve:
    """One curve of the points that count, at most `limit` of them (0: all).

    Thinned curves keep their first and last point.
    """
    merged = {
        step: value for one in counting(pieces).values() for step, value in zip(*one, strict=True)
    }
    steps = sorted(merged)
    if limit and len(steps) > limit:
        chosen = np.unique(np.linspace(0, len(steps) - 1, limit).round().astype(int))
        steps = [steps[index] for index in chosen]
    return StoredCurve(steps, [merged[step] for step in steps])


def until(found: StoredCurve, step: int) -> StoredCurve:
    """The points up to a step."""
    count = bisect_right(found.steps, step)
    return StoredCurve(found.steps[:count], found.values[:count])


# A curve for policies is made of so many runs of points, each in as many chunks as a report has.
_RUNS = 4


def losses(found: StoredCurve, goal: Goal, step: int) -> tuple[Chunk, ...]:
    """The points after `step` as policies read them: lower is better."""
    sign = -1.0 if goal is Goal.MAXIMIZE else 1.0
    points = [(at, sign * value) for at, value in zip(*found, strict=True) if at > step]
    made: tuple[Chunk, ...] = ()
    each = -(-len(points) // _RUNS) or 1
    for begin in range(0, len(points), each):
        part = points[begin : begin + each]
        made = extend(made, chunked_points(step + 1, part))
        step = part[-1][0]
    return made


def read_as(event: Reported, block: Block, study: Study, step: int) -> Reported:
    """A report of a study whose signal was chosen since, with the losses of that, which its node
    may not know of, after `step`."""
    found = joined([block.points]).get(study.signal, StoredCurve([], []))
    finite = all(map(math.isfinite, found.values))
    since = min([step, *(at - 1 for at in found.steps[:1])])
    return replace(event, chunks=losses(found, study.signal_goal, since), not_finite=not finite)
