"""What the training process prints: pumped from a pipe into a file of bounded size.

Rule: the newest output is kept, the file and its one predecessor together stay below the
limit. While a restored program repeats its beginning its output is held back: it was shown
when it was printed first; it is written only if the restore fails. What it printed after its
checkpoint is looked after by `shown`.
"""

from __future__ import annotations

import fcntl
import os
import re

from trainer_shim.shown import Shown

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
        self._shown = Shown(path)
        self._tail = b""

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
            if self._held is None:
                self._write(self._shown.new(data))
            else:
                self._held += data
                del self._held[:-_HELD_BACK_BYTES]
        return True

    def last_line(self) -> str:
        """What the program of the newest pipe printed last that is not blank, without colours."""
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
