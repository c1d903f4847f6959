"""The conversation between a head, a node's machine and its hosts, told step by step."""

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermesd.core.commands import Kill, Launch, Release, Renew, Stop, Suspend
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
from hermesd.core.losses import chunked
from hermesd.core.model import (
    Checkpoint,
    Fidelity,
    Goal,
    Milestone,
    Program,
    Quantum,
    RunId,
    Tier,
)
from hermesd.core.node_actions import (
    Action,
    Demote,
    End,
    Extend,
    Fence,
    Forget,
    Halt,
    LetGo,
    Save,
    Spawn,
    Tell,
)
from hermesd.core.node_machine import NodeMachine, NodeTerms
from hermesd.core.node_messages import (
    Assignment,
    Completed,
    Failed,
    Found,
    Gone,
    Input,
    Judged,
    Known,
    Leased,
    Leave,
    Left,
    Parked,
    Planned,
    Progress,
    Saved,
    Started,
    Work,
)

CPU, OTHER, GPU = "n1/cpu0", "n1/cpu1", "n1/gpu0"
TERMS = NodeTerms({CPU: Tier.PARK, OTHER: Tier.PARK, GPU: Tier.CHECKPOINT})
ONE, TWO = RunId("digits/1", 1), RunId("digits/1", 2)
RIVAL = RunId("digits/2", 1)
WORK = Work(Program(("train.py",), "python3", "", "/"), (), "loss", Goal.MINIMIZE, 1)


def checkpoint(run: RunId, step: int) -> Checkpoint:
    return Checkpoint(f"{run.trial}@s{step}", run.trial, run.attempt, step, "sum", 10, ("n1",))


def order(
    run: RunId,
    device: str = CPU,
    quantum: Quantum | None = None,
    parked: RunId | None = None,
    restore: Checkpoint | None = None,
) -> Assignment:
    launch = Launch(
        run, (device,), quantum or Quantum(), "", parked, restore.id if restore else None
    )
    return Assignment(launch, restore, WORK, durability_seconds=60, suspend_deadline_seconds=30)


def progress(run: RunId, step: int, *losses: float) -> Progress:
    chunks = chunked(step - len(losses) + 1, losses)
    return Progress(Reported(run, step, chunks))


def exact(run: RunId) -> Judged:
    return Judged(run, Fidelity.EXACT, "", "keras")


def suspend(run: RunId, tier: Tier | None = None) -> Suspend:
    return Suspend(run, tier, 5.0, None, "its quantum is over")


class Told:
    """A machine with a good lease, and what it said about each input."""

    def __init__(self, terms: NodeTerms = TERMS, lease: float = 1e9) -> None:
        self.machine = NodeMachine(terms)
        self.now = 1000.0
        self.machine.handle(Leased(lease), self.now)

    def says(self, message: Input, after: float = 0.0) -> list[Action]:
        self.now += after
        return self.machine.handle(message, self.now)

    def later(self, seconds: float) -> list[Action]:
        """What it says by itself until so many seconds have passed, woken when it asked to be."""
        said: list[Action] = []
        end = self.now + seconds
        while (due := self.machine.deadline) is not None and due <= end:
            self.now = max(self.now, due)
            said += self.machine.tick(self.now)
        self.now = end
        return said

    def all(self, *messages: Input) -> list[Action]:
        return [action for message in messages for action in self.says(message)]

    def running(self, run: RunId = ONE, device: str = CPU, quantum: Quantum | None = None) -> None:
        self.all(order(run, device, quantum), Started(run, 0), exact(run))

    def parked(self, run: RunId = ONE, device: str = CPU, memory_bytes: int = 0) -> None:
        self.running(run, device)
        self.all(suspend(run), Parked(run, 7, memory_bytes))

    def live(self) -> list[tuple[RunId, str]]:
        return [(live.run, live.condition) for live in self.machine.live()]


def events(actions: Iterable[Action]) -> list[object]:
    return [action.event for action in actions if isinstance(action, Tell)]


