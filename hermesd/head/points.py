"""Metric points in bytes, and curves out of the pieces that the runs of a trial left.

A block is what one report brought, as its message has it. In a piece steps are little-endian
64-bit integers, values 64-bit floats, in two blobs of equal length.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from hermesd import wire
from hermesd.core.model import RunId, TrialId
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


class Curve(NamedTuple):
    """Steps in increasing order and the value at each."""

    steps: list[int]
    values: list[float]


def pack(curve: Curve) -> tuple[bytes, bytes]:
    """The steps and the values as a piece has them."""
    # Few points are usual: there numpy takes three times as long.
    steps = struct.pack(f"<{len(curve.steps)}q", *curve.steps)
    return steps, struct.pack(f"<{len(curve.values)}d", *curve.values)


def joined(blocks: Iterable[bytes]) -> dict[str, Curve]:
    """The points of several blocks by metric, in the order of the blocks."""
    found: dict[str, Curve] = {}
    for metric, steps, values in wire.points_from_proto(MetricPoints.FromString(b"".join(blocks))):
        known = found.setdefault(metric, Curve([], []))
        known.steps.extend(steps)
        known.values.extend(values)
    return found


def unpack(piece: Piece) -> Curve:
    """The steps and values of a piece as they were reported."""
    steps, values = np.frombuffer(piece.steps, STEP), np.frombuffer(piece.values, VALUE)
    return Curve(steps.tolist(), values.tolist())


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
    except (DecodeError, wire.Malformed, ValueError, TypeError):
        return False
    return True


def curve(pieces: Iterable[Piece], limit: int = 0) -> Curve:
    """One curve out of pieces, at most `limit` points of it (0: all).

    Where a trial fell back to a checkpoint and trained steps again, the later attempt counts, and
    of what came before the newest one nothing beyond its begin; a report that came twice counts
    once. Thinned curves keep their first and last point.
    """
    by_attempt: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_attempt.setdefault(piece.attempt, []).append(piece)
    merged: dict[int, float] = {}
    begin = math.inf
    for attempt in sorted(by_attempt, reverse=True):
        fresh: dict[int, float] = {}
        for piece in by_attempt[attempt]:
            fresh.update(zip(*unpack(piece), strict=True))
        earlier = {step: value for step, value in fresh.items() if step < begin}
        merged = earlier | merged
        if begin == math.inf and fresh:
            begin = min(fresh)
    steps = sorted(merged)
    if limit and len(steps) > limit:
        chosen = np.unique(np.linspace(0, len(steps) - 1, limit).round().astype(int))
        steps = [steps[index] for index in chosen]
    return Curve(steps, [merged[step] for step in steps])
