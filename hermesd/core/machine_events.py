"""What operators make of machines, and what machines leave to others, in the past tense.

Part of the events; what they have in common is said there.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermesd.core.model import Place
from hermesd.core.pools import Pool


@dataclass(frozen=True, slots=True)
class PoolsConfigured:
    """The operator's pools are these from now on."""

    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class Yielded:
    """A node leaves itself, or one of its devices, to others for now: it gives back what runs."""

    place: Place
    reason: str


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """A place that was yielded is ours to use again."""

    place: Place
