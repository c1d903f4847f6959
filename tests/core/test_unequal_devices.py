"""Devices of unequal kinds: their speeds are learned, and placements go by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hermesd.core.events import NodeJoined, RunStarted, RunSuspended, Submitted
from hermesd.core.model import Checkpoint, Device, Plugin, Stage, Tier, TrialSpec
from hermesd.core.placement import make_placement
from hermesd.core.policy import Facts
from hermesd.core.speeds import DOUBT, Speed, Speeds, lead, learned, performance, rate
from hermesd.core.trial import Failure, SwitchCost, Trial
from tests.core.playbook import (
    Playbook,
    completed,
    parked,
    play,
    quantum_ended,
    reported,
    started,
    study,
)

HOME = Plugin("homes", (("rebalance", "node"),))


def fleet(*kinds: str, node: str = "n") -> NodeJoined:
    """A node with devices n/0, n/1 ... of these kinds."""
    named = tuple(Device(f"{node}/{i}", node, kind, 1 << 30) for i, kind in enumerate(kinds))
    return NodeJoined(node, "b1", named, ())


def trial(number: int, batch: int = 1, **seconds: float) -> Trial:
    """A trial that was measured: seconds an iteration on each kind."""
    spec = TrialSpec(f"s/{number}", "s", number, (Stage(None, (("batch_size", batch),)),), (), 0)
    return Trial(spec, 0.0, 0.0, step_seconds=seconds)


def on(kind: str) -> Device:
    """A device of this kind that needs no correction."""
    return Device(f"n/{kind}", "n", kind, 1 << 30)


def of_batches(*batches: int, **changes: Any) -> Submitted:
    """A study whose trials have these batch sizes."""
    specs = tuple(trial(number, batch).spec for number, batch in enumerate(batches))
    return Submitted(study(**changes), specs, "submit")


def ran(name: str, step: int, seconds: float, loss: float = 5.0) -> tuple[Any, Any]:
    """A first report, which counts for nothing, and one of ten iterations in `seconds` each."""
    return (
        reported(name, step - 10, [loss], busy_seconds=100.0),
        reported(name, step, [loss] * 10, busy_seconds=10 * seconds),
    )


# What is learned.


def test_speeds_are_those_of_the_first_trial_measured_on_a_kind() -> None:
    book = play(trials=3, devices=None).tell(fleet("fast", "slow"))
    book.tell(started("s/0#1"), started("s/1#1")).tell(*ran("s/0#1", 20, 0.1))
    book.tell(*ran("s/1#1", 20, 0.4))
    assert book.state.facts["s"].speeds == {
        "fast": Speed("s/0", pytest.approx(10.0), pytest.approx(10.0)),
        "slow": Speed("s/1", pytest.approx(2.5), pytest.approx(2.5)),
    }


def test_equation_1() -> None:
    """P_G(j) = T(j_t) B(j) / B(j_t): 10 steps of 32 a second, so 640 of a batch of 64."""
    speeds = learned({}, {}, trial(0, 32, fast=0.1), "fast")
    assert performance(Speeds(speeds, {}), trial(1, 64), on("fast")) == pytest.approx(640.0)
    assert rate(Speeds(speeds, {}), trial(1, 64), on("fast")) == pytest.approx(10.0)
    assert performance(Speeds(speeds, {}), trial(1, 64), on("slow")) is None
    assert rate(Speeds(speeds, {}), trial(1, 64), on("slow")) is None


def test_a_trial_seen_on_both_kinds_tells_how_they_compare() -> None:
    """The first trial on the slow kind was a light one: by equation (1) it looks the faster."""
    speeds = learned({}, {}, trial(0, fast=1.0), "fast")
    speeds = learned(speeds, {}, trial(1, slow=0.5), "slow")
    assert rate(Speeds(speeds, {}), trial(2), on("slow")) > rate(
        Speeds(speeds, {}), trial(2), on("fast")
    )
    speeds = learned(speeds, {}, trial(1, slow=0.5, fast=0.25), "fast")
    assert rate(Speeds(speeds, {}), trial(2), on("fast")) == pytest.approx(
        2 * rate(Speeds(speeds, {}), trial(2), on("slow"))
    )
    # One that was measured on one kind is predicted for the other by how they compare.
    assert rate(Speeds(speeds, {}), trial(0, fast=1.0), on("slow")) == pytest.approx(0.5)
    assert rate(Speeds(speeds, {}), trial(0, fast=1.0), on("fast")) == 1.0


def test_what_is_known_does_not_grow_with_trials() -> None:
    speeds: dict[str, Speed] = {}
    for number in range(100):
        speeds = learned(speeds, {}, trial(number, fast=0.1 + number), "fast")
    assert speeds == {"fast": Speed("s/0", 10.0, 10.0)}


# Free.


def measured(trials: int = 3, policy: str = "best_first") -> Playbook:
    """s/0 on the slow n/0 and s/1 on n/1, four times as fast, both measured; s/2 waits."""
    book = play(trials, None, policy=Plugin(policy)).tell(fleet("slow", "fast"))
    book.tell(started("s/0#1", planned=1000), started("s/1#1", planned=1000))
    book.tell(*ran("s/0#1", 100, 0.4, loss=1.0), *ran("s/1#1", 100, 0.1, loss=5.0))
    book.expect("launch s/0#1 on n/0 for 0.5 s", "launch s/1#1 on n/1 for 0.5 s")
    return book


def test_a_leader_moves_to_the_faster_device_when_its_turn_is_up() -> None:
    book = measured(trials=2).tell(quantum_ended("s/1#1", step=100))
    book.expect("suspend s/1#1 for s/0", "suspend s/0#1 for s/1")
    book.tell(parked("s/1#1", 100)).expect()  # n/1 is kept for the leader
    assert book.busy("n/1") is None
    book.tell(parked("s/0#1", 110))
    assert [book.busy("n/0"), book.busy("n/1")] == ["s/1#2", "s/0#2"]


def test_a_device_that_stands_idle_is_kept_for_who_is_on_the_way() -> None:
    book = measured(trials=2).tell(completed("s/1#1", 100))
    book.expect("suspend s/0#1", "bind s/0 to n/1").tell(parked("s/0#1", 110))
    assert book.busy("n/1") == "s/0#2"
    assert book.busy("n/0") is None


def test_with_equal_speeds_nobody_moves() -> None:
    equal = Plugin("free", (("speeds", "equal"),))
    book = play(2, None, policy=Plugin("best_first"), placement=equal).tell(fleet("slow", "fast"))
    book.tell(started("s/0#1", planned=1000), started("s/1#1", planned=1000))
    book.tell(*ran("s/0#1", 100, 0.4, loss=1.0), *ran("s/1#1", 100, 0.1, loss=5.0))
    book.tell(completed("s/1#1", 100))
    book.expect("launch s/0#1 on n/0 for 0.5 s", "launch s/1#1 on n/1 for 0.5 s")


def test_moving_is_worth_what_it_saves_less_the_switch() -> None:
    """As many iterations as there were, or as there are left, less the trial's own cost."""
    kinds = {"slow": Speed("s/0", 2.5, 2.5), "fast": Speed("s/1", 10.0, 10.0)}
    facts, speeds = Facts(suspend_seconds=1.0, resume_seconds=2.0), Speeds(kinds, {})
    slow, fast = on("slow"), on("fast")
    free = make_placement(Plugin("free"))

    def gain(each: Trial, here: Device, there: Device) -> float:
        return free.gain(each, here, there, facts, speeds, wanted=False)

    fresh = replace(trial(0, slow=0.4), step=100, planned_steps=1000)
    assert gain(fresh, slow, fast) == pytest.approx(100 * 0.3 - 3.0)
    assert gain(replace(fresh, planned_steps=105), slow, fast) == pytest.approx(1.5 - 3.0)
    assert gain(fresh, fast, slow) < 0
    costly = replace(fresh, costs={Tier.PARK: SwitchCost(10.0, 25.0)})
    assert gain(costly, slow, fast) == pytest.approx(30.0 - 35.0)
    failed = Failure(1, fast.id, "exception", "it broke", "", 7, 0.0)
    assert gain(replace(fresh, failures=(failed,)), slow, fast) == 0.0
    assert gain(fresh, slow, replace(fast, node="m")) == 0.0


