"""The scheduler's conversations: who is launched, renewed, suspended and stopped, and when."""

from __future__ import annotations

import pytest

from hermesd.core.events import (
    Cancelled,
    DeviceFailed,
    Extended,
    NodeLost,
    NodeSilent,
    ParkLost,
    Paused,
    Removed,
    Retried,
    Unpaused,
)
from hermesd.core.model import Milestone, Phase, Plugin, StopRule, Tier
from hermesd.core.policy import Score
from hermesd.core.trial import Trial
from hermesd.policy.fifo import Fifo
from tests.core import playbook
from tests.core.playbook import (
    LEASE,
    checkpoint,
    checkpointed,
    completed,
    crashed,
    joined,
    killed,
    live,
    milestone,
    parked,
    play,
    quantum_ended,
    reported,
    run,
    started,
    submitted,
    written,
)

ROUND_ROBIN = Plugin("round_robin")
HERMES = Plugin("hermes")
FOREVER = LEASE.silence_seconds


def test_first_in_first_out_on_two_devices() -> None:
    (
        play(trials=3, devices=2)
        .expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
        .at(1)
        .tell(started("s/0#1"), started("s/1#1"))
        .expect()
        .at(5)
        .tell(completed("s/1#1", 10))
        .expect("launch s/2#1 on n/1")
        .at(9)
        .tell(completed("s/0#1", 10), started("s/2#1"))
        .expect()
        .at(12)
        .tell(completed("s/2#1", 10))
        .expect()
    )


def test_round_robin_takes_turns_and_resumes_what_is_parked() -> None:
    (
        play(trials=2, policy=ROUND_ROBIN)
        .expect("launch s/0#1 on n/0 for 30 s")
        .at(1)
        .tell(started("s/0#1"))
        .expect()
        .at(31)
        .tell(quantum_ended("s/0#1", step=30))
        .expect("suspend s/0#1 for s/1")
        .at(32)
        .tell(parked("s/0#1", 31))
        .expect("launch s/1#1 on n/0 for 30 s")
        .at(33)
        .tell(started("s/1#1"))
        .at(63)
        .tell(quantum_ended("s/1#1", step=30))
        .expect("suspend s/1#1 for s/0")
        .at(64)
        .tell(parked("s/1#1", 31))
        .expect("launch s/0#2 on n/0 for 30 s from s/0#1")
    )


def test_who_is_alone_is_renewed() -> None:
    (
        play(policy=ROUND_ROBIN)
        .tell(started("s/0#1"))
        .expect("launch s/0#1 on n/0 for 30 s")
        .at(30)
        .tell(quantum_ended("s/0#1"))
        .expect("renew s/0#1.1 for 30 s")
        .at(60)
        .tell(quantum_ended("s/0#1", grant=1))
        .expect("renew s/0#1.2 for 30 s")
    )


def test_an_end_of_quantum_is_heard_once() -> None:
    (
        play(policy=ROUND_ROBIN)
        .tell(started("s/0#1"))
        .at(30)
        .tell(quantum_ended("s/0#1"))
        .refuses(quantum_ended("s/0#1"), "over already")
        .refuses(quantum_ended("s/0#1", grant=2), "over already")
    )


def test_hermes_explores_then_keeps_what_falls_fastest() -> None:
    book = play(trials=2, policy=HERMES).expect("launch s/0#1 on n/0 for 10 s")
    book.tell(started("s/0#1")).at(10)
    book.tell(reported("s/0#1", 10, [4.0] * 10), quantum_ended("s/0#1", step=10))
    book.expect("suspend s/0#1 for s/1").tell(parked("s/0#1", 10))
    book.expect("launch s/1#1 on n/0 for 10 s").tell(started("s/1#1")).at(20)
    book.tell(reported("s/1#1", 10, [4.0, 2.0] * 5), quantum_ended("s/1#1", step=10))
    book.expect("renew s/1#1.1 for 10 s")


