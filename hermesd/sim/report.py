"""The rows as a table for people, and as JSON for programs.

Nothing in the JSON is renamed or removed under the same `version`. A table that is too wide loses
its least important figures, and says which; it never loses a policy's settings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from hermesd.sim.compare import Scene
from hermesd.sim.orders import ALL
from hermesd.sim.rows import PolicyRow, Summary

VERSION = 1
# As wide as no table gets: what it is measured on.
MOST_COLUMNS = 1_000
GOOD = "to good"
SPREAD = ("P10..P90", "won")
BOUND = "of bound"
LEGEND = {
    GOOD: "the good trials reach the goal, a loss that only they come to, on average",
    "to best": "the best trial is trained",
    "to 2 %": "the lowest loss so far is within 2 % of the way from the start of the lowest of all",
}
OTHERS = {
    "top4": "top 4",
    "time_to_best": "to best",
    "near_best": "to 2 %",
    "auc": "AUC",
    "makespan": "makespan",
    "jct": "mean end",
}
EFFORT = ("switches", "overhead", "us/decision")
# What a narrow table does without, the least important first. To the good trials it always has.
SPARED = (
    "us/decision", "AUC", "mean end", "switches", "top 4", "overhead", "makespan", "won", "to 2 %",
    "to best", "P10..P90", "of bound",
)  # fmt: skip


def as_json(rows: Sequence[PolicyRow], summaries: Sequence[Summary]) -> str:
    """Rows, and what they come to over all files."""
    return json.dumps(
        {
            "version": VERSION,
            "rows": [_row(row) for row in rows],
            "summary": [_summary(summary) for summary in summaries],
        },
        indent=1,
    )


def _row(row: PolicyRow) -> dict[str, Any]:
    compared = {name: asdict(each) for name, each in row.comparisons.items()}
    return {
        "file": row.file,
        "devices": row.scene.devices,
        **_speeds(row.scene),
        "bin": row.scene.bin_type or "all",
        "good": row.scene.recorded.good,
        "policy": row.policy,
        "orders": row.scene.orders,
        **_drawn(row.scene),
        **compared,
        "makespan_ratio": row.comparisons["makespan"].ratio,
        "jct_ratio": row.comparisons["jct"].ratio,
        "switches": row.switches,
        "overhead": row.overhead,
        "decision_us": row.decision_us,
    }


def _drawn(scene: Scene) -> dict[str, Any]:
    """What else decides the figures; `switch_cost` as it is written on the command line."""
    seconds = scene.recorded.switch_seconds
    return {
        "trials": scene.trials if scene.bin_type else None,
        "seed": scene.seed,
        "metric_loss": scene.recorded.loss,
        "switch_cost": "paper" if seconds is None else seconds,
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


def report(
    rows: Sequence[PolicyRow], summaries: Sequence[Summary], width: int | None
) -> tuple[list[Table], list[str]]:
    """The tables, as wide as they fit into so many columns, and what is said below them.

    Without a width they are whole.
    """
    single = SPREAD if all(row.scene.orders == 1 for row in rows) else ()
    for count in range(len(SPARED) + 1):
        spared = SPARED[:count]
        hidden = {*spared, *single}
        shown = tables(rows, summaries, hidden)
        if width is None or widest(shown) <= width:
            break
    below = [legend(hidden)]
    if left_out := [name for name in spared if name not in single]:
        room = "a wider terminal has them, or -o json"
        below.append(f"left out: {', '.join(reversed(left_out))}; {room}")
    return shown, below


def widest(shown: Sequence[Table]) -> int:
    """How many columns of a terminal whole tables take."""
    return max(Console(width=MOST_COLUMNS).measure(table).maximum for table in shown)


def legend(hidden: Set[str]) -> str:
    """What the figures mean that are there."""
    words = {name: text for name, text in LEGEND.items() if name not in hidden}
    others = [name for name in (*SPREAD, BOUND) if name not in hidden]
    if others:
        listed = " and ".join(filter(None, (", ".join(others[:-1]), others[-1])))
        words[GOOD] += f" ({listed} {'are' if len(others) > 1 else 'is'} of that)"
    return "; ".join(f"{name}: {text}" for name, text in words.items())


def tables(
    rows: Sequence[PolicyRow], summaries: Sequence[Summary], hidden: Set[str] = frozenset()
) -> list[Table]:
    """One table for each scene, and one over the files where there are several.

    P10 to P90, the orders won and the share of the bound are those of the time to good.
    """
    made = [_table(scene, rows, hidden) for scene in dict.fromkeys(row.scene for row in rows)]
    several = [summary for summary in summaries if summary.files > 1]
    return [*made, _overall(several, rows[0].scene, hidden)] if several else made


def order_words(scene: Scene) -> str:
    """From how many orders figures come, for a title."""
    return f"{scene.orders} order{'s' * (scene.orders > 1)}"


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


def _table(scene: Scene, rows: Sequence[PolicyRow], hidden: Set[str]) -> Table:
    mine = [row for row in rows if row.scene == scene]
    where = (mine[0].file, bin_words(scene.bin_type), device_words(scene), order_words(scene))
    figures = [_figures(row) for row in mine]
    columns = [name for name in figures[0] if name not in hidden]
    table = _headed(f"{', '.join(where)}: times as fast as FIFO", columns)
    for row, known in zip(mine, figures, strict=True):
        table.add_row(row.policy, *(known[name] for name in columns))
    return table


def _figures(row: PolicyRow) -> dict[str, str]:
    """A row's figures as words, by the names of their columns."""
    good = row.comparisons["time_to_good"]
    effort = (f"{row.switches:.1f}", f"{row.overhead:.1%}", f"{row.decision_us:.0f}")
    return {
        GOOD: f"{good.ratio:.2f}",
        "P10..P90": f"{good.p10:.2f}..{good.p90:.2f}",
        "won": f"{good.won:.0%}",
        BOUND: f"{good.bound_share:.0%}",
        **{words: f"{row.comparisons[name].ratio:.2f}" for name, words in OTHERS.items()},
        **dict(zip(EFFORT, effort, strict=True)),
    }


def _overall(summaries: Sequence[Summary], scene: Scene, hidden: Set[str]) -> Table:
    known = (GOOD, BOUND, *OTHERS.values(), "overhead")
    columns = [name for name in known if name not in hidden]
    title = f"all files, {order_words(scene)}: geometric means"
    table = _headed(title, ("bin", "devices", *columns))
    last: tuple[int, str] | None = None
    for each in summaries:
        where = speed_words(each.speeds) or str(each.devices)
        group = (each.bin_type, where)
        if last and group != last:
            table.add_section()
        figures = {
            GOOD: f"{each.ratios['time_to_good']:.2f}",
            BOUND: f"{each.bound_share:.0%}",
            **{words: f"{each.ratios[name]:.2f}" for name, words in OTHERS.items()},
            "overhead": f"{each.overhead:.1%}",
        }
        told = (figures[name] for name in columns)
        table.add_row(each.policy, str(each.bin_type or "all"), where, *told)
        last = group
    return table


def _headed(title: str, figures: Sequence[str]) -> Table:
    """A table with the policies to the left and columns of figures to the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for column in figures:
        table.add_column(column, justify="right", no_wrap=True)
    return table
