"""A study's own rules about errors: where a trial is tried again, and whether."""

from __future__ import annotations

import pytest

from hermesd.core.events import (
    FidelityKnown,
    Forgiven,
    NodeSilent,
    Paused,
    Removed,
    Retried,
    RunFailed,
    Unpaused,
)
from hermesd.core.model import Fidelity, Phase, Plugin, RetryAction, RetryRule, ruled
from tests.core.playbook import (
    Playbook,
    completed,
    joined,
    live,
    parked,
    play,
    quantum_ended,
    run,
    started,
    submitted,
    written,
)

OOM = RetryRule("CUDA out of memory", RetryAction.NOT_HERE)
BUG = RetryRule("keyerror", RetryAction.NO_RETRY)
ECC = RetryRule("uncorrectable*ECC", RetryAction.EXCLUDE_NODE)
RULES = (OOM, BUG, ECC)


def failed(name: str, detail: str, kind: str = "exception") -> RunFailed:
    return RunFailed(run(name), kind, detail, "", 1)


def book(trials: int = 1, devices: int | None = 1, **changes: object) -> Playbook:
    return play(trials, devices, retry_rules=RULES, **changes)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate", RetryAction.NOT_HERE),
        ("KeyError: 'lr' (cuda out of memory)", RetryAction.NOT_HERE),
        ("KEYERROR", RetryAction.NO_RETRY),
        ("an uncorrectable\nECC error", RetryAction.EXCLUDE_NODE),
        ("ECC error: uncorrectable", None),
        ("CUDA is out of memory", None),
        ("", None),
    ],
)
def test_the_first_rule_that_fits_counts(error: str, expected: RetryAction | None) -> None:
    assert ruled(RULES, error) is expected


def test_many_asterisks_on_a_long_error_are_no_burden() -> None:
    """A pattern that backtracks would not come to an end."""
    assert not RetryRule("a*" * 200 + "b", RetryAction.NO_RETRY).fits("a" * 1_000_000)


def test_not_here_is_never_that_device_again() -> None:
    it = book(devices=2).tell(failed("s/0#1", "CUDA out of memory"))
    it.expect("launch s/0#1 on n/0", "launch s/0#2 on n/1")
    it.tell(failed("s/0#2", "it broke")).expect("launch s/0#3 on n/1")
    assert [each.reason for each in it.scheduler.explain("s/0", 0).left_out] == [
        "it failed there: CUDA out of memory"
    ]
    assert [strike.detail for strikes in it.state.strikes.values() for strike in strikes] == [
        "it broke"
    ]


def test_not_here_waits_for_another_device() -> None:
    it = book(2, devices=2).tell(failed("s/0#1", "CUDA out of memory"))
    it.expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
    it.tell(completed("s/1#1")).expect("launch s/0#2 on n/1")


def test_not_here_is_the_end_where_there_is_nothing_else() -> None:
    it = book().tell(failed("s/0#1", "CUDA out of memory"))
    assert it.trial().phase is Phase.FAILED
    assert it.trial().reason == (
        "CUDA out of memory (retry.rules: not_here, and there is no other device for it)"
    )
    it.tell(Retried(("s/0",), "r1")).expect("launch s/0#1 on n/0", "launch s/0#2 on n/0")


def test_no_retry_is_the_end_at_once_even_where_others_are_untried() -> None:
    it = book(devices=2).tell(failed("s/0#1", "KeyError: 'lr'"))
    assert it.trial().reason == "KeyError: 'lr' (retry.rules: no_retry)"
    assert it.state.strikes == {}
    it.expect("launch s/0#1 on n/0")


def test_a_node_is_excluded_from_the_study_alone() -> None:
    it = book(2, devices=2).tell(joined(1, node="m"))
    it.expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
    it.tell(failed("s/0#1", "uncorrectable ECC error")).expect("launch s/0#2 on m/0")
    it.tell(failed("s/1#1", "it broke")).expect()
    assert it.trial("s/1").phase is Phase.WAITING
    (left_out,) = {each.place for each in it.scheduler.explain("s/1", 0).left_out} - {"n/1"}
    assert left_out == "n"
    it.tell(submitted(1, "t")).expect("launch t/0#1 on n/0")
    it.tell(completed("t/0#1")).expect()
    it.tell(Forgiven("n", "r1")).expect("launch s/1#2 on n/0")


def test_what_a_trial_meets_with_on_two_nodes_is_its_own_fault_whatever_the_rule() -> None:
    it = book(2).tell(joined(1, node="m")).expect("launch s/0#1 on n/0", "launch s/1#1 on m/0")
    it.tell(RunFailed(run("s/0#1"), "exception", "uncorrectable ECC", "ECC", 1))
    assert list(it.state.excluded) == [("s", "n")]
    it.tell(completed("s/1#1")).expect("launch s/0#2 on m/0")
    it.tell(RunFailed(run("s/0#2"), "exception", "uncorrectable ECC", "ECC", 1))
    assert it.trial().phase is Phase.FAILED
    assert (it.state.excluded, it.state.strikes) == ({}, {})


