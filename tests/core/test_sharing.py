"""Users share devices: by weight in the long run, nobody always last, within their quotas."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermesd.core.commands import Bind, Command, Launch, Renew, Suspend
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    DeviceFailed,
    Event,
    QuantumEnded,
    RunCompleted,
    RunStarted,
    RunSuspended,
    Submitted,
    TermsSet,
)
from hermesd.core.model import Phase, Plugin, RunId, Tier
from hermesd.core.placement import make_placement
from hermesd.core.policy import Policy
from hermesd.core.sharing import HALF_LIFE_SECONDS, Account, Terms, settled
from hermesd.core.state import State
from hermesd.policy import make_policy
from tests.core.playbook import LEASE, Playbook, joined, run, started, submitted, tables

QUANTUM_SECONDS = 10.0
TURNS = Plugin("round_robin", (("quantum_seconds", QUANTUM_SECONDS),))


class World:
    """Devices whose runs do at once as they are told, in virtual time, and who was served when."""

    def __init__(self) -> None:
        self.state = State()
        self.scheduler = Scheduler(self.state, make_policy, make_placement, LEASE)
        self.now = 0.0
        self.entries: list[tuple[Event | Command, float]] = []
        self.ends: list[tuple[float, int, RunId, int]] = []
        self.count = itertools.count()
        self.served: dict[str, list[float]] = defaultdict(list)
        self.turns: list[str] = []

    def tell(self, *events: Event) -> None:
        """A batch, the decision, and what nodes answer to it."""
        waiting = list(events)
        while waiting:
            for event in waiting:
                self.scheduler.observe(event, self.now)
                self.entries.append((event, self.now))
            commands = self.scheduler.decide(self.now)
            self.entries += [(command, self.now) for command in commands]
            waiting = [answer for command in commands for answer in self.answers(command)]
            self.within_quotas()

    def answers(self, command: Command) -> Sequence[Event]:
        match command:
            case Launch(run_id):
                self.turns.append(run_id.trial)
                self.served[self.owner(run_id)].append(self.now)
                self.until_the_end(run_id, 0)
                return [RunStarted(run_id, 0, 0.0)]
            case Renew(run_id, grant):
                self.served[self.owner(run_id)].append(self.now)
                self.until_the_end(run_id, grant)
            case Suspend(run_id):
                return [RunSuspended(run_id, Tier.PARK, 0, None, 0.0)]
            case Bind():
                pass
            case _:
                raise AssertionError(command)
        return []

    def until_the_end(self, run_id: RunId, grant: int) -> None:
        entry = (self.now + QUANTUM_SECONDS, next(self.count), run_id, grant)
        heapq.heappush(self.ends, entry)

    def go_on(self, until: float) -> None:
        """Let quanta end, one by one."""
        while self.ends and self.ends[0][0] <= until:
            self.now, _, run_id, grant = heapq.heappop(self.ends)
            self.tell(QuantumEnded(run_id, grant, 0))
        self.now = until

    def owner(self, run_id: RunId) -> str:
        return self.state.owner_of(self.state.trials[run_id.trial])

    def within_quotas(self) -> None:
        for user, terms in self.state.terms.items():
            if terms.max_devices is not None:
                held = [s.run for s in self.state.slots.values() if s.run is not None]
                assert sum(self.owner(each) == user for each in held) <= terms.max_devices

    def uses(self) -> dict[str, float]:
        return {user: self.state.used_by(user, self.now) for user in self.state.accounts}

    def replayed(self) -> State:
        fresh = State()
        for entry, at in self.entries:
            fresh.apply(entry, at)
        return fresh


def study_of(user: str, trials: int, name: str = "", **changes: Any) -> Submitted:
    return submitted(trials, name or f"of-{user}", owner=user, policy=TURNS, **changes)


def terms(half_life: float = 200.0, **users: Terms) -> TermsSet:
    return TermsSet(half_life, tuple(users.items()))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=4),
    devices=st.integers(1, 5),
    latecomer=st.booleans(),
)
def test_shares_converge_to_weights_and_nobody_starves(
    weights: list[float], devices: int, latecomer: bool
) -> None:
    half_life = 200.0
    users = {f"u{number}": Terms(weight) for number, weight in enumerate(weights)}
    world = World()
    world.tell(terms(half_life, **users), joined(devices))
    arrivals = dict.fromkeys(users, 0.0)
    if latecomer:
        arrivals["u0"] = 3 * half_life
    for user in sorted(users, key=lambda u: arrivals[u]):
        world.go_on(arrivals[user])
        world.tell(study_of(user, devices + 2))
    begin = 6 * half_life
    world.go_on(begin)
    for user, each in users.items():
        got, all_of_it = world.uses()[user], math.fsum(world.uses().values())
        share = each.weight / sum(weights)
        assert got / all_of_it == pytest.approx(share, abs=0.05), (user, world.uses())
    for user, each in users.items():
        bound = half_life * math.log2(sum(weights) / each.weight) + (devices + 2) * QUANTUM_SECONDS
        times = [arrivals[user], *world.served[user], begin]
        assert max(after - before for before, after in itertools.pairwise(times)) <= bound
    world.state.check()
    assert tables(world.replayed()) == tables(world.state)


@settings(max_examples=25, deadline=None)
@given(
    data=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), min_size=1, max_size=6),
    devices=st.integers(1, 6),
    quota=st.integers(0, 4),
)
def test_nobody_ever_has_more_devices_than_their_quota(
    data: list[tuple[str, int]], devices: int, quota: int
) -> None:
    world = World()
    world.tell(terms(a=Terms(max_devices=quota), b=Terms(2.0, max_devices=1)), joined(devices))
    for number, (user, trials) in enumerate(data):
        world.tell(study_of(user, trials, f"s{number}"))
        world.go_on(world.now + 25.0)
    for user, limit in (("a", quota), ("b", 1), ("c", devices)):
        wanted = sum(trials for owner, trials in data if owner == user)
        others = sum(
            min(sum(t for o, t in data if o == other), most)
            for other, most in (("a", quota), ("b", 1), ("c", devices))
            if other != user
        )
        # What nobody else may have is not withheld, either.
        assert world.state.devices_of(user) >= min(wanted, limit, max(0, devices - others))
    assert tables(world.replayed()) == tables(world.state)


def test_a_user_alone_is_decided_for_as_if_there_were_no_shares() -> None:
    def told(first: Sequence[Event]) -> list[Command]:
        world = World()
        for event in first:
            world.tell(event)
        world.tell(joined(3))
        world.tell(study_of("ann", 4, "s"), study_of("ann", 3, "t"))
        world.go_on(95.0)
        return [entry for entry, _ in world.entries if isinstance(entry, Command)]

    plain = told([])
    assert len(plain) > 50
    assert told([terms(3.0, ann=Terms(0.001), bob=Terms(7.0, 1, 1))]) == plain


def test_the_user_who_has_used_least_for_their_weight_goes_first() -> None:
    book = Playbook().tell(terms(1000.0, ann=Terms(1.0), bob=Terms(3.0)), joined(1))
    book.tell(study_of("ann", 2)).expect("launch of-ann/0#1 on n/0 for 10 s")
    book.tell(started("of-ann/0#1")).at(10).tell(study_of("bob", 2))
    book.tell(QuantumEnded(run("of-ann/0#1"), 0, 0))
    assert book.heard() == ["suspend of-ann/0#1 for of-bob/0"]
    parked = RunSuspended(run("of-ann/0#1"), Tier.PARK, 0, None, 0.0)
    book.tell(parked).expect("launch of-bob/0#1 on n/0 for 10 s")
    # Three times the weight: as much use for bob is still less than ann's.
    book.tell(started("of-bob/0#1")).at(35).tell(QuantumEnded(run("of-bob/0#1"), 0, 0))
    assert "of-ann" not in " ".join(book.heard())


def test_who_gives_way_to_another_user_is_not_told_to_whom() -> None:
    world = World()
    world.tell(joined(1), study_of("ann", 1))
    world.go_on(5.0)
    world.tell(study_of("bob", 1))
    world.go_on(10.0)
    (asked,) = [entry for entry, _ in world.entries if isinstance(entry, Suspend)]
    assert (asked.successor, asked.reason) == ("of-bob/0", "a trial of another user goes first")


def test_equal_users_have_equally_many_devices_from_the_first_decision_on() -> None:
    world = World()
    world.tell(study_of("ann", 9), study_of("bob", 9), study_of("cid", 9))
    world.tell(joined(6))
    assert [world.state.devices_of(user) for user in ("ann", "bob", "cid")] == [2, 2, 2]


def test_the_studies_of_one_user_go_by_priority_then_by_turns() -> None:
    book = Playbook().tell(
        study_of("ann", 2, "low"),
        study_of("ann", 2, "high", priority=7),
        study_of("ann", 2, "same", priority=7),
    )
    book.tell(joined(5)).expect(
        "launch high/0#1 on n/0 for 10 s",
        "launch same/0#1 on n/1 for 10 s",
        "launch high/1#1 on n/2 for 10 s",
        "launch same/1#1 on n/3 for 10 s",
        "launch low/0#1 on n/4 for 10 s",
    )


def test_the_studies_of_one_user_have_a_single_device_in_turn() -> None:
    world = World()
    world.tell(joined(1), *(study_of("ann", 3, name) for name in ("one", "two", "three")))
    for _ in range(8):
        world.go_on(world.now + QUANTUM_SECONDS)
    assert [trial.partition("/")[0] for trial in world.turns] == ["one", "two", "three"] * 3


def test_what_a_study_has_elsewhere_is_not_held_against_a_trial_with_one_device_alone() -> None:
    """Its home is there, and its study has the two other devices all the time."""
    turns = [Plugin("round_robin", (("quantum_seconds", 30.0),)), Plugin("homes")]
    book = Playbook().tell(joined(3), submitted(1, "b", policy=turns[0]))
    book.tell(submitted(3, "a", policy=turns[0], placement=turns[1]), started("b/0#1")).heard()
    homes = {trial.home for trial in book.state.trials.values() if trial.home}
    assert homes == {"n/0", "n/1", "n/2"}
    running = [t.run.id for t in book.state.trials.values() if t.run and t.spec.study == "a"]
    book.tell(*(RunStarted(each, 0, 0.1) for each in running))
    book.at(29).tell(*(QuantumEnded(each, 0, 1) for each in running)).heard()
    book.at(30).tell(QuantumEnded(run("b/0#1"), 0, 1))
    (waiting,) = (t.id for t in book.state.trials.values() if t.home == "n/0")
    book.expect(f"suspend b/0#1 for {waiting}")


def test_a_priority_takes_nothing_from_another_user() -> None:
    world = World()
    world.tell(study_of("ann", 4, priority=100), study_of("bob", 4), joined(4))
    assert [world.state.devices_of(user) for user in ("ann", "bob")] == [2, 2]


def test_why_says_whose_quota_a_trial_waits_for() -> None:
    world = World()
    world.tell(terms(ann=Terms(max_devices=1)), joined(2), study_of("ann", 2))
    why = world.scheduler.explain("of-ann/1", world.now, "ann").summary
    assert "it waits: your quota of 1 device is in use" in why
    told = world.scheduler.explain("of-ann/1", world.now, "root").summary
    assert "it waits: ann's quota of 1 device is in use" in told
    assert "quota" not in world.scheduler.explain("of-ann/0", world.now, "ann").summary


def test_why_says_how_many_users_come_before() -> None:
    world = World()
    world.tell(joined(1), study_of("ann", 2))
    assert "take turns" not in world.scheduler.explain("of-ann/1", 0.0, "ann").summary
    world.go_on(5.0)
    world.tell(study_of("bob", 1))
    why = world.scheduler.explain("of-ann/1", world.now, "ann").summary
    assert why.endswith("; users take turns, and 1 of 2 have used less for their weight than you")
    why = world.scheduler.explain("of-bob/0", world.now, "ann").summary
    assert "take turns" not in why, "it is bob's turn"


def test_within_a_quota_trials_still_take_turns() -> None:
    world = World()
    world.tell(terms(ann=Terms(max_devices=1)), joined(2), study_of("ann", 3))
    world.go_on(65.0)
    assert {trial.attempt for trial in world.state.trials.values()} == {2, 3}


def test_a_quota_that_is_lowered_is_met_as_quanta_end() -> None:
    book = Playbook().tell(joined(3), study_of("ann", 3))
    book.tell(*(started(f"of-ann/{n}#1") for n in range(3)))
    book.heard()
    book.tell(terms(ann=Terms(max_devices=1))).expect()
    book.at(10).tell(QuantumEnded(run("of-ann/0#1"), 0, 0), QuantumEnded(run("of-ann/1#1"), 0, 0))
    assert sorted(book.heard()) == ["suspend of-ann/0#1", "suspend of-ann/1#1"]
    parked = [RunSuspended(run(f"of-ann/{n}#1"), Tier.PARK, 0, None, 0.0) for n in (0, 1)]
    book.tell(*parked).expect()
    assert book.state.devices_of("ann") == 1


def test_use_is_decayed_in_closed_form() -> None:
    account = Account().holding(2, 100.0, 50.0).holding(0, 150.0, 50.0)
    # Two devices for one half-life: half of what they come to in the long run.
    assert account.decayed_seconds == pytest.approx(settled(2, 50.0) / 2)
    assert account.used(200.0, 50.0) == pytest.approx(account.decayed_seconds / 2)
    # Decayed seconds never exceed the seconds that there were.
    assert 50.0 < account.decayed_seconds < 100.0
    # Looked at in between, nothing changes.
    stepwise = Account().holding(2, 100.0, 50.0)
    for now in (110.0, 127.5, 149.0):
        stepwise = stepwise.holding(2, now, 50.0)
    assert stepwise.holding(0, 150.0, 50.0).decayed_seconds == pytest.approx(
        account.decayed_seconds
    )


def test_a_new_half_life_is_for_what_is_used_from_then_on() -> None:
    book = Playbook().tell(joined(1), study_of("ann", 1)).tell(started("of-ann/0#1"))
    book.at(HALF_LIFE_SECONDS).tell(RunCompleted(run("of-ann/0#1"), 5))
    before = book.state.used_by("ann", book.now)
    assert before == pytest.approx(settled(1, HALF_LIFE_SECONDS) / 2)
    book.tell(terms(60.0))
    assert book.state.used_by("ann", book.now) == before
    book.at(book.now + 60.0)
    assert book.state.used_by("ann", book.now) == pytest.approx(before / 2)


def test_a_device_that_fails_under_a_run_is_counted_until_the_run_is_over() -> None:
    world = World()
    world.tell(joined(1), study_of("ann", 1))
    world.tell(DeviceFailed("n/0", "fell off"))
    (holder,) = [trial.run for trial in world.state.trials.values() if trial.run]
    assert world.state.devices_of("ann") == 1
    world.tell(RunCompleted(holder.id, 1))
    assert world.state.devices_of("ann") == 0
    assert world.state.trials["of-ann/0"].phase is Phase.COMPLETED


def test_ten_thousand_trials_of_many_users_cost_no_more_than_of_one() -> None:
    asked = 0

    def counting(plugin: Plugin) -> Policy:
        policy: Any = make_policy(plugin)

        class Counting(type(policy)):  # type: ignore[misc]
            def score(self, trial: Any) -> Any:
                nonlocal asked
                asked += 1
                return super().score(trial)

        return Counting()

    def decided(users: int) -> int:
        nonlocal asked
        state = State()
        scheduler = Scheduler(state, counting, make_placement, LEASE)
        for number in range(users):
            state.apply(submitted(10_000 // users, f"s{number}", owner=f"u{number}"), 0.0)
        scheduler.observe(joined(64), 0.0)
        assert len(scheduler.decide(0.0)) == 64
        asked = 0
        scheduler.observe(RunCompleted(_first(state), 1), 1.0)
        assert len(scheduler.decide(1.0)) == 1
        return asked

    def _first(state: State) -> RunId:
        return next(trial.run.id for trial in state.trials.values() if trial.run)

    assert decided(20) <= decided(1) + 64
