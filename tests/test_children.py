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


async def test_what_a_child_did_not_read_is_not_waited_for() -> None:
    """Somebody who has left its session may have the end that is read from."""
    code = "setsid sleep 1000 <&0 & echo $!; sleep 1000"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        "bash", "-c", code, stdin=pipe, stdout=pipe, start_new_session=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"x" * (1 << 20))
    other = int(await child.stdout.readline())
    until(lambda: os.getsid(other) == other)
    await children.end(child)
    assert child.returncode == -signal.SIGKILL
    os.kill(other, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
