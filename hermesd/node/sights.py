"""What there is of the paths that studies require: looked at when the head asks, and ever after.

Rule: a path that hangs (a share of a machine that is gone) delays nothing but the word on itself:
each is looked at in a thread of its own, which nobody waits for at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterable

from hermesd.core.file_events import Looked
from hermesd.core.model import NodeId

LOOK_SECONDS = 15.0
HANGS_SECONDS = 5.0


class Sights:
    """The paths that are watched. `tell` says something to the head."""

    def __init__(self, node: NodeId, tell: Callable[[Looked], None]) -> None:
        self._node = node
        self._tell = tell
        self._said: dict[str, str | None] = {}
        self._looking: dict[str, asyncio.Future[str]] = {}
        self._asked = asyncio.Event()

    def watch(self, paths: Iterable[str]) -> None:
        """Look at these as well; what there is of them is said even if it was before."""
        self._said.update(dict.fromkeys(paths))
        self._asked.set()

    def forget(self) -> None:
        """Whoever asked is there no more; what is still wanted will be asked for again."""
        self._said.clear()

    async def run(self) -> None:
        """Look again and again, and say what has changed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._asked.wait()
            self._asked.clear()
            if self._said:
                await self._look()

    async def _look(self) -> None:
        paths = list(self._said)
        reasons = await asyncio.gather(*map(self._reason, paths))
        fresh = [
            (path, reason)
            for path, reason in zip(paths, reasons, strict=True)
            if self._said.get(path, reason) != reason
        ]
        if fresh:
            self._said.update(fresh)
            self._tell(Looked(self._node, tuple(fresh)))

    async def _reason(self, path: str) -> str:
        looking = self._looking.get(path)
        if looking is None:
            looking = self._looking[path] = asyncio.get_running_loop().create_future()
            words = (path, looking, asyncio.get_running_loop())
            try:
                threading.Thread(target=_look_at, args=words, daemon=True).start()
            except RuntimeError as error:  # what runs here has taken all that there may be
                del self._looking[path]
                return f"it cannot be looked at now: {error}"
        await asyncio.wait({looking}, timeout=HANGS_SECONDS)
        if not looking.done():
            return f"it does not answer within {HANGS_SECONDS:g} s"
        del self._looking[path]
        return looking.result()


def _look_at(path: str, answer: asyncio.Future[str], loop: asyncio.AbstractEventLoop) -> None:
    reason = reason_against(path)
    with contextlib.suppress(RuntimeError):  # the daemon has ended meanwhile
        loop.call_soon_threadsafe(answer.set_result, reason)


def reason_against(path: str) -> str:
    """Why trials cannot use what is at this path; empty if they can. Blocks."""
    try:
        mode = os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK
        os.stat(path)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return "" if os.access(path, mode) else "it may not be read by the user of the node daemon"
