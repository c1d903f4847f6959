"""The line of waiting trials against a plain sort."""

from __future__ import annotations

from bisect import bisect_left
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.decide import queue
from hermesd.core.decide.queue import QueueEntry, SortedCandidates

changes = st.lists(st.tuples(st.integers(0, 60), st.one_of(st.none(), st.integers(0, 9))))


def entry(number: int, score: int) -> QueueEntry:
    return QueueEntry((1.0, float(score)), number, f"s/{number}")


@given(st.lists(changes, max_size=4), st.integers(1, 40), st.integers(0, 40))
def test_a_line_is_the_sorted_entries_of_those_in_it(
    rounds: list[list[tuple[int, int]]], block: int, few: int
) -> None:
    line, known = SortedCandidates(), dict[int, QueueEntry]()
    with patch.multiple(queue, BLOCK=block, FEW=few):
        for each in rounds:
            for number, score in each:
                if score is None:
                    known.pop(number, None)
                    line.drop(f"s/{number}")
                else:
                    known[number] = entry(number, score)
                    line.put(known[number])
            ordered = sorted(known.values())
            assert list(line.after()) == ordered
            assert list(line.after((1.0, 4.5))) == [e for e in ordered if e.key > (1.0, 4.5)]
            assert len(line) == len(known)
            assert [line[place] for place in range(len(line))] == ordered


@given(
    st.dictionaries(st.integers(0, 60), st.integers(0, 9)),
    st.integers(1, 40),
    st.tuples(st.integers(0, 60), st.integers(0, 9)),
    st.tuples(st.integers(0, 60), st.integers(0, 9)),
)
def test_what_is_before_a_bound_and_between_two(
    scores: dict[int, int], block: int, first: tuple[int, int], end: tuple[int, int]
) -> None:
    line = SortedCandidates()
    ordered = sorted(entry(number, score) for number, score in scores.items())
    with patch.multiple(queue, BLOCK=block):
        for each in ordered:
            line.put(each)
        low, high = entry(*first), entry(*end)
        assert line.rank(low) == bisect_left(ordered, low)
        assert list(line.between(low, high)) == [e for e in ordered if low <= e < high]
        assert list(line.between(low)) == [e for e in ordered if low <= e]
