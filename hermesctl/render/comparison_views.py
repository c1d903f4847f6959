"""Studies side by side, for people. Pure functions of what the SDK has compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from hermesctl.render.tables import cell, grid, ranking_text, value_text
from hermesctl.sdk.comparison import ComparedStudy, StudyComparison
from hermesctl.text import cut, duration, number
from hermesctl.yaml_text import Data

_LIST_LENGTH = 60


def comparison_view(found: StudyComparison) -> RenderableType:
    """What each study came to, how soon, and what differs: a column for each."""
    sides = found.studies
    words = ranking_text(found.metric, found.goal, found.mode)
    parts: list[RenderableType] = [cell(f"by {words}", "bold"), _table("", sides, _summary(sides))]
    by_time = [
        (duration(at), [number(side.by_time[place]) for side in sides])
        for place, at in enumerate(found.seconds)
    ]
    by_step = [
        (f"{step}", [number(side.by_step[place]) for side in sides])
        for place, step in enumerate(found.steps)
    ]
    for header, rows in (("best report until", by_time), ("best trial's report at step", by_step)):
        if rows:
            parts += [Text(), _table(header, sides, rows)]
    differing = [(key, list(map(_shown, each))) for key, each in found.differences.items()]
    names = dict.fromkeys(name for side in sides for name in side.params)
    differing += [
        (f"best trial's {name}", [_shown(side.params.get(name)) for side in sides])
        for name in names
        if len({repr(side.params.get(name)) for side in sides}) > 1
    ]
    if differing:
        parts += [Text(), _table("what differs", sides, differing)]
    return Group(*parts)


def _summary(sides: Sequence[ComparedStudy]) -> Iterator[tuple[str, list[str]]]:
    yield "best", [number(side.best) for side in sides]
    yield "best trial", [side.best_trial or "-" for side in sides]
    yield "trials that ended", [f"{side.ended} of {side.trials}" for side in sides]
    yield "time", [duration(side.seconds) for side in sides]
    yield "device time", [duration(side.busy_seconds) for side in sides]
    yield "policy", [side.policy or "-" for side in sides]


def _table(
    header: str, sides: Sequence[ComparedStudy], rows: Iterable[tuple[str, list[str]]]
) -> RenderableType:
    table = grid(f"|{header}", *(f"~{side.study}" for side in sides))
    for name, values in rows:
        table.add_row(cell(name, "dim"), *map(cell, values))
    return table


def _shown(value: Data) -> str:
    if isinstance(value, list | tuple):
        return cut(", ".join(map(value_text, value)), _LIST_LENGTH)
    return "-" if value is None else value_text(value)
