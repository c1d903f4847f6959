"""Hours of the week as people write them: `Mon-Fri 19:00-07:00`, `Sat-Sun`, `22:00-06:00`.

Rule: wall-clock time of the machine. A span that ends at or before its beginning goes on into the
next day, and belongs to the day on which it begins: `Fri 19:00-07:00` ends on Saturday.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY, WEEK = 24 * 60, 7 * 24 * 60
_ENTRY = re.compile(
    r"(?:(?P<first>[A-Za-z]{3})(?:-(?P<last>[A-Za-z]{3}))?)?\s*"
    r"(?:(?P<begin>\d{1,2}:\d\d)-(?P<end>\d{1,2}:\d\d))?"
)


class BadHours(ValueError):
    """Words that say no hours; the text says what would do."""


@dataclass(frozen=True, slots=True)
class Hours:
    """Spans of minutes of the week, from Monday 0:00; those that reach beyond Sunday may exceed
    it. `words` is what was written."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return ", ".join(self.words)

    def hold(self, local: datetime) -> bool:
        """Whether the moment, in local time, is within."""
        return self._holds(_minute(local))

    def again(self, local: datetime) -> str:
        """When they begin next: `Mon 19:00`."""
        now = _minute(local)
        ahead = (minute for minute in range(now + 1, now + WEEK + 1) if self._holds(minute % WEEK))
        begin = local + timedelta(minutes=next(ahead) - now)
        return f"{DAYS[begin.weekday()]} {begin:%H:%M}"

    def _holds(self, minute: int) -> bool:
        return any(begin <= at < end for at in (minute, minute + WEEK) for begin, end in self.spans)


def parse(entries: Sequence[str]) -> Hours:
    """The hours that the entries say together. Raises BadHours, naming the entry."""
    spans = [span for entry in entries for span in _spans(entry)]
    if not spans:
        raise BadHours("at least one entry such as Mon-Fri 19:00-07:00; without `hours`, always")
    return Hours(tuple(entries), tuple(spans))


def _spans(entry: str) -> list[tuple[int, int]]:
    found = _ENTRY.fullmatch(entry.strip())
    if found is None or not entry.strip():
        raise BadHours(
            f"days, hours or both, such as Mon-Fri 19:00-07:00 or Sat-Sun, not {entry!r}"
        )
    first = _day(found["first"] or "Mon", entry)
    last = _day(found["last"] or found["first"] or "Sun", entry)
    begin = _clock(found["begin"] or "0:00", entry)
    end = _clock(found["end"] or "24:00", entry)
    length = end - begin if end > begin else end - begin + DAY
    days = [(first + more) % 7 for more in range((last - first) % 7 + 1)]
    return [(day * DAY + begin, day * DAY + begin + length) for day in days]


def _day(word: str, entry: str) -> int:
    if word.title() not in DAYS:
        raise BadHours(f"days out of {', '.join(DAYS)}, not {word} in {entry!r}")
    return DAYS.index(word.title())


def _clock(text: str, entry: str) -> int:
    hour, minute = map(int, text.split(":"))
    if minute > 59 or hour * 60 + minute > DAY:
        raise BadHours(f"a time from 0:00 to 24:00, not {text} in {entry!r}")
    return hour * 60 + minute


def _minute(local: datetime) -> int:
    return local.weekday() * DAY + local.hour * 60 + local.minute
