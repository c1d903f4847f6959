"""What is proposed lies in the space, follows from what is known alone, and gets better."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.model import Goal
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.search.__main__ import answer
from hermesd.search.ask import ASK, REPLY, Ask, Known, Standing
from hermesd.study import space
from hermesd.study.coordinates import Coordinates
from hermesd.study.spec import read
from tests.study_specs import spec

SPACE: dict[str, dict[str, Any]] = {
    "rate": {"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1},
    "units": {"min": 1, "max": 64},
    "optimizer": {"values": ["sgd", "adam", "rms"]},
    "batch": {"values": [16, 32, 64]},
    "drop": {"distribution": "q_uniform", "min": 0.0, "max": 0.8, "q": 0.1},
    "fixed": {"value": 3},
    "momentum": {"min": 0.0, "max": 0.99, "when": {"optimizer": ["sgd", "rms"]}},
    "warmup": {"values": [1, 2, 4], "when": {"momentum": [0.0], "optimizer": ["sgd"]}},
    "beta": {"values": [0.9, 0.99], "when": {"optimizer": ["adam"]}},
}
AXES = space.axes(read(spec(SPACE)).parameters)
METHODS = ["tpe", "cmaes", "nsgaii", "qmc", "genetic", "random_walk"]


def worth(point: space.Point) -> float:
    at: dict[str, Any] = dict(point)
    far = (math.log10(at["rate"]) + 3) ** 2 + abs(at["units"] - 20) / 20 + at["drop"]
    return far + (at["optimizer"] != "adam") + (at["batch"] != 32) / 2


def ask(method: str, known: tuple[Known, ...] = (), count: int = 1, **fields: Any) -> Ask:
    number = pb.SearchMethod.Value(f"SEARCH_METHOD_{method.upper()}")
    source = spec(SPACE, method=number, run_cap=40, **fields).SerializeToString()
    return Ask(source, (Goal.MINIMIZE,), len(known) + 1, count, known)


def searched(method: str, trials: int, seed: int = 0) -> Iterator[Known]:
    known: tuple[Known, ...] = ()
    for number in range(1, trials + 1):
        point, note = space.drawn(AXES, seed, number), ""
        if number > 8:
            answered = answer(ask(method, known, seed=seed))
            assert not answered.error
            ((point, note),) = [(each.point, each.note) for each in answered.proposals]
        known = (*known, Known(point, Standing.VALUED, (worth(point),), note=note))
        yield known[-1]


def test_what_is_proposed_lies_in_the_space_and_follows_from_what_is_known() -> None:
    for method in METHODS:
        known = tuple(searched(method, 12))
        mixed = (
            replace(known[0], standing=Standing.OPEN),
            replace(known[1], standing=Standing.DIVERGED),
            replace(known[2], standing=Standing.NOTHING),
            replace(known[3], point=(*known[3].point[1:], ("rate", 7.0))),  # added by hand
            *known[4:],
        )
        question = ask(method, mixed, 3)
        answered = answer(question)
        assert answered == answer(ASK.read(ASK.write(question))), method
        assert REPLY.read(REPLY.write(answered)) == answered
        assert len({each.point for each in answered.proposals}) == 3, (method, answered)
        for each in answered.proposals:
            there = dict(each.point)
            assert ("momentum" in there) is (there["optimizer"] != "adam"), (method, there)
            assert ("beta" in there) is (there["optimizer"] == "adam"), (method, there)
            assert [*there] == [name for name in SPACE if name in there]
            for name, value in each.point:
                assert Coordinates(AXES[name]).of(value) is not None, (method, name, value)
                assert type(value) is type(AXES[name].draw(_random())), (method, name, value)


def _random() -> Any:
    import numpy as np

    return np.random.default_rng(1)


def test_a_search_finds_better_points_than_random_draws() -> None:
    drawn = sorted(worth(space.drawn(AXES, 0, number)) for number in range(1, 41))[0]
    for method in ("tpe", "genetic"):
        assert min(known.values[0] for known in searched(method, 40)) < drawn, method


def test_an_optimizer_goes_on_from_its_notes() -> None:
    known = tuple(searched("cmaes", 40))
    generations = [known.note.rpartition(" ")[2].rstrip("}") for known in known if known.note]
    assert generations[0] == "0"
    assert int(generations[-1]) >= 2


def test_a_search_that_cannot_go_on_says_why() -> None:
    question = replace(ask("tpe", tuple(searched("tpe", 9))), source=b"\xff")
    assert answer(question).error.startswith("DecodeError")
    broken = tuple(replace(each, note="{") for each in searched("tpe", 9))
    assert "JSONDecodeError" in answer(ask("tpe", broken)).error


AXIS = st.sampled_from(
    [
        {"min": -3.0, "max": 5.0},
        {"min": 1, "max": 10**9},
        {"min": 1, "max": 9},
        {"values": [1, 2, True, "a"]},
        {"distribution": "q_uniform", "min": 0.0, "max": 3.0, "q": 0.25},
        {"distribution": "q_uniform", "min": 0.0, "max": 3.0, "q": 0.00001},
        {"distribution": "log_uniform", "min": -3.0, "max": 2.0},
        {"distribution": "inv_log_uniform", "min": -3.0, "max": 2.0},
        {"distribution": "log_uniform_values", "min": 1e-5, "max": 10.0},
        {"distribution": "inv_log_uniform_values", "min": 1e-5, "max": 10.0},
        {"distribution": "q_log_uniform", "min": 0.0, "max": 9.0, "q": 2.0},
        {"distribution": "q_log_uniform_values", "min": 1.0, "max": 900.0, "q": 2.0},
        {"distribution": "normal", "mu": 1.0, "sigma": 3.0},
        {"distribution": "log_normal", "mu": 1.0, "sigma": 0.5},
        {"distribution": "q_normal", "mu": 1.0, "sigma": 3.0, "q": 0.5},
        {"distribution": "q_log_normal", "mu": 1.0, "sigma": 0.5, "q": 0.5},
    ]
)


@given(AXIS, st.integers(0, 2**20), st.floats(0, 1))
def test_a_value_and_where_it_lies_are_the_same(
    settings: dict[str, Any], number: int, share: float
) -> None:
    axes = space.axes({"x": settings})
    lie = Coordinates(axes["x"])
    drawn = dict(space.drawn(axes, 0, number))["x"]
    at = lie.of(drawn)
    assert at is not None
    again = lie.value(at)
    assert type(again) is type(drawn)
    if isinstance(drawn, str | bool) or lie.size is not None:
        assert again == drawn
    else:
        assert isinstance(again, int | float)
        assert isinstance(drawn, int | float)
        near = getattr(axes["x"], "q", 1.0 if isinstance(drawn, int) else 0.0)
        assert math.isclose(again, drawn, rel_tol=1e-6, abs_tol=near + 1e-9)
    there = lie.value(share if lie.size is None else min(int(share * lie.size), lie.size - 1))
    assert lie.of(there) is not None


@pytest.mark.parametrize("value", ["a", True, -1.0, 11.0, (1, 2)])
def test_what_is_on_no_axis_lies_nowhere(value: Any) -> None:
    (axis,) = space.axes({"x": {"min": 0.0, "max": 10.0}}).values()
    assert Coordinates(axis).of(value) is None


@pytest.mark.parametrize("method", ["tpe", "nsgaii", "genetic", "random_walk"])
def test_several_objectives_and_constraints_count_in_what_is_proposed(method: str) -> None:
    known: list[Known] = []
    for number in range(1, 41):
        point, note = space.drawn(AXES, 3, number), ""
        if number > 8:
            goals = (Goal.MINIMIZE, Goal.MAXIMIZE)
            answered = answer(replace(ask(method, tuple(known)), goals=goals))
            assert not answered.error
            point, note = answered.proposals[0].point, answered.proposals[0].note
        units = float(str(dict(point)["units"]))
        values = (abs(math.log10(float(str(dict(point)["rate"]))) + 3), units)
        known.append(Known(point, Standing.VALUED, values, (units - 40,), note))
    kept = sum(not each.breaks for each in known[20:]) / 20
    assert kept > 0.6, "two fifths of all points break the constraint"
