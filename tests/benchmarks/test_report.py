"""A benchmark that was cut short goes on, and only with what was measured alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.report import Figures


def test_what_was_measured_outlives_its_process(tmp_path: Path) -> None:
    first = Figures("long", {"iterations": 9}, resume=False, out=tmp_path)
    assert first.get("vgg/park/0") is None
    first.keep("vgg/park/0", {"suspend": 0.5})
    again = Figures("long", {"iterations": 9}, resume=True, out=tmp_path)
    assert again.get("vgg/park/0") == {"suspend": 0.5}
    assert again.get("vgg/park/1") is None


def test_without_resume_all_is_measured_anew(tmp_path: Path) -> None:
    Figures("long", {}, resume=False, out=tmp_path).keep("a", {"seconds": 1.0})
    assert Figures("long", {}, resume=False, out=tmp_path).get("a") is None


def test_what_was_measured_otherwise_is_refused_by_what_differs(tmp_path: Path) -> None:
    Figures("long", {"iterations": 9}, resume=False, out=tmp_path).keep("a", {"seconds": 1.0})
    with pytest.raises(SystemExit, match="iterations=9, now iterations=10; leave --resume out"):
        Figures("long", {"iterations": 10}, resume=True, out=tmp_path)


def test_a_kill_amid_writing_leaves_what_was_whole(tmp_path: Path) -> None:
    kept = Figures("long", {}, resume=False, out=tmp_path)
    kept.keep("a", {"seconds": 1.0})
    (tmp_path / "long.figures.new").write_text(json.dumps({"about": {}})[:5])
    assert Figures("long", {}, resume=True, out=tmp_path).get("a") == {"seconds": 1.0}
