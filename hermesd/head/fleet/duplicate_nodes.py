"""Finds two daemons that answer as one node: a copied machine, or a second state directory.

For the head, whatever a Hello does not name is over. So a daemon that is neither the one that the
node was, nor its successor, is refused while the known one is heard, or may still run trials
unheard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from hermesd.core.events import NodeJoined
from hermesd.core.model import Node, NodeId
from hermesd.core.state import State
from hermesd.head.clock import boottime
from hermesd.head.fleet.session import NodeSession
from hermesd.head.refusals import Doubled, NotNow
from hermesd.logs import get_logger

# A daemon that ended is not heard any more, whatever was still on its way from it.
PROOF_SECONDS = 10.0
# For so long after its last try people are told of one.
SHOWN_SECONDS = 600.0
_KEPT = 16
# Between the last that was heard of a machine and the next time that it is up.
_BOOT_SECONDS = 2.0

log = get_logger()


@dataclass(slots=True)
class _Rival:
    """A daemon that was refused: since when, against whom, and whether both are known to be."""

    since: float
    last: float
    against: bytes
    words: str = ""


class DuplicateNodes:
    """Who was refused, by the node as which they answer and the boot and directory they have."""

    def __init__(self) -> None:
        self._known: dict[NodeId, dict[tuple[str, str], _Rival]] = {}

    def refuse(self, session: NodeSession, other: NodeSession) -> NoReturn:
        """Refuse a stream while another one of its node is heard. Raises NotNow; Doubled once it is
        clear that the other is not one that has just ended."""
        node, now = session.node, boottime()
        known = {
            where: rival
            for where, rival in self._known.get(node, {}).items()
            if now - rival.last < SHOWN_SECONDS
        }
        rival = known.pop(session.where, None)
        if rival is None or rival.against != other.transfer_key:
            rival = _Rival(now, now, other.transfer_key)
        rival.last = now
        known[session.where] = rival
        self._known[node] = dict(list(known.items())[-_KEPT:])
        if other.heard - rival.since < PROOF_SECONDS:
            raise NotNow(
                f"node {node} is attached already, from {other.peer}; this is {session.peer}: give"
                " one of them another name"
            )
        if not rival.words:
            log.error(
                "two daemons answer as one node", node=node, served=other.peer, refused=session.peer
            )
        rival.words = (
            f"{_what(session, other)} answers as this node, from {session.peer}, and is refused:"
            " give it another name, or end it"
        )
        raise Doubled(
            f"node {node} is served by another daemon, from {other.peer}, which is heard all the"
            f" while; this is {_what(session, other)}, from {session.peer}: give it a name of its"
            " own (`name` in [node], and a token for that), or end the other first"
        )

    def of(self, node: NodeId) -> list[str]:
        """What is to be said of those that answer as this node, too."""
        now, known = boottime(), self._known.get(node, {})
        return [
            rival.words
            for rival in known.values()
            if rival.words and now - rival.last < SHOWN_SECONDS
        ]


def see_who_was_there(
    state: State, joined: NodeJoined, up_seconds: float, unheard_seconds: float | None
) -> None:
    """See that who says Hello as a node that is not heard is not somebody else, while what runs on
    that node may go on: nobody does when it counts as lost.

    `up_seconds` is how long its machine is up, `unheard_seconds` how long the node was not heard,
    if it ever was. Raises NotNow.
    """
    known = state.nodes.get(joined.node)
    if known is None or known.lost:
        return
    who = _somebody_else(known, joined, up_seconds, unheard_seconds)
    if who and (count := len(state.trials_on({joined.node}))):
        trials = "trial" if count == 1 else "trials"
        raise NotNow(
            f"{who} of the name {joined.node} has {count} {trials}, and is only silent: give this"
            " one another name, or wait until that one counts as lost"
            f" (`hermesctl node lost {joined.node}` if it is off)"
        )


def _somebody_else(
    known: Node, joined: NodeJoined, up_seconds: float, unheard_seconds: float | None
) -> str:
    """What it was that the node was, if this is something else; "" if it may be the same."""
    if known.machine and joined.machine and not set(known.machine) & set(joined.machine):
        return "another machine"
    if joined.boot_id != known.boot_id:
        # A machine that was started anew was down when it was not heard; a copy of it was up.
        was_up = unheard_seconds is not None and up_seconds > unheard_seconds + _BOOT_SECONDS
        return "another machine" if was_up else ""
    elsewhere = _path_mark(known.disk) and _path_mark(joined.disk)
    moved = elsewhere and _path_mark(known.disk) != _path_mark(joined.disk)
    return "another state directory of this machine" if moved else ""


def _path_mark(disk: str) -> str:
    """Of where a state directory was made; empty if its name does not say."""
    mark, dot, _ = disk.partition(".")
    return mark if dot else ""


def _what(session: NodeSession, other: NodeSession) -> str:
    (boot, disk), (others_boot, others_disk) = session.where, other.where
    if boot != others_boot:
        return "another machine"
    return "another state directory of its machine" if disk != others_disk else "a copy of it"
