"""`share: tree`: which trials have a root in common, and what people are told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd import study
from hermesd.core.model import TrialSpec
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.pieces import whole
from hermesd.refusal import Refused
from tests.study_specs import spec

DECAY = {"start": "lr0", "times": "gamma", "after": ["first", "second", "third"]}
DAYS = {"values": [40, 60, 80]}
PAPER: dict[str, dict[str, Any]] = {
    "lr0": {"values": [0.5, 0.2]},
    "gamma": {"values": [0.2, 0.1]},
    "first": DAYS,
    "second": DAYS,
    "third": DAYS,
    "lr": {"sequence": DECAY},
    "epochs": {"value": 200},
}

TINY: dict[str, dict[str, Any]] = {"lr": {"sequence": {"values": [0.2, 0.1], "at": [2]}}}


def drafted(
    axes: dict[str, dict[str, Any]], share: pb.Share = pb.SHARE_TREE, **fields: Any
) -> study.Draft:
    return study.draft(study.Submission(spec(axes, share=share, **fields)))


def trials(draft: study.Draft, name: str = "d", owner: str = "me") -> tuple[TrialSpec, ...]:
    return draft.accepted(name, owner, 0.0)[1]


def test_the_paper_s_108_trials_are_told_of_as_they_are() -> None:
    (told,) = drafted(PAPER).notes
    assert told == (
        "108 trials, 92 of them distinct, have 202 stages, each of which is trained once (share:"
        " tree): 6,240 of 21,600 steps, so that one device-hour trains what takes 3.46"
        " without sharing"
    )
    (told,) = drafted(PAPER, pb.SHARE_NO).notes
    assert "each of which would be trained once with `share: tree`: 6,240 of 21,600" in told


def test_steps_of_epochs_are_counted() -> None:
    axes = {**PAPER, "lr": {"sequence": {**DECAY, "steps_per_epoch": 10}}}
    assert (
        "62,400 of 216,000 steps, so that one device-hour trains what takes 3.46"
        in drafted(axes).notes[0]
    )


def test_the_batch_sizes_of_the_paper() -> None:
    days = {"values": [30, 60]}
    axes = {
        "first": days,
        "second": days,
        "third": days,
        "batch": {"sequence": {"start": 128, "times": 5, "after": ["first", "second", "third"]}},
        "epochs": {"value": 200},
    }
    assert "8 trials, 8 of them distinct" in drafted(axes).notes[0]
    assert "940 of 1,600 steps, so that one device-hour trains" in drafted(axes).notes[0]


def test_without_a_length_nothing_is_promised() -> None:
    axes = {name: each for name, each in PAPER.items() if name != "epochs"}
    assert "depends on their length" in drafted(axes).notes[0]
    told = drafted(axes, stop=pb.Stop(max_steps=200)).notes[0]
    assert "6,240 of 21,600 steps" in told


def test_an_axis_that_keeps_them_apart_is_named() -> None:
    axes = {**PAPER, "lr0": {"min": 0.2, "max": 0.5}}
    told = drafted(axes, method=pb.SEARCH_METHOD_RANDOM, run_cap=60, seed=1).notes
    assert told[1].startswith("with 5 `values` for lr0, or a `q`, they would have more in common")


def test_a_study_without_sequences_hears_that_nothing_is_shared() -> None:
    assert "saves nothing here" in drafted({"lr": {"values": [1, 2]}}).notes[0]
    assert not drafted({"lr": {"values": [1, 2]}}, pb.SHARE_UNSPECIFIED).notes


def test_by_default_nothing_is_shared() -> None:
    found = trials(drafted(PAPER, pb.SHARE_UNSPECIFIED))
    assert {each.root for each in found} == {""}
    assert len({each.seed for each in found}) == 108


def test_trials_that_begin_alike_have_one_root_and_one_seed() -> None:
    found = trials(drafted(PAPER))
    assert len({each.root for each in found}) == 2, "by what they begin with"
    assert len({each.seed for each in found}) == 1


def test_another_study_has_the_same_root_only_with_the_same_program_for_the_same_user() -> None:
    draft = drafted(PAPER)
    root = trials(draft)[0].root
    assert trials(draft, "other")[0].root == root
    assert trials(draft, owner="you")[0].root != root
    assert trials(drafted(PAPER, seed=1))[0].root != root
    submission = study.Submission(spec(PAPER, share=pb.SHARE_TREE), code_sha256="other")
    assert trials(study.draft(submission))[0].root != root


users = st.sampled_from(["ann", "bob", "eve"])


@given(*(st.tuples(users, st.sets(users)) for _ in range(2)))
def test_studies_of_two_users_share_only_where_each_names_all_that_the_other_does(
    one: tuple[str, set[str]], other: tuple[str, set[str]]
) -> None:
    roots = [
        trials(drafted(TINY, share_with=sorted(others)), owner=owner)[0].root
        for owner, others in (one, other)
    ]
    both_allow = one[0] in other[1] | {other[0]} and other[0] in one[1] | {one[0]}
    is_shared = roots[0] == roots[1]
    assert is_shared <= both_allow
    assert is_shared == (one[1] | {one[0]} == other[1] | {other[0]}), "so nobody shares by a third"


def test_to_share_with_others_is_to_share() -> None:
    with pytest.raises(Refused) as refused:
        drafted(TINY, pb.SHARE_NO, share_with=["ann"])
    assert refused.value.errors[0].field_path == "share_with"
    with pytest.raises(Refused):
        drafted(TINY, share_with=["\n"])


def test_the_file_that_says_what_a_study_is_is_no_part_of_the_code_that_studies_share() -> None:
    def root(code: str, identity: str) -> str:
        told = spec(TINY, share=pb.SHARE_TREE)
        submission = study.Submission(told, code, code_identity_sha256=identity)
        return trials(study.draft(submission))[0].root

    assert root("one", "same") == root("two", "same") != root("one", "another")
    assert root("one", "") == root("two", "one")


def test_where_a_study_was_submitted_matters_only_to_data_that_are_named_from_there() -> None:
    def root(directory: str, data: str) -> str:
        told = spec(TINY, share=pb.SHARE_TREE, data=[data])
        return trials(study.draft(study.Submission(told, submit_directory=directory)))[0].root

    assert root("/home/ann", "/data") == root("/home/bob", "/data")
    assert root("/home/ann", "data") != root("/home/bob", "data")


def test_trials_of_as_many_devices_and_processes_have_a_root_in_common() -> None:
    def root(**fields: Any) -> str:
        return trials(drafted(PAPER, resources=pb.Resources(**fields)))[0].root

    two = root(devices=2)
    assert two == root(devices=2)
    one_process = root(devices=2, processes=pb.PROCESSES_ONE)
    assert len({two, root(devices=3), one_process, trials(drafted(PAPER))[0].root}) == 4
    assert root(devices=1) == trials(drafted(PAPER))[0].root
    (told,) = drafted(PAPER, resources=pb.Resources(devices=2)).notes
    assert "6,240 of 21,600 steps" in told


def test_trials_of_now_more_and_now_fewer_devices_share_nothing_and_their_user_hears_of_it() -> (
    None
):
    draft = drafted(PAPER, resources=pb.Resources(devices=1, max_devices=2))
    assert {each.root for each in trials(draft)} == {""}
    (told,) = draft.notes
    assert told.startswith("share: tree saves nothing here: what a trial comes to depends on how")


@pytest.mark.parametrize("number", [1, 108])
def test_trials_that_are_added_have_the_same_root(number: int) -> None:
    accepted, known = drafted(PAPER).accepted("d", "me", 0.0)
    source = replace(accepted, source=spec(PAPER, share=pb.SHARE_TREE).SerializeToString())
    axis = pb.Parameter(name="third", values=[pb.Value(int_value=100)])
    (*_, last) = whole(study.addition(source, known, [axis])).trials
    assert last.root == known[-1].root
    assert last.seed == known[number - 1].seed
