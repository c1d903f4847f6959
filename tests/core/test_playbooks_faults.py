"""The scheduler's conversations when things go wrong: crashes, silence, late and doubled words."""

from __future__ import annotations

from typing import Any

import pytest

from hermesd.core.decide.scheduler import SILENT_STOP_SECONDS, Scheduler
from hermesd.core.events import (
    Cancelled,
    DeviceFailed,
    NodeLost,
    NodeSilent,
    ParkLost,
    Paused,
    Retried,
    RunFailed,
    Unpaused,
)
from hermesd.core.model import Phase, Plugin, StopRule, Tier
from hermesd.core.placement import make_placement
from hermesd.policy import make_policy
from tests.core.playbook import (
    LEASE,
    Playbook,
    checkpoint,
    checkpointed,
    completed,
    crashed,
    joined,
    killed,
    live,
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
FOREVER = LEASE.silence_seconds


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


def test_a_start_that_is_told_twice_while_the_device_is_asked_back_counts_once() -> None:
    book = play(2, policy=ROUND_ROBIN).tell(started("s/0#1"), reported("s/0#1", 30, [1.0] * 30))
    book.tell(quantum_ended("s/0#1", step=30))
    assert book.trial().phase is Phase.SUSPENDING
    book.refuses(started("s/0#1"), "s/0#1 is suspending already")


@pytest.mark.parametrize("later", [(0.6, 0.7), (0.95, 0.6), (0.95, 0.1)])
def test_the_extremes_of_a_metric_from_before_the_checkpoint_outlive_a_fall_back(
    later: tuple[float, float],
) -> None:
    def accuracies(name: str, *seen: tuple[int, float]) -> None:
        for step, value in seen:
            book.tell(reported(name, step, [1.0], metrics=(("accuracy", value),)))

    book = play().tell(started("s/0#1"))
    accuracies("s/0#1", (10, 0.9), (20, 0.5), (30, 0.6))
    book.tell(checkpointed("s/0#1", 30))
    accuracies("s/0#1", (40, later[0]), (50, later[1]))
    undisturbed = book.trial().metrics["accuracy"]
    book.tell(killed("s/0#1", 50)).tell(started("s/0#2", 30))
    known = book.trial().metrics.get("accuracy")
    if known is not None:
        assert known.last is None, "it is to be trained again"
        assert 0.5 <= known.low <= known.high <= 0.9
    accuracies("s/0#2", (40, later[0]), (50, later[1]))
    again = book.trial().metrics["accuracy"]
    assert (again.last, again.low, again.high) == (
        undisturbed.last,
        undisturbed.low,
        undisturbed.high,
    )


def test_one_broken_device_ends_no_trial_that_another_would_run() -> None:
    """Whatever starts on n/1 dies there; n/0 is busy for long, and then they do well there."""
    book = play(trials=4, devices=2).tell(started("s/0#1"), started("s/1#1"))
    for step in range(9):
        if holder := book.busy("n/1"):
            book.tell(crashed(holder, step))
    assert book.busy("n/1") is None
    assert [len(book.trial(f"s/{number}").failures) for number in range(4)] == [0, 1, 1, 1]
    for name in ("s/0#1", "s/1#2", "s/2#2", "s/3#2"):
        assert book.busy("n/0") == name
        assert ("n/1" in book.state.quarantined) == (name in ("s/2#2", "s/3#2"))
        book.tell(completed(name))
    assert {trial.phase for trial in book.state.trials.values()} == {Phase.COMPLETED}


def test_a_trial_fails_for_good_on_two_devices() -> None:
    book = play(devices=2)
    book.tell(crashed("s/0#1", 3, "ValueError")).tell(crashed("s/0#2", 3, "ValueError"))
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on n/1")
    assert book.trial().phase is Phase.FAILED


def test_a_device_alone_fails_a_trial_only_while_it_is_alone() -> None:
    book = play()
    book.tell(crashed("s/0#1", 1)).tell(crashed("s/0#2", 2))
    book.tell(submitted(1, "t", max_failures=1)).tell(joined(1, node="m"))
    book.tell(crashed("s/0#3", 3)).expect(
        "launch s/0#1 on n/0",
        "launch s/0#2 on n/0",
        "launch s/0#3 on n/0",
        "launch t/0#1 on m/0",
    )
    assert book.trial().phase is Phase.WAITING
    book.tell(crashed("t/0#1", 1)).expect("launch s/0#4 on m/0")
    assert book.trial("t/0").phase is Phase.FAILED
    assert book.tell(crashed("s/0#4", 4)).trial().phase is Phase.FAILED


def test_a_failed_device_is_used_again_when_no_other_works() -> None:
    book = (
        play(devices=2)
        .tell(crashed("s/0#1", 1))
        .expect("launch s/0#1 on n/0", "launch s/0#2 on n/1")
    )
    book.tell(DeviceFailed("n/1", "ECC")).tell(crashed("s/0#2", 2))
    book.expect("launch s/0#3 on n/0")


def test_a_machine_that_failed_a_trial_twice_is_avoided() -> None:
    book = play(trials=2, devices=2).expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
    for attempt in (1, 2):
        book.tell(RunFailed(run(f"s/0#{attempt}"), "not_started", "no such device", "", 0))
    book.at(1).expect("launch s/0#2 on n/0")
    book.tell(completed("s/1#1")).expect("launch s/0#3 on n/1")


def test_a_home_is_given_up_when_the_trial_fails_there() -> None:
    book = homes().tell(crashed("s/1#1", 1))
    book.expect("bind s/1 to n/0", "launch s/3#1 on n/1")


def test_the_machines_faults_are_not_the_trials() -> None:
    book = play(max_failures=1)
    for attempt in range(1, 10):
        kind = ("lost", "not_started", "killed")[attempt % 3]
        book.at(book.now + 60).tell(RunFailed(run(f"s/0#{attempt}"), kind, "no host", "", 0))
    book.at(book.now + 60)
    assert (book.trial().phase, len(book.trial().failures)) == (Phase.STARTING, 9)
    # A checkpoint shows that the trial gets on: they are counted anew.
    book.tell(started("s/0#10")).tell(checkpointed("s/0#10", 4))
    for attempt in range(10, 19):
        book.at(book.now + 60).tell(RunFailed(run(f"s/0#{attempt}"), "lost", "no host", "", 4))
        book.tell(checkpointed(f"s/0#{attempt}", 4))
    book.at(book.now + 60)
    assert book.trial().phase is Phase.STARTING
    book.tell(RunFailed(run("s/0#19"), "lost", "no host", "", 4))
    assert book.trial().phase is Phase.FAILED
    assert book.trial().reason == "no host (10 times without progress)"
    book.tell(Retried(("s/0",), "r1"))
    book.tell(RunFailed(run("s/0#20"), "lost", "no host", "", 4))
    assert book.trial().phase is Phase.STARTING


def test_a_full_disk_is_waited_for_ever_longer() -> None:
    book, waits = play(), []
    for attempt in range(1, 31):
        book.expect(f"launch s/0#{attempt} on n/0")
        book.tell(RunFailed(run(f"s/0#{attempt}"), "not_started", "disk full", "", 0))
        if (deadline := book.scheduler.deadline) is not None:
            waits.append(deadline - book.now)
            assert "disk full" in book.scheduler.explain("s/0", book.now).summary
            book.at(deadline - 0.1).expect()
            book.at(deadline)
    assert waits == [1, 2, 4, 8, 16, 32, *[60] * 22]
    assert book.trial().phase is Phase.FAILED
    assert book.scheduler.deadline is None


def test_others_go_on_while_one_waits_for_its_machine() -> None:
    book = play(trials=2)
    for attempt in (1, 2):
        book.tell(RunFailed(run(f"s/0#{attempt}"), "not_started", "disk full", "", 0))
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on n/0", "launch s/1#1 on n/0")
    book.at(1).expect()
    book.at(2).tell(completed("s/1#1")).expect("launch s/0#3 on n/0")


def test_a_person_need_not_wait_for_the_machine() -> None:
    book = play(max_failures=1)
    for attempt in range(1, 11):
        book.at(book.now + 60).tell(RunFailed(run(f"s/0#{attempt}"), "lost", "gone", "", 0))
    book.expect(*(f"launch s/0#{attempt} on n/0" for attempt in range(1, 11)))
    book.tell(Retried(("s/0",), "r1")).expect("launch s/0#11 on n/0")


def test_a_restarted_head_waits_for_the_machine_as_well() -> None:
    book = play()
    for attempt in (1, 2):
        book.tell(RunFailed(run(f"s/0#{attempt}"), "not_started", "disk full", "", 0))
    book.scheduler = Scheduler(book.state, make_policy, make_placement, LEASE)
    assert book.scheduler.decide(0.5) == []
    assert book.scheduler.deadline == 1.0


def test_a_program_fails_by_its_own_faults_among_the_machines() -> None:
    book = play(max_failures=2)
    for attempt, kind in enumerate(("lost", "exception", "lost", "exception"), 1):
        assert book.at(book.now + 60).trial().phase is Phase.STARTING
        book.tell(RunFailed(run(f"s/0#{attempt}"), kind, "gone", "", attempt))
    assert book.trial().reason == "gone (no tries left)"


def test_a_trial_that_brings_its_machine_down_does_not_do_so_for_ever() -> None:
    book = play(max_failures=1)
    for attempt in range(1, 11):
        assert book.at(book.now + 60).trial().phase is Phase.STARTING
        book.tell(started(f"s/0#{attempt}"))
        book.tell(reported(f"s/0#{attempt}", 5, [1.0] * 5))
        book.tell(joined(boot=f"b{attempt}"))
    assert book.trial().phase is Phase.FAILED
    assert [failure.error_kind for failure in book.trial().failures] == ["lost"] * 10
    assert book.busy() is None


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


def test_reports_without_losses_that_come_twice_count_once() -> None:
    book = play().tell(started("s/0#1"))
    busy = [reported("s/0#1", 0, [], busy_seconds=5.0, number=number) for number in (4, 5)]
    book.tell(*busy)
    for event in busy:
        book.refuses(event, "heard before")
    assert book.trial().use.busy_seconds == 10.0
    # The next run's host counts anew.
    book.tell(crashed("s/0#1")).tell(started("s/0#2"))
    book.tell(reported("s/0#2", 0, [], busy_seconds=5.0, number=4))
    assert book.trial().use.busy_seconds == 15.0


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


def test_a_program_that_ended_as_it_was_parked_has_completed() -> None:
    book = play(trials=2, policy=ROUND_ROBIN).tell(started("s/0#1"))
    book.tell(quantum_ended("s/0#1")).tell(parked("s/0#1", 30)).heard()
    last = reported("s/0#1", 31, [0.5] * 31, metrics=(("loss", 0.5),))
    book.tell(last).refuses(last, "reported before")
    book.tell(completed("s/0#1", 31)).expect()
    trial = book.trial()
    assert (trial.phase, trial.step, trial.loss) == (Phase.COMPLETED, 31, 0.5)
    book.refuses(completed("s/0#1", 31), "present run")
    book.tell(completed("s/1#1")).expect()


def test_a_program_that_ended_while_it_was_to_go_on_has_completed() -> None:
    book = play().tell(started("s/0#1"), checkpointed("s/0#1", 2)).tell(Paused(("s/0",), "r1"))
    book.tell(parked("s/0#1", 5)).tell(Unpaused(("s/0",), "r2"))
    book.tell(completed("s/0#1", 5))
    assert (book.trial().phase, book.busy()) == (Phase.COMPLETED, None)
    assert "launch s/0#3" not in " ".join(book.heard())


def test_a_program_that_failed_as_it_was_parked_has_failed_once() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1"))
    book.tell(parked("s/0#1", 5), crashed("s/0#1", 5)).tell(Unpaused(("s/0",), "r2"))
    (failure,) = book.trial().failures
    assert (failure.attempt, failure.device, failure.detail) == (1, "n/0", "it broke")
    assert book.heard()[-1] == "launch s/0#2 on n/0", "and is tried again from the beginning"


def test_what_takes_a_parked_process_away_is_no_failure_of_its_program() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.refuses(RunFailed(run("s/0#1"), "killed", "killed by SIGKILL", "", 5), "present run")


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


def test_figures_of_training_that_is_gone_are_gone() -> None:
    book = play().tell(started("s/0#1"))
    book.tell(reported("s/0#1", 30, [1.0] * 30, metrics=(("accuracy", 0.5),)))
    book.tell(checkpointed("s/0#1", 40))
    book.tell(reported("s/0#1", 100, [1.0] * 70, metrics=(("val_loss", 0.1),)))
    book.tell(crashed("s/0#1", 100))
    assert list(book.trial().metrics) == ["accuracy"]
    # Started from an older checkpoint than was thought: the newer one was damaged.
    book.tell(started("s/0#2", 20))
    assert book.trial().metrics == {}
    book.tell(reported("s/0#2", 25, [1.0] * 5, metrics=(("val_loss", 0.7),)))
    assert book.trial().metrics["val_loss"].low == 0.7


def test_a_trial_that_was_stopped_for_good_keeps_its_figures_without_a_checkpoint() -> None:
    book = play(stop=StopRule(max_steps=10)).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 10, [1.0] * 10, metrics=(("val_loss", 0.1),)))
    book.tell(killed("s/0#1", 10))
    assert (book.trial().phase, book.trial().step, book.trial().kept) == (Phase.STOPPED, 10, None)
    assert book.trial().metrics["val_loss"].last == 0.1
    book.tell(Retried(("s/0",), "r1"))
    assert (book.trial().step, book.trial().metrics) == (0, {})


