"""How many steps a trial has left, by its loss curve (Optimus, EuroSys 2018).

SGD converges as 1 / k, so the loss is taken to be `l(k) = 1 / (b0 k + b1) + b2`, all at least 0.
For a given b2 that is a line, `1 / (l - b2) = b0 k + b1`: b2 is scanned, b0 and b1 are found by
non-negative least squares (`curve.fit_inverse`). Losses divided by the largest would have the same
fit, divided likewise; what must be so divided is the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hermesd.core.losses import Chunk
from hermesd.core.trial import Trial
from hermesd.policy.curve import InverseFit, fit_inverse, steps_of

# A trial that has less than this share of its steps behind it has hardly begun.
YOUNG_SHARE = 0.05


class StepsLeft(NamedTuple):
    """How many steps a trial has left: Q in the paper."""

    #: Infinite where nothing is known.
    steps: float
    #: Whether it has converged already: then `steps` are those to its planned end.
    converged: bool

    def young(self, step: int) -> bool:
        """Whether a trial that is at this step has hardly begun."""
        return step < YOUNG_SHARE * (step + self.steps)


def steps_left(
    trial: Trial, threshold: float = 0.001, epoch: float = 0.01, epochs: int = 3
) -> StepsLeft:
    """The steps until a trial converges or ends, whichever comes first.

    Args:
        trial: its whole curve is fitted anew.
        threshold: it converges when an epoch's drop is below this share of the largest loss ...
        epoch: ... (a share of its length up to 1, a number of steps above) ...
        epochs: ... in so many epochs in a row.

    Returns:
        Q; to the planned end where the curve has no fit.
    """
    planned = math.inf if trial.planned_steps is None else trial.planned_steps
    to_end = max(0.0, planned - trial.step)
    fit = fit_inverse(without_outliers(trial.curve), floor_from_zero=True)
    if fit is None:
        return StepsLeft(to_end, False)
    largest = max(abs(chunk.mean) for chunk in trial.curve if math.isfinite(chunk.mean))
    steps = steps_of(epoch, trial.planned_steps)
    settles = settles_at(fit, threshold * largest, steps) + epochs * steps
    if settles <= trial.step:
        return StepsLeft(to_end, True)
    return StepsLeft(min(settles - trial.step, to_end), False)


def settles_at(fit: InverseFit, drop: float, epoch: int) -> float:
    """The step from which on the fitted loss falls by less than `drop` an epoch.

    With x = slope k + offset and e = slope epoch, 1/x - 1/(x + e) = drop is a square equation of
    x; its positive root is where the drop is met.
    """
    if fit.slope == 0:
        return 0.0
    e = fit.slope * epoch
    root = (math.sqrt(e * e + 4 * e / drop) - e) / 2
    return max(0.0, (root - fit.offset) / fit.slope)


def without_outliers(curve: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The curve with each mean outside its neighbors' range replaced by their average.

    Two on either side are its neighbors; the first and the last two are left as they are.
    """
    smooth = list(curve)
    for place in range(2, len(curve) - 2):
        around = [curve[place + by].mean for by in (-2, -1, 1, 2)]
        chunk = curve[place]
        if not min(around) <= chunk.mean <= max(around):
            smooth[place] = chunk._replace(total=sum(around) / 4 * chunk.size)
    return tuple(smooth)
