"""Recordings are read from both layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hermesd.sim.curves import Recording, read


def test_trainings_have_two_losses(tmp_path: Path) -> None:
    base = np.array([[3.0, 2.0], [5.0, 4.0]], dtype=np.float32)
    np.savez(tmp_path / "t.npz", base=base, total=base + 1, step_s=np.array([0.5, 0.25]))
    assert read(tmp_path / "t.npz") == [
        Recording((3.0, 2.0), 0.5),
        Recording((5.0, 4.0), 0.25),
    ]
    assert read(tmp_path / "t.npz", "total")[0].losses == (4.0, 3.0)


def test_logged_runs_end_where_their_length_says(tmp_path: Path) -> None:
    loss = np.array([[3.0, 2.0, np.nan], [5.0, 4.0, 1.0]])
    np.savez(
        tmp_path / "l.npz", loss=loss, length=np.array([2, 3]), sec_per_step=np.array([2.0, 1.0])
    )
    first, second = read(tmp_path / "l.npz")
    assert first == Recording((3.0, 2.0), 2.0)
    assert second.steps == 3


def test_another_file_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match="neither trainings"):
        read(tmp_path / "x.npz")
