"""Guided: the regression over the parameters, and the order of probes that follows from it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hermesd.core.model import Scalar, Stage
from hermesd.core.trial import Trial
from hermesd.policy.guided import Guided, codes, regression, standings
from tests.policy.trials import finished, on_device, trained, trial, view

GRID = [(optimizer, lr) for optimizer in ("sgd", "adam") for lr in (0.1, 0.01, 0.001)]


def having(each: Trial, **values: Scalar) -> Trial:
    """The trial with these parameters."""
    return replace(each, spec=replace(each.spec, stages=(Stage(None, tuple(values.items())),)))


def point(number: int, loss: float | None = None) -> Trial:
    """A point of the grid, probed if it has a loss; all begin at 10."""
    optimizer, lr = GRID[number % len(GRID)]
    each = trial(number) if loss is None else trained(number, [10.0] + [loss] * 29)
    return having(each, optimizer=optimizer, lr=lr)


def claimed(policy: Guided, *trials: Trial) -> list[str]:
    return [claim.trial for claim in policy.plan(view(*trials))]


def test_z_is_the_logarithm_of_the_share_of_the_way_to_the_best() -> None:
    # best 2, median first loss 10: shares 0, 1/2 and (clipped) 3
    trials = [point(0, 2.0), point(1, 6.0), point(2, 90.0)]
    z = standings(trials)
    assert z["s/0"] == pytest.approx(math.log(0.05))
    assert z["s/1"] == pytest.approx(math.log(0.55))
    assert z["s/2"] == pytest.approx(math.log(3.05))


def test_a_loss_that_is_no_number_is_the_worst_and_no_spread_is_no_news() -> None:
    broken = trained(7, [math.nan] * 30)
    assert standings([point(0, 2.0), broken])["s/7"] == pytest.approx(math.log(3.05))
    assert standings([point(0, 10.0), point(1, 11.0)]) == {"s/0": 0.0, "s/1": 0.0}
    assert standings([broken]) == {"s/7": 0.0}


def test_parameters_are_equal_or_not() -> None:
    trials = [having(trial(n), a=a, b=b) for n, (a, b) in enumerate([(1, "x"), (2, "x"), (1, "y")])]
    table = codes([*trials, trial(3)])
    assert table[0, 0] == table[2, 0] != table[1, 0]
    assert table[0, 1] == table[1, 1] != table[2, 1]


def test_many_numbers_are_told_apart_by_eight_bands_of_their_rank() -> None:
    table = codes([having(trial(n), lr=10.0**-n) for n in range(16)])
    bands = table[:, 0].tolist()
    assert len(set(bands)) == 8
    assert bands == sorted(bands, reverse=True)


def test_ridge_on_one_parameter_against_numbers_by_hand() -> None:
    # One-hot values 0 and 1 with z = -1 and 1, ridge 1/2: K = 1, each weight is z / (1 + 1/2).
    seen, asked = np.array([[0], [1]]), np.array([[0], [1], [2]])
    known, other, new = regression(seen, np.array([-1.0, 1.0]), asked, 0.5)
    assert (known.mean, other.mean, new.mean) == pytest.approx((-2 / 3, 2 / 3, 0.0))
    # variance 1 = size x (1 + 1/2); what is left of it: 1 - 1 / 1.5 where seen, 1 where not.
    assert known.deviation == pytest.approx(math.sqrt((1 / 1.5) * (1 - 1 / 1.5)))
    assert new.deviation == pytest.approx(math.sqrt(1 / 1.5))


def test_the_dual_form_is_the_regression_on_the_features_themselves() -> None:
    rng = np.random.default_rng(5)
    seen, asked = rng.integers(0, 3, (7, 3)), rng.integers(0, 3, (4, 3))
    z = rng.normal(size=7)

    def features(rows: np.ndarray) -> np.ndarray:
        values = [(rows[:, p] == v) * 1.0 for p in range(3) for v in range(3)]
        pairs = [
            math.sqrt(0.1) * values[3 * p + a] * values[3 * q + b]
            for p in range(3)
            for q in range(p + 1, 3)
            for a in range(3)
            for b in range(3)
        ]
        return np.array(values + pairs).T

    x = features(seen)
    weights = np.linalg.solve(x.T @ x + 0.5 * np.eye(x.shape[1]), x.T @ (z - z.mean()))
    expected = z.mean() + features(asked) @ weights
    assert [each.mean for each in regression(seen, z, asked, 0.5)] == pytest.approx(expected)


def test_the_first_probes_go_in_order_of_submission() -> None:
    trials = [point(0, 5.0), point(1, 1.0), point(2), point(3), point(4)]
    assert claimed(Guided(), *trials) == ["s/2", "s/3", "s/4", "s/1", "s/0"]


def test_the_next_probe_is_where_the_parameters_promise_most() -> None:
    # 0.01 was best with sgd, and adam beat sgd at 0.1: adam at 0.01 is next, at 0.001 last.
    probed = [point(0, 8.0), point(1, 2.0), point(2, 9.5), point(3, 6.0)]
    assert claimed(Guided(margin=9.0), *probed, point(5), point(4))[:2] == ["s/4", "s/5"]


def test_probes_that_promise_too_little_come_after_the_best_that_waits() -> None:
    probed = [point(0, 8.0), point(1, 2.0), point(2, 9.5), point(3, 6.0)]
    plain = Guided(caution=0.0)
    assert claimed(plain, *probed, point(4), point(5)) == ["s/1", "s/3", "s/0", "s/2", "s/4", "s/5"]
    # Once that one is done, the best that waits is worse than the promise.
    after = claimed(plain, probed[0], finished(probed[1]), *probed[2:], point(4), point(5))
    assert after[0] == "s/4"


def test_who_just_ran_competes_and_who_runs_informs_only() -> None:
    probed = [point(0, 8.0), on_device(point(1, 2.0)), on_device(point(2, 9.5), expired=False)]
    plan = claimed(Guided(caution=0.0), *probed, point(3, 6.0), point(4))
    assert plan == ["s/1", "s/3", "s/0", "s/4"]


def test_of_very_many_probes_evenly_many_are_learnt_from() -> None:
    trials = [having(trained(n, [9.0, 1.0 + n % 7] * 10), x=n % 7) for n in range(900)]
    unknown = [having(trial(1000 + v), x=v) for v in range(7)]
    plan = claimed(Guided(margin=9.0), *trials, *unknown)
    assert plan[:7] == [f"s/{1000 + v}" for v in range(7)]


def test_without_parameters_it_is_best_first() -> None:
    bare = [replace(t, spec=replace(t.spec, stages=(Stage(None, ()),))) for t in (
        *[trained(n, [10.0] + [float(9 - n)] * 29) for n in range(5)], trial(6), trial(7)
    )]  # fmt: skip
    assert claimed(Guided(margin=9.0), *bare) == ["s/6", "s/7", "s/4", "s/3", "s/2", "s/1", "s/0"]


def test_the_reason_names_the_prospect() -> None:
    probed = [point(n, 5.0 + n) for n in range(4)]
    reasons = [claim.reason for claim in Guided().plan(view(*probed, point(4)))]
    assert any("prospect" in reason and "against" in reason for reason in reasons)
    assert Guided().words(point(0, 5.0)) == "loss 5"
