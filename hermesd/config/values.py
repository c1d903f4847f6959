"""How single settings are written: sizes, names, addresses, hours, GPUs.

Each function takes what a file or a variable may contain, and says what was expected if that is
invalid.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

# Hours of the week as people write them: `Mon-Fri 19:00-07:00`, `Sat-Sun`, `22:00-06:00`.
#
# Wall-clock time of the machine. A span that ends at or before its beginning goes on into
# the next day, and belongs to the day on which it begins: `Fri 19:00-07:00` ends on Saturday.

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
    it."""

    #: As they were written.
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


NODE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2] not in UNITS:
        raise ValueError("a number of bytes or a size such as 512MiB or 20GiB")
    return int(float(match[1]) * UNITS[match[2]])


def _node_name(name: str) -> str:
    if not NODE_NAME.fullmatch(name):
        raise ValueError("1 to 63 of a-z, 0-9, dot, hyphen and underscore, a letter or digit first")
    return name


def _user_name(name: str) -> str:
    if not name or len(name) > 63 or not name.isprintable():
        raise ValueError("the name of a user, as `hermesctl user ls` has it")
    return name


def _address(address: object) -> str:
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not isinstance(address, str) or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("host:port, for example 127.0.0.1:7411")
    return address


def _target(target: str) -> str:
    return target if target.startswith("unix:") and len(target) > 5 else _address(target)


def _gpu_list(value: object) -> object:
    """A list, or text with commas from the environment."""
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not all(str(each).strip() for each in entries):
        raise ValueError('a list such as [0, 1] or ["GPU-8f2b"]')
    return tuple(str(each).strip() for each in entries)


def _hours(value: object) -> object:
    """A list, or text with commas from the environment."""
    if isinstance(value, Hours | None):
        return value
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not all(isinstance(each, str) for each in entries):
        raise ValueError('a list such as ["Mon-Fri 19:00-07:00", "Sat-Sun"]')
    return parse([entry.strip() for entry in entries])


# Those of the system's services, of people and of containers that share them lie below and above.
FIRST_UID, LAST_UID = 65_536, 2**31 - 1
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_.-]{0,31}", re.IGNORECASE)


def _account(value: str) -> str:
    if not _ACCOUNT.fullmatch(value) or value == "root":
        raise ValueError("the name of an account of the machine that is not root")
    return value


def _run_as(value: str) -> str:
    first, is_range, last = value.partition("-")
    if value in ("self", "users") or (
        is_range
        and first.isascii()
        and first.isdecimal()
        and last.isascii()
        and last.isdecimal()
        and FIRST_UID <= int(first) < int(last) <= LAST_UID
    ):
        return value
    raise ValueError(f'"self", "users" or user numbers of {FIRST_UID} or more, "400000-465535"')


NodeName = Annotated[str, AfterValidator(_node_name)]
UserName = Annotated[str, AfterValidator(_user_name)]
AccountName = Annotated[str, AfterValidator(_account)]
RunAs = Annotated[str, AfterValidator(_run_as)]
Bytes = Annotated[int, BeforeValidator(_size), Field(ge=0, le=2**62)]
Address = Annotated[str, BeforeValidator(_address)]
Target = Annotated[str, AfterValidator(_target)]
GpuList = Annotated[tuple[str, ...], BeforeValidator(_gpu_list)]
ServiceHours = Annotated[Hours | None, BeforeValidator(_hours)]


# How much memory this machine lets us use: what it has, or what our cgroup may hold.

GROUPS = Path("/sys/fs/cgroup")
# By version of cgroups: where our own path is, below what, and in which file.
_LIMITS = (("", "", "memory.max"), ("memory", "memory", "memory.limit_in_bytes"))


def usable_memory(groups: Path = GROUPS, own: str | None = None) -> int:
    """Bytes of memory: of the machine, or the smallest limit of our cgroup and those above it."""
    smallest = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = Path("/proc/self/cgroup").read_text() if own is None else own
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller, folder, name in _LIMITS:
            if controller not in controllers.split(","):
                continue
            root = groups / folder
            below = root / path.strip("/")
            for place in (below, *below.parents):
                if place.is_relative_to(root):
                    smallest = min(smallest, _limit(place / name) or smallest)
    return smallest


def _limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
