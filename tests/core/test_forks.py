"""A trial that is forked begins from a checkpoint of another, once that is its own as well."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hermesd.core.commands import Launch
from hermesd.core.events import (
    Added,
    Copied,
    FidelityKnown,
    NodeSilent,
    NotCopied,
    Removed,
    RunFailed,
    Spoilt,
    Submitted,
)
from hermesd.core.model import Checkpoint, Fidelity, Phase, Quantum, Study, TrialSpec
from hermesd.core.node.messages import Assignment, assignment
from hermesd.core.tables import rebuilt
from hermesd.core.trial import RESTORE
from hermesd.head.api import forking as api
from hermesd.head.refusals import NotNow
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2
from hermesd.refusal import Refused
from hermesd.study import fork
from hermesd.study.submission import Submission, draft
from tests.core.playbook import Playbook, completed, joined, reported, run, started, trial_spec
from tests.core.test_copies import LOST, pool, saved
from tests.study_specs import spec, value


def saved_of(book: Playbook) -> Checkpoint:
    """The newest checkpoint of s/0."""
    begin = book.trial().checkpoint
    assert begin is not None
    return begin


def forked(book: Playbook, number: int = 1) -> Added:
    """A fork of s/0 from its newest checkpoint, as older journals have it."""
    return Added("s", (trial_spec(f"s/{number}"),), f"fork {number}", (saved_of(book),))


def shared(node: str = "n", number: int = 1) -> Copied:
    return Copied(node, f"s/{number}", "s/0#1@9")


def begun() -> Playbook:
    """s/0 has reported, and a checkpoint at step 9; n has room for another run."""
    book = pool(replicas=0).tell(joined(0, node="m"))
    book.tell(reported("s/0#1", 9, [1.0 / step for step in range(1, 10)]))
    return book.tell(saved("s/0#1", 9))


def test_it_waits_for_the_checkpoint_and_then_goes_on_from_it() -> None:
    book = begun()
    book.tell(forked(book)).expect("copy s/0#1@9 from n to n")
    assert book.trial("s/1").phase is Phase.WAITING
    assert book.trial("s/1").awaits_fork
    book.tell(completed("s/0#1", 12)).expect()
    book.tell(shared()).expect("launch s/1#1 on n/0 from s/1@9")
    fork, parent = book.trial("s/1"), book.trial()
    assert fork.checkpoint == Checkpoint("s/1@9", "s/1", 1, 9, "5ha", 1, ("n",))
    assert fork.step == 9
    assert fork.curve == parent.curve, "it has learned what its parent had by then"
    assert (fork.fidelity, fork.framework) == (parent.fidelity, parent.framework)
    book.tell(started("s/1#1", 9), reported("s/1#1", 12, [0.1] * 3, examples=96))
    assert (book.trial("s/1").use.steps, parent.use.steps) == (3, 9), "each by its own reports"
    book.tell(completed("s/1#1", 20))
    assert book.trial("s/1").phase is Phase.COMPLETED
    assert book.trial().step == 12, "its parent is as it was"


def test_its_runs_are_numbered_on_from_those_that_took_what_it_begins_from() -> None:
    """A node takes the checkpoints of later attempts for newer: its own are newer than its
    parent's, of whatever attempt that is."""
    book = begun()
    begin = replace(saved_of(book), attempt=5)
    fork = Added("s", (trial_spec("s/1"),), "fork", (begin,), counts_on=True)
    book.tell(fork, completed("s/0#1", 12)).expect("copy s/0#1@9 from n to n")
    assert book.trial("s/1").phase is Phase.WAITING
    book.tell(shared()).expect("launch s/1#6 on n/0 from s/1@9")


def test_each_of_several_begins_from_the_same() -> None:
    book = begun()
    book.tell(forked(book, 1), forked(book, 2)).expect("copy s/0#1@9 from n to n")
    book.tell(shared(number=1)).expect("copy s/0#1@9 from n to n")
    book.tell(shared(number=2)).expect()
    assert [book.trial(f"s/{number}").step for number in (1, 2)] == [9, 9]


