"""A real journal damaged in every way: the head starts, or a repair ends and then it does."""

from __future__ import annotations

import itertools
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hermesd.core.model import RunId
from hermesd.head.journal import schema
from hermesd.head.journal.repair import repair
from hermesd.head.journal.replay import RestoredState, replay
from hermesd.head.journal.store import JournalBroken, opened
from hermesd.head.statedir import StateRefused
from tests.core.playbook import joined, submitted
from tests.head.blocks import block

ENTRIES = 60
PARTS = 4  # each a test, so that they run side by side
LIVED: list[tuple[object, ...]] = []
NOT_MENDED = {"next version", "directory", "gone", "foreign"}
MENDED = {"row gone", "first gone", "far row", "body", "no UTF-8", "kind", "empty"}
# Words of the one next step, where a repair is not it.
NEXT_STEP = "restore a backup|from a backup|use the version that wrote it"


async def lived(directory: Path) -> None:
    """A journal of `ENTRIES` studies, points of both kinds, and half of it in a WAL."""
    async with opened(directory) as journal:
        for number in range(ENTRIES):
            name = f"s{number}"
            run = RunId(f"{name}/0", 1)
            points = [block(run, loss=(list(range(40)), [0.5] * 40))]
            await journal.append([(float(number), submitted(2, name), "")], points)
            if number % 2:
                journal.close_run(run)
            if number == ENTRIES // 2:
                with closing(sqlite3.connect(directory / schema.NAME)) as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await journal.append([(99.0, joined(), "")])
        for name in (schema.NAME, f"{schema.NAME}-wal"):
            shutil.copy2(directory / name, directory / f"kept-{name}")
    for name in (schema.NAME, f"{schema.NAME}-wal"):
        (directory / f"kept-{name}").rename(directory / name)


async def started(directory: Path) -> tuple[RestoredState, int]:
    """What a head that starts here begins with; it can also write, and read every curve."""
    async with opened(directory) as journal:
        await journal.submitted()
        found, last = await replay(journal), journal.last
        if not found.fault:
            found.state.check()
            run = RunId("s0/0", 2)
            await journal.append([], [block(run, loss=([1], [0.5]))])
            await journal.append([(200.0, submitted(2, "fresh"), "")])
            await journal.trials_with_points()
        return found, last


async def heals(directory: Path) -> str:
    """How the damage ends: `fine`, `mended`, or the next step that a repair names."""
    try:
        found, _ = await started(directory)
        if not found.fault:
            return "fine"
    except (StateRefused, JournalBroken):
        pass
    try:
        done = repair(directory)
    except (StateRefused, FileNotFoundError) as error:
        return str(error)
    assert done.aside, "the head refuses, and the repair says that nothing is wrong"
    gap = min((number for number, _, _ in done.aside if number), default=done.kept + 1)
    assert bodies(directory)[: gap - 1] == LIVED[: gap - 1]
    assert done.kept >= gap - 1
    list(done.told())
    found, last = await started(directory)
    assert not found.fault
    assert last == done.kept
    assert repair(directory).aside == []
    return "mended"


def bodies(directory: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / schema.NAME)) as connection:
        return connection.execute("SELECT at, kind, body FROM journal ORDER BY seq").fetchall()


