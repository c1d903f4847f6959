"""A trial's loss curve in bounded space: chunks of consecutive iterations, coarser with age.

Policies read the curve only through this file. Losses are values of the study's signal; if that is
to be maximized, the sign is flipped, so lower is always better here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

CURVE_CHUNKS = 64
REPORT_CHUNKS = 16


class Chunk(NamedTuple):
    """Consecutive iterations `first_step..last_step`: how many, their sum, lowest and highest."""

    first_step: int
    last_step: int
    size: int
    total: float
    low: float
    high: float

    @property
    def mean(self) -> float:
        return self.total / self.size


def join(left: Chunk, right: Chunk) -> Chunk:
    """Both chunks as one."""
    return Chunk(
        left.first_step,
        right.last_step,
        left.size + right.size,
        left.total + right.total,
        min(left.low, right.low),
        max(left.high, right.high),
    )


def chunked(
    first_step: int, losses: Sequence[float], limit: int = REPORT_CHUNKS
) -> tuple[Chunk, ...]:
    """Consecutive losses from `first_step` on, as at most `limit` chunks of even length."""
    chunks = []
    count = len(losses)
    parts = min(limit, count)
    for part in range(parts):
        start, end = part * count // parts, (part + 1) * count // parts
        piece = losses[start:end]
        chunks.append(
            Chunk(
                first_step + start,
                first_step + end - 1,
                end - start,
                float(sum(piece)),
                float(min(piece)),
                float(max(piece)),
            )
        )
    return tuple(chunks)


def chunked_points(first_step: int, losses: Sequence[tuple[int, float]]) -> tuple[Chunk, ...]:
    """The finite losses at some steps from `first_step` on, as at most 16 chunks.

    A loss stands for the iterations without one before it, and counts for all of them.
    """
    stretches: list[list[tuple[int, int, float]]] = [[]]
    for step, loss in losses:
        if math.isfinite(loss):
            stretches[-1].append((first_step, step, loss))
        elif stretches[-1]:
            stretches.append([])
        first_step = step + 1
    made = []
    for stretch in stretches:
        for part in chunked(0, [loss for _, _, loss in stretch]):
            begin, end = stretch[part.first_step][0], stretch[part.last_step][1]
            size = end - begin + 1
            made.append(Chunk(begin, end, size, part.mean * size, part.low, part.high))
    return tuple(made[-REPORT_CHUNKS:])


def extend(curve: tuple[Chunk, ...], chunks: Iterable[Chunk]) -> tuple[Chunk, ...]:
    """The curve with more chunks at its end, joined to about 64 chunks of equal relative width.

    Steps at or before the curve's end replace what was there: a resume from an older checkpoint
    trains those steps again.
    """
    grown = list(curve)
    for chunk in chunks:
        while grown and grown[-1].first_step >= chunk.first_step:
            grown.pop()
        grown.append(chunk)
    width = 1 / 32
    while len(grown) > 2 * CURVE_CHUNKS:
        joined: list[Chunk] = []
        for chunk in grown:
            if joined and chunk.last_step - joined[-1].first_step < width * chunk.last_step:
                joined[-1] = join(joined[-1], chunk)
            else:
                joined.append(chunk)
        grown = joined
        width *= 1.5
    return tuple(grown)


def truncate(curve: tuple[Chunk, ...], step: int) -> tuple[Chunk, ...]:
    """The curve up to `step`: what remains when a trial falls back to a checkpoint taken there."""
    return curve[: bisect_right(curve, step, key=lambda chunk: chunk.last_step)]


def recent(curve: tuple[Chunk, ...], iterations: int, share: float = 0.1) -> float | None:
    """Mean of the last max(3, share x iterations) losses, in iterations; None without any."""
    wanted = max(3.0, share * iterations)
    total = count = 0.0
    for chunk in reversed(curve):
        taken = min(float(chunk.size), wanted - count)
        total += chunk.total * (taken / chunk.size)
        count += taken
        if count >= wanted:
            break
    return total / count if count else None


@dataclass(frozen=True, slots=True)
class QuantumLosses:
    """The losses reported within one quantum: their number and range (L_j(i) of the paper)."""

    count: int = 0
    low: float = float("inf")
    high: float = float("-inf")

    def with_chunks(self, chunks: Iterable[Chunk]) -> QuantumLosses:
        count, low, high = self.count, self.low, self.high
        for chunk in chunks:
            count, low, high = count + chunk.size, min(low, chunk.low), max(high, chunk.high)
        return QuantumLosses(count, low, high)

    @property
    def middle(self) -> float:
        """loss_j(i) = (max + min) / 2."""
        return (self.high + self.low) / 2
