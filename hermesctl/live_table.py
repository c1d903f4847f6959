"""The trials of the live view, in a table that fits its terminal.

Rule: pure. What a trial is and how far it is (trial, state, step, metric) is never shortened;
the parameters give way first, then the picture of the signal, then all of what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from hermesctl.charts import sparkline
from hermesctl.records import StudyDetail, Trial
from hermesctl.tables import cell, grid, params_text, state_cell, step_text, varying
from hermesctl.text import count, cut, number

SPARK_WIDTH = 16
_PARAMETERS_WIDTH_MIN = 20
_METRIC_NAME_LENGTH = 20
_GAP = 2


def live_trials(
    detail: StudyDetail, trails: Mapping[str, Sequence[float]], width: int, room: int
) -> RenderableType:
    """The first `room` trials, those on a device first, in `width` columns.

    `trails` are the newest signals of each trial.
    """
    order = sorted(detail.trials, key=_live_order)
    shown = order[:room]
    metric = cut(detail.study.ranked_by, _METRIC_NAME_LENGTH)
    names = varying(detail.trials)
    parameters = [params_text(trial.params, names) for trial in shown]
    columns = {
        "trial": [cell(trial.id) for trial in shown],
        "state": [state_cell(trial) for trial in shown],
        "device": [cell(trial.device or "-") for trial in shown],
        ">step": [cell(step_text(trial)) for trial in shown],
        ">signal": [cell(number(trial.signal)) for trial in shown],
        "": [_picture(trails.get(trial.id, ())) for trial in shown],
        f">{metric}": [cell(number(trial.metric)) for trial in shown],
    }
    widths = {
        header: max([len(header.removeprefix(">")), *(one.cell_len for one in cells)])
        for header, cells in columns.items()
    }
    longest = max(map(len, parameters), default=0)
    widths[""] = SPARK_WIDTH
    widths["parameters"] = min(longest, _PARAMETERS_WIDTH_MIN)
    # Room is given in this order, and what has none is left out.
    left = width - sum(widths[each] + _GAP for each in ("trial", "state", ">step", f">{metric}"))
    for header in ("device", ">signal", "parameters", ""):
        needed = widths[header] + _GAP
        if needed <= left:
            left -= needed
        else:
            columns.pop(header, None)
            widths[header] = 0
    if longest and widths["parameters"]:
        room_for_them = widths["parameters"] + left
        columns["parameters"] = [cell(cut(words, room_for_them), "dim") for words in parameters]
    headers = (name if name.startswith(">") else f"|{name}" for name in columns)
    table = grid(*headers, silently=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    hidden = len(order) - room
    more = [cell(f"… and {count(hidden, 'trial')} more", "dim")] if hidden > 0 else []
    return Group(table, *more)


def _picture(trail: Sequence[float]) -> Text:
    """As wide in every frame, however little there is to be seen."""
    return cell(sparkline(trail, SPARK_WIDTH).ljust(SPARK_WIDTH), "blue")


def _live_order(trial: Trial) -> tuple[bool, bool, int, int]:
    """Those on a device first, then those that may still run, by rank."""
    rank = trial.rank or 1 << 30
    return (not trial.state.on_device, trial.state.final, rank, trial.number)
