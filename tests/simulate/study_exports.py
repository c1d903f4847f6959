"""Exports of studies, written as a head writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hermesd.core.events import RunStarted
from hermesd.core.model import RunId, Stage, Study, TrialSpec
from hermesd.core.trial import Trial, Use
from hermesd.record import Entry, Form, encode

STUDY: Form[Study] = Form(Study)
TRIAL: Form[Trial] = Form(Trial)


def trial(number: int, step: int, busy: float, **changes: Any) -> Trial:
    point = TrialSpec(f"s/{number}", "s", number, (), (), number)
    use = Use(busy_seconds=busy)
    return Trial(point, submitted=0.0, rested=0.0, step=step, use=use, **changes)


def points(number: int, attempt: int, steps: list[int], values: list[Any]) -> dict[str, Any]:
    return {
        "type": "points", "trial": f"s/{number}", "attempt": attempt, "metric": "loss",
        "steps": steps, "values": values,
    }  # fmt: skip


def exported(path: Path, one: Study, trials: list[Trial], *lines: dict[str, Any]) -> Path:
    head = [{"type": "study", "version": 1, "study": json.loads(STUDY.write(one))}]
    middle = [{"type": "trial", "trial": json.loads(TRIAL.write(each))} for each in trials]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in [*head, *middle, *lines]))
    return path


def with_stages(each: Trial, **values: float) -> Trial:
    return replace(each, spec=replace(each.spec, stages=(Stage(None, tuple(values.items())),)))


def entry(at: float, one: Entry) -> dict[str, Any]:
    kind, body = encode(one)
    return {"type": "entry", "seq": 1, "at": at, "kind": kind, "body": json.loads(body)}


def started(number: int, attempt: int, seconds: float, at: float = 0.0) -> dict[str, Any]:
    return entry(at, RunStarted(RunId(f"s/{number}", attempt), 0, seconds))
