"""Makes a new trial that goes on from where another one is, with other hyper-parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hermesd.core.lengths import is_length
from hermesd.core.model import Setting, Study, TrialSpec
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.refusal import FieldError, Refused, nearest, one_of, shown
from hermesd.study import argv, space
from hermesd.study.coordinates import ends
from hermesd.study.extension import changed_values, unknown
from hermesd.study.spec import StudySection, read
from hermesd.study.submission import TRIALS_LIMIT, spec_of


def fork(
    study: Study,
    parent: TrialSpec,
    number: int,
    parameters: Sequence[pb.NamedValue],
    new: Sequence[pb.NamedValue] = (),
) -> TrialSpec:
    """The trial of this number: as `parent`, but for these values.

    Whether a value can be put into effect shows in the program, where the agent sees to it. Raises
    Refused.
    """
    if number > TRIALS_LIMIT:
        expected = f"a study with fewer trials than {TRIALS_LIMIT}, the most that one may have"
        raise Refused(FieldError("trial", parent.id, expected))
    changed = changed_values([*parameters, *new])
    section = read(spec_of(study))
    axes, had, errors = space.axes(section.parameters), dict(parent.parameters), []
    fixed = {name for stage in parent.sequences for name, _ in stage.values} | {*parent.shape}
    beyond = {each.name for each in new}
    for name, value in changed.items():
        before = had.get(name)
        if name not in had and name not in beyond:
            errors.append(unknown(name, shown(value), had))
        elif name in fixed:
            expected = "a parameter without a sequence, whose changes are planned"
            errors.append(FieldError(f"parameters.{name}", shown(value), expected))
        elif (
            is_length(name)
            and isinstance(before, int | float)
            and isinstance(value, int | float)
            and value < before
        ):
            expected = f"at least {before:g}, which it has planned"
            errors.append(FieldError(f"parameters.{name}", shown(value), expected))
        elif is_length(name) or name in beyond or name not in axes:
            continue
        elif (missed := _missed(name, axes[name], value)) is not None:
            errors.append(missed)
    if errors:
        raise Refused(*errors)
    return going_on(study, section, parent, number, {**had, **changed})


def _missed(name: str, axis: space.Axis, value: Setting) -> FieldError | None:
    """What is wrong with a value that the axis can't have. A list of numbers is no range: what lies
    between them, or beyond, is what a fork may be to try."""
    listed = axis.values if isinstance(axis, space.Categorical) else ()
    words = [str(each) for each in listed if isinstance(each, bool | str | tuple)]
    whole = isinstance(axis, space.IntUniform)
    bounds = ends(axis)
    if words:
        fits, expected = value in listed, one_of([str(each) for each in listed])
    else:
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        expected = "a whole number" if whole else "a number"
    if bounds is not None:
        expected += f" from {bounds[0]:g} to {bounds[1]:g}"
        fits = fits and _is_between(bounds, value)  # type: ignore[arg-type]
    if fits or isinstance(axis, space.Constant):
        return None
    expected += f", as in the study; to go on with another, give --new {name}=VALUE"
    near = nearest(str(value), words)
    return FieldError(f"parameters.{name}", shown(value), expected, near)


def _is_between(ends: tuple[float, float], value: float) -> bool:
    """Whether a value is in a range. An end that was calculated, as that of a range of logarithms
    is, may be off by its last bits."""
    low, high = ends
    return low <= value <= high or any(math.isclose(value, end, rel_tol=1e-12) for end in ends)


def going_on(
    study: Study,
    section: StudySection,
    parent: TrialSpec,
    number: int,
    values: Mapping[str, Setting],
) -> TrialSpec:
    """The trial that goes on where another is, with these values. Raises Refused."""
    first, *later = parent.stages
    point = tuple(values.items())
    given = tuple(each for each in point if each[0] not in parent.shape)
    line = argv.build(section, dict(study.program.environment), given)
    space.see_that_it_fits({name: space.Constant(value=value) for name, value in point}, number)
    return TrialSpec(
        id=f"{study.id}/{number}",
        study=study.id,
        number=number,
        stages=(first._replace(values=point), *later),
        argv=line,
        # What the program draws before its checkpoint is what its parent drew.
        seed=parent.seed,
        shape=parent.shape,
    )
