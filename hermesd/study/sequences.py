"""Parameters that change while a trial trains: from a study's `sequence`s to a trial's stages.

A sequence takes its numbers from the point's values of the parameters that it names. So those are
axes like any others, for any search; they describe the sequence, and are not passed to the program.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Annotated, Literal, Self, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hermesd.core.model import Scalar, Setting, Stage
from hermesd.refusal import FieldError, Refused, from_pydantic, shown, under
from hermesd.study.space import VALUES_LIMIT, Plain, Point

# A step, as the wire has it.
_STEPS_LIMIT = 2**53

Value: TypeAlias = Plain  # a number, or the name of another parameter
Span: TypeAlias = tuple[int | None, Scalar]  # until when, and what until then


class Sequence(BaseModel):
    """How a parameter changes; what is what, types.proto says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    values: Annotated[tuple[Value, ...], Field(max_length=VALUES_LIMIT)] = ()
    start: Value | None = None
    times: Value | None = None
    after: Annotated[tuple[Value, ...], Field(max_length=VALUES_LIMIT)] = ()
    at: Annotated[tuple[Value, ...], Field(max_length=VALUES_LIMIT)] = ()
    to: Value | None = None
    over: Value | None = None
    every: Value | None = None
    shape: Literal["linear", "cosine"] = "linear"
    period: Value | None = None
    warmup: Value | None = None
    steps_per_epoch: Annotated[int, Field(ge=1, le=_STEPS_LIMIT)] = 1

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if bool(self.values) == (self.start is not None):
            raise ValueError("either `values`, one after the other, or a `start`")
        if self.start is not None and (self.times is None) == (self.to is None):
            raise ValueError("beside `start` either `times`, a factor, or `to`, a last value")
        if self.values and (self.times is not None or self.to is not None):
            raise ValueError("`values` without `times` and `to`")
        ends = [name for name in ("after", "at", "over") if getattr(self, name) not in ((), None)]
        if len(ends) != 1 and len(self.values) != 1:
            raise ValueError("one of `after`, `at` and `over`, which say when it changes")
        if (self.to is not None or self.every is not None) and "over" not in ends:
            raise ValueError("`over` (how long the change takes) beside `to` or `every`")
        if self.values and "over" in ends:
            raise ValueError("`after` or `at` beside `values`")
        if self.values and len(self.values) != 1 + len(self.after) + len(self.at):
            expected = len(self.values) - 1
            raise ValueError(f"one value more than changes: {expected} in `after` or `at`")
        if self.period is not None and self.to is None:
            raise ValueError("a `to` beside `period`: it goes back and forth between two values")
        return self

    @property
    def parts(self) -> Iterator[Value]:
        """All that may be the name of a parameter."""
        one = (self.start, self.times, self.to, self.over, self.every, self.period, self.warmup)
        yield from (*self.values, *self.after, *self.at)
        yield from (each for each in one if each is not None)


def sequences(given: Mapping[str, Mapping[str, object]]) -> dict[str, Sequence]:
    """The sequences by the parameters that they are of. Raises Refused, listing every error."""
    found: dict[str, Sequence] = {}
    errors: list[FieldError] = []
    for name, settings in given.items():
        path = f"parameters.{name}.sequence"
        try:
            found[name] = Sequence.model_validate(settings)
        except ValidationError as invalid:
            keys = {"": Sequence.model_fields}
            first = {e.field_path.split(".")[0]: e for e in from_pydantic(invalid, keys)}
            errors += under(path, first.values())
    if errors:
        raise Refused(*errors)
    return found


def shape_of(given: Mapping[str, Sequence], axes: Iterable[str]) -> tuple[str, ...]:
    """Which of the parameters the sequences are made of."""
    parts = {part for each in given.values() for part in each.parts if isinstance(part, str)}
    return tuple(name for name in axes if name in parts)


def stages(given: Mapping[str, Sequence], point: Point) -> tuple[Stage, ...]:
    """The stages of a trial at a point, of which the first has the whole point.

    Raises Refused for a sequence that makes no sense there.
    """
    if not given:
        return (Stage(None, point),)
    values, errors = dict(point), []
    spans: dict[str, list[Span]] = {}
    for name, sequence in given.items():
        try:
            spans[name] = list(_merged(_Reading(sequence, values).spans()))
        except _Wrong as wrong:
            path = f"parameters.{name}.sequence.{wrong.field}"
            errors.append(FieldError(path, wrong.value, wrong.expected))
        except OverflowError:
            path = f"parameters.{name}.sequence.times"
            errors.append(FieldError(path, shown(sequence.times), "values that are finite"))
    if errors:
        raise Refused(*errors)
    ends = sorted({until for each in spans.values() for until, _ in each if until is not None})
    found = []
    own = {name: [until for until, _ in each if until is not None] for name, each in spans.items()}
    for begin, until in pairwise([0, *ends, None]):
        assert begin is not None
        now = tuple((n, each[bisect_right(own[n], begin)][1]) for n, each in spans.items())
        found.append(Stage(until, now if begin else (*point, *now)))
    return tuple(found)