def test_what_cannot_be_given_is_a_failure_with_a_reason() -> None:
    book = begun()
    book.tell(forked(book)).expect("copy s/0#1@9 from n to n")
    book.tell(cannot_give("n")).expect()
    trial = book.trial("s/1")
    assert trial.phase is Phase.FAILED
    assert trial.reason == "it cannot begin from s/0 at step 9: it is damaged"


def cannot_give(node: str, reason: str = "it is damaged") -> NotCopied:
    return NotCopied(node, "s/1", "s/0#1@9", reason, way=False)


def test_one_whose_own_are_damaged_begins_again_from_its_parent() -> None:
    book = begun()
    book.tell(forked(book), completed("s/0#1", 12)).tell(shared()).heard()
    spoilt = Spoilt("n", "s/1", "s/1@9", "it is damaged", None)
    failed = RunFailed(run("s/1#1"), RESTORE, "nothing is left", "", 0)
    book.tell(spoilt, failed).expect("copy s/0#1@9 from n to n")
    book.tell(shared()).expect("launch s/1#2 on n/0 from s/1@9")
    book.tell(started("s/1#2", 9))
    assert book.trial("s/1").step == 9
    assert assigned(book, "s/1").never_anew
    assert not assigned(book, "s/0").never_anew


def assigned(book: Playbook, trial: str) -> Assignment:
    """What a node is told with a launch of it."""
    launch = Launch(book.trial(trial).next_run, ("n/0",), Quantum(), "")
    return assignment(launch, book.state.studies["s"], book.trial(trial))


def test_it_waits_for_a_node_that_is_away() -> None:
    book = begun()
    book.tell(NodeSilent("n", "gone"), forked(book)).expect()
    assert book.trial("s/1").awaits_fork
    book.tell(joined(1, live=())).heard()
    assert book.trial("s/1").copying is not None


def test_the_index_of_those_that_wait_is_of_the_trials_alone() -> None:
    book = begun()
    for event in (forked(book, 1), forked(book, 2), shared(number=1), completed("s/0#1", 12)):
        book.tell(event).heard()
        assert rebuilt(book.state) == book.state.copies
    book.tell(shared(number=2)).heard()
    assert not book.state.copies.forks


def test_forks_go_with_their_study() -> None:
    book = begun()
    book.tell(forked(book)).heard()
    book.tell(completed("s/0#1", 12)).heard()
    book.refuses(Removed("s", "away"), "unfinished")
    assert run("s/1#1").trial == "s/1"


def test_what_nothing_can_begin_from_is_refused_with_the_reason() -> None:
    study, trials = draft(Submission(spec({"lr": {"values": [1, 2]}}))).accepted("s", "ann", 0.0)
    book = Playbook().tell(Submitted(study, trials, "asked"), joined(1))
    for known, said in (
        ((), "s/1 has no checkpoint yet, .*: it has not made a step"),
        ((Fidelity.PARK_ONLY, "it is C", ""), r"it .* can only be kept in memory \(it is C\)"),
        (
            (Fidelity.EXACT, "arrays", "keras"),
            "it is at step 4, and a checkpoint is due",
        ),
    ):
        if known:
            book.tell(FidelityKnown(run("s/1#1"), *known))
        else:
            book.tell(started("s/1#1"))
        if "step 4" in said:
            book.tell(reported("s/1#1", 4, [1.0]))
        with pytest.raises(NotNow, match=said):
            api.forked(book.state, "s/1", pb.ForkTrialRequest(), "asked")
    book.tell(saved("s/1#1", 9))
    assert api.forked(book.state, "s/1", pb.ForkTrialRequest(), "asked").trials[0].id == "s/3"
    with pytest.raises(Refused) as refused:
        api.forked(book.state, "s/1", pb.ForkTrialRequest(step=5), "asked")
    assert refused.value.errors[0].expected == "a step at which it has a checkpoint: 9"
    book.tell(NodeSilent("n", "cut")).at(LOST)
    with pytest.raises(NotNow, match=r"at step 9 is on no connected node: only on n"):
        api.forked(book.state, "s/1", pb.ForkTrialRequest(), "asked")


