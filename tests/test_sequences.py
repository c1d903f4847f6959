"""Parameters that change while a trial trains: what trials a study with such has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd import study
from hermesd.core.model import Stage, TrialSpec
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.pieces import whole
from hermesd.refusal import Refused
from tests.study_specs import parameter, spec, value


def trials(axes: dict[str, dict[str, Any]], **fields: Any) -> tuple[TrialSpec, ...]:
    return study.draft(study.Submission(spec(axes, **fields))).accepted("d", "me", 0.0)[1]


def rates(**sequence: Any) -> list[tuple[int | None, object]]:
    """The values of a learning rate with this sequence, and until when they hold."""
    (trial,) = trials({"lr": {"sequence": sequence}})
    return [(until, dict(values)["lr"]) for until, values in trial.stages]


def test_the_parameters_of_a_sequence_are_searched_shown_and_not_given() -> None:
    decay = {"start": "lr0", "times": "gamma", "after": ["d", 60], "steps_per_epoch": 10}
    found = trials(
        {
            "lr0": {"value": 0.5},
            "gamma": {"values": [0.2, 0.1]},
            "d": {"values": [40, 80]},
            "lr": {"sequence": decay},
            "batch_size": {"value": 32},
        }
    )
    assert len(found) == 4
    last = found[-1]
    assert dict(last.parameters) == {
        "lr0": 0.5, "gamma": 0.1, "d": 80, "lr": 0.5, "batch_size": 32,
    }  # fmt: skip
    assert last.argv == ("python", "train.py", "--batch_size=32", "--lr=0.5")
    assert dict(last.given) == {"batch_size": 32, "lr": 0.5}
    assert last.sequences == (
        Stage(800, (("lr", 0.5),)),
        Stage(1400, (("lr", 0.05),)),
        Stage(None, (("lr", 0.005),)),
    )


def test_a_trial_without_a_sequence_has_none() -> None:
    assert trials({"lr": {"value": 0.5}})[0].sequences == ()


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ({"values": [1, 2], "at": [5]}, [(5, 1), (None, 2)]),
        ({"values": ["sgd", "adam"], "after": [5]}, [(5, "sgd"), (None, "adam")]),
        ({"values": [3]}, [(None, 3)]),
        ({"start": 1, "times": 2, "after": [3, 3]}, [(3, 1), (6, 2), (None, 4)]),
        ({"start": 1, "times": 2, "at": [3, 5]}, [(3, 1), (5, 2), (None, 4)]),
        (
            {"start": 1.0, "times": 0.5, "over": 5, "every": 2},
            [(2, 1.0), (4, 0.5), (5, 0.25), (None, 0.125)],
        ),
        (
            {"start": 1.0, "to": 0.0, "over": 4, "every": 2},
            [(2, 1.0), (4, 0.5), (None, 0.0)],
        ),
        (
            {"start": 1.0, "to": 0.0, "over": 3, "shape": "cosine"},
            [(1, 1.0), (2, 0.75), (3, 0.25), (None, 0.0)],
        ),
        (
            {"start": 0.0, "to": 1.0, "over": 4, "period": 4},
            [(1, 0.0), (2, 0.5), (3, 1.0), (4, 0.5), (None, 0.0)],
        ),
        (
            {"values": [4.0, 1.0], "after": [2], "warmup": 3},
            [(1, 1.0), (2, 2.0), (3, 3.0), (5, 4.0), (None, 1.0)],
        ),
        # Twice the same value is no change.
        ({"values": [1, 1, 2], "after": [5, 5]}, [(10, 1), (None, 2)]),
    ],
)
def test_the_kinds_of_sequences(sequence: dict[str, Any], expected: list[Any]) -> None:
    assert rates(**sequence) == expected


def test_several_sequences_change_each_at_its_own_time() -> None:
    (trial,) = trials(
        {
            "lr": {"sequence": {"values": [0.1, 0.01], "after": [4]}},
            "batch": {"sequence": {"values": [8, 16], "after": [2], "steps_per_epoch": 3}},
        }
    )
    assert trial.sequences == (
        Stage(4, (("lr", 0.1), ("batch", 8))),
        Stage(6, (("lr", 0.01), ("batch", 8))),
        Stage(None, (("lr", 0.01), ("batch", 16))),
    )


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"lr": {"sequence": {"values": [1, 2], "at": [0]}}}, "at = 0: expected a whole number of"),
        ({"lr": {"sequence": {"values": [1, 2, 3], "at": [5, 5]}}}, "at = 5: expected each change"),
        ({"lr": {"sequence": {"values": [1, 2, 3], "at": [9, 5]}}}, "at = 5: expected each change"),
        ({"lr": {"sequence": {"values": [1, 2], "at": [9, 5]}}}, "one value more than changes"),
        ({"lr": {"sequence": {"values": [1, 2], "at": [[9]]}}}, "sequence.at.0 = [9]: expected"),
        (
            {"lr": {"sequence": {"values": [0.1, "latr"], "at": [9]}}, "later": {"values": [1]}},
            "values = latr: expected a number like the others, or a parameter that is one",
        ),
        ({"lr": {"sequence": {"values": [1, True], "at": [9]}}}, "a number like the others"),
        (
            {"lr": {"sequence": {"start": "lr_0", "times": 2, "at": [5]}}},
            "start = lr_0: expected a",
        ),
        ({"lr": {"sequence": {"start": 1}}}, "either `times`, a factor, or `to`"),
        ({"lr": {"sequence": {"start": 1, "times": 2}}}, "one of `after`, `at` and `over`"),
        (
            {"lr": {"sequence": {"start": 1, "times": 1e300, "at": [3, 5]}}},
            "values that are finite",
        ),
        ({"lr": {"value": 1, "sequence": {"values": [1]}}}, "`sequence` alone"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(axes: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused) as refused:
        trials(axes)
    assert words in str(refused.value)
    assert str(refused.value).startswith("parameters.lr")


def test_a_study_has_no_more_values_than_it_may() -> None:
    decay = {"start": 1.0, "times": 0.9999, "over": 9_000}
    axes = {"n": {"values": [*range(200)]}, "lr": {"sequence": decay}}
    with pytest.raises(Refused, match="fewer trials, or fewer changes"):
        trials(axes)


SHAPED = {
    "d": {"min": 5, "max": 90},
    "lr": {"sequence": {"values": [1.0, 0.1], "after": ["d"]}},
}


def test_further_and_other_trials_have_sequences_of_their_own() -> None:
    made = study.Submission(spec(SHAPED, method=pb.SEARCH_METHOD_RANDOM, run_cap=3))
    known, first = study.draft(made).accepted("d", "me", 0.0)
    more = whole(study.addition(known, first, [], count=2)).trials
    longer = study.draft(
        study.Submission(spec(SHAPED, method=pb.SEARCH_METHOD_RANDOM, run_cap=5))
    ).accepted("d", "me", 0.0)[1]
    assert more == longer[3:]
    lower = pb.Parameter(name="d", max=value(9))
    changed = whole(study.change(known, first, [], pb.Stop(), None, [lower]))
    assert all(5 <= (trial.stages[0].until_step or 0) <= 9 for trial in changed.redrawn)
    assert changed.redrawn


def test_a_further_point_of_a_grid_is_told_from_those_that_are_there() -> None:
    axes = {"d": {"values": [5, 6]}, "lr": SHAPED["lr"]}
    known, first = study.draft(study.Submission(spec(axes))).accepted("d", "me", 0.0)
    more = whole(study.addition(known, first, [parameter("d", {"values": [6, 7]})])).trials
    assert [trial.stages[0].until_step for trial in more] == [7]


@pytest.mark.parametrize("name", ["d", "lr"])
def test_what_trials_have_learned_by_is_not_extended(name: str) -> None:
    axes = {"d": {"value": 5}, "lr": SHAPED["lr"]}
    known, first = study.draft(study.Submission(spec(axes))).accepted("d", "me", 0.0)
    with pytest.raises(Refused, match="a parameter without a sequence"):
        study.extension(known, first, pb.Stop(), [pb.NamedValue(name=name, value=value(7))])


@given(
    start=st.floats(0.001, 10),
    to=st.floats(0.001, 10),
    over=st.integers(1, 50),
    every=st.integers(1, 9),
    warmup=st.integers(1, 9),
)
def test_spans_follow_each_other_to_the_end(
    start: float, to: float, over: int, every: int, warmup: int
) -> None:
    found = rates(start=start, to=to, over=over, every=every, warmup=warmup)
    ends = [until for until, _ in found[:-1]]
    assert ends == sorted(set(ends))
    assert found[-1][0] is None
    assert all(isinstance(rate, float) and 0 < rate <= 10.0001 for _, rate in found)
