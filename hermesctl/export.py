"""A study's export on its way to a file: as it comes, or its points as CSV.

Rule: a file is there when it is whole, and never replaces another unasked.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from pathlib import Path

from hermesctl.errors import HermesError, UsageError
from hermesctl.output import Format
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
            about = (entry["trial"], entry["attempt"], entry["metric"])
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


async def write_file(content: AsyncIterator[bytes], to: Path, *, force: bool) -> None:
    """Write the file `to`, which appears when it is whole.

    Raises UsageError if it can't be written, or is there already, unless `force`.
    """
    name = printable(str(to))
    if to.is_dir() or not to.name:
        raise UsageError(f"{name}: expected a file's name, this is a directory")
    if to.exists() and not force:
        raise UsageError(f"{name}: it exists; add --force to replace it")
    partial = to.with_name(f".{to.name}.partial")
    try:
        with partial.open("wb") as stream:
            async for data in content:
                stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(to)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{name}: {reason}") from None
    finally:
        with suppress(OSError):
            partial.unlink()


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
