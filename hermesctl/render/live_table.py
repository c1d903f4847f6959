"""The trials of the live view, in a table that fits its terminal.

Pure. The trial, its state, its step and its metric are never shortened. If there is not enough
room, the picture of the signal is left out first, then the signal, the device, and the time left.
Parameters, by which people tell trials apart, are shortened before they are left out, and a common
beginning of the trials' ids is left out before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hermesctl.render.charts import sparkline
from hermesctl.render.tables import (
    cell,
    grid,
    left_text,
    param_text,
    params_text,
    state_cell,
    step_text,
    varying,
)
from hermesctl.sdk.records import StudyDetail, Trial
from hermesctl.text import count, cut, number

SPARK_WIDTH = 16
# As much of the parameters goes before what else there is of a trial, and less is of no use.
_PARAMETERS_WIDTH, _PARAMETERS_WIDTH_MIN = 34, 20
_METRIC_NAME_LENGTH = 20
_NAME_LENGTHS, _INITIALS = (12, 8, 6), (4, 3, 2)
_GAP = 2


@dataclass(frozen=True, slots=True)
class TableLook:
    """Which trials a live table shows, in what order, and which one is selected."""

    order: int = 0
    only_on_device: bool = False
    #: Only trials with all of these words are shown.
    words: str = ""
    #: The selected trial. If it is not shown, the first that is shown is selected.
    trial: str = ""

    @property
    def order_name(self) -> str:
        """By what the trials are sorted."""
        return list(_ORDERS)[self.order]

    def sorted_otherwise(self, by: int) -> TableLook:
        """Sorted as so many orders further on."""
        return replace(self, order=(self.order + by) % len(_ORDERS))

    def moved(self, by: int, trials: Sequence[Trial]) -> TableLook:
        """On the one so many trials further down; never beyond the last."""
        chosen = self.chosen(trials)
        if not chosen:
            return self
        place = min(max(0, self.place(chosen) + by), len(chosen) - 1)
        return replace(self, trial=chosen[place].id)

    def place(self, chosen: Sequence[Trial]) -> int:
        """Where among these the trial is that one is on."""
        return next((at for at, trial in enumerate(chosen) if trial.id == self.trial), 0)

    def on(self, trials: Sequence[Trial]) -> Trial | None:
        """The trial that one is on; None if none is shown."""
        chosen = self.chosen(trials)
        return chosen[self.place(chosen)] if chosen else None

    def chosen(self, trials: Sequence[Trial]) -> list[Trial]:
        """All that are shown if there is room, in order."""
        words = self.words.lower().split()
        kept = (
            trial
            for trial in trials
            if (trial.state.on_device or not self.only_on_device)
            and (not words or all(word in _described(trial) for word in words))
        )
        return sorted(kept, key=_ORDERS[self.order_name])


def _described(trial: Trial) -> str:
    """What a trial is found by."""
    parts = (trial.id, state_cell(trial).plain, trial.device, *trial.tags)
    return " ".join((*parts, params_text(trial.params))).lower()


def live_trials(
    detail: StudyDetail,
    trails: Mapping[str, Sequence[float]],
    width: int,
    room: int,
    look: TableLook | None = None,
    is_chosen_from: bool = False,
) -> RenderableType:
    """As many trials as there is `room` for, those on a device first unless `look` says otherwise,
    in `width` columns; the one that one is on among them, and marked if it can be chosen.

    `trails` are the newest signals of each trial.
    """
    look = look or TableLook()
    order = look.chosen(detail.trials)
    place = look.place(order)
    first = max(0, place - room + 1)
    shown = order[first : first + room]
    metric = cut(detail.study.ranked_by, _METRIC_NAME_LENGTH)
    names = varying(detail.trials)
    parameters = [params_text(trial.params, names) for trial in shown]
    columns = {
        "trial": [cell(trial.id) for trial in shown],
        "state": [state_cell(trial) for trial in shown],
        "device": [cell(trial.device or "-") for trial in shown],
        ">step": [cell(step_text(trial)) for trial in shown],
        ">left": [cell(left_text(trial)) for trial in shown],
        ">signal": [cell(number(trial.signal)) for trial in shown],
        "": [_picture(trails.get(trial.id, ())) for trial in shown],
        f">{metric}": [cell(number(trial.metric)) for trial in shown],
    }
    if all(trial.remaining_seconds is None for trial in shown):
        columns.pop(">left")
    widths = {
        header: max([len(header.removeprefix(">")), *(one.cell_len for one in cells)])
        for header, cells in columns.items()
    }
    longest = max(map(len, parameters), default=0)
    widths[""] = SPARK_WIDTH
    left = width - sum(widths[each] + _GAP for each in ("trial", "state", ">step", f">{metric}"))
    for_them = min(longest, _PARAMETERS_WIDTH, left - _GAP)
    if for_them < min(longest, _PARAMETERS_WIDTH_MIN):
        # The study is named above.
        numbers = [cell(f"/{trial.number}") for trial in shown]
        saved = widths["trial"] - max(one.cell_len for one in (*numbers, cell("trial")))
        for_them = min(longest, _PARAMETERS_WIDTH, left + saved - _GAP)
        if for_them >= min(longest, _PARAMETERS_WIDTH_MIN):
            columns["trial"], left = numbers, left + saved
        else:
            for_them = 0
    left -= for_them + _GAP if for_them else 0
    # What is left is given in this order, and what has no room is left out.
    for header in (">left", "device", ">signal", ""):
        needed = widths.get(header, width) + _GAP
        if needed <= left:
            left -= needed
        else:
            columns.pop(header, None)
    if for_them:
        header, shorter = _parameters(shown, names, for_them + left)
        columns[header] = [cell(words, "dim") for words in shorter]
    headers = (name if name.startswith(">") else f"|{name}" for name in columns)
    table = grid(*headers, silently=True)
    for at, cells in enumerate(zip(*columns.values(), strict=True), first):
        if is_chosen_from and at == place:
            for each in cells:
                each.stylize("reverse")
        table.add_row(*cells)
    hidden = len(order) - first - len(shown)
    more = [cell(f"… and {count(hidden, 'trial')} more", "dim")] if hidden > 0 else []
    return Group(table, *more)


def _parameters(trials: Sequence[Trial], names: Sequence[str], room: int) -> tuple[str, list[str]]:
    """What tells the trials apart, in so many columns, with its header: long names are cut, and
    stand in that at last, before any value is cut."""
    header, written = "parameters", list[str]()
    whole = {name: name for name in names}
    cuts = [{name: cut(name, length) for name in names} for length in _NAME_LENGTHS]
    initials = [{name: name[:length] for name in names} for length in _INITIALS]
    for short in (whole, *cuts, *(each for each in initials if len({*each.values()}) == len(each))):
        written = [
            " ".join(f"{short[name]}={param_text(trial, name)}" for name in names)
            for trial in trials
        ]
        if max(map(len, written), default=0) <= room:
            break
    else:
        values = [[param_text(trial, name) for name in names] for trial in trials]
        widths = [max(map(len, column)) for column in zip(*values, strict=True)]
        header, *written = [
            " ".join(word[:width].ljust(width) for word, width in zip(line, widths, strict=True))
            for line in (names, *values)
        ]
    return cut(header, room), [cut(words, room) for words in written]


def _picture(trail: Sequence[float]) -> Text:
    """As wide in every frame, however little there is to be seen."""
    return cell(sparkline(trail, SPARK_WIDTH).ljust(SPARK_WIDTH), "blue")


def _live_order(trial: Trial) -> tuple[bool, bool, int, int]:
    """Those on a device first, then those that may still run, by rank."""
    rank = trial.rank or 1 << 30
    return (not trial.state.on_device, trial.state.final, rank, trial.number)


_ORDERS: dict[str, Callable[[Trial], Any]] = {
    "running first": _live_order,
    "rank": lambda trial: (trial.rank or 1 << 30, trial.number),
    "number": lambda trial: trial.number,
    "step": lambda trial: (-trial.step, trial.number),
}
