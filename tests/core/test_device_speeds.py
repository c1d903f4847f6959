"""Devices of one kind that are not equally fast: learned from trials that ran on several."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermesd.core.commands import Launch, Suspend
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import NodeJoined
from hermesd.core.model import Device, DeviceId, Plugin, Quantum, Tier
from hermesd.core.placement import make_placement
from hermesd.core.speeds import ALIKE, Evidence, Speeds, lead, performance, rate
from hermesd.core.state import State
from hermesd.core.trial import Pace, Trial
from hermesd.head.api.nodes import node_view
from hermesd.policy import make_policy
from tests.core.playbook import parked, quantum_ended, reported, started, submitted
from tests.sim.cluster.world import World
from tests.sim.scenario import one_node

PACES = st.floats(0.01, 100.0)
# Which trial goes where next.
VISITS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40)


def devices(count: int, kind: str = "cpu") -> tuple[Device, ...]:
    return tuple(Device(f"n/{place}", "n", kind, 1 << 30) for place in range(count))


def begun(there: Sequence[Device], trials: int = 4) -> State:
    """A study whose trials all wait, and nodes with these devices."""
    state = State()
    state.apply(submitted(trials), 0.0)
    for node in dict.fromkeys(each.node for each in there):
        mine = tuple(each for each in there if each.node == node)
        state.apply(NodeJoined(node, "b1", mine, ()), 0.0)
    return state


def visit(
    state: State, number: int, device: DeviceId, seconds: float, validated: float = 1.0
) -> None:
    """The trial's next quantum, on this device: twenty iterations that take so long, each; ten
    more that take `validated` times as long."""
    trial = state.trials[f"s/{number}"]
    run, step, kept = trial.next_run, trial.step, trial.kept
    name = str(run)
    state.apply(Launch(run, (device,), Quantum(10.0), "", kept.run if kept else None, None), 0.0)
    for entry in (
        started(name, step),
        reported(name, step + 10, [1.0] * 10, busy_seconds=10 * seconds),
        reported(name, step + 20, [1.0] * 10, busy_seconds=10 * seconds),
        reported(name, step + 30, [1.0] * 10, busy_seconds=10 * seconds * validated),
        quantum_ended(name, step=step + 30),
        Suspend(run, Tier.PARK, 60.0, None, ""),
        parked(name, step + 30),
    ):
        state.apply(entry, 0.0)
    state.check()


def in_turn(state: State, there: Sequence[Device], slow: DeviceId, rounds: int) -> None:
    """Every trial on every device in turn, one of which takes twice as long as the others."""
    for turn in range(rounds):
        for number in range(4):
            device = there[(number + turn) % len(there)].id
            visit(state, number, device, (1.0 + number) * (2.0 if device == slow else 1.0))


# What is learned.


def test_a_device_with_no_comparison_is_as_fast_as_its_kind() -> None:
    assert Evidence().correction == 1.0
    state = begun(devices(2))
    visit(state, 0, "n/0", 1.0)
    visit(state, 1, "n/1", 50.0)
    visit(state, 1, "n/1", 90.0)
    assert state.paces == {}, "another trial, or another time, is no comparison of devices"
    assert [state.speeds("s").correction(each.id) for each in devices(3)] == [1.0, 1.0, 1.0]


@given(st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=30))
def test_a_device_is_never_taken_to_differ_more_than_its_comparisons_do(seen: list[float]) -> None:
    evidence = Evidence()
    for log_ratio in seen:
        evidence = evidence.with_one(log_ratio)
    assert evidence.count == len(seen)
    assert min(seen) - 1e-9 <= evidence.log_ratio <= max(seen) + 1e-9
    believed = math.log(evidence.correction)
    assert abs(believed) <= abs(evidence.log_ratio) + 1e-9
    assert believed * evidence.log_ratio >= 0


@given(st.floats(-5.0, 5.0))
def test_one_comparison_says_nothing_and_ten_alike_say_it_all_but(log_ratio: float) -> None:
    evidence = Evidence().with_one(log_ratio)
    assert evidence.correction == 1.0
    for _ in range(19):
        evidence = evidence.with_one(log_ratio)
    assert math.log(evidence.correction) == pytest.approx(log_ratio, rel=0.05)


@given(VISITS, st.lists(PACES, min_size=4, max_size=4), st.randoms(use_true_random=False))
def test_equal_devices_stay_equal_whatever_trials_take(
    visits: list[tuple[int, int]], paces: list[float], chance: random.Random
) -> None:
    """Iterations of one trial that differ by less than `ALIKE` tell of no device."""
    there = devices(4)
    state = begun(there)
    for number, place in visits:
        noise = 1.0 + chance.uniform(-0.4, 0.4) * ALIKE
        visit(state, number, there[place].id, paces[number] * noise)
    assert state.corrections == {}
    speeds = state.speeds("s")
    assert not speeds.unequal
    for trial in state.trials.values():
        assert len({rate(speeds, trial, device) for device in there}) == 1


@settings(max_examples=30)
@given(st.integers(2, 6), st.integers(0, 5), st.lists(PACES, min_size=6, max_size=6))
def test_a_device_throttled_to_half_is_seen_within_ten_quanta_of_each_trial(
    count: int, place: int, paces: list[float]
) -> None:
    there = devices(count)
    slow, state = there[place % count].id, begun(there, trials=count)
    for turn in range(10):
        for number in range(count):
            device = there[(number + turn) % count].id
            visit(state, number, device, paces[number] * (2.0 if device == slow else 1.0))
    speeds = state.speeds("s")
    known = {each.id: speeds.correction(each.id) for each in there}
    assert all(known[slow] < 0.75 * known[other.id] for other in there if other.id != slow), known
    assert min(known.values()) > 0.45, "no more than it is"
    others = [speed for device, speed in known.items() if device != slow]
    assert max(others) < 1.25 * min(others)


def believed(seed: int, noise: float, slower: float) -> list[float]:
    """How many times as fast as `n/1` its twin is held to be, after each of 160 quanta on one of
    them by chance: an iteration takes `slower` times as long on `n/1`, and as noise has it."""
    chance, there = random.Random(seed), devices(2)
    state, seen = begun(there), []
    for _ in range(160):
        place = chance.randrange(2)
        seconds = (slower if place else 1.0) * math.exp(chance.gauss(0.0, noise))
        visit(state, chance.randrange(4), there[place].id, seconds)
        known = state.speeds("s")
        seen.append(known.correction("n/0") / known.correction("n/1"))
    return seen


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_twins_on_a_noisy_machine_are_seldom_taken_for_unequal(noise: float) -> None:
    ratios = [ratio for seed in range(4) for ratio in believed(seed, noise, 1.0)]
    assert sum(ratio != 1.0 for ratio in ratios) < 0.03 * len(ratios)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.2])
def test_a_device_half_as_fast_is_seen_through_the_noise(noise: float) -> None:
    for seed in range(4):
        seen = believed(seed, noise, 2.0)
        assert any(ratio > 1.2 for ratio in seen[:20]), "in five quanta of each trial"
        assert sum(ratio > 1.2 for ratio in seen[40:]) > 0.6 * len(seen[40:]), "and not forgotten"


@given(st.lists(st.floats(1.0, 10.0), max_size=12))
def test_what_slows_single_reports_down_is_not_the_devices(pauses: list[float]) -> None:
    """Some reports are of a validation too; others of the same quantum are not."""
    there = devices(2)
    state = begun(there)
    for turn, pause in enumerate(pauses):
        visit(state, turn % 3, there[turn % 2].id, 1.0, validated=pause)
    assert state.corrections == {}


def test_one_that_is_throttled_no_more_is_as_fast_as_the_others_again() -> None:
    there = devices(2)
    state = begun(there)
    in_turn(state, there, "n/1", 20)
    assert state.speeds("s").correction("n/1") < 0.8
    in_turn(state, there, "none", 20)
    assert state.corrections == {}


def test_a_card_that_took_the_place_of_another_starts_anew() -> None:
    there = devices(2)
    state = begun(there)
    in_turn(state, there, "n/1", 10)
    assert state.corrections.keys() == {"n/0", "n/1"}
    state.apply(NodeJoined("n", "b2", (there[0], Device("n/1", "n", "new", 1 << 30)), ()), 0.0)
    assert state.corrections.keys() == {"n/0"}


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=40),
    st.sampled_from(list(permutations(range(3)))),
)
def test_the_order_of_nodes_tells_nothing(
    visits: list[tuple[int, int]], order: tuple[int, ...]
) -> None:
    """The same visits to the same devices, which join in another order, by other names."""

    def learned(names: Sequence[str], joins: Sequence[int]) -> dict[int, float]:
        state = begun([Device(f"{names[i]}/0", names[i], "cpu", 1 << 30) for i in joins])
        for number, place in visits:
            trial = state.trials[f"s/{number}"]
            if trial.kept is not None:  # what is parked does not leave its node
                state.put(replace(trial, kept=None))
            visit(state, number, f"{names[place]}/0", (1.0, 2.0, 1.3)[place])
        return {i: state.speeds("s").correction(f"{names[i]}/0") for i in range(3)}

    assert learned("abc", range(3)) == learned([("xyz"[i]) for i in order], order)


# Who goes by it.


def test_everybody_goes_by_the_speed_of_the_device() -> None:
    """Half as fast as its kind, the second device is so in every figure there is."""
    there = devices(2)
    state = begun(there)
    visit(state, 0, "n/0", 0.5)
    speeds = Speeds(state.speeds("s").kinds, {"n/1": 0.5})
    mine, other = state.trials["s/0"], state.trials["s/1"]
    assert speeds.factor(there[0]) == pytest.approx(2.0)
    assert speeds.factor(there[1]) == pytest.approx(1.0)
    for trial in (mine, other):
        assert rate(speeds, trial, there[0]) == pytest.approx(2.0)
        assert rate(speeds, trial, there[1]) == pytest.approx(1.0)
        assert performance(speeds, trial, there[1]) == pytest.approx(1.0)
        assert lead(speeds, trial, there[1], there[0]) == pytest.approx(0.5)
        assert lead(speeds, trial, there[0], there[1]) == 0.0
    # Measured on the slow one alone, it is known to be fast on the other.
    slow = {"cpu": (Pace("n/1", 3.0),)}
    told = Trial(other.spec, 0.0, 0.0, step_seconds={"cpu": 3.0}, paces=slow)
    assert rate(speeds, told, there[1]) == pytest.approx(1 / 3)
    assert rate(speeds, told, there[0]) == pytest.approx(2 / 3)


def last_places(placement: Plugin, slow: Mapping[DeviceId, float]) -> tuple[World, list[DeviceId]]:
    """Two long trials in turn, then one alone, on twins one of which is throttled; where each of
    the launches was, once the others are over."""
    pool = one_node(Plugin("round_robin", (("quantum_seconds", 5.0),)), placement, slow)
    while not pool.finished:
        pool.agenda.step()
    assert pool.state is not None
    return pool, [each.devices[0] for _, each in pool.history if isinstance(each, Launch)]


def test_a_throttled_device_loses_trials_to_its_twin() -> None:
    """The last trial continues on the fast twin; by kinds alone it would stay where it was."""
    share, makespan = {}, {}
    for speeds in ("measured", "equal"):
        placement = Plugin("free", (("speeds", speeds),))
        pool, launches = last_places(placement, {"n/1": 2.0})
        assert pool.state is not None
        known = pool.state.corrections
        assert known["n/1"] < 0.75 * known["n/0"]
        busy = {device: slot.busy_seconds for device, slot in pool.state.slots.items()}
        share[speeds] = busy["n/1"] / sum(busy.values())
        assert launches[:2] == ["n/0", "n/1"]
        makespan[speeds] = pool.agenda.now
    assert share["measured"] < 0.75 * share["equal"]
    assert makespan["measured"] < 0.75 * makespan["equal"]


def test_why_names_the_speed_of_a_throttled_device() -> None:
    there = devices(2)
    state = begun(there)
    in_turn(state, there, "n/1", 10)
    trial = state.trials["s/0"]
    kept = trial.kept.run if trial.kept else None
    state.apply(Launch(trial.next_run, ("n/1",), Quantum(10.0), "", kept, None), 0.0)
    told = Scheduler(state, make_policy, make_placement).explain("s/0", 0.0, "ann").summary
    assert "n/1 does" in told
    assert "of what is usual for its kind; n/0, the fastest, does" in told


def test_node_show_is_told_of_every_device_that_was_compared() -> None:
    there = devices(3)
    state = begun(there)
    in_turn(state, there[:2], "n/1", 10)
    shown = node_view(state, state.nodes["n"], {}, 0.0).devices
    known = state.speeds("s")
    assert [each.speed for each in shown] == [known.correction(each.id) for each in there]
    assert shown[1].speed < 0.8 < shown[0].speed
    assert [bool(each.comparisons) for each in shown] == [True, True, False]
