"""Rungs, successive halving and hyperband: rounds, who is held back, and how trials are dealt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hermesd.core.model import Phase, Quantum
from hermesd.core.policy import Facts, Planning
from hermesd.core.trial import Trial
from hermesd.policy.published.hyperband import Hyperband, bracket_sizes, deal
from hermesd.policy.published.rungs import Ladder
from hermesd.policy.published.successive_halving import SuccessiveHalving
from tests.policy.trials import costing, finished, on_device, trained, trial, view

# Rungs at 10, 20, 40 and 80 of 100 steps.
HALVING = SuccessiveHalving(eta=2, min_rung=0.1)
LADDER = Ladder(2, 0.1, 1.0)


def at(number: int, step: int, loss: float = 1.0, **known: object) -> Trial:
    """A trial of 100 steps that has shown one loss throughout."""
    return trained(number, [loss] * step, **{"planned_steps": 100, **known})


def claims(policy: Planning, *trials: Trial, facts: Facts | None = None) -> dict[str, Quantum]:
    plan = policy.plan(view(*trials, facts=facts))
    return {claim.trial: claim.quantum for claim in plan}


def going(policy: Planning, *trials: Trial) -> list[str]:
    plan = policy.plan(view(*trials))
    return [claim.trial for claim in plan if not claim.held_back]


def test_rungs_are_powers_of_eta_below_the_top() -> None:
    each = at(0, 25)
    assert [LADDER.step_of(each, rung) for rung in range(4)] == [10, 20, 40, 80]
    assert [LADDER.has(each, rung) for rung in range(5)] == [True, True, True, True, False]
    assert LADDER.reached(each) == 1
    assert LADDER.reached(at(0, 9)) == -1


def test_thirds_that_add_up_to_the_whole_make_no_rung_of_it() -> None:
    ladder = Ladder(3, 1 / 27, 1.0)
    each = trained(0, [1.0], planned_steps=270)
    assert [ladder.step_of(each, rung) for rung in range(3)] == [10, 30, 90]
    assert [ladder.has(each, rung) for rung in range(4)] == [True, True, True, False]


def test_rungs_in_steps_may_end_at_a_share() -> None:
    ladder = Ladder(2, 10.0, 0.5)
    assert [ladder.has(at(0, 1), rung) for rung in range(4)] == [True, True, True, False]
    assert ladder.has(trial(), 50)


def test_of_unknown_length_a_share_starts_at_twenty_steps_and_still_ends() -> None:
    assert [LADDER.step_of(trial(), rung) for rung in range(4)] == [20, 40, 80, 160]
    assert not LADDER.has(trial(), 4)


def test_all_train_to_the_first_rung_in_order_of_submission() -> None:
    trials = [trial(n, planned_steps=100) for n in range(3)]
    assert list(claims(HALVING, *trials)) == ["s/0", "s/1", "s/2"]
    assert set(claims(HALVING, *trials).values()) == {Quantum(until_step=10)}


def test_until_the_round_is_over_nobody_goes_further() -> None:
    trials = [at(0, 10, 2.0), at(1, 10, 1.0), at(2, 5), trial(3, planned_steps=100)]
    assert list(claims(HALVING, *trials)) == ["s/2", "s/3", "s/1", "s/0"]
    assert going(HALVING, *trials) == ["s/2", "s/3"]


def test_then_the_best_half_goes_on_to_the_next_rung() -> None:
    trials = [at(0, 10, 4.0), at(1, 10, 1.0), at(2, 10, 3.0), at(3, 10, 2.0)]
    assert going(HALVING, *trials) == ["s/1", "s/3"]
    assert claims(HALVING, *trials)["s/3"] == Quantum(until_step=20)
    assert list(claims(HALVING, *trials)) == ["s/1", "s/3", "s/2", "s/0"]


def test_the_next_round_is_of_the_survivors_alone() -> None:
    trials = [at(0, 10, 4.0), at(1, 20, 1.0), at(2, 10, 3.0), at(3, 20, 2.0)]
    assert going(HALVING, *trials) == ["s/1"]
    # Who lost later stands before who lost earlier, whatever the loss.
    assert list(claims(HALVING, *trials)) == ["s/1", "s/3", "s/2", "s/0"]


def test_an_odd_round_is_rounded_down_but_one_goes_on() -> None:
    assert going(HALVING, *[at(n, 10, float(n)) for n in range(5)]) == ["s/0", "s/1"]
    assert going(HALVING, at(7, 40)) == ["s/7"]


def test_past_the_last_rung_a_trial_runs_to_its_end() -> None:
    assert claims(HALVING, at(0, 80)) == {"s/0": Quantum()}


def test_a_held_back_trial_that_filled_a_device_is_judged_by_its_rung() -> None:
    far = trained(0, [5.0] * 10 + [0.1] * 9, planned_steps=100)
    assert going(HALVING, far, at(1, 10, 4.0)) == ["s/1"]


def test_fillers_get_short_turns_that_switches_do_not_eat() -> None:
    trials = [at(0, 10), at(1, 5), at(2, 10, costs=costing(1.0, 2.0))]
    turns = claims(HALVING, *trials, facts=Facts(0.1, 0.1))
    assert turns["s/0"] == Quantum(5.0)
    assert turns["s/2"] == Quantum(30.0)


def test_who_ended_early_holds_nobody_up() -> None:
    done, lost = finished(at(0, 8, 1.0)), replace(at(1, 3), phase=Phase.FAILED)
    trials = [done, lost, at(2, 10, 2.0), at(3, 10, 3.0), at(4, 10, 4.0)]
    # Of the four that did not fail, two go on; the one that ended has no loss at the rung's step
    # but the one it showed by then, which is best.
    assert going(HALVING, *trials) == ["s/2"]
    assert claims(HALVING, *trials)["s/2"] == Quantum(until_step=20)


def test_when_the_winner_is_done_the_others_come_back_best_first() -> None:
    trials = [finished(at(0, 100, 1.0)), at(1, 10, 3.0), at(2, 10, 2.0)]
    assert list(claims(HALVING, *trials)) == ["s/2", "s/1"]


def test_a_running_trial_is_waited_for() -> None:
    busy = on_device(at(0, 5), expired=False)
    assert going(HALVING, busy, at(1, 10)) == []
    assert list(claims(HALVING, busy, at(1, 10))) == ["s/1"]


def test_whoever_has_a_device_goes_first_among_those_that_go() -> None:
    assert going(HALVING, at(0, 5), on_device(at(1, 5))) == ["s/1", "s/0"]


@pytest.mark.parametrize(
    ("eta", "s_max", "sizes"),
    # Table 1 of the paper: R = 81, eta = 3. The others by hand: 4/4 x 27, 4/3 x 9, 4/2 x 3, 4.
    [(3, 4, (81, 34, 15, 8, 5)), (3, 3, (27, 12, 6, 4)), (2, 2, (4, 3, 3)), (4, 0, (1,))],
)
def test_brackets_are_as_large_as_the_paper_has_them(
    eta: int, s_max: int, sizes: tuple[int, ...]
) -> None:
    assert bracket_sizes(eta, s_max) == sizes


def test_trials_are_dealt_so_that_every_beginning_is_in_proportion() -> None:
    assert dealt((4, 3, 3), 20) == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0] * 2
    sizes = bracket_sizes(3, 3)
    pattern = dealt(sizes, sum(sizes))
    assert [pattern.count(place) for place in range(4)] == [27, 12, 6, 4]
    assert [pattern[:16].count(place) for place in range(4)] == [9, 4, 2, 1]


def dealt(sizes: tuple[int, ...], trials: int) -> list[int]:
    return [deal(sizes).bracket(number) for number in range(trials)]


@pytest.mark.parametrize(
    "settings", [{"min_rung": 1e-9}, {"eta": 2, "min_rung": 2.0, "max_rung": 1e15}]
)
def test_brackets_may_be_of_any_size(settings: dict[str, Any]) -> None:
    """No more is dealt than there are trials: these have room for hundreds of millions."""
    policy = Hyperband(**settings)
    backwards = [policy.bracket(trial(number)) for number in reversed(range(100))]
    assert [policy.bracket(trial(number)) for number in range(100)] == backwards[::-1]
    assert backwards.count(0) > backwards.count(1) > 0


# Brackets from 25 %, from 50 % and without a rung, for trials dealt 0 1 2 0 1 2 0 1 2 0.
BANDS = Hyperband(eta=2, min_rung=0.25)


def test_each_bracket_has_its_own_first_rung() -> None:
    trials = [trial(n, planned_steps=100) for n in range(3)]
    assert claims(BANDS, *trials) == {
        "s/0": Quantum(until_step=25),
        "s/1": Quantum(until_step=50),
        "s/2": Quantum(),
    }


def test_the_bracket_with_the_lowest_rung_goes_first() -> None:
    trials = [trial(n, planned_steps=100) for n in range(6)]
    assert list(claims(BANDS, *trials)) == ["s/0", "s/3", "s/1", "s/4", "s/2", "s/5"]


def test_brackets_compare_their_own_trials_only() -> None:
    first = [at(0, 25, 9.0), at(3, 25, 8.0)]
    second = [at(1, 50, 1.0), at(4, 50, 2.0)]
    assert going(BANDS, *first, *second) == ["s/3", "s/1"]
    assert list(claims(BANDS, *first, *second)) == ["s/3", "s/1", "s/4", "s/0"]


def test_words_name_the_bracket_and_the_rung() -> None:
    assert BANDS.words(at(1, 60, 2.0)) == "bracket 2 of 3: rung 0 (step 50), loss 2"
    assert BANDS.words(trial(2)) == "bracket 3 of 3: step 0, no rung ahead"
    assert HALVING.words(at(0, 4)) == "step 4, first rung at 10"


def test_hyperband_of_shares_and_steps_needs_both_ends_alike() -> None:
    assert Hyperband(eta=3, min_rung=3.0, max_rung=81.0).bracket(trial(0)) == 0
    assert Hyperband(eta=3, min_rung=1.0).bracket(trial(5)) == 0


def test_a_carrier_goes_on_for_whom_it_trains_for_in_a_later_bracket() -> None:
    policy = Hyperband(eta=2, min_rung=0.1, max_rung=0.4)
    brackets = [policy.bracket(trial(number)) for number in range(12)]
    low, high = brackets.index(0), brackets.index(2)
    others = [at(n, 10, 0.5) for n, bracket in enumerate(brackets) if bracket == 0 and n != low]
    carrier = at(low, 10, 1.0)
    assert f"s/{low}" not in going(policy, carrier, *others), "the worst of its bracket"
    rider = at(high, 10, 1.0, carrier=carrier.id)
    both = claims(policy, carrier, rider, *others)
    assert f"s/{low}" in going(policy, carrier, rider, *others)
    assert both[carrier.id] == Quantum(), "to the end, as that bracket has no rung"
    assert rider.id not in both
    ledger = policy.ledger()
    ledger.note([carrier, rider, *others])
    assert [*ledger.order(0.0)].index(carrier.id) < len(others)
    ledger.note([replace(rider, carrier=None)])
    assert ledger.claim(carrier.id, 0.0, Facts()).held_back, "it parts: its own bracket counts"
