"""The conversation between a head, a node's machine and its hosts, told step by step."""

from dataclasses import replace

import pytest

from hermesd.core.commands import Kill, Release, Renew, Stop
from hermesd.core.events import (
    Checkpointed,
    FidelityKnown,
    MilestonePassed,
    ParkLost,
    QuantumEnded,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import Fidelity, Milestone, Quantum, RunId, Tier
from hermesd.core.node.actions import (
    AskReport,
    ContinueRun,
    DeleteTrialFiles,
    EndProcess,
    ExtendLeases,
    KillUnresponsive,
    ResumeRun,
    Spawn,
    SuspendRun,
    TellHead,
    WriteCheckpoint,
    WriteCheckpointAndExit,
)
from hermesd.core.node.machine import NodeTerms
from hermesd.core.node.messages import (
    Attached,
    HostLost,
    LeaseExtended,
    LeftDevice,
    OutcomeAcknowledged,
    Parked,
    Planned,
    ProcessStarted,
    Progress,
    RunFound,
    Started,
)
from hermesd.core.trial import MACHINES_FAULT, NOT_WRITTEN
from tests.core.node_talk import (
    CPU,
    GPU,
    ONE,
    OTHER,
    RIVAL,
    TERMS,
    TWO,
    Told,
    checkpoint,
    events,
    exact,
    order,
    progress,
    suspend,
)


def test_a_run_from_launch_to_its_end() -> None:
    node = Told()
    assert node.says(order(ONE)) == [Spawn(order(ONE), None, None)]
    node.says(Planned(ONE, 50))
    assert node.says(Started(ONE, 0), after=2) == [TellHead(RunStarted(ONE, 0, 2.0, 50))]
    told = node.says(exact(ONE))
    assert told == [TellHead(FidelityKnown(ONE, Fidelity.EXACT, "", "keras"))]
    assert node.says(exact(ONE)) == [], "said once"
    (report,) = events(node.says(progress(ONE, 3, 1.0, 0.9, 0.8)))
    assert isinstance(report, Reported)
    assert (report.step, report.planned_steps) == (3, 50)
    done = RunCompleted(ONE, 50, checkpoint(ONE, 50))
    assert node.says(RunCompleted(ONE, 50, checkpoint(ONE, 50))) == [TellHead(done)]
    assert node.live() == [(ONE, "ended")]
    node.says(OutcomeAcknowledged(ONE))
    assert node.live() == []


def test_a_launch_said_twice_starts_once_and_is_answered_each_time() -> None:
    node = Told()
    node.says(order(ONE))
    assert node.says(order(ONE)) == []
    node.says(Started(ONE, 0), after=1)
    assert node.says(order(ONE)) == [TellHead(RunStarted(ONE, 0, 1.0))]
    node.says(RunFailed(ONE, "exit", "exit code 3"))
    failed = RunFailed(ONE, "exit", "exit code 3", "", 0, devices=1)
    assert node.says(order(ONE)) == [TellHead(failed)]
    node.says(OutcomeAcknowledged(ONE))
    [answer] = events(node.says(order(ONE)))
    assert isinstance(answer, RunFailed), "never spawned again, even after it was forgotten"
    assert (answer.run, answer.newest_attempt) == (ONE, 1)


def test_park_hands_the_device_on_and_the_process_goes_on_elsewhere() -> None:
    node = Told()
    node.running()
    assert node.says(order(RIVAL)) == [], "the device is held"
    assert node.says(suspend(ONE)) == [SuspendRun(ONE, Tier.PARK, 5.0)]
    assert node.says(Parked(ONE, 7, 100), after=0.5) == [
        TellHead(RunSuspended(ONE, Tier.PARK, 7, None, 0.5, "", 100)),
        Spawn(order(RIVAL), None, None),
    ]
    again = order(TWO, OTHER, parked=ONE)
    assert node.says(again) == [ResumeRun(again, None)]
    assert node.says(Started(TWO, 7), after=0.25) == [TellHead(RunStarted(TWO, 7, 0.25))]
    assert node.live() == [(TWO, "running"), (RIVAL, "starting")]


def test_what_is_parked_is_told_again_to_a_head_that_may_have_forgotten_it() -> None:
    node = Told()
    node.running()
    assert node.says(Attached()) == [], "it runs: the head hears of it anyway"
    node.says(suspend(ONE))
    (told,) = node.says(Parked(ONE, 7, 100), after=0.5)
    assert node.says(Attached()) == [told]
    after = Told()  # a daemon that was restarted
    after.says(RunFound(order(ONE), "parked", 7, 100))
    (again,) = events(after.says(Attached()))
    assert again == RunSuspended(ONE, Tier.PARK, 7, None, 0.0, "", 100)


def test_a_gpu_is_given_back_by_checkpoint_only() -> None:
    node = Told()
    node.running(device=GPU)
    assert node.says(suspend(ONE, Tier.PARK)) == [SuspendRun(ONE, Tier.CHECKPOINT, 5.0)]
    kept = checkpoint(ONE, 7)
    assert node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, kept), after=1) == [
        TellHead(RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 1.0))
    ]
    restore = order(TWO, GPU, restore=kept)
    assert node.says(restore) == [Spawn(restore, kept, None)]


