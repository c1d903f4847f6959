"""The journal: acknowledged entries per second, and how long a restart of a large head takes.

`python -m benchmarks.journal [--trials N] [--points N]`; the defaults are 100,000 and 10,000,000.
A restart reads a snapshot and what came after it, at most `snapshots.ENTRIES` entries; the first
one after an upgrade folds every entry. The CPU's time is given too: a busy machine adds nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import median, publish, quantile
from benchmarks.treadmill import study
from hermesd import wire
from hermesd.core.commands import Launch
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import NodeJoined, Reported, RunCompleted, RunStarted
from hermesd.core.losses import chunked
from hermesd.core.model import Device, Quantum, RunId
from hermesd.core.node.messages import Series
from hermesd.core.placement import make_placement
from hermesd.core.state import State
from hermesd.head.journal import replay as snapshot
from hermesd.head.journal import replay as snapshots
from hermesd.head.journal.points import Block
from hermesd.head.journal.replay import replay
from hermesd.head.journal.store import Journal, StateSnapshot, opened
from hermesd.policy import make_policy
from hermesd.record import Entry

BATCH = 100
DEVICE = Device("n/cpu:0", "n", "cpu", 1 << 34, (0,))


async def rate(journal: Journal, writers: int, batch: int, rounds: int) -> tuple[float, float]:
    """Acknowledged entries a second and the 99th percentile of an acknowledgment's seconds."""
    entry = RunStarted(RunId("bench/0", 1), 0, 0.1)
    waits: list[float] = []

    async def write() -> None:
        for _ in range(rounds):
            begun = time.perf_counter()
            await journal.append([(0.0, entry, "")] * batch)
            waits.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(writers)))
    return writers * batch * rounds / (time.perf_counter() - begun), quantile(waits, 0.99)


async def rates() -> list[list[str | float]]:
    rows: list[list[str | float]] = []
    for writers, batch, rounds in ((1, 1, 300), (32, 1, 100), (1, BATCH, 200), (8, BATCH, 50)):
        with tempfile.TemporaryDirectory() as folder:
            async with opened(Path(folder)) as journal:
                measured = [await rate(journal, writers, batch, rounds) for _ in range(5)]
        rows.append(
            [
                f"{writers} writer{'s' if writers > 1 else ''}, {batch} a transaction",
                median([each for each, _ in measured]),
                median([wait for _, wait in measured]) * 1e3,
            ]
        )
    return rows


def life(trials: int, points: int) -> Iterator[tuple[list[Entry], list[Block]]]:
    """What a node reports of one trial after the other, and what the head decides."""
    each = points // trials
    yield [study("best_first", trials), NodeJoined("n", "boot", (DEVICE,), ())], []
    losses = [1.0 / (1 + step) for step in range(each)]
    steps = list(range(1, each + 1))
    chunks = chunked(1, losses)
    for number in range(trials):
        run = RunId(f"bench/{number}", 1)
        report = Reported(run, each, chunks, (("loss", losses[-1]),), each, 1.0, 1.0, 3200, 1 << 28)
        entries: list[Entry] = [
            Launch(run, (DEVICE.id,), Quantum(1.0), "not probed yet"),
            RunStarted(run, 0, 0.1),
            report,
            RunCompleted(run, each),
        ]
        series = wire.points_to_proto([Series("loss", tuple(steps), tuple(losses))])
        yield entries, [Block(run, series.SerializeToString())]


async def fill(journal: Journal, trials: int, points: int) -> StateSnapshot:
    """Write a head's whole life; its last snapshot, with as much behind it as there may be."""
    state = State()
    last = StateSnapshot(0, snapshot.shape(), ())
    whole = 4 * trials + 2
    lines: list[tuple[float, Entry, str]] = []
    waiting: list[Block] = []
    for index, (entries, series) in enumerate(life(trials, points)):
        for entry in entries:
            state.apply(entry, float(index))
            lines.append((float(index), entry, ""))
        waiting += series
        if len(lines) >= 2_000:
            await journal.append(lines, waiting)
            for each in waiting:
                journal.close_run(each.run)
            lines, waiting = [], []
            if last.seq == 0 and journal.last >= whole - snapshots.ENTRIES:
                parts = tuple(snapshot.write(snapshot.taken(state)))
                last = StateSnapshot(journal.last, snapshot.shape(), parts)
    await journal.append(lines, waiting)
    return last


async def restart(trials: int, points: int) -> list[list[str | float]]:
    rows: list[list[str | float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with opened(folder) as journal:
            last = await fill(journal, trials, points)
            entries = journal.last
        size = sum(path.stat().st_size for path in folder.iterdir())
        for label in ("every entry", "a snapshot"):
            begun, used = time.perf_counter(), time.process_time()
            async with opened(folder) as journal:
                replayed = await replay(journal)
                Scheduler(replayed.state, make_policy, make_placement).decide(0.0)
                seconds, cpu = time.perf_counter() - begun, time.process_time() - used
                assert not replayed.fault
                assert len(replayed.state.trials) == trials
                folded = entries - replayed.snapshot_seq
                await journal.save_snapshot(last)
            rows.append([label, trials, points, entries, folded, size / 1e6, seconds, cpu])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--points", type=int, default=10_000_000)
    options = parser.parse_args()
    publish("journal", ["writing", "entries_per_s", "ack_p99_ms"], asyncio.run(rates()))
    columns = [
        "restart from", "trials", "points", "entries", "folded", "size_mb", "seconds", "cpu_s",
    ]  # fmt: skip
    publish("restart", columns, asyncio.run(restart(options.trials, options.points)))


if __name__ == "__main__":
    main()
