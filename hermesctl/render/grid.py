"""A table that fits its terminal, with each row on one line.

If it is too wide, long texts are first cut, with `…` at the end; then the columns that say least
are left out, and a line below says which. Numbers are never shortened, and only prose is wrapped.
If nothing may be left out, or the table does not fit even so, each row is printed line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hermesctl.text import printable

# Among the spared columns: here the last hyper-parameters go, one by one, and the first two only
# where a row would not be one line otherwise.
PARAMETERS = "parameters"
_PARAMETERS_KEPT = 2
_GAP = 2
# How short a header or a text may become, and a text before another column goes.
_SHORTEST, _SHORT = 8, 24
# A header that needs as much may be cut.
_NAME = 13
# Where a header may be broken, and into how many lines.
_WORD = re.compile(r"[_. -]*[^_. -]*")
_HEADER_LINES = 2
# A longer word of prose, such as a path, may be broken.
_LONG_WORD = 30


@dataclass(frozen=True)
class Column:
    """A header and its cells; all of them are there once its width is asked for."""

    header: str
    cells: list[Text] = field(default_factory=list)
    right: bool = False
    #: Its cells and its header are never shortened.
    whole: bool = False
    #: Its cells are wrapped between words.
    prose: bool = False
    parameter: bool = False

    @cached_property
    def most(self) -> int:
        """How wide it is without wrapping and shortening."""
        return max(cell_len(self.header), self._cells_width)

    @cached_property
    def least(self) -> int:
        """How narrow it can be."""
        return self._narrowed(_SHORTEST)

    @cached_property
    def enough(self) -> int:
        """How wide it should be before another column goes."""
        return max(self._narrowed(_SHORT), self.named)

    @cached_property
    def named(self) -> int:
        """How narrow it can be with a header that is broken at most, unless that is very long."""
        fitting = (width for width in range(_SHORTEST, _NAME) if _broken(self.header, width))
        return max(self.least, min(cell_len(self.header), next(fitting, _SHORTEST)))

    def _narrowed(self, cells: int) -> int:
        if self.whole:
            return self.most
        if self.prose:
            texts = (self.header, *(each.plain for each in self.cells))
            longest = max((cell_len(w) for text in texts for w in text.split()), default=0)
            return min(longest, _LONG_WORD)
        shortened = self._cells_width if self.right else min(self._cells_width, cells)
        return max(shortened, self._numbers_width, min(cell_len(self.header), _SHORTEST))

    @cached_property
    def _cells_width(self) -> int:
        return max((each.cell_len for each in self.cells), default=0)

    @cached_property
    def _numbers_width(self) -> int:
        """Of a number cut short, such as 1.23457e-06, the rest would be another number."""
        return max((each.cell_len for each in self.cells if _is_number(each.plain)), default=0)


class Grid:
    """Rows of harmless cells below headers.

    `spared` are headers of columns that a narrow terminal does without, the least important first,
    and `PARAMETERS`. Who is shown less is told so, unless `silently`. If `wide`, nothing is left
    out or shortened.
    """

    def __init__(
        self, headers: Sequence[str], spared: Sequence[str], *, silently: bool, wide: bool
    ) -> None:
        self._columns = [_column(header) for header in headers]
        self._spared, self._silently, self._wide = spared, silently, wide
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
        columns, left_out = (self._columns, []) if self._wide else self._fitted(room)
        least = [c.most if self._wide and not c.prose else c.least for c in columns]
        if _width(least) > room and not self._silently:
            yield from _line_by_line(self._columns)
            return
        # The beginning of a name may be another one's.
        named = [max(c.named, narrow) for c, narrow in zip(columns, least, strict=True)]
        yield _table(columns, _widths(columns, named if _width(named) <= room else least, room))
        if left_out and not self._silently:
            words = f"left out: {', '.join(left_out)}; a wider terminal has them, or -o json"
            yield Text(words, style="dim")

    def _fitted(self, room: int) -> tuple[list[Column], list[str]]:
        """The columns that there is room for, and the headers of those that went."""
        columns, left_out = self._columns, list[Column]()
        parameters = [column for column in columns if column.parameter]
        spared = [
            parameters[_PARAMETERS_KEPT:]
            if header == PARAMETERS
            else [c for c in columns if c.header == header and not c.parameter]
            for header in self._spared
        ]
        last = parameters[:_PARAMETERS_KEPT] if PARAMETERS in self._spared else []
        for going in (*spared, last):
            while (
                going and _width([c.least if going is last else c.enough for c in columns]) > room
            ):
                left_out.append(going.pop())
                columns = [column for column in columns if column is not left_out[-1]]
        return columns, [column.header for column in left_out]


def _column(header: str) -> Column:
    """`>` is set to the right; `=` is a hyper-parameter; `|` is whole; `~` is prose."""
    mark = header[:1] if header[:1] in (">", "=", "|", "~") else ""
    words = printable(header.removeprefix(mark))
    return Column(
        words, right=mark == ">", whole=mark == "|", prose=mark == "~", parameter=mark == "="
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _widths(columns: Sequence[Column], least: Sequence[int], room: int) -> list[int]:
    """As wide as they are, or the widest made narrower until all fit."""
    most = max(column.most for column in columns)
    for level in range(most, -1, -1):
        widths = [
            max(narrow, min(column.most, level))
            for column, narrow in zip(columns, least, strict=True)
        ]
        if _width(widths) <= room:
            break
    return widths


def _table(columns: Sequence[Column], widths: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            _short_header(column.header, width),
            justify="right" if column.right else "left",
            no_wrap=not column.prose,
            overflow="fold" if column.prose else "ellipsis",
            width=width,
        )
    shown = [
        column.cells if column.prose else [_shortened(each, width) for each in column.cells]
        for column, width in zip(columns, widths, strict=True)
    ]
    for cells in zip(*shown, strict=True):
        table.add_row(*cells)
    return table


def _short_header(name: str, width: int) -> str:
    """The name in lines, where its words are no longer than the column. Else it is cut: of
    `optimizer.learning_rate` and the like the end tells more; rich cuts the others."""
    if lines := _broken(name, width):
        return "\n".join(lines)
    over = cell_len(name) - width
    return f"…{name[over + 1 :]}" if over > 0 and "." in name else name


def _broken(name: str, width: int) -> list[str]:
    """The name in lines, each of one word or more; none where they don't fit."""
    lines = [""]
    for word in _WORD.findall(name):
        if cell_len(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word
    fits = len(lines) <= _HEADER_LINES and all(0 < cell_len(line) <= width for line in lines)
    return lines if fits else []


def _shortened(text: Text, width: int) -> Text:
    """The text in so many columns; what tells one trial of a study from another is its end."""
    if text.cell_len <= width:
        return text
    slash = text.plain.rfind("/")
    end = text[slash:] if slash > 0 else Text()
    if end.cell_len > width // 2:
        end = Text()
    begin = text[: len(text) - len(end)]
    begin.truncate(width - end.cell_len, overflow="ellipsis")
    return begin.append_text(end)


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
