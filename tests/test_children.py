"""A child that is ended is waited for alone."""

from __future__ import annotations

import asyncio
import os
import signal

from hermesd import children
from tests.waiting import until


async def test_those_that_a_child_has_left_its_pipes_to_are_not_waited_for() -> None:
    """One is of its session, and ended with it; one has left that."""
    code = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; sleep 1000"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", code, stdout=pipe, stderr=pipe, start_new_session=True
    )
    assert child.stdout is not None
    ours, another = [int(await child.stdout.readline()) for _ in range(2)]
    until(lambda: os.getsid(another) == another)
    await children.end(child)
    assert child.returncode == -signal.SIGKILL
    os.kill(another, signal.SIGKILL)
    until(lambda: not is_alive(ours))
    await children.end(child)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