def test_what_is_taken_from_another_is_no_gain() -> None:
    """Of trials a and b with as many iterations to go, on devices of speeds r and 1, one ends
    first and leaves its device to the other: on the fast one at a time, that saves 1 - r of what
    the first saves by itself, so little where devices are nearly alike."""
    for slow_rate, share in ((9.0, 0.1), (5.0, 0.5)):
        kinds = {
            "slow": Speed("s/0", slow_rate, slow_rate, paired=True),
            "fast": Speed("s/1", 10.0, 10.0, paired=True),
        }
        facts, speeds = Facts(suspend_seconds=1.0, resume_seconds=2.0), Speeds(kinds, {})
        slow, fast = on("slow"), on("fast")
        mine = replace(trial(0, slow=1 / slow_rate), step=1000, planned_steps=2000)
        saved = 1000 / slow_rate - 1000 / 10
        gain = make_placement(Plugin("free")).gain
        idle, taken = (gain(mine, slow, fast, facts, speeds, wanted) for wanted in (False, True))
        assert idle == pytest.approx(saved - 3.0)
        assert taken == pytest.approx(share * saved - 3.0)


def test_kinds_that_no_trial_compared_are_told_apart_by_more_than_trials_differ() -> None:
    guessed = {"slow": Speed("s/0", 2.5, 2.5), "fast": Speed("s/1", 5.0, 5.0)}
    mine, slow, fast = trial(0, slow=0.4), on("slow"), on("fast")
    assert lead(Speeds(guessed, {}), mine, slow, fast) == 0.0
    far = {**guessed, "fast": Speed("s/1", 10.0, 10.0)}
    assert lead(Speeds(far, {}), mine, slow, fast) == pytest.approx(1 - DOUBT * 2.5 / 10)
    compared = {kind: replace(speed, paired=True) for kind, speed in guessed.items()}
    assert lead(Speeds(compared, {}), mine, slow, fast) == pytest.approx(0.5)
    assert lead(Speeds(compared, {}), mine, fast, slow) == 0.0
    # One that ran on both knows it by itself.
    both = trial(0, slow=0.4, fast=0.1)
    assert lead(Speeds(guessed, {}), both, slow, fast) == pytest.approx(0.75)
    assert lead(Speeds({}, {}), trial(0), slow, fast) == 0.0