def test_a_gpu_run_that_parked_at_its_limit_is_written_down() -> None:
    node = Told()
    node.running(device=GPU, quantum=Quantum(until_step=7, exact=True))
    (demote,) = node.says(Parked(ONE, 7, cause="limit"))
    assert isinstance(demote, WriteCheckpointAndExit)
    kept = checkpoint(ONE, 7)
    (told,) = events(node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, kept)))
    assert told == RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0)


def test_what_can_only_be_parked_is_never_asked_for_a_checkpoint() -> None:
    node = Told()
    node.all(order(ONE), Started(ONE, 0), FidelityKnown(ONE, Fidelity.PARK_ONLY, "no agent", ""))
    assert node.later(1000) == []
    assert node.says(suspend(ONE, Tier.CHECKPOINT)) == [SuspendRun(ONE, Tier.PARK, 5.0)]


def test_what_its_restores_have_shown_counts_more_than_what_its_agent_says() -> None:
    node = Told()
    node.all(replace(order(ONE), kept_parked="restores failed alike"), Started(ONE, 0))
    (told,) = events(node.says(exact(ONE)))
    assert told == FidelityKnown(ONE, Fidelity.PARK_ONLY, "restores failed alike", "keras")
    assert node.later(1000) == [], "no checkpoint is asked for"
    assert node.says(suspend(ONE, Tier.CHECKPOINT)) == [SuspendRun(ONE, Tier.PARK, 5.0)]


def test_the_quantum_counts_from_the_first_boundary_and_is_said_once() -> None:
    node = Told()
    node.says(order(ONE, quantum=Quantum(seconds=10)))
    node.says(Started(ONE, 0), after=8)
    assert node.later(9.5) == []
    assert node.later(1) == [AskReport(ONE)], "the head decides by what it has reached by now"
    report, ended = events(node.says(progress(ONE, 4, 0.5)))
    assert isinstance(report, Reported)
    assert ended == QuantumEnded(ONE, 0, 4)
    assert node.later(50) == [], "it goes on until it is answered"
    node.says(Renew(ONE, 1, Quantum(seconds=10), "still best"))
    assert len(node.says(progress(ONE, 5, 0.5))) == 1
    assert node.later(9.5) == []
    assert node.later(1) == [AskReport(ONE)]
    assert node.later(1) == [TellHead(QuantumEnded(ONE, 1, 5))], (
        "an iteration of seconds reports late"
    )
    again = node.says(Renew(ONE, 1, Quantum(seconds=10), "said again"))
    assert events(again) == [QuantumEnded(ONE, 1, 5)], "the answer was lost: it is given again"


