"""A benchmark that was cut short goes on, and only with what was measured alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.report import Figures, digest, must_agree
from benchmarks.research import table2


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


def test_a_table_is_of_everything_measured_also_before(tmp_path: Path) -> None:
    """A night for one network, another for the next; the second pair of a third night."""
    pair = {"usual": 1.0, "suspend": 0.5, "resume": 1.5}
    nights = ("resnet50/2021/0", "vgg16/park/0", "resnet50/2021/1")
    for night, key in enumerate(nights):
        Figures("long", {}, resume=night > 0, out=tmp_path).keep(key, pair)
    found = table2.rows(1000, Figures("long", {}, resume=True, out=tmp_path))
    assert [row[:4] for row in found] == [["resnet50", "2021", 2, 1.0], ["vgg16", "park", 1, 1.0]]
    assert found[0][6] == found[0][7] == pytest.approx(2 / 1002 * 100)


def test_another_program_or_framework_is_not_the_same_measurement() -> None:
    said = table2.settings(1000)
    assert said.keys() >= {"iterations", "program", "keras", "tensorflow", "numpy"}
    assert digest("one program") != digest("another program")


def test_nothing_differs_in_silence(tmp_path: Path) -> None:
    """What is there on one side alone differs, too."""
    must_agree(tmp_path, {"cores": 2}, {"cores": 2}, "")
    with pytest.raises(SystemExit, match="with keras=None, now keras=3; move it away"):
        must_agree(tmp_path, {"cores": 2}, {"cores": 2, "keras": "3"}, "move it away")


def test_a_kill_amid_writing_leaves_what_was_whole(tmp_path: Path) -> None:
    kept = Figures("long", {}, resume=False, out=tmp_path)
    kept.keep("a", {"seconds": 1.0})
    (tmp_path / "long.figures.json.new").write_text(json.dumps({"about": {}})[:5])
    assert Figures("long", {}, resume=True, out=tmp_path).get("a") == {"seconds": 1.0}
