"""Numbers as pictures made of characters. Pure; no value breaks a chart, not even NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hermesctl.text import number

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest `width` values as bars; a value that is not finite is a `!`."""
    shown = list(values)[-width:]
    finite = [v for v in shown if math.isfinite(v)]
    if not finite:
        return "!" * len(shown)
    low, high = min(finite), max(finite)
    return "".join(_bar(v, low, high) if math.isfinite(v) else "!" for v in shown)


def progress_bar(share: float, width: int) -> str:
    """`━━━━╌╌╌╌` for a half."""
    done = round(max(0.0, min(1.0, share)) * width)
    return "━" * done + "╌" * (width - done)


def plot(steps: Sequence[int], values: Sequence[float], width: int, height: int) -> list[str]:
    """The curve as lines of text, its range at the left and its steps below."""
    points = [(s, v) for s, v in zip(steps, values, strict=True) if math.isfinite(v)]
    if not points:
        return ["no finite values" if values else "no points yet"]
    low, high = min(v for _, v in points), max(v for _, v in points)
    first, last = points[0][0], points[-1][0]
    field = [[" "] * width for _ in range(height)]
    for step, value in points:
        column = _scaled(step, first, last, width)
        line = height - 1 - _scaled(value, low, high, height)
        field[line][column] = "•"
    labels = [number(high), *[""] * (height - 2), number(low)]
    margin = max(map(len, labels))
    lines = [
        f"{label:>{margin}} ┤{''.join(row).rstrip()}"
        for label, row in zip(labels, field, strict=True)
    ]
    ends = f"{first}{last!s:>{max(1, width - len(str(first)))}}"
    return [*lines, f"{'':>{margin}}  {ends}"]


def _bar(value: float, low: float, high: float) -> str:
    return _BARS[_scaled(value, low, high, len(_BARS))]


def _scaled(value: float, low: float, high: float, slots: int) -> int:
    # Halved first: the span of two finite numbers may be infinite.
    span = high / 2 - low / 2
    if span <= 0:
        return 0
    return min(slots - 1, int((value / 2 - low / 2) / span * slots))
