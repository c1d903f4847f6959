"""Searchers that need no library: a genetic search, and a walk from the best trial so far.

The genetic search is that of Hops: tournaments of three choose the parents, each axis comes from
one of them, and on average one axis is drawn at random. There are no generations, in which devices
would wait for the last trial of each. The population is the best trials so far, so the best is
never lost, and a child is made whenever one is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hermesd.core.model import Setting
from hermesd.study.coordinates import Coordinates
from hermesd.study.space import Axis, Point, Space, drawn

TOURNAMENT = 3
# How far a step on an axis of endlessly many values goes, as a share of all draws.
STRIDE = 0.1
# Where a space is small, a child is soon one that was there before.
TRIES = 20
# Of so many points of a sequence those are looked for that meet the conditions of a study.
SOBOL_TRIES = 20_000


def child(
    axes: Mapping[str, Axis], ranked: Sequence[Point], population: int, random: np.random.Generator
) -> Point:
    """A point made of two of the best; `ranked` are those that have a value, best first."""
    best = ranked[:population]
    if len(best) < 2:
        return _drawn(axes, random)
    mother, father = (dict(best[_winner(len(best), random)]) for _ in range(2))
    made: dict[str, Setting] = {}
    for name, axis in axes.items():
        if not axis.is_in(made):
            continue
        parent = mother if random.random() < 0.5 else father
        if name not in parent or random.random() < 1 / len(axes):
            made[name] = axis.draw(random)
        else:
            made[name] = parent[name]
    return tuple(made.items())


def _winner(size: int, random: np.random.Generator) -> int:
    """The best of a few that are drawn, by rank."""
    return int(random.integers(size, size=TOURNAMENT).min())


def step(axes: Mapping[str, Axis], ranked: Sequence[Point], random: np.random.Generator) -> Point:
    """The best point with another value on one axis: one drawn anew, or a near one."""
    if not ranked:
        return _drawn(axes, random)
    best = dict(ranked[0])
    movable = [name for name, axis in axes.items() if axis.size != 1 and name in best]
    name = movable[int(random.integers(len(movable)))] if movable else ""
    made: dict[str, Setting] = {}
    for each, axis in axes.items():
        if not axis.is_in(made):
            continue
        if each == name and random.random() < 0.5:
            made[each] = _near(axis, best[each], random)
        elif each == name or each not in best:
            made[each] = axis.draw(random)
        else:
            made[each] = best[each]
    return tuple(made.items())


def _near(axis: Axis, value: Setting, random: np.random.Generator) -> Setting:
    lie = Coordinates(axis)
    at = lie.of(value)
    if at is None or (lie.size is not None and not lie.ordered):
        return axis.draw(random)
    if lie.size is not None:
        moved = at + (1 if random.random() < 0.5 else -1)
        return lie.value(moved if 0 <= moved < lie.size else 2 * at - moved)
    return lie.value(min(max(float(at + random.normal(0, STRIDE)), 0.0), 1.0))


def _drawn(axes: Mapping[str, Axis], random: np.random.Generator) -> Point:
    made: dict[str, Setting] = {}
    for name, axis in axes.items():
        if axis.is_in(made):
            made[name] = axis.draw(random)
    return tuple(made.items())


def sobol(axes: Space, seed: int, number: int) -> Point:
    """The point of this number in a scrambled Sobol sequence, of those that meet the conditions.

    Owen 1998, "Scrambling Sobol' and Niederreiter-Xing points". Raises Refused where none does.
    """
    from scipy.stats import qmc

    sequence = qmc.Sobol(max(1, len(axes)), scramble=True, rng=np.random.default_rng(seed))
    if not axes.where:
        return _at(axes, sequence.fast_forward(number - 1).random(1)[0])
    left = number
    for _ in range(SOBOL_TRIES):
        point = _at(axes, sequence.random(1)[0])
        left -= axes.allows(point)
        if not left:
            return point
    return drawn(axes, seed, number)


def _at(axes: Mapping[str, Axis], shares: Sequence[float]) -> Point:
    """The point that lies at these shares of the draws of each axis."""
    point: dict[str, Setting] = {}
    for (name, axis), share in zip(axes.items(), shares, strict=False):
        lie = Coordinates(axis)
        at = float(share) if lie.size is None else min(int(share * lie.size), lie.size - 1)
        if axis.is_in(point):
            point[name] = lie.value(at)
    return tuple(point.items())