def near(*, one_waits: bool) -> Playbook:
    """The leader s/1 on n/0 would save 8 s on n/1, a quarter faster and s/0's; it ran on both.

    Of that, a fifth is left where another loses what it saves. A switch takes 3 s.
    """
    book = play(3, None, policy=Plugin("best_first", (("good", 0.0),)))
    book.tell(fleet("slow", "fast")).tell(*(begun(f"s/{n}#1") for n in (0, 1)))
    book.tell(*ran("s/0#1", 100, 0.1, loss=5.0), *ran("s/1#1", 100, 0.08, loss=1.0))
    book.tell(quantum_ended("s/1#1", step=100)).tell(left("s/1#1", 100)).tell(begun("s/2#1"))
    book.tell(*ran("s/2#1", 100, 0.08, loss=9.0))
    book.tell(quantum_ended("s/0#1", step=100)).tell(left("s/0#1", 100)).tell(begun("s/1#2", 100))
    book.tell(reported("s/1#2", 600, [1.0] * 500, busy_seconds=50.0))
    if one_waits:
        book.tell(quantum_ended("s/2#1", step=100)).tell(left("s/2#1", 100))
    else:
        book.tell(completed("s/2#1", 1000))
    book.tell(begun("s/0#2", 100)).tell(reported("s/0#2", 200, [5.0] * 100, busy_seconds=8.0))
    book.heard()
    assert [book.busy("n/0"), book.busy("n/1")] == ["s/1#2", "s/0#2"]
    return book


def begun(name: str, step: int = 0) -> RunStarted:
    return replace(started(name, step, planned=1000), start_seconds=2.0)


def left(name: str, step: int) -> RunSuspended:
    return replace(parked(name, step), release_seconds=1.0)


def test_a_leader_takes_a_slightly_faster_device_from_nobody() -> None:
    book = near(one_waits=False).tell(quantum_ended("s/0#2", step=200))
    assert [command.split(" for ")[0] for command in book.heard()] == ["renew s/0#2.1"]


def test_a_leader_leaves_a_slightly_faster_device_to_who_waits() -> None:
    book = near(one_waits=True).tell(completed("s/0#2", 1000))
    assert book.busy("n/1") == "s/2#2"
    assert not any("suspend" in command for command in book.heard())


def test_a_leader_takes_a_slightly_faster_device_that_stands_idle() -> None:
    near(one_waits=False).tell(completed("s/0#2", 1000)).expect("suspend s/1#2", "bind s/1 to n/1")


def test_a_waiting_trial_stays_at_its_files_unless_speed_pays_for_the_copy() -> None:
    kinds = {"slow": Speed("s/0", 9.0, 9.0), "fast": Speed("s/1", 10.0, 10.0)}
    facts, speeds = Facts(resume_seconds=2.0), Speeds(kinds, {})
    here, there = Device("n/0", "n", "slow", 1), Device("m/0", "m", "fast", 1)
    cost = make_placement(Plugin("free")).cost
    saved = Checkpoint("s/0#1@100", "s/0", 1, 100, "5ha", 1, ("n",))
    kept = replace(trial(0), checkpoint=saved, step=100)
    assert cost(kept, here, facts, speeds) < cost(kept, there, facts, speeds)
    far = replace(kept, step=1000)
    assert cost(far, here, facts, speeds) > cost(far, there, facts, speeds)


# Homes and swap.


def bound(book: Playbook) -> dict[str, list[int]]:
    """Which unfinished trials each device is the home of."""
    homes: dict[str, list[int]] = {}
    for each in book.state.trials.values():
        if each.home:
            homes.setdefault(each.home, []).append(each.spec.number)
    return homes


