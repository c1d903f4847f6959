"""Best first, with the probes ordered by a model of the loss over the hyper-parameters.

After a few probes a ridge regression on the trials' parameters predicts what the others would
show. The unprobed trial with the best prospects is probed next, unless even its prospects are
worse than the best trial that waits: then that one trains on.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hermesd.core.model import Scalar, TrialId
from hermesd.core.plugins import require
from hermesd.core.policy import Claim, View
from hermesd.core.trial import Trial
from hermesd.policy.best_first import BestFirst
from hermesd.policy.curve import loss_or_inf, start_loss

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int64]

# A number with more values than this in the study is told apart by that many bands of its rank.
BANDS = 8
# The regression's cost grows with the cube of the probes: it learns from so many at most.
MOST_PROBES = 200
# What a pair of values counts beside a single one.
PAIR = 0.1
# z = log(LEAST + share of the way from the best loss to a typical first loss, 0 to MOST).
LEAST, MOST = 0.05, 3.0


class Prospect(NamedTuple):
    """What a trial would show if it was probed: a z, lower is better, and its uncertainty."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Guided:
    """`best_first`, but probes by prospect: the least mean - `caution` x deviation first.

    The first `first_probes` go in order of submission. A trial whose prospect exceeds the z of the
    best waiting trial by more than `margin` is not probed before that one has trained on. `ridge`
    is the penalty of the regression, on the parameters' values and on each pair of them.
    """

    name: ClassVar[str] = "guided"
    probe_share: float = 0.02
    first_probes: int = 4
    caution: float = 1.0
    margin: float = 0.05
    ridge: float = 0.5

    def __post_init__(self) -> None:
        BestFirst(self.probe_share)
        require(self.first_probes >= 2, "first_probes", self.first_probes, "2 or more")
        require(0 <= self.caution < math.inf, "caution", self.caution, "0 or more")
        require(math.isfinite(self.margin), "margin", self.margin, "a finite number")
        require(0 < self.ridge < math.inf, "ridge", self.ridge, "a number above 0")

    def plan(self, view: View) -> Sequence[Claim]:
        """Promising probes, then the probed by loss, then the probes that promise too little."""
        order = BestFirst(self.probe_share, good=0.0)
        everyone = [*view.trials, *view.finished]
        probed = [trial for trial in everyone if order.probed(trial)]
        candidates = [trial for trial in view.trials if trial.candidate]
        known = sorted((t for t in candidates if order.probed(t)), key=loss_or_inf)
        unknown = [trial for trial in candidates if not order.probed(trial)]
        if len(probed) < self.first_probes or not unknown:
            return [
                Claim(trial.id, order.quantum(trial, view.facts), order.words(trial))
                for trial in (*unknown, *known)
            ]
        z = standings(probed)
        prospects = self._prospects(everyone, probed, z, unknown)
        bounds = {t.id: p.mean - self.caution * p.deviation for t, p in prospects}
        best = min((z[trial.id] for trial in known), default=math.inf)
        unknown.sort(key=lambda trial: bounds[trial.id])
        worth = bisect_right(unknown, best + self.margin, key=lambda trial: bounds[trial.id])
        claims = []
        for trial in (*unknown[:worth], *known, *unknown[worth:]):
            words = order.words(trial)
            if trial.id in bounds:
                words = f"{words}, prospect {bounds[trial.id]:.3g} against {best:.3g}"
            claims.append(Claim(trial.id, order.quantum(trial, view.facts), words))
        return claims

    def words(self, trial: Trial) -> str:
        return BestFirst(self.probe_share).words(trial)

    def _prospects(
        self,
        everyone: Sequence[Trial],
        probed: Sequence[Trial],
        z: dict[TrialId, float],
        unknown: Sequence[Trial],
    ) -> list[tuple[Trial, Prospect]]:
        """What the regression on the probed trials expects of the unknown ones."""
        place = {trial.id: row for row, trial in enumerate(everyone)}
        table = codes(everyone)
        thinned = probed[:: 1 + (len(probed) - 1) // MOST_PROBES]
        seen = table[[place[trial.id] for trial in thinned]]
        asked = table[[place[trial.id] for trial in unknown]]
        values = np.array([z[trial.id] for trial in thinned])
        return list(zip(unknown, regression(seen, values, asked, self.ridge), strict=True))


def standings(probed: Sequence[Trial]) -> dict[TrialId, float]:
    """z = log(.05 + clip((loss - best) / (typical first loss - best), 0, 3)), of each."""
    losses = [loss_or_inf(trial) for trial in probed]
    best = min(losses)
    begins = [loss for loss in map(start_loss, probed) if math.isfinite(loss)]
    span = median(begins) - best if begins and math.isfinite(best) else 0.0
    if span <= 0:
        return {trial.id: 0.0 for trial in probed}
    shares = ((loss - best) / span for loss in losses)
    return {
        trial.id: math.log(LEAST + min(MOST, max(0.0, share)))
        for trial, share in zip(probed, shares, strict=True)
    }


def codes(trials: Sequence[Trial]) -> Codes:
    """Each trial's parameters as whole numbers, equal where values are (or lie in one band)."""
    rows = [dict(trial.spec.parameters) for trial in trials]
    names = sorted({name for row in rows for name in row})
    columns = [_coded([row.get(name, "") for row in rows]) for name in names]
    return np.array(columns, dtype=np.int64).reshape(len(names), len(rows)).T


def _coded(values: Sequence[Scalar]) -> list[int]:
    """One parameter's values as whole numbers."""
    distinct = {str(value): value for value in values}
    numbers = sorted(float(v) for v in distinct.values() if not isinstance(v, bool | str))
    if len(distinct) <= BANDS or len(numbers) < len(distinct):
        number = {text: code for code, text in enumerate(sorted(distinct))}
        return [number[str(value)] for value in values]
    return [bisect_right(numbers, float(value)) * BANDS // (len(numbers) + 1) for value in values]


def regression(seen: Codes, z: Floats, asked: Codes, ridge: float) -> list[Prospect]:
    """Ridge regression on one-hot values and on all pairs of them, in its dual form.

    The deviation is that of the Bayesian reading, with the prior's size such that it explains the
    variance of `z`.
    """
    own = float(_kernel_of(np.array(float(seen.shape[1]))))
    inverse = np.linalg.inv(_kernel(seen, seen) + ridge * np.eye(len(seen)))
    across = _kernel(asked, seen)
    mean = float(z.mean())
    means = mean + across @ inverse @ (z - mean)
    size = float(z.var()) / (own + ridge)
    explained = ((across @ inverse) * across).sum(axis=1)
    deviations = np.sqrt(size * np.maximum(own - explained, 0.0))
    return [Prospect(float(m), float(d)) for m, d in zip(means, deviations, strict=True)]


def _kernel(left: Codes, right: Codes) -> Floats:
    """How alike each pair of rows is."""
    agree = np.zeros((len(left), len(right)))
    for column in range(left.shape[1]):
        agree += left[:, column][:, None] == right[:, column][None, :]
    return _kernel_of(agree)


def _kernel_of(agree: Floats) -> Floats:
    """Trials that agree in s parameters share s values and s (s - 1) / 2 pairs of values.

    That is the product of their one-hot features, which are never written down.
    """
    return agree + PAIR * agree * (agree - 1) / 2
