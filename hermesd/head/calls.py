"""How much one person may have open at the head, so that nobody keeps it from the others.

Rule: who is at a limit is refused at once, before anything is done for the call, and what they have
open goes on. Nodes and admins are not counted: without the former nothing runs, and the latter are
who mends things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from hermesd.head.refusals import TooMuch
from hermesd.identity import Identity, Role

# What lasts: journals and logs that are followed, exports, downloads, uploads.
STREAMS_LIMIT = 32
# What is asked and answered: more than one program with all its threads has under way.
CALLS_LIMIT = 32
COUNTED = frozenset({Role.USER, Role.OPERATOR})


class Calls:
    """What each person has open now."""

    def __init__(self) -> None:
        self._open: Counter[tuple[str, bool]] = Counter()

    @contextmanager
    def counted(self, who: Identity | None, lasts: bool) -> Iterator[None]:
        """Count a call for the block; `lasts` for a stream in either direction.

        Raises TooMuch.
        """
        if who is None or who.role not in COUNTED:
            yield
            return
        key = (who.name, lasts)
        if lasts and self._open[key] >= STREAMS_LIMIT:
            raise TooMuch(
                f"{who.name} has {STREAMS_LIMIT} streams open, as many as one user may (events and"
                " logs that are followed, exports, transfers): end some, or wait until some end"
            )
        if not lasts and self._open[key] >= CALLS_LIMIT:
            raise TooMuch(
                f"{who.name} has {CALLS_LIMIT} calls under way, as many as one user may: wait for"
                " their answers before you ask more"
            )
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
