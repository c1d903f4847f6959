"""Points of reports on their way into pieces.

What a report brought is one row when it comes, whatever the number of its metrics. When some have
gathered of a run, or it is over, they become pieces, metric by metric, and the rows go.

Rule: what has a row is here as well, so that curves are whole without looking for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import structlog

from hermesd.core.model import RunId, TrialId
from hermesd.head import schema
from hermesd.head.points import Block, Piece, is_block, joined, pack
from hermesd.head.transactions import Statements

GATHERED = 64

log = structlog.get_logger()


class Moving(NamedTuple):
    """Blocks that become pieces with the transaction under way."""

    run: RunId
    blocks: list[tuple[int, bytes]]


class FreshPoints:
    """The blocks that have rows, by run and number of the row."""

    def __init__(self) -> None:
        self._last = 0
        self._runs: dict[RunId, list[tuple[int, bytes]]] = {}
        self._over: dict[RunId, None] = {}
        self._moving: list[Moving] = []

    def read(self, rows: Iterable[tuple[int, TrialId, int, bytes]]) -> None:
        """Take over what an earlier head left; nothing more will come of these runs' rows."""
        for number, trial, attempt, points in rows:
            self._last = max(self._last, number)
            if not is_block(points):
                log.warning("points cannot be read: the disk has changed them", trial=trial)
                continue
            run = RunId(trial, attempt)
            self._runs.setdefault(run, []).append((number, points))
            self._over[run] = None

    def take(self, blocks: Iterable[Block], seq: int) -> tuple[Statements, list[Moving]]:
        """What is to be written of blocks that came with entry `seq`; when that is done, what moved
        is to be `forgotten`."""
        rows = []
        full, self._over = self._over, {}
        for run, points in blocks:
            self._last += 1
            rows.append((self._last, *run, points))
            mine = self._runs.setdefault(run, [])
            mine.append((self._last, points))
            if len(mine) >= GATHERED:
                full[run] = None
        moving = [Moving(run, self._runs.pop(run)) for run in full if run in self._runs]
        self._moving += moving
        pieces = [
            (*run, metric, seq, *pack(curve))
            for run, blocks in moving
            for metric, curve in joined(points for _, points in blocks).items()
        ]
        gone = [(number,) for _, blocks in moving for number, _ in blocks]
        return [
            (schema.INSERT_REPORT, rows),
            (schema.INSERT_POINTS, pieces),
            (schema.DELETE_REPORT, gone),
        ], moving

    def forget(self, moved: Iterable[Moving]) -> None:
        """These are pieces by now."""
        for one in moved:
            self._moving.remove(one)

    def close(self, run: RunId) -> None:
        """No more will come of this run: its blocks go with what is written next."""
        if run in self._runs:
            self._over[run] = None

    def drop(self, trials: Collection[TrialId]) -> None:
        """Nothing of these trials is wanted any more."""
        for run in [run for run in self._runs if run.trial in trials]:
            del self._runs[run]

    def pieces(self, trial: TrialId) -> list[Piece]:
        """The trial's points that are no stored pieces yet."""
        mine = [Moving(run, blocks) for run, blocks in self._runs.items() if run.trial == trial]
        mine += [one for one in self._moving if one.run.trial == trial]
        return [
            Piece(*run, metric, *pack(curve))
            for run, blocks in mine
            for metric, curve in joined(points for _, points in blocks).items()
        ]
