"""A process that appends to a journal as fast as it can and says what was acknowledged."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from hermesd.core.events import NodeSilent, QuantumEnded
from hermesd.core.model import RunId
from hermesd.head.journal.store import Journal, opened
from tests.head.blocks import block


async def append(journal: Journal, worker: int) -> None:
    step = 0
    while True:
        step += 1
        run = RunId(f"d/{worker}", 1)
        entries = [(float(step), QuantumEnded(run, 0, step), ""), (1.0, NodeSilent("n", ""), "")]
        seq = await journal.append(entries, [block(run, loss=([step], [1 / step]))])
        print(seq, worker, step, flush=True)


async def main(directory: Path) -> None:
    async with opened(directory) as journal, asyncio.TaskGroup() as tasks:
        for worker in range(8):
            tasks.create_task(append(journal, worker))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
