"""Whatever studies need of a node, looked for together: paths, environments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from hermesd.core.file_events import Looked
from hermesd.core.model import NodeId
from hermesd.core.node_actions import Watch
from hermesd.node.condas import Condas
from hermesd.node.sights import Sights
from hermesd.node.venvs import Venvs


class Lookout:
    """What is looked for. `venvs` is where those are made, `tell` says something to the head."""

    def __init__(
        self, node: NodeId, venvs: Path, environ: Mapping[str, str], tell: Callable[[Looked], None]
    ) -> None:
        self.venvs = Venvs(node, venvs, environ, tell)
        self.condas = Condas(node, environ, tell)
        self._sights = Sights(node, tell)

    def watch(self, wanted: Watch) -> None:
        """Look for these as well, and say of each what there is of it."""
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