def test_a_milestone_extends_the_quantum_from_its_own_beginning() -> None:
    milestones = (Milestone(10, 0.9), Milestone(20, 0.8), Milestone(90, 0.1))
    node = Told()
    node.running(quantum=Quantum(seconds=10, milestones=milestones))
    node.later(8)
    assert events(node.says(progress(ONE, 1, 0.75)))[1:] == [
        MilestonePassed(ONE, 10, 0.75, 1),
        MilestonePassed(ONE, 20, 0.75, 1),
    ]
    assert len(node.says(progress(ONE, 2, 0.75))) == 1, "each once"
    node.says(Renew(ONE, 1, Quantum(seconds=15, milestones=milestones), "milestone", True))
    assert len(node.says(progress(ONE, 3, 0.75))) == 1
    assert node.later(6.5) == []
    assert node.later(1) == [AskReport(ONE)]
    assert events(node.says(progress(ONE, 4, 0.75)))[1:] == [QuantumEnded(ONE, 1, 4)]


def test_a_milestone_passed_at_the_quantums_end_is_said_before_it() -> None:
    node = Told()
    node.running(quantum=Quantum(seconds=10, milestones=(Milestone(10, 0.9),)))
    assert node.later(10) == [AskReport(ONE)]
    told = events(node.says(progress(ONE, 3, 0.8)))[1:]
    assert told == [MilestonePassed(ONE, 10, 0.8, 3), QuantumEnded(ONE, 0, 3)]
    node.says(Renew(ONE, 1, Quantum(seconds=20), "milestone", True))
    assert node.later(9) == [], "the longer one counts from the same beginning"
    assert node.later(1.5) == [AskReport(ONE)]


def test_a_report_that_came_with_the_device_back_ends_no_later_quantum() -> None:
    node = Told()
    node.running(quantum=Quantum(seconds=10))
    assert node.later(10) == [AskReport(ONE)]
    node.all(suspend(ONE), Parked(ONE, 7), order(TWO, parked=ONE, quantum=Quantum(seconds=10)))
    node.says(Started(TWO, 7))
    assert len(node.says(progress(TWO, 8, 0.5))) == 1


def test_a_program_that_has_done_its_steps_is_let_end() -> None:
    node = Told()
    node.running(quantum=Quantum(seconds=10))
    node.all(Planned(ONE, 50), progress(ONE, 50, 0.5))
    assert node.later(15) == [], "it saves, or evaluates"
    assert node.later(5) == [AskReport(ONE)], "others wait: its plan may have been wrong"


@pytest.mark.parametrize("quantum", [Quantum(until_step=5), Quantum(loss=0.5)])
def test_a_quantum_of_steps_or_of_loss(quantum: Quantum) -> None:
    node = Told()
    node.running(quantum=quantum)
    assert len(node.says(progress(ONE, 4, 0.9))) == 1
    assert events(node.says(progress(ONE, 5, 0.5)))[1:] == [QuantumEnded(ONE, 0, 5)]
    assert len(node.says(progress(ONE, 6, 0.4))) == 1


def test_a_quantum_of_steps_ends_with_a_report_at_its_step() -> None:
    """However short its iterations are: the program is told where to report, and goes on."""
    node = Told()
    begun = order(ONE, quantum=Quantum(until_step=20))
    assert node.says(begun) == [Spawn(begun, None, None), AskReport(ONE, 20)]
    node.says(Started(ONE, 0))
    assert events(node.says(progress(ONE, 20, 0.5)))[1:] == [QuantumEnded(ONE, 0, 20)]
    assert node.says(Renew(ONE, 1, Quantum(until_step=60), "promoted")) == [AskReport(ONE, 60)]
    assert node.says(Renew(ONE, 2, Quantum(until_step=80, exact=True), "a longer one")) == []
    node.all(suspend(ONE), Parked(ONE, 61))
    again = order(TWO, quantum=Quantum(until_step=180), parked=ONE)
    assert node.says(again) == [ResumeRun(again, None), AskReport(TWO, 180)]


