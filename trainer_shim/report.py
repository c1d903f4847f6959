"""A report: what happened in the iterations since the one before.

Rule: the signal's summary covers every iteration; the points are all of them up to 256, then
evenly thinned with the last kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Union

from trainer_shim.wire import Message, number

_T = TypeVar("_T")
MAX_POINTS = 256
Point = list[Any]  # [step, {metric: value}]
Number = Union[float, str]
Values = Union[float, dict[str, float]]  # of a step: by name, or the signal alone


def thin(points: Sequence[_T]) -> list[_T]:
    """At most 256 of `points`, evenly spaced, the last kept."""
    count = len(points)
    if count <= MAX_POINTS:
        return list(points)
    return [points[(i + 1) * count // MAX_POINTS - 1] for i in range(MAX_POINTS)]


def thin_keeping_rich(points: Mapping[int, Values]) -> list[int]:
    """The steps that `thin` keeps, and those with more than the usual values (an epoch's)."""
    steps = list(points)
    if len(steps) <= MAX_POINTS:
        return steps
    sizes = [len(values) if isinstance(values, dict) else 1 for values in points.values()]
    usual = min(sizes)
    rich = [step for step, size in zip(steps, sizes) if size > usual][-MAX_POINTS:]
    return sorted({*thin(steps), *rich})


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are numbers, as floats."""
    found = {}
    for name, value in metrics.items():
        with contextlib.suppress(Exception):  # whatever a program's own kind of value raises
            found[name] = float(value)
    return found


def summarise(values: Sequence[float]) -> Message:
    """{count, first, last, min, max} of the signal; NaN spoils neither min nor max."""
    ordered = [value for value in values if value == value]
    return {
        "count": len(values),
        "first": number(values[0]) if values else None,
        "last": number(values[-1]) if values else None,
        "min": number(min(ordered)) if ordered else None,
        "max": number(max(ordered)) if ordered else None,
    }


def merge(earlier: Message, later: Message) -> Message:
    """One report for two that follow each other; it has the later one's number."""
    one, two = earlier["signal"], later["signal"]
    first = two if one["count"] == 0 else one
    last = one if two["count"] == 0 else two
    sums = ("count", "busy_seconds", "examples", "cpu_seconds")
    return {
        **later,
        "first_step": earlier["first_step"],
        "points": thin(earlier["points"] + later["points"]),
        "signal": {
            "count": one["count"] + two["count"],
            "first": first["first"],
            "last": last["last"],
            "min": _extreme(one["min"], two["min"], largest=False),
            "max": _extreme(one["max"], two["max"], largest=True),
        },
        **{name: earlier[name] + later[name] for name in sums},
    }


def _extreme(one: Number | None, two: Number | None, largest: bool) -> Number | None:
    if one is None or two is None:
        return two if one is None else one
    pair: tuple[Number, Number] = (one, two)
    return max(pair, key=float) if largest else min(pair, key=float)
