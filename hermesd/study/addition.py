"""Which trials a study gets when more are added: points of its space, or of a changed one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import tee

from hermesd.core.model import Study, TrialSpec
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.pieces import Pieces, gathered
from hermesd.refusal import FieldError, Refused
from hermesd.study import argv, space
from hermesd.study.extension import unknown
from hermesd.study.spec import StudySection, leaves, plain, read
from hermesd.study.submission import TRIALS_LIMIT, given, numbered, spec_of, staged


@dataclass(frozen=True, slots=True)
class Addition:
    """The further trials of a study, and what to say of them."""

    trials: tuple[TrialSpec, ...]
    notes: tuple[str, ...] = ()


def addition(
    study: Study,
    trials: Sequence[TrialSpec],
    parameters: Sequence[pb.Parameter],
    new: Sequence[pb.Parameter] = (),
    count: int | None = None,
) -> Pieces[Addition]:
    """Further points of the study's space, in which `parameters` stand in the place of its own.

    `new` are arguments of the program that are no parameters yet. A grid gives those of its points
    that no trial has, at most `count`. Where an axis is drawn, `count` points are: those that the
    study would have had with a larger `run_cap`, where no axis was changed. Raises Refused, with
    every error found.
    """
    changed = [*parameters, *new]
    plain(pb.StudySpec(parameters=changed))  # raises for a name that is there twice
    spec = spec_of(study)
    axes = leaves(spec)
    known = {*axes, *(name for trial in trials for name, _ in trial.parameters)}
    allowed = known | {each.name for each in new}
    if errors := [unknown(each.name, "", known) for each in parameters if each.name not in allowed]:
        raise Refused(*errors)
    for each in changed:
        axis = axes.get(each.name) or spec.parameters.add()
        name, when = axis.name or each.name, [*axis.when]
        axis.CopyFrom(each)
        axis.name = name
        axis.when.extend(() if each.when else when)
    section = read(spec)
    chosen = {each.name for each in changed}
    points, notes = yield from _points(
        space.axes(section.parameters, section.where),
        chosen if section.method != "grid" else None,
        section.seed,
        trials,
        count,
    )
    specs = yield from gathered(_at(study, section, points, len(trials) + 1))
    return Addition(tuple(specs), notes)


def _at(
    study: Study, section: StudySection, points: Iterable[space.Point], first: int
) -> Iterator[TrialSpec]:
    """The trials from number `first` on, at these points. Raises Refused for a sequence that makes
    no sense there."""
    each, shape = staged(section, points)
    stages, alike = tee(each)
    lines = argv.build_all(section, dict(study.program.environment), given(alike, shape))
    return numbered(study, stages, shape, lines, section.seed, first)


def proposed(
    study: Study, first: int, proposals: Iterable[tuple[space.Point, str]]
) -> tuple[TrialSpec, ...]:
    """The trials from number `first` on, at the points that a searcher proposed, each with what
    that noted of it. Raises Refused for a sequence that makes no sense there."""
    points, notes = zip(*proposals, strict=True)
    specs = _at(study, read(spec_of(study)), points, first)
    return tuple(replace(spec, proposal=note) for spec, note in zip(specs, notes, strict=True))


def drawn(study: Study, first: int, count: int) -> Pieces[list[space.Point]]:
    """Points drawn at random for so many trials from number `first` on."""
    section = read(spec_of(study))
    axes = space.axes(section.parameters, section.where)
    return space.draws(axes, count, section.seed, first)


def axes_of(trial: TrialSpec) -> space.Point:
    """The point without the first values of its sequences, which follow from it."""
    changing = {name for stage in trial.sequences for name, _ in stage.values}
    return tuple(each for each in trial.parameters if each[0] not in changing)


def _points(
    axes: space.Space,
    chosen: Collection[str] | None,
    seed: int,
    trials: Sequence[TrialSpec],
    count: int | None,
) -> Pieces[tuple[list[space.Point], tuple[str, ...]]]:
    """The points, and what to say of them. `chosen` are the axes that a random search is given by
    hand; None: the study is a grid."""
    room = TRIALS_LIMIT - len(trials)
    if count is not None and not 1 <= count <= room:
        expected = f"1 to {room}, as a study has at most {TRIALS_LIMIT} trials"
        raise Refused(FieldError("count", str(count), expected))
    drawn = [
        name
        for name, axis in axes.items()
        if axis.size is None or (chosen is not None and name not in chosen and axis.size > 1)
    ]
    if drawn and count is None:
        expected = f"how many trials to draw (--trials 20), as {drawn[0]} is drawn at random"
        raise Refused(FieldError("count", "", expected))
    if drawn and count is not None:
        return (yield from space.draws(axes, count, seed, first=len(trials) + 1)), ()
    # Of so many, as many as are wanted are new.
    enough = None if count is None else len(trials) + count
    keys = yield from gathered(_key(axes_of(trial)) for trial in trials)
    had = dict(zip(keys, trials, strict=True))
    grid = yield from space.grid(axes, enough, TRIALS_LIMIT)
    keys = yield from gathered(map(_key, grid))
    fresh = [point for point, key in zip(grid, keys, strict=True) if key not in had]
    if not fresh:
        first = had[_key(grid[0])].id
        expected = f"a point that no trial of the study has; {first} is there already"
        raise Refused(FieldError("parameters", "", expected))
    if len(fresh[:count]) > room:
        expected = f"at most {room} more, as a study has at most {TRIALS_LIMIT} trials"
        raise Refused(FieldError("parameters", f"{len(fresh)} points", expected))
    twice = len(grid) - len(fresh) if count is None else 0
    notes = (f"{twice} more of these points are trials of the study already",) if twice else ()
    return fresh[:count], notes


def _key(point: space.Point) -> frozenset[tuple[str, type, object]]:
    """The same for the same values of the same types, in whichever order."""
    return frozenset((name, type(value), value) for name, value in point)
