"""ASHA by holding back: who is promoted, up to where, and who comes last."""

from __future__ import annotations

import pytest

from hermesd.core.model import Quantum
from hermesd.core.trial import Trial
from hermesd.policy.published.asha import Asha, Pasha
from tests.policy.trials import finished, on_device, trained, trial, view

# Rungs at 10, 20, 40 and 80 of 100 steps.
HALVING = Asha(eta=2, min_rung=0.1)


def at(number: int, step: int, loss: float, **known: object) -> Trial:
    """A trial of 100 steps that has shown one loss throughout."""
    return trained(number, [loss] * step, **{"planned_steps": 100, **known})


def claimed(policy: Asha, *trials: Trial) -> list[str]:
    return [claim.trial for claim in policy.plan(view(*trials))]


def promoted(policy: Asha, *trials: Trial) -> list[str]:
    plan = policy.plan(view(*trials))
    return [claim.trial for claim in plan if claim.reason.startswith("promoted")]


def limits(policy: Asha, *trials: Trial) -> dict[str, int | None]:
    plan = list(policy.plan(view(*trials)))
    assert all(claim.quantum == Quantum(until_step=claim.quantum.until_step) for claim in plan)
    return {claim.trial: claim.quantum.until_step for claim in plan}


def test_new_trials_run_to_the_first_rung_in_order_of_submission() -> None:
    trials = [trial(n, planned_steps=100) for n in range(3)]
    assert claimed(HALVING, *trials) == ["s/0", "s/1", "s/2"]
    assert limits(HALVING, *trials) == {"s/0": 10, "s/1": 10, "s/2": 10}


def test_of_unknown_length_the_first_rung_is_twenty_steps() -> None:
    assert limits(HALVING, trial(0)) == {"s/0": 20}
    grown = trained(1, [1.0] * 20)
    assert limits(HALVING, grown) == {"s/1": 40}


def test_the_best_half_of_a_rung_goes_on_before_any_newcomer() -> None:
    rung = [at(0, 10, 4.0), at(1, 10, 1.0), at(2, 10, 3.0), at(3, 10, 2.0)]
    assert claimed(HALVING, *rung, trial(4)) == ["s/1", "s/3", "s/4", "s/2", "s/0"]


def test_the_highest_rung_goes_first() -> None:
    upper = [at(0, 20, 5.0), at(1, 20, 4.0)]
    lower = [at(2, 10, 1.0), at(3, 10, 2.0)]
    # Rung 0 holds all four: its best half are the two that stand there.
    assert claimed(HALVING, *upper, *lower) == ["s/1", "s/2", "s/3", "s/0"]


def test_a_rung_counts_those_that_went_beyond_and_those_that_ended() -> None:
    ended, third = finished(at(1, 100, 2.0)), at(2, 10, 3.0)
    worse = [at(n, 10, 9.0) for n in (3, 4, 5)]
    assert promoted(HALVING, ended, third, worse[0]) == []
    assert promoted(HALVING, ended, third, *worse[:2]) == ["s/2"]


def test_quanta_end_at_the_next_rung_and_the_last_has_no_end() -> None:
    trials = [at(0, 10, 1.0), at(1, 20, 1.0), at(2, 40, 1.0), at(3, 80, 1.0)]
    assert limits(HALVING, *trials) == {"s/0": 20, "s/1": 40, "s/2": 80, "s/3": None}


def test_rungs_of_a_third_below_the_whole_length() -> None:
    policy = Asha(eta=3, min_rung=1 / 16)
    # 160 steps: rungs at 10, 30, 90; the next would be beyond the end.
    each = trained(0, [1.0] * 10, planned_steps=160)
    assert limits(policy, each) == {"s/0": 30}
    assert limits(policy, trained(0, [1.0] * 90, planned_steps=160)) == {"s/0": None}


def test_rungs_lie_where_they_are_meant_whatever_the_last_binary_digit_says() -> None:
    # 0.1 x 3 x 10 and 0.07 x 100 are a little more than 3 and 7.
    assert limits(Asha(min_rung=0.1), trained(0, [1.0], planned_steps=10)) == {"s/0": 3}
    assert limits(Asha(min_rung=0.07), trial(0, planned_steps=100)) == {"s/0": 7}


