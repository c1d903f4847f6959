"""Processes that outlive the daemon that starts them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermesd.node.machine import detach

# For a program that is to be process 1 of its own namespaces, and for one whose forks are to be
# left to such a process.
WORLD, WORLD_OF_MANY = ("--world",), ("--world", "--init")


class NotBegun(OSError):
    """The program cannot be started; says why."""


async def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path,
    errors: int | None = None,
    world: Sequence[str] = (),
) -> int:
    """Start a program in a session of its own, and be no parent of it; its process id.

    `errors` is where it prints to. Raises NotBegun.
    """
    starter = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        detach.__file__,
        *world,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    said, _ = await starter.communicate()
    if starter.returncode != 0:
        raise NotBegun(f"{command[0]} cannot be started")
    return int(said)


def last_words(log: Path) -> str:
    """The end of what a program printed, in the file that its errors went to."""
    try:
        return log.read_bytes()[-500:].decode(errors="replace").strip() or "it printed nothing"
    except OSError:
        return "it printed nothing"
