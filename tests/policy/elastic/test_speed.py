"""Speed models: found from ten probes, and better with every observation."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.elastic.cluster import probes
from hermesd.policy.elastic.gain import Split
from hermesd.policy.elastic.speed import (
    Exchange,
    Observed,
    SpeedModel,
    fit_speed,
    nonnegative,
)

GRID = [Split(*each) for each in product(range(1, 21), repeat=2)]
ALONE = [Split(width, 0) for width in range(1, 17)]
PLANTED = {
    Exchange.SYNCHRONOUS: SpeedModel(Exchange.SYNCHRONOUS, (0.75, 1.0, 2.7, 0.1, 0.1), 32.0),
    Exchange.ASYNCHRONOUS: SpeedModel(Exchange.ASYNCHRONOUS, (4.0, 0.9, 0.15, 0.05), 32.0),
    Exchange.ALL_REDUCE: SpeedModel(Exchange.ALL_REDUCE, (0.02, 0.05, 0.2, 0.01), 64.0),
}


def observed(
    model: SpeedModel, splits: list[Split], noise: float = 0.0, seed: int = 1
) -> list[Observed]:
    """What runs of these splits show, off by this share up or down."""
    chance = np.random.default_rng(seed)
    return [
        Observed(each, model(*each) * (1 + noise * chance.uniform(-1, 1)), model.batch)
        for each in splits
    ]


@pytest.mark.parametrize("exchange", Exchange)
def test_the_equation_of_a_form_is_the_papers(exchange: Exchange) -> None:
    w, p, batch = 4, 2, 32.0
    model = replace(PLANTED[exchange], batch=batch)
    t = model.theta
    expected = {
        Exchange.SYNCHRONOUS: lambda: (
            1 / (t[0] * batch / w + t[1] + t[2] * w / p + t[3] * w + t[4] * p)
        ),
        Exchange.ASYNCHRONOUS: lambda: w / (t[0] + t[1] * w / p + t[2] * w + t[3] * p),
        Exchange.ALL_REDUCE: lambda: 1 / (t[0] * batch / w + t[1] + t[2] * (w - 1) / w + t[3] * w),
    }
    assert model(w, p) == pytest.approx(expected[exchange]())


@pytest.mark.parametrize("exchange", Exchange)
def test_ten_probes_foretell_all_other_speeds(exchange: Exchange) -> None:
    """The paper: about ten samples are enough for a good first fit."""
    allowed = ALONE if exchange is Exchange.ALL_REDUCE else GRID
    planted = PLANTED[exchange]
    chosen = probes(exchange, allowed)
    assert len(set(chosen)) == len(chosen) == 10
    fitted = fit_speed(exchange, observed(planted, chosen, noise=0.03))
    assert fitted is not None
    errors = [abs(fitted(*each) / planted(*each) - 1) for each in allowed if each not in chosen]
    assert max(errors) < 0.10


def test_ten_chosen_probes_are_safer_than_ten_others() -> None:
    planted = PLANTED[Exchange.SYNCHRONOUS]

    def worst(splits: list[Split], seed: int) -> float:
        fitted = fit_speed(Exchange.SYNCHRONOUS, observed(planted, splits, 0.1, seed))
        assert fitted is not None
        return max(abs(fitted(*each) / planted(*each) - 1) for each in GRID[::3])

    chance, ours = np.random.default_rng(2), probes(Exchange.SYNCHRONOUS, GRID)
    others = [[GRID[at] for at in chance.choice(len(GRID), 10, False)] for _ in range(20)]
    assert mean(worst(ours, seed) for seed in range(20)) < 0.8 * mean(map(worst, others, range(20)))


def test_every_later_observation_makes_it_better() -> None:
    planted = PLANTED[Exchange.SYNCHRONOUS]
    seen = observed(planted, probes(Exchange.SYNCHRONOUS, GRID) + GRID, noise=0.2)
    errors = []
    for count in (10, 50, 410):
        fitted = fit_speed(Exchange.SYNCHRONOUS, seen[:count])
        assert fitted is not None
        errors.append(mean(abs(fitted(*each) / planted(*each) - 1) for each in GRID))
    assert errors == sorted(errors, reverse=True)


def test_more_workers_are_taken_to_help_until_they_are_seen_not_to() -> None:
    assert fit_speed(Exchange.ALL_REDUCE, []) is None
    one = [Observed(Split(1, 0), 2.0)]
    hopeful = fit_speed(Exchange.ALL_REDUCE, one)
    assert hopeful is not None
    assert [hopeful(width) for width in (1, 2, 4)] == pytest.approx([2.0, 4.0, 8.0])
    taught = fit_speed(Exchange.ALL_REDUCE, [*one, Observed(Split(2, 0), 2.0)])
    assert taught is not None
    assert [taught(width) for width in (1, 2, 4)] == pytest.approx([2.0, 2.0, 2.0])


def test_trials_of_other_batches_share_what_was_learned() -> None:
    planted = PLANTED[Exchange.ALL_REDUCE]
    seen = observed(planted, [Split(1, 0), Split(2, 0), Split(8, 0)])
    seen += observed(replace(planted, batch=256.0), [Split(1, 0), Split(4, 0), Split(8, 0)])
    fitted = fit_speed(Exchange.ALL_REDUCE, seen)
    assert fitted is not None
    assert fitted.batch == 256.0
    other = replace(fitted, batch=128.0)
    assert other(6) == pytest.approx(replace(planted, batch=128.0)(6))


def test_a_speed_that_no_term_limits_is_endless() -> None:
    assert SpeedModel(Exchange.ALL_REDUCE, (0.0, 0.0, 1.0, 0.0))(1) == float("inf")


@given(
    st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.floats(0.01, 10), min_size=width, max_size=width), min_size=1, max_size=8
        )
    ),
    st.data(),
)
def test_least_squares_without_negatives_are_those_of_scipy(
    rows: list[list[float]], data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.floats(0.01, 10), min_size=len(rows), max_size=len(rows)))
    from scipy.optimize import nnls  # not by each worker that only collects

    matrix, wanted = np.array(rows), np.array(values)
    found = nonnegative(matrix, wanted)
    assert (found >= 0).all()
    _, least = nnls(matrix, wanted)
    assert float(np.linalg.norm(matrix @ found - wanted)) <= least + 1e-3 * np.linalg.norm(wanted)


def test_fewer_than_ten_cells_are_all_probed() -> None:
    assert set(probes(Exchange.ALL_REDUCE, ALONE[:4])) == set(ALONE[:4])
    assert probes(Exchange.ALL_REDUCE, []) == []