def test_a_program_that_has_done_its_steps_is_let_end_by_a_quantum_of_steps() -> None:
    node = Told()
    node.running(quantum=Quantum(until_step=20))
    node.says(Planned(ONE, 50))
    node.now += 10
    assert len(events(node.says(progress(ONE, 50, 0.5)))) == 1, "its last report, and no end"
    assert node.later(9) == [], "it saves, or evaluates"
    assert node.later(1) == [AskReport(ONE)], "others wait: its plan may have been wrong"
    assert events(node.later(1)) == [QuantumEnded(ONE, 0, 50)]


def test_a_nan_passes_no_milestone() -> None:
    node = Told()
    node.running(quantum=Quantum(loss=0.5, milestones=(Milestone(10, 0.9),)))
    assert len(node.says(progress(ONE, 1, float("nan")))) == 1


def test_an_exact_quantum_is_the_hosts_to_keep() -> None:
    node = Told()
    exactly = order(ONE, quantum=Quantum(until_step=20, exact=True))
    assert node.says(exactly) == [Spawn(exactly, None, 20)]


def test_an_exact_limit_that_was_moved_is_passed() -> None:
    node = Told()
    node.running(quantum=Quantum(until_step=20, exact=True))
    node.says(Renew(ONE, 1, Quantum(until_step=40, exact=True), "milestone", True))
    assert node.says(Parked(ONE, 20, cause="limit")) == [ContinueRun(ONE, 40)]
    node.says(Started(ONE, 20))
    assert node.live() == [(ONE, "running")]
    (left,) = events(node.says(Parked(ONE, 40, cause="limit")))
    assert isinstance(left, RunSuspended)
    assert (left.tier, left.step, left.cause) == (Tier.PARK, 40, "limit")


def test_a_limit_that_was_lifted_is_passed_and_another_park_is_none() -> None:
    node = Told()
    node.running(quantum=Quantum(until_step=20, exact=True))
    node.says(Renew(ONE, 1, Quantum(seconds=60), "still best"))
    assert node.says(Parked(ONE, 20, cause="limit")) == [ContinueRun(ONE, None)]
    assert len(events(node.says(Parked(ONE, 25, cause="lease")))) == 1
    assert node.live() == [(ONE, "parked")]


def test_a_limit_moved_before_the_start_is_the_one_that_is_started_with() -> None:
    node = Told()
    node.running(RIVAL)
    node.says(order(ONE, quantum=Quantum(until_step=20, exact=True)))
    node.says(Renew(ONE, 1, Quantum(until_step=40, exact=True), "milestone", True))
    spawn = node.says(RunCompleted(RIVAL, 9))[-1]
    assert isinstance(spawn, Spawn)
    assert spawn.limit_step == 40


def test_the_iteration_under_way_is_no_cost_of_the_switch() -> None:
    node = Told()
    node.running()
    node.says(suspend(ONE))
    (left,) = events(node.says(Parked(ONE, 7, boundary_seconds=2.0), after=2.5))
    assert isinstance(left, RunSuspended)
    assert left.release_seconds == 0.5
    node.says(order(TWO, parked=ONE))
    node.all(Started(TWO, 7), suspend(TWO))
    (late,) = events(node.says(Parked(TWO, 8, boundary_seconds=9.0), after=0.5))
    assert isinstance(late, RunSuspended)
    assert late.release_seconds == 0.0, "clocks of two processes: never less than nothing"


def test_what_a_device_holds_of_memory_is_that_of_its_run() -> None:
    node = Told()
    assert node.machine.memory_on(CPU) == 0
    node.running()
    assert node.machine.memory_on(CPU) == 0
    node.says(Progress(Reported(ONE, 3, (), memory_bytes=100)))
    node.says(progress(ONE, 4, 1.0))
    assert (node.machine.memory_on(CPU), node.machine.memory_on(OTHER)) == (100, 0)
    node.all(suspend(ONE), Parked(ONE, 7))
    assert node.machine.memory_on(CPU) == 0


