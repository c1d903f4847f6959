"""Which waiting trials a node keeps in memory, and what is rebuilt before its turn."""

import pytest

from hermesd.core.commands import Kill, Release, Stop, Suspend
from hermesd.core.events import FidelityKnown, RunFailed, RunStarted, RunSuspended
from hermesd.core.model import Checkpoint, Fidelity, RunId, Tier
from hermesd.core.node.actions import (
    Action,
    DiscardRebuilt,
    Rebuild,
    ResumeRun,
    Spawn,
    SuspendRun,
    TellHead,
    WriteCheckpointAndExit,
)
from hermesd.core.node.machine import NodeTerms
from hermesd.core.node.messages import (
    EvacuateNode,
    HostFact,
    HostLost,
    LeaseExtended,
    LeftDevice,
    OutcomeAcknowledged,
    Parked,
    Started,
    Upcoming,
)
from hermesd.core.node.stay import Condition
from tests.core.node_talk import CPU, OTHER, Told, checkpoint, exact, order, suspend

DEVICES = {CPU: Tier.PARK, OTHER: Tier.CHECKPOINT}
ROOM = NodeTerms(DEVICES, 200, {CPU: (7,), OTHER: ()})
A, B, C = (RunId(f"s/{name}", 1) for name in "abc")
A2 = RunId("s/a", 2)


def put_down(node: Told, run: RunId, device: str = CPU, memory_bytes: int = 100) -> Checkpoint:
    """A run comes and goes, by its checkpoint, and the head has that safe."""
    node.running(run, device)
    kept = checkpoint(run, 7)
    node.machine.table.stays[run.trial].memory_bytes = memory_bytes
    node.all(suspend(run, Tier.CHECKPOINT), LeftDevice(run, Tier.CHECKPOINT, 7, kept))
    node.says(OutcomeAcknowledged(run))
    return kept


def doings(actions: list[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, TellHead)]


@pytest.fixture
def node() -> Told:
    """`a` was put down and is rebuilt before its turn, while `b` trains."""
    node = Told(ROOM)
    kept = put_down(node, A)
    node.running(B)
    (rebuild,) = node.says(Upcoming(("s/a",), 1))
    assert rebuild == Rebuild(order(A), kept, (7,))
    return node


def ready(node: Told, *facts: HostFact) -> None:
    node.all(Parked(A, 7, 90), *facts)


def test_the_one_that_will_wait_longest_is_written_down() -> None:
    node = Told(ROOM)
    node.says(Upcoming(("s/a", "s/c", "s/b"), 1))
    for run in (A, B):
        node.parked(run, memory_bytes=100)
    node.running(C)
    node.says(suspend(C))
    said = node.says(Parked(C, 7, 100))
    assert [action.run for action in said if isinstance(action, WriteCheckpointAndExit)] == [B]


def test_those_that_nobody_speaks_of_wait_longest() -> None:
    node = Told(ROOM)
    node.says(Upcoming(("s/b",), 1))
    for run in (B, A):
        node.parked(run, memory_bytes=100)
    node.running(C)
    node.says(suspend(C))
    said = node.says(Parked(C, 7, 100))
    assert [action.run for action in said if isinstance(action, WriteCheckpointAndExit)] == [A]


def test_what_was_rebuilt_goes_on_when_its_turn_comes(node: Told) -> None:
    ready(node)
    assert (A, "parked") not in node.live(), "no run before it is asked for"
    kept = checkpoint(A, 7)
    turn = order(A2, restore=kept)
    assert doings(node.says(turn)) == [], "the device is another's"
    said = node.all(suspend(B), Parked(B, 3, 100))
    assert ResumeRun(turn, None) in said
    assert Spawn not in map(type, said)
    assert TellHead(RunStarted(A2, 7, 2.0)) in node.says(Started(A2, 7), after=2)
    assert node.machine.table.stays["s/a"].restorable, "what was known of it still is"


def test_it_may_be_asked_for_before_it_stands_there(node: Told) -> None:
    node.all(suspend(B), Parked(B, 3, 100))
    turn = order(A2, restore=checkpoint(A, 7))
    assert doings(node.says(turn)) == [ResumeRun(turn, None)]


def test_another_checkpoint_is_another_beginning(node: Told) -> None:
    ready(node)
    node.all(suspend(B), Parked(B, 3, 100))
    turn = order(A2, restore=checkpoint(A, 5))
    assert doings(node.says(turn)) == [DiscardRebuilt("s/a"), Spawn(turn, turn.checkpoint, None)]


@pytest.mark.parametrize(
    "end",
    [
        Upcoming(("s/c",), 1),
        Release("s/a", "n1", forget=False),
        Kill(A2, "n1", "removed"),
    ],
)
def test_what_is_not_needed_ends(node: Told, end: Upcoming | Release | Kill) -> None:
    ready(node)
    assert doings(node.says(end)) == [DiscardRebuilt("s/a")]
    assert "s/a" not in node.machine.table.stays


def test_a_node_that_stops_keeps_nothing_rebuilt(node: Told) -> None:
    ready(node)
    assert DiscardRebuilt("s/a") in node.says(EvacuateNode(5.0))


def test_it_is_rebuilt_again_when_it_is_next_again(node: Told) -> None:
    ready(node)
    node.says(Upcoming((), 0))
    (again,) = node.says(Upcoming(("s/a",), 1))
    assert isinstance(again, Rebuild)


