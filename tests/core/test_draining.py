"""A node is emptied: nothing new, nothing cut short, nothing lost."""

from __future__ import annotations

import pytest

from hermesd.core.commands import Release, WriteDown
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    Cancelled,
    Checkpointed,
    FidelityKnown,
    NodeDrained,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    ParkLost,
    Paused,
    Retried,
    RunSuspended,
    Unpaused,
)
from hermesd.core.model import Fidelity, Phase, Plugin, Tier
from hermesd.core.node.actions import EndProcess, TellHead, WriteCheckpoint, WriteCheckpointAndExit
from hermesd.core.node.messages import (
    LeftDevice,
    OutcomeAcknowledged,
    Parked,
    Save,
    Started,
)
from hermesd.core.placement import make_placement
from hermesd.core.trial import NOT_WRITTEN
from hermesd.policy import make_policy
from tests.core.node_talk import CPU, ONE, RIVAL, TWO, Told, events, exact, order, suspend
from tests.core.node_talk import checkpoint as saved
from tests.core.playbook import (
    LEASE,
    Playbook,
    completed,
    joined,
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
DRAIN = NodeDrained("n", "r1")


def known(name: str, fidelity: Fidelity = Fidelity.EXACT) -> FidelityKnown:
    return FidelityKnown(run(name), fidelity, "", "keras")


def two_nodes(trials: int = 3, **changes: object) -> Playbook:
    """s/0 runs on n/0 and s/1 on m/0; the next waits."""
    book = play(trials, policy=ROUND_ROBIN, **changes).tell(joined(1, node="m"))
    book.tell(started("s/0#1"), started("s/1#1"), known("s/0#1"), known("s/1#1"))
    return book.expect("launch s/0#1 on n/0 for 30 s", "launch s/1#1 on m/0 for 30 s")


def test_a_run_goes_on_to_the_end_of_its_quantum_and_is_written_down() -> None:
    book = two_nodes().tell(DRAIN).expect()
    book.at(30).tell(quantum_ended("s/0#1")).expect("suspend s/0#1 by checkpoint")
    assert book.trial().run.asked.reason == "node n is draining"
    book.tell(written("s/0#1", 9)).expect()
    assert book.busy("n/0") is None
    book.tell(completed("s/1#1")).tell(started("s/2#1")).tell(completed("s/2#1"))
    book.expect("launch s/2#1 on m/0 for 30 s", "launch s/0#2 on m/0 for 30 s from s/0#1@9")


def test_a_quantum_without_an_end_is_over() -> None:
    book = play().tell(started("s/0#1"), known("s/0#1")).expect("launch s/0#1 on n/0")
    book.tell(DRAIN).expect("suspend s/0#1 by checkpoint")


def test_a_run_that_has_only_begun_is_asked_once_it_runs() -> None:
    book = play().tell(DRAIN).expect("launch s/0#1 on n/0")
    book.tell(started("s/0#1")).expect()
    book.tell(known("s/0#1")).expect("suspend s/0#1 by checkpoint")


def test_what_is_parked_is_written_down() -> None:
    book = play().tell(started("s/0#1"), known("s/0#1"), Paused(("s/0",), "r0"))
    book.tell(parked("s/0#1", 5)).expect("launch s/0#1 on n/0", "suspend s/0#1")
    book.tell(DRAIN).expect("write down s/0#1 on n")
    book.tell(joined(live=[live("s/0#1", "parked")])).expect()
    assert book.outstanding() == ["write down s/0#1 on n"]
    book.tell(written("s/0#1", 5)).expect()
    assert book.outstanding() == []
    assert (book.trial().kept.tier, book.trial().step) == (Tier.CHECKPOINT, 5)
    book.tell(Unpaused(("s/0",), "r2"), joined(1, node="m"))
    book.expect("launch s/0#2 on m/0 from s/0#1@5")


def test_what_parks_while_the_node_drains_is_written_down_too() -> None:
    book = two_nodes().at(30).tell(quantum_ended("s/0#1")).expect("suspend s/0#1 for s/2")
    book.tell(DRAIN).tell(parked("s/0#1", 5)).expect("write down s/0#1 on n")
    book.tell(completed("s/1#1")).expect("launch s/2#1 on m/0 for 30 s")


def test_a_successor_does_not_wait_for_a_device_that_drains() -> None:
    book = two_nodes().at(30).tell(quantum_ended("s/0#1")).expect("suspend s/0#1 for s/2")
    book.tell(DRAIN).tell(completed("s/1#1")).expect("launch s/2#1 on m/0 for 30 s")


def test_what_was_not_written_is_asked_for_again_by_another_drain() -> None:
    book = play().tell(started("s/0#1"), known("s/0#1"), Paused(("s/0",), "r0"))
    book.tell(parked("s/0#1", 5)).tell(DRAIN)
    book.expect("launch s/0#1 on n/0", "suspend s/0#1", "write down s/0#1 on n")
    book.refuses(DRAIN, "carried out before")
    book.tell(NodeDrained("n", "r2")).expect("write down s/0#1 on n")


def test_what_no_checkpoint_brings_back_is_not_cut() -> None:
    book = two_nodes().tell(known("s/0#1", Fidelity.PARK_ONLY)).tell(DRAIN)
    book.at(30).tell(quantum_ended("s/0#1")).expect()
    book.tell(completed("s/0#1")).expect()
    assert book.trial().phase is Phase.COMPLETED


def test_what_can_only_be_parked_waits_for_its_node_and_says_so() -> None:
    book = two_nodes().tell(known("s/0#1", Fidelity.PARK_ONLY))
    book.at(30).tell(quantum_ended("s/0#1")).tell(parked("s/0#1", 5))
    book.expect("suspend s/0#1 for s/2", "launch s/2#1 on n/0 for 30 s")
    book.tell(completed("s/2#1")).expect("launch s/0#2 on n/0 for 30 s from s/0#1")
    book.tell(started("s/0#2"), Paused(("s/0",), "r0")).tell(parked("s/0#2", 8)).tell(DRAIN)
    book.tell(completed("s/1#1"), Unpaused(("s/0",), "r2")).expect("suspend s/0#2")
    assert "waits for node n, which is draining" in book.scheduler.explain("s/0", 30).summary
    book.tell(NodeUndrained("n", "r3")).expect("launch s/0#3 on n/0 for 30 s from s/0#2")


def test_a_node_that_comes_back_or_a_head_that_does_drains_still() -> None:
    book = play(devices=2).tell(started("s/0#1"), known("s/0#1")).tell(DRAIN)
    book.tell(NodeSilent("n", "cut")).tell(joined(2, live=[live("s/0#1")]))
    assert book.outstanding() == ["suspend s/0#1 by checkpoint"]
    book.tell(written("s/0#1", 9)).expect("launch s/0#1 on n/0", "suspend s/0#1 by checkpoint")
    book.scheduler = Scheduler(book.state, make_policy, make_placement, LEASE)
    book.tell(joined(2, boot="b2")).expect()
    book.tell(NodeSilent("n", "cut")).at(LEASE.silence_seconds).tell(joined(2, boot="b3")).expect()
    book.tell(NodeUndrained("n", "r2")).expect("launch s/0#2 on n/0 from s/0#1@9")


def test_a_node_that_is_silent_is_asked_when_it_is_back() -> None:
    book = play().tell(started("s/0#1"), known("s/0#1")).tell(NodeSilent("n", "cut"))
    book.tell(DRAIN).expect("launch s/0#1 on n/0", "suspend s/0#1 by checkpoint")
    book.at(LEASE.silence_seconds).tell(joined(1, node="m")).expect("launch s/0#2 on m/0")
    book.refuses(NodeDrained("other", "r2"), "no node 'other'")
    book.refuses(NodeLost("m"), "connected")


def test_homes_on_a_draining_node_are_given_up() -> None:
    book = play(2, placement=Plugin("homes"), policy=ROUND_ROBIN).tell(started("s/0#1"))
    book.tell(known("s/0#1")).tell(joined(1, node="m"))
    book.expect("bind s/0 to n/0", "bind s/1 to n/0", "launch s/0#1 on n/0 for 30 s")
    book.tell(DRAIN).expect("bind s/1 to m/0", "launch s/1#1 on m/0 for 30 s")
    book.at(30).tell(quantum_ended("s/0#1")).tell(written("s/0#1", 4))
    book.expect("suspend s/0#1 by checkpoint", "bind s/0 to m/0")


def test_a_device_that_drains_is_no_other_to_fail_on() -> None:
    """A failure is final as it would be if the draining node were not there."""
    book = play(max_failures=1).tell(joined(1, node="m")).tell(NodeDrained("m", "r1"))
    book.tell(submitted(1, "t")).expect("launch s/0#1 on n/0")
    assert book.state.nodes["m"].draining
    assert "m/0" not in book.state.free


def test_a_park_that_is_lost_while_it_is_to_be_written_down_is_forgotten() -> None:
    book = play().tell(started("s/0#1"), known("s/0#1"), Paused(("s/0",), "r0"))
    book.tell(parked("s/0#1", 5)).tell(DRAIN).tell(ParkLost(run("s/0#1"), "no room"))
    assert (book.trial().kept, book.outstanding()) == (None, [])


# The node's side.


RELEASE = Release("digits/1", "n1", forget=False)


def write_down(which: str = "digits/1", attempt: int = 1) -> WriteDown:
    return WriteDown(run(f"{which}#{attempt}"), "n1")


def test_a_node_writes_down_what_is_parked_and_ends_it() -> None:
    node = Told()
    node.parked()
    (asked,) = node.says(write_down())
    assert isinstance(asked, WriteCheckpointAndExit)
    assert node.says(write_down()) == [], "it is under way"
    kept = saved(ONE, 7)
    (told,) = events(node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, kept)))
    assert told == RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0, "demoted")
    assert node.says(write_down()) == [TellHead(told)], "the answer may be lost"
    node.says(OutcomeAcknowledged(ONE))
    assert node.says(write_down()) == []


