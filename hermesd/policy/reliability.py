"""How far losses so far, and earlier studies, predict where trials of the same parameters end.

Both are read off earlier studies, where the ends are known: losses said so much about the ends of
the trials that showed them, and each study is predicted from the others as the new one is from all.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hermesd.core.policy import Earlier
from hermesd.core.trial import Trial
from hermesd.policy.memory import Same, ends, learned, rank_correlation
from hermesd.policy.pace import settled
from hermesd.policy.process import Floats

# The shares of their lengths at which trials are ranked by loss: between them in proportion.
SHARES = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
# No rank correlation counts as more.
SURE = 0.99
# What studies predict for each other holds if it correlates at least so much with the ends.
AGREES = 0.4
# Fewer probed trials than these do not say whether it holds for one more study. The odds that it
# does before they say anything, as a logarithm: nine to one.
TOLD_APART, LIKELY = 4, 2.2
# What is predicted is not weighed against losses if it counts less than this share of what they do
# at the end of a probe: where it says so little of all trials, it says less of which are good. On
# recorded curves a half leaves out studies that help, and no least share at all costs recurrent
# networks a quarter of their speed where their settings never ran.
LEAST = 1 / 3


@dataclass(frozen=True, slots=True)
class Reliability:
    """Rank correlations with the ends of trials, in the mean over earlier studies."""

    #: Of their losses at each of `SHARES`.
    losses: tuple[float, ...] = (SURE,) * len(SHARES)
    #: Of what the other studies predicted; 0 where there is no other, or they predicted little, as
    #: such or beside the losses.
    history: float = 0.0

    def holds(self, predicted: Floats, slowness: Floats, shares: Sequence[float]) -> bool:
        """Whether what was predicted is to be believed after what probed trials showed.

        It is while it is likelier to hold than to say nothing. If it holds, a trial's slowness is
        taken to be what was predicted for it times the correlation that is to be expected, give or
        take a standard deviation, both in deviations from their means. As much correlation is
        expected as both say about the end, so early losses that say little hardly contradict
        anything; where earlier studies don't show how much that is, it is twice `AGREES`.

        Args:
            predicted: for each trial.
            slowness: as of `good_soon.slowness_of`.
            shares: how far each is.
        """
        if len(predicted) < TOLD_APART or np.ptp(predicted) == 0:
            return False
        if np.ptp(slowness) == 0:
            return True  # They showed nothing.
        expected: float | Floats = 2 * AGREES
        if self.history:
            expected = self.history * np.maximum(np.interp(shares, SHARES, self.losses), 0.0)
        by_place = expected * _standard(predicted)
        return bool(LIKELY + by_place @ (_standard(slowness) - by_place / 2) >= 0)

    def of_loss(self, share: float) -> float:
        """What a loss at this share of a trial's length counts, beside what was predicted: 0 to 1.

        Two signs that err independently of each other count as r / (1 - r^2).
        """
        told = float(np.interp(share, SHARES, self.losses))
        loss, predicted = _counts(told), _counts(self.history)
        return loss / (loss + predicted) if predicted else 1.0


def _standard(values: Floats) -> Floats:
    """In standard deviations from their mean."""
    away = values - values.mean()
    return np.asarray(away / math.sqrt(away @ away / len(away)))


def _counts(correlation: float) -> float:
    known = min(max(correlation, 0.0), SURE)
    return known / (1 - known**2)


@lru_cache(maxsize=16)
def reliability_of(earlier: tuple[Earlier, ...], ran_before: bool = True) -> Reliability:
    """How reliable both are where these are the earlier studies.

    A single one says nothing of whether its order holds for another.

    Args:
        ran_before: whether the new trials have settings that ran before. Where they don't, what the
            same settings came to elsewhere would say too much of how well a study is predicted.
    """
    known = learned(earlier)
    few = [(study.trials, found) for study in known.studies if (found := ends(study))]
    if known.kernel is None or len(few) < 2:
        return Reliability()
    rows = known.rows([trial.spec for trials, _ in few for trial in trials])
    values = np.array([value for _, found in few for value in found])
    studies = np.repeat(np.arange(len(few)), [len(found) for _, found in few])
    predicted, losses = [], []
    for place, (trials, _) in enumerate(few):
        own = studies == place
        asked, seen = rows.of(own), rows.of(~own)
        alike = ran_before & (asked.settings[:, None] == seen.settings[None, :])
        same = Same(alike.sum(axis=1), alike @ values[~own])
        guesses = known.kernel.regression(seen, values[~own], asked, same)
        predicted.append(rank_correlation(guesses, values[own]))
        losses.append(
            [rank_correlation(_losses_at(trials, share), values[own]) for share in SHARES]
        )
    history = float(np.mean(predicted))
    told = tuple(np.mean(losses, axis=0).tolist())
    weighed = history >= AGREES and _counts(history) >= LEAST * _counts(told[0])
    return Reliability(told, history if weighed else 0.0)


def _losses_at(trials: Sequence[Trial], share: float) -> Floats:
    """Each trial's loss then; a curve that is kept coarsely shows it a little later."""
    found = []
    for trial in trials:
        end = bisect_left(trial.curve, share * trial.step, key=lambda chunk: chunk.last_step)
        found.append(settled(trial.curve[: end + 1]))
    return np.array(found)
