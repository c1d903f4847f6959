"""Those that will soon be good go before the good ones, where that is worth something."""

from __future__ import annotations

import math

import pytest

from hermesd.core.policy import Field
from hermesd.core.trial import Trial
from hermesd.policy.best_first import BestFirst
from hermesd.policy.good_soon import GoodSoon, good_soon
from tests.policy.trials import finished, trained

POLICY = BestFirst()


def falling(
    number: int, pace: float, steps: int, floor: float = 0.0, scale: float = 1.0, shift: float = 0.0
) -> Trial:
    """A trial whose loss halves every 20 / pace steps from 8; 0.1 s a step, 400 steps long."""
    values = [floor + 8 * 0.5 ** (step * pace / 20) for step in range(1, steps + 1)]
    moved = [scale * value + shift for value in values]
    return trained(number, moved, planned_steps=400, step_seconds={"cpu": 0.1})


LEADER = falling(0, 1.0, 200)
CLOSE, SLOW, HOPELESS = falling(1, 0.8, 60), falling(2, 0.5, 40), falling(3, 0.1, 40, 3.0)


def ranking(*trials: Trial, policy: BestFirst = POLICY) -> GoodSoon | None:
    """What holds among these trials, of which the first leads and deserves most."""
    adapted = policy.adapted(Field(trials[0], trials))
    if adapted is None:
        return None
    facing = adapted.facing(trials[0])
    assert isinstance(facing, GoodSoon)
    return facing


def order(*trials: Trial, policy: BestFirst = POLICY) -> list[int]:
    adapted = ranking(*trials, policy=policy) or policy
    return [each.spec.number for each in sorted(trials, key=adapted.score)]


def test_who_will_soon_be_good_goes_before_the_leader() -> None:
    assert order(LEADER, HOPELESS, CLOSE) == [1, 0, 3]
    assert order(LEADER, HOPELESS, CLOSE, policy=BestFirst(good=0.0))[0] == 0


def test_a_leader_that_was_good_from_its_first_loss_on_tells_nothing_of_the_way_there() -> None:
    """The others are where the leader never was: nobody knows how far behind it."""
    leader = falling(0, 1.0, 200, 1.0, 0.01)
    others = [falling(n, 1.0, 40, 1.0, 0.01, 4.0 * n) for n in (1, 2, 3)]
    field = Field(leader, (leader, *others))
    assert good_soon(POLICY, 0.05, field, most=1.0) is None


def test_the_seconds_to_good_are_the_leaders_at_the_trials_pace() -> None:
    adapted = ranking(LEADER, CLOSE, HOPELESS)
    assert isinstance(adapted, GoodSoon)
    # good is 5 % of the way from about 0 to about 8, and the present loss lags by half a window
    assert adapted.good == pytest.approx(0.4, rel=0.2)
    assert adapted.reached == pytest.approx(math.log2(8 / adapted.good) * 20 + 10, rel=0.05)
    expected = (adapted.reached / 0.8 - 60) * 0.1
    assert adapted.seconds_to_good(CLOSE) == pytest.approx(expected, rel=0.1)
    assert "good in about" in adapted.words(CLOSE)
    assert adapted.words(LEADER).endswith("good already")
    assert math.isinf(adapted.seconds_to_good(HOPELESS))
    assert "good" not in adapted.words(HOPELESS)


def test_a_leader_near_its_end_is_not_held_up() -> None:
    near = falling(0, 1.0, 390)
    assert order(near, CLOSE, HOPELESS) == [0, 1, 3]
    # but then nothing is before those that will be good, the soonest first
    over = finished(near)
    worse = falling(4, 0.05, 40, 3.0)
    adapted = POLICY.adapted(Field(over, (over, SLOW, CLOSE, HOPELESS, worse)))
    assert adapted is not None
    rest = sorted((HOPELESS, SLOW, CLOSE), key=adapted.facing(CLOSE).score)
    assert [each.spec.number for each in rest] == [1, 2, 3]


def test_those_good_sooner_go_first_however_many_have_finished() -> None:
    over = finished(falling(0, 1.0, 390))
    # Good sooner, but at a higher loss than one that is slower and further on.
    soon, slower = falling(5, 2.0, 20), falling(2, 0.5, 100)
    adapted = POLICY.adapted(Field(over, (over, soon, slower, HOPELESS)))
    assert adapted is not None
    assert min((soon, slower), key=adapted.facing(slower).score) is soon


def test_a_leader_that_is_not_good_yet_goes_on() -> None:
    begun = falling(0, 1.0, 30)
    assert ranking(begun, CLOSE, HOPELESS) is None


def test_where_nearly_all_will_be_good_it_does_not_count() -> None:
    assert ranking(LEADER, CLOSE, SLOW, HOPELESS) is not None
    assert ranking(LEADER, CLOSE, SLOW) is None


def test_nothing_is_predicted_for_an_unknown_length_or_broken_losses() -> None:
    unknown = trained(0, [8 * 0.5 ** (n / 20) for n in range(200)])
    assert ranking(unknown, CLOSE, HOPELESS) is None
    adapted = ranking(LEADER, CLOSE, HOPELESS)
    assert isinstance(adapted, GoodSoon)
    broken = trained(5, [math.nan] * 30, planned_steps=400, step_seconds={"cpu": 0.1})
    assert adapted.score(broken) > adapted.score(HOPELESS)


def test_a_target_of_ones_own_takes_its_place() -> None:
    policy = BestFirst(target=0.5)
    assert ranking(LEADER, CLOSE, HOPELESS, policy=policy) is None


@pytest.mark.parametrize(("scale", "shift"), [(10.0, 0.0), (0.1, 0.0), (1.0, -50.0)])
def test_neither_a_scale_nor_a_shift_of_all_losses_matters(scale: float, shift: float) -> None:
    def moved(number: int, pace: float, steps: int, floor: float = 0.0) -> Trial:
        return falling(number, pace, steps, floor, scale, shift)

    trials = moved(0, 1.0, 200), moved(3, 0.1, 40, 3.0), moved(1, 0.8, 60)
    assert order(*trials) == [1, 0, 3]


def test_on_a_relative_scale_goodness_is_relative_too() -> None:
    policy = BestFirst(scale="relative")
    larger = falling(1, 0.8, 60, scale=100.0)
    assert order(LEADER, HOPELESS, larger, policy=policy) == [1, 0, 3]


def test_where_few_would_be_good_the_best_quarter_are_meant() -> None:
    second, bad = falling(1, 0.15, 60), [falling(n, 0.05, 40) for n in range(4, 10)]
    adapted = ranking(LEADER, second, *bad)
    assert isinstance(adapted, GoodSoon)
    # the second ends where the leader was after some 15 % of the steps, lag of the window included
    assert adapted.good == pytest.approx(8 * 0.5 ** (400 * 0.15 / 20), rel=0.4)
    assert math.isfinite(adapted.seconds_to_good(second))
    assert all(math.isinf(adapted.seconds_to_good(each)) for each in bad)
    # of seven trials, a quarter is the leader alone
    alone = ranking(LEADER, second, *bad[1:])
    assert isinstance(alone, GoodSoon)
    assert alone.good < adapted.good / 2
    assert math.isinf(alone.seconds_to_good(second))
