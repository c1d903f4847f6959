"""All kinds of curves in one table, each file beside its kind, and what was measured is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import Figures
from benchmarks.research import kinds
from benchmarks.research.kinds import COLUMNS
from hermesd.sim.rows import geometric
from tests.simulate.small import trainings


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("curves")
    names = ("one", "two", "taskset_three")
    return [
        trainings(folder / f"{name}.npz", trials=40, steps=40, seed=seed)
        for seed, name in enumerate(names, 5)
    ]


def test_a_files_name_says_its_kind() -> None:
    names = {"m1d_res": "dev", "taskset_a": "text", "deepobs_b": "images", "algoperf_c": "large"}
    made = {"spirals": "small", "decayed": "long", "noisy": "hard"}
    assert {n: kinds.kind_of(Path(f"{n}.npz")) for n in names | made} == names | made


def test_a_kind_is_the_mean_of_its_files_and_the_history_of_each(files: list[Path]) -> None:
    assert [scene.history for scene in kinds.scenes(files, 1)][::2] == [
        tuple(files[:2]), tuple(files[:2]), tuple(files[2:]),
    ]  # fmt: skip
    found = {
        ("dev", "one", policy, 1): dict.fromkeys((*kinds.MEANS, "overhead"), by)
        for policy, by in (("asha", 2.0), ("best_first", 3.0))
    }
    found |= {("text", file, policy, n): row for (_, file, policy, n), row in found.items()}
    found["text", "one", "best_first", 1] = dict.fromkeys((*kinds.MEANS, "overhead"), 12.0)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in kinds.table(found, 7)]
    (of_all,) = (r for r in rows if r["kind"] == "all" and r["policy"] == "best_first")
    assert of_all["time_to_good"] == pytest.approx(geometric([3.0, 12.0]))
    assert of_all["over_asha"] == pytest.approx(geometric([1.5, 6.0]))
    assert of_all["overhead"] == pytest.approx(7.5)
    assert [(r["kind"], r["file"]) for r in rows[::2]] == [
        ("all", "all"), ("dev", "all"), ("text", "all"), ("dev", "one"), ("text", "one"),
    ]  # fmt: skip


def test_what_was_measured_is_not_measured_again(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"orders": 1}
    found = kinds.figures(files[:1], 1, 1, Figures("kinds", settings, False, tmp_path))
    assert found["dev", "one", "fifo", 1]["time_to_good"] == 1.0
    kept: dict[str, Any] = json.loads((tmp_path / "kinds.figures.json").read_text())["figures"]
    assert len(kept) == len(found) == len(kinds.DEVICES) * len(kinds.POLICIES.split(","))
    monkeypatch.setattr(kinds, "compare", None)
    assert kinds.figures(files[:1], 1, 1, Figures("kinds", settings, True, tmp_path)) == found
