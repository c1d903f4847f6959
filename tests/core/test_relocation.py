"""What is parked on one node goes to another whose device would idle, or be shared unequally."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.commands import Launch, Suspend
from hermesd.core.events import (
    FidelityKnown,
    NodeDrained,
    NodeSilent,
    NotCopied,
    ParkLost,
    Paused,
    RunSuspended,
)
from hermesd.core.fold.checkpoints import AGAIN_SECONDS
from hermesd.core.homes import Homesteads
from hermesd.core.model import Fidelity, Plugin, Quantum, Tier
from hermesd.core.placement import make_placement
from hermesd.core.policy import Facts
from hermesd.core.speeds import Speed, Speeds
from hermesd.core.state import State
from hermesd.core.trial import NOT_WRITTEN, Kept
from tests.core.playbook import (
    Playbook,
    checkpoint,
    checkpointed,
    completed,
    joined,
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
TURN = 30.0


def known(name: str, fidelity: Fidelity = Fidelity.EXACT) -> FidelityKnown:
    return FidelityKnown(run(name), fidelity, "", "keras")


def refused(name: str, step: int) -> RunSuspended:
    return RunSuspended(run(name), Tier.PARK, step, None, 0.0, NOT_WRITTEN)


def turn(book: Playbook, name: str, step: int = 30, began: int = 0) -> Playbook:
    """A run begins, trains for a quantum, and is parked if another trial is to go on there."""
    book.tell(started(name, began), known(name))
    book.tell(reported(name, step, [1.0] * (step - began), busy_seconds=TURN))
    book.at(book.now + TURN).tell(quantum_ended(name, step=step))
    if book.trial(name.split("#")[0]).run.asked is not None:
        book.tell(parked(name, step))
    return book


def crowd(trials: int, **changes: object) -> Playbook:
    """Node n, with one device, has run each trial but the last, which begins there: the others are
    parked, s/0 first."""
    book = play(trials, policy=ROUND_ROBIN, **changes)
    for number in range(trials - 1):
        turn(book, f"s/{number}#1")
    book.heard()
    return book


def test_a_node_that_joins_has_work_at_once() -> None:
    """s/0 is next on n: s/1, which would wait longer there, is brought to m."""
    book = crowd(3).tell(joined(1, node="m")).expect("write down s/1#1 on n")
    assert "go on elsewhere" in book.scheduler.explain("s/1", book.now).last_decision
    book.tell(written("s/1#1", 30)).expect("launch s/1#2 on m/0 for 30 s from s/1#1@30")


def test_no_more_are_brought_than_there_are_devices() -> None:
    book = crowd(5).tell(joined(2, node="m"))
    book.expect("write down s/1#1 on n", "write down s/2#1 on n")
    book.tell(written("s/2#1", 30)).expect("launch s/2#2 on m/0 for 30 s from s/2#1@30")


def test_the_only_one_that_waits_is_brought_though_its_turn_is_next() -> None:
    crowd(2).tell(joined(1, node="m")).expect("write down s/0#1 on n")


def test_a_device_whose_trials_are_done_takes_others() -> None:
    book = crowd(4).tell(joined(1, node="m")).expect("write down s/1#1 on n")
    book.tell(written("s/1#1", 30)).tell(started("s/1#2", 30)).tell(completed("s/1#2", 30))
    book.expect(
        "launch s/1#2 on m/0 for 30 s from s/1#1@30",
        "write down s/2#1 on n",
    )


@pytest.mark.parametrize("fidelity", [Fidelity.PARK_ONLY, Fidelity.UNKNOWN])
def test_what_no_checkpoint_brings_back_stays(fidelity: Fidelity) -> None:
    book = crowd(2).tell(known("s/0#1", fidelity)).tell(joined(1, node="m")).expect()
    why = book.scheduler.explain("s/0", book.now).summary
    assert "it is parked on n, and has no checkpoint from which it could go on elsewhere" in why


def test_what_the_other_node_cannot_take_stays() -> None:
    crowd(2, device_kind="cpu").tell(joined(1, node="m", kinds=["gpu"])).expect()
    crowd(2).tell(joined(1, node="m"), NodeDrained("m", "r1")).expect()
    crowd(2, placement=Plugin("homes")).tell(joined(1, node="m")).expect()


def test_a_paused_trial_is_not_brought() -> None:
    crowd(2).tell(Paused(("s/0",), "r1")).tell(joined(1, node="m")).expect()


def test_what_cannot_be_written_down_makes_way_for_another() -> None:
    book = crowd(3).tell(joined(1, node="m")).expect("write down s/1#1 on n")
    book.tell(refused("s/1#1", 30)).expect("write down s/0#1 on n")
    book.tell(refused("s/0#1", 30)).expect()
    book.refuses(parked("s/0#1", 30), "not the present run")
    turn(book, "s/2#1").expect(
        "suspend s/2#1 for s/0",
        "launch s/0#2 on n/0 for 30 s from s/0#1",
        "write down s/2#1 on n",
    )


def test_a_park_that_is_lost_as_it_is_written_down_begins_elsewhere() -> None:
    book = crowd(2).tell(joined(1, node="m")).expect("write down s/0#1 on n")
    book.tell(ParkLost(run("s/0#1"), "it broke")).expect("launch s/0#2 on m/0 for 30 s")


def test_nothing_is_brought_by_a_way_that_no_copy_could_go() -> None:
    book = crowd(2, replicas=1).tell(submitted(1, "t"), joined(1, node="m"))
    book.expect("launch t/0#1 on m/0").tell(checkpointed("s/0#1", 30))
    book.expect("copy s/0#1@30 from n to m")
    book.tell(NotCopied("m", "s/0", "s/0#1@30", "no route", way=True)).expect()
    book.tell(completed("t/0#1")).expect()
    book.at(book.now + AGAIN_SECONDS).tell()
    book.expect("write down s/0#1 on n", "copy s/0#1@30 from n to m")


# Devices that are in use.


def unequal(trials: int) -> Playbook:
    """As `crowd`, with one trial that has just been brought to m: the others share n."""
    book = crowd(trials).tell(joined(1, node="m")).expect("write down s/1#1 on n")
    book.tell(written("s/1#1", 30)).expect("launch s/1#2 on m/0 for 30 s from s/1#1@30")
    return book


def test_trials_spread_until_none_waits_much_longer_than_the_others() -> None:
    """s/0 has the next turn on n; s/2 would wait two turns there, and s/1 has just had one."""
    book = unequal(5)
    turn(book, "s/1#2", 60, began=30)
    book.expect("write down s/2#1 on n", "suspend s/1#2 for s/2")
    assert book.busy("m/0") is None, "kept for s/2, though s/1 could go on there"
    book.tell(written("s/2#1", 30)).expect("launch s/2#2 on m/0 for 30 s from s/2#1@30")


def test_once_they_are_spread_each_goes_on_where_it_is() -> None:
    """Two trials on each node: who has its turn next where it is moves nowhere."""
    book = unequal(4)
    turn(book, "s/1#2", 60, began=30)
    book.expect("write down s/2#1 on n", "suspend s/1#2 for s/2")
    book.tell(written("s/2#1", 30)).heard()
    turn(book, "s/3#1").expect("suspend s/3#1 for s/0", "launch s/0#2 on n/0 for 30 s from s/0#1")
    turn(book, "s/2#2", 60, began=30)
    book.expect("suspend s/2#2 for s/1", "launch s/1#3 on m/0 for 30 s from s/1#2")


def test_three_trials_take_turns_on_two_nodes() -> None:
    """s/1 has had m to itself for two quanta in a row."""
    book = unequal(3)
    turn(book, "s/1#2", 60, began=30).expect("renew s/1#2.1 for 30 s")
    book.tell(reported("s/1#2", 90, [1.0] * 30, busy_seconds=TURN))
    book.at(book.now + TURN).tell(quantum_ended("s/1#2", grant=1, step=90))
    book.expect("write down s/0#1 on n", "suspend s/1#2 for s/0")


def test_a_move_that_would_cost_too_much_is_not_made() -> None:
    """Nine seconds to go on from a checkpoint, after 30 s of training: not before 180 s."""
    book = unequal(5)
    slow = started("s/1#2", 30)
    book.tell(type(slow)(slow.run, 30, 9.0), known("s/1#2"))
    book.tell(reported("s/1#2", 60, [1.0] * 30, busy_seconds=TURN))
    book.at(book.now + TURN).tell(quantum_ended("s/1#2", step=60))
    book.expect("renew s/1#2.1 for 30 s")


def test_a_device_that_is_kept_for_what_cannot_come_is_given_to_another() -> None:
    book = unequal(5)
    turn(book, "s/1#2", 60, began=30)
    book.heard()
    book.tell(refused("s/2#1", 30)).expect("launch s/1#3 on m/0 for 30 s from s/1#2")


def test_a_device_is_not_kept_for_what_is_on_a_silent_node() -> None:
    book = unequal(5)
    turn(book, "s/1#2", 60, began=30)
    book.heard()
    book.tell(NodeSilent("n", "cut")).expect("launch s/1#3 on m/0 for 30 s from s/1#2")


def test_a_new_trial_takes_a_free_device_before_anybody_is_brought() -> None:
    crowd(3).tell(submitted(1, "t"), joined(1, node="m")).expect("launch t/0#1 on m/0")


# Homes.

CLUSTER = Plugin("homes", (("rebalance", "cluster"),))


def test_a_device_that_runs_dry_takes_what_is_parked_on_another_node() -> None:
    """It is written down first, on its way it is bound to the device that it goes to."""
    book = crowd(3, placement=CLUSTER).tell(joined(1, node="m"))
    book.expect("bind s/1 to m/0", "write down s/1#1 on n")
    book.tell(written("s/1#1", 30)).expect("launch s/1#2 on m/0 for 30 s from s/1#1@30")


def test_what_never_ran_goes_first_as_there_is_nothing_to_transfer() -> None:
    book = play(4, policy=ROUND_ROBIN, placement=CLUSTER)
    turn(turn(book, "s/0#1"), "s/1#1").heard()
    book.tell(joined(1, node="m")).expect("bind s/3 to m/0", "launch s/3#1 on m/0 for 30 s")


def test_what_could_not_be_written_down_has_a_home_where_it_is_parked_again() -> None:
    book = crowd(3, placement=CLUSTER).tell(joined(1, node="m"))
    book.expect("bind s/1 to m/0", "write down s/1#1 on n")
    book.tell(refused("s/1#1", 30))
    book.expect("bind s/1 to n/0", "bind s/0 to m/0", "write down s/0#1 on n")


def test_a_trial_moves_only_if_it_gains_more_than_its_transfer_takes() -> None:
    """Alone it takes 30 s for as much as it has behind it, as one of three on a device 90 s: it
    goes for less than 60 s of transfer."""
    here, there = joined(1).devices[0], joined(1, node="m").devices[0]
    saved = replace(checkpoint("s/1#1", 30), size_bytes=10**9)
    kept = Kept(Tier.PARK, run("s/1#1"), here.id)
    waits = replace(
        crowd(3).trial("s/1"), step=30, step_seconds={"cpu": 1.0}, checkpoint=saved, kept=kept
    )
    speeds = Speeds({"cpu": Speed("s/0", 1.0, 1.0)}, {})
    for seconds, resume, twice_as_slow, goes in (
        (55.0, 0.0, False, True),
        (65.0, 0.0, False, False),
        (55.0, 10.0, False, False),
        (25.0, 0.0, True, True),
        (35.0, 0.0, True, False),
    ):
        homes = Homesteads(
            devices={here.id: here, there.id: there},
            load={here.id: 3, there.id: 0},
            waiting={here.id: [waits]},
            takes=lambda trial, device: False,
            brings=lambda trial, device: True,
            facts=Facts(fetch_seconds_per_byte=seconds / 1e9, restore_seconds=resume),
            speeds=replace(speeds, corrections={there.id: 0.5} if twice_as_slow else {}),
            stirred=False,
        )
        moved = [(waits, there.id)] if goes else []
        assert list(make_placement(CLUSTER).rebound(homes)) == moved, (seconds, resume)


@pytest.mark.parametrize("fidelity", [Fidelity.PARK_ONLY, Fidelity.UNKNOWN])
def test_what_no_checkpoint_brings_back_keeps_its_home(fidelity: Fidelity) -> None:
    book = crowd(2, placement=CLUSTER).tell(known("s/0#1", fidelity)).tell(joined(1, node="m"))
    assert book.trial("s/0").home == "n/0"


def test_the_bandwidth_is_measured_where_a_checkpoint_was_fetched() -> None:
    """2 s to resume where it lies, 12 s where it has to be fetched: 10 s for a gigabyte."""
    state = State()
    for event in (submitted(1), joined(1), joined(1, node="m")):
        state.apply(event, 0.0)
    for attempt, device, seconds in ((1, "n/0", 1.0), (2, "n/0", 2.0), (3, "m/0", 12.0)):
        name = f"s/0#{attempt}"
        state.apply(Launch(run(name), (device,), Quantum(TURN), "", None, None), 0.0)
        state.apply(replace(started(name, 30 * (attempt > 1)), start_seconds=seconds), 0.0)
        assert (state.facts["s"].fetch_seconds_per_byte > 0) == (device == "m/0")
        state.apply(Suspend(run(name), Tier.CHECKPOINT, 60.0, None, ""), 0.0)
        saved = replace(checkpoint(name, 30), size_bytes=10**9)
        state.apply(replace(written(name, 30), checkpoint=saved), 0.0)
    facts = state.facts["s"]
    assert facts.restore_seconds == pytest.approx(2.0), "the fetch is no part of it"
    assert facts.fetch_seconds_per_byte == pytest.approx(10.0 / 1e9)
