"""Trials in order, cheap to change one by one and cheap to fill at once.

A sorted list: a few changes are made by bisection, many by sorting anew, and a reader may begin
anywhere in the order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from hermesd.core.model import TrialId
from hermesd.core.policy import Score

# Up to so many changes are made one by one.
FEW = 32


class Entry(NamedTuple):
    """A candidate in its policy's order; the smallest `key` deserves a device most."""

    key: Score
    number: int
    trial: TrialId


_KEY, _NUMBER = map(itemgetter, map(Entry._fields.index, ("key", "number")))

# A place between entries: one of them, or a score that it begins with.
Bound: TypeAlias = Entry | tuple[Score] | tuple[()]


class Line:
    """Entries, the smallest first; each trial has one at most."""

    def __init__(self) -> None:
        self._sorted: list[Entry] = []
        self._known: dict[TrialId, Entry] = {}
        self._added: dict[TrialId, Entry] = {}
        self._dropped: list[Entry] = []

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, place: int) -> Entry:
        """The entry at this place of the order."""
        self._settle()
        return self._sorted[place]

    def rank(self, bound: Bound) -> int:
        """How many entries are before a bound."""
        self._settle()
        return bisect_left(self._sorted, bound)

    def get(self, trial: TrialId) -> Entry | None:
        """A trial's entry; None if it is not in."""
        return self._known.get(trial)

    def place(self, trial: TrialId) -> Score | None:
        """What the order goes by, of one trial; None if it is not in."""
        entry = self._known.get(trial)
        return (*entry.key, entry.number) if entry else None

    def trials(self) -> Iterator[TrialId]:
        """All of them, in order."""
        return (entry.trial for entry in self.after())

    def put(self, entry: Entry) -> None:
        """Add an entry, in place of the trial's present one."""
        trial = entry.trial
        known = self._known.get(trial)
        if known is not None:
            if known == entry:
                return
            self.drop(trial)
        self._known[trial] = self._added[trial] = entry

    def drop(self, trial: TrialId) -> None:
        """Take a trial out, if it is in."""
        entry = self._known.pop(trial, None)
        if entry is not None and self._added.pop(trial, None) is None:
            self._dropped.append(entry)

    def after(self, key: Score | None = None) -> Iterator[Entry]:
        """The entries from `key` on, in order; all without one."""
        return self.between(() if key is None else (key,))

    def between(self, first: Bound = (), end: Bound | None = None) -> Iterator[Entry]:
        """The entries from `first` on and before `end`, in order; all without them."""
        self._settle()
        place = bisect_left(self._sorted, first)
        stop = len(self._sorted) if end is None else bisect_left(self._sorted, end)
        while place < stop:
            yield self._sorted[place]
            place += 1

    def _settle(self) -> None:
        """Bring the order up to date."""
        if len(self._added) + len(self._dropped) > FEW:
            # As entries compare, but of two plain keys, which sort three times as fast.
            self._sorted = sorted(self._known.values(), key=_NUMBER)
            self._sorted.sort(key=_KEY)
        else:
            for entry in self._dropped:
                del self._sorted[bisect_left(self._sorted, entry)]
            for entry in self._added.values():
                insort(self._sorted, entry)
        self._added.clear()
        self._dropped.clear()