def test_nan_stops_a_trial_unless_the_study_says_otherwise() -> None:
    bad = {"not_finite": True}
    book = play().tell(started("s/0#1")).tell(reported("s/0#1", 1, [1.0], **bad))
    book.expect("launch s/0#1 on n/0", "stop s/0#1")
    book = play(stop=StopRule(on_nan=False)).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 1, [1.0], **bad)).expect("launch s/0#1 on n/0")


def test_a_silent_program_uses_up_its_time() -> None:
    """Its end does not wait for a boundary as long as one that is known to come."""
    book = play(stop=StopRule(max_seconds=30.0))
    book.tell(started("s/0#1"), reported("s/0#1", 4, [1.0, 1.0], busy_seconds=10.0))
    book.tell(reported("s/0#1", 4, [], busy_seconds=15.0))
    book.expect("launch s/0#1 on n/0").tell(reported("s/0#1", 4, [], busy_seconds=5.0))
    book.expect("stop s/0#1")
    stop = book.trial().run.asked
    assert stop.deadline_seconds == SILENT_STOP_SECONDS
    assert "max_seconds" in stop.reason


def test_an_iteration_that_is_told_of_in_parts_has_its_whole_length() -> None:
    book = play().tell(started("s/0#1"), reported("s/0#1", 1, [1.0], busy_seconds=100.0))
    for silent in (5.0, 5.0):
        book.tell(reported("s/0#1", 1, [], busy_seconds=silent))
    book.tell(reported("s/0#1", 2, [1.0], busy_seconds=2.0))
    assert book.trial().seconds_per_step == 12.0


