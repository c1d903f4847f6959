"""Whose fault a failure is: the device's, its node's, or the program's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermesd.core.commands import Command
from hermesd.core.decide.scheduler import Scheduler, judge
from hermesd.core.events import (
    Cancelled,
    Forgiven,
    NodeDrained,
    NodeLost,
    NodeSilent,
    Paused,
    RunFailed,
    Unpaused,
)
from hermesd.core.failure_effects import STOPPED
from hermesd.core.failures import HALF_LIFE_SECONDS, STRIKES_KEPT
from hermesd.core.model import OnSameFailure, OnThirdFailure, Phase, Plugin
from hermesd.core.placement import make_placement
from hermesd.core.state import State
from hermesd.core.trial import MACHINES_FAULT, Strike
from hermesd.policy import make_policy
from tests.core.playbook import (
    LEASE,
    Playbook,
    completed,
    crashed,
    joined,
    parked,
    play,
    reported,
    run,
    started,
    submitted,
)

HOUR = HALF_LIFE_SECONDS


def failed(name: str, signature: str, detail: str = "it broke", step: int = 1) -> RunFailed:
    return RunFailed(run(name), "exception", detail, signature, step)


def crashed_host(name: str) -> RunFailed:
    return RunFailed(run(name), "lost", "its host died", "", 0)


def two_nodes(trials: int = 4, devices: int = 2, **changes: object) -> Playbook:
    book = play(trials, devices=devices, **changes).tell(joined(devices, node="m"))
    book.expect(
        *(f"launch s/{n}#1 on n/{n}" for n in range(min(trials, devices))),
        *(f"launch s/{n}#1 on m/{n - devices}" for n in range(devices, min(trials, 2 * devices))),
    )
    return book


def of_two_studies() -> Playbook:
    """s/0 failed on n/0, where t/0 now runs, and s/1 on m/0."""
    book = two_nodes(2, 1).tell(submitted(1, "t"))
    book.tell(failed("s/0#1", "A")).expect("launch t/0#1 on n/0")
    return book


def suspect_device() -> Playbook:
    """s/0 and t/0 failed on n/0, s/1 runs on m/0 and then s/0 does."""
    book = of_two_studies()
    book.at(60).tell(failed("t/0#1", "B")).expect("quarantine n/0 until 3630")
    return book


# The trial's own suspicions.


def test_the_first_retry_is_on_another_node_where_one_is_free() -> None:
    book = two_nodes(1).tell(crashed("s/0#1", 1)).expect("launch s/0#2 on m/0")
    book.tell(crashed("s/0#2", 2)).expect("launch s/0#3 on m/1")


def test_a_trial_that_failed_on_two_devices_of_a_node_waits_for_another_node() -> None:
    book = two_nodes().tell(completed("s/1#1")).tell(crashed("s/0#1", 1))
    book.expect("launch s/0#2 on n/1").tell(crashed("s/0#2", 2)).expect()
    book.tell(completed("s/2#1")).expect("launch s/0#3 on m/0")


def test_no_single_node_ends_a_trial_that_another_could_run() -> None:
    """A broken driver fails all on n in the same way; only m can tell."""
    book = two_nodes().tell(completed("s/1#1"))
    book.tell(failed("s/0#1", "CUDA")).tell(failed("s/0#2", "CUDA"))
    assert book.trial().phase is Phase.WAITING
    book.tell(completed("s/2#1")).tell(failed("s/0#3", "CUDA"))
    assert book.trial().phase is Phase.FAILED
    assert "the same error at the same step twice" in book.trial().reason


def test_the_same_error_on_another_node_is_the_programs_at_once() -> None:
    book = two_nodes(1).tell(failed("s/0#1", "ValueError")).tell(failed("s/0#2", "ValueError"))
    assert book.trial().phase is Phase.FAILED
    assert book.state.strikes == {}


def test_a_trial_fails_on_one_node_where_the_other_drains() -> None:
    book = two_nodes(1).tell(NodeDrained("m", "r1"))
    book.tell(failed("s/0#1", "ValueError")).tell(failed("s/0#2", "ValueError"))
    assert book.trial().phase is Phase.FAILED


# The ledger.


def test_a_device_where_different_trials_failed_is_left_out() -> None:
    book = suspect_device()
    assert book.state.quarantined["n/0"].reason == "s/0, t/0 failed there: it broke"
    assert [strike.trial for strike in book.state.strikes["n/0"]] == ["s/0", "t/0"]
    book.tell(submitted(1, "u")).expect()
    left_out = book.scheduler.explain("u/0", 60).left_out
    assert [(each.place, each.until) for each in left_out] == [
        ("n/0", pytest.approx(3630.1, abs=0.1))
    ]
    (mine,) = {each.reason for each in book.scheduler.explain("s/0", 60).left_out} - {
        left_out[0].reason
    }
    assert mine == "it failed there: it broke"


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        ("not_fetched", "s/2@5: m has no such checkpoint"),
        ("unmet", "/home/alice/bin/python3: No such file or directory"),
    ],
)
def test_what_was_not_to_be_had_for_the_trial_makes_nothing_suspect(kind: str, detail: str) -> None:
    book = two_nodes(3, 1)
    book.tell(failed("s/0#1", "A")).expect("launch s/2#1 on n/0")
    not_had = RunFailed(run("s/2#1"), kind, detail, "", 0)
    assert not any("quarantine" in each for each in book.at(60).tell(not_had).heard())
    assert book.trial("s/2").misfortunes == 1, "and is not the program's fault"
    assert list(book.state.strikes) == ["n/0"]


def test_a_quarantine_tells_each_trial_s_own_error() -> None:
    book = of_two_studies()
    gone = RunFailed(run("t/0#1"), "lost", "the trial's host is gone", "", 0)
    book.at(60).tell(gone)
    said = "s/0 failed there: it broke; t/0 failed there: the trial's host is gone"
    assert book.state.quarantined["n/0"].reason == said


def test_the_death_of_a_whole_node_is_held_against_none_of_its_devices() -> None:
    """A power cut soon after another failure is no reason to leave a device idle."""
    book = play(3, devices=3).tell(submitted(3, "t")).tell(failed("s/1#1", "A")).at(600)
    running = [book.busy(f"n/{slot}") for slot in range(3)]
    for name in running:
        assert name is not None
        book.at(book.now + 20).tell(crashed_host(name))
    assert book.state.quarantined == {}
    assert [strike.together for strike in book.state.strikes["n/1"]] == [False, True]
    alone = book.at(1200).busy("n/1")
    assert alone is not None
    book.tell(crashed_host(alone))
    assert list(book.state.quarantined) == ["n/1"]


@pytest.mark.parametrize(("cores", "suspect"), [((), ["n/0"]), ((0,), [])])
def test_a_host_that_vanishes_is_held_against_a_gpu_and_no_cpu_slot(
    cores: tuple[int, ...], suspect: list[str]
) -> None:
    hello = joined(2)
    hello = replace(hello, devices=tuple(replace(each, cores=cores) for each in hello.devices))
    book = play(1, None).tell(hello, submitted(2, "t"))
    while len({strike.trial for strike in book.state.strikes.get("n/0", ())}) < 2:
        book.at(book.now + 100)
        alone = book.busy("n/0")
        assert alone is not None
        book.tell(crashed_host(alone))
    assert [*book.state.quarantined] == suspect


def test_one_trial_that_fails_often_makes_nothing_suspect() -> None:
    book = play(max_failures=9)
    for attempt in range(1, 9):
        book.tell(failed(f"s/0#{attempt}", f"E{attempt}"))
    assert len(book.state.strikes["n/0"]) == 8
    assert book.state.quarantined == {}


def test_a_quarantine_ends_by_itself_when_its_strikes_have_faded() -> None:
    book = suspect_device().tell(submitted(1, "u")).expect()
    ends = book.scheduler.deadline
    assert ends is not None
    book.at(ends - 1).expect()
    book.at(ends).expect("trust n/0", "launch u/0#1 on n/0")
    assert book.scheduler.deadline is None


def test_failures_that_lie_far_apart_make_nothing_suspect() -> None:
    book = of_two_studies().at(1.5 * HOUR).tell(failed("t/0#1", "B")).expect()
    assert book.state.quarantined == {}


def test_a_half_life_is_the_heads_to_choose_and_a_replay_needs_none() -> None:
    book = of_two_studies()
    book.scheduler = Scheduler(book.state, make_policy, make_placement, LEASE, 10.0)
    book.at(5).tell(failed("t/0#1", "B"))
    assert book.state.quarantined["n/0"].until == pytest.approx(5 + 10 * 0.7716, abs=0.01)


def test_each_further_failure_makes_it_longer() -> None:
    book = suspect_device().tell(completed("s/1#1"))
    before = book.state.quarantined["n/0"].until
    book.tell(NodeSilent("m", "cut")).expect("launch t/0#2 on m/0", "launch s/0#2 on n/0")
    book.tell(submitted(1, "u")).tell(completed("s/0#2")).tell(failed("u/0#1", "C"))
    assert book.state.quarantined["n/0"].until > before + HOUR / 2


def test_a_suspect_device_is_used_where_no_other_works() -> None:
    suspect_device().tell(NodeSilent("m", "cut")).expect("launch t/0#2 on n/0")


def test_a_person_releases_a_device_or_all_of_a_node() -> None:
    for place in ("n/0", "n"):
        book = suspect_device().tell(submitted(1, "u")).expect()
        book.tell(Forgiven(place, "r1")).expect("launch u/0#1 on n/0")
        assert (book.state.strikes, book.state.quarantined) == ({}, {})
    book.refuses(Forgiven("x/0", "r2"), "no device or node 'x/0'")
    book.refuses(Forgiven("n", "r1"), "carried out before")


def test_a_restarted_head_says_nothing_new() -> None:
    book = suspect_device()
    book.scheduler = Scheduler(book.state, make_policy, make_placement, LEASE)
    assert book.scheduler.decide(book.now) == []


# The program's own faults.


def test_what_a_study_meets_with_on_two_nodes_is_held_against_neither() -> None:
    book = two_nodes(8, 1, max_failures=1)
    for _ in range(3):
        for device in ("n/0", "m/0"):
            book.tell(failed(str(book.busy(device)), "KeyError"))
    assert [len(strikes) for strikes in book.state.strikes.values()] == [3, 3]
    assert book.state.quarantined == {}


def test_one_error_of_a_study_is_no_evidence_while_it_is_met_nowhere_else() -> None:
    """Two trials are called wrongly and end at once, both on n/1; another study has n/0."""
    book = Playbook().tell(submitted(1, "t")).tell(joined(2)).tell(started("t/0#1"))
    book.tell(submitted(2)).expect("launch t/0#1 on n/0", "launch s/0#1 on n/1")
    for name in ("s/0#1", "s/1#1"):
        book.tell(failed(name, "exit status 2", "no argument --nosuch", 0))
    assert [strike.trial for strike in book.state.strikes["n/1"]] == ["s/0", "s/1"]
    assert book.state.quarantined == {}
    book.heard()
    book.tell(submitted(1, "u")).expect("launch u/0#1 on n/1")
    book.tell(failed("u/0#1", "exit status 2", "no argument --nosuch", 0))
    assert book.state.quarantined["n/1"].reason == "s/1, u/0 failed there: no argument --nosuch"


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_device_is_suspect_once_what_failed_there_gets_further_elsewhere(steps: int) -> None:
    """Ten trials of one study meet with the same on n/1 after a step."""
    book = play(11, devices=2, max_failures=9).tell(started("s/0#1"))
    for _ in range(10):
        book.tell(failed(str(book.busy("n/1")), "CUDA error"))
    assert book.state.quarantined == {}
    assert book.busy("n/1") is None
    book.tell(completed("s/0#1", 9))
    other = str(book.busy("n/0"))
    book.tell(started(other))
    if steps:
        book.tell(reported(other, steps, [1.0]))
    assert ("n/1" in book.state.quarantined) == (steps > 1)
    if steps > 1:
        assert {strike.further for strike in book.state.strikes["n/1"]} == {"", "n/0"}
    book.tell(completed(other, 9))
    assert "n/1" in book.state.quarantined


def test_what_gets_further_on_the_same_device_tells_nothing_of_it() -> None:
    book = play(2, max_failures=9).tell(failed("s/0#1", "CUDA")).tell(started("s/0#2"))
    book.tell(reported("s/0#2", 9, [1.0])).tell(completed("s/0#2", 9))
    book.tell(failed("s/1#1", "CUDA"))
    assert [strike.trial for strike in book.state.strikes["n/0"]] == ["s/0", "s/1"]
    assert book.state.quarantined == {}


def test_a_node_is_suspect_once_what_failed_there_gets_further_on_another() -> None:
    """Two trials meet with the same on both devices of n; then one of them goes on at m."""
    book = play(3, devices=2, max_failures=9).tell(joined(1, node="m"))
    for _ in range(2):
        for holder in (str(book.busy("n/0")), str(book.busy("n/1"))):
            book.tell(failed(holder, "CUDA"))
    assert [len(strikes) for strikes in book.state.strikes.values()] == [2, 2]
    assert book.state.quarantined == {}
    book.tell(completed("s/2#1")).tell(started("s/0#3"))
    assert book.busy("m/0") == "s/0#3"
    book.tell(reported("s/0#3", 9, [1.0]))
    assert list(book.state.quarantined) == ["n/0", "n/1", "n"]


def test_a_trial_that_fails_for_good_takes_its_strikes_back() -> None:
    book = suspect_device().tell(completed("s/1#1")).expect("launch t/0#2 on m/0")
    book.tell(failed("t/0#2", "B")).expect("trust n/0", "launch s/0#2 on m/0")
    assert book.state.trials["t/0"].phase is Phase.FAILED
    assert [strike.trial for strike in book.state.strikes["n/0"]] == ["s/0"]


def test_a_study_with_a_bug_comes_to_its_end() -> None:
    """Whatever each trial says: all devices become suspect, none stands still for it."""
    book = play(6, devices=2)
    for turn in range(60):
        for device in ("n/0", "n/1"):
            if (holder := book.busy(device)) is not None:
                book.tell(failed(holder, f"nan in batch {turn}", step=turn))
    assert {trial.phase for trial in book.state.trials.values()} == {Phase.FAILED}
    assert book.state.quarantined == {}
    assert book.state.strikes == {}


def bug_of_two_trials() -> Playbook:
    """Two trials of one study fail on n/0, each in its own words, and a host is killed there."""
    book = two_nodes(4, 1, max_failures=9).tell(failed("s/0#1", "ValueError: alpha"))
    book.tell(failed("s/2#1", "KeyError: 'sgd'"))
    return book.tell(RunFailed(run("s/3#1"), "lost", "the trial's host is gone", "", 0))


def test_whatever_the_trials_of_one_study_fail_of_counts_once() -> None:
    book = bug_of_two_trials()
    assert [strike.trial for strike in book.state.strikes["n/0"]] == ["s/0", "s/2", "s/3"]
    assert book.state.quarantined == {}


def test_what_gets_further_elsewhere_counts_for_itself_beside_what_does_not() -> None:
    """One kill is no evidence, whatever else its study fails of."""
    book = bug_of_two_trials().tell(completed("s/1#1"))
    assert book.busy("m/0") == "s/0#2"
    book.tell(started("s/0#2")).tell(completed("s/0#2", 9))
    assert book.state.quarantined == {}
    book.tell(started("s/2#2")).tell(completed("s/2#2", 9))
    assert list(book.state.quarantined) == ["n/0"]


def test_a_kill_is_held_against_no_device() -> None:
    book = of_two_studies().tell(RunFailed(run("t/0#1"), "killed", "killed by SIGKILL", "", 3))
    assert [strike.trial for strike in book.state.strikes["n/0"]] == ["s/0"]


def test_errors_that_differ_in_a_number_are_the_same() -> None:
    """Both devices see a program that breaks at random, and gets past that: it is the program."""
    book = play(5, devices=2, max_failures=9)
    for turn in range(8):
        device = f"n/{min(turn, 1)}" if turn < 2 else "n/0"
        if (holder := book.busy(device)) is not None:
            book.tell(failed(holder, f"nan at batch {turn} of <loader 0x7f{turn}a>"))
    assert len(book.state.strikes["n/0"]) > 2
    for _ in range(6):
        if (holder := book.busy("n/1")) is not None:
            book.tell(started(holder)).tell(completed(holder, 99))
    assert sum(strike.further == "n/1" for strike in book.state.strikes["n/0"]) > 1
    assert book.state.quarantined == {}


def test_what_fails_for_good_on_the_only_device_was_its_own() -> None:
    book = play(2).tell(failed("s/0#1", "A")).tell(failed("s/0#2", "A"))
    assert book.trial().phase is Phase.FAILED
    assert book.state.strikes == {}


def test_a_run_that_ends_badly_since_it_was_stopped_is_held_against_nothing() -> None:
    book = play().tell(started("s/0#1"), Cancelled(("s/0",), "r1")).tell(crashed("s/0#1"))
    assert book.trial().phase is Phase.CANCELLED
    assert book.state.strikes == {}


def test_a_node_that_was_lost_is_not_held_against_its_devices() -> None:
    book = play(2, devices=2).tell(NodeSilent("n", "power"))
    book.at(LEASE.silence_seconds).refuses(NodeLost("m"), "no node")
    assert len(book.trial().failures) == 1
    assert book.state.strikes == {}


@settings(max_examples=50, deadline=None)
@given(
    devices=st.sampled_from(((1,), (2,), (1, 1), (2, 2))),
    talk=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(("exception", "exit", "signal", "lost", "killed", "not_started")),
            st.sampled_from(("A", "B 1", "B 2", "C: lr=0.1")),
            st.integers(0, 2),
        ),
        max_size=40,
    ),
    on_same=st.sampled_from(OnSameFailure),
)
def test_no_study_alone_makes_a_place_suspect_while_nothing_got_past_its_failures(
    devices: tuple[int, ...], talk: list[tuple[int, str, str, int]], on_same: OnSameFailure
) -> None:
    """Whatever its trials fail of, wherever; and what a study stopped as its own fault leaves
    behind are at most the machines' faults."""
    book = Playbook().tell(submitted(5, on_same_failure=on_same))
    for number, count in enumerate(devices):
        book.tell(joined(count, node=f"n{number}"))
    for where, kind, error, step in talk:
        running = [slot.run for slot in book.state.slots.values() if slot.run is not None]
        if running:
            name = running[where % len(running)]
            book.at(book.now + 90).tell(RunFailed(name, kind, error, error, step))
        assert book.state.quarantined == {}
    if any(STOPPED in trial.reason for trial in book.state.trials.values()):
        left = [strike for each in book.state.strikes.values() for strike in each]
        assert all(strike.error_kind in MACHINES_FAULT for strike in left)


