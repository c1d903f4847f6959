"""The Gaussian process over hyper-parameters, against its own definition."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from hermesd.core.model import Scalar, Stage, TrialSpec
from hermesd.policy.process import Floats, Process, positions
from tests.policy.trials import trial


class Prospect(NamedTuple):
    """A value that is expected, and its uncertainty."""

    mean: float
    deviation: float


def prospects(seen: Floats, values: Floats, asked: Floats) -> list[Prospect]:
    """What is expected at some rows, of values at others."""
    means, deviations = Process(seen, asked).prospects(values)
    return [Prospect(*each) for each in zip(means.tolist(), deviations.tolist(), strict=True)]


def having(number: int, **values: Scalar) -> TrialSpec:
    return replace(trial(number).spec, stages=(Stage(None, tuple(values.items())),))


def test_numbers_stand_by_their_rank_and_other_values_far_apart() -> None:
    table = positions([
        having(0, lr=1e-5, opt="sgd"), having(1, lr=0.1, opt="adam"),
        having(2, lr=1e-3, opt="sgd"), having(3, opt="adam"),
    ])  # fmt: skip
    assert table[:3, 0].tolist() == [0.0, 1.0, 0.5]
    assert table[3, 0] > 100  # has no lr
    assert table[0, 1] == table[2, 1]
    assert abs(table[0, 1] - table[1, 1]) > 100


def test_true_is_no_number_and_one_value_is_one_place() -> None:
    table = positions([having(0, a=True, b=7), having(1, a=1, b=7)])
    assert table[0, 0] != table[1, 0]
    assert table[0, 1] == table[1, 1]


def test_a_value_that_was_seen_is_expected_there_and_the_mean_far_from_all() -> None:
    seen = np.array([[0.0], [1000.0], [2000.0], [3000.0]])
    values = np.array([-1.0, 1.0, -1.0, 1.0])
    at_first, at_second, far = prospects(seen, values, np.array([[0.0], [1000.0], [9000.0]]))
    assert at_first.mean == pytest.approx(-at_second.mean)
    assert at_first.mean < -0.7
    assert far.mean == pytest.approx(0.0, abs=1e-9)
    assert far.deviation > at_first.deviation


def test_the_expectation_is_that_of_a_gaussian_process_with_the_kernel_as_written() -> None:
    # One parameter, two places d apart: k = (e + 1 - w (1 - e)) / 2 with e = exp(-d), 1 at home.
    seen, values = np.array([[0.0], [1.0]]), np.array([-1.0, 1.0])
    known = prospects(seen, values, seen[:1])[0]
    fits = []
    for weight in (0.03, 0.1, 0.3, 0.5, 0.6, 0.9):
        for noise in (0.01, 0.03, 0.1, 0.3):
            near = math.exp(-1)
            kernel = (near + 1 - weight * (1 - near)) / 2
            # K + noise I on (-1, 1): that vector is an eigenvector, of the value 1 + noise - k
            fits.append(-(1 - kernel) / (1 + noise - kernel))
    assert min(abs(known.mean - fit) for fit in fits) < 1e-9


def test_what_matters_is_learned() -> None:
    # The first parameter decides, the second is noise.
    rng = np.random.default_rng(3)
    seen = np.column_stack([np.repeat([0.0, 1000.0, 2000.0], 8), rng.integers(0, 8, 24) * 1000.0])
    values = np.repeat([-1.0, 0.0, 1.0], 8) + 0.05 * rng.normal(size=24)
    low, high = prospects(seen, values, np.array([[0.0, 99_000.0], [2000.0, 99_000.0]]))
    assert low.mean < -0.5
    assert high.mean > 0.5


def test_values_that_change_are_judged_as_if_they_were_the_first() -> None:
    rng = np.random.default_rng(4)
    seen, asked = rng.random((12, 3)), rng.random((5, 3))
    process = Process(seen, asked)
    for weights in (np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 9.0]), np.zeros(3)):
        values = seen @ weights + 0.1 * rng.normal(size=12)
        for kept, fresh in zip(
            process.prospects(values), Process(seen, asked).prospects(values), strict=True
        ):
            assert kept.tolist() == fresh.tolist()


def test_no_parameters_and_no_variance_say_nothing() -> None:
    nothing = prospects(np.zeros((3, 0)), np.array([1.0, 2.0, 3.0]), np.zeros((2, 0)))
    assert [each.mean for each in nothing] == pytest.approx([2.0, 2.0])
    flat = prospects(np.array([[0.0], [1.0]]), np.array([5.0, 5.0]), np.array([[0.5]]))
    assert flat[0].mean == pytest.approx(5.0)
    assert flat[0].deviation < 0.01
