"""The median stopping rule by pausing, against medians worked out by hand."""

from __future__ import annotations

import math

import pytest

from hermesd.core.decide.queue import QueueEntry, SortedCandidates
from hermesd.core.model import Quantum
from hermesd.core.trial import Trial
from hermesd.policy.published.median import Median, average, lowest, median_without
from tests.policy.trials import finished, on_device, trained, trial, view

# Looked at after 10 steps of 100, then at 20, 30, ...
POLICY = Median()


def at(number: int, step: int, loss: float = 1.0, **known: object) -> Trial:
    """A trial of 100 steps that has shown one loss throughout."""
    return trained(number, [loss] * step, **{"planned_steps": 100, **known})


def plan(policy: Median, *trials: Trial) -> tuple[list[str], list[str]]:
    """Who goes on, and who is held back."""
    claims = list(policy.plan(view(*trials)))
    held = [claim.trial for claim in claims if claim.reason.startswith("behind")]
    return [claim.trial for claim in claims if claim.trial not in held], held


def test_averages_and_lowest_losses_are_of_what_was_seen_by_then() -> None:
    each = trained(0, [4.0, 2.0, 3.0, 0.5])
    assert average(each, 3) == 3.0
    assert lowest(each, 3) == 2.0
    assert lowest(each, 4) == 0.5
    assert average(trained(0, [math.nan, 1.0]), 2) == math.inf
    assert lowest(trial(), 9) == math.inf


@pytest.mark.parametrize(
    ("ordered", "without", "expected"),
    [
        ([1.0, 2.0, 9.0, 10.0], 2.0, 9.0),
        ([1.0, 2.0, 9.0, 10.0], 10.0, 2.0),
        ([1.0, 2.0, 4.0], 1.0, 3.0),
        ([1.0, 2.0, 4.0], 4.0, 1.5),
        ([1.0, 1.0, 4.0], 1.0, 2.5),
    ],
)
def test_the_median_of_the_others(ordered: list[float], without: float, expected: float) -> None:
    averages = SortedCandidates()
    for number, known in enumerate(ordered):
        averages.put(QueueEntry((known,), number, f"s/{number}"))
    assert median_without(averages, without) == expected


def test_who_is_above_the_median_of_the_others_is_held_back() -> None:
    # For 3: the median of 1, 2, 3 is 2 < 4. For 2: of 1, 2, 4 it is 2 < 3. For 1: 3 > 2.
    trials = [at(n, 10, loss) for n, loss in enumerate((1.0, 2.0, 3.0, 4.0))]
    assert plan(POLICY, *trials) == (["s/0", "s/1"], ["s/2", "s/3"])


def test_equal_to_the_median_is_not_behind() -> None:
    assert plan(POLICY, *[at(n, 10, 5.0) for n in range(4)])[1] == []


def test_the_best_loss_so_far_is_held_against_the_others_averages() -> None:
    dipped = trained(0, [9.0] * 5 + [0.5] + [9.0] * 4, planned_steps=100)
    assert plan(POLICY, dipped, *[at(n, 10, 1.0) for n in (1, 2, 3)])[1] == []


def test_within_the_grace_or_among_too_few_nobody_is_behind() -> None:
    good = [at(n, 10, 1.0) for n in range(3)]
    assert plan(POLICY, *good, at(3, 9, 50.0))[1] == []
    assert plan(POLICY, *good[:2], at(3, 10, 50.0))[1] == []
    assert plan(Median(min_trials=2), *good[:2], at(3, 10, 50.0))[1] == ["s/3"]


def test_only_those_that_got_as_far_count() -> None:
    near = [at(n, 10, 1.0) for n in range(3)]
    far = [at(n, 20, 1.0) for n in (4, 5)]
    assert plan(POLICY, *near, *far, at(3, 25, 9.0))[1] == []
    assert plan(POLICY, *near, *far, finished(at(6, 100, 1.0)), at(3, 25, 9.0))[1] == ["s/3"]


def test_a_run_goes_on_to_the_next_look() -> None:
    quanta = {
        claim.trial: claim.quantum
        for claim in POLICY.plan(view(trial(0, planned_steps=100), at(1, 10), at(2, 27)))
    }
    assert [quanta[f"s/{n}"].until_step for n in range(3)] == [10, 20, 30]


def test_who_has_a_device_keeps_it_while_it_is_not_behind() -> None:
    trials = [trial(0, planned_steps=100), on_device(at(1, 10))]
    assert plan(POLICY, *trials) == (["s/1", "s/0"], [])


def test_who_is_held_back_gets_short_turns_best_first() -> None:
    good = [finished(at(n, 100, 1.0)) for n in range(3)]
    claims = POLICY.plan(view(*good, at(3, 10, 9.0), at(4, 10, 8.0)))
    assert [(claim.trial, claim.quantum) for claim in claims] == [
        ("s/4", Quantum(5.0)),
        ("s/3", Quantum(5.0)),
    ]


def test_a_raised_median_brings_a_trial_back() -> None:
    held = at(3, 10, 5.0)
    assert plan(POLICY, *[at(n, 10, 1.0) for n in range(3)], held)[1] == ["s/3"]
    worse = [at(n, 10, 7.0) for n in range(4, 8)]
    assert "s/3" not in plan(POLICY, *[at(n, 10, 1.0) for n in range(3)], held, *worse)[1]


def test_words_say_what_was_looked_at() -> None:
    assert POLICY.words(at(0, 9)) == "step 9, in its grace"
    assert POLICY.words(at(0, 27, 2.0)) == "lowest loss 2 by step 20"
