"""A table that fits its terminal. A word is never broken in two while there is another way.

What is too wide is wrapped between words; then the columns go that say least, which is said below;
then hyper-parameters stand in one column; at last each row is told line by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hermesctl.text import printable

# Among the spared columns: here the hyper-parameters are put in one column.
PARAMETERS = "parameters"
_GAP = 2


@dataclass(frozen=True)
class Column:
    """A header and its cells; all of them are there once its width is asked for."""

    header: str
    cells: list[Text] = field(default_factory=list)
    right: bool = False
    #: Its cells are never wrapped.
    whole: bool = False
    parameter: bool = False

    @cached_property
    def least(self) -> int:
        """How wide it must be for no word to be broken."""
        if self.whole:
            return self.most
        words = {word for text in self._texts() for word in text.split()}
        return max(map(cell_len, words), default=0)

    @cached_property
    def most(self) -> int:
        """How wide it is without wrapping."""
        return max(map(cell_len, self._texts()))

    def _texts(self) -> set[str]:
        return {self.header, *(each.plain for each in self.cells)}


class Grid:
    """Rows of harmless cells below headers.

    `spared` are headers of columns that a narrow terminal does without, the least important first,
    and `PARAMETERS`. Who is shown less is told so, unless `silently`.
    """

    def __init__(self, headers: Sequence[str], spared: Sequence[str], silently: bool) -> None:
        self._columns = [_column(header) for header in headers]
        self._spared, self._silently = spared, silently
        self.row_count = 0

    def add_row(self, *cells: Text) -> None:
        """Add a cell to each column."""
        for column, each in zip(self._columns, cells, strict=True):
            # Wrapped before its first word, a cell would break that word.
            column.cells.append(each[len(each.plain) - len(each.plain.lstrip()) :])
        self.row_count += 1

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = _width([column.most for column in self._columns])
        return Measurement(min(widest, options.max_width), min(widest, options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        columns, left_out = self._fitted(room)
        if _width([column.least for column in columns]) > room and not self._silently:
            yield from _line_by_line(self._columns)
            return
        yield _table(columns, _widths(columns, room))
        if left_out and not self._silently:
            words = f"left out: {', '.join(left_out)}; a wider terminal has them, or -o json"
            yield Text(words, style="dim")

    def _fitted(self, room: int) -> tuple[list[Column], list[str]]:
        """The columns that there is room for, and the headers of those that went."""
        columns, left_out = self._columns, list[str]()
        for header in self._spared:
            if _width([column.least for column in columns]) <= room:
                break
            if header == PARAMETERS:
                columns = _joined(columns)
                continue
            kept = [each for each in columns if each.header != header or each.parameter]
            left_out += [header] * (len(kept) < len(columns))
            columns = kept
        return columns, left_out


def _column(header: str) -> Column:
    """`>` is set to the right, and whole; `=` is a hyper-parameter; `|` is whole."""
    mark = header[:1] if header[:1] in (">", "=", "|") else ""
    words = printable(header.removeprefix(mark))
    return Column(words, right=mark == ">", whole=mark in (">", "|"), parameter=mark == "=")


def _joined(columns: Sequence[Column]) -> list[Column]:
    """The hyper-parameters as `name=value` words of one column, where the first of them was."""
    ours = [column for column in columns if column.parameter]
    if len(ours) < 2:
        return list(columns)
    words = [[f"{column.header}={each.plain}" for each in column.cells] for column in ours]
    cells = [Text(" ".join(row)) for row in zip(*words, strict=True)]
    one = Column(PARAMETERS, cells, parameter=True)
    return [
        one if column is ours[0] else column
        for column in columns
        if column is ours[0] or not column.parameter
    ]


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """As wide as they are, or the widest made narrower until all fit, but no word broken."""
    most = max(column.most for column in columns)
    for level in range(most, -1, -1):
        widths = [max(column.least, min(column.most, level)) for column in columns]
        if _width(widths) <= room:
            break
    return widths


def _table(columns: Sequence[Column], widths: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column.header,
            justify="right" if column.right else "left",
            no_wrap=column.whole,
            overflow="ellipsis" if column.whole else "fold",
            width=width,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _line_by_line(columns: Sequence[Column]) -> Iterator[RenderableType]:
    """Each row on lines of its own, a line for each column."""
    for place in range(len(columns[0].cells)):
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _GAP, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for column in columns:
            if column.cells[place].plain:
                table.add_row(Text(column.header), column.cells[place])
        yield from (table,) if place == 0 else (Text(), table)
