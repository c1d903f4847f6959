"""The stage tree of trials whose hyper-parameters change while they train (arXiv 1911.10504).

A trial is a path of stages. Trials that begin alike share the first part of their paths; since they
compute the same there, it needs to be trained only once. A node of the tree is a stage between two
places where paths part, and a trial is a path from a root to the node where it ends.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from hermesd.core.model import Stage, TrialId, TrialSpec

Path: TypeAlias = tuple[Stage, ...]


@lru_cache(1 << 16)
def _path(stages: Path) -> Path:
    # By their words, as 1 and 1.0 and True are equal, and need not be the same to a program.
    return tuple(
        Stage(until, tuple((name, repr(value)) for name, value in values))
        for until, values in stages
    )


def path_of(spec: TrialSpec) -> Path:
    """What a trial does from its beginning on, as far as it changes: stage by stage."""
    return _path(spec.sequences)


def ending_at(stages: Path, steps: Iterable[int]) -> Path:
    """The same stages, of which one ends at each of these steps as well."""
    found: list[Stage] = []
    begin, ends = 0, sorted(steps)
    for stage in stages or (Stage(None, ()),) * bool(ends):
        last = math.inf if stage.until_step is None else stage.until_step
        found += [stage._replace(until_step=end) for end in ends if begin < end < last]
        found.append(stage)
        begin = int(last) if stage.until_step is not None else begin
    return tuple(found)


def parting(one: Path, other: Path) -> int | None:
    """The step at which two paths part: what comes after so many steps differs. None: nowhere.

    Where one of them ends before, it is its end. An empty one never changes.
    """
    if not one or not other:
        return next((path[0].until_step for path in (one, other) if path), None)
    mine, theirs = iter(one), iter(other)
    here, there = next(mine, None), next(theirs, None)
    step = 0
    while here is not None and there is not None:
        if here.values != there.values:
            return step
        ends = [each.until_step for each in (here, there) if each.until_step is not None]
        if not ends:
            return None
        step = min(ends)
        here = next(mine, None) if here.until_step == step else here
        there = next(theirs, None) if there.until_step == step else there
    return None if here is there else step


@lru_cache(1 << 16)
def turns(path: Path) -> tuple[tuple[int, int], ...]:
    """The steps where a path changes, each with a mark of all that it has done until then and does
    next: paths that do the same beyond such a step have its mark in common, others hardly."""
    found: list[tuple[int, int]] = []
    for before, stage in pairwise(path):
        if before.values != stage.values and before.until_step is not None:
            mark = found[-1][1] if found else 0
            found.append((before.until_step, hash((mark, before, stage.values))))
    return tuple(found)


def until(path: Path, length: int | None) -> Path:
    """The part of a path up to so many steps; all of it if that is not known."""
    if length is None:
        return path
    found: list[Stage] = []
    for stage in path:
        if stage.until_step is None or stage.until_step >= length:
            return (*found, stage._replace(until_step=length))
        found.append(stage)
    return tuple(found)


@dataclass(slots=True)
class StageNode:
    """A span of steps with the same values, from where paths part to where they part again."""

    begin: int
    #: None if no end is known.
    end: int | None
    values: Hashable
    #: The trials that pass through it.
    members: dict[TrialId, None] = field(default_factory=dict)
    children: dict[Hashable, StageNode] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How long it is, as far as that is known: of one without an end nothing."""
        return 0 if self.end is None else self.end - self.begin

    def split(self, step: int) -> None:
        """Have two nodes instead of this one, of which the first ends at the step."""
        rest = StageNode(step, self.end, self.values, dict(self.members), self.children)
        self.end, self.children = step, {self.values: rest}


@dataclass(slots=True)
class StageTree:
    """The paths of trials by what else they have in common, their root."""

    roots: dict[Hashable, dict[Hashable, StageNode]] = field(default_factory=dict)

    def insert(self, root: Hashable, path: Path, trial: TrialId) -> None:
        """Add a trial: along the longest prefix that is there, then by nodes of its own."""
        level = self.roots.setdefault(root, {})
        begin = 0
        for stage in path:
            end = stage.until_step
            while begin != end:
                node = level.get(stage.values)
                if node is None:
                    node = level[stage.values] = StageNode(begin, end, stage.values)
                elif _before(end, node.end):
                    assert end is not None
                    node.split(end)
                node.members[trial] = None
                level = node.children
                if node.end is None:
                    return
                begin = node.end

    def along(self, root: Hashable, path: Path) -> Iterator[StageNode]:
        """The nodes of a path, in order."""
        level = self.roots.get(root, {})
        begin = 0
        for stage in path:
            while begin != stage.until_step:
                node = level.get(stage.values)
                if node is None:
                    return
                yield node
                if node.end is None:
                    return
                begin, level = node.end, node.children

    @property
    def nodes(self) -> Iterator[StageNode]:
        """All of them, each before those that follow it."""
        rest = [node for level in self.roots.values() for node in level.values()]
        while rest:
            node = rest.pop()
            yield node
            rest += node.children.values()


def _before(step: int | None, end: int | None) -> bool:
    return step is not None and (end is None or step < end)
