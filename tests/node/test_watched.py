"""What is asked for briefly is watched for a while, and the head hears when that is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from hermesd.core.requirements import UNSEEN
from hermesd.node.machine import watched_names
from hermesd.node.machine.watched_names import BRIEF_SECONDS, Sight, WatchedNames
from hermesd.node.outbox import Outbox
from tests.node.conftest import looked


class Watcher:
    """A watch with a clock that a test sets, and what it says; it finds everything."""

    def __init__(self) -> None:
        self.now = 0.0
        self.outbox = Outbox()
        self.watched = WatchedNames("n1", self.outbox, clock=lambda: self.now)
        self.looked_at: asyncio.Queue[Sequence[str]] = asyncio.Queue()

    async def look(self, names: Sequence[str]) -> AsyncIterator[list[Sight]]:
        self.looked_at.put_nowait(names)
        yield [(name, "") for name in names]

    async def next(self) -> dict[str, str]:
        return dict((await looked(self.outbox)).sights)


@pytest.fixture
async def watcher(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watcher]:
    monkeypatch.setattr(watched_names, "LOOK_SECONDS", 0.01)
    made = Watcher()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(made.watched.run(made.look))
        yield made
        watching.cancel()


async def test_what_is_asked_for_briefly_is_forgotten_and_that_is_said(watcher: Watcher) -> None:
    watcher.watched.watch(["/data"])
    assert await watcher.next() == {"/data": ""}
    watcher.watched.watch(["/preview"], briefly=True)
    assert await watcher.next() == {"/preview": ""}
    watcher.now = BRIEF_SECONDS
    assert await watcher.next() == {"/preview": UNSEEN}
    while not watcher.looked_at.empty():
        watcher.looked_at.get_nowait()
    assert await watcher.looked_at.get() == ["/data"]


async def test_whoever_asks_again_has_the_whole_while(watcher: Watcher) -> None:
    watcher.watched.watch(["/preview"], briefly=True)
    watcher.now = BRIEF_SECONDS - 1
    watcher.watched.watch(["/preview"], briefly=True)
    assert await watcher.next() == {"/preview": ""}
    watcher.now = BRIEF_SECONDS + 1
    watcher.watched.watch(["/other"])
    assert await watcher.next() == {"/other": ""}
    watcher.now = 2 * BRIEF_SECONDS
    assert await watcher.next() == {"/preview": UNSEEN}


async def test_what_a_study_requires_stays_whoever_else_asks_briefly(watcher: Watcher) -> None:
    watcher.watched.watch(["/data"], briefly=True)
    watcher.watched.watch(["/data"])
    watcher.watched.watch(["/data"], briefly=True)
    assert await watcher.next() == {"/data": ""}
    watcher.now = 2 * BRIEF_SECONDS
    watcher.watched.watch(["/other"])
    assert await watcher.next() == {"/other": ""}
    assert watcher.outbox.last == 2, "nothing more is said"
