"""What a population explores: parameters near those of the trial that a fork goes on from."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermesd.core.model import Setting, Study, TrialSpec
from hermesd.core.policy import Exploration
from hermesd.refusal import Refused
from hermesd.study import draft, explored
from hermesd.study.coordinates import Coordinates
from hermesd.study.exploring import perturbed
from hermesd.study.space import axes
from hermesd.study.spec import read
from hermesd.study.submission import Submission
from tests.study_specs import plugin, spec

SPACE: dict[str, dict[str, Any]] = {
    "lr": {"min": 1e-4, "max": 1.0, "distribution": "log_uniform_values"},
    "optimizer": {"values": ["sgd", "adam"]},
    "momentum": {"values": [0.0, 0.9], "when": {"optimizer": ["sgd"]}},
    "epochs": {"values": [3, 9]},
    "seed": {"value": 1},
}
USUAL = Exploration((), (0.8, 1.2), 0.25)


def search(**fields: Any) -> Any:
    chosen = plugin("pbt", ready=10, **fields.pop("settings", {}))
    known = {"method": "SEARCH_METHOD_RANDOM", "run_cap": 8, "seed": 4, **fields}
    return spec(fields.pop("space", SPACE), schedule={"policy": chosen}, **known)


@cache
def population() -> tuple[Study, tuple[TrialSpec, ...]]:
    return draft(Submission(search())).accepted("digits", "ann", 0.0)


@pytest.mark.parametrize(
    ("axis", "value", "factor", "found"),
    [
        ({"min": 0.0, "max": 1.0}, 0.5, 1.2, 0.6),
        ({"min": 0.0, "max": 1.0}, 0.9, 1.2, 1.0),
        ({"min": -1.0, "max": 1.0}, -0.9, 1.2, -1.0),
        ({"min": 1, "max": 64}, 32, 0.8, 26),
        ({"min": 1, "max": 64}, 1, 0.8, 1),
        ({"min": 1, "max": 64}, 2, 1.2, 3),
        ({"values": [0.001, 0.01, 0.1]}, 0.01, 1.2, 0.1),
        ({"values": [0.1, 0.01, 0.001]}, 0.01, 0.8, 0.001),
        ({"values": [16, 32, 64]}, 64, 1.2, 64),
        ({"values": ["sgd", "adam"]}, "sgd", 1.2, "sgd"),
        ({"values": [True, False]}, True, 1.2, True),
        ({"min": 0.0, "max": 1.0, "q": 0.25}, 0.5, 1.2, 0.75),
        ({"min": 0.1, "max": 9.0, "q": 0.1, "distribution": "q_log_uniform_values"}, 2, 0.8, 1.6),
    ],
)
def test_a_value_is_multiplied_within_its_axis(
    axis: dict[str, Any], value: Setting, factor: float, found: Setting
) -> None:
    (made,) = axes({"x": axis}).values()
    assert perturbed(made, value, factor) == found


@settings(max_examples=25)
@given(number=st.integers(9, 500), parent=st.integers(0, 7))
def test_what_is_explored_lies_in_the_space_and_is_the_same_for_the_same_number(
    number: int, parent: int
) -> None:
    study, trials = population()
    (fork,) = explored(study, [trials[parent]], number, USUAL, "pbt")
    assert explored(study, [trials[parent]], number, USUAL, "pbt") == (fork,)
    had, has = dict(trials[parent].parameters), dict(fork.parameters)
    known = axes(read(search()).parameters)
    for name, value in has.items():
        assert Coordinates(known[name]).of(value) is not None
    assert ("momentum" in has) == (has["optimizer"] == "sgd")
    assert has["epochs"] == had["epochs"], "a length is no matter of exploration"
    assert fork.seed == trials[parent].seed
    assert fork.proposal == "pbt"
    assert f"--lr={has['lr']!r}" in fork.argv


def test_only_the_named_parameters_are_explored() -> None:
    study, trials = population()
    only = Exploration(("lr",), (0.8,), 0.0)
    (fork,) = explored(study, [trials[0]], 9, only, "pbt")
    had, has = dict(trials[0].parameters), dict(fork.parameters)
    rate = had.pop("lr")
    assert isinstance(rate, float)
    assert has.pop("lr") == max(rate * 0.8, 1e-4)
    assert had == has


def test_a_changing_parameter_keeps_its_sequence() -> None:
    space = {"lr": {"sequence": {"values": [0.5, 0.25], "at": [20]}}, "decay": SPACE["lr"]}
    made = spec(
        space,
        schedule={"policy": plugin("pbt", ready=10)},
        method="SEARCH_METHOD_RANDOM",
        run_cap=2,
    )
    study, (trial, _) = draft(Submission(made)).accepted("digits", "ann", 0.0)
    (fork,) = explored(study, [trial], 3, USUAL._replace(resample=0.0), "pbt")
    assert fork.sequences == trial.sequences
    assert dict(fork.parameters)["decay"] != dict(trial.parameters)["decay"]


def test_a_preview_says_who_is_replaced_and_what_is_explored() -> None:
    found = draft(Submission(search()))
    assert found.study.checkpoint_steps == 10
    (note,) = (note for note in found.notes if note.startswith("pbt:"))
    assert note == (
        "pbt: every 10 steps the worst 1 of 8 are replaced by forks of the best 1, with other"
        " values of lr, optimizer, momentum; those replaced are parked, not ended"
    )
    duel = draft(Submission(search(settings={"exploit": "tournament"})))
    assert any("worse than one drawn at random" in note for note in duel.notes)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"method": "SEARCH_METHOD_TPE"}, "grid or random"),
        ({"share": "SHARE_TREE"}, "whose trials part at random"),
        ({"resources": {"devices": 1, "max_devices": 2}}, "one number with schedule.policy pbt"),
        ({"settings": {"explore": ["lrr"]}}, "did you mean lr?"),
        ({"settings": {"explore": ["epochs"]}}, "one of"),
    ],
)
def test_what_a_population_cannot_have_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as refused:
        draft(Submission(search(**fields)))
    assert any(said in str(error) for error in refused.value.errors)
