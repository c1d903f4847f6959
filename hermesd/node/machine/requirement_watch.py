"""Watches whatever studies require of a node: paths and environments."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from hermesd.core.model import NodeId
from hermesd.core.node.actions import Action, WatchRequirements
from hermesd.node.machine.conda import Condas
from hermesd.node.machine.venvs import Venvs
from hermesd.node.machine.watched_names import Sight, WatchedNames
from hermesd.node.outbox import Outbox

# What there is of the paths that studies require: looked at when the head asks, and ever
# after.
#
# A path that hangs (a share of a machine that is gone) delays nothing but the word on
# itself: each is looked at in a thread of its own, which nobody waits for at the end.

HANGS_SECONDS = 5.0


class PathWatch:
    """The paths that are watched; the head is told of them by the outbox."""

    def __init__(self, node: NodeId, outbox: Outbox) -> None:
        self.watched = WatchedNames(node, outbox)
        self._looking: dict[str, asyncio.Future[str]] = {}

    async def run(self) -> None:
        """Look again and again, and say what has changed."""
        await self.watched.run(self._look)

    async def _look(self, paths: Sequence[str]) -> AsyncIterator[list[Sight]]:
        reasons = await asyncio.gather(*map(self._reason, paths))
        yield list(zip(paths, reasons, strict=True))

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


class RequirementWatch:
    """What is looked for. `venvs` is where those are made; the head is told by the outbox."""

    def __init__(
        self,
        node: NodeId,
        venvs: Path,
        environ: Mapping[str, str],
        outbox: Outbox,
        are_shared: bool = True,
    ) -> None:
        self.venvs = Venvs(node, venvs, environ, outbox, are_shared)
        self.condas = Condas(node, environ, outbox)
        self._sights = PathWatch(node, outbox)

    def carry_out(self, action: Action) -> None:
        """Look for what an action of the machine names as well, and say of each what there is."""
        if isinstance(action, WatchRequirements):
            self._watch(action)

    def _watch(self, wanted: WatchRequirements) -> None:
        self._sights.watched.watch(wanted.paths, briefly=wanted.briefly)
        self.venvs.want(wanted.venvs)
        self.condas.want(wanted.condas, briefly=wanted.briefly)

    def forget(self) -> None:
        """Whoever asked is there no more; what is still wanted will be asked for again."""
        self._sights.watched.forget()
        self.venvs.forget()
        self.condas.watched.forget()

    async def run(self) -> None:
        """Look again and again, and say what has changed."""
        async with asyncio.TaskGroup() as tasks:
            for one in (self._sights, self.venvs, self.condas):
                tasks.create_task(one.run())
