"""A study's export as CSV: its points, one per row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

from hermesctl.errors import HermesError, UsageError
from hermesctl.render.output import Format, harmless
from hermesctl.text import printable

_COLUMNS = ("trial", "attempt", "metric", "step", "value")


async def points_as_csv(export: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Of an export the points alone, a row each: trial, attempt, metric, step, value."""
    yield _csv([_COLUMNS])
    async for line in _lines(export):
        try:
            entry = json.loads(line)
            if entry["type"] != "points":
                continue
            about = (entry["trial"], entry["attempt"], harmless(entry["metric"]))
            pairs = zip(entry["steps"], entry["values"], strict=True)
            yield _csv([(*about, step, value) for step, value in pairs])
        except (ValueError, LookupError, TypeError):
            raise HermesError("the head sent a line that is no export's; try again") from None


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
