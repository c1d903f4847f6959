"""Placement: the fewest nodes, and as much on each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.elastic.place import place
from hermesd.policy.elastic.gain import ServedJob, Split


def job(name: str, split: Split, worker: float = 1.0, server: float = 1.0) -> ServedJob:
    return ServedJob(name, 1.0, lambda w, p: 1.0, (worker,), (server,), split, split)


def test_the_papers_three_nodes_hold_equal_parts() -> None:
    """6 workers and 3 servers on nodes of 3: two and one on each, not five nodes, nor unequal."""
    split = Split(6, 3)
    nodes = {f"n{number}": (3.0,) for number in range(5)}
    placed = place([job("a", split)], {"a": split}, nodes)["a"]
    assert sorted(placed.values()) == [Split(2, 1)] * 3


def test_what_fits_on_one_node_is_on_one() -> None:
    split = Split(2, 2)
    placed = place([job("a", split)], {"a": split}, {"small": (2.0,), "large": (4.0,)})
    assert placed == {"a": {"large": split}}


def test_the_smallest_go_first_and_what_fits_nowhere_is_left_out() -> None:
    splits = {"large": Split(5, 0), "small": Split(1, 0), "middle": Split(3, 0)}
    jobs = [job(name, split) for name, split in splits.items()]
    placed = place(jobs, splits, {"n0": (3.0,), "n1": (3.0,)})
    assert {name: sum(each.workers for each in of.values()) for name, of in placed.items()} == {
        "small": 1,
        "middle": 3,
    }


def test_a_job_without_a_split_is_passed_over() -> None:
    one = Split(1, 0)
    assert place([job("a", one), job("b", one)], {"b": one}, {"n": (1.0,)}) == {"b": {"n": one}}
    assert place([], {}, {}) == {}


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=8),
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
)
def test_nothing_is_lost_nor_a_node_overfilled(
    drawn: list[tuple[int, int]], rooms: list[int]
) -> None:
    splits = {str(number): Split(*each) for number, each in enumerate(drawn)}
    jobs = [job(name, split, worker=1.0, server=0.5) for name, split in splits.items()]
    nodes = {f"n{number}": (float(room),) for number, room in enumerate(rooms)}
    placed = place(jobs, splits, nodes)
    used = dict.fromkeys(nodes, 0.0)
    for name, parts in placed.items():
        assert Split(*map(sum, zip(*parts.values(), strict=True))) == splits[name]
        for counts in zip(*parts.values(), strict=True):
            assert max(counts) - min(counts) <= 1
        for node, part in parts.items():
            used[node] += part.workers + 0.5 * part.servers
    assert all(used[node] <= nodes[node][0] for node in nodes)
