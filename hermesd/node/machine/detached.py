"""Processes that outlive the daemon that starts them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermesd.node.machine import detach
from hermesd.node.machine.accounts import UnixAccount, regular

# For a program that is to be process 1 of its own namespaces, and for one whose forks are to be
# left to such a process.
WORLD, WORLD_OF_MANY = ("--world",), ("--world", "--init")
# For one that is waited for.
STAY = "--stay"
# All that the launcher has of the daemon's environment: it is there before its program is anybody.
_LAUNCHERS = ("LD_LIBRARY_PATH", "PATH")


class NotBegun(OSError):
    """The program cannot be started; says why."""


async def launch(
    command: Sequence[str],
    environment: Mapping[str, str],
    *how: str,
    folder: Path,
    errors: int | None = None,
    account: UnixAccount | None = None,
) -> asyncio.subprocess.Process:
    """The launcher, which starts the program and ends, or becomes it (`STAY`); what it prints is
    piped. Raises OSError."""
    wanted: dict[str, Any] = {
        "command": list(command),
        "environment": dict(environment),
        "folder": str(folder),
    }
    if account is not None and not account.is_own:
        groups = list(account.groups)
        wanted["account"] = {"user": account.uid, "group": account.gid, "groups": groups}
    starter = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        detach.__file__,
        *how,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        cwd="/",
        env={name: os.environ[name] for name in _LAUNCHERS if name in os.environ},
        start_new_session=True,
    )
    assert starter.stdin is not None
    starter.stdin.write(json.dumps(wanted).encode())
    starter.stdin.close()
    return starter


async def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: Path,
    errors: int | None = None,
    world: Sequence[str] = (),
    account: UnixAccount | None = None,
) -> int:
    """Start a program in a session of its own, and be no parent of it; its process id.

    `errors` is where it prints to; `account` as whom it runs, by default as this process. Raises
    NotBegun.
    """
    starter = await launch(
        command, environment, *world, folder=folder, errors=errors, account=account
    )
    said, _ = await starter.communicate()
    if starter.returncode != 0:
        raise NotBegun(f"{command[0]} cannot be started")
    return int(said)


def last_words(log: Path) -> str:
    """The end of what a program printed, in the file that its errors went to."""
    try:
        with regular(log) as file:
            return end_of(file.fileno())
    except OSError:
        return end_of(None)


def end_of(printed: int | None, most_bytes: int = 500) -> str:
    """The last of what is in a file, which may be of any size."""
    data = b""
    if printed is not None:
        data = os.pread(printed, most_bytes, max(0, os.fstat(printed).st_size - most_bytes))
    return data.decode(errors="replace").strip() or "it printed nothing"