def test_a_milestone_lengthens_the_quantum_at_once() -> None:
    book = play(policy=HERMES).tell(started("s/0#1")).expect("launch s/0#1 on n/0 for 10 s")
    book.at(10).tell(reported("s/0#1", 10, [4.0] * 10), quantum_ended("s/0#1", step=10))
    book.expect("renew s/0#1.1 for 10 s")
    holder = book.trial().run
    assert holder is not None
    assert holder.quantum.milestones[0] == Milestone(25.0, 3.0)
    book.at(14).tell(milestone("s/0#1", 25.0, 2.9, 14)).expect("extend s/0#1.2 for 20 s")
    book.refuses(milestone("s/0#1", 25.0, 2.8, 15), "before")
    book.at(18).tell(milestone("s/0#1", 50.0, 1.9, 18)).expect("extend s/0#1.3 for 30 s")


def test_the_literal_algorithm_lets_the_winner_go() -> None:
    literal = Plugin("hermes", (("winner_may_stay", False),))
    book = play(trials=2, policy=literal).tell(started("s/0#1"))
    book.at(10).tell(reported("s/0#1", 10, [4.0, 2.0] * 5), quantum_ended("s/0#1", step=10))
    book.tell(parked("s/0#1", 10)).tell(started("s/1#1"))
    book.at(20).tell(reported("s/1#1", 10, [4.0] * 10), quantum_ended("s/1#1", step=10))
    book.tell(parked("s/1#1", 10)).tell(started("s/0#2", step=10))
    book.at(30).tell(reported("s/0#2", 20, [2.0, 0.5] * 5), quantum_ended("s/0#2", step=20))
    book.expect(
        "launch s/0#1 on n/0 for 10 s",
        "suspend s/0#1 for s/1",
        "launch s/1#1 on n/0 for 10 s",
        "suspend s/1#1 for s/0",
        "launch s/0#2 on n/0 for 10 s from s/0#1",
        "suspend s/0#2 for s/1",
    )


def test_asha_lets_a_trial_that_is_held_back_use_an_idle_device() -> None:
    halving = Plugin("asha", (("eta", 2), ("min_rung", 10.0), ("max_rung", 20.0)))
    book = play(trials=2, devices=2, policy=halving)
    book.expect("launch s/0#1 on n/0 for step 10", "launch s/1#1 on n/1 for step 10")
    book.tell(started("s/0#1"), started("s/1#1"))
    book.at(5).tell(reported("s/0#1", 10, [2.0] * 10), quantum_ended("s/0#1", step=10))
    book.expect("renew s/0#1.1")
    book.at(6).tell(reported("s/1#1", 10, [1.0] * 10), quantum_ended("s/1#1", step=10))
    book.expect("renew s/1#1.1")


def test_homes_bind_each_trial_to_its_device() -> None:
    book = play(trials=3, devices=2, policy=ROUND_ROBIN, placement=Plugin("homes"))
    book.expect(
        "bind s/0 to n/0",
        "bind s/1 to n/1",
        "bind s/2 to n/0",
        "launch s/0#1 on n/0 for 30 s",
        "launch s/1#1 on n/1 for 30 s",
    )
    book.tell(started("s/0#1"), started("s/1#1")).at(30)
    book.tell(quantum_ended("s/1#1"), quantum_ended("s/0#1"))
    book.expect("suspend s/0#1 for s/2", "renew s/1#1.1 for 30 s")


# -- people --------------------------------------------------------------------------------------


def test_what_is_parked_on_a_silent_node_is_released_when_it_is_back() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(NodeSilent("n", "cut")).tell(Cancelled(("s/0",), "r2"))
    book.expect("launch s/0#1 on n/0", "suspend s/0#1")
    book.tell(joined(live=[live("s/0#1", "parked")])).expect("release s/0 on n")


def test_a_release_that_was_not_sent_is_void_for_a_trial_that_goes_on() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(NodeSilent("n", "cut")).tell(Cancelled(("s/0",), "r2"))
    book.tell(Retried(("s/0",), "r3")).expect("launch s/0#1 on n/0", "suspend s/0#1")
    book.tell(joined(live=[live("s/0#1", "parked")]))
    book.expect("launch s/0#2 on n/0", "kill s/0#1 on n")


def test_a_running_trial_is_stopped_for_good() -> None:
    book = play(trials=2).tell(started("s/0#1")).expect("launch s/0#1 on n/0")
    book.at(3).tell(Cancelled(("s/0",), "r1")).expect("stop s/0#1")
    assert book.trial().phase is Phase.SUSPENDING
    book.at(4).tell(written("s/0#1", 7)).expect("launch s/1#1 on n/0")
    assert book.trial().phase is Phase.CANCELLED
    assert book.trial().reason == "stopped by a person"