def at_home(placement: Plugin, *batches: int) -> Playbook:
    """Trials bound by turns to a slow n/0 and a fast n/1; the first on each is measured."""
    book = Playbook().tell(of_batches(*batches, placement=placement))
    book.tell(fleet("slow", "fast")).tell(started("s/0#1"), started("s/1#1"))
    return book.tell(*ran("s/0#1", 20, 0.4)).tell(*ran("s/1#1", 20, 0.1))


def test_one_swap_by_equation_2_when_a_trial_ends_and_counts_become_uneven() -> None:
    """Slow does 2.5, fast 10 steps a second. s/3 (64) is on the fast n/1, whose s/1 ends: it has
    the fewest, so its s/3 may change places. With s/2 (256) that gains (10 - 2.5) (256 - 64), with
    s/4 (128) less; s/0 and s/2 ... of s/0 nothing is said, since it has run."""
    book = at_home(Plugin("swap"), 32, 32, 256, 64, 128, 16)
    assert bound(book) == {"n/0": [0, 2, 4], "n/1": [1, 3, 5]}
    book.tell(completed("s/1#1", 30))
    assert bound(book) == {"n/0": [0, 3, 4], "n/1": [2, 5]}


def test_no_swap_that_loses_and_none_while_counts_are_even() -> None:
    lighter = at_home(Plugin("swap"), 32, 32, 16, 64, 8, 64).tell(completed("s/1#1", 30))
    assert bound(lighter) == {"n/0": [0, 2, 4], "n/1": [3, 5]}
    heavier = at_home(Plugin("swap"), 32, 32, 256, 64)
    assert bound(heavier) == {"n/0": [0, 2], "n/1": [1, 3]}


def test_what_is_said_of_a_trial_that_ended_earlier_swaps_nothing() -> None:
    """s/7 (16) on the fast n/1 would gain by s/4's place (128), but nobody arrived or ended."""
    batches = (32, 32, 8, 64, 128, 16, 8, 16, 256, 8)
    book = at_home(Plugin("swap", (("G_thres", 6),)), *batches).tell(completed("s/1#1", 30))
    homes = bound(book)
    assert homes == {"n/0": [0, 2, 3, 4, 6], "n/1": [5, 7, 8, 9]}
    book.state.touch_all(["s/1"])  # as whatever is said of a trial does
    assert book.scheduler.decide(book.now) == []
    assert bound(book) == homes


def test_nobody_who_has_run_is_swapped() -> None:
    book = at_home(Plugin("swap"), 256, 32, 64, 32)
    book.tell(quantum_ended("s/0#1", step=20)).tell(parked("s/0#1", 20))
    book.tell(completed("s/1#1", 30))
    assert 0 in bound(book)["n/0"]


def test_waiting_trials_even_out_the_devices_of_a_node() -> None:
    book = at_home(HOME, 1, 1, 1, 1, 1, 1)
    assert bound(book) == {"n/0": [0, 2, 4], "n/1": [1, 3, 5]}
    for name in ("s/1#1", "s/3#1"):
        book.tell(completed(name, 30))
    assert bound(book) == {"n/0": [0, 2], "n/1": [4, 5]}
    assert book.busy("n/1") == "s/4#1"


def test_without_rebalance_a_device_runs_dry() -> None:
    book = at_home(Plugin("homes"), 1, 1, 1, 1)
    for name in ("s/1#1", "s/3#1"):
        book.tell(completed(name, 30))
    assert bound(book) == {"n/0": [0, 2]}
    assert book.busy("n/1") is None


def test_with_cluster_a_device_that_runs_dry_takes_a_trial_of_another_node() -> None:
    cluster = Plugin("homes", (("rebalance", "cluster"),))
    book = Playbook().tell(of_batches(1, 1, 1, 1, 1, placement=cluster))
    book.tell(fleet("slow"), fleet("fast", node="m"))
    while bound(book).get("n/0", []) and len(bound(book).get("m/0", [])) > 1:
        book.tell(started(str(book.busy("m/0"))), completed(str(book.busy("m/0")), 30))
    before = len(bound(book)["n/0"])
    book.tell(started(str(book.busy("m/0"))), completed(str(book.busy("m/0")), 30))
    assert before > 1
    assert len(bound(book)["n/0"]) == before - 1
    assert book.busy("m/0") is not None


def test_homes_are_evened_out_inside_a_node_only() -> None:
    book = Playbook().tell(of_batches(1, 1, 1, 1, placement=HOME))
    book.tell(fleet("slow"), fleet("fast", node="m"))
    for name in [each.run_id for each in book.state.trials.values() if each.home == "m/0"]:
        if name is not None:
            book.tell(completed(str(name), 30))
    (last,) = [each for each in book.state.trials.values() if each.home == "m/0"]
    book.tell(completed(str(last.run_id), 30))
    assert {device: len(numbers) for device, numbers in bound(book).items()} == {"n/0": 2}
