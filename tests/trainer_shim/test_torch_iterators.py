"""Python's own iterators: known to have gone on within a pass."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainer_shim.adapters.torch.iterators import PythonIterators

# Python 3.12 and 3.13 say that the place of a `cycle` will be known no more; by default to nobody.
pytestmark = pytest.mark.filterwarnings("ignore:Pickle, copy:DeprecationWarning")


@pytest.mark.parametrize(
    "make",
    [
        lambda: (number for number in range(9)),
        lambda: map(str, range(9)),
        lambda: zip([1, 2, 3], "abc"),  # noqa: B905
        lambda: itertools.chain([1], [2, 3]),
        lambda: enumerate(map(str, range(9))),
        lambda: itertools.count(1),
        lambda: itertools.cycle("ab"),
        lambda: iter(range(9)),
        lambda: reversed([1, 2, 3]),
        lambda: [iter([]), (number for number in range(9))],
    ],
)
def test_what_a_pass_takes_is_told_from_what_is_taken_between_two(
    make: Callable[[], Any],
) -> None:
    known, value = PythonIterators(), make()

    def take() -> None:
        next(value[1] if isinstance(value, list) else value)

    known.pass_begins(sys._getframe())
    known.pass_is_over()
    take()
    known.pass_begins(sys._getframe())
    assert not known.is_taken_from("value", value)
    take()
    assert known.is_taken_from("value", value)
    known.pass_is_over()
    known.pass_begins(sys._getframe())
    assert known.is_taken_from("value", value)


def test_a_generator_that_a_pass_has_taken_from_is_named() -> None:
    known = PythonIterators()
    rates = (number for number in range(9))
    ended: Iterator[int] = (number for number in range(0))
    assert list(ended) == []
    known.pass_begins(sys._getframe())
    next(rates)
    assert next(ended, None) is None
    assert known.pass_is_over() == ["rates"]


def test_a_generator_that_runs_the_passes_is_none_of_their_own() -> None:
    known = PythonIterators()

    def epochs() -> Iterator[bool]:
        for _ in range(3):
            known.pass_begins(sys._getframe())
            yield bool(known.pass_is_over())

    run = epochs()
    assert [one for one in run] == [False] * 3  # noqa: C416 - a variable holds it
