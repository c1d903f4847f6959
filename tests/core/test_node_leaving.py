"""A node whose daemon ends its trials: everything on it comes to an end, whenever it came."""

from hermesd.core.events import RunSuspended
from hermesd.core.model import RunId, Tier
from hermesd.core.node.actions import EndProcess, SuspendRun, WriteCheckpointAndExit
from hermesd.core.node.messages import EvacuateNode, Parked
from tests.core.node_talk import ONE, OTHER, RIVAL, Told, events, order, suspend


def test_leaving_writes_everything_down() -> None:
    node = Told()
    node.parked(ONE)
    node.running(RIVAL)
    demote, halt = node.says(EvacuateNode(5.0))
    assert isinstance(demote, WriteCheckpointAndExit)
    assert halt == SuspendRun(RIVAL, Tier.CHECKPOINT, 5.0)


def test_what_is_launched_on_a_node_that_leaves_is_turned_away() -> None:
    node = Told()
    node.running(ONE)
    node.says(EvacuateNode(5.0))
    late = RunId("digits/3", 1)
    (turned_away,) = events(node.says(order(late, OTHER)))
    assert isinstance(turned_away, RunSuspended)
    assert (turned_away.run, turned_away.tier) == (late, Tier.KILL)


def test_what_parks_on_a_node_that_leaves_is_written_down_once_or_ended() -> None:
    node = Told()
    node.running(ONE)
    node.says(suspend(ONE))
    node.says(EvacuateNode(5.0))
    told = node.says(Parked(ONE, 4))
    assert any(isinstance(action, WriteCheckpointAndExit) for action in told)
    assert EndProcess(ONE) in node.says(Parked(ONE, 4)), "it could not be written down"
