"""What a population explores: the parameters of a fork, near those of the trial that it goes on
from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hermesd.core.model import Setting, Study, TrialSpec
from hermesd.core.policy import Exploration
from hermesd.refusal import FieldError, Refused
from hermesd.study import space
from hermesd.study.coordinates import Coordinates
from hermesd.study.fork import going_on
from hermesd.study.populations import explorable
from hermesd.study.spec import read
from hermesd.study.submission import TRIALS_LIMIT, spec_of

# So often values are explored that are to meet a study's conditions; else they stay as they are.
_TRIES = 100


def explored(
    study: Study,
    parents: Sequence[TrialSpec],
    first: int,
    exploration: Exploration,
    searcher: str,
) -> tuple[TrialSpec, ...]:
    """The trials from number `first` on that go on from each of these, with parameters explored
    (arXiv 1711.09846, section 4.1.1): the same for the same numbers. Raises Refused."""
    section = read(spec_of(study))
    if first + len(parents) > TRIALS_LIMIT:
        expected = f"a study of at most {TRIALS_LIMIT} trials"
        raise Refused(FieldError("schedule.policy", searcher, expected))
    axes = space.axes(section.parameters, section.where)
    # Of many forks each has fewer tries.
    most = max(1, min(_TRIES, space.LOOKS_LIMIT // (axes.looks * max(1, len(parents)))))
    names = exploration.names or explorable(section)
    found = []
    for number, parent in enumerate(parents, first):
        random = np.random.default_rng([section.seed, number, 2])
        had = dict(parent.parameters)
        tries = (dict(neighbor(axes, had, names, exploration, random)) for _ in range(most))
        known = {name: value for name, value in had.items() if name in axes}
        near = next((each for each in tries if axes.allows((*each.items(),))), known)
        left = {name: value for name, value in had.items() if name in near or name not in axes}
        spec = going_on(study, section, parent, number, {**left, **near})
        found.append(replace(spec, proposal=searcher))
    return tuple(found)


def neighbor(
    axes: Mapping[str, space.Axis],
    had: Mapping[str, Setting],
    names: Sequence[str],
    exploration: Exploration,
    random: np.random.Generator,
) -> Iterator[tuple[str, Setting]]:
    """A point near another one, value by value: those of `names` differ."""
    made: dict[str, Setting] = {}
    for name, axis in axes.items():
        # The same numbers are drawn whatever the other axes come to.
        drawn, again = axis.draw(random), random.random() < exploration.resample
        factor = exploration.factors[int(random.integers(len(exploration.factors)))]
        if not axis.is_in(made):
            continue
        if name not in had or (name in names and again):
            made[name] = drawn
        elif name in names:
            made[name] = perturbed(axis, had[name], factor)
        else:
            made[name] = had[name]
        yield name, made[name]


def perturbed(axis: space.Axis, value: Setting, factor: float) -> Setting:
    """A value times a factor, within its axis: where that has few values, the nearest other one in
    that direction, and the same one where these have no order."""
    if isinstance(value, bool | str | tuple):
        return value
    lie, wanted = Coordinates(axis), value * factor
    if lie.size is not None:
        return _stepped(lie, value, wanted)
    ends = (lie.value(0.0), lie.value(1.0))
    if isinstance(axis, space.Quantized):
        wanted = _number(space.nearest_multiple(wanted, axis.q))
    if lie.of(wanted) is not None:
        return wanted
    return min(ends, key=lambda end: abs(_number(end) - wanted))


def _stepped(lie: Coordinates, value: float, wanted: float) -> Setting:
    at = lie.of(value)
    if at is None or not lie.ordered or lie.size is None:
        return value
    beyond = [
        index
        for index in range(lie.size)
        if (_number(lie.value(index)) - value) * (wanted - value) > 0
    ]
    return lie.value(
        min(beyond, key=lambda index: abs(_number(lie.value(index)) - wanted), default=at)
    )


def _number(value: Setting) -> float:
    assert isinstance(value, int | float)
    return value
