"""Trials of several devices: all at once or none, and nobody waits for long."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermesd.core.decide import gangs
from hermesd.core.decide.gangs import fitting
from hermesd.core.decide.queue import Queues
from hermesd.core.events import Cancelled, DeviceFailed, NodeSilent, Paused, TermsSet, Unpaused
from hermesd.core.model import Device, DeviceId, Plugin, Tier
from hermesd.core.sharing import Terms
from hermesd.core.tables import Tables
from hermesd.core.trial import Trial
from tests.core.gang_cluster import GangCluster
from tests.core.playbook import (
    Playbook,
    completed,
    crashed,
    joined,
    milestone,
    parked,
    play,
    quantum_ended,
    reported,
    started,
    submitted,
    written,
)

TURNS = Plugin("round_robin", (("quantum_seconds", 30.0),))


def gang(trials: int = 1, devices: int = 2, name: str = "g", **changes: Any) -> Any:
    """A study of trials that need several devices each, ahead of others of the same user."""
    return submitted(trials, name, devices=devices, priority=1, policy=TURNS, **changes)


def singles(devices: int, trials: int | None = None) -> Playbook:
    """As many trials of one device each as there are devices, running since 0 for 30 s."""
    count = trials or devices
    book = play(count, devices, policy=TURNS)
    book.tell(*[started(f"s/{n}#1") for n in range(devices)])
    book.heard()
    return book


def test_a_trial_of_several_devices_gets_them_at_once_and_gives_them_back_at_once() -> None:
    book = Playbook().tell(gang(2, 2), joined(4))
    book.expect("launch g/0#1 on n/0, n/1 for 30 s", "launch g/1#1 on n/2, n/3 for 30 s")
    book.tell(started("g/0#1")).tell(completed("g/0#1")).expect()
    assert [book.busy(f"n/{n}") for n in range(4)] == [None, None, "g/1#1", "g/1#1"]


def test_it_never_gets_some_of_its_devices() -> None:
    Playbook().tell(gang(1, 3), joined(2), joined(2, node="m")).expect()


def test_its_devices_are_of_one_node_and_one_kind() -> None:
    book = Playbook().tell(joined(3, kinds=("fast", "slow")), joined(1, node="m", kinds=("fast",)))
    book.tell(gang(1, 2)).expect("launch g/0#1 on n/0, n/2 for 30 s")


def test_its_devices_are_near_each_other_where_there_is_a_choice() -> None:
    """As its node lists them, which is the order of their places in the machine."""
    book = singles(6)
    book.tell(*[completed(f"s/{n}#1") for n in (0, 2, 3, 5)])
    book.tell(gang(1, 2)).expect("launch g/0#1 on n/2, n/3 for 30 s")


def test_its_devices_are_those_that_sit_nearest_to_each_other() -> None:
    """Two switches of two, on each of two sockets, as the node lists them by turns."""
    hello = joined(8)
    seats = [(f"node{n % 2}", f"switch{n % 4}") for n in range(8)]
    devices = [replace(d, seat=seat) for d, seat in zip(hello.devices, seats, strict=True)]
    book = Playbook().tell(submitted(1, policy=TURNS), replace(hello, devices=tuple(devices)))
    book.expect("launch s/0#1 on n/0 for 30 s")
    book.tell(gang(1, 2)).expect("launch g/0#1 on n/1, n/5 for 30 s")
    book.tell(gang(1, 3, "h")).expect("launch h/0#1 on n/4, n/2, n/6 for 30 s")


def test_what_is_missing_is_gathered_and_the_last_quantum_is_the_longest_wait() -> None:
    book = singles(2)
    book.at(20).tell(quantum_ended("s/0#1")).expect("renew s/0#1.1 for 30 s")
    book.at(25).tell(gang(1, 2)).expect()
    book.at(30).tell(quantum_ended("s/1#1")).expect(
        "gather n/0, n/1 for g/0",
        "renew s/1#1.1 for 20 s",  # n/0 is given back at 50
    )
    book.at(50).tell(quantum_ended("s/0#1", 1), quantum_ended("s/1#1", 1)).expect(
        "suspend s/0#1", "suspend s/1#1"
    )
    book.tell(parked("s/0#1")).expect()
    book.tell(parked("s/1#1")).expect("launch g/0#1 on n/0, n/1 for 30 s")


def test_an_idle_device_gives_it_no_turn_on_another() -> None:
    """Only it can use the idle one, and another waits for the one that is missing."""
    roomy = {"memory_bytes": 2 << 30, "policy": TURNS}
    book = Playbook().tell(joined(2, memory=(1 << 30, 4 << 30)), submitted(1, "s", **roomy))
    book.expect("launch s/0#1 on n/1 for 30 s")
    book.tell(started("s/0#1"), submitted(1, "t", **roomy)).expect()
    book.tell(submitted(1, "g", devices=2, policy=TURNS)).expect()
    book.at(30).tell(quantum_ended("s/0#1")).expect("suspend s/0#1 for t/0")
    book.tell(parked("s/0#1")).expect("launch t/0#1 on n/1 for 30 s", "gather n/0, n/1 for g/0")
    book.tell(started("t/0#1")).at(60).tell(quantum_ended("t/0#1")).expect("suspend t/0#1")


def test_who_needs_more_devices_than_a_node_has_goes_first_for_none_of_them() -> None:
    """It may wait for those of another node for days."""
    book = Playbook().tell(joined(2), joined(4, "m"), submitted(2, "b", devices=4, priority=2))
    book.expect("launch b/0#1 on m/0, m/1, m/2, m/3")
    book.tell(started("b/0#1"), submitted(4, "t", policy=TURNS)).heard()
    book.tell(started("t/0#1"), started("t/1#1"), gang(1, 2)).expect()
    book.at(30).tell(quantum_ended("t/0#1")).expect("gather n/0, n/1 for g/0", "suspend t/0#1")


@pytest.mark.parametrize(
    ("changes", "most", "expected"),
    [
        ({"device_kind": "gpu"}, None, set()),
        ({"required_paths": ("/data",)}, None, set()),
        ({}, 0, {"n/0"}),  # which is open
    ],
)
def test_no_trial_of_a_study_that_may_not_have_a_device_is_asked_who_goes_first(
    monkeypatch: pytest.MonkeyPatch, changes: Any, most: int | None, expected: set[DeviceId]
) -> None:
    """There may be very many, and they would be asked about each of its devices."""
    book = singles(2)
    book.tell(TermsSet(1e3, (("bob", Terms(1.0, most)),)))
    book.tell(submitted(3, "c", owner="bob", policy=TURNS, **changes), completed("s/0#1")).heard()
    asked: set[DeviceId] = set()
    fits = Queues.fits

    def noted(queues: Queues, trial: Trial, device: DeviceId) -> bool:
        if trial.spec.study == "c":
            asked.add(device)
        return fits(queues, trial, device)

    monkeypatch.setattr(Queues, "fits", noted)
    book.tell(gang(1, 2)).expect("gather n/0, n/1 for g/0")
    assert asked == expected


def test_why_says_what_is_kept_for_it_and_when_no_node_is_wide_enough() -> None:
    book = singles(2)
    book.at(30).tell(gang(1, 2), quantum_ended("s/0#1")).heard()
    said = book.scheduler.explain("g/0", book.now).summary
    assert "n/0, n/1 are kept for it until all of them are free" in said
    book = Playbook().tell(gang(1, 3), joined(2), joined(1, node="m")).expect()
    said = book.scheduler.explain("g/0", book.now).summary
    assert "each trial needs 3 devices of one kind on one node, and no node has more than 2" in said


def test_a_milestone_does_not_keep_a_device_that_is_gathered() -> None:
    best = Plugin("best_first")
    book = play(2, 2, policy=best)
    book.tell(started("s/0#1"), started("s/1#1"))
    book.tell(gang(1, 2), reported("s/0#1", 10, [9.0] * 10), reported("s/1#1", 10, [9.0] * 10))
    book.at(1).tell(quantum_ended("s/0#1", 0, 10)).heard()
    assert book.state.gathering == {"g/0": ("n/0", "n/1")}
    book.tell(milestone("s/1#1", 25.0, 5.0, 12))
    assert not [word for word in book.heard() if word.startswith("extend s/1")]


def test_a_free_device_is_lent_to_whose_quantum_ends_in_time() -> None:
    book = Playbook().tell(submitted(1, "long", policy=TURNS), joined(2))
    book.tell(started("long/0#1")).heard()
    quick = Plugin("round_robin", (("quantum_seconds", 10.0),))
    book.at(5).tell(gang(1, 2)).expect("gather n/0, n/1 for g/0")
    book.tell(submitted(1, "quick", policy=quick), submitted(1, "slow", policy=TURNS)).expect(
        "launch quick/0#1 on n/1 for 10 s"
    )
    book.tell(started("quick/0#1")).at(15).tell(quantum_ended("quick/0#1")).expect(
        "renew quick/0#1.1 for 10 s"
    )
    book.at(25).tell(quantum_ended("quick/0#1", 1)).expect("renew quick/0#1.2 for 5 s")


def test_two_that_gather_never_wait_for_each_other() -> None:
    book = singles(3)
    book.at(30).tell(gang(2, 2), quantum_ended("s/0#1"))
    book.heard()
    assert list(book.state.gathering) == ["g/0"]
    book.tell(quantum_ended("s/1#1"), quantum_ended("s/2#1")).heard()
    assert list(book.state.gathering) == ["g/0"]


def test_whoever_needs_them_no_more_has_no_devices_kept() -> None:
    for gone in (Paused(("g/0",), "r"), Cancelled(("g/0",), "r")):
        book = singles(2)
        book.at(30).tell(gang(1, 2), quantum_ended("s/0#1")).heard()
        assert book.state.gathering
        book.tell(gone).expect("gather nothing for g/0")


def test_a_device_that_fails_or_a_node_that_falls_silent_is_not_waited_for() -> None:
    for lost in (DeviceFailed("n/1", "Xid"), NodeSilent("n", "cut")):
        book = singles(2)
        book.at(30).tell(gang(1, 2), quantum_ended("s/0#1")).heard()
        book.tell(lost)
        assert "gather nothing for g/0" in book.heard()


def test_the_device_of_what_failed_alone_is_blamed() -> None:
    book = Playbook().tell(gang(1, 2), joined(4)).tell(started("g/0#1"))
    book.heard()
    book.tell(replace(crashed("g/0#1", 3, "E"), rank=1))
    assert [failure.device for failure in book.trial("g/0").failures] == ["n/1"]
    book.expect("launch g/0#2 on n/0, n/2 for 30 s")


def test_users_get_no_more_devices_than_their_quota() -> None:
    book = Playbook().tell(TermsSet(1e3, (("ann", Terms(1.0, 3)),)), gang(2, 2), joined(4))
    book.expect("launch g/0#1 on n/0, n/1 for 30 s")


def test_within_a_quota_its_users_own_trials_make_room() -> None:
    book = singles(2)
    book.tell(joined(2, node="m"))
    book.tell(TermsSet(1e3, (("ann", Terms(1.0, 2)),)))
    book.at(30).tell(gang(1, 2), quantum_ended("s/0#1"), quantum_ended("s/1#1")).expect(
        "gather n/0, n/1 for g/0", "suspend s/0#1", "suspend s/1#1"
    )


def equals(trials: int) -> Playbook:
    """Trials of two devices, which go before no others."""
    return Playbook().tell(submitted(trials, "g", devices=2, policy=TURNS))


def test_no_devices_are_gathered_before_one_of_them_is_open_to_who_deserves_it_more() -> None:
    """A device elsewhere that is free, and of use to nobody, had gangs take turns for ever."""
    small = 1 << 29
    book = equals(2).tell(joined(2), joined(1, "m", memory=[small]))
    book.expect("launch g/0#1 on n/0, n/1 for 30 s").tell(started("g/0#1"))
    book.tell(submitted(1, "t", memory_bytes=2 * small, policy=TURNS)).expect()
    book.at(30).tell(quantum_ended("g/0#1")).expect("suspend g/0#1 for t/0")
    book.tell(parked("g/0#1")).expect("launch t/0#1 on n/0 for 30 s", "gather n/0, n/1 for g/1")


def test_whoever_fits_only_a_later_one_of_its_devices_gets_that() -> None:
    book = equals(1).tell(joined(2, memory=[1 << 30, 1 << 31]))
    book.tell(started("g/0#1"), submitted(1, "t", memory_bytes=1 << 31, policy=TURNS)).heard()
    book.at(30).tell(quantum_ended("g/0#1")).expect("gather n/1 for t/0", "suspend g/0#1")
    book.tell(parked("g/0#1")).expect("launch t/0#1 on n/1 for 30 s", "gather n/0, n/1 for g/0")


def test_one_that_is_parked_goes_on_where_it_is() -> None:
    book = Playbook().tell(gang(1, 2), joined(2)).tell(started("g/0#1"))
    book.tell(Paused(("g/0",), "r")).tell(parked("g/0#1"), joined(2, node="m")).heard()
    book.tell(Unpaused(("g/0",), "u")).expect("launch g/0#2 on n/0, n/1 for 30 s from g/0#1")


# Many of them, in virtual time.

SWITCH_SECONDS = 0.2


@pytest.mark.parametrize("nodes", [(8,), (4, 4)])
@pytest.mark.parametrize("quanta", [{1: 30, 2: 30, 4: 30}, {1: 20, 2: 30, 4: 45}])
def test_a_mix_of_trials_of_1_2_and_4_of_8_devices_leaves_few_of_them_idle(
    nodes: tuple[int, ...], quanta: dict[int, float]
) -> None:
    chance = random.Random(4)
    counts = {1: 16, 2: 6, 4: 3}
    work = {width: [chance.uniform(60, 300) for _ in range(n)] for width, n in counts.items()}
    outcome = GangCluster(nodes, work, quanta, SWITCH_SECONDS).play()
    assert outcome.utilization >= 0.95


@settings(max_examples=20, deadline=None)
@given(
    nodes=st.sampled_from([(8,), (4, 4)]),
    work=st.fixed_dictionaries(
        {1: st.lists(st.floats(1, 200), max_size=12)}
        | {width: st.lists(st.floats(1, 200), min_size=1, max_size=4) for width in (2, 4)}
    ),
    quanta=st.fixed_dictionaries({width: st.floats(5, 60) for width in (1, 2, 4)}),
)
def test_nobody_waits_for_longer_than_two_quanta_and_its_turn(
    nodes: tuple[int, ...], work: dict[int, list[float]], quanta: dict[int, float]
) -> None:
    """Its turn has come when the others of its study have had theirs."""
    outcome = GangCluster(nodes, work, quanta, SWITCH_SECONDS).play()
    longest = max(quanta.values()) + 2 * SWITCH_SECONDS
    assert max(outcome.gathering_seconds, default=0.0) <= longest + SWITCH_SECONDS
    for width, trials in work.items():
        turn = (len(trials) - 1) * (quanta[width] + 2 * SWITCH_SECONDS + longest)
        for number in range(len(trials)):
            assert max(outcome.waits[f"w{width}/{number}"]) <= turn + 2 * longest


@settings(max_examples=20, deadline=None)
@given(
    nodes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    work=st.fixed_dictionaries({n: st.lists(st.floats(1, 200), max_size=8) for n in (1, 2, 4)}),
    quanta=st.fixed_dictionaries({width: st.floats(5, 60) for width in (1, 2, 4)}),
)
def test_a_node_of_which_no_device_is_open_changes_no_choice(
    nodes: list[int], work: dict[int, list[float]], quanta: dict[int, float]
) -> None:
    """So only the others are looked at, which are few where many trials wait."""
    nodes = [8, *nodes]
    with pytest.MonkeyPatch.context() as patch:

        def of_all(state: Tables, queues: Queues, trial: Trial, *_: object) -> Iterator[Device]:
            return fitting(state, queues, trial)

        patch.setattr(gangs, "fitting", of_all)
        expected = GangCluster(nodes, work, quanta, SWITCH_SECONDS).play()
    assert GangCluster(nodes, work, quanta, SWITCH_SECONDS).play() == expected


def test_devices_are_not_waited_for_while_as_many_others_are_free() -> None:
    """Those that it gathers may be in use for as long as other trials train."""
    book = Playbook().tell(joined(2), joined(2, "m"), submitted(4, "t"))
    book.tell(*[started(f"t/{number}#1") for number in range(4)])
    book.tell(gang()).tell(completed("t/2#1")).heard()
    assert book.state.gathering == {"g/0": ("n/0", "n/1")}
    book.tell(completed("t/0#1"), completed("t/1#1")).expect("launch g/0#1 on m/0, m/1 for 30 s")


def test_users_have_no_more_devices_than_their_quota_by_changing_what_they_wait_for() -> None:
    book = Playbook().tell(TermsSet(1e3, (("ann", Terms(1.0, 2)),)))
    book.tell(joined(2), joined(2, "m"), submitted(4, "t", owner="bob"))
    book.tell(*[started(f"t/{number}#1") for number in range(4)])
    book.tell(gang()).tell(completed("t/2#1")).heard()
    book.tell(submitted(1, "u"), completed("t/0#1"), completed("t/1#1"))
    book.expect("launch g/0#1 on m/0, m/1 for 30 s")


def test_a_parked_trial_that_is_written_down_keeps_how_many_devices_it_had() -> None:
    book = Playbook().tell(joined(2), gang())
    book.tell(parked("g/0#1"), written("g/0#1", 0))
    kept = book.state.trials["g/0"].kept
    assert kept is not None
    assert (kept.tier, kept.width) == (Tier.CHECKPOINT, 2)


def test_what_is_kept_for_it_counts_against_no_quota_that_it_waits_for() -> None:
    book = Playbook().tell(TermsSet(1e3, (("ann", Terms(1.0, 2)),)))
    book.tell(submitted(2, "t", owner="bob", policy=TURNS), joined(2))
    book.tell(started("t/0#1"), started("t/1#1"), gang(1, 2, owner="ann"))
    book.at(30).tell(quantum_ended("t/0#1"))
    assert book.state.gathering == {"g/0": ("n/0", "n/1")}
    why = book.scheduler.explain("g/0", 30).summary
    assert "; n/0, n/1 are kept for it until all of them are free" in why
    assert "quota" not in why