# Nodes.


def test_a_node_where_different_trials_failed_on_two_devices_each_is_left_out() -> None:
    book = play(1, devices=4).tell(submitted(1, "t"), submitted(2, "u"))
    book.tell(joined(1, node="m")).tell(submitted(1, "v"))
    book.tell(completed("u/0#1"), completed("u/1#1"))
    for name, signature in (("s/0#1", "A"), ("s/0#2", "A"), ("t/0#1", "B")):
        book.tell(failed(name, signature))
    assert "n" not in book.state.quarantined
    second = book.trial("t/0").run
    assert second is not None
    assert second.devices[0].startswith("n/")
    book.tell(failed("t/0#2", "B"))
    assert book.state.quarantined["n"].reason == "s/0, t/0 failed there: it broke"
    places = {each.place for each in book.scheduler.explain("s/0", 0).left_out}
    assert "n" in places


def test_a_ledger_has_an_end() -> None:
    book = play(1, devices=1, max_failures=100)
    for attempt in range(1, 60):
        book.tell(failed(f"s/0#{attempt}", f"E{attempt}"))
    assert len(book.state.strikes["n/0"]) == STRIKES_KEPT


@pytest.mark.timeout(20)
def test_a_large_cluster_with_a_full_ledger_is_judged_soon() -> None:
    """Errors that are all different, as their texts have numbers: the head must not stand still."""
    state, nodes = State(), 300
    for node in range(nodes):
        state.apply(joined(1, node=f"n{node}"), 0.0)
        state.strikes[f"n{node}/0"] = tuple(
            Strike(f"s{n}/0", f"s{n}", "exception", "it broke", f"{node} {n}", 0.0, 1)
            for n in range(STRIKES_KEPT)
        )
    issued: list[Command] = []
    judge(state, HOUR, 0.0, issued.append)
    assert len(issued) == nodes


