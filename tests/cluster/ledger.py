"""What the head wrote down, and what must be true of it: nobody begins with less than was promised.

Judged by the order of events alone, so that how fast a machine is plays no part. A trial goes
on where it was parked. Else it goes on from its newest checkpoint that the head knew of, or, where
every node that has that one is lost, from the newest that had come to another node by then.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from hermesd.core.commands import Launch
from hermesd.core.events import (
    Checkpointed,
    Copied,
    NodeJoined,
    NodeLost,
    ParkLost,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import Checkpoint, NodeId, RunId, Tier, TrialId
from hermesd.record import Entry, decode


def read(journal: Path) -> list[Entry]:
    """All entries of a head's journal, in their order; the head may be at work."""
    with closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True)) as file:
        return [decode(*row) for row in file.execute("SELECT kind, body FROM journal ORDER BY seq")]


@dataclass(slots=True)
class _Known:
    """What the head has been told of a trial."""

    run: RunId | None = None
    node: NodeId = ""
    parked: int | None = None
    newest: Checkpoint | None = None
    copied: Checkpoint | None = None
    promised: int = 0
    by_copy: bool = False
    saved: dict[str, Checkpoint] = field(default_factory=dict)


class Ledger:
    """The entries, judged. `complaints` are in words; `rescued` are the runs that went on from a
    copy since the node of the one before was lost; `trained` how many steps lay between a run's
    checkpoints."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.complaints: list[str] = []
        self.rescued: list[RunId] = []
        self.trained: list[int] = []
        self._lost: set[NodeId] = set()
        self._trials: defaultdict[TrialId, _Known] = defaultdict(_Known)
        for entry in entries:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        match entry:
            case Launch(run, devices, parked=parked):
                self._launch(self._trials[run.trial], run, devices[0].split("/")[0], parked)
            case RunStarted(run, step) if run == (trial := self._trials[run.trial]).run:
                if step < trial.promised:
                    self.complaints.append(f"{run} began at {step}, {trial.promised} was safe")
                elif trial.by_copy:
                    self.rescued.append(run)
            case RunSuspended(run, tier, step, saved) if (
                run == (trial := self._trials[run.trial]).run
            ):
                trial.parked = step if tier is Tier.PARK else None
                self._save(trial, saved)
            case Checkpointed(run, saved) if run == (trial := self._trials[run.trial]).run:
                if trial.newest is not None and trial.newest.attempt == saved.attempt:
                    self.trained.append(saved.step - trial.newest.step)
                self._save(trial, saved)
            case Copied(node, name, checkpoint):
                self._copy(self._trials[name], checkpoint, node)
            case RunFailed(run) | ParkLost(run) if run == (trial := self._trials[run.trial]).run:
                trial.run = trial.parked = None
            case NodeLost(node):
                self._lost.add(node)
                for trial in self._on(node):
                    trial.run = trial.parked = None
            case NodeJoined(node):
                self._lost.discard(node)

    def _on(self, node: NodeId) -> Iterator[_Known]:
        return (trial for trial in self._trials.values() if trial.node == node)

    def _launch(self, trial: _Known, run: RunId, node: NodeId, parked: RunId | None) -> None:
        if parked is not None:
            trial.promised, trial.by_copy = trial.parked or 0, False
        else:
            left = (each for each in (trial.newest, trial.copied) if each and self._is_safe(each))
            best = max(left, key=lambda each: each.step, default=None)
            trial.promised = best.step if best else 0
            trial.by_copy = best is not None and best.nodes[0] in self._lost
            # Whoever comes back with more comes too late.
            trial.newest = best
        trial.run, trial.node, trial.parked = run, node, None

    def _is_safe(self, checkpoint: Checkpoint) -> bool:
        return not self._lost.issuperset(checkpoint.nodes)

    def _save(self, trial: _Known, saved: Checkpoint | None) -> None:
        if saved is not None:
            before = trial.saved.get(saved.id, saved)
            nodes = tuple(dict.fromkeys((*before.nodes, *saved.nodes)))
            trial.newest = trial.saved[saved.id] = replace(saved, nodes=nodes)

    def _copy(self, trial: _Known, name: str, node: NodeId) -> None:
        if (saved := trial.saved.get(name)) is None:
            return
        there = replace(saved, nodes=(*saved.nodes, node))
        trial.saved[name] = there
        if trial.newest is not None and trial.newest.id == name:
            trial.newest = there
        if trial.copied is None or trial.copied.step <= there.step:
            trial.copied = there
