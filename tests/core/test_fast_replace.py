"""A copy with some fields changed is what the standard library makes of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from hermesd.core.fast_replace import replace
from hermesd.core.model import Phase
from tests.core.playbook import play


@dataclass(frozen=True, slots=True)
class Single:
    value: int


@dataclass(frozen=True, slots=True)
class Positive:
    value: int

    def __post_init__(self) -> None:
        assert self.value > 0


def test_a_copy_has_the_changes_and_all_else() -> None:
    trial = play().trial()
    changes = {"phase": Phase.STOPPED, "step": 7, "reason": "enough"}
    assert replace(trial, **changes) == dataclasses.replace(trial, **changes)
    assert replace(trial) == trial
    assert trial.step == 0


def test_one_field_is_enough() -> None:
    assert replace(Single(1), value=2) == Single(2)
    assert replace(Single((1, 2)), value=3) == Single(3)  # type: ignore[arg-type]


def test_what_is_no_field_is_refused() -> None:
    with pytest.raises(KeyError, match="size"):
        replace(Single(1), size=2)  # type: ignore[call-arg]


def test_a_class_that_looks_at_its_fields_is_refused() -> None:
    with pytest.raises(TypeError, match="Positive"):
        replace(Positive(1), value=0)
