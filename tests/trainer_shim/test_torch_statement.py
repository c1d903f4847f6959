"""The ways in which a script reads its batches are told apart by how the iterator is called."""

from __future__ import annotations

import gc
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainer_shim.adapters.torch import for_loop_bytecode


class Source:
    """An iterator over 0 to 5 that looks, at its first item, who asks for it."""

    def __init__(self) -> None:
        self.given = 0
        self.since = 0
        self.said: str | None = None
        self.where: tuple[types.CodeType, int] | None = None
        self.counters: list[Any] = []

    def __iter__(self) -> Source:
        self.since = for_loop_bytecode.collections()
        return self

    def __next__(self) -> int:
        if self.where is None and self.said is None:
            self._look(sys._getframe(1))
        if self.given == 6:
            raise StopIteration
        self.given += 1
        return self.given - 1

    def _look(self, frame: types.FrameType) -> None:
        try:
            where, self.counters = for_loop_bytecode.statement(frame, self, self.since)
        except for_loop_bytecode.OtherWay as error:
            self.said = str(error)
        else:
            self.where = where.f_code, where.f_lasti


def plainly(source: Source) -> None:
    for _ in source:
        pass


def counted(source: Source) -> None:
    for _ in enumerate(source):
        pass


def counted_twice(source: Source) -> None:
    for _ in enumerate(enumerate(source, 5)):
        pass


def around_a_comprehension(source: Source) -> None:
    lists: list[list[int]] = []
    for item in source:
        lists = [*lists, [other for other in range(item) if other]]


@pytest.mark.parametrize(
    ("read", "counters"),
    [(plainly, 0), (counted, 1), (counted_twice, 2), (around_a_comprehension, 0)],
)
def test_a_for_statement_is_found(read: Callable[[Source], None], counters: int) -> None:
    source = Source()
    read(source)
    assert source.said is None
    assert source.where is not None
    assert source.where[0] is read.__code__
    assert len(source.counters) == counters


def by_any(batches: Iterator[Any]) -> None:
    for _ in batches:
        pass


def test_a_statement_that_is_known_is_looked_at_among_young_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To look at all of them takes long; it is done again where it reads in another way."""
    walks: list[Any] = []
    all_referrers = gc.get_referrers
    monkeypatch.setattr(gc, "get_referrers", lambda one: walks.append(one) or all_referrers(one))

    def counters_of(read: Callable[[Source], None]) -> int:
        walks.clear()
        source = Source()
        read(source)
        assert source.said is None
        return len(source.counters)

    gc.disable()  # a collection in between asks for a look at all
    try:
        plain, twice = (
            [(counters_of(read), len(walks)) for _ in range(2)]
            for read in (lambda one: by_any(iter(one)), lambda one: by_any(enumerate(one)))
        )
    finally:
        gc.enable()
    assert plain == [(0, 1), (0, 0)]
    assert twice == [(1, 2), (1, 0)]
    assert counters_of(counted) == 1
    source = Source()
    by_any(zip(source, strict=False))
    assert source.said is not None


def by_hand(source: Source) -> None:
    while next(source, None) is not None:
        pass


def comprehended(source: Source) -> None:
    assert [item for item in source]  # noqa: C416 - what is tested


def comprehended_twice(source: Source) -> None:
    assert [[item for item in range(2)] for _ in range(1) for _ in source]  # noqa: C416


def gathered(source: Source) -> None:
    assert {item: item for item in source}


def consumed(source: Source) -> None:
    assert sum(source)


def generated(source: Source) -> None:
    def ahead() -> Iterator[int]:
        for item in source:
            yield item + 1

    for _ in ahead():
        pass


def zipped(source: Source) -> None:
    for _ in zip(range(9), source, strict=False):
        pass


def sliced(source: Source) -> None:
    for _ in itertools.islice(source, 3):
        pass


def mapped(source: Source) -> None:
    for _ in enumerate(map(str, source)):
        pass


@pytest.mark.parametrize(
    ("read", "word"),
    [
        (by_hand, "not taken by a for statement"),
        (comprehended, "comprehension"),
        (comprehended_twice, "comprehension"),
        (gathered, "comprehension"),
        (consumed, "not taken by a for statement"),
        (generated, "generator ahead"),
        (zipped, "zip()"),
        (sliced, "islice()"),
        (mapped, "map()"),
    ],
)
def test_another_way_is_named(read: Callable[[Source], None], word: str) -> None:
    source = Source()
    read(source)
    assert source.said is not None
    assert word in source.said


def test_an_enumerate_counts_on_as_if_it_had_given_more() -> None:
    class Advancing(Source):
        def _look(self, frame: types.FrameType) -> None:
            super()._look(frame)
            for counter in self.counters:
                for_loop_bytecode.advance(counter, 3)
            self.given = 3

    assert [pair for pair in enumerate(Source())][3:] == [(3, 3), (4, 4), (5, 5)]  # noqa: C416
    found = []
    for pair in enumerate(Advancing(), 10):
        found.append(pair)
    assert found == [(13, 3), (14, 4), (15, 5)]


class Dropped:
    """An iterator without end that tells, as it is dropped, whether that was a break."""

    def __init__(self, told: list[bool]) -> None:
        self.told = told
        self.where: tuple[types.CodeType, int] | None = None

    def __iter__(self) -> Dropped:
        return self

    def __next__(self) -> int:
        frame = sys._getframe(1)
        self.where = frame.f_code, frame.f_lasti
        return 0

    def __del__(self) -> None:
        assert self.where is not None
        self.told.append(for_loop_bytecode.is_break(sys._getframe(1), *self.where))


def broken_off(told: list[bool]) -> None:
    for item in Dropped(told):
        if item == 0:
            break
    told.append(len(told) == 1)


def broken_off_last(told: list[bool]) -> None:
    for item in Dropped(told):
        if item == 0:
            break


def returned_from(told: list[bool]) -> int:
    for item in Dropped(told):
        if item == 0:
            return 1
    return 2


def returned_early(told: list[bool]) -> None:
    for item in Dropped(told):
        if item == 0:
            return
    told.append(True)


def broken_off_or_returned(told: list[bool]) -> int:
    for item in Dropped(told):
        if item == 0:
            break
        if item:
            return 4
    return 5


@pytest.mark.parametrize(
    ("leave", "expected"),
    [
        (broken_off_or_returned, [True]),
        (broken_off, [True, True]),
        (broken_off_last, [True]),
        (returned_from, [False]),
        (returned_early, [False]),
    ],
)
def test_a_break_is_told_from_a_return(
    leave: Callable[[list[bool]], object], expected: list[bool]
) -> None:
    told: list[bool] = []
    leave(told)
    assert told == expected
