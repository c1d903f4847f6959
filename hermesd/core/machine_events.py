"""What operators make of machines and of who shares them, and what machines leave to others, in
the past tense.

Part of the events; what they have in common is said there.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermesd.core.model import NodeId, Place, UserId
from hermesd.core.pools import Pool
from hermesd.core.sharing import Terms


@dataclass(frozen=True, slots=True)
class PoolsConfigured:
    """The operator's pools are these from now on."""

    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class Yielded:
    """A node leaves itself, or one of its devices, to others for now: it gives back what runs.

    One that is `parting` goes for good, with its files.
    """

    place: Place
    reason: str
    parting: bool = False


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """A place that was yielded is ours to use again."""

    place: Place


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A person wants a node empty: nothing new for it, and it gives up what it has in time."""

    node: NodeId
    request_id: str


@dataclass(frozen=True, slots=True)
class NodeUndrained:
    """A node that was to be emptied may be used again."""

    node: NodeId
    request_id: str


@dataclass(frozen=True, slots=True)
class Forgiven:
    """A person trusts a device again, or a node with all its devices; their strikes are gone."""

    place: Place
    request_id: str


@dataclass(frozen=True, slots=True)
class TermsSet:
    """How users share was decided anew: who is not named has the usual terms."""

    half_life_seconds: float
    terms: tuple[tuple[UserId, Terms], ...]
