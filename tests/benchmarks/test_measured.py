"""Measured speeds of trainings with parameter servers, and jobs that are as fast as that."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.elastic.cluster import compared
from benchmarks.elastic.measured import read
from hermesd.refusal import Refused

LINES = """\
('net', 'dist_sync', 10, 1, 1, [20.0], [1.9], [0.5])
('net', 'dist_sync', 10, 1, 3, [10.0, 20.0, 10.0], [1.9], [0.5, 0.5, 0.5])
('net', 'dist_sync', 10, 3, 1, [60.0], [1.9], [0.5])
('net', 'dist_sync', 10, 3, 3, [0.0, 0.0, 0.0], [0.0], [0.0])
"""


@pytest.fixture
def speeds(tmp_path: Path) -> Path:
    path = tmp_path / "speeds.txt"
    path.write_text(LINES)
    return path


def test_between_what_was_measured_a_speed_is_linear_and_beyond_it_the_last(speeds: Path) -> None:
    net = read(speeds)["net"]
    assert [net(workers, 1) for workers in (1, 2, 3, 4)] == pytest.approx([2.0, 3.0, 4.0, 4.0])
    assert [net(1, servers) for servers in (1, 2, 3, 9)] == pytest.approx([2.0, 4.0, 6.0, 6.0])
    assert net(3, 3) == pytest.approx(6.0), "a run that failed was taken for a speed of nothing"


@pytest.mark.parametrize("line", ["('net', 'dist_sync', 0, 1, 1, [1.0])", "what, 1", "('net',"])
def test_a_line_that_is_no_speed_is_refused_by_its_number(speeds: Path, line: str) -> None:
    speeds.write_text(LINES + line)
    with pytest.raises(Refused, match=r"speeds\.txt: line 5 = .*expected \('model'"):
        read(speeds)


def test_jobs_of_measured_speeds_come_to_their_ends_under_every_allocation(speeds: Path) -> None:
    rows = compared(3, 1, read(speeds))
    assert [row[1] for row in rows][:2] == ["optimus", "drf"]
    for row in rows:
        assert all(isinstance(each, float) and each > 0 for each in row[2:])
