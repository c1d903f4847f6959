"""What a program has printed since a checkpoint, and prints again when it goes on from there.

Rule: what is the same as before, byte for byte, is not shown again. From the first line on that is
another one, or where it is not known what was shown, a line of ours says so and all is shown.
"""

from __future__ import annotations

import contextlib
import json
import os

DIVIDER = b"--- hermes: set back; what follows may repeat what was printed before ---\n"
_MARKS = 16
_MOST_BYTES = 1 << 20


class Shown:
    """The places in the log at `path` that checkpoints were taken at, and what is repeated.

    Places are counted in bytes since the trial's first, of which the log holds the newest.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = path + ".marks"
        self._dropped = 0
        self._marks: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(self._file, encoding="utf-8") as file:
                said = json.load(file)
            self._dropped, self._marks = int(said["dropped"]), dict(said["marks"])
        self._again = b""  # what is still to be repeated
        self._line = b""  # its beginning of a line
        self._is_known = True  # whether that is all that was shown

    def drops(self) -> None:
        """The older half of the log goes."""
        self._dropped += _size(self._path + ".1")
        if self._marks:
            self._write()

    def mark(self, checkpoint: str) -> None:
        """All that was printed before this checkpoint is in the log."""
        self._marks.pop(checkpoint, None)
        self._marks[checkpoint] = self._dropped + _size(self._path + ".1") + _size(self._path)
        for name in list(self._marks)[:-_MARKS]:
            del self._marks[name]
        self._write()

    def go_on_from(self, checkpoint: str | None) -> None:
        """The program goes on from there, or from its beginning, and repeats what came after."""
        end = self._dropped + _size(self._path + ".1") + _size(self._path)
        place = self._marks.get(checkpoint, end) if checkpoint else 0
        self._again, self._line = b"", b""
        self._is_known = place >= self._dropped and end - place <= _MOST_BYTES
        if not self._is_known or place >= end:
            return
        log = b""
        for path in (self._path + ".1", self._path):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                log += file.read()
        self._again = log[place - self._dropped :]

    def new(self, data: bytes) -> bytes:
        """What of `data`, which comes next, is to be shown."""
        if not self._is_known:
            self._is_known = True
            return DIVIDER + data
        if not self._again:
            return data
        pairs = enumerate(zip(data, self._again))
        shorter = min(len(data), len(self._again))
        same = next((place for place, (one, other) in pairs if one != other), shorter)
        repeated, data = data[:same], data[same:]
        self._again = self._again[same:]
        self._line = (self._line + repeated).rpartition(b"\n")[2]
        if not data or not self._again:
            return data
        self._again = b""
        return DIVIDER + self._line + data

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # without it lines are shown twice
            with open(self._file + ".new", "w", encoding="utf-8") as file:
                json.dump({"dropped": self._dropped, "marks": self._marks}, file)
            os.replace(self._file + ".new", self._file)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
