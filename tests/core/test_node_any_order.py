"""Whatever a head says and hosts do, in any order, a node's machine keeps its promises."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermesd.core.commands import Kill, Release, Stop, WriteDown
from hermesd.core.events import (
    Checkpointed,
    ParkLost,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunSuspended,
)
from hermesd.core.model import Quantum, RunId, Tier
from hermesd.core.node.actions import (
    Action,
    AskReport,
    DeleteTrialFiles,
    DiscardRebuilt,
    EndProcess,
    KillUnresponsive,
    Rebuild,
    ResumeRun,
    Spawn,
    SuspendRun,
    TellHead,
    WriteCheckpoint,
    WriteCheckpointAndExit,
)
from hermesd.core.node.machine import NodeMachine, NodeTerms
from hermesd.core.node.messages import (
    HostLost,
    Input,
    LeaseExtended,
    LeftDevice,
    OutcomeAcknowledged,
    Parked,
    Save,
    Started,
    Upcoming,
)
from tests.core.node_talk import CPU, OTHER, checkpoint, exact, order, progress, suspend

DEVICES = (CPU, OTHER)
TRIALS = ("a/1", "a/2", "a/3")
OUTCOMES = (RunSuspended, RunCompleted, RunFailed, ParkLost)


class AnyOrder(RuleBasedStateMachine):
    """Orders, stale and doubled, against hosts that answer, are slow or die, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.node = NodeMachine(
            NodeTerms({CPU: Tier.PARK, OTHER: Tier.CHECKPOINT}, 150, {CPU: (1,), OTHER: (1,)})
        )
        self.now = 0.0
        self.attempts = dict.fromkeys(TRIALS, 0)
        self.spawned: set[RunId] = set()
        # What hosts have: the run each process was last told, and whether it holds its device.
        self.processes: dict[str, RunId] = {}
        self.on_device: dict[str, str] = {}
        # Those that were rebuilt before they were asked for, and which of them stand there.
        self.rebuilt: dict[str, bool] = {}
        self.answered: set[RunId] = set()
        # How runs came to their own end, until the head has that safe; what it was told last.
        self.own_ends: dict[RunId, type] = {}
        self.told: dict[RunId, RunEvent] = {}
        self.asked: dict[str, list[Action]] = {}
        self.do(LeaseExtended(1e9))

    def do(self, message: Input) -> None:
        for action in self.node.handle(message, self.now):
            self.carry_out(action)

    def carry_out(self, action: Action) -> None:
        match action:
            case Spawn(assignment) | ResumeRun(assignment):
                run, (device,) = assignment.run, assignment.launch.devices
                assert run not in self.spawned, "an attempt is started once"
                self.spawned.add(run)
                assert (run.trial in self.processes) == isinstance(action, ResumeRun)
                if run.trial in self.rebuilt:
                    kept = f"{run.trial}@s3"
                    assert assignment.launch.checkpoint == kept, "it goes on from where it stands"
                    del self.rebuilt[run.trial]
                assert device not in self.on_device.values(), "a device has one run"
                self.processes[run.trial] = run
                self.on_device[run.trial] = device
            case Rebuild(assignment):
                assert assignment.run.trial not in self.processes, "a trial has one process"
                assert all(self.rebuilt.values()), "one is rebuilt at a time"
                self.processes[assignment.run.trial] = assignment.run
                self.rebuilt[assignment.run.trial] = False
            case DiscardRebuilt(trial) if trial not in self.processes:
                pass  # it died before: what is left of it goes
            case DiscardRebuilt(trial):
                assert trial in self.rebuilt, "only what trained nothing is ended so"
                self.leave(trial)
            case (
                SuspendRun(run)
                | WriteCheckpointAndExit(run)
                | EndProcess(run)
                | KillUnresponsive(run)
                | WriteCheckpoint(run)
                | AskReport(run)
            ):
                assert self.processes.get(run.trial) == run
                self.asked.setdefault(run.trial, []).append(action)
            case DeleteTrialFiles(trial):
                assert trial not in self.processes
            case TellHead(event):
                if isinstance(event, OUTCOMES):
                    self.answered.add(event.run)
                    self.told[event.run] = event
                    own = self.own_ends.get(event.run, object)
                    # Of an order that is too old, a node only says which attempt is the newest.
                    is_stale = isinstance(event, RunFailed) and event.newest_attempt
                    assert is_stale or isinstance(event, own), "what a program came to stands"

    def leave(self, trial: str) -> RunId:
        self.on_device.pop(trial, None)
        self.asked.pop(trial, None)
        self.rebuilt.pop(trial, None)
        return self.processes.pop(trial)

    @rule(trial=st.sampled_from(TRIALS), device=st.sampled_from(DEVICES), data=st.data())
    def launch(self, trial: str, device: str, data: st.DataObject) -> None:
        self.attempts[trial] += 1
        run = RunId(trial, self.attempts[trial])
        before = RunId(trial, run.attempt - 1)
        kept = data.draw(st.sampled_from(("nothing", "parked", "checkpoint")))
        parked = before if kept == "parked" and run.attempt > 1 else None
        restore = checkpoint(before, 3) if kept == "checkpoint" else None
        self.do(order(run, device, Quantum(seconds=5), parked, restore))

    @rule(trials=st.permutations(TRIALS), known=st.integers(0, 3), turns=st.integers(0, 2))
    def hint(self, trials: list[str], known: int, turns: int) -> None:
        self.do(Upcoming(tuple(trials[:known]), turns))

    @rule()
    def acknowledge(self) -> None:
        """Every outcome is safe at the head."""
        for run in sorted(self.answered):
            self.own_ends.pop(run, None)
            self.do(OutcomeAcknowledged(run))

    @precondition(lambda self: not all(self.rebuilt.values()))
    @rule()
    def stand_there(self) -> None:
        trial = next(trial for trial, held in self.rebuilt.items() if not held)
        self.rebuilt[trial] = True
        self.do(Parked(self.processes[trial], 3, 100))

    @rule(
        trial=st.sampled_from(TRIALS),
        age=st.integers(0, 2),
        tier=st.none() | st.sampled_from(Tier),
        which=st.integers(0, 6),
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
            WriteDown(run, "n1"),
            Save(run),
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
                self.do(HostLost(self.leave(trial), "gone"))
            case "fails":
                self.end(trial, RunFailed, RunFailed(run, "exit", "exit code 1"))
            case "completes":
                self.end(trial, RunCompleted, RunCompleted(run, 9))
            case "obeys":
                self.obey(trial, run, asked.pop(0))

    def end(self, trial: str, kind: type, fact: RunFailed | RunCompleted) -> None:
        """The program comes to its own end: on its device, parked or on its way to a checkpoint."""
        was_rebuilt = trial in self.rebuilt
        stands_for = self.node.table.stays[trial].rebuilding == fact.run
        self.leave(trial)
        if not (was_rebuilt or stands_for):  # that is no run
            self.own_ends[fact.run] = kind
        self.do(fact)
        if fact.run in self.own_ends:
            assert isinstance(self.told.get(fact.run), kind), "and the head hears of it"

    def obey(self, trial: str, run: RunId, action: Action) -> None:
        match action:
            case SuspendRun(tier=Tier.PARK) if trial in self.on_device:
                del self.on_device[trial]
                self.do(Parked(run, 3, 100))
            case SuspendRun(tier=Tier.CHECKPOINT, final=False) if (
                run.attempt % 2 and trial in self.on_device
            ):  # an image is made of it, while it is parked
                if self.on_device[trial] == CPU:
                    del self.on_device[trial]
                self.asked[trial].insert(0, WriteCheckpointAndExit(run, "an image"))
                self.do(Parked(run, 3, 100, demoting=True))
            case SuspendRun() | WriteCheckpointAndExit():
                self.do(LeftDevice(self.leave(trial), Tier.CHECKPOINT, 3, checkpoint(run, 3)))
            case EndProcess():
                self.do(LeftDevice(self.leave(trial), Tier.KILL, 3, None))
            case KillUnresponsive():
                self.do(HostLost(self.leave(trial), "fenced"))
            case WriteCheckpoint():
                self.do(Checkpointed(run, checkpoint(run, 2)))
            case AskReport():
                self.do(progress(run, 2, 0.5))

    @rule(seconds=st.floats(0.1, 100))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for action in self.node.tick(self.now):
            self.carry_out(action)

    @invariant()
    def the_machine_knows_every_process(self) -> None:
        held = {t: s.process for t, s in self.node.table.stays.items() if s.process is not None}
        assert held == self.processes
        assert not self.rebuilt.keys() & self.on_device.keys(), "what is rebuilt has no device"

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


AnyOrder.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase
