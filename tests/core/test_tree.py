"""The stage tree: what trials have in common, and what is counted of it."""

from __future__ import annotations

import random
from itertools import accumulate, combinations, product

from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.model import Stage
from hermesd.core.tree import Path, StageNode, StageTree, ending_at, parting, until

values = st.sampled_from(("a", "b", "c"))
paths = st.lists(st.tuples(st.integers(1, 4), values), min_size=1, max_size=4).flatmap(
    lambda spans: st.booleans().map(lambda is_open: made(spans, is_open))
)


def made(spans: list[tuple[int, str]], is_open: bool = False) -> Path:
    """A path of spans, each so long; the last one without an end if it `is_open`."""
    ends: list[int | None] = list(accumulate(length for length, _ in spans))
    if is_open:
        ends[-1] = None
    found: list[Stage] = []
    for end, (_, value) in zip(ends, spans, strict=True):
        if found and found[-1].values == (("v", value),):
            found.pop()
        found.append(Stage(end, (("v", value),)))
    return tuple(found)


def at(path: Path, step: int) -> object:
    """The values after so many steps; None past the end."""
    ends = (each for each in path if each.until_step is None or step < each.until_step)
    return next((each.values for each in ends), None)


def tree_of(given: list[Path]) -> StageTree:
    tree = StageTree()
    for number, path in enumerate(given):
        tree.insert("root", path, str(number))
    return tree


def decays() -> list[Path]:
    """The paper's 108 trials: step decay at three epochs of 200."""
    days = (40, 60, 80)
    return [
        until(
            tuple(
                Stage(end, (("lr", float(f"{first * times**index:.9g}")),))
                for index, end in enumerate((*accumulate(lengths), None))
            ),
            200,
        )
        for first, times, *lengths in product((0.5, 0.2), (0.2, 0.1), days, days, days)
    ]


@given(paths, paths)
def test_two_paths_part_at_the_first_step_that_differs(one: Path, other: Path) -> None:
    steps = range(20)
    differs = next((s for s in steps if at(one, s) != at(other, s)), None)
    assert parting(one, other) == parting(other, one) == differs


@given(st.lists(paths, min_size=1, max_size=8))
def test_each_step_is_in_the_node_of_those_that_do_it_alike(given: list[Path]) -> None:
    tree = tree_of(given)
    for number, path in enumerate(given):
        for step in range(18):
            alike = {
                str(n)
                for n, other in enumerate(given)
                if at(path, step) is not None and ((p := parting(path, other)) is None or p > step)
            }
            along = tree.along("root", path)
            here = (node.members for node in along if node.end is None or step < node.end)
            assert set(next(here, ())) == alike, number


@given(st.lists(paths, min_size=1, max_size=8))
def test_no_step_is_in_two_nodes(given: list[Path]) -> None:
    tree = tree_of(given)
    unique = {
        tuple(at(path, before) for before in range(step + 1))
        for path in given
        for step in range(17)
        if at(path, step) is not None
    }
    cut = tree_of([until(path, 17) for path in given])
    assert sum(node.steps for node in cut.nodes) == len(unique)
    assert all(node.members for node in tree.nodes)


@given(st.lists(paths, min_size=1, max_size=6), st.randoms())
def test_the_order_of_insertion_does_not_matter(given: list[Path], chance: random.Random) -> None:
    numbers = list(range(len(given)))
    chance.shuffle(numbers)
    tree = StageTree()
    for number in numbers:
        tree.insert("root", given[number], str(number))
    assert tree == tree_of(given)


def test_trials_of_different_roots_have_nothing_in_common() -> None:
    path, tree = made([(3, "a")]), StageTree()
    tree.insert("one", path, "x")
    tree.insert("other", path, "y")
    assert [set(node.members) for node in tree.along("one", path)] == [{"x"}]


@given(paths, st.lists(st.integers(1, 12), max_size=4))
def test_a_path_of_stages_that_end_at_more_steps_is_the_same(path: Path, steps: list[int]) -> None:
    split = ending_at(path, steps)
    assert [at(split, step) for step in range(20)] == [at(path, step) for step in range(20)]
    last = path[-1].until_step
    ends = {stage.until_step for stage in split}
    assert {step for step in steps if last is None or step < last} <= ends
    assert ending_at((), steps) == ending_at((Stage(None, ()),), steps) or not steps


def test_the_counts_of_the_paper() -> None:
    given = decays()
    nodes = list(tree_of(given).nodes)
    assert len(given) == 108
    assert len(set(given)) == 92
    assert len(nodes) == 202
    assert sum(node.steps for node in nodes) == 6240
    assert all(parting(a, b) is None for a, b in combinations(given, 2) if a == b)


def test_a_node_is_split_where_a_shorter_path_leaves_it() -> None:
    tree = tree_of([made([(5, "a"), (2, "b")]), made([(3, "a"), (2, "c")])])
    (root,) = tree.roots["root"].values()
    assert (root.begin, root.end, len(root.members), len(root.children)) == (0, 3, 2, 2)
    rest = root.children[(("v", "a"),)]
    assert rest == StageNode(3, 5, (("v", "a"),), {"0": None}, rest.children)
