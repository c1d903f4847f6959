"""Recorded trainings: the loss of every iteration and how long one takes.

Two layouts of numpy archives are read. Trainings: `base` (the data's loss) and `total` (with the
penalty) [N, T], `step_s` [N] seconds an iteration. Logged runs: `loss` [N, K] on a grid of K
points with NaN after a run's end, `length` [N] points that count, `sec_per_step` [N].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Recording:
    """One training; `losses[i]` is what iteration i + 1 reported."""

    losses: Sequence[float]
    step_seconds: float

    @property
    def steps(self) -> int:
        return len(self.losses)


def read(path: Path, loss: str = "base") -> list[Recording]:
    """Every training of an archive; `loss` chooses between `base` and `total`.

    Raises:
        ValueError: the file has neither layout.
        OSError: it cannot be read.
    """
    with np.load(path, allow_pickle=False) as file:
        if "step_s" in file and loss in file:
            curves, seconds = file[loss], file["step_s"]
            lengths = np.full(len(curves), curves.shape[1])
        elif "sec_per_step" in file:
            curves, seconds, lengths = file["loss"], file["sec_per_step"], file["length"]
        else:
            raise ValueError(f"{path}: neither trainings ({loss}, step_s) nor logged runs")
    return [
        Recording(tuple(map(float, curve[: int(length)])), float(each))
        for curve, each, length in zip(curves, seconds, lengths, strict=True)
    ]
