"""What was acknowledged is on the disk, and what is on the disk is never guessed at."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hermesd import record
from hermesd.core.events import Added, NodeSilent, Paused, QuantumEnded
from hermesd.core.model import RunId
from hermesd.head.journal import schema
from hermesd.head.journal.points import StoredCurve, curve
from hermesd.head.journal.store import (
    GATHERED,
    Journal,
    JournalBroken,
    Statements,
    StateSnapshot,
    opened,
)
from hermesd.head.statedir import StateAway, StateRefused, filesystem_magic, owned
from tests.core.playbook import submitted
from tests.head.blocks import block

ROOT = Path(__file__).resolve().parent.parent.parent
RUN = RunId("d/1", 1)


def bytes_of(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if not path.name.endswith(("-shm", "-wal"))
    }


async def filled(directory: Path, count: int = 500) -> None:
    async with opened(directory) as journal:
        await journal.append(
            [(float(n), QuantumEnded(RUN, n, n), "") for n in range(count)],
            [block(RUN, loss=(range(count), [0.5] * count))],
        )


def execute(directory: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(directory / schema.NAME)) as connection:
        connection.execute(sql, values)
        connection.commit()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with opened(tmp_path) as journal:
        yield journal


async def test_entries_come_back_in_order_with_their_outcome(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        assert await journal.append([(1.5, Paused(("d/1",), "r1"), "[]")]) == 1
        assert await journal.append([(2.5, NodeSilent("n", "gone"), "")] * 3) == 4
    async with opened(tmp_path) as journal:
        assert journal.last == 4
        lines = await journal.read(0)
        assert lines[0] == schema.JournalLine(1, 1.5, Paused(("d/1",), "r1"), "[]")
        assert [line.seq for line in await journal.read(2)] == [3, 4]
        assert [line.seq for line in await journal.read(0, 2)] == [1, 2]
        assert await journal.append([(3.5, NodeSilent("n", ""), "")]) == 5


async def test_many_appends_at_once_are_all_kept_and_numbered(journal: Journal) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = [
            tasks.create_task(journal.append([(0.0, QuantumEnded(RUN, n, 0), "")]))
            for n in range(300)
        ]
    assert sorted(task.result() for task in waiting) == list(range(1, 301))
    by_seq = {line.seq: line.entry for line in await journal.read(0)}
    for grant, task in enumerate(waiting):
        assert by_seq[task.result()] == QuantumEnded(RUN, grant, 0)


async def test_of_many_new_trials_a_reader_may_take_the_first_and_the_last(
    journal: Journal,
) -> None:
    """A list that is as long as a study takes a second to read, and all others wait for it."""
    many = submitted(1_000)
    named = Paused(tuple(spec.id for spec in many.trials) * 10, "r")
    instead = Added("s", many.trials, "r", searcher="pbt", instead=("s/1",) * 1_000)
    whole = [many, Added("s", many.trials, "r"), instead, named, Added("s", many.trials[:5], "r")]
    await journal.append([(0.0, entry, "") for entry in whole])
    assert [schema.from_row(row).entry for row in journal.each_row(0)] == whole
    ends = (many.trials[0], many.trials[-1])
    cut = [replace(many, trials=ends), Added("s", ends, "r"), *whole[2:]]
    assert [schema.from_row(row).entry for row in journal.each_row(0, cut=True)] == cut


async def test_a_long_entry_of_few_trials_is_read_as_it_is(journal: Journal) -> None:
    """What is long about it is its study's own text."""
    whole = [submitted(count, source=b"x" * schema.LONG_CHARACTERS) for count in (0, 1, 2)]
    await journal.append([(0.0, entry, "") for entry in whole])
    assert [schema.from_row(row).entry for row in journal.each_row(0, cut=True)] == whole


async def test_a_caller_that_is_cancelled_does_not_tear_the_transaction(journal: Journal) -> None:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(journal.append([(0.0, NodeSilent("n", ""), "")] * 1000))
        await asyncio.sleep(0)
        task.cancel()
    assert await journal.append([(0.0, NodeSilent("m", ""), "")]) == 1001
    assert len(await journal.read(0)) == 1001


async def reported(journal: Journal, *steps: int) -> None:
    """A report a step, with two metrics."""
    for step in steps:
        points = block(RUN, loss=([step], [step / 2]), accuracy=([step], [step / 4]))
        await journal.append([(0.0, NodeSilent("n", ""), "")], [points])


def count(directory: Path, table: str) -> int:
    with closing(sqlite3.connect(directory / schema.NAME)) as connection:
        (found,) = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
    return int(found)