def test_what_is_to_be_saved_stays_parked() -> None:
    node = Told()
    node.parked()
    (asked,) = node.says(Save(ONE))
    assert isinstance(asked, WriteCheckpoint)
    assert asked.is_asked
    kept = saved(ONE, 7)
    assert events(node.says(Checkpointed(ONE, kept))) == [Checkpointed(ONE, kept)]
    assert node.live() == [(ONE, "parked")]
    assert node.says(Save(run("digits/1#9"))) == [], "of what is not here, none can be"


def test_a_demotion_that_failed_is_tried_again() -> None:
    node = Told()
    node.parked()
    node.all(write_down(), Parked(ONE, 7))
    assert node.live() == [(ONE, "parked")]
    assert [type(action) for action in node.says(write_down())] == [WriteCheckpointAndExit]


def test_a_demotion_that_failed_is_tried_again_until_it_is_done() -> None:
    """A disk that was full for a moment must not keep a node from being empty."""
    node = Told()
    node.parked()
    node.all(write_down(), Parked(ONE, 7))
    for _ in range(2):
        assert node.later(59) == []
        (again,) = node.later(1)
        assert isinstance(again, WriteCheckpointAndExit)
        (told,) = events(node.says(Parked(ONE, 7)))
        assert (told.tier, told.cause) == (Tier.PARK, NOT_WRITTEN)
    node.later(60)
    kept = saved(ONE, 7)
    (told,) = events(node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, kept)))
    assert told == RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0, "demoted")
    assert node.later(1000) == []


