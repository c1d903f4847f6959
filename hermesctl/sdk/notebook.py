"""How results look in a notebook: tables in HTML, data frames of pandas, charts of matplotlib.

pandas and matplotlib are imported only when they are asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from hermesctl.errors import UsageError
from hermesctl.text import number, printable

Row = Mapping[str, Any]


def table(caption: str, rows: Sequence[Row]) -> str:
    """An HTML table; the columns are the keys of all rows, in their order."""
    names = columns(rows)
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in names)}</tr>" for row in rows
    )
    return (
        f"<table><caption>{_cell(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def frame(rows: Sequence[Row]) -> Any:
    """A pandas DataFrame with a row for each. Raises UsageError where pandas isn't installed."""
    pandas = _library("pandas", "frame()")
    return pandas.DataFrame(list(rows), columns=columns(rows))


def axes(given: Any) -> Any:
    """The axes to draw on: those given, or new ones. Raises UsageError without matplotlib."""
    if given is not None:
        return given
    return _library("matplotlib.pyplot", "plot()").subplots()[1]


@contextmanager
def bar(words: str) -> Iterator[Callable[[float | None, Sequence[str]], None]]:
    """A progress bar, on stderr or in the notebook, for the length of the block. What it gives is
    told the share that is done, from 0 to 1, or None while that isn't known, and notes, each of
    which is printed once."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(printable(words), total=None)
        printed: set[str] = set()

        def show(done: float | None, notes: Sequence[str]) -> None:
            shown.update(task, total=None if done is None else 1.0, completed=done)
            for note in notes:
                if note not in printed:
                    shown.console.print(f"note: {printable(note)}", markup=False, highlight=False)
                    printed.add(note)

        yield show


def columns(rows: Sequence[Row]) -> list[str]:
    """The names of the columns, each once."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return escape(printable(number(value) if isinstance(value, float) else str(value)))


def _library(name: str, use: str) -> ModuleType:
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"{use} needs {package}: pip install {package}") from None