def test_durable_checkpoints_follow_the_time_trained_not_the_time_parked() -> None:
    node = Told()
    node.running()
    assert node.later(40) == []
    node.all(suspend(ONE), Parked(ONE, 7))
    assert node.later(1000) == []
    node.all(order(TWO, parked=ONE), Started(TWO, 7))
    assert node.later(19) == []
    (save,) = node.later(2)
    assert isinstance(save, WriteCheckpoint)
    assert save.run == TWO
    assert not save.is_asked, "by the head, which nobody tells if there is none"
    assert node.later(50) == [], "one at a time"
    saved = checkpoint(TWO, 9)
    assert events(node.says(Checkpointed(TWO, saved))) == [Checkpointed(TWO, saved)]
    assert node.later(59) == []
    assert len(node.later(2)) == 1


def test_a_checkpoint_that_never_came_is_asked_for_again() -> None:
    node = Told()
    node.running()
    names = {action.name for action in node.later(200) if isinstance(action, WriteCheckpoint)}
    assert len(names) == 3


def test_a_suspend_past_its_deadline_is_a_kill_and_then_a_fence() -> None:
    node = Told()
    node.running()
    node.says(suspend(ONE))
    assert node.later(5) == []  # then it is the host's turn, which parks it from outside
    assert node.later(10) == [EndProcess(ONE)]
    assert node.later(10) == [KillUnresponsive(ONE)]
    assert node.later(1000) == []
    assert events(node.says(HostLost(ONE, "it was fenced"))) == [
        RunSuspended(ONE, Tier.KILL, 0, None, 1025.0, "it was fenced")
    ]


def test_what_its_host_parks_from_outside_at_the_deadline_is_kept() -> None:
    node = Told()
    node.running()
    node.says(suspend(ONE, Tier.PARK))
    (left,) = events(node.says(Parked(ONE, 7, midway=True), after=5.1))
    assert isinstance(left, RunSuspended)
    assert (left.tier, left.step) == (Tier.PARK, 7)
    assert node.later(1000) == []


def test_a_program_that_never_reaches_a_boundary_has_hung() -> None:
    node = Told()
    node.all(order(ONE), ProcessStarted(ONE))
    assert node.later(900) == [EndProcess(ONE)]
    (failed,) = events(node.says(LeftDevice(ONE, Tier.KILL, 0, None)))
    assert isinstance(failed, RunFailed)
    assert failed.error_kind == "hung"
    assert "900 s" in failed.detail


def test_what_a_program_needs_is_waited_for_longer_than_the_program() -> None:
    node = Told()
    node.says(order(ONE))
    assert node.later(3000) == [], "its code or its checkpoint is on its way"
    node.says(ProcessStarted(ONE))
    assert node.later(899) == []
    assert node.says(Started(ONE, 0)) == [TellHead(RunStarted(ONE, 0, 3899.0))]


def test_what_does_not_come_is_no_failure_of_the_program() -> None:
    node = Told()
    node.says(order(ONE))
    assert node.later(3600) == [EndProcess(ONE)]
    (failed,) = events(node.says(LeftDevice(ONE, Tier.KILL, 0, None)))
    assert isinstance(failed, RunFailed)
    assert failed.error_kind in MACHINES_FAULT
    assert failed.detail == "what it needs was not there within 3600 s"


def test_a_parked_program_that_does_not_go_on_has_hung() -> None:
    node = Told()
    node.parked()
    node.says(order(TWO, parked=ONE))
    assert node.later(900) == [EndProcess(TWO)]
    (failed,) = events(node.says(LeftDevice(TWO, Tier.KILL, 7, None)))
    assert isinstance(failed, RunFailed)
    assert failed.error_kind == "hung"


def test_stop_ends_a_run_for_good() -> None:
    node = Told()
    node.running()
    assert node.says(Stop(ONE, 5.0, "cancelled")) == [
        SuspendRun(ONE, Tier.CHECKPOINT, 5.0, final=True)
    ]
    (left,) = events(node.says(LeftDevice(ONE, Tier.CHECKPOINT, 9, checkpoint(ONE, 9)), after=1))
    assert left == RunSuspended(ONE, Tier.CHECKPOINT, 9, checkpoint(ONE, 9), 1.0)
    assert events(node.says(Stop(ONE, 5.0, "cancelled"))) == [left], "answered again"


