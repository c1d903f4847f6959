"""A study's export as CSV: the points of each trial, one per row, with which trial trained them and
the trial's parameters at that step."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hermesctl.errors import HermesError, UsageError
from hermesctl.render.output import Format, csv_cell, harmless
from hermesctl.text import printable
from hermesctl.yaml_text import Data

_COLUMNS = ("trial", "attempt", "metric", "step", "value", "trained_by")


async def points_as_csv(export: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Of an export the points alone, a row for each and each trial that has it."""
    begins: dict[str, _Begin] = {}
    given: dict[str, _Parameters] = {}
    sharers: dict[str, list[_Sharer]] | None = None
    names: list[str] = []
    async for line in _lines(export):
        try:
            entry = json.loads(line)
            if entry["type"] == "trial":
                spec = entry["trial"]["spec"]
                given[spec["id"]] = _Parameters(spec.get("stages", ()))
                if (begin := _begin(entry["trial"])) is not None:
                    begins[spec["id"]] = begin
            if entry["type"] != "points":
                continue
            if sharers is None:  # the lines of all trials come before
                sharers = _sharers(begins)
                names = _names(given)
                yield _header(names)
            trained_by, metric = entry["trial"], harmless(entry["metric"])
            pairs = list(zip(entry["steps"], entry["values"], strict=True))
            own = _Sharer(trained_by, math.inf, trained_by)
            for trial, until, parameters_of in [own, *sharers.get(trained_by, ())]:
                about = trial, entry["attempt"], metric
                cells = given.get(parameters_of, _Parameters(())).cells
                rows = [
                    (*about, step, value, trained_by, *cells(step, names))
                    for step, value in pairs
                    if step <= until
                ]
                yield _csv(rows)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise HermesError("the head sent a line that is no export's; try again") from None
    if sharers is None:
        yield _header(_names(given))


class _Parameters:
    """A trial's parameters, some of which may change while it trains."""

    def __init__(self, stages: Sequence[tuple[int | None, Sequence[tuple[str, Data]]]]) -> None:
        #: Up to which step each stage is in force, with all values in it.
        self._stages: list[tuple[float, Mapping[str, Data]]] = []
        values: Mapping[str, Data] = {}
        for until, changed in stages:
            values = {**values, **dict(changed)}
            self._stages.append((math.inf if until is None else until, values))
        self.names = [*values]

    def cells(self, step: int, names: Sequence[str]) -> list[str | int | float]:
        """Their values at a step, in the order of these names."""
        values = next((each for until, each in self._stages if step <= until), {})
        return [csv_cell(values.get(name)) for name in names]


def _names(given: Mapping[str, _Parameters]) -> list[str]:
    return [*dict.fromkeys(name for each in given.values() for name in each.names)]


def _header(names: Sequence[str]) -> bytes:
    """A parameter has a column of its own name, `params.NAME` where that is taken."""
    own = [f"params.{name}" if name in _COLUMNS else harmless(name) for name in names]
    return _csv([(*_COLUMNS, *own)])


class _Begin(NamedTuple):
    """Of whom a trial has points as well, and up to which step."""

    trial: str
    until: float
    #: It begins from there, maybe with other parameters; else it rides there with its own.
    is_fork: bool


class _Sharer(NamedTuple):
    """A trial that has points of another as well, up to a step, and whose parameters it had."""

    trial: str
    until: float
    parameters_of: str


def _begin(trial: dict[str, Any]) -> _Begin | None:
    if carrier := trial.get("carrier"):
        return _Begin(carrier, trial.get("step", 0), is_fork=False)
    forked = trial.get("forked")
    return _Begin(forked["trial"], forked["step"], is_fork=True) if forked else None


def _sharers(begins: dict[str, _Begin]) -> dict[str, list[_Sharer]]:
    """Of each trial those that have its points as well, directly or not."""
    found: dict[str, list[_Sharer]] = {}
    for trial in begins:
        at, seen, until, parameters_of = trial, {trial}, math.inf, trial
        while (begin := begins.get(at)) is not None and begin.trial not in seen:
            at, until = begin.trial, min(until, begin.until)
            parameters_of = at if begin.is_fork else parameters_of
            seen.add(at)
            found.setdefault(at, []).append(_Sharer(trial, until, parameters_of))
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
