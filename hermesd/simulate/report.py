"""The rows as a table for people and as JSON for others to build on.

Rule: what the JSON has is never renamed or taken away under the same `version`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from hermesd.simulate.compare import Scene
from hermesd.simulate.orders import ALL
from hermesd.simulate.rows import Row, Summary

VERSION = 1
GOOD = "to good"
OTHERS = {
    "top4": "top 4",
    "time_to_best": "to best",
    "near_best": "to 2 %",
    "auc": "AUC",
    "makespan": "makespan",
    "jct": "mean end",
}


def as_json(rows: Sequence[Row], summaries: Sequence[Summary]) -> str:
    """Rows, and what they come to over all files."""
    return json.dumps(
        {
            "version": VERSION,
            "rows": [_row(row) for row in rows],
            "summary": [_summary(summary) for summary in summaries],
        },
        indent=1,
    )


def _row(row: Row) -> dict[str, Any]:
    compared = {name: asdict(each) for name, each in row.comparisons.items()}
    return {
        "file": row.file,
        "devices": row.scene.devices,
        **_speeds(row.scene),
        "bin": row.scene.bin_type or "all",
        "good": row.scene.recorded.good,
        "policy": row.policy,
        "orders": row.scene.orders,
        **compared,
        "makespan_ratio": row.comparisons["makespan"].ratio,
        "jct_ratio": row.comparisons["jct"].ratio,
        "switches": row.switches,
        "overhead": row.overhead,
        "decision_us": row.decision_us,
    }


def _speeds(scene: Scene | Summary) -> dict[str, Any]:
    return {"speeds": list(scene.speeds)} if scene.speeds else {}


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        "files": summary.files,
        "devices": summary.devices,
        **_speeds(summary),
        "bin": summary.bin_type or "all",
        "policy": summary.policy,
        **summary.ratios,
        "bound_share": summary.bound_share,
        "overhead": summary.overhead,
    }


def tables(rows: Sequence[Row], summaries: Sequence[Summary]) -> list[Table]:
    """One table for each scene, and one over the files where there are several.

    P10 to P90, the orders won and the share of the bound are those of the time to good.
    """
    made = [_table(scene, rows) for scene in dict.fromkeys(row.scene for row in rows)]
    several = [summary for summary in summaries if summary.files > 1]
    return [*made, _overall(several)] if several else made


def bin_words(bin_type: int) -> str:
    """A bin, for a title."""
    return "all trials" if bin_type == ALL else f"bin {bin_type}"


def device_words(scene: Scene | Summary) -> str:
    """A number of devices, and their speeds if they are unequal, for a title."""
    count = f"{scene.devices} device{'s' * (scene.devices > 1)}"
    return f"{count} ({speed_words(scene.speeds)})" if scene.speeds else count


def speed_words(speeds: Sequence[float]) -> str:
    """Relative speeds as they are written on the command line."""
    return ":".join(f"{100 * speed:g}" for speed in speeds)


def _table(scene: Scene, rows: Sequence[Row]) -> Table:
    mine = [row for row in rows if row.scene == scene]
    where = f"{mine[0].file}, {bin_words(scene.bin_type)}, {device_words(scene)}"
    table = _headed(
        f"{where}: times as fast as FIFO",
        ("policy",),
        (GOOD, "P10..P90", "won", "of bound", *OTHERS.values()),
        ("switches", "overhead", "us/decision"),
    )
    for row in mine:
        good = row.comparisons["time_to_good"]
        table.add_row(
            row.policy,
            f"{good.ratio:.2f}",
            f"{good.p10:.2f}..{good.p90:.2f}",
            f"{good.won:.0%}",
            f"{good.bound_share:.0%}",
            *(f"{row.comparisons[name].ratio:.2f}" for name in OTHERS),
            f"{row.switches:.1f}",
            f"{row.overhead:.1%}",
            f"{row.decision_us:.0f}",
        )
    return table


def _overall(summaries: Sequence[Summary]) -> Table:
    table = _headed(
        "all files: geometric means",
        ("policy",),
        ("bin", "devices", GOOD, "of bound", *OTHERS.values(), "overhead"),
    )
    last: tuple[int, str] | None = None
    for each in summaries:
        where = speed_words(each.speeds) or str(each.devices)
        group = (each.bin_type, where)
        if last and group != last:
            table.add_section()
        table.add_row(
            each.policy,
            str(each.bin_type or "all"),
            where,
            f"{each.ratios['time_to_good']:.2f}",
            f"{each.bound_share:.0%}",
            *(f"{each.ratios[name]:.2f}" for name in OTHERS),
            f"{each.overhead:.1%}",
        )
        last = group
    return table


def _headed(title: str, words: Sequence[str], *figures: Sequence[str]) -> Table:
    """A table with columns of words to the left and of figures to the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in words:
        table.add_column(column, no_wrap=True)
    for column in (column for group in figures for column in group):
        table.add_column(column, justify="right", no_wrap=True)
    return table
