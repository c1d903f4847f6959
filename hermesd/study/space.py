"""The search space: from a study's parameters to axes, and from these to points.

Random points depend on the seed and the trial's number alone, so a larger `run_cap` keeps the
earlier points.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import islice, product
from typing import TypeAlias

import numpy as np
from pydantic import ValidationError

from hermesd.core.model import Scalar
from hermesd.refusal import FieldError, Refused, from_pydantic, nearest, one_of, under
from hermesd.study.distributions import AXES, VALUES_LIMIT, Axis, kind_of

Point: TypeAlias = tuple[tuple[str, Scalar], ...]


def axes(parameters: Mapping[str, Mapping[str, object]]) -> dict[str, Axis]:
    """The axes that a study's `parameters` describe. Raises Refused, listing every error."""
    found: dict[str, Axis] = {}
    errors: list[FieldError] = []
    for name, given in parameters.items():
        path = f"parameters.{name}"
        settings = {key: value for key, value in given.items() if key != "distribution"}
        kind = str(given.get("distribution") or _implied(settings))
        if kind not in AXES:
            error = FieldError(f"{path}.distribution", kind, one_of(AXES), nearest(kind, AXES))
            errors.append(error)
            continue
        try:
            found[name] = AXES[kind].model_validate(settings)
        except ValidationError as invalid:
            known = {"": AXES[kind].model_fields}
            errors += under(path, _short(from_pydantic(invalid, known), AXES[kind].model_fields))
    if errors:
        raise Refused(*errors)
    return found


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
            expected = "text, a finite number, true or false"
            error = FieldError(path, error.value, expected)
        seen.setdefault(error.field_path, error)
    return list(seen.values())


def grid(axes: Mapping[str, Axis], cap: int | None, limit: int) -> list[Point]:
    """The points of the full grid, the last axis fastest; the first `cap` of them.

    Raises Refused for an axis without a finite grid and for more than `limit` points.
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
    if min(size, cap or size) > limit:
        expected = f"at most {limit}, or a run_cap"
        errors.append(FieldError("parameters", f"a grid of {size} points", expected))
    if errors:
        raise Refused(*errors)
    columns = [axis.grid() for axis in axes.values()]
    return [tuple(zip(axes, point, strict=True)) for point in islice(product(*columns), cap)]


def draws(axes: Mapping[str, Axis], count: int, seed: int) -> list[Point]:
    """`count` random points."""
    points = []
    for number in range(1, count + 1):
        random = np.random.default_rng([seed, number])
        points.append(tuple((name, axis.draw(random)) for name, axis in axes.items()))
    return points
