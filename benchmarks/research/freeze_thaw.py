"""The model of Freeze-Thaw Bayesian Optimization (Swersky, Snoek and Adams 2014), as we read it.

Each trial's losses decay toward an asymptote of its own, by a Gaussian process whose covariance is
a mixture of exponential decays; the asymptotes are a Gaussian process over the settings (Matérn
5/2, with a scale for each parameter). Its hyperparameters are sampled by Metropolis's rule, several
chains side by side that take a few steps after each loss; the paper slices, and warps the settings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.research.epochs import EPOCHS
from hermesd.sim.curves import Floats

CHAINS, STEPS, STRIDE = 12, 3, 0.4
# Medians of the lognormal priors (one deviation is a factor of e): of the asymptotes' and the
# curves' deviations, the mixture's shape, its scale in epochs, the noise's deviation, and the
# scale of each parameter.
PRIOR = (0.1, 0.2, 1.0, 5.0, 0.01)
SCALE_OF_SETTINGS = 1.0
# The variance of the asymptotes' common mean around the usual start, a loss of 1.
VARIANCE_OF_MEAN = 0.25
# Losses without any noise would leave the covariance without a root.
LEAST_NOISE = 1e-4
AT = np.arange(1.0, EPOCHS + 1)


class Heard(NamedTuple):
    """What the losses so far say of the asymptotes under each chain, by trial."""

    #: The inverse of the lower root of a whole curve's covariance; its upper left corner is that of
    #: a curve that is not whole yet, so one is enough for all trials.
    whitening: Floats
    #: Whitened ones and losses, by chain, epoch and trial, 0 where none was heard.
    ones: Floats
    losses: Floats
    #: How precisely, and what asymptote times that.
    precision: Floats
    pull: Floats


class FreezeThaw:
    """Predicts the losses of trials, of those that never ran too, at any epoch."""

    def __init__(self, settings: Floats, generator: np.random.Generator) -> None:
        """The settings are a row for each trial, 0 to 1."""
        self.settings, self._generator = settings, generator
        self.prior = np.log(PRIOR + (SCALE_OF_SETTINGS,) * settings.shape[1])
        #: Logarithms of the hyperparameters, in the order of the priors, a row for each chain.
        self.chains = self.prior + generator.normal(size=(CHAINS, len(self.prior)))
        self.told = np.full((EPOCHS, len(settings)), np.nan)

    def hear(self, losses: Floats) -> None:
        """All losses so far, a row for each trial and a column for each epoch; NaN where there is
        none yet."""
        self.told = losses.T - 1.0
        likelihoods = self.likelihoods(self.chains)
        for _ in range(STEPS):
            moved = self._generator.random(self.chains.shape) < 2 / len(self.prior)
            by = self._generator.normal(0.0, STRIDE, self.chains.shape)
            others = self.chains + moved * by
            those = self.likelihoods(others)
            taken = np.log(self._generator.random(CHAINS)) < those - likelihoods
            self.chains[taken], likelihoods[taken] = others[taken], those[taken]

    def predict(self, epochs: Floats) -> tuple[Floats, Floats]:
        """Means and deviations of each trial's loss at an epoch of its own, a row for each
        chain."""
        heard = self._heard(self.chains)
        begun = ~np.isnan(self.told[0])
        among = self._among(self.chains, np.ones_like(begun))
        # Of the asymptotes.
        across = among[:, begun]
        spread = across[:, :, begun] + _diagonal(1.0 / heard.precision[:, begun])
        gain = np.linalg.solve(spread, across)
        toward = (heard.pull / heard.precision)[:, begun]
        means = np.einsum("cbi,cb->ci", gain, toward)
        variances = np.einsum("cii->ci", among) - np.sum(gain * across, axis=1)
        # And from there to the losses: what is heard of the curve itself pulls too.
        seen = heard.whitening @ self._decay(self.chains, AT[:, None], epochs)
        seen *= ~np.isnan(self.told)
        left = 1.0 - np.sum(seen * heard.ones, axis=1)
        own = self._decay(self.chains, epochs, epochs)[:, 0] - np.sum(seen**2, axis=1)
        means = 1.0 + means * left + np.sum(seen * heard.losses, axis=1)
        # Rounding must not leave less than the noise.
        variances = np.maximum(variances * left**2 + own, 0.0) + _noise(self.chains)[:, None]
        return means, np.sqrt(variances)

    def likelihoods(self, chains: Floats) -> Floats:
        """Logarithms of the hyperparameters' likelihoods times their priors, but for constants."""
        prior = -0.5 * np.sum((chains - self.prior) ** 2, axis=1)
        heard = self._heard(chains)
        begun = ~np.isnan(self.told[0])
        precision, pull = heard.precision[:, begun], heard.pull[:, begun]
        spread = self._among(chains, begun) + _diagonal(1.0 / precision)
        toward = pull / precision
        roots = np.einsum("cii->ci", heard.whitening)
        counts = np.sum(~np.isnan(self.told), axis=1)
        curves = np.log(roots) @ counts - 0.5 * np.sum(heard.losses**2, axis=(1, 2))
        curves += 0.5 * np.sum(pull * toward - np.log(precision), axis=1)
        fit = np.sum(toward * np.linalg.solve(spread, toward[:, :, None])[:, :, 0], axis=1)
        likelihoods: Floats = prior + curves - 0.5 * (fit + np.linalg.slogdet(spread)[1])
        return likelihoods

    def _heard(self, chains: Floats) -> Heard:
        known = ~np.isnan(self.told)
        noise = _noise(chains)[:, None, None] * np.eye(EPOCHS)
        root = np.linalg.cholesky(self._decay(chains, AT[:, None], AT) + noise)
        whitening = np.linalg.inv(root)
        ones = np.sum(whitening, axis=2)[:, :, None] * known
        losses = (whitening @ np.where(known, self.told, 0.0)) * known
        precision, pull = np.sum(ones**2, axis=1), np.sum(ones * losses, axis=1)
        return Heard(whitening, ones, losses, np.maximum(precision, 1e-300), pull)

    def _decay(self, chains: Floats, epochs: Floats, others: Floats) -> Floats:
        """The covariance of a curve between epochs, around its asymptote."""
        deviation, shape, scale = np.exp(chains[:, 1:4]).T[:, :, None, None]
        covariance: Floats = deviation**2 * (scale / (epochs + others + scale)) ** shape
        return covariance

    def _among(self, chains: Floats, those: NDArray[np.bool_]) -> Floats:
        """The covariance of the asymptotes of some trials."""
        settings = self.settings[those] / np.exp(chains[:, None, 5:])
        squares = np.sum(settings**2, axis=2)
        square = squares[:, :, None] + squares[:, None] - 2 * settings @ settings.swapaxes(1, 2)
        distance = np.sqrt(5 * np.maximum(square, 0.0))
        matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
        covariance: Floats = np.exp(2 * chains[:, 0])[:, None, None] * matern + VARIANCE_OF_MEAN
        return covariance


def _diagonal(values: Floats) -> Floats:
    return values[:, :, None] * np.eye(values.shape[1])


def _noise(chains: Floats) -> Floats:
    """Its variance under each chain."""
    variance: Floats = np.exp(2 * chains[:, 4]) + LEAST_NOISE**2
    return variance
