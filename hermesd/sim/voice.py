"""What a simulated host says, and what it means to do later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hermesd.core.model import Time
from hermesd.core.node_messages import HostFact
from hermesd.sim.agenda import Agenda, Deed

Heard: TypeAlias = Callable[[int, HostFact], None]


class Voice:
    """Facts, numbered, and kept until they are acknowledged."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._seq = 0
        self._log: list[tuple[int, HostFact]] = []
        self._heard: Heard | None = None
        self._heard_since: Time = 0.0

    def attach(self, heard: Heard | None, after: int = 0) -> None:
        """Tell everything behind `after` that was not acknowledged, and all that follows."""
        self._heard, self._heard_since = heard, self._agenda.now
        for seq, fact in list(self._log):
            if heard is not None and seq > after:
                heard(seq, fact)

    def say(self, fact: HostFact) -> None:
        """Number a fact and tell it, if somebody listens."""
        self._seq += 1
        self._log.append((self._seq, fact))
        if self._heard is not None:
            self._heard(self._seq, fact)

    def ack(self, seq: int) -> None:
        """Facts up to this one are safe at the head."""
        self._log = [entry for entry in self._log if entry[0] > seq]

    @property
    def heard_seconds(self) -> float:
        """For how long somebody has listened; 0 if nobody does."""
        return self._agenda.now - self._heard_since if self._heard else 0.0


class Turns:
    """Deeds to come of a program that may be interrupted, or end, before."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._turn = self._process = 0
        self._over = False

    def next(self, process: bool = False) -> None:
        """The program is interrupted, or (`process`) its process is no more."""
        self._turn += 1
        self._process += process

    def end(self) -> None:
        """Nothing is done any more."""
        self._over = True

    def after(self, seconds: float, deed: Deed, process: bool = False) -> None:
        """Later, unless the program was interrupted since (`process`: unless it ended)."""
        turn, ended = self._turn, self._process

        def if_still() -> None:
            still = self._process == ended if process else self._turn == turn
            if still and not self._over:
                deed()

        self._agenda.after(seconds, if_still)
