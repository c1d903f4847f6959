"""A real head in this process, with a study that a scripted node has trained."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermesd.head.api import submission_checks
from tests.forked import Forked
from tests.head.heads import Node, World, world
from tests.study_specs import spec

STEPS = 30
# The worst until it is nearly over, and the best in the end.
LATE = [9.0] * 25 + [1.0] * 5


def falling(floor: float) -> list[float]:
    """Losses that fall from `floor + 8`."""
    return [floor + 8 / step for step in range(1, STEPS + 1)]


@asynccontextmanager
async def trained(
    directory: Path, curves: Sequence[Sequence[float]], program_sha256: str = "", **fields: Any
) -> AsyncIterator[World]:
    """A head with the study `digits`, under fifo, of one completed trial a curve. It does not wait
    for its node, which answers nothing that it is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission_checks, "ANSWER_SECONDS", 0.1)
        async with _trained(directory, curves, program_sha256, **fields) as head:
            yield head


@asynccontextmanager
async def _trained(
    directory: Path, curves: Sequence[Sequence[float]], program_sha256: str, **fields: Any
) -> AsyncIterator[World]:
    async with world(directory / "head") as head:
        node = Node(head)
        await node.hello()
        values = [float(number) for number in range(len(curves))]
        await head.submit(spec({"lr": {"values": values}}, **fields), program_sha256=program_sha256)
        for losses in curves:
            launch = await node.start()
            await node.report(launch, 1, list(losses))
            await node.complete(launch, len(losses))
        await node.settle()
        yield head
        node.call.cancel()


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    stdout: str
    stderr: str


async def started(head: World, *words: str) -> asyncio.subprocess.Process:
    """The command line against this head, as a process: it brings a loop of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermesctl.cli", *_of(head, *words)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
    )


async def hermesctl(head: World, *words: str) -> Said:
    """What the command line says of this head."""
    run = Forked("hermesctl", *_of(head, *words), environment=_environment())
    return Said(*await asyncio.to_thread(run.communicate))


def _of(head: World, *words: str) -> list[str]:
    return ["--head", f"unix:{head.directory / 'head.sock'}", *words]


def _environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "240"}
