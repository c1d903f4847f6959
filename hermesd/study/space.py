"""The search space: from a study's parameters to axes, and from axes to points.

Random points depend only on the seed and the trial's number, so a larger `run_cap` keeps the
earlier points.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import islice, product
from typing import Annotated, NoReturn, TypeAlias

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from hermesd.core.model import Scalar, Setting
from hermesd.pieces import AT_ONCE, LOOKED_AT, Pieces, gathered, parts
from hermesd.refusal import FieldError, Refused, from_pydantic, nearest, one_of, under
from hermesd.study.conditions import PointCondition, conditions

# Multiples of a step, as the values of a quantized axis.
#
# A multiple is what a person would write: `0.3`, not 0.30000000000000004, and `30`, not
# 30.0.

# Whole numbers have 64 bits.
MULTIPLES_LIMIT = 2**63


def multiple(k: int, q: float) -> Scalar:
    """k times q without the dust of binary fractions; a whole number if q is one and it fits."""
    if q.is_integer() and abs(k * int(q)) < MULTIPLES_LIMIT:
        return k * int(q)
    return float(k * Decimal(repr(q)))


def nearest_multiple(value: float, q: float) -> Scalar:
    """The multiple of q that is nearest to `value`."""
    count = value / q
    # So many of them lie closer together than floating-point numbers: `value` is one.
    return value if abs(count) >= MULTIPLES_LIMIT else multiple(round(count), q)


# The kinds of axes that a search space may have: those of a W&B sweep, bounds meaning the
# same.
#
# Each checks its own settings and draws from the generator that it is given.

VALUES_LIMIT = 10_000
LARGEST_EXPONENT = 700.0

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Plain = StrictStr | StrictBool | StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]
Listed = Annotated[tuple[Plain, ...], Field(max_length=VALUES_LIMIT)]
Choices = Annotated[tuple[Plain | Listed, ...], Field(max_length=VALUES_LIMIT)]


class Axis(BaseModel):
    """One hyper-parameter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Those of the other parameters on which it depends, and the values with which it is there.
    when: tuple[tuple[str, Choices], ...] = ()

    def is_in(self, point: Mapping[str, Setting]) -> bool:
        """Whether a point that has these values so far has one of this axis."""
        return all(
            any(_same(point.get(name), value) for value in values) for name, values in self.when
        )

    @property
    def size(self) -> int | None:
        """How many values there are; None: endlessly many, and no `grid`."""
        return None

    def grid(self) -> Sequence[Setting]:
        """All values in order."""
        raise NotImplementedError

    def draw(self, random: np.random.Generator) -> Setting:
        """One value."""
        raise NotImplementedError


def _same(one: Setting | None, other: Setting) -> bool:
    return type(one) is type(other) and one == other


class Quantized(Axis):
    """What the next class draws, rounded to a multiple of q."""

    q: Positive = 1.0

    def draw(self, random: np.random.Generator) -> Scalar:
        value = super().draw(random)
        assert isinstance(value, float)
        return nearest_multiple(value, self.q)


class Constant(Axis):
    """Always the same."""

    value: Plain | Listed

    @property
    def size(self) -> int:
        return 1

    def grid(self) -> Sequence[Setting]:
        return (self.value,)

    def draw(self, random: np.random.Generator) -> Setting:
        return self.value


