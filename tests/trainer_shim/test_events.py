"""Events wait until they are acknowledged; only reports are ever merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer_shim import report, wire
from trainer_shim.events import MAX_REPORTS_WAITING, EventLog


def reported(first: int, last: int, points: int = 1, width: int = 1) -> dict[str, Any]:
    listed = [[last, {f"m{i}": 0.123456789 for i in range(width)}] for _ in range(points)]
    losses = [1.0 / step for step in range(first, last + 1)]
    return {
        "first_step": first,
        "last_step": last,
        "count": last - first + 1,
        "points": listed,
        "signal": report.summarise(losses),
        "busy_seconds": 1.0,
        "examples": 8,
        "memory_bytes": 100 + last,
        "cpu_seconds": 0.5,
    }


def test_acknowledged_events_are_forgotten_and_outcomes_are_on_disk(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    log.append("started", 1)
    done = log.append("completed", 1, step=3)
    log.append("started", 2)
    log.ack(2)
    assert [event["seq"] for event in log.after(0)] == [3]
    lines = (tmp_path / "events.jsonl").read_text().split("\n")
    assert [json.loads(line) for line in lines if line] == [done]
    log.close()


def test_many_reports_are_merged_without_losing_a_step_or_an_outcome(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    steps = 5 * MAX_REPORTS_WAITING
    for step in range(1, steps + 1):
        log.append("reported", 1, **reported(step, step))
        if step % 1500 == 0:
            log.append("parked", 1, step=step)
    waiting = log.after(0)
    reports = [event for event in waiting if event["kind"] == "reported"]
    assert len(reports) <= MAX_REPORTS_WAITING
    assert [event["step"] for event in waiting if event["kind"] == "parked"] == [1500, 3000, 4500]
    assert [event["seq"] for event in waiting] == sorted(event["seq"] for event in waiting)
    reached = 0
    for event in reports:
        assert event["first_step"] == reached + 1
        assert event["count"] == event["last_step"] - reached == event["signal"]["count"]
        assert event["signal"]["last"] == event["signal"]["min"] == 1.0 / event["last_step"]
        assert event["busy_seconds"] == event["count"]
        reached = event["last_step"]
    assert reached == steps
    log.close()


def test_reports_that_would_not_fit_one_frame_stay_apart(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    for step in range(1, MAX_REPORTS_WAITING + 2):
        log.append("reported", 1, **reported(step, step, points=60, width=40))
    assert len(log.after(0)) == MAX_REPORTS_WAITING + 1
    for event in log.after(0):
        assert wire.encode(event)
    log.close()