def test_what_goes_on_meanwhile_is_not_written_down() -> None:
    node = Told()
    node.parked()
    node.all(write_down(), Parked(ONE, 7), order(TWO, parked=ONE), Started(TWO, 7))
    node.all(suspend(TWO), Parked(TWO, 9))
    assert node.later(1000) == []


def test_what_is_parked_midway_is_not_asked_for_again_and_again() -> None:
    node = Told()
    node.running()
    node.all(suspend(ONE, Tier.PARK), Parked(ONE, 7, midway=True))
    node.all(write_down(), Parked(ONE, 7, midway=True))
    assert node.later(1000) == []


@pytest.mark.parametrize("judged", [True, False])
def test_a_launch_that_comes_meanwhile_is_carried_out(judged: bool) -> None:
    node = Told()
    node.parked()
    node.all(
        write_down(), order(TWO, parked=ONE), LeftDevice(ONE, Tier.CHECKPOINT, 7, saved(ONE, 7))
    )
    node.all(Started(TWO, 7), *([exact(TWO)] if judged else []))
    assert node.live() == [(TWO, "running")]
    assert node.says(write_down()) == [], "it is not parked any more"


def test_what_is_let_go_while_it_is_written_down_is_written_to_its_end() -> None:
    node = Told()
    node.parked()
    node.says(write_down())
    assert node.says(RELEASE) == []
    kept = saved(ONE, 7)
    (told,) = events(node.says(LeftDevice(ONE, Tier.CHECKPOINT, 7, kept)))
    assert told == RunSuspended(ONE, Tier.CHECKPOINT, 7, kept, 0.0, "demoted")


