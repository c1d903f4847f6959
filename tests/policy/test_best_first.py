"""Best first: probes, ranking and the size of quanta, against the rule's own numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hermesd.core.decide.queue import LEVELS_EACH, StudyQueue
from hermesd.core.model import Quantum
from hermesd.core.placement import Free
from hermesd.core.policy import Facts, Field
from hermesd.core.trial import Trial, Use
from hermesd.policy.best_first import REACHED, BestFirst, scales_differ
from tests.core.playbook import play
from tests.policy.trials import costing, finished, on_device, trained, trial

POLICY = BestFirst()


def test_a_first_quantum_is_at_least_half_a_second() -> None:
    assert POLICY.quantum(trial(), Facts()) == Quantum(0.5)


def test_a_first_quantum_is_twice_the_typical_switch() -> None:
    assert POLICY.quantum(trial(), Facts(0.4, 0.6)) == Quantum(2.0)


def test_a_probe_is_a_share_of_the_planned_length_in_steps() -> None:
    # 2.5 % of the steps, however long those that are typical take
    for step_seconds in (0.1, 1.0):
        facts = Facts(0.4, 0.6, step_seconds)
        assert POLICY.quantum(trial(planned_steps=5000), facts) == Quantum(until_step=125)


def test_a_probe_of_unknown_length_goes_by_the_shortest_one_known() -> None:
    facts = Facts(step_seconds=0.1, planned_steps=1000)
    assert POLICY.quantum(trial(), facts) == Quantum(until_step=25)
    assert POLICY.quantum(trial(), Facts(step_seconds=0.1)) == Quantum(until_step=20)


def test_an_expensive_switch_makes_a_probe_longer_up_to_three_percent() -> None:
    # c = 1.35 s: 2 c are 27 steps of 0.1 s; c = 10 s would be 200, and 3 % are 30
    each = trial(planned_steps=1000)
    assert POLICY.quantum(each, Facts(0.5, 0.85, 0.1)) == Quantum(until_step=27)
    assert POLICY.quantum(each, Facts(5.0, 5.0, 0.1)) == Quantum(until_step=30)


def test_what_ends_within_four_switches_is_not_suspended_before() -> None:
    # 100 steps of 1 s
    each = trial(planned_steps=100)
    assert POLICY.quantum(each, Facts(10.0, 15.0, 1.0)) == Quantum(until_step=100)
    assert POLICY.quantum(each, Facts(10.0, 14.0, 1.0)) == Quantum(until_step=3)
    # 120 of 1,000 steps of 0.1 s are left
    far = trained(0, [1.0] * 880, planned_steps=1000, step_seconds={"cpu": 0.1})
    assert POLICY.quantum(far, Facts(1.0, 2.0)) == Quantum(until_step=1000)


def test_a_short_probe_is_half_a_second_at_the_typical_speed() -> None:
    # 25 steps of 1 ms
    each = trial(planned_steps=1000)
    assert POLICY.quantum(each, Facts(step_seconds=0.001)) == Quantum(0.5)


def test_own_measurements_beat_the_typical_ones() -> None:
    use, speed = Use(busy_seconds=5.0), {"cpu": 0.1}
    each = trained(0, [1.0] * 50, costs=costing(1.0, 2.0), use=use, step_seconds=speed)
    # 20 c = 60 s, 0.3 x 5 s served, first = max(2 c = 6 s, 20 x 0.1 s)
    assert POLICY.quantum(each, Facts(9.0, 9.0, 9.0)).seconds == pytest.approx(60.0)


def test_later_quanta_grow_with_the_service_received() -> None:
    each = trained(0, [1.0] * 50, served_seconds=100.0, costs=costing(0.1, 0.1))
    assert POLICY.quantum(each, Facts()).seconds == pytest.approx(30.0)
    staying = trained(0, [1.0] * 400, costs=costing(0.1, 0.1), use=Use(busy_seconds=200.0))
    assert POLICY.quantum(staying, Facts()).seconds == pytest.approx(60.0)


def test_a_later_quantum_is_never_shorter_than_the_first() -> None:
    use, speed = Use(busy_seconds=20.0), {"cpu": 0.1}
    each = trained(0, [1.0] * 250, planned_steps=10_000, use=use, step_seconds=speed)
    # first = 250 steps x 0.1 s = 25 s; 0.3 x 20 s = 6 s
    assert POLICY.quantum(each, Facts()).seconds == pytest.approx(25.0)


def test_a_probe_cut_short_is_finished_before_it_counts() -> None:
    # 2.5 % of 1,000 are 25 steps; 5 are done
    begun = trained(0, [1.0] * 5, planned_steps=1000, step_seconds={"cpu": 0.1})
    done = trained(1, [1.0] * 25, planned_steps=1000)
    assert POLICY.score(begun) < POLICY.score(trial(2)) < POLICY.score(done)
    assert POLICY.quantum(begun, Facts()) == Quantum(until_step=25)
    assert POLICY.words(begun) == "its probe goes on"
    assert POLICY.words(trial(2)) == "not probed yet"


def test_unprobed_first_then_the_lowest_loss() -> None:
    good, bad = trained(0, [1.0] * 30), trained(1, [2.0] * 30)
    silent, broken = trial(2, quanta=1, not_finite=True), trained(3, [float("nan")] * 30)
    scores = [POLICY.score(each) for each in (trial(4), good, bad, silent)]
    assert scores == sorted(scores)
    assert scores[1] < scores[2] < scores[3]
    assert POLICY.score(silent) == POLICY.score(broken)


def test_a_probe_is_not_over_before_the_first_loss() -> None:
    waited_for = trial(2, quanta=1, step=100, planned_steps=1000, use=Use(busy_seconds=20.0))
    assert POLICY.score(waited_for) == POLICY.score(trial(3))
    assert POLICY.score(waited_for) < POLICY.score(trained(1, [1.0] * 30))
    assert POLICY.words(waited_for) == "no loss seen yet"
    # It goes on for longer and longer: 0.3 x 20 s served.
    assert POLICY.quantum(waited_for, Facts()).seconds == pytest.approx(0.5)
    facts = Facts(step_seconds=0.2)
    assert POLICY.quantum(waited_for, facts).seconds == pytest.approx(6.0)


def test_the_loss_is_a_mean_over_enough_losses() -> None:
    # the last half of 20, the last 20 of 100, the last tenth of 400
    for values, expected in (
        ([9.0] * 10 + [2.0] * 10, 2.0),
        ([9.0] * 11 + [2.0] * 9, 2.7),
        ([9.0] * 80 + [2.0] * 20, 2.0),
        ([9.0] * 350 + [2.0] * 50, 2.0),
    ):
        assert POLICY.score(trained(0, values)) == (1.0, pytest.approx(expected))


def test_a_good_trials_quanta_are_a_tenth_of_its_length_at_most() -> None:
    known = {"planned_steps": 1000, "served_seconds": 100.0, "step_seconds": {"cpu": 0.1}}
    each = trained(0, [1.0] * 50, **known)
    assert POLICY.quantum(each, Facts()).seconds == pytest.approx(10.0)
    assert BestFirst(good=0.0).quantum(each, Facts()).seconds == pytest.approx(30.0)
    # but long against a switch: 20 c
    costly = trained(0, [1.0] * 50, costs=costing(0.5, 0.5), **known)
    assert POLICY.quantum(costly, Facts()).seconds == pytest.approx(20.0)


def test_with_a_target_those_that_reached_it_go_behind_the_others() -> None:
    policy = BestFirst(target=1.0)
    there, near, far = (trained(n, [loss] * 30) for n, loss in enumerate((1.0, 1.1, 9.0)))
    scores = [policy.score(each) for each in (trial(3), near, far, there)]
    assert scores == sorted(scores)
    assert policy.score(there) == (REACHED, 1.0)
    assert policy.words(there) == "loss 1, target reached"
    longer = replace(policy, probe_share=0.08)
    begun = [trained(n, [loss] * 25, planned_steps=1000) for n, loss in enumerate((9.0, 1.0))]
    assert sorted(begun, key=longer.score) == begun, "its probe isn't over"


def test_without_a_target_nothing_is_reached() -> None:
    assert POLICY.score(trained(0, [-1e9] * 30)) == (1.0, -1e9)


def test_with_a_target_later_quanta_are_a_tenth_of_the_length_at_most() -> None:
    policy = BestFirst(target=1.0)
    each = trained(0, [5.0] * 50, planned_steps=200, served_seconds=100.0)
    assert policy.quantum(each, Facts()) == Quantum(30.0, until_step=70)
    assert policy.quantum(trial(planned_steps=200), Facts()) == Quantum(0.5)
    assert policy.quantum(trained(0, [5.0] * 50), Facts()).until_step is None


def test_a_relative_scale_ranks_by_the_share_of_the_first_loss() -> None:
    policy = BestFirst(scale="relative")
    small = trained(0, [1.0] + [0.9] * 29)
    large = trained(1, [100.0] + [50.0] * 29)
    assert POLICY.score(small) < POLICY.score(large)
    assert policy.score(large) == (1.0, 0.5)
    assert policy.score(small) == (1.0, pytest.approx(0.9))
    assert policy.words(large) == "loss 0.5 of its first"


def test_a_relative_scale_holds_below_zero_too_and_needs_a_first_loss() -> None:
    policy = BestFirst(scale="relative")
    fast = trained(0, [-0.1] + [-0.4] * 29)
    slow = trained(1, [-0.5] + [-0.6] * 29)
    assert policy.score(fast) < policy.score(slow)
    assert policy.score(trained(2, [0.0] + [-9.0] * 29)) == (1.0, math.inf)


def study(*starts: float) -> list[Trial]:
    """Probed trials that began at these losses; the first fell least of its own."""
    shares = [0.9 - n / 10 for n in range(len(starts))]
    ended = zip(starts, shares, strict=True)
    return [trained(n, [begin] + [begin * s] * 29) for n, (begin, s) in enumerate(ended)]


def order(*trials: Trial, policy: BestFirst = POLICY) -> list[str]:
    """The trials in the order of the policy as it suits them."""
    return [each.id for each in sorted(trials, key=policy.suited(trials).score)]


def test_like_scales_rank_by_the_loss_itself() -> None:
    # 0.9, 1.6, 2.1, 1.8: the first losses differ threefold, not more
    assert order(*study(1.0, 2.0, 3.0, 3.0)) == ["s/0", "s/1", "s/3", "s/2"]


def test_scales_more_than_three_times_apart_rank_by_the_share() -> None:
    apart = study(1.0, 2.0, 3.0, 3.1)
    assert order(*apart) == ["s/3", "s/2", "s/1", "s/0"]
    assert order(*apart, policy=BestFirst(scale="absolute"))[0] == "s/0"


def test_a_tenth_at_either_end_decides_nothing() -> None:
    assert not scales_differ(study(*[1.0] * 9, 90.0))
    assert not scales_differ(study(0.01, *[1.0] * 8, 90.0))
    assert scales_differ(study(*[1.0] * 8, 90.0, 90.0))


def test_too_few_first_losses_say_nothing() -> None:
    assert not scales_differ(study(1.0, 50.0, 90.0))
    assert not scales_differ([*study(1.0, 50.0, 90.0), trial(9), trained(8, [math.nan] * 5)])


def test_what_is_not_above_zero_has_no_scale() -> None:
    assert not scales_differ(study(-0.1, -0.2, -0.5, -0.9))
    assert not scales_differ(study(-0.1, 0.2, 0.5, 0.9))


def test_a_target_is_a_loss_as_it_stands_whatever_the_scales() -> None:
    policy = BestFirst(target=1.7)
    assert policy.suited(study(1.0, 2.0, 3.0, 30.0)) == policy


def test_a_penalty_that_is_added_to_the_loss_is_no_scale() -> None:
    fall = [5.0 - n / 20 for n in range(30)]
    added = [trained(n, [loss + more for loss in fall]) for n, more in enumerate((0, 1, 40, 90))]
    scaled = [trained(n, [loss * by for loss in fall]) for n, by in enumerate((1, 2, 9, 19))]
    assert not scales_differ(added)
    assert scales_differ(scaled)


def warming_up(count: int, apart: float, fall: float) -> list[Trial]:
    """Probed trials of 1,000 steps, so far apart from one to the next, all of which fall alike."""
    return [
        trained(n, [9.0 + n * apart - fall * step / 25 for step in range(25)], planned_steps=1000)
        for n in range(count)
    ]


def test_probes_go_on_where_all_fall_faster_than_they_differ() -> None:
    falling = warming_up(8, apart=0.1, fall=3.0)
    patient = POLICY.suited(falling)
    assert patient.probe_share == POLICY.second_look
    lowest_first = sorted(falling, key=lambda each: each.curve[-1].mean)
    assert sorted(falling, key=patient.score) == lowest_first
    assert patient.score(lowest_first[-1]) < patient.score(trial(9))
    assert patient.quantum(falling[0], Facts()) == Quantum(until_step=80)
    assert BestFirst(second_look=0.0).suited(falling).probe_share == POLICY.probe_share


def falling_apart(count: int, begin: float) -> list[Trial]:
    """Probed trials of 1,000 steps that fall the faster the later they come, and begin the higher,
    by so much."""
    steps = range(25)
    return [
        trained(
            n, [9.0 + n * (begin - step / 25) - step / 25 for step in steps], planned_steps=1000
        )
        for n in range(count)
    ]


def test_probes_go_on_where_losses_rank_as_the_first_ones_did() -> None:
    assert POLICY.suited(falling_apart(8, begin=0.0)) == POLICY
    assert POLICY.suited(falling_apart(8, begin=0.1)) == POLICY, "the last that began leads"
    assert POLICY.suited(falling_apart(8, begin=3.0)).probe_share == POLICY.second_look


def noisy(count: int, apart: float) -> list[Trial]:
    """Probed trials of 1,000 steps, so far apart from one to the next, whose losses are off by one
    at random."""
    chance = np.random.default_rng(3)
    return [
        trained(n, (9.0 + n * apart + chance.normal(0, 1, 25)).tolist(), planned_steps=1000)
        for n in range(count)
    ]


def test_probes_go_on_where_the_lowest_losses_are_so_by_chance() -> None:
    assert POLICY.suited(noisy(16, apart=0.0)).probe_share == POLICY.second_look
    assert POLICY.suited(noisy(15, apart=0.0)) == POLICY, "too few to say"
    assert POLICY.suited(noisy(16, apart=0.5)) == POLICY


def test_probes_are_over_where_trials_differ_or_too_few_were_probed() -> None:
    assert POLICY.suited(falling_apart(8, begin=0.0)) == POLICY
    assert POLICY.suited(warming_up(7, apart=0.1, fall=3.0)) == POLICY
    begun = [trained(n, [1.0] * 24, planned_steps=1000) for n in range(8)]
    assert POLICY.suited(begun) == POLICY


def ahead(policy: BestFirst, *trials: Trial) -> Trial:
    """The one of these that goes first."""
    leader = min(trials, key=policy.level)
    adapted = policy.adapted(Field(leader, trials))
    ranking = policy if adapted is None else adapted.facing(leader)
    return min(trials, key=ranking.score)


def test_where_losses_fall_fast_one_that_fell_further_goes_before_a_lower_one() -> None:
    falling = warming_up(8, apart=0.5, fall=3.0)
    late = trained(9, [10.5 - 5.0 * step / 25 for step in range(25)], planned_steps=1000)
    low = min(falling, key=POLICY.level)
    assert POLICY.level(low) < POLICY.level(late)
    assert ahead(POLICY, *falling, late) is late
    slow = [trained(n, [9.0 + n * 5.0] * 25, planned_steps=1000) for n in range(8)]
    others = [low, *slow[1:]]
    assert ahead(POLICY, *others, late) is low, "most do not fall"
    assert ahead(BestFirst(target=0.1), *falling, late) is low, "it is a loss as it stands"


def test_the_last_fall_is_told() -> None:
    falling = warming_up(8, apart=0.5, fall=3.0)
    adapted = POLICY.adapted(Field(falling[0], falling))
    assert adapted is not None
    words = adapted.facing(falling[0]).words
    assert words(falling[0]) == "loss 6.811, ranked as 0.41 better for its last fall"
    assert words(trial(9)) == "not probed yet"
    assert words(trained(9, [1.0, 2.0] * 20, planned_steps=1000)) == "loss 1.5"


def test_in_a_large_study_one_trains_on_for_each_so_many_that_were_probed() -> None:
    """Its best does not wait for the last probe, nor for one that can be only a little better."""
    book = play(trials=2 * LEVELS_EACH + 1, devices=None)
    queue = StudyQueue(book.state, "s", POLICY, Free())

    def shown(*changed: Trial) -> tuple[str, str]:
        """Who is first then, and what is said of the last one, which was never probed."""
        for each in changed:
            book.state.put(replace(book.trial(each.id), **_seen(each)))
        queue.refresh(book.state.trials.values())
        (first, *_) = queue.order(1, (), lambda _: True, 0.0)
        return first, queue.words(book.trial(f"s/{2 * LEVELS_EACH}"))

    def probed(first: int, count: int) -> list[Trial]:
        return [trained(n, [9.0 - n / 99] * 30) for n in range(first, first + count)]

    few, more = probed(0, LEVELS_EACH - 1), probed(LEVELS_EACH - 1, 1)
    assert shown(*few) == (f"s/{LEVELS_EACH - 1}", "not probed yet")
    leader = f"s/{LEVELS_EACH - 1}"
    assert shown(*more) == (leader, "not probed yet; it waits while one that was probed trains on")
    assert shown(on_device(more[0], expired=False))[0] == f"s/{LEVELS_EACH}"
    assert shown(finished(more[0]))[0] == f"s/{LEVELS_EACH}"
    assert shown(*probed(LEVELS_EACH, LEVELS_EACH))[0] == f"s/{2 * LEVELS_EACH - 1}"


def test_where_enough_were_probed_others_wait_for_those_only_that_may_yet_be_good() -> None:
    reached, low, high = (trained(n, [loss] * 30) for n, loss in enumerate((1.0, 2.0, 3.0)))
    aiming = BestFirst(target=1.5)
    order = aiming.adapted(Field(reached, (reached, low, high), enough=True))
    assert order is not None
    broken = trained(4, [math.nan] * 30)
    ranked = sorted((reached, broken, low, trial(3), high), key=order.facing(trial(3)).score)
    assert [each.spec.number for each in ranked] == [1, 2, 3, 0, 4]


def test_where_enough_were_probed_others_go_before_those_that_never_will_be_good() -> None:
    def falling(number: int, floor: float, steps: int) -> Trial:
        losses = [floor + 8 * 2 ** (-step / 20) for step in range(steps)]
        return trained(number, losses, planned_steps=400, step_seconds={"cpu": 0.1})

    leader, close, hopeless = falling(0, 0.0, 200), falling(1, 0.0, 60), falling(2, 6.0, 60)
    order = POLICY.adapted(Field(leader, (leader, close, hopeless), enough=True))
    assert order is not None
    new = trial(3, planned_steps=400)
    ranked = sorted((hopeless, new, close), key=order.facing(new).score)
    assert [each.spec.number for each in ranked] == [1, 3, 2]


def _seen(each: Trial) -> dict[str, object]:
    """What differs from a trial that never ran."""
    names = ("phase", "run", "attempt", "step", "curve", "quanta", "first", "latest")
    return {name: getattr(each, name) for name in names}