def test_a_waiting_trial_ends_at_once_and_its_parked_process_is_released() -> None:
    book = play(trials=2, policy=ROUND_ROBIN).tell(started("s/0#1"))
    book.at(30).tell(quantum_ended("s/0#1")).tell(parked("s/0#1", 30))
    book.expect(
        "launch s/0#1 on n/0 for 30 s",
        "suspend s/0#1 for s/1",
        "launch s/1#1 on n/0 for 30 s",
    )
    book.tell(Cancelled(("s/0",), "r1")).expect("release s/0 on n")
    assert book.trial().phase is Phase.CANCELLED


def test_a_trial_is_stopped_while_it_starts() -> None:
    book = play().expect("launch s/0#1 on n/0")
    book.tell(Cancelled(("s/0",), "r1")).expect("stop s/0#1")
    book.tell(started("s/0#1")).expect().tell(killed("s/0#1")).expect()
    assert book.trial().phase is Phase.CANCELLED


def test_a_program_that_ends_while_it_is_stopped_has_completed() -> None:
    book = play().tell(started("s/0#1")).tell(Cancelled(("s/0",), "r1"))
    book.tell(completed("s/0#1", 9))
    assert book.trial().phase is Phase.COMPLETED


def test_pause_suspends_and_unpause_resumes() -> None:
    book = play().tell(started("s/0#1")).expect("launch s/0#1 on n/0")
    book.tell(Paused(("s/0",), "r1")).expect("suspend s/0#1")
    book.tell(parked("s/0#1", 5)).expect()
    book.tell(Unpaused(("s/0",), "r2")).expect("launch s/0#2 on n/0 from s/0#1")


def test_a_pause_during_the_start_waits_for_it() -> None:
    book = play().expect("launch s/0#1 on n/0").tell(Paused(("s/0",), "r1")).expect()
    book.tell(started("s/0#1")).expect("suspend s/0#1")


def test_unpaused_in_flight_the_suspend_goes_on_and_the_trial_returns() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1"))
    book.tell(Unpaused(("s/0",), "r2")).expect("launch s/0#1 on n/0", "suspend s/0#1")
    book.tell(parked("s/0#1", 5)).expect("launch s/0#2 on n/0 from s/0#1")


def test_a_request_has_one_effect() -> None:
    book = play().tell(Paused(("s/0",), "r1"))
    book.refuses(Paused(("s/0",), "r1"), "before")
    assert book.state.requests["r1"] == ("s/0",)


def test_a_stopped_trial_is_extended_and_goes_on_from_its_checkpoint() -> None:
    book = play(stop=StopRule(max_steps=5)).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 5, [1.0])).tell(written("s/0#1", 5))
    assert book.trial().phase is Phase.STOPPED
    longer = Extended("s", ("s/0",), StopRule(max_steps=9), (("epochs", 2),), (("x",),), "r1")
    book.tell(longer)
    book.expect("launch s/0#1 on n/0", "stop s/0#1", "launch s/0#2 on n/0 from s/0#1@5")
    assert dict(book.trial().spec.parameters)["epochs"] == 2
    assert book.trial().spec.argv == ("x",)


def test_a_cancelled_trial_is_retried() -> None:
    book = play().tell(Cancelled(("s/0",), "r1")).tell(killed("s/0#1"))
    book.expect("launch s/0#1 on n/0", "stop s/0#1")
    book.tell(Retried(("s/0",), "r2")).expect("launch s/0#2 on n/0")
    book.refuses(Retried(("s/0",), "r3"), "not finished")


def test_a_removed_study_is_forgotten_everywhere() -> None:
    book = play().tell(started("s/0#1")).expect("launch s/0#1 on n/0")
    book.refuses(Removed("s", "r1"), "unfinished")
    book.tell(completed("s/0#1", 3)).tell(Removed("s", "r2")).expect("forget s/0 on n")
    book.refuses(started("s/0#1"), "no trial")


def test_a_submission_is_taken_once() -> None:
    play().refuses(submitted(), "exists")


def test_two_studies_share_the_devices() -> None:
    book = play(trials=3, devices=None).tell(submitted(3, name="t")).tell(joined(4))
    book.expect(
        "launch s/0#1 on n/0",
        "launch t/0#1 on n/1",
        "launch s/1#1 on n/2",
        "launch t/1#1 on n/3",
    )


