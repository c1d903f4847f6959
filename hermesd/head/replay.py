"""From the journal to the state: the snapshot if there is one, then every entry behind it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hermesd.core.invariants import InvariantBroken
from hermesd.core.state import Rejected, State
from hermesd.head import journal_file, snapshot
from hermesd.head.journal import PAGE, Journal
from hermesd.head.statedir import StateRefused
from hermesd.record import Unreadable


@dataclass(slots=True)
class Replayed:
    """The state after the last entry. `fault` says why nothing may be added to it, else empty."""

    state: State
    snapshot_seq: int = 0
    fault: str = ""


async def replay(journal: Journal) -> Replayed:
    """Fold the journal. Raises StateRefused for an entry that cannot be read.

    An entry that can be read but not folded, and a state that contradicts itself, leave the head
    readable: `fault` names the entry.
    """
    with _everything_is_kept():
        return await _replay(journal)


@contextmanager
def _everything_is_kept() -> Iterator[None]:
    """Nothing made here is garbage: looking for some would take longer than all the rest.

    What is there at the end is set apart, so that later collections do not look at it either.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


async def _replay(journal: Journal) -> Replayed:
    replayed = Replayed(State())
    if saved := await journal.load_snapshot(snapshot.shape()):
        replayed = Replayed(snapshot.read(saved.parts), saved.seq)
    seq = replayed.snapshot_seq
    try:
        while lines := await journal.read(seq, PAGE):
            for line in lines:
                if line.seq != seq + 1:
                    raise StateRefused(f"entries {seq + 1} to {line.seq - 1} are missing{ADVICE}")
                try:
                    replayed.state.apply(line.entry, line.at)
                except Rejected as error:
                    replayed.fault = f"entry {line.seq} cannot be folded: {error}"
                    return replayed
                seq = line.seq
        replayed.state.check()
    except Unreadable as error:
        raise StateRefused(f"{error}{ADVICE}") from None
    except InvariantBroken as error:
        replayed.fault = f"after entry {seq}: {error}"
    return replayed


ADVICE = f"; {journal_file.ADVICE}"