def test_one_that_has_trained_as_planned_is_forked_only_to_train_for_longer() -> None:
    study, trials = draft(
        Submission(spec({"lr": {"values": [1]}, "epochs": {"value": 2}}))
    ).accepted("s", "ann", 0.0)
    book = Playbook().tell(Submitted(study, trials, "asked"), joined(1))
    book.tell(
        FidelityKnown(run("s/1#1"), Fidelity.EXACT, "arrays", "keras"),
        started("s/1#1", planned=9),
        reported("s/1#1", 9, [1.0] * 9),
        saved("s/1#1", 9),
        completed("s/1#1", 9),
    )
    slower = [types_pb2.NamedValue(name="lr", value=value(0.1))]
    longer = [types_pb2.NamedValue(name="epochs", value=value(4))]
    with pytest.raises(NotNow, match=r"s/1 ended as planned, at step 9, so .* --set epochs=20$"):
        api.forked(book.state, "s/1", pb.ForkTrialRequest(parameters=slower), "asked")
    fits = pb.ForkTrialRequest(parameters=[*slower, *longer])
    assert api.forked(book.state, "s/1", fits, "asked").trials[0].id == "s/2"


@pytest.fixture
def of_ranges() -> tuple[Study, TrialSpec]:
    """A study with every kind of axis, and its trial."""
    parameters: dict[str, dict[str, Any]] = {
        "lr": {"min": 0.0001, "max": 0.1, "distribution": "log_uniform_values"},
        "layers": {"min": 2, "max": 8},
        "alpha": {"min": math.log(1e-4), "max": math.log(0.1), "distribution": "log_uniform"},
        "noise": {"mu": 0.0, "sigma": 1.0, "distribution": "normal"},
        "optimizer": {"values": ["sgd", "adam"]},
        "decay": {"values": [0.1, 0.01]},
        "momentum": {"value": 0.9},
        "epochs": {"min": 1, "max": 3},
    }
    sheet = spec(parameters, method=types_pb2.SEARCH_METHOD_RANDOM, run_cap=1)
    study, (trial,) = draft(Submission(sheet)).accepted("s", "ann", 0.0)
    return study, trial


def test_a_value_out_of_its_range_is_refused_unless_it_is_said_to_be_new(
    of_ranges: tuple[Study, TrialSpec],
) -> None:
    for name, given, expected, near in (
        ("lr", 3.0, "a number from 0.0001 to 0.1", ""),
        ("lr", 0.00009, "a number from 0.0001 to 0.1", ""),
        ("lr", "fast", "a number from 0.0001 to 0.1", ""),
        ("alpha", 0.99e-4, "a number from 0.0001 to 0.1", ""),
        ("layers", 9, "a whole number from 2 to 8", ""),
        ("layers", 2.5, "a whole number from 2 to 8", ""),
        ("noise", True, "a number", ""),
        ("optimizer", "adma", "one of adam, sgd", "adam"),
        ("decay", "none", "a number", ""),
    ):
        wanted = types_pb2.NamedValue(name=name, value=value(given))
        with pytest.raises(Refused) as refused:
            fork(*of_ranges, 2, [wanted])
        (error,) = refused.value.errors
        assert (error.field_path, error.nearest) == (f"parameters.{name}", near)
        cure = f"as in the study; to go on with another, give --new {name}=VALUE"
        assert error.expected == f"{expected}, {cure}"
        assert dict(fork(*of_ranges, 2, [], [wanted]).parameters)[name] == given


def test_a_value_within_its_range_or_where_there_is_none_is_taken(
    of_ranges: tuple[Study, TrialSpec],
) -> None:
    for name, given in (
        ("lr", 0.0001), ("lr", 0.1), ("alpha", 0.0001), ("alpha", 0.1), ("layers", 8),
        ("noise", -9.5), ("optimizer", "sgd"),
        ("decay", 0.5), ("momentum", 0.5), ("momentum", "none"), ("epochs", 30),
    ):  # fmt: skip
        wanted = types_pb2.NamedValue(name=name, value=value(given))
        assert dict(fork(*of_ranges, 2, [wanted]).parameters)[name] == given
