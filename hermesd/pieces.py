"""Long work in pieces, between which whoever does it may pause, or give it up.

A generator that yields nothing and returns what the work comes to. While a piece is being made no
other thread is sure to have the interpreter for long, so pieces are short: a millisecond or few.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
# What is done piece by piece, and what it comes to.
Pieces: TypeAlias = Generator[None, None, T]

# So many of what is about trials are made in a piece.
AT_ONCE = 50
# So many are looked at, or forgotten.
LOOKED_AT = 500


def whole(pieces: Pieces[T]) -> T:
    """What it comes to, done at once."""
    try:
        while True:
            next(pieces)
    except StopIteration as ended:
        result: T = ended.value
        return result


def in_one(deed: Callable[[], T]) -> Pieces[T]:
    """What is done in a single piece."""
    yield
    return deed()


def gathered(items: Iterable[T], at_once: int = AT_ONCE) -> Pieces[list[T]]:
    """What an iterator makes, so many of it at a time."""
    found: list[T] = []
    for some in parts(items, at_once):
        found += some
        yield
    return found


def parts(items: Iterable[T], at_once: int) -> Iterator[list[T]]:
    """So many of them at a time."""
    rest = iter(items)
    while some := list(islice(rest, at_once)):
        yield some


def any_of(items: Sequence[T], holds: Callable[[T], bool]) -> Pieces[bool]:
    """Whether it holds of any of them."""
    for some in parts(items, LOOKED_AT):
        if any(map(holds, some)):
            return True
        yield
    return False


def emptied(*lists: list[Any]) -> Pieces[None]:
    """Forget what is in lists. While very many values are freed at once, nobody else has the
    interpreter at all."""
    for items in lists:
        while items:
            del items[-LOOKED_AT:]
            yield
