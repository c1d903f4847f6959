"""A repair that is cut short anywhere loses nothing, and no head begins with nothing after it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hermesd.core.events import NodeJoined, Submitted
from hermesd.core.model import Plugin, RunId
from hermesd.core.state import State
from hermesd.head.journal import file, schema
from hermesd.head.journal.points import curve
from hermesd.head.journal.repair import repair
from hermesd.head.journal.store import opened
from hermesd.head.statedir import StateRefused
from hermesd.sim.curves import Job, Switch
from hermesd.sim.drive import Drive
from hermesd.sim.orders import LossGoal, SubmissionOrder
from tests.core.playbook import joined, submitted
from tests.head.blocks import block

BEFORE = datetime(2026, 1, 1, tzinfo=UTC)


class PowerLoss(BaseException):
    """Nothing more happens."""


async def damaged(directory: Path) -> bytes:
    """A journal of three entries whose second cannot be read, in a WAL; its bytes."""
    async with opened(directory) as journal:
        await journal.append([(0.0, submitted(1, name), "") for name in ("a", "b")])
        await journal.append([(1.0, joined(), "")])
    with closing(sqlite3.connect(directory / schema.NAME)) as connection:
        connection.execute("UPDATE journal SET body = 'x' WHERE seq = 2")
        connection.commit()
        # A head that was killed leaves a WAL, and with it what was acknowledged last.
        for name in (schema.NAME, f"{schema.NAME}-wal"):
            shutil.copy2(directory / name, directory / f"kept-{name}")
    for name in (schema.NAME, f"{schema.NAME}-wal"):
        (directory / f"kept-{name}").rename(directory / name)
    return (directory / schema.NAME).read_bytes() + (directory / f"{schema.NAME}-wal").read_bytes()


def aside(directory: Path) -> list[bytes]:
    """The damaged bytes of every folder that is set aside."""
    names = (schema.NAME, f"{schema.NAME}-wal")
    return [
        b"".join((folder / name).read_bytes() for name in names)
        for folder in directory.glob("set-aside-*")
    ]


def cut_short(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the power before what a repair does to names and disks as number `at`."""
    count = 0

    def dying(what: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > at:
                raise PowerLoss
            return what(*arguments, **named)

        return instead

    for place, name in ((Path, "rename"), (Path, "unlink"), (os, "replace"), (os, "fsync")):
        monkeypatch.setattr(place, name, dying(getattr(place, name)))


async def test_a_repair_that_is_cut_short_loses_nothing(tmp_path: Path) -> None:
    original = tmp_path / "original"
    original.mkdir()
    content = await damaged(original)
    for at in range(99):
        directory = tmp_path / str(at)
        shutil.copytree(original, directory)
        with pytest.MonkeyPatch.context() as monkeypatch:
            cut_short(at, monkeypatch)
            try:
                repair(directory, BEFORE)
            except PowerLoss:
                cut = True
            else:
                cut = False
        names = (schema.NAME, f"{schema.NAME}-wal")
        left = b"".join((directory / n).read_bytes() for n in names if (directory / n).exists())
        if not cut:
            break
        assert left == content or content in aside(directory), at
        if file.repaired(directory / schema.NAME).exists():
            with pytest.raises(StateRefused, match="cut short"):
                async with opened(directory):
                    pass
        repair(directory)
        assert content in aside(directory)
        async with opened(directory) as journal:
            assert [type(line.entry).__name__ for line in await journal.read(0)] == [
                "Submitted",
                "NodeJoined",
            ]
        assert not list(directory.glob("repairing-*"))
    assert at > 8, "it was never cut short"


@pytest.mark.parametrize("trace", ["cluster-id", "set-aside-1", "journal.db-wal"])
async def test_no_journal_is_made_where_one_has_been(tmp_path: Path, trace: str) -> None:
    (tmp_path / trace).touch()
    with pytest.raises(StateRefused, match=f"is missing, yet .*{trace} is there"):
        async with opened(tmp_path):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [trace]


@pytest.mark.parametrize("version", [1, schema.VERSION])
async def test_points_are_kept_whether_they_are_pieces_already_or_not(
    tmp_path: Path, version: int
) -> None:
    run = RunId("a/1", 1)
    async with opened(tmp_path) as journal:
        await journal.append([(0.0, submitted(1, "a"), "")], [block(run, loss=([1], [0.5]))])
        journal.close_run(run)
        await journal.append([(0.0, submitted(1, "b"), "")])
        await journal.append([(1.0, joined(), "")], [block(run, loss=([2], [0.25]))])
    with closing(sqlite3.connect(tmp_path / schema.NAME)) as connection:
        connection.execute("UPDATE journal SET body = 'x' WHERE seq = 2")
        if version == 1:
            connection.execute("DROP TABLE reports")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
    assert [why for _, why, _ in repair(tmp_path).aside] == ["entry 2: its checksum does not agree"]
    async with opened(tmp_path) as journal:
        steps = curve(await journal.pieces("a/1", "loss")).steps
        assert steps == ([1] if version == 1 else [1, 2])


def played() -> list[tuple[float, Any, str]]:
    """All that was journaled of four trials that took turns on two devices."""
    losses = [tuple(1.0 / (place + step) for step in range(1, 21)) for place in range(4)]
    jobs = tuple(Job(each, 0.5, len(each), 1) for each in losses)
    order = SubmissionOrder(jobs, (), LossGoal(0.0, 1.0, 0.0), Switch(0.1, 0.1, 0.5))
    turns = Plugin("round_robin", (("quantum_seconds", 5.0),))
    drive = Drive(order, 2, turns, Plugin("free"))
    state, entries = drive._scheduler.state, list[tuple[float, Any, str]]()
    apply = state.apply

    def kept(entry: Any, now: float, *ahead: Any) -> None:
        apply(entry, now, *ahead)
        entries.append((now, entry, ""))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(state, "apply", kept)
        drive.run()
    return entries


async def test_a_missing_entry_costs_no_other_trial_its_result(tmp_path: Path) -> None:
    entries = played()
    (tmp_path / "whole").mkdir()
    async with opened(tmp_path / "whole") as journal:
        await journal.append(entries)
    for number, (_, entry, _) in enumerate(entries[:-1], start=1):
        if isinstance(entry, Submitted | NodeJoined):
            continue
        directory = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", directory)
        with closing(sqlite3.connect(directory / schema.NAME)) as connection:
            connection.execute("DELETE FROM journal WHERE seq = ?", (number,))
            connection.commit()
        assert repair(directory).aside
        state = State()
        async with opened(directory) as journal:
            for line in await journal.read(0):
                state.apply(line.entry, line.at)
        unfinished = {name for name, trial in state.trials.items() if not trial.phase.final}
        assert unfinished <= {entry.run.trial}, (number, entry)
