"""Python's own iterators: moved to where they were, or known to have gone on."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_shim.adapters.torch.iterators import PythonIterators, moved, place_of
from trainer_shim.adapters.torch.tensor_bytes import Unplain
from trainer_shim.saver import OtherProgram

# Python 3.12 and 3.13 say that the place of a `cycle` will be known no more; by default to nobody.
pytestmark = pytest.mark.filterwarnings("ignore:Pickle, copy:DeprecationWarning")

NUMBERS = st.integers(-5, 5)
LISTS = st.lists(NUMBERS, max_size=6)
MAKERS: st.SearchStrategy[Callable[[], Iterator[Any]]] = st.one_of(
    LISTS.map(lambda items: lambda: iter(items)),
    LISTS.map(lambda items: lambda: reversed(items)),
    LISTS.map(lambda items: lambda: iter(tuple(items))),
    LISTS.map(lambda items: lambda: itertools.cycle(items)),
    st.tuples(NUMBERS, NUMBERS, NUMBERS.filter(bool)).map(lambda at: lambda: iter(range(*at))),
    st.tuples(NUMBERS, NUMBERS).map(lambda at: lambda: itertools.count(*at)),
    st.just(lambda: itertools.count(0.1, 0.1)),
)


@given(MAKERS, st.integers(0, 20), st.integers(0, 20))
def test_it_goes_on_from_where_it_was(
    make: Callable[[], Iterator[Any]], taken: int, taken_again: int
) -> None:
    before, again = make(), make()
    for _ in range(taken):
        next(before, None)
    for _ in range(taken_again):
        next(again, None)
    place = json.loads(json.dumps(place_of(before)))
    try:
        after = moved(again, place)
    except OtherProgram:
        assert taken_again > taken  # what can only go forward is too far
        return
    assert list(itertools.islice(after, 10)) == list(itertools.islice(before, 10))
    if taken_again <= taken:
        assert after is again


def test_one_of_another_kind_is_left_alone() -> None:
    place = place_of(iter([1]))
    assert place is not None
    for other in (None, iter(()), 1):
        with pytest.raises(Unplain):
            moved(other, place)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (number for number in range(9)),
        lambda: map(str, range(9)),
        lambda: zip([1, 2, 3], "abc"),  # noqa: B905
        lambda: itertools.chain([1], [2, 3]),
        lambda: enumerate(map(str, range(9))),
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
