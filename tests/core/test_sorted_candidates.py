"""The line of waiting trials against a plain sort."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.decide.queue import QueueEntry, SortedCandidates

changes = st.lists(st.tuples(st.integers(0, 60), st.one_of(st.none(), st.integers(0, 9))))


def entry(number: int, score: int) -> QueueEntry:
    return QueueEntry((1.0, float(score)), number, f"s/{number}")


@given(st.lists(changes, max_size=4))
def test_a_line_is_the_sorted_entries_of_those_in_it(rounds: list[list[tuple[int, int]]]) -> None:
    line, known = SortedCandidates(), dict[int, QueueEntry]()
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