def test_a_run_from_launch_to_its_end() -> None:
    node = Told()
    assert node.says(order(ONE)) == [Spawn(order(ONE), None, None)]
    node.says(Planned(ONE, 50))
    assert node.says(Started(ONE, 0), after=2) == [Tell(RunStarted(ONE, 0, 2.0, 50))]
    told = node.says(exact(ONE))
    assert told == [Tell(FidelityKnown(ONE, Fidelity.EXACT, "", "keras"))]
    assert node.says(exact(ONE)) == [], "said once"
    (report,) = events(node.says(progress(ONE, 3, 1.0, 0.9, 0.8)))
    assert isinstance(report, Reported)
    assert (report.step, report.planned_steps) == (3, 50)
    done = RunCompleted(ONE, 50, checkpoint(ONE, 50))
    assert node.says(Completed(ONE, 50, checkpoint(ONE, 50))) == [Tell(done)]
    assert node.live() == [(ONE, "ended")]
    node.says(Known(ONE))
    assert node.live() == []


def test_a_launch_said_twice_starts_once_and_is_answered_each_time() -> None:
    node = Told()
    node.says(order(ONE))
    assert node.says(order(ONE)) == []
    node.says(Started(ONE, 0), after=1)
    assert node.says(order(ONE)) == [Tell(RunStarted(ONE, 0, 1.0))]
    node.says(Failed(ONE, "exit", "exit code 3"))
    assert node.says(order(ONE)) == [Tell(RunFailed(ONE, "exit", "exit code 3", "", 0))]
    node.says(Known(ONE))
    assert node.says(order(ONE)) == [], "never spawned again, even after it was forgotten"


def test_park_hands_the_device_on_and_the_process_goes_on_elsewhere() -> None:
    node = Told()
    node.running()
    assert node.says(order(RIVAL)) == [], "the device is held"
    assert node.says(suspend(ONE)) == [Halt(ONE, Tier.PARK, 5.0)]
    assert node.says(Parked(ONE, 7, 100), after=0.5) == [
        Tell(RunSuspended(ONE, Tier.PARK, 7, None, 0.5, "", 100)),
        Spawn(order(RIVAL), None, None),
    ]
    again = order(TWO, OTHER, parked=ONE)
    assert node.says(again) == [LetGo(again, None)]
    assert node.says(Started(TWO, 7), after=0.25) == [Tell(RunStarted(TWO, 7, 0.25))]
    assert node.live() == [(TWO, "running"), (RIVAL, "starting")]


def test_a_gpu_is_given_back_by_checkpoint_only() -> None:
    node = Told()
    node.running(device=GPU)
    assert node.says(suspend(ONE, Tier.PARK)) == [Halt(ONE, Tier.CHECKPOINT, 5.0)]
    kept = checkpoint(ONE, 7)
    assert node.says(Left(ONE, Tier.CHECKPOINT, 7, kept), after=1) == [
        Tell(RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 1.0))
    ]
    restore = order(TWO, GPU, restore=kept)
    assert node.says(restore) == [Spawn(restore, kept, None)]


def test_a_gpu_run_that_parked_at_its_limit_is_written_down() -> None:
    node = Told()
    node.running(device=GPU, quantum=Quantum(until_step=7, exact=True))
    (demote,) = node.says(Parked(ONE, 7, cause="limit"))
    assert isinstance(demote, Demote)
    kept = checkpoint(ONE, 7)
    (told,) = events(node.says(Left(ONE, Tier.CHECKPOINT, 7, kept)))
    assert told == RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0)


def test_what_can_only_be_parked_is_never_asked_for_a_checkpoint() -> None:
    node = Told()
    node.all(order(ONE), Started(ONE, 0), Judged(ONE, Fidelity.PARK_ONLY, "no agent", ""))
    assert node.later(1000) == []
    assert node.says(suspend(ONE, Tier.CHECKPOINT)) == [Halt(ONE, Tier.PARK, 5.0)]