async def test_points_of_many_reports_become_pieces_by_metric(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await reported(journal, *range(2 * GATHERED + 3))
        assert (count(tmp_path, "points"), count(tmp_path, "reports")) == (2 * 2, 3)
        steps = list(range(2 * GATHERED + 3))
        assert curve(await journal.pieces("d/1", "loss")) == StoredCurve(
            steps, [s / 2 for s in steps]
        )
        assert await journal.metrics("d/1") == ["accuracy", "loss"]
        assert await journal.metrics("d/2") == []


async def test_what_has_come_of_a_run_that_is_over_becomes_pieces(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await reported(journal, 1, 2)
        journal.close_run(RUN)
        assert curve(await journal.pieces("d/1", "loss")).steps == [1, 2]
        await journal.append([(0.0, NodeSilent("n", ""), "")])
        assert (count(tmp_path, "points"), count(tmp_path, "reports")) == (2, 0)
        assert curve(await journal.pieces("d/1", "loss")).steps == [1, 2]


async def test_no_point_is_missing_while_it_becomes_a_piece(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reported(journal, *range(GATHERED - 1))
    writing, written = asyncio.Event(), asyncio.Event()
    commit = journal._connection.commit

    async def slow(statements: Statements) -> None:
        writing.set()
        await written.wait()
        await commit(statements)

    monkeypatch.setattr(journal._connection, "commit", slow)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(reported(journal, GATHERED - 1))
        await writing.wait()
        assert curve(await journal.pieces("d/1", "loss")).steps == list(range(GATHERED))
        written.set()
    assert curve(await journal.pieces("d/1", "loss")).steps == list(range(GATHERED))


async def test_what_a_killed_head_left_is_there_after_a_restart(tmp_path: Path) -> None:
    for start in (0, 2):
        async with opened(tmp_path) as journal:
            await reported(journal, start, start + 1)
    async with opened(tmp_path) as journal:
        assert curve(await journal.pieces("d/1", "loss")).steps == [0, 1, 2, 3]
        assert await journal.trials_with_points() == ["d/1"]
        await journal.forget_points(["d/1"])
        assert await journal.pieces("d/1", "loss") == []
        await journal.append([(0.0, NodeSilent("n", ""), "")])
    assert (count(tmp_path, "points"), count(tmp_path, "reports")) == (0, 0)


async def test_a_journal_of_the_version_before_is_made_one_of_this(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await reported(journal, 1)
        journal.close_run(RUN)
        await journal.append([(0.0, NodeSilent("n", ""), "")])
    with closing(sqlite3.connect(tmp_path / schema.NAME)) as connection:
        connection.executescript("DROP TABLE reports; PRAGMA user_version = 1")
    async with opened(tmp_path) as journal:
        await reported(journal, 2)
        assert curve(await journal.pieces("d/1", "loss")).steps == [1, 2]
    async with opened(tmp_path) as journal:
        assert curve(await journal.pieces("d/1", "loss")).steps == [1, 2]


async def test_ids_of_all_studies_are_remembered(journal: Journal) -> None:
    assert await journal.submitted() == {}
    body = '{"study":{"id":"digits"}}'
    await journal._submit(
        [(schema.INSERT_ENTRY, [(1, 0.0, "Submitted", body, "", 0)])],
    )
    assert await journal.submitted() == {"digits": ""}


async def test_a_snapshot_is_taken_only_whole_and_of_the_same_shape(tmp_path: Path) -> None:
    await filled(tmp_path, 10)
    async with opened(tmp_path) as journal:
        assert await journal.load_snapshot("v1") is None
        await journal.save_snapshot(StateSnapshot(3, "v1", ("old",)))
        saved = StateSnapshot(7, "v1", ("first", "second" * 1000))
        await journal.save_snapshot(saved)
        assert await journal.load_snapshot("v1") == saved
        assert await journal.load_snapshot("v2") is None
        await journal.save_snapshot(StateSnapshot(99, "v1", ("from the future",)))
        assert await journal.load_snapshot("v1") is None
        await journal.save_snapshot(saved)
    execute(tmp_path, "UPDATE snapshot SET digest = 'x' WHERE part = 0")
    async with opened(tmp_path) as journal:
        assert await journal.load_snapshot("v1") is None
    execute(tmp_path, "UPDATE snapshot SET digest = 'x', body = x'00'")
    async with opened(tmp_path) as journal:
        assert await journal.load_snapshot("v1") is None


async def test_a_failed_commit_breaks_the_journal_for_good(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([(0.0, NodeSilent("n", ""), "")])
        journal._last = 0  # the next number is taken already: the insert must fail
        with pytest.raises(JournalBroken, match="UNIQUE"):
            await journal.append([(0.0, NodeSilent("m", ""), "")])
        with pytest.raises(JournalBroken):
            await journal.append([(0.0, NodeSilent("m", ""), "")])
    async with opened(tmp_path) as journal:
        assert [line.entry for line in await journal.read(0)] == [NodeSilent("n", "")]


async def test_what_cannot_be_written_is_told_to_who_waits(journal: Journal) -> None:
    journal._last = 2**63 - 1  # the next number is more than a column can hold
    with pytest.raises(JournalBroken, match="too large"):
        await journal.append([(0.0, NodeSilent("n", ""), "")])


async def test_a_full_disk_breaks_the_journal_and_keeps_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([(0.0, NodeSilent("n", ""), "")])
        await journal._connection.do(lambda c: c.execute("PRAGMA max_page_count = 20"))
        with pytest.raises(JournalBroken, match="full"):
            await journal.append([(0.0, NodeSilent("x" * 100_000, ""), "")])
    async with opened(tmp_path) as journal:
        assert [line.entry for line in await journal.read(0)] == [NodeSilent("n", "")]


async def test_a_reader_of_the_file_only_delays_a_commit(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([(0.0, NodeSilent("n", ""), "")])
        with closing(sqlite3.connect(tmp_path / schema.NAME)) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            await journal._connection.do(lambda c: c.execute("PRAGMA busy_timeout = 1"))
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(journal.append([(0.0, NodeSilent("m", ""), "")]))
                assert len(await journal.read(0)) == 1
                stranger.rollback()
            assert waiting.result() == 2


# Kill -9.


@pytest.mark.parametrize("acknowledged", [1, 50, 400])
async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, acknowledged: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "tests" / "head" / "journal_writer.py"),
        str(tmp_path),
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = [await process.stdout.readline() for _ in range(acknowledged)]
    process.kill()
    said += (await process.stdout.read()).splitlines(keepends=True)
    await process.wait()
    async with opened(tmp_path) as journal:
        lines = {line.seq: line.entry for line in await journal.read(0, 10**6)}
        assert list(lines) == list(range(1, journal.last + 1))
        for told in (line for line in said if line.endswith(b"\n")):
            seq, worker, step = map(int, told.split())
            assert lines[seq - 1] == QuantumEnded(RunId(f"d/{worker}", 1), 0, step)
            assert step in curve(await journal.pieces(f"d/{worker}", "loss")).steps


# Refusals.


async def refused(directory: Path, message: str) -> None:
    before = bytes_of(directory)
    with pytest.raises(StateRefused, match=message):
        async with opened(directory):
            pass
    assert bytes_of(directory) == before


@pytest.mark.parametrize("damage", ["header", "page", "short", "empty", "noise"])
async def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, damage: str) -> None:
    await filled(tmp_path)
    path = tmp_path / schema.NAME
    content = bytearray(path.read_bytes())
    match damage:
        case "header":
            content[:16] = b"\0" * 16
        case "page":
            content[2 * 4096 : 3 * 4096] = b"\xa5" * 4096
        case "short":
            del content[len(content) // 2 :]
        case "empty":
            content.clear()
        case "noise":
            content = bytearray(b"not a database at all" * 1000)
    path.write_bytes(content)
    await refused(tmp_path, r"damaged|is empty")


async def test_what_is_no_damage_is_not_called_so(tmp_path: Path) -> None:
    await filled(tmp_path)
    in_the_way = tmp_path / f"{schema.NAME}-shm"
    in_the_way.symlink_to("/nowhere/at/all")
    with pytest.raises(StateAway, match=f"{schema.NAME} cannot be used .*: unable to open"):
        async with opened(tmp_path):
            pass
    in_the_way.unlink()
    async with opened(tmp_path) as journal:
        assert journal.last == 500


async def test_strange_files_are_refused(tmp_path: Path) -> None:
    await filled(tmp_path, 1)
    execute(tmp_path, "PRAGMA user_version = 9")
    await refused(tmp_path, f"schema version 9, this head knows {schema.VERSION}")
    execute(tmp_path, "PRAGMA application_id = 7")
    await refused(tmp_path, r"application id 7, expected \d+")
    execute(tmp_path, "DROP TABLE points")
    await refused(tmp_path, r"not a journal of Hermes")


async def test_a_row_that_was_changed_is_found_by_its_checksum(tmp_path: Path) -> None:
    await filled(tmp_path, 3)
    execute(tmp_path, "UPDATE journal SET body = replace(body, '2', '7') WHERE seq = 3")
    async with opened(tmp_path) as journal:
        with pytest.raises(record.UnreadableEntry, match="entry 3: its checksum"):
            await journal.read(0)


async def test_an_unknown_kind_is_named(tmp_path: Path) -> None:
    crc = schema.checksum(1, 0.0, "Teleported", "{}", "")
    await filled(tmp_path, 0)
    execute(
        tmp_path,
        schema.INSERT_ENTRY.replace("?, ?, ?, ?, ?, ?", "1,0.0,'Teleported','{}','',?"),
        crc,
    )
    async with opened(tmp_path) as journal:
        with pytest.raises(record.UnreadableEntry, match="entry 1: unknown kind 'Teleported'"):
            await journal.read(0)


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(StateRefused, match=r"is on NFS: the journal needs a local disk"),
        owned(tmp_path, lambda path: 0x6969),
    ):
        pass
    assert filesystem_magic(tmp_path) != 0
    with pytest.raises(FileNotFoundError):
        filesystem_magic(tmp_path / "nowhere")


def test_a_second_head_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    def second() -> Iterator[None]:
        with owned(tmp_path):
            yield

    with owned(tmp_path / "state"):
        pass
    with owned(tmp_path), pytest.raises(StateRefused, match=r"another head \(pid \d+\) uses"):
        next(second())
    next(second())
