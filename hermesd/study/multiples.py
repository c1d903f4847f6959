"""Multiples of a step, as the values of a quantized axis.

Rule: a multiple is what a person would write: `0.3`, not 0.30000000000000004, and `30`, not 30.0.
"""

from __future__ import annotations

from decimal import Decimal

from hermesd.core.model import Scalar

# Whole numbers have 64 bits.
MULTIPLES_LIMIT = 2**63


def multiple(k: int, q: float) -> Scalar:
    """k times q without the dust of binary fractions; a whole number if q is one and it fits."""
    if q.is_integer() and abs(k * int(q)) < MULTIPLES_LIMIT:
        return k * int(q)
    return float(k * Decimal(repr(q)))


def nearest_multiple(value: float, q: float) -> Scalar:
    """The multiple of q that is nearest to `value`."""
    count = value / q
    # So many of them lie closer together than floating-point numbers: `value` is one.
    return value if abs(count) >= MULTIPLES_LIMIT else multiple(round(count), q)
