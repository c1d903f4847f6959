"""A study's export as CSV: the points of each trial, one per row, and which trial trained them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from hermesctl.errors import HermesError, UsageError
from hermesctl.render.output import Format, harmless
from hermesctl.text import printable

_COLUMNS = ("trial", "attempt", "metric", "step", "value", "trained_by")


async def points_as_csv(export: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Of an export the points alone, a row for each and each trial that has it."""
    yield _csv([_COLUMNS])
    #: Of whom each trial has points, and up to which step.
    begins: dict[str, tuple[str, float]] = {}
    sharers: dict[str, list[tuple[str, float]]] | None = None
    async for line in _lines(export):
        try:
            entry = json.loads(line)
            if entry["type"] == "trial" and (begin := _begin(entry["trial"])) is not None:
                begins[entry["trial"]["spec"]["id"]] = begin
            if entry["type"] != "points":
                continue
            if sharers is None:  # the lines of all trials come before
                sharers = _sharers(begins)
            trained_by, metric = entry["trial"], harmless(entry["metric"])
            pairs = list(zip(entry["steps"], entry["values"], strict=True))
            for trial, until in [(trained_by, math.inf), *sharers.get(trained_by, ())]:
                about = trial, entry["attempt"], metric
                yield _csv([(*about, *pair, trained_by) for pair in pairs if pair[0] <= until])
        except (ValueError, LookupError, TypeError, AttributeError):
            raise HermesError("the head sent a line that is no export's; try again") from None


def _begin(trial: dict[str, Any]) -> tuple[str, float] | None:
    """From which other trial one begins, or on which it rides, and up to which step."""
    if carrier := trial.get("carrier"):
        return carrier, trial.get("step", 0)
    forked = trial.get("forked")
    return (forked["trial"], forked["step"]) if forked else None


def _sharers(begins: dict[str, tuple[str, float]]) -> dict[str, list[tuple[str, float]]]:
    """Of each trial those that have its points as well, directly or not, each up to a step."""

    def past(trial: str) -> Iterator[tuple[str, float]]:
        seen, until = {trial}, math.inf
        while (begin := begins.get(trial)) is not None and begin[0] not in seen:
            trial, until = begin[0], min(until, begin[1])
            seen.add(trial)
            yield trial, until

    found: dict[str, list[tuple[str, float]]] = {}
    for trial in begins:
        for other, until in past(trial):
            found.setdefault(other, []).append((trial, until))
    return found


def wants_csv(output: str, to: Path | None) -> bool:
    """Whether CSV is wanted, which the file's ending says where no flag does."""
    if output not in ("", Format.JSON, Format.CSV):
        # Elsewhere `-o` names the file.
        hint = f"; for a file: --to {printable(output)}" if {".", "/"} & set(output) else ""
        raise UsageError(f"-o {printable(output)}: expected json (JSON Lines) or csv{hint}")
    return output == Format.CSV or (not output and to is not None and to.suffix == ".csv")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


def _csv(rows: list[tuple[object, ...]]) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue().encode()
