"""The hyper-parameters of a trial with which its optimizer was made, and changes of them.

A program that is run again with other arguments makes its optimizer with these. What the checkpoint
then restores over them is set again and read back. A hyper-parameter that is not found among the
optimizer's settings stays in the agent's `changes`, and the trial fails because of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainer_shim.agent import Change

Values = dict[str, Any]

_SAME = {"lr": "learningrate", "wd": "weightdecay", "eps": "epsilon"}


def found(change: Change, made: Values, then: Values | None) -> list[str]:
    """What of the values that an optimizer is `made` with now is the changed hyper-parameter.

    It goes by its name, or it was made with the old value `then` and has the new one. In both cases
    it must have the new one.
    """
    return [
        name
        for name, value in made.items()
        if equal(value, change.now)
        and (
            same_name(name, change.name)
            or (then is not None and change.then is not None and equal(then.get(name), change.then))
        )
    ]


def same_name(one: str, other: str) -> bool:
    """Whether two names are of the same hyper-parameter, as `lr` and `learning_rate` are."""
    return _word(one) == _word(other)


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same, but for the rounding of a number of 32 bits."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-6)
    return type(one) is type(other) and bool(one == other)


def flat(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Each plain value of a configuration, those within it by their path."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{name}.")
        elif value is None or isinstance(value, (bool, int, float, str)):
            yield path + name, value


def _word(name: str) -> str:
    plain = "".join(letter for letter in name.rpartition(".")[2].lower() if letter.isalnum())
    return _SAME.get(plain, plain)
