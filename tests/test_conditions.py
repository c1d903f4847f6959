"""Conditions on the parameters of a point together, in every way in which points are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermesd.core.model import Goal, Setting
from hermesd.core.policy import Exploration
from hermesd.pieces import whole
from hermesd.refusal import Refused
from hermesd.search.__main__ import answer
from hermesd.search.ask import Ask, Known, Standing
from hermesd.study import addition, draft, explored
from hermesd.study import space as spaces
from hermesd.study.conditions import PointCondition, conditions
from hermesd.study.space import Point, Space
from hermesd.study.submission import Draft, Submission
from tests.study_specs import plugin, spec

NAMES = ("lr", "batch_size", "optimizer", "optimizer.beta", "on")
POINT: dict[str, Setting] = {"lr": 0.5, "batch_size": 32, "optimizer": "sgd", "on": True}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("lr * batch_size <= 16", True),
        ("lr * batch_size < 16", False),
        ("0.1 <= lr <= 1", True),
        ("0.1 <= lr <= 0.4", False),
        ("optimizer == 'sgd' or lr > 0.9", True),
        ("not (optimizer == 'adam')", True),
        ("optimizer in ('adam', 'lion')", False),
        ("batch_size not in [16, 64] and on", True),
        ("log10(lr) + 2 ** 3 > -batch_size % 5", True),
        ("max(lr, 1) == min(batch_size, 1, 2)", True),
        ("abs(-lr) // 1 == 0", True),
        ("sqrt(batch_size * 2) == 8", True),
        ("optimizer.beta > 0.9", True),
        ("lr / (batch_size - 32) > 0", False),
        ("log(lr - 1) < 0", False),
        ("batch_size ** batch_size ** batch_size > 1", False),
    ],
)
def test_a_condition_means_what_python_means(text: str, holds: bool) -> None:
    (condition,) = conditions([text], NAMES)
    assert condition.holds(POINT) is holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lr *", "that Python cannot read"),
        ("1 < 2", "it names no parameter"),
        ("lrr < 1", "did you mean lr?"),
        ("__import__('os').system('true')", "not `__import__('os').system('true')`"),
        ("[each for each in lr]", "not `[each"),
        ("lr if lr else 1", "not `lr if"),
        ("(lambda: lr)()", "not `(lambda"),
        ("lr << 9", "not `lr << 9`"),
        ("lr[0] < 1", "not `lr[0]`"),
        ("lr == None", "not `None`"),
        ("min(lr, key=abs) < 1", "not `min("),
        ("lr.__class__ == 1", "not lr.__class__"),
        ("(" * 249 + "lr", "that Python cannot read"),
        ("lr < 1" + " " * 500, "506 characters"),
    ],
)
def test_anything_else_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        conditions(["lr > 0", text], NAMES)
    (error,) = refused.value.errors
    assert error.field_path == "where[1]"
    assert said in str(error)


@pytest.mark.parametrize("text", ["optimizer * 1000 == 'x'", "optimizer < 3", "-optimizer < 1"])
def test_what_cannot_be_calculated_is_refused_with_the_values(text: str) -> None:
    (condition,) = conditions([text], NAMES)
    with pytest.raises(Refused, match="optimizer = 'sgd'"):
        condition.holds(POINT)


@given(st.text(max_size=60))
@example("lr < 1" * 9)
@example("\0")
@example("lr\n< 1")
@example("f'{lr}'")
def test_no_text_does_anything_but_be_read_or_refused(text: str) -> None:
    try:
        (condition,) = conditions([text], NAMES)
        condition.holds(POINT)
    except Refused:
        pass


SPACE: dict[str, dict[str, Any]] = {
    "lr": {"values": [0.01, 0.1, 1.0]},
    "batch": {"values": [8, 16, 32, 64]},
}
WHERE = ["lr * batch <= 3.3"]


def drafted(space: dict[str, dict[str, Any]] = SPACE, **fields: Any) -> Draft:
    return draft(Submission(spec(space, **{"where": WHERE, **fields})))


def points(found: Draft) -> list[Point]:
    return [first.values for first, *_ in found.stages]


def fits(point: Point) -> bool:
    known: dict[str, Any] = dict(point)
    return bool(known["lr"] * known["batch"] <= 3.3)


def test_a_grid_is_without_the_points_that_fall_out_and_says_how_many() -> None:
    found = drafted()
    assert len(points(found)) == 7
    assert all(map(fits, points(found)))
    assert "where: 5 of the 12 points of the grid fall out" in found.notes
    assert points(drafted(run_cap=2)) == points(found)[:2]


def test_a_random_search_draws_others_in_their_places() -> None:
    space = {"lr": {"min": 0.0, "max": 1.0}, "batch": {"values": [8, 16, 32, 64]}}
    found = drafted(space, method="SEARCH_METHOD_RANDOM", run_cap=20)
    assert len(points(found)) == 20
    assert all(map(fits, points(found)))
    (note,) = (note for note in found.notes if note.startswith("where:"))
    assert note.endswith("points that were drawn fell out")
    free = drafted(space, method="SEARCH_METHOD_RANDOM", run_cap=20, where=[])
    kept = [point for point in points(free) if fits(point)]
    assert kept
    assert set(kept) <= set(points(found)), "who meets them is as without conditions"
    study, trials = found.accepted("digits", "ann", 0.0)
    more = whole(addition(study, trials, (), count=5))
    assert all(fits(each.parameters) for each in more.trials)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"where": ["lr > 2"]}, "none of the 12 points of the grid does"),
        ({"where": ["lr > 2"], "method": "SEARCH_METHOD_RANDOM", "run_cap": 2}, "drawn none does"),
        ({"where": ["lr > 2"], "method": "SEARCH_METHOD_GENETIC"}, "drawn none does"),
        ({"where": ["rate > 2"]}, "the names of parameters, not rate"),
        ({"where": ["lr > 0"] * 21}, "at most 20"),
    ],
)
def test_conditions_that_leave_nothing_or_say_nothing_are_one_error(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused) as refused:
        drafted(**fields)
    assert len(refused.value.errors) == 1
    assert said in str(refused.value.errors[0])


LONG = " + ".join(["lr"] * 50) + " < 0"


@pytest.mark.parametrize(
    ("space", "where"),
    [
        ({"lr": {"min": 1, "max": 1000}, "batch": {"min": 1, "max": 1000}}, ["lr < 0"]),
        ({"lr": {"min": 1, "max": 9999}, "batch": {"min": 1, "max": 9}}, [LONG] * 20),
        ({f"p{n}": {"value": n} for n in range(990)} | {"lr": {"min": 1, "max": 9000}}, ["lr < 0"]),
        ({"text": {"value": "x" * 64_000}, "lr": {"min": 1, "max": 2000}}, ["text != 'y'"]),
    ],
)
def test_a_grid_that_takes_long_to_look_through_is_refused_before_a_point_is_made(
    space: dict[str, dict[str, Any]], where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PointCondition, "holds", pytest.fail)
    monkeypatch.setattr(spaces, "_product", pytest.fail)
    with pytest.raises(Refused, match=r"at most [0-9,]+ points of these parameters"):
        drafted(space, where=where)


def test_points_that_are_rare_are_looked_for_no_longer_than_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spaces, "LOOKS_LIMIT", 10_000)
    made = []
    allows = Space.allows
    monkeypatch.setattr(Space, "allows", lambda self, point: made.append(0) or allows(self, point))
    rare = {"lr": {"min": 0.0, "max": 1.0}}
    with pytest.raises(Refused, match=r"more points meet: of 1,666 that were drawn [0-9]+ do"):
        drafted(rare, where=["lr < 0.02"], method="SEARCH_METHOD_RANDOM", run_cap=900)
    assert len(made) == 1_666


@pytest.mark.parametrize("method", ["tpe", "cmaes", "nsgaii", "qmc", "genetic", "random_walk"])
def test_every_searcher_proposes_points_that_meet_them(method: str) -> None:
    space = {"lr": {"min": 0.0, "max": 1.0}, "batch": {"min": 1, "max": 64}}
    made = spec(space, method=f"SEARCH_METHOD_{method.upper()}", run_cap=40, where=WHERE)
    random = np.random.default_rng(5)
    known = [
        Known((("lr", float(random.random())), ("batch", 1 + n)), Standing.VALUED, (float(n),))
        for n in range(12)
    ]
    ask = Ask(made.SerializeToString(), (Goal.MINIMIZE,), 13, 8, tuple(known))
    reply = answer(ask)
    assert not reply.error
    assert len(reply.proposals) == 8
    assert all(fits(each.point) for each in reply.proposals)


def test_a_population_explores_only_what_meets_them() -> None:
    space = {"lr": {"min": 0.0, "max": 1.0}, "batch": {"min": 1, "max": 64}}
    chosen = {"policy": plugin("pbt", ready=10)}
    found = drafted(space, method="SEARCH_METHOD_RANDOM", run_cap=8, schedule=chosen)
    study, trials = found.accepted("digits", "ann", 0.0)
    forks = explored(study, trials, 9, Exploration((), (0.8, 1.2), 0.25), "pbt")
    assert all(fits(each.parameters) for each in forks)
    assert any(
        fork.parameters != trial.parameters for fork, trial in zip(forks, trials, strict=True)
    )
