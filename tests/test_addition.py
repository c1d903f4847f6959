"""Which trials a study gets when it is to have more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd import study
from hermesd.core.model import Study, TrialSpec
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.pieces import whole
from hermesd.refusal import Refused
from tests.study_specs import parameter, spec

RANDOM = pb.SEARCH_METHOD_RANDOM
DRAWN = {"lr": {"min": 0.0, "max": 1.0}, "n": {"min": 1, "max": 9}, "epochs": {"value": 4}}


def made(
    axes: Mapping[str, Mapping[str, Any]] | None = None, **fields: Any
) -> tuple[Study, tuple[TrialSpec, ...]]:
    return study.draft(study.Submission(spec(axes, **fields))).accepted("d", "me", 0.0)


def add(
    known: tuple[Study, tuple[TrialSpec, ...]],
    count: int | None = None,
    new: Mapping[str, Mapping[str, Any]] | None = None,
    **axes: Mapping[str, Any],
) -> study.Addition:
    """Further trials with these axes in the place of the study's."""
    given, others = (
        [parameter(name, axis) for name, axis in which.items()] for which in (axes, new or {})
    )
    return whole(study.addition(*known, given, others, count))


def points(added: study.Addition) -> list[dict[str, Any]]:
    return [dict(trial.parameters) for trial in added.trials]


def test_a_grid_gets_a_further_row() -> None:
    known = made()
    added = add(known, lr={"value": 0.5})
    assert points(added) == [{"lr": 0.5, "batch": 16}, {"lr": 0.5, "batch": 32}]
    assert [trial.id for trial in added.trials] == ["d/5", "d/6"]
    assert added.trials[0].argv == ("python", "train.py", "--lr=0.5", "--batch=16")
    assert len({trial.seed for trial in (*known[1], *added.trials)}) == 6
    one = add(known, lr={"value": 0.5}, batch={"value": 64})
    assert points(one) == [{"lr": 0.5, "batch": 64}]


def test_points_that_are_there_are_left_out_and_told() -> None:
    added = add(made(), lr={"values": [0.1, 0.5]})
    assert points(added) == [{"lr": 0.5, "batch": 16}, {"lr": 0.5, "batch": 32}]
    assert added.notes == ("2 more of these points are trials of the study already",)
    with pytest.raises(Refused, match="a point that no trial of the study has; d/2 is there"):
        add(made(), lr={"value": 0.1}, batch={"value": 32})


def test_a_grid_that_was_cut_short_goes_on_where_it_ended() -> None:
    known = made(run_cap=1)
    assert points(add(known, 2)) == [{"lr": 0.1, "batch": 32}, {"lr": 0.01, "batch": 16}]
    assert len(add(known).trials) == 3


@given(begin=st.integers(1, 6), more=st.integers(1, 6))
def test_a_random_search_goes_on_as_with_a_larger_run_cap(begin: int, more: int) -> None:
    known = made(DRAWN, method=RANDOM, run_cap=begin, seed=3)
    whole = made(DRAWN, method=RANDOM, run_cap=begin + more, seed=3)
    assert (*known[1], *add(known, more).trials) == whole[1]


def test_a_random_search_takes_what_is_given_by_hand() -> None:
    known = made(DRAWN, method=RANDOM, run_cap=2)
    drawn = points(add(known, 3, lr={"value": 3.0}))
    assert [(point["lr"], point["epochs"]) for point in drawn] == [(3.0, 4)] * 3
    assert points(add(known, lr={"value": 3.0}, n={"values": [1, 2]})) == [
        {"lr": 3.0, "n": 1, "epochs": 4},
        {"lr": 3.0, "n": 2, "epochs": 4},
    ]


def test_a_grid_may_be_given_an_axis_that_is_drawn() -> None:
    added = points(add(made(), 5, lr={"min": 2.0, "max": 3.0}))
    assert all(2.0 <= point["lr"] <= 3.0 for point in added)
    assert {point["batch"] for point in added} <= {16, 32}


def test_a_new_argument_stands_behind_the_others() -> None:
    known = made(run_cap=1)
    added = add(known, 1, new={"momentum": {"value": 0.9}})
    assert added.trials[0].argv[2:] == ("--lr=0.1", "--batch=16", "--momentum=0.9")


@pytest.mark.parametrize(
    ("known", "count", "axes", "words"),
    [
        ({}, None, {"lrr": {"value": 1}}, r"parameters\.lrr: expected one of batch, lr; .*--new"),
        ({}, None, {"lrr": {"value": 1}}, r"did you mean lr\?"),
        ({}, None, {"lr": {"values": []}}, r"parameters\.lr"),
        ({}, None, {"lr": {"min": 0.0, "max": 1.0}}, r"count: expected how many .*--trials 20"),
        ({}, 0, {"lr": {"value": 1}}, r"count = 0: expected 1 to 99996"),
        ({}, 100_000, {"lr": {"value": 1}}, r"count = 100000: expected 1 to 99996"),
        ({"method": RANDOM, "run_cap": 2, "axes": DRAWN}, None, {}, "as lr is drawn at random"),
        ({}, None, {"lr": {"values": [*range(3, 10_000)]}, "batch": {"min": 1, "max": 99}},
         "a grid of 989703 points"),
    ],
)  # fmt: skip
def test_what_will_not_do_is_refused_whole(
    known: dict[str, Any], count: int | None, axes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        add(made(**known), count, **axes)


def test_a_name_that_is_given_twice_is_refused() -> None:
    twice = [parameter("lr", {"value": 1.0}), parameter("lr", {"value": 2.0})]
    with pytest.raises(Refused, match=r"parameters\.lr = given twice"):
        whole(study.addition(*made(), twice))