def test_a_policy_that_raises_gives_way_to_first_in_first_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Fifo):
        def score(self, trial: Trial) -> Score:
            raise ZeroDivisionError("no mercy")

    def make(plugin: Plugin) -> Fifo:
        return Broken() if plugin.name == "broken" else Fifo()

    monkeypatch.setattr(playbook, "make_policy", make)
    book = play(trials=2, policy=Plugin("broken")).expect("launch s/0#1 on n/0")
    assert book.state.fallen == {"s": "ZeroDivisionError: no mercy"}


# -- what goes wrong -----------------------------------------------------------------------------


def test_a_crash_is_tried_again_elsewhere_from_the_checkpoint() -> None:
    book = play(devices=2).tell(started("s/0#1")).expect("launch s/0#1 on n/0")
    book.tell(checkpointed("s/0#1", 4)).tell(crashed("s/0#1", 6))
    book.expect("launch s/0#2 on n/1 from s/0#1@4")
    assert book.trial().step == 4


def test_three_failures_are_final() -> None:
    book = play()
    for attempt in (1, 2, 3):
        book.tell(started(f"s/0#{attempt}")).tell(crashed(f"s/0#{attempt}", attempt))
    book.expect(*(f"launch s/0#{attempt} on n/0" for attempt in (1, 2, 3)))
    assert book.trial().phase is Phase.FAILED
    assert "no tries left" in book.trial().reason


def test_the_same_error_at_the_same_step_is_final_at_once() -> None:
    book = play().tell(crashed("s/0#1", 3, "ValueError")).tell(crashed("s/0#2", 3, "ValueError"))
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on n/0")
    assert book.trial().phase is Phase.FAILED


def test_stale_messages_change_nothing() -> None:
    book = play().tell(crashed("s/0#1")).tell(started("s/0#2"))
    for stale in (
        started("s/0#1"),
        reported("s/0#1", 3, [1.0]),
        quantum_ended("s/0#1"),
        parked("s/0#1"),
        completed("s/0#1"),
        crashed("s/0#1"),
        ParkLost(run("s/0#1"), "gone"),
    ):
        book.refuses(stale, "not the present run")


def test_a_report_that_comes_twice_counts_once() -> None:
    book = play().tell(started("s/0#1"))
    first = reported("s/0#1", 10, [1.0] * 10, busy_seconds=2.0)
    second = reported("s/0#1", 20, [1.0] * 10, busy_seconds=2.0)
    book.tell(first, second).refuses(first, "before").refuses(second, "before")
    assert book.trial().use.busy_seconds == 4.0
    assert book.trial().current.count == 20
    book.tell(reported("s/0#1", 20, [], metrics=(("val_loss", 3.0),)))
    assert book.trial().metrics["val_loss"].last == 3.0


def test_a_late_checkpoint_of_an_older_attempt_is_welcome() -> None:
    book = play().tell(started("s/0#1")).tell(killed("s/0#1")).tell(checkpointed("s/0#1", 5))
    assert book.trial().checkpoint == checkpoint("s/0#1", 5)


def test_a_lost_park_falls_back_to_the_checkpoint() -> None:
    book = play(trials=2, policy=ROUND_ROBIN).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 30, [1.0] * 30), checkpointed("s/0#1", 20))
    book.tell(quantum_ended("s/0#1")).tell(parked("s/0#1", 30))
    book.tell(ParkLost(run("s/0#1"), "out of memory"))
    assert (book.trial().step, book.trial().kept) == (20, None)
    book.tell(completed("s/1#1"))
    book.expect(
        "launch s/0#1 on n/0 for 30 s",
        "suspend s/0#1 for s/1",
        "launch s/1#1 on n/0 for 30 s",
        "launch s/0#2 on n/0 for 30 s from s/0#1@20",
    )


def test_a_park_lost_under_a_launch_frees_the_device() -> None:
    book = play().tell(started("s/0#1"), checkpointed("s/0#1", 2)).tell(Paused(("s/0",), "r1"))
    book.tell(parked("s/0#1", 5)).tell(Unpaused(("s/0",), "r2"))
    book.expect("launch s/0#1 on n/0", "suspend s/0#1", "launch s/0#2 on n/0 from s/0#1")
    book.tell(ParkLost(run("s/0#1"), "gone")).expect("launch s/0#3 on n/0 from s/0#1@2")


