"""The page of memory that a host and its training process share.

Each word has one writer, except for a mark and the nearest step, which follows from it. The host
writes `mail` (how many frames it has sent, so that one load tells the agent whether there is
something to read) and `limit`, the latter only while the program is held. The agent writes `step`,
`looping` and `halt`. The host sets `mark` and the agent clears it. A mark that is set while the
previous one is being cleared may be lost; the report then comes when it would have come anyway.
Words are naturally aligned, so a load or store is never torn.
"""

from __future__ import annotations

import contextlib
import mmap
import os

NO_LIMIT = 2**64 - 1
PAGE_NAME = "hermes-page"
_SIZE = 4096
_MAIL, _LOOPING = 0, 1  # 32-bit words, at bytes 0 and 4
# 64-bit words, from byte 8 on; the agent looks at `_NEAREST` alone, the lesser of the two after it.
_STEP, _NEAREST, _LIMIT, _MARK, _HALT = 1, 2, 3, 4, 5


class ControlPage:
    """A view of the shared page behind the file descriptor `fd`."""

    def __init__(self, fd: int, path: str | None = None) -> None:
        self.fd = fd
        self._path = path
        self._map = mmap.mmap(fd, _SIZE)
        self.words32 = memoryview(self._map).cast("I")
        self.words64 = memoryview(self._map).cast("Q")

    @classmethod
    def create(cls, folder: str | None = None, rank: int = 0) -> ControlPage:
        """A new page; `fd` is closed on exec unless made inheritable.

        With `folder`, which lies in memory, it is a file there: so it is found again by a program
        that is brought back from an image, of which each process has its own.
        """
        name = f"{PAGE_NAME}-{rank}" if rank else PAGE_NAME
        path = None if folder is None else os.path.join(folder, name)
        if path is None:
            fd = os.memfd_create(PAGE_NAME)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(fd, _SIZE)
        page = cls(fd, path)
        page.words64[_MARK] = NO_LIMIT
        page.limit = page.halt = NO_LIMIT
        return page

    def leave(self) -> None:
        """Let go of the mapping and the descriptor; whoever else has it goes on with it."""
        self.words32.release()
        self.words64.release()
        self._map.close()
        os.close(self.fd)

    def close(self) -> None:
        """Let go of it, which nobody is to find again."""
        self.leave()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    @property
    def state(self) -> list[int]:
        """All that it says, for an image of the program."""
        return [self.mail, int(self.looping), self.step]

    @state.setter
    def state(self, words: list[int]) -> None:
        self.mail, looping, self.step = words
        self.looping = bool(looping)

    @property
    def mail(self) -> int:
        """Frames the host has sent to the agent so far."""
        return self.words32[_MAIL]

    @mail.setter
    def mail(self, count: int) -> None:
        self.words32[_MAIL] = count

    @property
    def looping(self) -> bool:
        """Whether the program is inside a loop whose boundaries the agent sees."""
        return bool(self.words32[_LOOPING])

    @looping.setter
    def looping(self, inside: bool) -> None:
        self.words32[_LOOPING] = inside

    @property
    def step(self) -> int:
        """Training iterations done."""
        return self.words64[_STEP]

    @step.setter
    def step(self, step: int) -> None:
        self.words64[_STEP] = step

    @property
    def limit(self) -> int:
        """The step at whose boundary the agent holds by itself; NO_LIMIT for none."""
        return self.words64[_LIMIT]

    @limit.setter
    def limit(self, step: int) -> None:
        self.words64[_LIMIT] = step
        self._find_nearest()

    @property
    def mark(self) -> int:
        """The step at whose boundary the agent reports and goes on; NO_LIMIT for none."""
        return self.words64[_MARK]

    @mark.setter
    def mark(self, step: int) -> None:
        self.words64[_MARK] = step
        self._find_nearest()

    @property
    def halt(self) -> int:
        """The step from which on the agent holds, as the host has told it; NO_LIMIT for none."""
        return self.words64[_HALT]

    @halt.setter
    def halt(self, step: int) -> None:
        self.words64[_HALT] = step

    def _find_nearest(self) -> None:
        self.words64[_NEAREST] = min(self.words64[_LIMIT], self.words64[_MARK])