def test_the_waiting_line_moves_past_a_suspect_device_with_homes() -> None:
    book = play(2, devices=2, placement=Plugin("homes"))
    for study in "tu":
        book.tell(submitted(1, study, placement=Plugin("homes")))
    book.tell(failed("s/0#1", "A")).tell(failed(str(book.busy("n/0")), "B"))
    assert "n/0" in book.state.quarantined
    assert {trial.home for trial in book.state.trials.values()} == {"n/1"}


# The whole study.


def test_the_third_failure_ends_the_study_if_that_is_asked_for() -> None:
    book = play(4, devices=2, on_third_failure=OnThirdFailure.STUDY)
    book.expect("launch s/0#1 on n/0", "launch s/1#1 on n/1").tell(started("s/1#1"))
    book.tell(reported("s/1#1", 5, [1.0] * 5), crashed("s/0#1", 1, "ValueError"))
    book.expect("launch s/2#1 on n/0").tell(completed("s/2#1")).expect("launch s/3#1 on n/0")
    book.tell(completed("s/3#1")).expect().tell(completed("s/1#1"))
    book.expect("launch s/0#2 on n/1")
    book.tell(submitted(3, "t", on_third_failure=OnThirdFailure.STUDY))
    book.expect("launch t/0#1 on n/0").tell(crashed("s/0#2", 1, "ValueError"))
    assert book.trial().phase is Phase.FAILED
    assert book.trial("t/0").phase is Phase.STARTING, "of another study"