def test_a_program_that_compiles_for_long_has_made_no_step_yet() -> None:
    book = play().tell(started("s/0#1"))
    for silent in (5.0, 5.0):
        book.tell(reported("s/0#1", 0, [], busy_seconds=silent))
    book.tell(reported("s/0#1", 1, [1.0], busy_seconds=3.0))
    assert book.trial().seconds_per_step is None
    book.tell(reported("s/0#1", 2, [1.0], busy_seconds=1.0))
    assert book.trial().seconds_per_step == 1.0


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


HOMES = Plugin("homes")


def homes(devices: int = 2, **changes: Any) -> Playbook:
    """Four trials bound to two devices by turns; those on the first two have begun."""
    book = play(trials=4, devices=devices, placement=HOMES, **changes)
    book.tell(started("s/0#1"), started("s/1#1"))
    book.expect(
        *(f"bind s/{number} to n/{number % devices}" for number in range(4)),
        *(f"launch s/{number}#1 on n/{number}" for number in range(devices)),
    )
    return book


def test_a_home_is_given_up_when_its_device_is_unplugged() -> None:
    book = homes().tell(joined(1, live=[live("s/0#1")]))
    book.expect("bind s/1 to n/0", "bind s/3 to n/0")
    for name in ("s/0#1", "s/1#2", "s/2#1", "s/3#1"):
        book.tell(completed(name))
    assert {trial.phase for trial in book.state.trials.values()} == {Phase.COMPLETED}


