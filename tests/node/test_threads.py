"""A node daemon needs no new thread for its disks."""

import asyncio
import threading

import pytest

from hermesd.node.daemon import disk_threads


def test_what_waits_for_disks_runs_where_no_thread_can_be_started_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def work() -> list[int]:
        asyncio.get_running_loop().set_default_executor(disk_threads())
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refused)
            return await asyncio.gather(*(asyncio.to_thread(int, "7") for _ in range(100)))

    assert asyncio.run(work()) == [7] * 100


def test_where_too_few_can_be_had_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before, start, tries = set(threading.enumerate()), threading.Thread.start, iter(range(100))

    def two(thread: threading.Thread) -> None:
        if next(tries) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", two)
    with pytest.raises(RuntimeError, match="new thread"):
        disk_threads()
    for left in set(threading.enumerate()) - before:
        left.join()
