"""A node says what there is of paths, when it is asked and when that changes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermesd.core.commands import Look
from hermesd.core.events import Looked
from hermesd.node.machine import requirement_watch, watched_names
from hermesd.node.machine.requirement_watch import PathWatch
from hermesd.node.outbox import Outbox
from tests.node.conftest import Head, Node, looked

MISSING = "No such file or directory"


class Heard:
    """A watcher, and what it says."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.sights = PathWatch("n1", self.outbox)

    async def next(self) -> dict[str, str]:
        return dict((await looked(self.outbox)).sights)


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    heard = Heard()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(heard.sights.run())
        yield heard
        watching.cancel()


async def test_it_says_what_is_there(head: Head, node: Node, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    head.send(Look("n1", (str(tmp_path), absent)))
    said = await head.hears(Looked)
    assert said == Looked("n1", ((str(tmp_path), ""), (absent, MISSING)))


async def test_a_machine_without_threads_left_says_so(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(watched_names, "LOOK_SECONDS", 0.01)
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", exhausted)
        heard.sights.watched.watch([str(tmp_path)])
        said = await heard.next()
    assert said == {str(tmp_path): "it cannot be looked at now: can't start new thread"}
    assert await heard.next() == {str(tmp_path): ""}


async def test_what_changes_is_said_and_what_does_not_is_not(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_names, "LOOK_SECONDS", 0.01)
    there, later = str(tmp_path), tmp_path / "later"
    heard.sights.watched.watch([there, str(later)])
    assert await heard.next() == {there: "", str(later): MISSING}
    later.touch()
    assert await heard.next() == {str(later): ""}
    heard.sights.watched.watch([there])
    assert await heard.next() == {there: ""}, "who asks is answered"


async def test_a_path_that_hangs_delays_no_other(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirement_watch, "HANGS_SECONDS", 3.0)  # what a busy machine may take
    hangs = tmp_path / "hangs"
    os.mkfifo(hangs)
    answer = requirement_watch.reason_against

    def slow(path: str) -> str:
        if path == str(hangs):
            hangs.read_text()  # until somebody writes
        return answer(path)

    monkeypatch.setattr(requirement_watch, "reason_against", slow)
    heard.sights.watched.watch([str(tmp_path), str(hangs)])
    said = await heard.next()
    assert said[str(tmp_path)] == ""
    assert "does not answer" in said[str(hangs)]
    await asyncio.to_thread(hangs.write_text, "x")
    heard.sights.watched.watch([str(hangs)])
    assert (await heard.next())[str(hangs)] == ""


def test_what_may_not_be_read_is_lacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert requirement_watch.reason_against(str(tmp_path)) == (
        "it may not be read by the user of the node daemon"
    )
    assert requirement_watch.reason_against("\0") != ""