def test_a_home_is_given_up_when_its_device_fails() -> None:
    book = homes().tell(DeviceFailed("n/1", "ECC")).expect("bind s/3 to n/0")
    book.tell(RunFailed(run("s/1#1"), "lost", "gpu gone", "", 0)).expect("bind s/1 to n/0")


def test_a_home_is_given_up_when_its_node_is_lost_but_not_while_it_is_silent() -> None:
    book = homes().tell(NodeSilent("n", "cut")).tell(joined(2, node="m"))
    book.expect()
    book.at(FOREVER).expect(
        "bind s/0 to m/0",
        "bind s/1 to m/1",
        "bind s/2 to m/0",
        "bind s/3 to m/1",
        "launch s/0#2 on m/0",
        "launch s/1#2 on m/1",
    )


def test_homes_that_are_gone_make_no_room() -> None:
    few = Plugin("homes", (("G_thres", 2),))
    book = play(trials=6, devices=2, placement=few).tell(DeviceFailed("n/1", "ECC"))
    homeless = [f"s/{number}" for number in range(6) if book.trial(f"s/{number}").home != "n/0"]
    assert homeless == ["s/1", "s/3", "s/4", "s/5"]
    book.tell(started("s/0#1")).tell(completed("s/0#1"))
    assert book.trial("s/3").home == "n/0"


def test_a_parked_trial_without_a_home_lets_others_have_theirs() -> None:
    few = Plugin("homes", (("G_thres", 1),))
    book = play(trials=2, placement=few, policy=ROUND_ROBIN).tell(started("s/0#1"))
    book.tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(DeviceFailed("n/0", "ECC")).tell(Unpaused(("s/0",), "r2"))
    book.tell(joined(1, node="m"))
    book.expect(
        "bind s/0 to n/0",
        "launch s/0#1 on n/0 for 30 s",
        "suspend s/0#1",
        "bind s/1 to m/0",
        "launch s/1#1 on m/0 for 30 s",
    )


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


def test_what_is_due_at_the_deadline_is_said_at_the_deadline() -> None:
    silent = 8.895597363272703
    book = play().at(silent).tell(NodeSilent("n", "cut"))
    deadline = book.scheduler.deadline
    assert deadline is not None
    assert book.scheduler.due(deadline) == [NodeLost("n")]
