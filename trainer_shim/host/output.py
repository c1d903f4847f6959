"""What the training process prints, copied from a pipe to a file of bounded size.

The newest output is kept; the file and its predecessor together stay below the limit. While a
restored program repeats its beginning, its output is held back, since it was shown when it was
first printed; it is written only if the restore fails. What the program had printed after its
checkpoint and now prints again is hidden as long as it is the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from typing import Callable

# What a program has printed since a checkpoint, and prints again when it goes on from there.
#
# What is the same as before, byte for byte, is not shown again. From the first line on that
# is another one, or where it is not known what was shown, a line of ours says so and all is
# shown.

DIVIDER = b"--- hermes: set back; what follows may repeat what was printed before ---\n"
_MARKS = 16
_MOST_BYTES = 1 << 20


class RepeatedOutput:
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


_CHUNK = 256 * 1024
_HELD_BACK_BYTES = 64 * 1024
_TAIL_BYTES = 4096
_LINE_LETTERS = 200
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Output:
    """The log at `path`, at most `limit_bytes` with its predecessor `path`.1."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        self.path = path
        self.total_bytes = 0
        self._half = max(limit_bytes // 2, 1)
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        self._held: bytearray | None = None
        self._shown = RepeatedOutput(path)
        self._tail = b""
        self.reader: Callable[[bytes], None] | None = None  # of what the program prints

    def pipe(self) -> tuple[int, int]:
        """A new pipe (our end, the program's end); ours does not block."""
        self._tail = b""
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(ours, False)
        fcntl.fcntl(ours, 1031, 1 << 20)  # F_SETPIPE_SZ: fewer wake-ups for a chatty program
        return ours, theirs

    def hold_back(self) -> None:
        """Keep what comes from here on out of the file, remembering its end."""
        self._held = bytearray()

    def go_on_from(self, checkpoint: str | None) -> None:
        """The program goes on from a checkpoint, or begins; what it repeats is not shown again."""
        self._shown.go_on_from(checkpoint)

    def mark(self, checkpoint: str, fd: int | None) -> None:
        """What the pipe holds now was printed before this checkpoint."""
        if fd is not None:
            self.pump(fd)
        self._shown.mark(checkpoint)

    def let_through(self, show: bool = False) -> None:
        """Write again; with `show` what was held back comes first."""
        held, self._held = self._held, None
        if held and show:
            self._write(bytes(held))

    def pump(self, fd: int) -> bool:
        """Move what the pipe holds now; False once its last writer has gone."""
        for _ in range(16):  # bounded, so that a flood does not keep the host from its other work
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            if self.reader is not None:
                self.reader(data)
            if self._held is None:
                self._write(self._shown.new(data))
            else:
                self._held += data
                del self._held[:-_HELD_BACK_BYTES]
        return True

    def last_line(self) -> str:
        """What the program of the newest pipe printed last that is not blank, without colors."""
        for line in reversed(_ESCAPES.sub("", self._tail.decode(errors="replace")).splitlines()):
            if line.strip():
                return "".join(filter(str.isprintable, line)).strip()[:_LINE_LETTERS]
        return ""

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _write(self, data: bytes) -> None:
        self.total_bytes += len(data)
        data = data[-self._half :]
        if self._size and self._size + len(data) > self._half:
            os.close(self._fd)
            self._shown.drops()
            os.replace(self.path, self.path + ".1")
            self._fd = self._open()
            self._size = 0
        self._size += len(data)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            return  # a full disk costs output, not the training

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)
