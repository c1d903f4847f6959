"""What the order of a tf.data pipeline depends on beyond what a copied iterator holds.

A dataset that shuffles anew each time has a generator of seeds, which lives as long as the dataset
and gives a seed to each iterator over it. The copy of an iterator holds the generator's position
only while the iterator over the shuffle itself exists: once a shuffle has been read to its end, it
is forgotten. No interface tells or sets that position. So a pipeline is moved by a copy only if the
copy is known to hold all of it, and is read again only if it is known how many seeds were drawn.
Any other pipeline cannot be restored, and is reported as such.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

# Kinds of datasets whose iterators make one iterator over each of their inputs, at their first
# element at the latest, and never another one.
_ONCE = {
    "Batch", "Filter", "FlatMap", "IgnoreErrors", "Interleave", "Map", "Options", "PaddedBatch",
    "ParallelBatch", "ParallelInterleave", "ParallelMap", "Prefetch", "Restructured", "Shard",
    "Shuffle", "Skip", "Take", "TakeWhile", "Unbatch", "Zip",
}  # fmt: skip

_are_ours = False  # the iterators that are begun now


class ShuffleOrder(NamedTuple):
    """How the order of a shuffled pipeline comes about."""

    #: The datasets that draw a seed for each of their iterators, by identity.
    drawn_from: frozenset[int]
    is_copied: bool  # a copied iterator holds all of the order
    draws_once: bool  # each seed is drawn by an iterator's first element, if at all

    @property
    def is_known_later(self) -> bool:
        """Whether an iterator can be moved that is not the first one over the pipeline."""
        return self.is_copied or self.draws_once


def order_of(dataset: Any) -> ShuffleOrder:
    """What the order of this pipeline depends on."""
    drawing, shuffles = set(), 0
    is_once = is_plain = True
    for part, above in _parts(dataset, frozenset()):
        kind = _kind(part)
        shuffles += "Shuffle" in kind
        if _draws(part, kind):
            drawing.add(id(part))
            is_once = is_once and kind in ("Shuffle", "Random") and above <= _ONCE
            is_plain = is_plain and kind == "Shuffle" and above <= _ONCE | {"Repeat"}
    # Beside a second shuffle, whatever it is, a copy does not show that it has lost the first.
    # (With one in a function, TensorFlow itself makes no copy.)
    is_copied = not drawing or (shuffles == 1 and is_plain)
    return ShuffleOrder(frozenset(drawing), is_copied, is_once)


def draw_again(dataset: Any, iterators: int, read: int) -> None:
    """Have a dataset that draws once draw what `iterators` over it have drawn, of which `read`
    gave an element."""
    if order_of(dataset).drawn_from:
        with ours():
            for number in range(iterators):
                iterator = iter(dataset)
                if number < read:
                    next(iterator, None)


@contextlib.contextmanager
def ours() -> Iterator[None]:
    """The iterators that are begun in here are not the program's."""
    global _are_ours
    before, _are_ours = _are_ours, True
    try:
        yield
    finally:
        _are_ours = before


def are_ours() -> bool:
    """Whether the iterators that are begun now are not the program's."""
    return _are_ours


def _parts(dataset: Any, above: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Each dataset, on each way to it, with the kinds of those that read it."""
    yield dataset, above
    for source in dataset._inputs():
        yield from _parts(source, above | {_kind(dataset)})


def _kind(part: Any) -> str:
    return type(part).__name__.strip("_").removesuffix("Dataset")


def _draws(part: Any, kind: str) -> bool:
    """Whether each iterator over it is given a seed of its own."""
    if kind == "Random":
        return bool(getattr(part, "_rerandomize", True))
    return "Shuffle" in kind and getattr(part, "_reshuffle_each_iteration", True) is not False