class Categorical(Axis):
    """One of the values, each as likely as the others unless probabilities are given."""

    values: Annotated[tuple[Plain | Listed, ...], Field(min_length=1, max_length=VALUES_LIMIT)]
    probabilities: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Categorical:
        if len({(type(value), value) for value in self.values}) < len(self.values):
            raise ValueError("values that differ from each other")
        if self.probabilities and len(self.probabilities) != len(self.values):
            raise ValueError(f"as many probabilities as values ({len(self.values)})")
        if self.probabilities and not math.isclose(sum(self.probabilities), 1, abs_tol=1e-6):
            raise ValueError("probabilities that add up to 1")
        return self

    @property
    def size(self) -> int:
        return len(self.values)

    def grid(self) -> Sequence[Setting]:
        return self.values

    def draw(self, random: np.random.Generator) -> Setting:
        if not self.probabilities:
            return self.values[int(random.integers(len(self.values)))]
        return self.values[int(self._bounds.searchsorted(random.random(), side="right"))]

    @cached_property
    def _bounds(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Where each value's part of the numbers from 0 to 1 ends."""
        bounds = (np.array(self.probabilities) / sum(self.probabilities)).cumsum()
        bounds /= bounds[-1]
        return bounds


class IntUniform(Axis):
    """A whole number from min to max, both included."""

    min: Whole
    max: Whole

    @model_validator(mode="after")
    def _is_ordered(self) -> IntUniform:
        _ordered(self.min, self.max)
        return self

    @property
    def size(self) -> int:
        return self.max - self.min + 1

    def grid(self) -> Sequence[Scalar]:
        return range(self.min, self.max + 1)

    def draw(self, random: np.random.Generator) -> Scalar:
        return int(random.integers(self.min, self.max, endpoint=True))


class Uniform(Axis):
    """A number from min to max."""

    min: Finite
    max: Finite

    @model_validator(mode="after")
    def _is_ordered(self) -> Uniform:
        _ordered(self.min, self.max)
        return self

    def draw(self, random: np.random.Generator) -> Scalar:
        return float(random.uniform(self.min, self.max))


class QUniform(Axis):
    """A multiple of q from min to max."""

    min: Finite
    max: Finite
    q: Positive = 1.0

    @model_validator(mode="after")
    def _is_ordered(self) -> QUniform:
        _ordered(self.min, self.max)
        if max(abs(self.min), abs(self.max)) / self.q >= MULTIPLES_LIMIT:
            raise ValueError(f"a q of more than a 2^63th of the bounds, not {self.q:g}")
        if self._first > self._last:
            raise ValueError(f"a multiple of q = {self.q:g} between min and max")
        return self

    @property
    def _first(self) -> int:
        return math.ceil(self.min / self.q - 1e-9)

    @property
    def _last(self) -> int:
        return math.floor(self.max / self.q + 1e-9)

    @property
    def size(self) -> int:
        return self._last - self._first + 1

    def grid(self) -> Sequence[Scalar]:
        return [multiple(k, self.q) for k in range(self._first, self._last + 1)]

    def draw(self, random: np.random.Generator) -> Scalar:
        k = round(float(random.uniform(self.min, self.max)) / self.q)
        return multiple(min(max(k, self._first), self._last), self.q)


class LogUniform(Axis):
    """e to a power from min to max: the bounds are exponents."""

    min: Annotated[Finite, Field(ge=-LARGEST_EXPONENT)]
    max: Annotated[Finite, Field(le=LARGEST_EXPONENT)]

    @model_validator(mode="after")
    def _is_ordered(self) -> LogUniform:
        _ordered(self.min, self.max)
        return self

    def draw(self, random: np.random.Generator) -> Scalar:
        return math.exp(random.uniform(self.min, self.max))


class QLogUniform(Quantized, LogUniform):
    """Likewise, rounded to a multiple of q."""


class InvLogUniform(LogUniform):
    """A number whose inverse is e to a power from min to max."""

    def draw(self, random: np.random.Generator) -> Scalar:
        return math.exp(-random.uniform(self.min, self.max))


class LogUniformValues(Axis):
    """A number from min to max, as likely in each decade: the bounds are values."""

    min: Positive
    max: Positive

    @model_validator(mode="after")
    def _is_ordered(self) -> LogUniformValues:
        _ordered(self.min, self.max)
        return self

    def draw(self, random: np.random.Generator) -> Scalar:
        value = math.exp(random.uniform(math.log(self.min), math.log(self.max)))
        return min(max(value, self.min), self.max)


class InvLogUniformValues(LogUniformValues):
    """A number whose inverse is as likely in each decade from 1/max to 1/min: so is the number."""


class QLogUniformValues(Quantized, LogUniformValues):
    """A number as likely in each decade, rounded to a multiple of q."""


class Normal(Axis):
    """Normally distributed."""

    mu: Finite = 0.0
    sigma: Positive = 1.0

    def draw(self, random: np.random.Generator) -> Scalar:
        return float(random.normal(self.mu, self.sigma))


class QNormal(Quantized, Normal):
    """Normally distributed, rounded to a multiple of q."""


class LogNormal(Normal):
    """e to a normally distributed power."""

    def draw(self, random: np.random.Generator) -> Scalar:
        return math.exp(min(random.normal(self.mu, self.sigma), LARGEST_EXPONENT))


class QLogNormal(Quantized, LogNormal):
    """Likewise, rounded to a multiple of q."""


AXES: Mapping[str, type[Axis]] = {
    "constant": Constant,
    "categorical": Categorical,
    "int_uniform": IntUniform,
    "uniform": Uniform,
    "q_uniform": QUniform,
    "log_uniform": LogUniform,
    "log_uniform_values": LogUniformValues,
    "q_log_uniform_values": QLogUniformValues,
    "normal": Normal,
    "q_normal": QNormal,
    "log_normal": LogNormal,
    "q_log_uniform": QLogUniform,
    "inv_log_uniform": InvLogUniform,
    "inv_log_uniform_values": InvLogUniformValues,
    "q_log_normal": QLogNormal,
}


def _ordered(low: float, high: float) -> None:
    if not low < high:
        raise ValueError(f"min < max, not {low:g} and {high:g}")
    if not math.isfinite(high - low):
        raise ValueError(f"min and max closer together, not {low:g} and {high:g}")


def kind_of(axis: Axis) -> str:
    """The name of an axis' distribution."""
    return next(name for name, kind in AXES.items() if kind is type(axis))


Point: TypeAlias = tuple[tuple[str, Setting], ...]


class Space(dict[str, Axis]):
    """The axes by name, and the conditions on the values of a point together."""

    where: tuple[PointCondition, ...] = ()

    @property
    def looks(self) -> int:
        """What it takes to make a point and to see whether it meets the conditions: its values, and
        the parts of these, each as dear as the dearest value that they are about."""
        costs = {name: _axis_cost(axis) for name, axis in self.items()}
        parts = (
            condition.size * max(costs[name] for name in condition.names)
            for condition in self.where
        )
        return max(1, sum(costs.values()) + sum(parts))

    def allows(self, point: Point) -> bool:
        """Whether a point meets all conditions. Raises Refused where they can't be calculated."""
        values = dict(point) if self.where else {}
        return all(condition.holds(values) for condition in self.where)


def axes(parameters: Mapping[str, Mapping[str, object]], where: Iterable[str] = ()) -> Space:
    """The axes that a study's `parameters` describe, and the conditions on them.

    Raises Refused, listing every error.
    """
    found = Space()
    errors: list[FieldError] = []
    for name, given in parameters.items():
        path = f"parameters.{name}"
        settings = {key: value for key, value in given.items() if key not in _NO_SETTINGS}
        when, wrong = _conditions(f"{path}.when", given.get("when"), found, parameters)
        errors += wrong
        kind = str(given.get("distribution") or _implied(settings))
        if kind not in AXES:
            error = FieldError(f"{path}.distribution", kind, one_of(AXES), nearest(kind, AXES))
            errors.append(error)
            continue
        try:
            found[name] = AXES[kind].model_validate({**settings, **when})
        except ValidationError as invalid:
            known = {"": AXES[kind].model_fields}
            errors += under(path, _short(from_pydantic(invalid, known), AXES[kind].model_fields))
    if errors:
        raise Refused(*errors)
    found.where = conditions(where, found)
    return found


_NO_SETTINGS = ("distribution", "when")


def _conditions(
    path: str, given: object, above: Mapping[str, Axis], all_of_them: Iterable[str]
) -> tuple[dict[str, object], list[FieldError]]:
    """The setting `when` of an axis below those `above`, and what is wrong with it."""
    if not isinstance(given, Mapping):
        return {}, []
    errors = []
    pairs = tuple(
        (name, tuple(tuple(one) if isinstance(one, list) else one for one in condition["values"]))
        for name, condition in given.items()
    )
    for name, values in pairs:
        axis = above.get(name)
        if axis is None:
            there = [*all_of_them]
            expected = "a parameter that is written above it"
            near = "" if name in there else nearest(name, above)
            errors.append(FieldError(f"{path}.{name}", "", expected, near))
        elif axis.size is not None and axis.size <= VALUES_LIMIT:
            known = axis.grid()
            for value in values:
                if not any(_same(value, each) for each in known):
                    there = [_written(each) for each in known]
                    said = _written(value)
                    near = nearest(said, there)
                    errors.append(FieldError(f"{path}.{name}", said, one_of(there), near))
    return {"when": pairs} if pairs else {}, errors


def _written(value: Setting) -> str:
    """A value as a study file has it."""
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _implied(settings: Mapping[str, object]) -> str:
    """The distribution that is meant when none is named, as a W&B sweep has it."""
    if "values" in settings:
        return "categorical"
    if not {"min", "max", "q"} & set(settings):
        return "constant"
    if "q" in settings:
        return "q_uniform"
    whole = all(type(settings.get(bound)) is int for bound in ("min", "max"))
    return "int_uniform" if whole else "uniform"


def _short(errors: tuple[FieldError, ...], fields: Container[str]) -> list[FieldError]:
    """One error a value: pydantic has one for each type that a value might have had, and misses
    those that will not do where it counts them."""
    seen: dict[str, FieldError] = {}
    for error in errors:
        head, *rest = error.field_path.split(".")
        if head == "values" and not rest and any(path.startswith("values[") for path in seen):
            continue
        if head in fields and head in ("value", "values") and (rest or head == "value"):
            index = [part for part in rest if part.isdigit()][:1]
            path = f"{head}[{index[0]}]" if index else head
            expected = "text, a finite number, true or false, or a list of these"
            error = FieldError(path, error.value, expected)
        seen.setdefault(error.field_path, error)
    return list(seen.values())


# What the points of a study may come to: each value is kept in memory, journaled, and sent to
# whoever looks at the study.
#
# This is known before the first point is made.

COST_LIMIT = 1_000_000
# So often a point is drawn that is to meet a study's conditions.
DRAWS_LIMIT = 1_000
# So many values, and parts of conditions, are looked at to find all points that meet these: a few
# seconds of work.
LOOKS_LIMIT = 2_000_000
# So much text costs as much as a number.
_TEXT_LETTERS = 32


def see_that_it_fits(axes: Mapping[str, Axis], count: int) -> None:
    """See that so many points may be made. Raises Refused."""
    cost = sum(map(_axis_cost, axes.values()))
    if cost * count > COST_LIMIT:
        most = COST_LIMIT // cost
        value = f"{len(axes)} parameters for {count} trials"
        fitting = f"at most {most} trials of these parameters" if most else "fewer or shorter ones"
        expected = f"{fitting}: a study has at most {COST_LIMIT:,} values in all, long text and"
        raise Refused(FieldError("parameters", value, f"{expected} lists counting as several"))


def _axis_cost(axis: Axis) -> int:
    """Of the dearest of its values."""
    match axis:
        case Constant():
            return _cost(axis.value)
        case Categorical():
            return max(map(_cost, axis.values))
        case _:
            return 1


def _cost(value: Setting) -> int:
    match value:
        case str():
            return 1 + len(value) // _TEXT_LETTERS
        case tuple():
            return 1 + sum(map(_cost, value))
        case _:
            return 1


def grid(axes: Space, cap: int | None, limit: int) -> Pieces[list[Point]]:
    """The points of the full grid, the last axis fastest; the first `cap` of them.

    Raises Refused for an axis without a finite grid, for more than `limit` points, and for none.
    """
    errors = []
    size = 1
    for name, axis in axes.items():
        if axis.size is None:
            expected = "values, int_uniform or q_uniform (or method: random with a run_cap)"
            errors.append(FieldError(f"parameters.{name}.distribution", kind_of(axis), expected))
        elif axis.size > VALUES_LIMIT:
            expected = f"at most {VALUES_LIMIT} values in a grid"
            errors.append(FieldError(f"parameters.{name}", f"{axis.size} values", expected))
        size *= axis.size or 1
    count = min(size, cap or size)
    if count > limit and not axes.where:
        expected = f"at most {limit}, or a run_cap"
        errors.append(FieldError("parameters", f"a grid of {size} points", expected))
    if errors:
        raise Refused(*errors)
    if not axes.where and not any(axis.when for axis in axes.values()):
        see_that_it_fits(axes, count)
        return (yield from gathered(islice(_product(axes), cap), LOOKED_AT))
    if size > (enough := LOOKS_LIMIT // axes.looks):
        what = "`where` takes away" if axes.where else "`when` makes equal"
        expected = f"at most {enough:,} points of these parameters, those counted that {what}"
        raise Refused(FieldError("parameters", f"a grid of {size:,} points", expected))
    left = yield from _distinct(axes)
    found: list[Point] = []
    most = min(cap or limit + 1, limit + 1)
    for some in parts(left, LOOKED_AT):
        found += filter(axes.allows, some)
        yield
        if len(found) >= most:
            del found[most:]
            break
    if not found:
        why = f"none of the {len(left):,} points of the grid does"
        _refuse_conditions(axes, f"conditions that some point meets: {why}")
    if len(found) > limit:
        expected = f"at most {limit}, or a run_cap"
        raise Refused(FieldError("parameters", f"a grid of more than {limit} points", expected))
    see_that_it_fits(axes, len(found))
    return found


def _product(axes: Space) -> Iterator[Point]:
    columns = [axis.grid() for axis in axes.values()]
    return (tuple(zip(axes, point, strict=True)) for point in product(*columns))


def _distinct(axes: Space) -> Pieces[dict[Point, None]]:
    """The points of a grid, each once, whatever the conditions."""
    points: dict[Point, None] = {}
    for some in parts(_product(axes), LOOKED_AT):
        points.update(dict.fromkeys(_without_absent(axes, point) for point in some))
        yield
    return points


def fallen_out(axes: Space) -> Pieces[tuple[int, int]]:
    """How many points of a grid do not meet the conditions, and of how many."""
    points = yield from _distinct(axes)
    met = 0
    for some in parts(points, LOOKED_AT):
        met += sum(map(axes.allows, some))
        yield
    return len(points) - met, len(points)


def draws(axes: Space, count: int, seed: int, first: int = 1) -> Pieces[list[Point]]:
    """`count` random points, those of the trials from number `first` on.

    Raises Refused for more values than a study may have, and where no point is found.
    """
    see_that_it_fits(axes, count)
    points = drawn_for(axes, seed, range(first, first + count))
    # Where conditions are to be met, a single point may take a thousand attempts.
    return (yield from gathered(points, 1 if axes.where else AT_ONCE))


def drawn(axes: Space, seed: int, number: int) -> Point:
    """The random point of the trial of this number. Raises Refused where none is found."""
    return next(drawn_for(axes, seed, [number]))


def drawn_for(axes: Space, seed: int, numbers: Iterable[int]) -> Iterator[Point]:
    """The random points of the trials of these numbers. Raises Refused where not all are found."""
    left = LOOKS_LIMIT // axes.looks
    for found, number in enumerate(numbers):
        tries = 0
        for point in islice(attempts(axes, seed, number), min(DRAWS_LIMIT, left)):
            tries += 1
            if axes.allows(point):
                yield point
                break
        else:
            _refuse_rare(axes, tries, LOOKS_LIMIT // axes.looks - left, found)
        left -= tries


def _refuse_rare(axes: Space, tries: int, before: int, found: int) -> NoReturn:
    if tries == DRAWS_LIMIT:
        why = f"some point meets: of {DRAWS_LIMIT:,} that were drawn none does"
    else:
        why = f"more points meet: of {before + tries:,} that were drawn {found:,} do"
    _refuse_conditions(axes, f"conditions that {why}")


def attempts(axes: Space, seed: int, number: int) -> Iterator[Point]:
    """The points that are drawn for the trial of this number, until one meets the conditions."""
    random = np.random.default_rng([seed, number])
    while True:
        yield _without_absent(axes, [(name, axis.draw(random)) for name, axis in axes.items()])


def _refuse_conditions(axes: Space, expected: str) -> NoReturn:
    texts = "; ".join(condition.text for condition in axes.where)
    raise Refused(FieldError("where", texts, expected))


def _without_absent(axes: Mapping[str, Axis], full: Iterable[tuple[str, Setting]]) -> Point:
    """A point without the parameters whose condition it does not meet."""
    point: dict[str, Setting] = {}
    for name, value in full:
        if axes[name].is_in(point):
            point[name] = value
    return tuple(point.items())