def test_words_name_no_rung_where_none_is_ahead() -> None:
    assert HALVING.words(at(0, 4, 1.0)) == "step 4, first rung at 10"
    assert Asha(min_rung=1.0).words(at(0, 4, 1.0)) == "step 4, no rung ahead"


def test_rungs_may_be_given_in_steps() -> None:
    policy = Asha(eta=3, min_rung=5.0, max_rung=40.0)
    assert limits(policy, trial(0)) == {"s/0": 5}
    assert limits(policy, trained(0, [1.0] * 5)) == {"s/0": 15}
    assert limits(policy, trained(0, [1.0] * 15)) == {"s/0": None}


def test_a_share_may_be_the_top_of_rungs_in_steps() -> None:
    policy = Asha(eta=2, min_rung=10.0, max_rung=0.5)
    assert limits(policy, at(0, 20, 1.0)) == {"s/0": 40}
    assert limits(policy, at(0, 40, 1.0)) == {"s/0": None}


def test_a_running_trial_counts_but_claims_nothing() -> None:
    busy = on_device(at(0, 30, 1.0), expired=False)
    rest = [at(n, 10, float(n)) for n in range(1, 5)]
    # Rung 0 holds five, so two may go on: the running one and the next.
    assert promoted(HALVING, busy, *rest) == ["s/1"]
    assert claimed(HALVING, busy, *rest) == ["s/1", "s/2", "s/3", "s/4"]


def test_when_all_are_held_back_the_best_go_first() -> None:
    policy = Asha(eta=9, min_rung=0.1)
    rung = [at(0, 10, 4.0), at(1, 10, 1.0), at(2, 10, 3.0)]
    assert promoted(policy, *rung) == []
    assert claimed(policy, *rung) == ["s/1", "s/2", "s/0"]


def test_a_run_whose_quantum_is_over_competes() -> None:
    stays = on_device(at(0, 10, 1.0))
    assert promoted(HALVING, stays, at(1, 10, 2.0)) == ["s/0"]
    goes = on_device(at(0, 10, 3.0))
    assert promoted(HALVING, goes, at(1, 10, 2.0)) == ["s/1"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_the_worst(bad: float) -> None:
    assert promoted(HALVING, at(0, 10, bad), at(1, 10, 7.0)) == ["s/1"]


def test_the_loss_at_a_rung_is_the_one_shown_there() -> None:
    late = trained(0, [5.0] * 10 + [0.0] * 9, planned_steps=100)
    assert promoted(HALVING, late, at(1, 10, 4.0)) == ["s/1"]


def test_equal_losses_go_by_order_of_submission() -> None:
    assert promoted(HALVING, at(0, 10, 1.0), at(1, 10, 1.0)) == ["s/0"]


def rungs(number: int, *losses: float) -> Trial:
    """A trial of 100 steps that stands at the last of so many rungs, with these losses there."""
    step, values = 0, []
    for rung, loss in enumerate(losses):
        values += [loss] * (10 * 2**rung - step)
        step = 10 * 2**rung
    return trained(number, values, planned_steps=100)


def test_no_rung_is_added_to_the_second_while_trials_keep_their_order() -> None:
    pasha = Pasha(eta=2, min_rung=0.1)
    agreed = [rungs(0, 1.0, 1.0), rungs(1, 2.0, 2.0), rungs(2, 3.0), rungs(3, 4.0)]
    assert promoted(HALVING, *agreed) == ["s/0"]
    assert promoted(pasha, *agreed) == []
    crossed = [rungs(0, 1.0, 2.0), rungs(1, 2.0, 1.0), rungs(2, 3.0), rungs(3, 4.0)]
    assert promoted(pasha, *crossed) == promoted(HALVING, *crossed) == ["s/1"]


def test_what_is_beyond_the_highest_rung_uses_an_idle_device() -> None:
    only = rungs(0, 1.0, 1.0)
    assert limits(Pasha(eta=2, min_rung=0.1), only) == {"s/0": 40}