class _Wrong(Exception):
    """A field of a sequence that makes no sense with the values of a point."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(field)
        self.field, self.value, self.expected = field, shown(value), expected


class _Reading:
    """A sequence at a point, whose values stand for their names."""

    def __init__(self, sequence: Sequence, point: Mapping[str, Setting]) -> None:
        self._of, self._point = sequence, point

    def spans(self) -> Iterator[Span]:
        """Each value, and the step until which it is in force."""
        rest, warmup = list(self._spans()), self._length("warmup", 0)
        unit = self._of.steps_per_epoch
        if warmup:
            first = self._number("start", rest[0][1])
            every = self._length("every", 1)
            for begin in range(0, warmup, every):
                end = min(begin + every, warmup)
                yield end * unit, first * end / (warmup + every)
        last = 0
        for until, value in rest:
            if until is not None and not last < until * unit <= _STEPS_LIMIT:
                field = "at" if self._of.at else "after"
                expected = "each change later than the one before, and after at least one step"
                raise _Wrong(field, until, expected)
            last = last if until is None else until * unit
            yield None if until is None else (until + warmup) * unit, value

    def _spans(self) -> Iterator[Span]:
        of = self._of
        if of.over is not None:
            yield from self._on_the_way()
            return
        if of.at:
            ends = [self._count("at", each) for each in of.at]
        else:
            ends = list(accumulate(self._count("after", each) for each in of.after))
        if of.values:
            values = [self._plain("values", each) for each in of.values]
            self._see_that_they_are_alike(values)
        else:
            start, times = self._number("start", of.start), self._number("times", of.times)
            values = [_rounded(start * times**index) for index in range(len(ends) + 1)]
        yield from zip([*ends, None], values, strict=True)

    def _see_that_they_are_alike(self, values: Collection[Scalar]) -> None:
        """A word beside numbers is a misspelled parameter; nobody would see it before its step."""
        others = [each for each in values if isinstance(each, bool | str)]
        if others and any(not isinstance(each, bool | str) for each in values):
            raise _Wrong(
                "values", others[0], "a number like the others, or a parameter that is one"
            )

    def _on_the_way(self) -> Iterator[Span]:
        """A value for each `every`, and the last one to the end."""
        of = self._of
        over, every = self._length("over", 0), self._length("every", 1)
        if over // every > VALUES_LIMIT:
            raise _Wrong("every", every, f"at most {VALUES_LIMIT} changes over {over}")
        start = self._number("start", of.start)
        period = self._length("period", 2 * over) if of.to is not None else 0
        for begin in range(0, over, every):
            if of.times is not None:
                value = start * self._number("times", of.times) ** (begin // every)
            else:
                value = self._between(start, 2 * begin / period)
            yield min(begin + every, over), _rounded(value)
        if of.times is not None:
            steps = math.ceil(over / every)
            yield None, _rounded(start * self._number("times", of.times) ** steps)
        else:
            yield None, _rounded(self._between(start, 2 * over / period))

    def _between(self, start: float, way: float) -> float:
        """The value at a part of the way there, and from 1 to 2 of the way back."""
        part = way % 2
        part = 2 - part if part > 1 else part
        if self._of.shape == "cosine":
            part = (1 - math.cos(math.pi * part)) / 2
        return start + (self._number("to", self._of.to) - start) * part

    def _plain(self, field: str, given: object) -> Scalar:
        value = self._point.get(given, given) if isinstance(given, str) else given
        if isinstance(value, tuple) or value is None:
            raise _Wrong(field, value, "a single value, not a list")
        return cast(Scalar, value)

    def _number(self, field: str, given: object) -> float:
        value = self._plain(field, given)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Wrong(field, value, "a number, or a parameter that is one")
        return value

    def _count(self, field: str, given: object) -> int:
        value = self._number(field, given)
        if value != int(value) or not 1 <= value <= _STEPS_LIMIT:
            raise _Wrong(field, value, "a whole number of 1 or more, of steps or epochs")
        return int(value)

    def _length(self, field: str, default: int) -> int:
        given = getattr(self._of, field)
        return default if given is None else self._count(field, given)


def _rounded(value: float) -> float:
    """Without the dust of binary fractions: 0.1 x 0.1 is 0.01, as a person would write it."""
    return value if isinstance(value, int) else float(f"{value:.12g}")


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans of the same value as one."""
    last: Span | None = None
    for span in spans:
        if last is not None and (type(last[1]), last[1]) != (type(span[1]), span[1]):
            yield last
        last = span
    if last is not None:
        yield (None, last[1])
