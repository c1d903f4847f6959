"""The figures as pictures, PNG and SVG: speed-ups, incumbents, and who had which device when.

Rule: the same results make the same bytes. matplotlib is the extra `plots`, imported only here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hermesd.simulate.compare import SAMPLED, Case, Result, Scene, order_of, outcome_of
from hermesd.simulate.figures import steps_to_goal, time_of
from hermesd.simulate.orders import Order
from hermesd.simulate.report import bin_words, device_words, speed_words
from hermesd.simulate.rows import Row

# Okabe and Ito's colours, told apart by everyone; FIFO is the grey reference.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c564b")
TICKS = (0.25, 0.5, 1, 2, 4, 8, 16, 32)
REFERENCE, QUIET, SWITCHING = "#8c8c8c", "#d9d9d9", "#333333"
STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "hermes",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "legend.frameon": False,
}


def draw_charts(
    folder: Path, rows: Sequence[Row], results: Mapping[Case, Sequence[Result]]
) -> list[Path]:
    """Every chart of a comparison, in `folder`; says what was written. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = [row.policy for row in rows]
    paint = colours([policy for policy in dict.fromkeys(shown) if policy != "fifo"])
    written: list[Path] = []
    with matplotlib.rc_context(dict(STYLE)):
        for slug in dict.fromkeys(_slug(row.scene) for row in rows):
            mine = [row for row in rows if _slug(row.scene) == slug]
            written += _save(folder / f"speedup-{slug}", speedups(mine, paint))
        for scene in dict.fromkeys(row.scene for row in rows):
            file = next(row.file for row in rows if row.scene == scene)
            cases = [c for c in results if c.scene == scene and c.contender.label in shown]
            stem = f"{Path(file).stem}-{_slug(scene)}"
            title = f"{file}, {bin_words(scene.bin_type)}, {device_words(scene)}"
            curves = {case.contender.label: results[case] for case in cases}
            written += _save(folder / f"incumbent-{stem}", incumbents(title, curves, paint))
            written += _save(folder / f"devices-{stem}", gantt(title, cases))
    return written


def colours(policies: Sequence[str]) -> dict[str, str]:
    """A colour for each policy."""
    listed = {policy: COLOURS[i % len(COLOURS)] for i, policy in enumerate(policies)}
    return {"fifo": REFERENCE, **listed}


def _slug(scene: Scene) -> str:
    bin_part = f"bin{scene.bin_type}" if scene.bin_type else "all"
    speeds = f"-{speed_words(scene.speeds).replace(':', '-')}" if scene.speeds else ""
    return f"{bin_part}-{scene.devices}dev{speeds}"


def _save(stem: Path, figure: Figure) -> list[Path]:
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    figure.savefig(paths[0], dpi=150, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    return paths


def speedups(rows: Sequence[Row], paint: Mapping[str, str]) -> Figure:
    """Bars by file: how many times as fast as FIFO, whiskers from P10 to P90, the bound a line."""
    files = list(dict.fromkeys(row.file for row in rows))
    policies = list(dict.fromkeys(row.policy for row in rows))
    scene = rows[0].scene
    panels = {"time_to_good": "time until the good trials reach the goal"}
    if scene.bin_type != 1:  # In bin 1 the good trials are the top four.
        panels["top4"] = "time until the top four trials reach the goal"
    figure = Figure(figsize=(8, 1.2 + 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    width = 0.8 / len(policies)
    for axis, (name, title) in zip(axes, panels.items(), strict=True):
        for row in rows:
            one = row.comparisons[name]
            at = files.index(row.file) + (policies.index(row.policy) + 0.5) * width - 0.4
            axis.bar(at, one.ratio, width * 0.92, color=paint[row.policy])
            axis.plot([at, at], [one.p10, one.p90], color=SWITCHING, linewidth=0.8)
        for place, file in enumerate(files):
            one = next(row for row in rows if row.file == file).comparisons[name]
            level = one.ratio / one.bound_share
            axis.plot([place - 0.42, place + 0.42], [level, level], color="black", linestyle=":")
        axis.axhline(1, color=REFERENCE, linewidth=0.8)
        axis.set_yscale("log")
        axis.set_yticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
        axis.minorticks_off()
        axis.set_ylim(*_span(rows, name))
        axis.set_xlim(-0.6, len(files) - 0.4)
        axis.set_xticks(range(len(files)), files)
        axis.set_ylabel("times as fast as FIFO")
        axis.set_title(title)
    handles = [Patch(color=paint[policy], label=policy) for policy in policies]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(policies)))
    figure.suptitle(
        f"{bin_words(scene.bin_type)}, {device_words(scene)}, {scene.orders} orders;"
        " dotted: what a clairvoyant could do"
    )
    return figure


def _span(rows: Sequence[Row], name: str) -> tuple[float, float]:
    """An axis that shows all of a figure's ratios, its whiskers and the bound."""
    mine = [row.comparisons[name] for row in rows]
    highest = max(max(one.p90, one.ratio / one.bound_share) for one in mine)
    return min(0.5, *(0.9 * one.p10 for one in mine)), 1.2 * highest


def incumbents(
    title: str, curves: Mapping[str, Sequence[Result]], paint: Mapping[str, str]
) -> Figure:
    """How the lowest loss falls, the mean over the orders."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axis = figure.subplots()
    for policy, results in curves.items():
        mean = np.mean([result.incumbent for result in results], axis=0)
        axis.step(SAMPLED, mean, where="post", color=paint[policy], label=policy)
    axis.set_xlim(0, float(SAMPLED[-1]))
    axis.set_ylim(0, 1)
    axis.set_xlabel("time, as a share of the least time for all trials")
    axis.set_ylabel("lowest loss so far (start = 1, best of all = 0)")
    axis.set_title(title)
    axis.legend()
    return figure


def gantt(title: str, cases: Sequence[Case]) -> Figure:
    """Who had which device when, in the first order: a panel for each policy."""
    order = order_of(cases[0].scene, 0)
    devices = cases[0].scene.devices
    paint = {place: COLOURS[i % len(COLOURS)] for i, place in enumerate(order.good)}
    height = 0.55 + 0.28 * devices
    figure = Figure(figsize=(9, 1 + height * len(cases)), layout="constrained")
    axes = figure.subplots(len(cases), 1, sharex=True, squeeze=False)[:, 0]
    for axis, case in zip(axes, cases, strict=True):
        _stays(axis, case, order, paint)
        axis.set_ylim(devices - 0.5, -0.5)
        axis.set_yticks(range(devices), [str(device) for device in range(devices)])
        axis.set_title(case.contender.label)
        axis.set_ylabel("device")
        axis.set_xlim(left=0)
    axes[-1].set_xlabel("seconds")
    figure.suptitle(
        f"{title}: first order. Coloured: good trials, dots where they reach the goal;"
        " dark: switching"
    )
    return figure


def _stays(axis: Any, case: Case, order: Order, paint: Mapping[int, str]) -> None:
    outcome = outcome_of(case, order)
    for stay in outcome.stays:
        colour = paint.get(stay.trial, QUIET)
        axis.barh(stay.device, stay.freed - stay.taken, 0.7, stay.taken, color=SWITCHING)
        axis.barh(
            stay.device,
            stay.ended - stay.begun,
            0.7,
            stay.begun,
            color=colour,
            edgecolor="white",
            linewidth=0.3,
        )
    for place, step in steps_to_goal(order).items():
        at = time_of(outcome, place, step)
        device = next(
            stay.device for stay in outcome.stays if stay.trial == place and stay.last >= step
        )
        axis.plot(at, device, "o", color="black", markerfacecolor="white", markersize=4)