def test_the_quantum_counts_from_the_first_boundary_and_is_said_once() -> None:
    node = Told()
    node.says(order(ONE, quantum=Quantum(seconds=10)))
    node.says(Started(ONE, 0), after=8)
    assert node.later(9.5) == []
    assert events(node.later(1)) == [QuantumEnded(ONE, 0, 0)]
    assert node.later(50) == [], "it goes on until it is answered"
    node.says(Renew(ONE, 1, Quantum(seconds=10), "still best"))
    assert node.later(9.5) == []
    assert events(node.later(1)) == [QuantumEnded(ONE, 1, 0)]
    again = node.says(Renew(ONE, 1, Quantum(seconds=10), "said again"))
    assert events(again) == [QuantumEnded(ONE, 1, 0)], "the answer was lost: it is given again"


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
    assert events(node.later(1)) == [QuantumEnded(ONE, 1, 3)]


@pytest.mark.parametrize("quantum", [Quantum(until_step=5), Quantum(loss=0.5)])
def test_a_quantum_of_steps_or_of_loss(quantum: Quantum) -> None:
    node = Told()
    node.running(quantum=quantum)
    assert len(node.says(progress(ONE, 4, 0.9))) == 1
    assert events(node.says(progress(ONE, 5, 0.5)))[1:] == [QuantumEnded(ONE, 0, 5)]
    assert len(node.says(progress(ONE, 6, 0.4))) == 1


def test_a_nan_passes_no_milestone() -> None:
    node = Told()
    node.running(quantum=Quantum(loss=0.5, milestones=(Milestone(10, 0.9),)))
    assert len(node.says(progress(ONE, 1, float("nan")))) == 1


def test_an_exact_quantum_is_the_hosts_to_keep() -> None:
    node = Told()
    exactly = order(ONE, quantum=Quantum(until_step=20, exact=True))
    assert node.says(exactly) == [Spawn(exactly, None, 20)]


def test_durable_checkpoints_follow_the_time_trained_not_the_time_parked() -> None:
    node = Told()
    node.running()
    assert node.later(40) == []
    node.all(suspend(ONE), Parked(ONE, 7))
    assert node.later(1000) == []
    node.all(order(TWO, parked=ONE), Started(TWO, 7))
    assert node.later(19) == []
    (save,) = node.later(2)
    assert isinstance(save, Save)
    assert save.run == TWO
    assert node.later(50) == [], "one at a time"
    saved = checkpoint(TWO, 9)
    assert events(node.says(Saved(TWO, saved))) == [Checkpointed(TWO, saved)]
    assert node.later(59) == []
    assert len(node.later(2)) == 1


def test_a_checkpoint_that_never_came_is_asked_for_again() -> None:
    node = Told()
    node.running()
    names = {action.name for action in node.later(200) if isinstance(action, Save)}
    assert len(names) == 3


def test_a_suspend_past_its_deadline_is_a_kill_and_then_a_fence() -> None:
    node = Told()
    node.running()
    node.says(suspend(ONE))
    assert node.later(5) == [End(ONE)]
    assert node.later(10) == [Fence(ONE)]
    assert node.later(1000) == []
    assert events(node.says(Gone(ONE, "it was fenced"))) == [
        RunSuspended(ONE, Tier.KILL, 0, None, 1015.0, "it was fenced")
    ]


def test_a_program_that_never_reaches_a_boundary_has_hung() -> None:
    node = Told()
    node.says(order(ONE))
    assert node.later(900) == [End(ONE)]
    (failed,) = events(node.says(Left(ONE, Tier.KILL, 0, None)))
    assert isinstance(failed, RunFailed)
    assert failed.error_kind == "hung"
    assert "900 s" in failed.detail


def test_stop_ends_a_run_for_good() -> None:
    node = Told()
    node.running()
    assert node.says(Stop(ONE, 5.0, "cancelled")) == [Halt(ONE, Tier.CHECKPOINT, 5.0, final=True)]
    (left,) = events(node.says(Left(ONE, Tier.CHECKPOINT, 9, checkpoint(ONE, 9)), after=1))
    assert left == RunSuspended(ONE, Tier.CHECKPOINT, 9, checkpoint(ONE, 9), 1.0)
    assert events(node.says(Stop(ONE, 5.0, "cancelled"))) == [left], "answered again"