def sqlite(*statements: str) -> Callable[[Path], object]:
    def damage(directory: Path) -> None:
        with closing(sqlite3.connect(directory / schema.NAME)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return damage


def patched(name: str, change: Callable[[bytearray], object]) -> Callable[[Path], object]:
    def damage(directory: Path) -> None:
        content = bytearray((directory / name).read_bytes())
        change(content)
        (directory / name).write_bytes(content)

    return damage


def cut(at: int) -> Callable[[bytearray], object]:
    return lambda content: content.__delitem__(slice(at, None))


def flipped(at: int, bit: int) -> Callable[[bytearray], object]:
    return lambda content: content.__setitem__(at, content[at] ^ 1 << bit)


def filled(page: int, byte: int, count: int = 1) -> Callable[[bytearray], object]:
    return lambda content: content.__setitem__(
        slice(page * 4096, (page + count) * 4096), bytes([byte]) * 4096 * count
    )


def swapped(one: int, other: int) -> Callable[[bytearray], object]:
    def change(content: bytearray) -> None:
        a, b = slice(one * 4096, (one + 1) * 4096), slice(other * 4096, (other + 1) * 4096)
        content[a], content[b] = content[b], content[a]

    return change


def copied(one: int, other: int) -> Callable[[bytearray], object]:
    return lambda content: content.__setitem__(
        slice(other * 4096, (other + 1) * 4096), content[one * 4096 : (one + 1) * 4096]
    )


def without_wal(damage: Callable[[Path], object]) -> Callable[[Path], object]:
    """The damage to a database whose WAL does not hide it."""

    def moved(directory: Path) -> None:
        sqlite("PRAGMA wal_checkpoint(TRUNCATE)")(directory)
        damage(directory)

    return moved


def index_roots(directory: Path) -> list[int]:
    """The first page of each index: nothing that a quick check looks into."""
    with closing(sqlite3.connect(directory / schema.NAME)) as connection:
        rows = connection.execute("SELECT rootpage FROM sqlite_schema WHERE type = 'index'")
        return [root for (root,) in rows]


def damages(
    pages: int, wal_bytes: int, index_roots: list[int]
) -> Iterator[tuple[str, Callable[[Path], object]]]:
    chance = random.Random(18)
    main, wal = schema.NAME, f"{schema.NAME}-wal"
    size = pages * 4096
    for at in (0, 1, 50, 99, 600, 4095, 4096, *(chance.randrange(size) for _ in range(12))):
        yield f"cut at {at}", patched(main, cut(at))
    for page in range(1, pages, 3):
        yield f"cut at page {page}", patched(main, cut(page * 4096))
    for at in range(100):
        yield f"header {at}", patched(main, flipped(at, chance.randrange(8)))
    for _ in range(60):
        at, bit = chance.randrange(size), chance.randrange(8)
        yield f"bit {bit} of {at}", patched(main, flipped(at, bit))
    for page in range(pages):
        yield f"page {page} of zeros", patched(main, filled(page, chance.choice((0, 0xA5, 0xFF))))
        yield f"page {page} elsewhere", patched(main, swapped(page, chance.randrange(pages)))
        yield f"page {page} twice", patched(main, copied(page, chance.randrange(1, pages)))
        yield f"tree {page}", patched(main, flipped(page * 4096 + chance.randrange(12), 1))
    for at in (0, 31, 32, 5_000, *(chance.randrange(wal_bytes) for _ in range(6))):
        yield f"WAL cut at {at}", patched(wal, cut(at))
        yield f"WAL bit {at}", patched(wal, flipped(at, 3))
    for root in index_roots:
        for page in range(1, pages):
            yield f"index {root} is page {page}", without_wal(patched(main, copied(page, root - 1)))
    yield "no WAL", lambda directory: (directory / wal).unlink()
    yield "row gone", sqlite("DELETE FROM journal WHERE seq = 5")
    yield "first gone", sqlite("DELETE FROM journal WHERE seq < 4")
    yield "last gone", sqlite("DELETE FROM journal WHERE seq > 40")
    yield "all gone", sqlite("DELETE FROM journal")
    yield "far row", sqlite(f"UPDATE journal SET seq = {2**63 - 1} WHERE seq = 7")
    yield (
        "doubled",
        sqlite("INSERT INTO journal SELECT seq + 100, at, kind, body, outcome, crc FROM journal"),
    )
    yield "body", sqlite("UPDATE journal SET body = 'x' WHERE seq = 9")
    yield "no UTF-8", sqlite("UPDATE journal SET body = CAST(x'22ff22' AS TEXT) WHERE seq = 9")
    yield "kind", sqlite("UPDATE journal SET kind = CAST(x'ff' AS TEXT) WHERE seq = 3")
    yield "version 1", sqlite("PRAGMA user_version = 1")
    yield "version 0", sqlite("PRAGMA user_version = 0")
    yield "next version", sqlite(f"PRAGMA user_version = {schema.VERSION + 1}")
    yield "id", sqlite("PRAGMA application_id = 7")
    yield "no points", sqlite("DROP TABLE points")
    yield "no reports", sqlite("DROP TABLE reports")
    yield "no audit", sqlite("DROP TABLE audit")
    yield "report", sqlite("UPDATE reports SET points = x'ff00ff' WHERE number % 3 = 0")
    yield "piece", sqlite("UPDATE points SET steps = x'ff00ff' WHERE rowid % 3 = 0")
    yield "empty", patched(main, bytearray.clear)
    yield "directory", lambda d: ((d / main).unlink(), (d / main).mkdir())
    yield "gone", lambda directory: (directory / main).unlink()
    yield "noise", lambda directory: (directory / main).write_bytes(chance.randbytes(size))
    yield "foreign", foreign


def foreign(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    with closing(sqlite3.connect(directory / schema.NAME)) as connection:
        connection.execute("CREATE TABLE journal (entry TEXT)")


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_damage_ends_with_a_head_that_starts_or_with_the_next_step(
    part: int, tmp_path: Path
) -> None:
    original = tmp_path / "original"
    original.mkdir()
    await lived(original)
    whole = tmp_path / "whole"
    shutil.copytree(original, whole)
    LIVED[:] = bodies(whole)
    pages = (original / schema.NAME).stat().st_size // 4096
    wal_bytes = (original / f"{schema.NAME}-wal").stat().st_size
    ends: dict[str, str] = {}
    every = enumerate(damages(pages, wal_bytes, index_roots(whole)))
    for count, (name, damage) in itertools.islice(every, part, None, PARTS):
        directory = tmp_path / str(count)
        shutil.copytree(original, directory)
        damage(directory)
        try:
            ends[name] = await heals(directory)
        except Exception as error:
            error.add_note(f"damaged by: {name}")
            raise
        shutil.rmtree(directory)
    steps = {name: end for name, end in ends.items() if end not in ("fine", "mended")}
    assert [name for name, end in steps.items() if not re.search(NEXT_STEP, end)] == []
    assert steps.keys() >= NOT_MENDED & ends.keys()
    mended = {name for name, end in ends.items() if end == "mended"}
    assert mended >= MENDED & ends.keys()
