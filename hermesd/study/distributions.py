"""The kinds of axes that a search space may have: those of a W&B sweep, bounds meaning the same.

Each checks its own settings and draws from the generator that it is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from hermesd.core.model import Scalar
from hermesd.study.multiples import MULTIPLES_LIMIT, multiple, nearest_multiple

VALUES_LIMIT = 10_000
LARGEST_EXPONENT = 700.0

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Plain = StrictStr | StrictBool | StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]


class Axis(BaseModel):
    """One hyper-parameter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def size(self) -> int | None:
        """How many values there are; None: endlessly many, and no `grid`."""
        return None

    def grid(self) -> Sequence[Scalar]:
        """All values in order."""
        raise NotImplementedError

    def draw(self, random: np.random.Generator) -> Scalar:
        """One value."""
        raise NotImplementedError


class Quantized(Axis):
    """What the next class draws, rounded to a multiple of q."""

    q: Positive = 1.0

    def draw(self, random: np.random.Generator) -> Scalar:
        value = super().draw(random)
        assert isinstance(value, float)
        return nearest_multiple(value, self.q)


class Constant(Axis):
    """Always the same."""

    value: Plain

    @property
    def size(self) -> int:
        return 1

    def grid(self) -> Sequence[Scalar]:
        return (self.value,)

    def draw(self, random: np.random.Generator) -> Scalar:
        return self.value


class Categorical(Axis):
    """One of the values, each as likely as the others unless probabilities are given."""

    values: Annotated[tuple[Plain, ...], Field(min_length=1, max_length=VALUES_LIMIT)]
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

    def grid(self) -> Sequence[Scalar]:
        return self.values

    def draw(self, random: np.random.Generator) -> Scalar:
        if not self.probabilities:
            return self.values[int(random.integers(len(self.values)))]
        weights = np.array(self.probabilities) / sum(self.probabilities)
        return self.values[int(random.choice(len(self.values), p=weights))]


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
        raise ValueError(f"min and max less far apart, not {low:g} and {high:g}")


def kind_of(axis: Axis) -> str:
    """The name of an axis' distribution."""
    return next(name for name, kind in AXES.items() if kind is type(axis))
