"""One result in several forms: a table for people; JSON, YAML and CSV for programs.

JSON and YAML have `version` and every key of the records; a number that JSON can't express is null.
A key keeps its name and meaning as long as the version is 1.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from rich.console import Console, RenderableType

from hermesctl.yaml_text import Data, to_yaml

VERSION = 1

Row = Mapping[str, Data]


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"

    @property
    def for_people(self) -> bool:
        """Whether it is a table."""
        return self in (self.TABLE, self.WIDE)


def emit(
    console: Console,
    form: Format,
    document: Row,
    rows: Sequence[Row],
    table: Callable[[bool], RenderableType],
) -> None:
    """Print a result: `document` as JSON or YAML, `rows` as CSV, or `table` (told if wide)."""
    match form:
        case Format.TABLE | Format.WIDE:
            console.print(table(form is Format.WIDE))
        case Format.JSON:
            write(console, json_text(document))
        case Format.YAML:
            write(console, to_yaml(_versioned(document)))
        case Format.CSV:
            write(console, csv_text(rows))


def write(console: Console, text: str) -> None:
    """Print text for programs: neither wrapped nor styled."""
    console.print(text, end="", soft_wrap=True, markup=False, highlight=False)


def json_text(document: Row) -> str:
    """The document as one JSON object with its version."""
    return harmless(json.dumps(_versioned(document), indent=2, ensure_ascii=False)) + "\n"


def json_line(row: Row) -> str:
    """The row as one line of JSON Lines."""
    return harmless(json.dumps(row, ensure_ascii=False)) + "\n"


# All that a terminal would obey, of what anybody may have said. JSON escapes the first by itself.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def harmless(text: str) -> str:
    """Text for programs that may come to a terminal all the same: its control characters are
    written as JSON does, where it means the same."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def csv_text(rows: Sequence[Row]) -> str:
    """The rows with a header; nothing without rows.

    No cell holds JSON. Each of `params` is a column of its own name (`params.NAME` where that is
    taken), other values inside of a value are columns by their paths (`checkpoint.id`,
    `metrics.loss.last`), and what a list holds stands in one cell, with `; ` between.
    """
    if not rows:
        return ""
    stream = io.StringIO()
    spread = [dict(_spread(row)) for row in rows]
    names = dict.fromkeys(name for row in spread for name in row)
    # What is nothing in one row has columns for its parts in another.
    parts = {name[:dot] for name in names for dot, c in enumerate(name) if c == "."}
    shown = [
        n for n in names if n not in parts or any(csv_cell(row.get(n)) != "" for row in spread)
    ]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(harmless, shown))
    for row in spread:
        writer.writerow([csv_cell(row.get(name)) for name in shown])
    return stream.getvalue()


def plain(value: object) -> Data:
    """A record (or anything in it) as plain data; NaN and infinity become None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    match value:
        case StrEnum():
            return str(value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
        case _:
            return str(value)


def row(value: object) -> dict[str, Data]:
    """A record as a row."""
    data = plain(value)
    assert isinstance(data, dict)
    return data


def _versioned(document: Row) -> dict[str, Data]:
    assert "version" not in document, "it is the form's own"
    return {"version": VERSION, **document}


def _spread(row: Row) -> Iterator[tuple[str, Data]]:
    """The columns of a row."""
    params = row.get("params")
    rest = {n: v for n, v in row.items() if n != "params" or not isinstance(params, Mapping)}
    for name, value in rest.items():
        yield from _columns(name, value)
    if isinstance(params, Mapping):
        for name, value in params.items():
            yield from _columns(f"params.{name}" if name in rest else name, value)


def _columns(name: str, value: Data) -> Iterator[tuple[str, Data]]:
    if isinstance(value, list):
        records = [item for item in value if isinstance(item, Mapping) and "name" in item]
        if records and len(records) == len(value):
            value = {
                str(record["name"]): {k: v for k, v in record.items() if k != "name"}
                for record in records
            }
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _columns(f"{name}.{key}", inner)
    else:
        yield name, value


def csv_cell(value: Data) -> str | int | float:
    """A value as it stands in a cell."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return harmless(value)
        case int() | float():
            return value
        case Mapping():
            named = value.get("id") or value.get("name")
            parts = (f"{key}={csv_cell(inner)}" for key, inner in value.items())
            return csv_cell(named) if named else " ".join(parts)
        case _:
            return "; ".join(str(csv_cell(item)) for item in value)
