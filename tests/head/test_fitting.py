"""A study that no node can take is told so before it is submitted, node by node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hermesd.core.events import Looked, NodeDrained, NodeSilent, PoolsConfigured
from hermesd.core.model import Pool, Program
from hermesd.core.state import State
from hermesd.head.api.submission_checks import Fitting, check, fitting, in_words, note, notes
from hermesd.refusal import Refused
from tests.core.playbook import joined, study, submitted

GIB = 1 << 30
DATA = "/data/images"


def cluster(*more: Any) -> State:
    """Node a with two CPU slots of 1 GiB, node b with a GPU of 8 GiB."""
    state = State()
    state.apply(joined(2, node="a"), 0.0)
    state.apply(joined(1, node="b", kinds=["gpu"], memory=[8 * GIB]), 0.0)
    for event in more:
        state.apply(event, 0.0)
    return state


def test_devices_that_could_take_a_trial_are_counted() -> None:
    assert fitting(cluster(), study()) == Fitting(3, (), False)
    one = Fitting(1, ("node a cannot take it: there is no device of kind gpu (there: cpu)",), False)
    assert fitting(cluster(), study(device_kind="gpu")) == one


def test_devices_of_several_nodes_or_kinds_make_no_trial_of_several() -> None:
    found = fitting(cluster(), study(devices=2))
    most = "no node has more than 1 (b: gpu)"
    why = f"node b cannot take it: each trial needs 2 devices of one kind on one node, and {most}"
    assert found == Fitting(2, (why,), False)
    wide = study(devices=3)
    with pytest.raises(Refused) as refused:
        check(cluster(), wide, "ann")
    (error,) = refused.value.errors
    assert (error.field_path, error.nearest) == ("resources.devices", "2")
    assert "which a has" in error.expected
    check(State(), wide, "ann")  # a node that is wide enough may come


def test_each_node_is_named_with_its_reason() -> None:
    state = cluster(Looked("a", ((DATA, ""),)), Looked("b", ((DATA, "Permission denied"),)))
    found = fitting(state, study(required_paths=(DATA,), memory_bytes=4 * GIB))
    little = "there is no device with 4.0 GiB of memory (the largest has 1.0 GiB)"
    assert found == Fitting(
        0, (f"node a cannot take it: {little}", f"node b lacks {DATA}: Permission denied"), True
    )
    assert note(found, []) == [
        f"node a cannot take it: {little}; node b lacks {DATA}: Permission denied: its trials wait"
    ]
    assert note(found, ["no node has all that: its trials wait"]) == [], "it is said already"


def test_an_environment_that_could_not_be_made_is_a_reason_and_one_to_be_made_is_none() -> None:
    wanted = study(program=Program(("t.py",), "python3", "", "/", requirements="demo==1\n"))
    (name,) = wanted.needs
    assert fitting(cluster(), wanted).devices == 3
    failed = Looked("b", ((name, "no such version"),))
    assert fitting(cluster(failed), wanted) == Fitting(
        2, (f"node b lacks {name}: no such version",), False
    )


@pytest.mark.parametrize("away", [NodeDrained("a", "r1"), NodeSilent("a", "cut")])
def test_a_node_that_is_away_for_now_is_no_misfit(away: Any) -> None:
    found = fitting(cluster(away), study(device_kind="cpu"))
    assert (found.devices, found.only_misfits) == (0, False)
    assert note(found, []) == []


def test_only_nodes_of_the_pool_count() -> None:
    state = cluster(PoolsConfigured((Pool("gold", ("b",)),)))
    found = fitting(state, study(pool="gold", device_kind="cpu"))
    assert found.only_misfits
    assert [words.split()[1] for words in found.misfits] == ["b"]
    assert fitting(state, study(pool="gold")).devices == 1


def test_without_nodes_there_is_nothing_to_say() -> None:
    assert fitting(State(), study(device_kind="gpu")) == Fitting(0, (), False)


def test_of_many_nodes_some_are_named() -> None:
    assert in_words([f"node {n} lacks it" for n in range(7)]).endswith("it; and 2 more nodes")


def test_who_is_not_alone_on_a_node_is_told_where_others_could_read_their_files() -> None:
    state = State()
    state.apply(replace(joined(1, node="a"), runs_as_itself=True), 0.0)
    state.apply(joined(1, node="b"), 0.0)
    hers = study("hers", owner="alice")
    assert list(notes(state, hers)) == []
    state.apply(submitted(name="his", owner="bob"), 0.0)
    assert list(notes(state, hers)) == [
        "on a other users' programs run as the same account, and can read its files"
    ]
