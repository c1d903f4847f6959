"""One result, five forms: a table for people, JSON, YAML and CSV for programs.

Rule: JSON and YAML carry `version` and every key of the records; a number that JSON can't say is
null. A key once there keeps its name and meaning while the version is 1.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
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
    return json.dumps(_versioned(document), indent=2, ensure_ascii=False) + "\n"


def json_line(row: Row) -> str:
    """The row as one line of JSON Lines."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def csv_text(rows: Sequence[Row]) -> str:
    """The rows with a header, a column for each of `params`; any other value that is not a scalar
    stands as JSON in its cell."""
    stream = io.StringIO()
    rows = [_spread(row) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in names])
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


def _spread(row: Row) -> Row:
    """A row whose parameters are columns; one whose name is taken is called `params.NAME`."""
    params = row.get("params")
    if not isinstance(params, Mapping):
        return row
    rest = {name: value for name, value in row.items() if name != "params"}
    return rest | {(f"params.{n}" if n in rest else n): value for n, value in params.items()}


def _cell(value: Data) -> Data:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return value
    return json.dumps(value, ensure_ascii=False)