def test_what_runs_of_a_study_that_ends_is_stopped_and_what_waits_is_over() -> None:
    book = play(3, on_third_failure=OnThirdFailure.STUDY, max_failures=1)
    book.tell(joined(2, node="m")).tell(started("s/1#1"), crashed("s/0#1", 1))
    book.expect(
        "launch s/0#1 on n/0", "launch s/1#1 on m/0", "launch s/2#1 on m/1",
        "stop s/1#1", "stop s/2#1",
    )  # fmt: skip
    assert book.trial("s/1").ending.reason == "s/0 failed for good (retry.on_third_failure: study)"
    book.tell(completed("s/1#1"))
    assert book.trial("s/1").phase is Phase.COMPLETED


def test_a_lost_node_ends_a_strict_study_with_what_its_trials_have_come_to() -> None:
    book = play(2, on_third_failure=OnThirdFailure.STUDY, max_failures=1)
    book.tell(crashed_host("s/0#1"), Paused(("s/0",), "r1")).tell(started("s/1#1"))
    book.tell(reported("s/1#1", 5, [1.0] * 5), Paused(("s/1",), "r2")).tell(parked("s/1#1", 5))
    book.tell(Unpaused(("s/0",), "r3"))
    for attempt in range(2, 10):
        book.tell(crashed_host(f"s/0#{attempt}")).at(book.now + 60)
    assert book.busy() == "s/0#10"
    book.tell(joined(boot="b2"))
    assert (book.trial().phase, book.trial("s/1").phase) == (Phase.FAILED, Phase.STOPPED)
    assert book.trial("s/1").step == 5


def test_otherwise_the_study_goes_on() -> None:
    book = play(2, max_failures=1).tell(crashed("s/0#1", 1))
    book.expect("launch s/0#1 on n/0", "launch s/1#1 on n/0")