@pytest.mark.parametrize(
    "end", [HostLost(A, "killed"), RunFailed(A, "signal", "killed by SIGKILL")]
)
def test_its_death_costs_nothing(node: Told, end: HostFact) -> None:
    assert node.says(end) == [DiscardRebuilt("s/a")], "nobody is told"
    assert node.says(Upcoming(("s/a",), 1)) == [], "what failed is not tried again"
    node.all(suspend(B), Parked(B, 3, 100))
    turn = order(A2, restore=checkpoint(A, 7))
    assert doings(node.says(turn)) == [Spawn(turn, turn.checkpoint, None)]


def test_its_death_while_its_run_waits_is_a_start_from_the_checkpoint(node: Told) -> None:
    ready(node)
    turn = order(A2, restore=checkpoint(A, 7))
    node.says(turn)
    assert node.says(HostLost(A, "killed")) == []
    said = node.all(suspend(B), Parked(B, 3, 100))
    assert Spawn(turn, turn.checkpoint, None) in said


def test_its_death_as_it_is_let_go_sends_the_run_back_to_its_checkpoint(node: Told) -> None:
    ready(node)
    node.all(suspend(B), Parked(B, 3, 100))
    kept = checkpoint(A, 7)
    node.says(order(A2, restore=kept))
    (told,) = node.says(RunFailed(A, "signal", "killed by SIGKILL"))
    cause = "the process that was rebuilt for it ended"
    assert told == TellHead(RunSuspended(A2, Tier.KILL, 7, kept, 0.0, cause))
    assert node.machine.table.holders == {}, "the device is free"


def test_what_never_stands_there_is_given_up(node: Told) -> None:
    assert DiscardRebuilt("s/a") in node.later(ROOM.start_seconds + 1)


def test_room_is_made_of_what_waits_longer() -> None:
    node = Told(ROOM)
    put_down(node, A)
    for run in (B, C):
        node.parked(run, memory_bytes=100)
    (demote,) = node.says(Upcoming(("s/a", "s/b", "s/c"), 1))
    assert isinstance(demote, WriteCheckpointAndExit)
    assert demote.run == C
    said = node.says(LeftDevice(C, Tier.CHECKPOINT, 7, checkpoint(C, 7)))
    assert Rebuild(order(A), checkpoint(A, 7), (7,)) in said


def test_nothing_that_runs_sooner_makes_room() -> None:
    node = Told(ROOM)
    put_down(node, A)
    for run in (B, C):
        node.parked(run, memory_bytes=100)
    assert node.says(Upcoming(("s/b", "s/c", "s/a"), 3)) == []


def test_nothing_is_rebuilt_where_there_are_no_cores_for_it_or_no_lease() -> None:
    node = Told(ROOM)
    put_down(node, A, OTHER)
    assert node.says(Upcoming(("s/a",), 1)) == []
    silent = Told(ROOM, lease=1001.0)
    put_down(silent, A)
    assert silent.says(Upcoming(("s/a",), 1), after=2) == []
    assert Rebuild in map(type, silent.says(LeaseExtended(1e9)))


def test_what_ended_for_good_is_not_rebuilt() -> None:
    node = Told(ROOM)
    node.running(A)
    node.all(
        Stop(A, 5.0, "enough"),
        LeftDevice(A, Tier.CHECKPOINT, 7, checkpoint(A, 7)),
        OutcomeAcknowledged(A),
    )
    assert node.says(Upcoming(("s/a",), 1)) == []
    assert node.all(exact(A)) == []


@pytest.mark.parametrize(("taken", "tier"), [(200, Tier.PARK), (201, Tier.CHECKPOINT)])
def test_more_than_may_be_parked_is_not_moved_off_a_gpu(taken: int, tier: Tier) -> None:
    node = Told(ROOM)
    node.running(A)
    node.says(exact(A))
    node.machine.table.stays[A.trial].device_memory_bytes = taken
    (asked,) = doings(node.says(Suspend(A, None, 10.0, None, "its turn is over")))
    assert isinstance(asked, SuspendRun)
    assert asked.tier is tier


def test_what_can_only_be_parked_is_kept_beyond_the_budget_and_named() -> None:
    node = Told(ROOM)
    for run in (A, B):
        node.parked(run, memory_bytes=150)
    assert node.machine.excess == (0, ())  # one of them is being written down
    for run in (A, B):
        node.machine.table.stays[run.trial].judged = FidelityKnown(run, Fidelity.PARK_ONLY, "", "")
        node.machine.table.stays[run.trial].condition = Condition.PARKED
    node.running(C)
    node.says(suspend(C))
    said = node.says(Parked(C, 7, 100))
    assert [action.run for action in said if isinstance(action, WriteCheckpointAndExit)] == [C]
    assert node.machine.excess == (100, ("s/a", "s/b"))


def test_what_was_stopped_midway_is_kept_until_its_turn() -> None:
    """It could be written only after going on, on a device that is another's, and may be ended
    before it comes to where it can be."""
    node = Told(NodeTerms(DEVICES, 0))
    node.running(A)
    node.says(suspend(A))
    said = node.says(Parked(A, 7, 100, midway=True), after=5.1)
    assert [action for action in said if isinstance(action, WriteCheckpointAndExit)] == []
    node.all(order(A2, parked=A), Started(A2, 7), suspend(A2))
    said = node.says(Parked(A2, 9, 100))
    assert [action.run for action in said if isinstance(action, WriteCheckpointAndExit)] == [A2]
