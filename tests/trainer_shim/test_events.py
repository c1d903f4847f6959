"""Events wait until they are acknowledged; only reports are ever merged."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

from trainer_shim import reporting
from trainer_shim.channel import frames
from trainer_shim.host.event_log import MAX_REPORTS_WAITING, EventLog


def reported(first: int, last: int, points: int = 1, width: int = 1) -> dict[str, Any]:
    listed = [[last, {f"m{i}": 0.123456789 for i in range(width)}] for _ in range(points)]
    losses = [1.0 / step for step in range(first, last + 1)]
    return {
        "first_step": first,
        "last_step": last,
        "count": last - first + 1,
        "points": listed,
        "signal": reporting.summarize(losses),
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


def on_disk(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text().split("\n")
    return [json.loads(line) for line in lines if line]


def test_a_checkpoint_is_named_after_the_reports_that_it_rests_on(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    reporting = log.append("reported", 1, **reported(1, 9))
    log.write_down(1, "a1-s9")
    log.write_down(1, "a1-s9b")
    names = [{"kind": "saving", "attempt": 1, "id": id} for id in ("a1-s9", "a1-s9b")]
    assert on_disk(tmp_path) == [reporting, *names], "no report is there twice"
    log.close()


def test_what_is_not_acknowledged_of_a_run_is_on_disk_before_its_outcome(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    log.append("reported", 1, **reported(1, 9))
    log.append("reported", 2, **reported(10, 10))
    known = log.append("reported", 2, **reported(11, 11))
    reports = [log.append("reported", 2, **reported(step, step)) for step in (12, 13)]
    log.append("parked", 2, step=13)
    log.ack(known["seq"])
    done = log.append("completed", 2, step=13)
    assert on_disk(tmp_path) == [*reports, done]
    again = log.append("suspended", 2, step=13)
    assert on_disk(tmp_path) == [*reports, done, again], "nothing is there twice"
    log.close()


def test_the_file_is_bounded_and_has_the_newest(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    largest = 0
    for attempt in range(1, 6):
        for step in range(1, 251):
            log.append("reported", attempt, **reported(step, step, points=60, width=40))
        done = log.append("suspended", attempt, step=250)
        *reports, last = (event for event in on_disk(tmp_path) if event["attempt"] == attempt)
        assert last == done
        assert [event["last_step"] for event in reports] == list(range(251 - len(reports), 251)), (
            "the newest, without a gap"
        )
        log.ack(done["seq"])
        largest = max(largest, (tmp_path / "events.jsonl").stat().st_size)
    assert largest < 17 << 20
    log.close()


def test_a_disk_with_room_for_the_outcome_alone_has_the_outcome(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    first = log.append("suspended", 1, step=0)
    for step in range(1, 50):
        log.append("reported", 2, **reported(step, step))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        done = log.append("completed", 2, step=49)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert on_disk(tmp_path) == [first, done]
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
        assert frames.encode(event)
    log.close()