def test_memory_of_the_parked_is_bounded_longest_parked_first() -> None:
    node = Told(NodeTerms(TERMS.cheapest, parked_memory_bytes=150))
    node.parked(ONE, memory_bytes=100)
    node.running(RIVAL)
    node.says(suspend(RIVAL), after=1)
    actions = node.says(Parked(RIVAL, 3, 100))
    (demote,) = [action for action in actions if isinstance(action, WriteCheckpointAndExit)]
    assert demote.run == ONE
    assert node.live() == [(ONE, "parked"), (RIVAL, "parked")]
    kept = checkpoint(ONE, 7)
    assert events(node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, kept))) == [
        RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0, "demoted")
    ]


def test_what_is_written_down_by_itself_has_given_its_device_back_before() -> None:
    node = Told()
    node.running()
    assert node.says(order(RIVAL)) == [], "the device is held"
    node.says(replace(suspend(ONE), tier=Tier.CHECKPOINT))
    assert node.says(Parked(ONE, 7, 100, demoting=True), after=0.5) == [
        TellHead(RunSuspended(ONE, Tier.PARK, 7, None, 0.5, "", 100)),
        Spawn(order(RIVAL), None, None),
    ]
    kept = checkpoint(ONE, 7)
    again = order(TWO, OTHER, parked=ONE)
    assert node.says(again) == [], "its process is being written down"
    demoted = RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0, "demoted")
    told, spawned = node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, kept))
    assert told == TellHead(demoted)
    assert isinstance(spawned, Spawn)
    assert spawned.checkpoint == kept, "it goes on from that"


def test_what_could_not_be_written_down_by_itself_stays_parked() -> None:
    node = Told()
    node.running()
    node.says(replace(suspend(ONE), tier=Tier.CHECKPOINT))
    node.says(Parked(ONE, 7, 100, demoting=True))
    (unwritten,) = events(node.says(Parked(ONE, 7, 100, "no image")))
    assert isinstance(unwritten, RunSuspended)
    assert (unwritten.tier, unwritten.cause) == (Tier.PARK, NOT_WRITTEN)
    assert node.live() == [(ONE, "parked")]


def test_a_device_that_only_a_checkpoint_frees_is_held_until_that_is_written() -> None:
    node = Told()
    node.running(device=GPU)
    node.says(suspend(ONE))
    assert node.says(Parked(ONE, 7, 100, demoting=True)) == [], "it is asked for nothing more"
    (left,) = events(node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, checkpoint(ONE, 7))))
    assert isinstance(left, RunSuspended)
    assert left.tier is Tier.CHECKPOINT


def test_what_a_host_has_written_down_by_itself_is_not_lost() -> None:
    node = Told()
    node.says(RunFound(order(ONE), "parked", 7, 100))
    kept = checkpoint(ONE, 7)
    assert events(node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, kept))) == [
        RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0, "demoted")
    ]


def test_what_cannot_be_written_down_stays_parked() -> None:
    node = Told(NodeTerms(TERMS.cheapest, parked_memory_bytes=50))
    node.parked(ONE, memory_bytes=100)
    after = order(TWO, parked=ONE)
    node.says(after)
    assert node.says(Parked(ONE, 7, 100, "no checkpoint: disk full")) == [ResumeRun(after, None)]
    node.all(Started(TWO, 7), suspend(TWO))
    assert events(node.says(Parked(TWO, 9, 100))) != []
    assert node.live() == [(TWO, "parked")], "not tried for ever"


def test_stop_of_what_can_only_be_parked_kills_it() -> None:
    node = Told()
    node.all(order(ONE), Started(ONE, 0), FidelityKnown(ONE, Fidelity.PARK_ONLY, "no agent", ""))
    assert node.says(Stop(ONE, 5.0, "cancelled")) == [SuspendRun(ONE, Tier.KILL, 5.0, final=True)]