def test_a_park_lost_before_it_was_heard_of_frees_the_device() -> None:
    book = play().tell(started("s/0#1"), checkpointed("s/0#1", 2))
    book.tell(ParkLost(run("s/0#1"), "parked when its lease was out, then gone"))
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on n/0 from s/0#1@2")


def test_a_suspend_that_killed_costs_what_no_checkpoint_holds() -> None:
    book = play(trials=2, policy=ROUND_ROBIN).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 30, [1.0] * 30), checkpointed("s/0#1", 20))
    book.tell(quantum_ended("s/0#1")).tell(killed("s/0#1", 30))
    assert book.trial().step == 20
    assert [chunk.last_step for chunk in book.trial().curve][-1] <= 20


def test_nan_stops_a_trial_unless_the_study_says_otherwise() -> None:
    bad = {"not_finite": True}
    book = play().tell(started("s/0#1")).tell(reported("s/0#1", 1, [1.0], **bad))
    book.expect("launch s/0#1 on n/0", "stop s/0#1")
    book = play(stop=StopRule(on_nan=False)).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 1, [1.0], **bad)).expect("launch s/0#1 on n/0")


def test_a_silent_node_keeps_its_runs_until_lease_grace_and_margin_are_out() -> None:
    book = play(trials=2).tell(started("s/0#1")).expect("launch s/0#1 on n/0")
    book.at(100).tell(NodeSilent("n", "the stream ended"))
    assert book.scheduler.deadline == 100 + FOREVER
    book.at(99 + FOREVER).expect()
    assert book.busy() == "s/0#1"
    book.refuses(NodeLost("other"), "no node")
    book.at(100 + FOREVER).expect()
    assert book.busy() is None
    assert book.trial().phase is Phase.WAITING


def test_a_node_that_comes_back_is_told_again_what_it_may_have_missed() -> None:
    book = play(devices=2, trials=2).tell(started("s/1#1"))
    book.tell(Cancelled(("s/1",), "r1"))
    book.expect("launch s/0#1 on n/0", "launch s/1#1 on n/1", "stop s/1#1")
    book.at(50).tell(NodeSilent("n", "cut"))
    book.at(60).tell(joined(2, live=[live("s/1#1", device="n/1"), live("s/0#1", "starting")]))
    assert book.outstanding() == ["launch s/0#1 on n/0", "stop s/1#1"]
    assert book.scheduler.deadline is None


def test_what_a_node_does_not_name_it_does_not_have() -> None:
    book = play().tell(started("s/0#1"), checkpointed("s/0#1", 8))
    book.tell(reported("s/0#1", 9, [1.0] * 9)).expect("launch s/0#1 on n/0")
    book.at(5).tell(joined(boot="b2")).expect("launch s/0#2 on n/0 from s/0#1@8")
    assert book.trial().step == 8


def test_a_lost_launch_of_a_parked_trial_keeps_the_park() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(Unpaused(("s/0",), "r2")).tell(joined(live=[live("s/0#1", "parked")]))
    book.expect(
        "launch s/0#1 on n/0",
        "suspend s/0#1",
        "launch s/0#2 on n/0 from s/0#1",
        "launch s/0#3 on n/0 from s/0#1",
    )
    assert book.trial().step == 5


def test_a_run_that_nobody_expects_is_killed() -> None:
    book = play().tell(started("s/0#1")).at(10).tell(NodeSilent("n", "cut"))
    book.at(10 + FOREVER)
    book.tell(joined(live=[live("s/0#1")]))
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on n/0", "kill s/0#1 on n")


def test_a_head_restored_from_an_older_journal_gives_no_attempt_twice() -> None:
    book = play(devices=None).tell(joined(live=[live("s/0#3")]))
    book.expect("launch s/0#4 on n/0", "kill s/0#3 on n")


def test_a_device_that_is_gone_keeps_its_place_until_it_is_back() -> None:
    book = play(trials=2, devices=2).tell(joined(1)).tell(joined(2, live=[live("s/0#2")]))
    book.expect(
        "launch s/0#1 on n/0",
        "launch s/1#1 on n/1",
        "launch s/0#2 on n/0",
        "launch s/1#2 on n/1",
    )