def test_memory_of_the_parked_is_bounded_longest_parked_first() -> None:
    node = Told(NodeTerms(TERMS.cheapest, parked_memory_bytes=150))
    node.parked(ONE, memory_bytes=100)
    node.running(RIVAL)
    node.says(suspend(RIVAL), after=1)
    actions = node.says(Parked(RIVAL, 3, 100))
    (demote,) = [action for action in actions if isinstance(action, Demote)]
    assert demote.run == ONE
    assert node.live() == [(ONE, "parked"), (RIVAL, "parked")]
    kept = checkpoint(ONE, 7)
    assert events(node.says(Left(ONE, Tier.CHECKPOINT, 7, kept))) == [
        RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0, "demoted")
    ]


def test_what_cannot_be_written_down_stays_parked() -> None:
    node = Told(NodeTerms(TERMS.cheapest, parked_memory_bytes=50))
    node.parked(ONE, memory_bytes=100)
    after = order(TWO, parked=ONE)
    node.says(after)
    assert node.says(Parked(ONE, 7, 100, "no checkpoint: disk full")) == [LetGo(after, None)]
    node.all(Started(TWO, 7), suspend(TWO))
    assert events(node.says(Parked(TWO, 9, 100))) != []
    assert node.live() == [(TWO, "parked")], "not tried for ever"


def test_stop_of_what_can_only_be_parked_kills_it() -> None:
    node = Told()
    node.all(order(ONE), Started(ONE, 0), Judged(ONE, Fidelity.PARK_ONLY, "no agent", ""))
    assert node.says(Stop(ONE, 5.0, "cancelled")) == [Halt(ONE, Tier.KILL, 5.0, final=True)]


def test_a_launch_that_crosses_a_demotion_is_restored_from_it() -> None:
    node = Told(NodeTerms(TERMS.cheapest, parked_memory_bytes=50))
    node.parked(ONE, memory_bytes=100)
    assert node.says(order(TWO, parked=ONE)) == []
    kept = checkpoint(ONE, 7)
    told, spawn = node.says(Left(ONE, Tier.CHECKPOINT, 7, kept))
    assert events([told]) == [RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0, "demoted")]
    assert spawn == Spawn(order(TWO, restore=kept), kept, None)