def test_a_launch_that_crosses_a_demotion_is_restored_from_it() -> None:
    node = Told(NodeTerms(TERMS.cheapest, parked_memory_bytes=50))
    node.parked(ONE, memory_bytes=100)
    assert node.says(order(TWO, parked=ONE)) == []
    kept = checkpoint(ONE, 7)
    told, spawn = node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, kept))
    assert events([told]) == [RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0, "demoted")]
    assert spawn == Spawn(order(TWO, restore=kept), kept, None)


def test_a_parked_process_that_died_is_lost_and_never_failed() -> None:
    node = Told()
    node.parked()
    assert events(node.says(RunFailed(ONE, "signal", "killed by signal 9"))) == [
        ParkLost(ONE, "killed by signal 9")
    ]
    assert events(node.says(order(TWO, parked=ONE))) == [
        ParkLost(ONE, "no parked process of it is here")
    ]
    assert node.live() == [(TWO, "ended")]
    assert events(node.says(Stop(TWO, 5.0, "cancelled"))) == [
        RunSuspended(TWO, Tier.KILL, 0, None, 0.0, "cancelled")
    ], "a Stop that crossed the ParkLost still gets its device back"


def test_a_parked_process_that_died_while_being_let_go() -> None:
    node = Told()
    node.parked()
    node.says(order(TWO, parked=ONE))
    assert events(node.says(RunFailed(ONE, "signal", "killed"))) == [ParkLost(ONE, "killed")]
    assert node.says(order(RIVAL)) == [Spawn(order(RIVAL), None, None)], "the device is free"


def test_a_host_that_died_alone_is_a_lost_run() -> None:
    node = Told()
    node.running()
    node.says(progress(ONE, 4, 1.0))
    assert events(node.says(HostLost(ONE, "the host is gone"))) == [
        RunFailed(ONE, "lost", "the host is gone", "", 4, devices=1)
    ]


def test_a_newer_attempt_waits_for_the_older_process_to_be_gone() -> None:
    node = Told()
    node.running()
    assert node.says(order(TWO)) == [EndProcess(ONE)]
    told, spawn = node.says(LeftDevice(ONE, Tier.KILL, 4, None))
    assert isinstance(told, TellHead)
    assert spawn == Spawn(order(TWO), None, None)
    assert node.says(progress(ONE, 9, 1.0)) == [], "stale"


def test_nothing_starts_while_the_lease_is_out() -> None:
    node = Told(lease=1001.0)
    node.now = 1001.0
    assert node.says(order(ONE)) == []
    assert node.says(LeaseExtended(1600.0)) == [ExtendLeases(1600.0), Spawn(order(ONE), None, None)]


def test_a_launch_whose_device_stays_held_is_not_started() -> None:
    node = Told()
    node.running()
    node.says(order(RIVAL))
    (failed,) = events(node.later(30))
    words = "the device is held by digits/1#1"
    assert failed == RunFailed(RIVAL, "not_started", words, "", 0, devices=1)


def test_leases_are_passed_on_now_and_then() -> None:
    node = Told(lease=1600.0)
    assert node.says(LeaseExtended(1601.0)) == []
    assert node.says(LeaseExtended(1605.0)) == [ExtendLeases(1605.0)]
    assert node.says(LeaseExtended(1200.0)) == [], "a lease never shrinks"
    assert node.machine.lease == 1605.0


def test_short_leases_are_passed_on_more_often() -> None:
    node = Told(lease=1010.0)
    assert node.says(LeaseExtended(1010.5)) == []
    assert node.says(LeaseExtended(1011.5)) == [ExtendLeases(1011.5)]
    node.now = 1020.0
    assert node.says(LeaseExtended(1011.5)) == [], "it has not grown"


