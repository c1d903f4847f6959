"""How long nodes may go on unheard, also by what a head before this one allowed them.

Rule: only time that this head has lived through counts against a node. The wall clock may have
been set while no head ran, and what was granted before a shorter `lease_seconds` still holds.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from hermesd.core.scheduler import LeaseTerms
from hermesd.enrolment import write_private
from hermesd.head.statedir import expecting, seconds

# Parts of a lease: to end what runs when it is out, with a last checkpoint; for the two clocks.
GRACE, MARGIN = 0.2, 0.1


def terms(lease_seconds: float) -> LeaseTerms:
    """What the settings come to."""
    return LeaseTerms(lease_seconds, GRACE * lease_seconds, MARGIN * lease_seconds)


@dataclass(frozen=True, slots=True)
class Leasing:
    """The longest silence that may have been allowed to a node, in a file of the state directory.

    `known` says whether there are nodes at all; who has none has allowed nothing.
    """

    path: Path
    lease: LeaseTerms
    known: bool

    @property
    def patience_seconds(self) -> float:
        """For so long after this head's start no node counts as lost."""
        if not self.known:
            return 0.0
        if self.path.exists():
            with expecting(
                self.path,
                "the seconds for which a node may go on unheard",
                f"write the longest of all that was ever allowed, {1 + GRACE + MARGIN:.1f} times"
                " lease_seconds",
            ):
                before = seconds(self.path)
        else:
            before = LeaseTerms().silence_seconds  # heads wrote no such file, and had no setting
        return max(before, self.lease.silence_seconds)

    async def keep(self) -> None:
        """Have the file hold for the next head: this one's terms once those before are over."""
        longest = max(self.patience_seconds, self.lease.silence_seconds)
        self._write(longest)
        if longest > self.lease.silence_seconds:
            await asyncio.sleep(longest)
            self._write(self.lease.silence_seconds)

    def _write(self, seconds: float) -> None:
        write_private(self.path, str(seconds).encode())