def test_a_run_that_ended_unheard_waits_for_its_event() -> None:
    book = play().tell(started("s/0#1")).tell(joined(live=[live("s/0#1", "ended")]))
    book.expect("launch s/0#1 on n/0").tell(completed("s/0#1", 7)).expect()
    assert book.trial().phase is Phase.COMPLETED


def test_a_failed_device_gets_nothing_until_its_node_says_hello() -> None:
    book = play(trials=2).tell(started("s/0#1")).tell(DeviceFailed("n/0", "Xid 79"))
    book.tell(crashed("s/0#1")).expect("launch s/0#1 on n/0")
    book.tell(joined()).expect("launch s/0#2 on n/0")


def test_a_reservation_is_void_if_the_successor_is_gone() -> None:
    book = play(trials=3, policy=ROUND_ROBIN).tell(started("s/0#1")).at(30)
    book.tell(quantum_ended("s/0#1")).tell(Cancelled(("s/1",), "r1"))
    book.tell(parked("s/0#1", 9))
    book.expect(
        "launch s/0#1 on n/0 for 30 s",
        "suspend s/0#1 for s/1",
        "launch s/2#1 on n/0 for 30 s",
    )


def test_a_successor_waits_for_its_own_device_only_while_that_can_come() -> None:
    book = play(trials=2, policy=ROUND_ROBIN).tell(started("s/0#1"))
    book.tell(quantum_ended("s/0#1")).expect(
        "launch s/0#1 on n/0 for 30 s", "suspend s/0#1 for s/1"
    )
    book.tell(joined(1, node="m")).expect()
    book.tell(NodeSilent("n", "cut")).expect("launch s/1#1 on m/0 for 30 s")


def test_a_demoted_park_is_resumed_from_its_checkpoint() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(written("s/0#1", 5))
    kept = book.trial().kept
    assert kept is not None
    assert kept.tier is Tier.CHECKPOINT
    book.tell(Unpaused(("s/0",), "r2"))
    book.expect("launch s/0#1 on n/0", "suspend s/0#1", "launch s/0#2 on n/0 from s/0#1@5")


def test_a_demotion_that_crosses_a_launch_is_no_loss() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(Unpaused(("s/0",), "r2")).tell(written("s/0#1", 5)).tell(started("s/0#2", 5))
    book.expect("launch s/0#1 on n/0", "suspend s/0#1", "launch s/0#2 on n/0 from s/0#1")
    assert book.trial().phase is Phase.RUNNING
    assert book.trial().step == 5


# -- questions -----------------------------------------------------------------------------------


def test_next_up_and_why() -> None:
    book = play(trials=3).tell(started("s/0#1"))
    assert book.scheduler.next_up("s", 2, 0.0) == ("s/1", "s/2")
    why = book.scheduler.explain("s/1", 0.0)
    assert "waiting" in why.summary
    assert "2 of 3" in why.summary
    assert [row[0] for row in why.ranking] == ["s/0", "s/1", "s/2"]
    assert "launched on n/0" in book.scheduler.explain("s/0", 0.0).last_decision
    book.tell(completed("s/0#1"))
    assert "completed" in book.scheduler.explain("s/0", 0.0).summary


def test_the_first_report_of_a_new_process_says_nothing_of_its_speed() -> None:
    book = play().expect("launch s/0#1 on n/0").at(1).tell(started("s/0#1")).expect()
    book.tell(reported("s/0#1", 1, [2.0], busy_seconds=30.0)).expect()
    assert book.state.trials["s/0"].seconds_per_step is None
    assert book.state.facts["s"].step_seconds == 0.0
    book.tell(reported("s/0#1", 11, [2.0] * 10, busy_seconds=1.0)).expect()
    assert book.state.trials["s/0"].seconds_per_step == pytest.approx(0.1)
    assert book.state.facts["s"].step_seconds == pytest.approx(0.1)


def test_what_is_due_at_the_deadline_is_said_at_the_deadline() -> None:
    silent = 8.895597363272703
    book = play().at(silent).tell(NodeSilent("n", "cut"))
    deadline = book.scheduler.deadline
    assert deadline is not None
    assert book.scheduler.due(deadline) == [NodeLost("n")]