def test_a_parked_process_that_died_is_lost_and_never_failed() -> None:
    node = Told()
    node.parked()
    assert events(node.says(Failed(ONE, "signal", "killed by signal 9"))) == [
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
    assert events(node.says(Failed(ONE, "signal", "killed"))) == [
        ParkLost(ONE, "the parked process ended")
    ]
    assert node.says(order(RIVAL)) == [Spawn(order(RIVAL), None, None)], "the device is free"


def test_a_host_that_died_alone_is_a_lost_run() -> None:
    node = Told()
    node.running()
    node.says(progress(ONE, 4, 1.0))
    assert events(node.says(Gone(ONE, "the host is gone"))) == [
        RunFailed(ONE, "lost", "the host is gone", "", 4)
    ]


def test_a_newer_attempt_waits_for_the_older_process_to_be_gone() -> None:
    node = Told()
    node.running()
    assert node.says(order(TWO)) == [End(ONE)]
    told, spawn = node.says(Left(ONE, Tier.KILL, 4, None))
    assert isinstance(told, Tell)
    assert spawn == Spawn(order(TWO), None, None)
    assert node.says(progress(ONE, 9, 1.0)) == [], "stale"


def test_nothing_starts_while_the_lease_is_out() -> None:
    node = Told(lease=1001.0)
    node.now = 1001.0
    assert node.says(order(ONE)) == []
    assert node.says(Leased(1600.0)) == [Extend(1600.0), Spawn(order(ONE), None, None)]


def test_a_launch_whose_device_stays_held_is_not_started() -> None:
    node = Told()
    node.running()
    node.says(order(RIVAL))
    (failed,) = events(node.later(30))
    assert failed == RunFailed(RIVAL, "not_started", "the device is held by digits/1#1", "", 0)


def test_leases_are_passed_on_now_and_then() -> None:
    node = Told(lease=1600.0)
    assert node.says(Leased(1601.0)) == []
    assert node.says(Leased(1605.0)) == [Extend(1605.0)]
    assert node.says(Leased(1200.0)) == [], "a lease never shrinks"
    assert node.machine.lease == 1605.0


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
    assert events(node.says(Left(ONE, Tier.KILL, 4, None, "killed"))) == [
        RunSuspended(ONE, Tier.KILL, 4, None, 0.0, "killed")
    ]
    assert node.says(Kill(ONE, "n1", "stray")) != []


def test_release_ends_what_is_parked_and_forgets_the_files() -> None:
    node = Told()
    node.parked()
    assert node.says(Release("digits/1", "n1", forget=True)) == [End(ONE)]
    actions = node.says(Left(ONE, Tier.KILL, 7, None, "released"))
    assert actions == [Tell(ParkLost(ONE, "released")), Forget("digits/1")]
    assert node.live() == []
    assert node.says(Release("digits/2", "n1", forget=True)) == [Forget("digits/2")]
    assert node.says(Release("digits/2", "n1", forget=False)) == []


def test_a_daemon_that_comes_back_takes_over_what_it_finds() -> None:
    node = Told()
    quantum = Quantum(seconds=10)
    node.says(Found(order(ONE, quantum=quantum), "running", 40))
    node.says(Found(order(RIVAL, OTHER), "parked", 7))
    assert node.live() == [(ONE, "running"), (RIVAL, "parked")]
    assert node.says(order(ONE)) != [Spawn(order(ONE), None, None)]
    assert events(node.later(10)) == [QuantumEnded(ONE, 0, 40)]
    assert events(node.says(Parked(RIVAL, 7))) == [RunSuspended(RIVAL, Tier.PARK, 7, None, 0.0)]
    after = order(RunId("digits/2", 2), OTHER, parked=RIVAL)
    assert node.says(after) == [LetGo(after, None)]


def test_what_is_taken_over_is_saved_at_once() -> None:
    node = Told()
    node.says(Found(order(ONE), "running", 40))
    assert not any(isinstance(action, Save) for action in node.later(1))
    node.says(Judged(ONE, Fidelity.EXACT, "", "keras"))
    assert any(isinstance(action, Save) for action in node.later(1))


def test_what_ended_while_the_daemon_was_away_is_told() -> None:
    node = Told()
    node.says(Found(order(ONE), "ended", 40))
    assert events(node.says(Completed(ONE, 50))) == [RunCompleted(ONE, 50)]


def test_leaving_writes_everything_down() -> None:
    node = Told()
    node.parked(ONE)
    node.running(RIVAL)
    demote, halt = node.says(Leave(5.0))
    assert isinstance(demote, Demote)
    assert halt == Halt(RIVAL, Tier.CHECKPOINT, 5.0)
    assert node.says(order(RunId("digits/3", 1), OTHER)) == [], "nothing is started any more"


DEVICES = (CPU, OTHER)
TRIALS = ("a/1", "a/2", "a/3")
OUTCOMES = (RunSuspended, RunCompleted, RunFailed, ParkLost)


class AnyOrder(RuleBasedStateMachine):
    """Orders, stale and doubled, against hosts that answer, are slow or die, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.node = NodeMachine(NodeTerms({CPU: Tier.PARK, OTHER: Tier.CHECKPOINT}, 150))
        self.now = 0.0
        self.attempts = dict.fromkeys(TRIALS, 0)
        self.spawned: set[RunId] = set()
        # What hosts have: the run each process was last told, and whether it holds its device.
        self.processes: dict[str, RunId] = {}
        self.on_device: dict[str, str] = {}
        self.answered: set[RunId] = set()
        self.asked: dict[str, list[Action]] = {}
        self.do(Leased(1e9))

    def do(self, message: Input) -> None:
        for action in self.node.handle(message, self.now):
            self.carry_out(action)

    def carry_out(self, action: Action) -> None:
        match action:
            case Spawn(assignment) | LetGo(assignment):
                run, (device,) = assignment.run, assignment.launch.devices
                assert run not in self.spawned, "an attempt is started once"
                self.spawned.add(run)
                assert (run.trial in self.processes) == isinstance(action, LetGo)
                assert device not in self.on_device.values(), "a device has one run"
                self.processes[run.trial] = run
                self.on_device[run.trial] = device
            case Halt(run) | Demote(run) | End(run) | Fence(run) | Save(run):
                assert self.processes.get(run.trial) == run
                self.asked.setdefault(run.trial, []).append(action)
            case Forget(trial):
                assert trial not in self.processes
            case Tell(event):
                if isinstance(event, OUTCOMES):
                    self.answered.add(event.run)

    def leave(self, trial: str) -> RunId:
        self.on_device.pop(trial, None)
        self.asked.pop(trial, None)
        return self.processes.pop(trial)

    @rule(trial=st.sampled_from(TRIALS), device=st.sampled_from(DEVICES), data=st.data())
    def launch(self, trial: str, device: str, data: st.DataObject) -> None:
        self.attempts[trial] += 1
        run = RunId(trial, self.attempts[trial])
        parked = RunId(trial, run.attempt - 1) if data.draw(st.booleans()) else None
        self.do(order(run, device, Quantum(seconds=5), parked if run.attempt > 1 else None))

    @rule(
        trial=st.sampled_from(TRIALS),
        age=st.integers(0, 2),
        tier=st.none() | st.sampled_from(Tier),
        which=st.integers(0, 4),
    )
    def order(self, trial: str, age: int, tier: Tier | None, which: int) -> None:
        attempt = self.attempts[trial] - age
        if attempt < 1:
            return
        run = RunId(trial, attempt)
        messages: tuple[Input, ...] = (
            suspend(run, tier),
            Stop(run, 5.0, ""),
            Kill(run, "n1", ""),
            order(run, CPU),
            Release(trial, "n1", forget=False),
        )
        self.do(messages[which])

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def host_speaks(self, data: st.DataObject) -> None:
        trial = data.draw(st.sampled_from(sorted(self.processes)))
        run = self.processes[trial]
        asked = self.asked.get(trial, [])
        facts = ["started", "exact", "progress", "dies", "fails", "completes"]
        match data.draw(st.sampled_from(facts + ["obeys"] * (4 if asked else 0))):
            case "started":
                self.do(Started(run, 0))
            case "exact":
                self.do(exact(run))
            case "progress":
                self.do(progress(run, 1, 1.0))
            case "dies":
                self.do(Gone(self.leave(trial), "gone"))
            case "fails":
                self.do(Failed(self.leave(trial), "exit", "exit code 1"))
            case "completes" if trial in self.on_device:
                self.do(Completed(self.leave(trial), 9))
            case "obeys":
                self.obey(trial, run, asked.pop(0))

    def obey(self, trial: str, run: RunId, action: Action) -> None:
        match action:
            case Halt(tier=Tier.PARK) if trial in self.on_device:
                del self.on_device[trial]
                self.do(Parked(run, 3, 100))
            case Halt() | Demote():
                self.do(Left(self.leave(trial), Tier.CHECKPOINT, 3, checkpoint(run, 3)))
            case End():
                self.do(Left(self.leave(trial), Tier.KILL, 3, None))
            case Fence():
                self.do(Gone(self.leave(trial), "fenced"))
            case Save():
                self.do(Saved(run, checkpoint(run, 2)))

    @rule(seconds=st.floats(0.1, 100))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for action in self.node.tick(self.now):
            self.carry_out(action)

    @invariant()
    def the_machine_knows_every_process(self) -> None:
        held = {t: s.process for t, s in self.node.table.stays.items() if s.process is not None}
        assert held == self.processes

    @invariant()
    def nothing_is_overdue_for_ever(self) -> None:
        due = self.node.deadline
        if due is not None and due <= self.now:
            for action in self.node.tick(self.now):
                self.carry_out(action)
            assert (self.node.deadline or self.now + 1) > self.now

    def teardown(self) -> None:
        """Once hosts obey and time passes, every attempt ever launched is parked or answered."""
        for trial in TRIALS:
            if self.attempts[trial]:
                self.do(Kill(RunId(trial, self.attempts[trial]), "n1", "the end"))
        for _ in range(20):
            for trial, asked in list(self.asked.items()):
                if asked and trial in self.processes:
                    self.obey(trial, self.processes[trial], asked.pop(0))
            self.time_passes(100.0)
        assert self.processes == {}
        assert self.node.table.holders == {}
        assert all(one.condition == "ended" for one in self.node.live())


AnyOrder.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
