"""Who reaches a share of the drop, and when, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.research.premise import COLUMNS, premise, row, table
from hermesd.refusal import Refused
from hermesd.sim.curves import Curves, Switch
from tests.simulate.small import job

# From 10 to 0 the half is 5: the first gets there with its second iteration, the second with its
# fourth, the third never.
CURVES = Curves(
    "three", (job([10, 4, 2, 0]), job([10, 9, 6, 5]), job([12, 9, 8, 7])), Switch(0, 0, 0)
)


def test_who_gets_half_way_and_when() -> None:
    found = premise(CURVES, 0.5)
    assert (found.goal, found.trials, found.reached) == (5.0, 3, (2, 4))
    assert [found.by(step) for step in (1, 2, 3, 4)] == [0.0, 0.5, 0.5, 1.0]
    assert premise(CURVES, 0.9).reached == (4,)
    assert premise(CURVES, 0.1).reached == (2, 2, 2)


def test_classes_are_shares_of_those_that_get_there() -> None:
    told = dict(zip(COLUMNS, row("three", 0.5, premise(CURVES, 0.5), 2, 3), strict=True))
    assert (told["fast"], told["moderate"], told["slow"]) == (0.5, 0.0, 0.5)
    assert (told["reached"], told["p50"], told["share"]) == (2 / 3, 3.0, "50%")
    later = dict(zip(COLUMNS, row("three", 0.5, premise(CURVES, 0.5), 3, 4), strict=True))
    assert (later["fast"], later["moderate"], later["slow"]) == (0.5, 0.5, 0.0)


def test_an_archive_is_looked_at_to_its_very_end(tmp_path: Path) -> None:
    """A simulated job is its first thousand iterations; here the last of 1,200 makes the goal."""
    path = tmp_path / "late.npz"
    base = np.full((2, 1_200), 10.0, dtype=np.float32)
    base[:, -40:] = 0.0
    seconds, settings = np.ones(2), np.array([[0, 16, 1e-3, 0.01]] * 2)
    np.savez(path, base=base, step_s=seconds, cfg=settings, meta=json.dumps({"opts": ["sgd"]}))
    (told,) = (dict(zip(COLUMNS, each, strict=True)) for each in table([path], [0.5], 500, 1_000))
    # Half of the smoothing's twenty iterations after the fall.
    assert (told["p50"], told["slow"], told["by_1000"]) == (1_170.0, 1.0, 0.0)


def test_a_file_that_is_no_curves_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="a file of recorded curves"):
        table([tmp_path / "missing.npz"], [0.5], 500, 1_000)