def test_orders_about_unknown_runs_are_answered() -> None:
    node = Told()
    for message in (suspend(ONE), Stop(ONE, 5.0, ""), Kill(ONE, "n1", "")):
        (failed,) = events(node.says(message))
        assert isinstance(failed, RunFailed)
        assert failed.error_kind == "lost"


def test_kill_ends_older_attempts_and_what_waits() -> None:
    node = Told()
    node.running()
    node.says(order(TWO))
    (told,) = events(node.says(Kill(TWO, "n1", "stray")))
    assert told == RunSuspended(TWO, Tier.KILL, 0, None, 0.0, "stray")
    assert events(node.says(LeftDevice(ONE, Tier.KILL, 4, None, "killed"))) == [
        RunSuspended(ONE, Tier.KILL, 4, None, 0.0, "killed")
    ]
    assert node.says(Kill(ONE, "n1", "stray")) != []


def test_release_ends_what_is_parked_and_forgets_the_files() -> None:
    node = Told()
    node.parked()
    assert node.says(Release("digits/1", "n1", forget=True)) == [EndProcess(ONE)]
    actions = node.says(LeftDevice(ONE, Tier.KILL, 7, None, "released"))
    assert actions == [TellHead(ParkLost(ONE, "released")), DeleteTrialFiles("digits/1")]
    assert node.live() == []
    assert node.says(Release("digits/2", "n1", forget=True)) == [DeleteTrialFiles("digits/2")]
    assert node.says(Release("digits/2", "n1", forget=False)) == []


def test_a_daemon_that_comes_back_takes_over_what_it_finds() -> None:
    node = Told()
    quantum = Quantum(seconds=10)
    node.says(RunFound(order(ONE, quantum=quantum), "running", 40))
    node.says(RunFound(order(RIVAL, OTHER), "parked", 7))
    assert node.live() == [(ONE, "running"), (RIVAL, "parked")]
    assert node.says(order(ONE)) != [Spawn(order(ONE), None, None)]
    assert node.later(10) == [AskReport(ONE)]
    assert events(node.says(Parked(RIVAL, 7))) == [RunSuspended(RIVAL, Tier.PARK, 7, None, 0.0)]
    after = order(RunId("digits/2", 2), OTHER, parked=RIVAL)
    assert node.says(after) == [ResumeRun(after, None)]


def test_what_is_taken_over_parked_counts_what_it_holds() -> None:
    node = Told(NodeTerms(TERMS.cheapest, parked_memory_bytes=150))
    node.says(RunFound(order(ONE), "parked", 7, memory_bytes=100))
    node.says(RunFound(order(RIVAL, OTHER), "parked", 7, memory_bytes=100), after=1)
    demotes = [
        each
        for each in node.all(exact(ONE), exact(RIVAL))
        if isinstance(each, WriteCheckpointAndExit)
    ]
    assert [each.run for each in demotes] == [ONE]


def test_what_is_taken_over_is_saved_at_once() -> None:
    node = Told()
    node.says(RunFound(order(ONE), "running", 40))
    assert not any(isinstance(action, WriteCheckpoint) for action in node.later(1))
    node.says(FidelityKnown(ONE, Fidelity.EXACT, "", "keras"))
    assert any(isinstance(action, WriteCheckpoint) for action in node.later(1))


def test_what_ended_while_the_daemon_was_away_is_told() -> None:
    node = Told()
    node.says(RunFound(order(ONE), "ended", 40))
    assert events(node.says(RunCompleted(ONE, 50))) == [RunCompleted(ONE, 50)]


def test_what_the_kernel_ended_for_memory_is_told_so_unless_it_was_parked() -> None:
    node = Told()
    node.running()
    node.parked(RIVAL, OTHER)
    words = "killed by the kernel: out of memory"
    assert events(node.says(RunFailed(ONE, "out_of_memory", words, words, 4))) == [
        RunFailed(ONE, "out_of_memory", words, words, 4, devices=1)
    ]
    assert events(node.says(RunFailed(RIVAL, "out_of_memory", words, words, 7))) == [
        ParkLost(RIVAL, words)
    ]
