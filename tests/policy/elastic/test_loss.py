"""Steps left: the fit gets better as the training goes on, and knows no unit of the loss."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hermesd.core.trial import Trial
from hermesd.policy.elastic.loss import StepsLeft, steps_left
from tests.policy.trials import trained, trial

SLOPE, OFFSET, FLOOR, NOISE = 0.02, 0.25, 0.4, 0.01


def sequence_to_sequence(steps: int, scale: float = 1.0, **known: object) -> Trial:
    """A trial after so many steps of a curve with the paper's shape, noise and a spike."""
    chance = np.random.default_rng(3)
    at = np.arange(1, steps + 1)
    losses = 1 / (SLOPE * at + OFFSET) + FLOOR
    losses = losses * (1 + NOISE * chance.standard_normal(steps))
    if steps > 40:
        losses[30] *= 3
    return trained(0, [float(scale * each) for each in losses], **known)


def end_of(threshold: float, epoch: int, epochs: int) -> int:
    """Where the curve without noise really converges: counted, not solved."""
    loss = [1 / (SLOPE * k + OFFSET) + FLOOR for k in range(1, 20_000)]
    k = next(k for k in range(len(loss)) if loss[k] - loss[k + epoch] < threshold * loss[0])
    return k + 1 + epochs * epoch


def test_the_end_is_foretold_better_the_longer_a_trial_trains() -> None:
    end = end_of(0.002, 10, 3)
    errors = []
    for steps in (20, 100, 250):
        left = steps_left(sequence_to_sequence(steps), 0.002, 10, 3)
        assert not left.converged
        errors.append(abs((steps + left.steps) / end - 1))
    assert errors[0] < 0.6
    assert errors[2] < 0.1
    assert errors[2] < errors[0]


def test_the_unit_of_the_loss_does_not_matter() -> None:
    one, other = (sequence_to_sequence(100, scale) for scale in (1.0, 1e-3))
    assert steps_left(one, epoch=10).steps == pytest.approx(steps_left(other, epoch=10).steps)


def test_past_its_convergence_a_trial_has_what_was_planned() -> None:
    end = end_of(0.01, 10, 2)
    late = sequence_to_sequence(2 * end, planned_steps=3 * end)
    assert steps_left(late, 0.01, 10, 2) == StepsLeft(end, True)
    assert steps_left(sequence_to_sequence(50, planned_steps=60), 0.01, 10, 2).steps == 10


def test_without_a_curve_or_a_plan_nothing_is_known() -> None:
    assert steps_left(trial(planned_steps=70)) == StepsLeft(70.0, False)
    assert steps_left(trial()).steps == math.inf


def test_a_trial_is_young_for_a_twentieth_of_its_steps() -> None:
    assert StepsLeft(96, False).young(4)
    assert not StepsLeft(95, False).young(5)
    assert StepsLeft(math.inf, False).young(1000)
