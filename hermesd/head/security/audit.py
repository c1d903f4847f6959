"""Who asked for what, from where, and with what result: on disk before the caller gets the answer.

Changes are recorded one by one. A refusal is recorded when it first happens; the same refusal
within a minute is only counted, so nobody can fill the disk by being refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import Message

from hermesd.core.model import Time
from hermesd.head.journal.schema import AuditEntry
from hermesd.head.journal.store import Journal, JournalBroken
from hermesd.logs import get_logger
from hermesd.security.identity import Identity

OK = "OK"
MERGE_SECONDS = 60.0
# So many refusals are told apart; more than these are counted by method alone. Of strangers, who
# may come from any number of addresses, fewer: each is an entry, and the oldest go for it.
KINDS_LIMIT, STRANGERS_LIMIT = 1_000, 100
TEXT_LIMIT, NAMES_LIMIT = 300, 10
# Of a request: what says on what it acts. Everything else, secrets among it, is left out.
_TOLD = {
    "study", "trial", "trials", "node", "device", "for_good", "name", "role", "uses",
    "code_sha256", "selection", "spec",
}  # fmt: skip

log = get_logger()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call, as far as it is known before it ends."""

    who: Identity | None
    #: The credential that it was let in by.
    shown: str
    peer: str
    method: str
    subject: str = ""


class Audit:
    """Writes to `journal`, or only to the log where that is None; `now` is the head's clock."""

    def __init__(self, journal: Journal | None, now: Callable[[], Time]) -> None:
        self._journal = journal
        self._now = now
        # The refusals of this minute, and how often each came again.
        self._again: dict[Attempt, tuple[AuditEntry, int]] = {}
        # How many of these are of strangers, and of others.
        self._kinds: Counter[bool] = Counter()
        self._late: list[AuditEntry] = []

    async def note(self, attempt: Attempt, result: str, reason: str = "") -> None:
        """On the disk when this returns, unless it is a refusal that is only counted.

        Raises JournalBroken.
        """
        entry = self._entry(attempt, result, reason)
        if result != OK:
            key, stranger = _kind(attempt, result), attempt.who is None
            most = STRANGERS_LIMIT if stranger else KINDS_LIMIT
            if key not in self._again and self._kinds[stranger] >= most:
                key = Attempt(None, "", "", attempt.method, result)
            if key in self._again:
                first, times = self._again[key]
                self._again[key] = first, times + 1
                return
            self._again[key] = entry, 0
            self._kinds[stranger] += 1
            log.warning(
                "refused", method=entry.method, who=f"{entry.role} {entry.name}".strip(),
                peer=entry.peer, result=result, reason=entry.reason,
            )  # fmt: skip
        await self._write([entry])

    def note_late(self, attempt: Attempt, result: str) -> None:
        """The same for who can't wait for the disk: with what is written next, or in a minute."""
        self._late.append(self._entry(attempt, result, ""))

    async def run(self) -> None:
        """Write what was only counted, every minute and at the end; what is too old goes."""
        try:
            while True:
                await asyncio.sleep(MERGE_SECONDS)
                await self._write(list(self._counted()))
                if self._journal is not None:
                    await self._journal.trim_audit()
        finally:
            with suppress(JournalBroken):  # the head ends by that
                await self._write(list(self._counted()))

    def _counted(self) -> Iterator[AuditEntry]:
        again, self._again = self._again, {}
        self._kinds.clear()
        for first, times in again.values():
            if times:
                yield replace(first, at_unix_seconds=self._now(), times=times)

    async def _write(self, entries: list[AuditEntry]) -> None:
        late, self._late = self._late, []
        if self._journal is not None and (late or entries):
            await self._journal.append_audit([*late, *entries])

    def _entry(self, attempt: Attempt, result: str, reason: str) -> AuditEntry:
        who = attempt.who
        return AuditEntry(
            number=0,
            at_unix_seconds=self._now(),
            role=str(who.role) if who is not None else "",
            name=who.name if who is not None else "",
            shown=attempt.shown,
            peer=attempt.peer,
            method=attempt.method.rpartition("/")[2],
            subject=attempt.subject[:TEXT_LIMIT],
            result=result,
            reason=reason[:TEXT_LIMIT],
        )


def _kind(attempt: Attempt, result: str) -> Attempt:
    """What makes two refusals the same: who, from which machine, what; not on what."""
    return replace(attempt, peer=attempt.peer.rpartition(":")[0], subject=result)


def subject_of(request: Any) -> str:
    """On what a request acts, in words: its fields that name something."""
    return ", ".join(_told(request)) if isinstance(request, Message) else ""


def _told(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.name not in _TOLD:
            continue
        if isinstance(value, Message):
            yield from _told(value)
        elif field.is_repeated:
            more = f" and {len(value) - NAMES_LIMIT} more" if len(value) > NAMES_LIMIT else ""
            yield f"{field.name} {' '.join(map(str, value[:NAMES_LIMIT]))}{more}"
        else:
            yield f"{field.name} {_word(field, value)}"


def _word(field: Any, value: Any) -> str:
    if field.enum_type is None:
        return str(value)
    name: str = field.enum_type.values_by_number[value].name
    return name.rpartition("_")[2].lower()
