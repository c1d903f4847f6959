"""Policies that read one loss of trials that overfit, and are judged by another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.research import curves, overfitting
from benchmarks.research.kinds import measured
from benchmarks.research.overfitting import COLUMNS, EACH_EPOCH, EPOCHS, TRAINING, VALIDATION
from hermesd.sim.compare import Recorded, Scene


def test_both_losses_are_of_the_same_runs_and_part_where_these_overfit() -> None:
    training, validation = overfitting.recorded(0)
    pairs = list(zip(training.jobs, validation.jobs, strict=True))
    assert all(one.steps == other.steps for one, other in pairs)
    assert all(one.step_seconds == other.step_seconds for one, other in pairs)

    def risen(smoothed: np.ndarray) -> float:
        return float(smoothed[-1] - smoothed.min())

    overfit = [pair for pair in pairs if risen(pair[1].smoothed) > 0.2]
    assert 16 <= len(overfit) <= len(pairs) / 2
    assert max(risen(one.smoothed) for one, _ in overfit) < 0.15
    assert all(one.smoothed[-1] < other.smoothed[-1] for one, other in overfit)


def test_a_loss_of_each_epoch_is_known_as_often_and_at_the_end() -> None:
    job = overfitting.each_epoch(overfitting.recorded(0)[1].jobs[0])
    assert job.points is not None
    assert len(job.points) == EPOCHS
    assert job.points[-1] == job.steps


def test_policies_read_another_loss_than_they_are_judged_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overfitting, "DEVICES", (1,))
    found = [dict(zip(COLUMNS, row, strict=True)) for row in overfitting.rows(2, 0)]
    to_good = {(row["reads"], row["policy"]): row["time_to_good"] for row in found}
    assert {to_good[reads, "fifo"] for reads in (TRAINING, VALIDATION, EACH_EPOCH)} == {1.0}
    assert len({to_good[reads, "best_first"] for reads in (TRAINING, VALIDATION, EACH_EPOCH)}) == 3
    scene = Scene(Recorded(curves.write(tmp_path, "overfitting", 0), "base", None), 1, 1, 16, 2, 0)
    simulated = measured(scene, overfitting.POLICIES, 1)
    for policy, figures in simulated.items():
        assert to_good[VALIDATION, policy] == figures["time_to_good"], "both read as usual"