def test_what_is_let_go_and_cannot_be_written_down_is_ended() -> None:
    node = Told()
    node.parked()
    node.all(write_down(), RELEASE)
    assert node.says(Parked(ONE, 7)) == [EndProcess(ONE)]
    (told,) = events(node.says(LeftDevice(ONE, Tier.KILL, 7, None)))
    assert isinstance(told, ParkLost)


def test_what_was_let_go_and_is_asked_for_again_goes_on_though_it_cannot_be_written() -> None:
    node = Told()
    node.parked()
    node.all(write_down(), RELEASE, order(TWO, parked=ONE), Parked(ONE, 7))
    node.says(Started(TWO, 7))
    assert node.live() == [(TWO, "running")]
    assert not node.machine.table.stays["digits/1"].final


def test_what_can_only_be_parked_stays() -> None:
    node = Told()
    node.all(order(RIVAL, CPU), Started(RIVAL, 0), suspend(RIVAL), Parked(RIVAL, 3))
    (told,) = events(node.says(write_down("digits/2")))
    assert isinstance(told, RunSuspended)
    assert told.tier is Tier.PARK
    assert node.live() == [(RIVAL, "parked")]


def test_a_node_that_does_not_know_what_to_write_down_says_so() -> None:
    assert events(Told().says(write_down())) == [ParkLost(ONE, "no parked process of it is here")]


# What is parked of a trial that is over.


def stopped(fidelity: Fidelity = Fidelity.EXACT) -> Playbook:
    """A trial that was stopped while it was parked after step 5."""
    book = play().tell(started("s/0#1", planned=9))
    book.tell(FidelityKnown(run("s/0#1"), fidelity, "", "keras"))
    book.tell(reported("s/0#1", 5, [0.5], metrics=(("loss", 0.5),)), Paused(("s/0",), "r1"))
    book.tell(parked("s/0#1", 5)).heard()
    return book.tell(Cancelled(("s/0",), "r2"))


def test_what_is_stopped_while_it_is_parked_is_written_down_and_goes_on_from_there() -> None:
    book = stopped().expect("write down s/0#1 on n", "release s/0 on n")
    assert book.trial().phase is Phase.CANCELLED
    book.tell(written("s/0#1", 5)).expect()
    assert (book.trial().phase, book.trial().reason) == (Phase.CANCELLED, "stopped by a person")
    book.tell(Retried(("s/0",), "r3")).expect("launch s/0#2 on n/0 from s/0#1@5")
    assert (book.trial().step, book.trial().planned_steps) == (5, 9)


def test_what_is_tried_again_while_it_is_written_down_loses_nothing() -> None:
    book = stopped().expect("write down s/0#1 on n", "release s/0 on n")
    book.tell(Retried(("s/0",), "r3")).expect("launch s/0#2 on n/0 from s/0#1")
    book.tell(written("s/0#1", 5)).tell(started("s/0#2", 5))
    assert (book.trial().phase, book.trial().step) == (Phase.RUNNING, 5)


def test_what_cannot_be_written_down_keeps_what_it_came_to() -> None:
    book = stopped().expect("write down s/0#1 on n", "release s/0 on n")
    book.tell(ParkLost(run("s/0#1"), "no space"))
    trial = book.trial()
    assert (trial.phase, trial.step, trial.metrics["loss"].last) == (Phase.CANCELLED, 5, 0.5)
    assert trial.reason == "stopped by a person (what was parked is lost: no space)"
    book.heard()
    book.tell(Retried(("s/0",), "r3")).expect("launch s/0#2 on n/0")
    assert book.trial().step == 0


def test_what_can_only_be_parked_is_stopped_all_the_same() -> None:
    book = stopped(Fidelity.PARK_ONLY).expect("release s/0 on n")
    assert book.trial().kept is None


def test_a_node_that_comes_back_is_told_again_what_to_write_down() -> None:
    book = stopped().expect("write down s/0#1 on n", "release s/0 on n")
    book.tell(NodeSilent("n", "cut")).tell(joined(live=[live("s/0#1", "parked")]))
    book.expect("write down s/0#1 on n", "release s/0 on n")
    book.tell(written("s/0#1", 5)).expect()
    assert book.trial().checkpoint is not None
