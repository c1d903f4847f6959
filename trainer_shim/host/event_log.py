"""What a host has to tell its node daemon, kept until the daemon has it safe.

Every event has a number, and an acknowledgment covers all numbers up to its own. Reports may be
merged when too many wait, outcomes never are. Outcomes are also written to a file, with fsync,
after the reports of their run that have not been acknowledged, so that both survive the death of
every process. So are reports before a checkpoint, from which the run may go on, followed by the
checkpoint's name. A checkpoint that the file does not name was made when nobody was left to write
its reports.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from typing import Any

from trainer_shim.channel.frames import Message, fits
from trainer_shim.reporting import merge

TERMINAL = frozenset({"suspended", "completed", "failed"})
MAX_REPORTS_WAITING = 1000
# So long may the file be before something is added, and that be without its oldest reports. Of
# runs before the newest nobody asks any more.
_FILE_BYTES = 8 << 20


def boottime() -> float:
    """Seconds since boot, suspend of the machine included: what leases are counted in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class EventLog:
    """The events not yet acknowledged, and the file of outcomes at `path`."""

    def __init__(self, path: str) -> None:
        self.last_seq = 0
        self._waiting: deque[Message] = deque()
        self._reports = 0
        self._written = 0  # the number of the last report in the file
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, kind: str, attempt: int, **fields: Any) -> Message:
        """Number an event, keep it, and return it as it is to be sent."""
        self.last_seq += 1
        event: Message = {
            "kind": kind,
            "seq": self.last_seq,
            "attempt": attempt,
            "at_boottime": boottime(),
            **fields,
        }
        if kind in TERMINAL:
            self._write(attempt, json.dumps(event, allow_nan=False))
        self._waiting.append(event)
        if kind == "reported":
            self._reports += 1
            if self._reports > MAX_REPORTS_WAITING:
                self._merge_oldest()
        return event

    def ack(self, seq: int) -> None:
        """Forget every event up to `seq`."""
        while self._waiting and self._waiting[0]["seq"] <= seq:
            if self._waiting.popleft()["kind"] == "reported":
                self._reports -= 1

    def after(self, seq: int) -> list[Message]:
        """The unacknowledged events later than `seq`, in order."""
        return [event for event in self._waiting if event["seq"] > seq]

    def write_down(self, attempt: int, id: str) -> None:
        """Have the reports of this run outlive the host, for checkpoint `id` goes on after them."""
        self._write(attempt, json.dumps({"kind": "saving", "attempt": attempt, "id": id}))

    def close(self) -> None:
        """Close the file of outcomes."""
        os.close(self._fd)

    def _write(self, attempt: int, *outcome: str) -> None:
        """Add the reports of the run that are not in the file yet, then its outcome, if any."""
        # A full disk must not cost the host: all of it is still here to be sent.
        with contextlib.suppress(OSError):
            size = os.fstat(self._fd).st_size
            if size > _FILE_BYTES:
                os.ftruncate(self._fd, 0)
                size = self._written = 0
            lines, last = self._unwritten(attempt)
            if lines and self._add([*lines, *outcome], size):
                self._written = last
            elif outcome:
                self._add([*outcome], size)

    def _unwritten(self, attempt: int) -> tuple[list[str], int]:
        """The newest reports of the run that are not in the file, and the last one's number."""
        lines: list[str] = []
        left, last = _FILE_BYTES, 0
        for event in reversed(self._waiting):
            if event["seq"] <= self._written or left <= 0:
                break
            if event["kind"] == "reported" and event["attempt"] == attempt:
                lines.append(json.dumps(event, allow_nan=False))
                left -= len(lines[-1])
                last = last or event["seq"]
        return lines[::-1], last

    def _add(self, lines: list[str], size: int) -> bool:
        """Append to the file of this size; whether there was room for all of it."""
        # The newline in front ends a line that the machine's end has cut short.
        text = "\n".join(["", *lines, ""]).encode()
        with contextlib.suppress(OSError):
            if os.write(self._fd, text) == len(text):
                os.fsync(self._fd)
                return True
        os.ftruncate(self._fd, size)
        return False

    def _merge_oldest(self) -> None:
        # Halve the reports in one pass, so that the cost of merging is spread over the next
        # 500; a pair is merged only when nothing else stands between and one run made both.
        merged: deque[Message] = deque()
        fresh = False  # whether the last of `merged` was not made by merging just now
        for event in self._waiting:
            previous = merged[-1] if merged else None
            both = None
            if (
                fresh
                and previous is not None
                and event["kind"] == previous["kind"] == "reported"
                and previous["attempt"] == event["attempt"]
            ):
                both = merge(previous, event)
            fresh = both is None or not fits(both)
            if fresh:
                merged.append(event)
            elif both is not None:
                merged[-1] = both
        self._waiting = merged
        self._reports = sum(event["kind"] == "reported" for event in self._waiting)
