"""The values of an axis as numbers that a searcher can calculate with, and back.

A value of an axis with few values is its index. Any other value is the share of all draws that are
below it, from 0 to 1. So on a logarithmic axis, or a normal one, equal distances are equally
likely, and a searcher needs to know nothing about distributions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

from hermesd.core.model import Setting
from hermesd.study import space
from hermesd.study.space import Axis, Point

# So many values are still an index.
INDEXED = 10_000
# A normal axis has no ends: these shares of its draws are left off.
TAIL = 1e-6


class Coordinates:
    """One axis."""

    def __init__(self, axis: Axis) -> None:
        self._axis = axis
        #: How many values it has if it is indexed, else None.
        self.size = axis.size if axis.size is not None and axis.size <= INDEXED else None
        self._values = list(axis.grid()) if self.size is not None else []
        self._index = {(type(value), value): i for i, value in enumerate(self._values)}
        #: Whether neighbors are alike, as numbers are that rise or fall.
        self.ordered = _is_ordered(self._values)

    def value(self, at: float) -> Setting:
        """What lies there."""
        return self._values[int(at)] if self.size is not None else _quantile(self._axis, at)

    def of(self, value: Setting) -> float | None:
        """Where a value lies; None if it is not on the axis."""
        if self.size is not None:
            return self._index.get((type(value), value))
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        share = _share(self._axis, value)
        return share if share is not None and 0 <= share <= 1 else None


def ends(axis: Axis) -> tuple[float, float] | None:
    """The least and the greatest value of a range; None for an axis that lists its values, or has
    no ends."""
    match axis:
        case space.InvLogUniform():
            return math.exp(-axis.max), math.exp(-axis.min)
        case space.LogUniform():
            return math.exp(axis.min), math.exp(axis.max)
        case space.IntUniform() | space.Uniform() | space.QUniform() | space.LogUniformValues():
            return axis.min, axis.max
        case _:
            return None


def place(
    axes: Mapping[str, Axis], lies: Mapping[str, Coordinates], point: Point
) -> dict[str, float] | None:
    """Where a point lies on each axis that it has; None if it is not in the space."""
    values = dict(point)
    found: dict[str, float] = {}
    for name, axis in axes.items():
        if axis.is_in(values):
            at = lies[name].of(values[name]) if name in values else None
            if at is None:
                return None
            found[name] = at
    return found


def _is_ordered(values: list[Setting]) -> bool:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < max(2, len(values)):
        return False
    return numbers in (sorted(numbers), sorted(numbers, reverse=True))


def _quantile(axis: Axis, share: float) -> Setting:
    """The value below which this share of an axis' draws lie."""
    match axis:
        case space.IntUniform():
            return axis.min + min(int(share * axis.size), axis.size - 1)
        case space.QUniform():
            return space.nearest_multiple(axis.min + share * (axis.max - axis.min), axis.q)
        case space.Normal():
            value = NormalDist(axis.mu, axis.sigma).inv_cdf(min(max(share, TAIL), 1 - TAIL))
            if isinstance(axis, space.LogNormal):
                value = math.exp(min(value, space.LARGEST_EXPONENT))
        case space.Uniform():
            value = axis.min + share * (axis.max - axis.min)
        case space.LogUniform():
            power = axis.min + share * (axis.max - axis.min)
            value = math.exp(-power if isinstance(axis, space.InvLogUniform) else power)
        case space.LogUniformValues():
            low, high = math.log(axis.min), math.log(axis.max)
            value = min(max(math.exp(low + share * (high - low)), axis.min), axis.max)
        case _:
            raise TypeError(f"no quantiles of {axis}")
    q = _q(axis)
    return value if q is None else space.nearest_multiple(value, q)


def _q(axis: Axis) -> float | None:
    """What the values of an axis are multiples of."""
    return axis.q if isinstance(axis, space.Quantized | space.QUniform) else None


def _share(axis: Axis, value: float) -> float | None:
    """The share of an axis' draws that lie below a value; None if it can't be drawn."""
    logarithmic = space.LogUniform | space.LogUniformValues | space.LogNormal
    if isinstance(axis, logarithmic):
        if value <= 0:
            return 0.0 if value == 0 and _q(axis) is not None else None
        value = math.log(value)
    match axis:
        case space.Normal():
            return NormalDist(axis.mu, axis.sigma).cdf(value)
        case space.LogUniformValues():
            low, high = math.log(axis.min), math.log(axis.max)
        case space.InvLogUniform():
            low, high = -axis.max, -axis.min
            return _within(axis, 1 - (value - low) / (high - low))
        case space.IntUniform() | space.QUniform() | space.Uniform() | space.LogUniform():
            low, high = axis.min, axis.max
        case _:
            raise TypeError(f"no quantiles of {axis}")
    return _within(axis, (value - low) / (high - low))


def _within(axis: Axis, share: float) -> float:
    """Rounding may have moved a value of an axis a little beyond its ends."""
    slack = 1e-9 if _q(axis) is None else 1.0
    return min(max(share, 0.0), 1.0) if -slack <= share <= 1 + slack else share