def test_a_device_is_not_the_node() -> None:
    it = book().tell(failed("s/0#1", "uncorrectable ECC")).expect("launch s/0#1 on n/0")
    it.tell(Forgiven("n/0", "r1")).expect()
    it.tell(Forgiven("n", "r2")).expect("launch s/0#2 on n/0")


def test_what_a_rule_calls_the_nodes_fault_counts_as_the_machines() -> None:
    it = book(max_failures=1, devices=None).tell(joined(1), joined(1, node="m"))
    it.tell(failed("s/0#1", "uncorrectable ECC"))
    it.expect("launch s/0#1 on m/0", "launch s/0#2 on n/0")
    assert it.trial().misfortunes == 1
    assert [strike.trial for strike in it.state.strikes["m/0"]] == ["s/0"]


def test_a_rule_is_about_faults_of_machines_too() -> None:
    rule = RetryRule("no space left", RetryAction.EXCLUDE_NODE)
    it = play(retry_rules=(rule,)).tell(joined(1, node="m"))
    it.tell(failed("s/0#1", "No space left on device", "not_started"))
    it.expect("launch s/0#1 on n/0", "launch s/0#2 on m/0")


def test_the_studys_other_trials_leave_an_excluded_node_at_the_end_of_their_quanta() -> None:
    it = book(3, devices=3, policy=Plugin("round_robin"))
    it.tell(joined(1, node="m"), *(started(f"s/{n}#1") for n in range(3)))
    it.tell(*(FidelityKnown(run(f"s/{n}#1"), Fidelity.EXACT, "", "keras") for n in range(3)))
    it.tell(Paused(("s/2",), "r1")).tell(parked("s/2#1", 4))
    it.expect(*(f"launch s/{n}#1 on n/{n} for 30 s" for n in range(3)), "suspend s/2#1")
    it.tell(failed("s/0#1", "uncorrectable ECC"))
    it.expect("write down s/2#1 on n", "launch s/0#2 on m/0 for 30 s")
    it.at(30).tell(quantum_ended("s/1#1", step=9)).expect("suspend s/1#1 by checkpoint")
    assert it.trial("s/1").run.asked.reason == "node n is excluded from its study"
    it.tell(written("s/1#1", 9), written("s/2#1", 4), completed("s/0#2"))
    it.expect("launch s/1#2 on m/0 for 30 s from s/1#1@9")


def test_what_can_only_be_parked_goes_on_where_it_is() -> None:
    it = book(2, devices=2, policy=Plugin("round_robin")).tell(started("s/1#1"))
    it.tell(Paused(("s/1",), "r1")).tell(parked("s/1#1", 4))
    it.tell(failed("s/0#1", "uncorrectable ECC")).tell(Unpaused(("s/1",), "r2"))
    it.expect(
        "launch s/0#1 on n/0 for 30 s",
        "launch s/1#1 on n/1 for 30 s",
        "suspend s/1#1",
        "launch s/1#2 on n/1 for 30 s from s/1#1",
    )


def test_homes_on_an_excluded_node_are_given_up() -> None:
    it = book(2, placement=Plugin("homes")).tell(joined(1, node="m"))
    it.tell(failed("s/0#1", "uncorrectable ECC"))
    it.expect(
        "bind s/0 to n/0",
        "bind s/1 to n/0",
        "launch s/0#1 on n/0",
        "bind s/0 to m/0",
        "bind s/1 to m/0",
        "launch s/0#2 on m/0",
    )


def test_a_launch_that_was_never_heard_excludes_no_node_anew() -> None:
    it = book().tell(failed("s/0#1", "uncorrectable ECC")).tell(Forgiven("n", "r1"))
    it.tell(started("s/0#2"), Paused(("s/0",), "r2")).tell(parked("s/0#2", 5))
    it.tell(Unpaused(("s/0",), "r3")).tell(joined(live=[live("s/0#2", "parked")]))
    assert it.state.excluded == {}
    assert it.busy() == "s/0#4"


def test_an_exclusion_ends_with_its_study() -> None:
    it = book(1).tell(joined(1, node="m")).tell(failed("s/0#1", "uncorrectable ECC"))
    it.tell(completed("s/0#2"))
    assert list(it.state.excluded) == [("s", "n")]
    it.tell(NodeSilent("m", "cut"), Removed("s", "r1"))
    assert it.state.excluded == {}
