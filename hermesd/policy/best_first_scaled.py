"""Best first for studies whose trials may report losses on different scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.plugins import require
from hermesd.core.policy import Claim, View
from hermesd.core.trial import Trial
from hermesd.policy.best_first import BestFirst
from hermesd.policy.curve import start_loss

# Fewer start losses than these say nothing about scales.
ENOUGH = 4


@dataclass(frozen=True, slots=True)
class BestFirstScaled:
    """`best_first`, by the loss over a trial's first one where first losses differ too much.

    They do if the largest is more than `spread` times the smallest, leaving out a tenth at either
    end. This must see the whole study at each decision, which `best_first` need not: it costs
    time in proportion to the number of trials.
    """

    name: ClassVar[str] = "best_first_scaled"
    probe_share: float = 0.02
    spread: float = 3.0

    def __post_init__(self) -> None:
        BestFirst(self.probe_share)
        require(1 <= self.spread < math.inf, "spread", self.spread, "1 or more")

    def plan(self, view: View) -> Sequence[Claim]:
        """Every candidate, in the order of `best_first` on the scale that is right now."""
        relative = differ([*view.trials, *view.finished], self.spread)
        order = BestFirst(self.probe_share, good=0.0, scale="relative" if relative else "absolute")
        candidates = [trial for trial in view.trials if trial.candidate]
        return [
            Claim(trial.id, order.quantum(trial, view.facts), order.words(trial))
            for trial in sorted(candidates, key=order.score)
        ]

    def words(self, trial: Trial) -> str:
        order = BestFirst(self.probe_share, good=0.0)
        if not order.probed(trial):
            return order.words(trial)
        return f"{order.words(trial)}, at first {start_loss(trial):.4g}"


def differ(trials: Sequence[Trial], spread: float) -> bool:
    """Whether the first losses of these trials differ by more than `spread` times."""
    sizes = sorted(abs(start_loss(trial)) for trial in trials if trial.curve)
    sizes = [size for size in sizes if 0 < size < math.inf]
    if len(sizes) < ENOUGH:
        return False
    tail = len(sizes) // 10
    return sizes[-1 - tail] > spread * sizes[tail]
