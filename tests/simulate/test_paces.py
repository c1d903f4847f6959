"""How fast trials were, with what came before their iterations and after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermesd.core.events import Reported, RunCompleted
from hermesd.core.model import RunId
from hermesd.sim.compare import read
from hermesd.sim.curves import Job, Switch
from tests.core.playbook import study
from tests.simulate.study_exports import entry, exported, points, trial, with_stages


def reported(number: int, at: float, step: int, busy: float, attempt: int = 1) -> dict[str, Any]:
    return entry(at, Reported(RunId(f"s/{number}", attempt), step, (), busy_seconds=busy))


def completed(number: int, at: float, step: int) -> dict[str, Any]:
    return entry(at, RunCompleted(RunId(f"s/{number}", 1), step))


def curve(number: int, steps: int) -> dict[str, Any]:
    return points(number, 1, list(range(1, steps + 1)), [1.0] * steps)


def jobs(path: Path, sizes: dict[int, tuple[int, float]], *lines: dict[str, Any]) -> list[Job]:
    trials = [with_stages(trial(n, steps, busy=busy)) for n, (steps, busy) in sizes.items()]
    curves = [curve(n, steps) for n, (steps, _) in sizes.items()]
    return list(read(exported(path / "s.jsonl", study(), trials, *lines, *curves)).jobs)


def test_what_the_first_iteration_takes_more_is_told_apart(tmp_path: Path) -> None:
    """Ten iterations of 0.1 s, the first of which takes 0.7 s more."""
    lines = [reported(0, 2.0, 3, 1.0), reported(0, 2.7, 10, 0.7)]
    (job,) = jobs(tmp_path, {0: (10, 1.7)}, *lines)
    assert (job.step_seconds, job.opening_seconds) == pytest.approx((0.1, 0.7))


def test_what_follows_a_pass_is_told_apart(tmp_path: Path) -> None:
    """40 iterations of 0.1 s, in passes of 10 that are followed by half a second."""
    busy = [(3, 1.0), (8, 0.5), (15, 1.2), (19, 0.4), (26, 1.2), (33, 1.2), (40, 1.2)]
    lines = [reported(0, step / 10, step, seconds) for step, seconds in busy]
    told = points(0, 1, [10, 20, 30, 40], [4.0, 3.0, 2.0, 1.0])
    trials = [with_stages(trial(0, 40, busy=6.7))]
    (job,) = read(exported(tmp_path / "s.jsonl", study(), trials, *lines, told)).jobs
    assert job.passes == pytest.approx((10, 0.5))
    assert (job.step_seconds, job.opening_seconds) == pytest.approx((0.1, 0.7))


def test_passes_that_are_not_told_apart_are_part_of_all_iterations(tmp_path: Path) -> None:
    """Reports at the ends of passes do not say whether what follows is in them."""
    lines = [reported(0, step / 10, step, 1.5) for step in (10, 20, 30, 40)]
    told = points(0, 1, [10, 20, 30, 40], [4.0, 3.0, 2.0, 1.0])
    trials = [with_stages(trial(0, 40, busy=6.0))]
    (job,) = read(exported(tmp_path / "s.jsonl", study(), trials, *lines, told)).jobs
    assert job.passes.seconds == 0
    assert (job.step_seconds, job.opening_seconds) == pytest.approx((0.15, 0.0))


def test_a_trial_with_one_report_has_the_usual_opening(tmp_path: Path) -> None:
    lines = [reported(0, 2.0, 3, 1.0), reported(0, 2.7, 10, 0.7), reported(1, 5.0, 5, 1.2)]
    _, short, brief = jobs(tmp_path, {0: (10, 1.7), 1: (5, 1.2), 2: (2, 0.5)}, *lines)
    assert (short.step_seconds, short.opening_seconds) == pytest.approx((0.1, 0.7))
    assert (brief.step_seconds, brief.opening_seconds) == pytest.approx((0.25, 0.0))


def test_an_opening_is_never_negative_and_nothing_measured_is_lost(tmp_path: Path) -> None:
    lines = [reported(0, 2.0, 5, 0.2), reported(0, 3.0, 10, 0.8)]
    (job,) = jobs(tmp_path, {0: (10, 1.0)}, *lines)
    assert (job.step_seconds, job.opening_seconds) == pytest.approx((0.1, 0.0))


def test_a_report_of_a_later_stay_says_nothing_of_the_opening(tmp_path: Path) -> None:
    lines = [reported(0, 2.0, 3, 1.0, attempt=2), reported(0, 2.7, 10, 0.7, attempt=2)]
    (job,) = jobs(tmp_path, {0: (10, 1.7)}, *lines)
    assert (job.step_seconds, job.opening_seconds) == pytest.approx((0.17, 0.0))


def test_a_trial_without_reports_has_the_usual_pace(tmp_path: Path) -> None:
    lines = [reported(0, 2.0, 3, 1.0), reported(0, 2.7, 10, 0.7)]
    _, silent = jobs(tmp_path, {0: (10, 1.7), 1: (4, 0.0)}, *lines)
    assert (silent.step_seconds, silent.opening_seconds) == pytest.approx((0.1, 0.7))


def test_an_end_takes_from_the_last_report_to_the_completion(tmp_path: Path) -> None:
    lines = [
        reported(0, 2.0, 3, 1.0), reported(0, 2.7, 10, 0.7), completed(0, 2.9, 10),
        reported(1, 4.0, 10, 1.0), completed(1, 4.4, 10),
    ]  # fmt: skip
    trials = [with_stages(trial(n, 10, busy=1.0)) for n in (0, 1)]
    path = exported(tmp_path / "s.jsonl", study(), trials, *lines, curve(0, 10), curve(1, 10))
    assert read(path).switch.ending == pytest.approx(0.3)


def test_a_switch_that_was_never_measured_takes_a_park_where_all_devices_are_cores(
    tmp_path: Path,
) -> None:
    def device(kind: str) -> dict[str, Any]:
        return {"type": "device", "device": {"id": f"n/{kind}", "kind": kind}}

    lines = [curve(0, 4), device("cpu")]
    trials = [with_stages(trial(0, 4, busy=1.0))]
    on_cores = read(exported(tmp_path / "a.jsonl", study(), trials, *lines)).switch
    assert on_cores.leaving + on_cores.resuming == pytest.approx(0.015)
    elsewhere = exported(tmp_path / "b.jsonl", study(), trials, *lines, device("a gpu"))
    assert read(elsewhere).switch == Switch.split(1.0)
