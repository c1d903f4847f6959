"""The models of others that we wrote anew compute what their papers say."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest

from benchmarks.research import power_laws
from benchmarks.research.epochs import EPOCHS, ends_of_epochs
from benchmarks.research.freeze_thaw import LEAST_NOISE, VARIANCE_OF_MEAN, FreezeThaw
from benchmarks.research.learning_curve_schedules import METHODS, turns
from benchmarks.research.power_laws import NETWORKS, Laws, PowerLaws, drawn
from hermesd.sim.curves import Floats, Job

TRIALS, PARAMETERS = 5, 2
BEST = 2


def jobs() -> list[Job]:
    """Trainings of which the one with the largest `rate` gets furthest."""
    steps = np.arange(1, 2 * EPOCHS + 1)
    return [
        Job(tuple(1 - rate * (1 - (steps / 2) ** -0.5)), 1.0, None, 1, (("rate", rate),))
        for rate in (0.1, 0.3, 0.8, 0.2, 0.25, 0.15)
    ]


def partly_heard(generator: np.random.Generator) -> Floats:
    losses = np.full((TRIALS, EPOCHS), np.nan)
    for trial, count in enumerate((12, 3, 0, 1, 40)):
        losses[trial, :count] = generator.uniform(0.3, 1.0, count)
    return losses


@pytest.fixture
def freeze_thaw() -> FreezeThaw:
    generator = np.random.default_rng(1)
    model = FreezeThaw(generator.uniform(size=(TRIALS, PARAMETERS)), generator)
    model.hear(partly_heard(generator))
    return model


def covariance(model: FreezeThaw, logs: Floats, trials: Floats, ats: Floats) -> Floats:
    """Among losses of trials at epochs, as the paper has it."""
    far, high, shape, scale, noise, *lengths = np.exp(logs)
    settings = model.settings[trials]
    distance = np.sqrt(5 * np.sum(((settings[:, None] - settings) / lengths) ** 2, axis=2))
    noise = np.hypot(noise, LEAST_NOISE)
    found = far**2 * (1 + distance + distance**2 / 3) * np.exp(-distance) + VARIANCE_OF_MEAN
    decay = high**2 * (scale / (ats[:, None] + ats + scale)) ** shape
    return found + decay * (trials[:, None] == trials) + noise**2 * np.eye(len(ats))


def test_freeze_thaw_predicts_what_the_whole_gaussian_process_does(freeze_thaw: FreezeThaw) -> None:
    epochs = np.array([50.0, 4.0, 7.0, 50.0, 41.0])
    means, deviations = freeze_thaw.predict(epochs)
    at, trial = np.nonzero(~np.isnan(freeze_thaw.told))
    heard = freeze_thaw.told[at, trial]
    count = len(heard)
    trials, ats = np.append(trial, np.arange(TRIALS)), np.append(at + 1.0, epochs)
    for chain, logs in enumerate(freeze_thaw.chains):
        whole = covariance(freeze_thaw, logs, trials, ats)
        gain = np.linalg.solve(whole[:count, :count], whole[:count, count:]).T
        expected = np.diag(whole[count:, count:] - gain @ whole[:count, count:])
        assert means[chain] == pytest.approx(1 + gain @ heard)
        assert deviations[chain] == pytest.approx(np.sqrt(expected))


def test_freeze_thaw_weighs_hyperparameters_as_the_whole_gaussian_process_does(
    freeze_thaw: FreezeThaw,
) -> None:
    at, trial = np.nonzero(~np.isnan(freeze_thaw.told))
    heard = freeze_thaw.told[at, trial]

    def likelihood(logs: Floats) -> float:
        whole = covariance(freeze_thaw, logs, trial, at + 1.0)
        fit = heard @ np.linalg.solve(whole, heard) + np.linalg.slogdet(whole)[1]
        return -0.5 * float(fit + np.sum((logs - freeze_thaw.prior) ** 2))

    expected = np.array([likelihood(logs) for logs in freeze_thaw.chains])
    found = freeze_thaw.likelihoods(freeze_thaw.chains)
    assert found - found[0] == pytest.approx(expected - expected[0])


def test_power_laws_slopes_are_those_of_the_losses() -> None:
    generator = np.random.default_rng(4)
    weights = [each.astype(np.float64) for each in drawn(generator, PARAMETERS)]
    settings, shares = generator.uniform(size=(3, PARAMETERS)), np.array([0.02, 0.4, 1.0])
    by_loss = generator.normal(size=(NETWORKS, 3))
    slopes = Laws(weights, settings, shares).slopes(by_loss)
    for weight, slope in zip(weights, slopes, strict=True):
        place = tuple(generator.integers(0, weight.shape))
        sums = []
        for step in (-1e-6, 1e-6):
            weight[place] += step
            sums.append(np.sum(by_loss * Laws(weights, settings, shares).losses))
            weight[place] -= step
        assert slope[place] == pytest.approx((sums[1] - sums[0]) / 2e-6, rel=1e-4, abs=1e-7)


def test_power_laws_come_to_fit_what_they_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_laws, "FIRST", 1)
    generator = np.random.default_rng(2)
    settings = np.array([[0.0], [0.5], [1.0]])
    model = PowerLaws(settings, generator)
    losses = np.full((3, EPOCHS), np.nan)
    curve = 0.3 + 0.1 * (np.arange(1, EPOCHS + 1) / EPOCHS) ** -0.5
    for epoch in range(20):
        losses[0, epoch] = curve[epoch]
        model.hear(losses)
    means, deviations = model.predict(np.array([10.0, 50.0, 50.0]))
    assert means[0, 0] == pytest.approx(curve[9], abs=0.03)
    assert deviations[0, 0] < deviations[0, 2]


@pytest.mark.parametrize("method", METHODS)
def test_every_epoch_of_every_trial_is_trained_once(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_laws, "ROUNDS_FROM_SCRATCH", 2)
    monkeypatch.setattr(power_laws, "ROUNDS_OF_REFINING", 1)
    some = jobs()[:3]
    trained = list(turns(method, some, some, 3))
    for trial, job in enumerate(some):
        its = [(first, last) for each, first, last in trained if each == trial]
        assert its == list(pairwise(ends_of_epochs(job)))


@pytest.mark.parametrize("method", ["freeze_thaw", "ifbo"])
def test_the_best_trial_is_trained_most_of_the_first_turns(method: str) -> None:
    trained = [trial for trial, _, _ in islice(turns(method, jobs(), jobs(), 3), 40)]
    assert max(set(trained), key=trained.count) == BEST
