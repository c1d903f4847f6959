"""The figures as charts, PNG and SVG: speed-ups, incumbents, and which trial had which device when.

The same results make the same bytes. matplotlib is the extra `plots`, imported only here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Shape

from hermesd.sim.compare import SAMPLED, Case, OrderResult, Scene, order_of, outcome_of
from hermesd.sim.figures import steps_to_goal, time_of
from hermesd.sim.orders import GOOD_IN_BIN, SubmissionOrder
from hermesd.sim.report import bin_words, device_words, order_words, speed_words
from hermesd.sim.rows import PolicyRow

# Okabe and Ito's colors, told apart by everyone; FIFO is the gray reference.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c564b")
# A lowest loss within this of the best of all tells no policies apart.
SETTLED = 0.01
# How many letters a line of a legend holds, and as how many a key counts.
LETTERS, KEY_LETTERS = 110, 8
TICKS = (0.25, 0.5, 1, 2, 4, 8, 16, 32)
REFERENCE, QUIET, SWITCHING = "#8c8c8c", "#d9d9d9", "#333333"
Corners: TypeAlias = tuple[tuple[float, float], ...]
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
    folder: Path, rows: Sequence[PolicyRow], results: Mapping[Case, Sequence[OrderResult]]
) -> list[Path]:
    """Every chart of a comparison, in `folder`; says what was written. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = [row.policy for row in rows]
    paint = colors([policy for policy in dict.fromkeys(shown) if policy != "fifo"])
    written: list[Path] = []
    with matplotlib.rc_context(dict(STYLE)):
        for slug in dict.fromkeys(_slug(row.scene) for row in rows):
            mine = [row for row in rows if _slug(row.scene) == slug]
            written += _save(folder / f"speedup-{slug}", speedups(mine, paint))
        named = stems([row.file for row in rows])
        for scene in dict.fromkeys(row.scene for row in rows):
            file = next(row.file for row in rows if row.scene == scene)
            cases = [c for c in results if c.scene == scene and c.contender.label in shown]
            stem = f"{named[file]}-{_slug(scene)}"
            title = f"{file}, {_title(scene)}"
            curves = {case.contender.label: results[case] for case in cases}
            told = f"{title}, {order_words(scene)}"
            written += _save(folder / f"incumbent-{stem}", incumbents(told, curves, paint))
            written += _save(folder / f"devices-{stem}", gantt(title, cases))
    return written


def colors(policies: Sequence[str]) -> dict[str, str]:
    """A color for each policy."""
    listed = {policy: COLORS[i % len(COLORS)] for i, policy in enumerate(policies)}
    return {"fifo": REFERENCE, **listed}


def stems(files: Sequence[str]) -> dict[str, str]:
    """What the charts of each file are called, no two alike: a file is known by its stem, or by its
    path where stems agree."""
    found: dict[str, str] = {}
    for file in dict.fromkeys(files):
        path = Path(file)
        stem = file
        if path.suffix == ".npz" or len(path.parts) > 1:
            stem = "-".join(part for part in path.with_suffix("").parts if part.strip("./"))
        taken = set(found.values())
        others = (f"{stem}-{number}" for number in count(2))
        found[file] = next(name for name in chain([stem], others) if name not in taken)
    return found


def _slug(scene: Scene) -> str:
    bin_part = f"bin{scene.bin_type}" if scene.bin_type else "all"
    speeds = f"-{speed_words(scene.speeds).replace(':', '-')}" if scene.speeds else ""
    return f"{bin_part}-{scene.devices}dev{speeds}"


def _save(stem: Path, figure: Figure) -> list[Path]:
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    figure.savefig(paths[0], dpi=150, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    return paths


def speedups(rows: Sequence[PolicyRow], paint: Mapping[str, str]) -> Figure:
    """Bars by file: how many times as fast as FIFO, whiskers from P10 to P90, the bound a line.

    On a scale of doublings a bar has no foot but FIFO itself: it stands on that, or hangs from it.
    """
    files = list(dict.fromkeys(row.file for row in rows))
    policies = list(dict.fromkeys(row.policy for row in rows if row.policy != "fifo")) or ["fifo"]
    scene = rows[0].scene
    panels = {"time_to_good": "until the good trials reach the goal"}
    if scene.bin_type != 1:  # In bin 1 the good trials are the top four.
        panels["top4"] = "until the top four trials reach the goal"
    figure = Figure(figsize=(8, 1.4 + 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    width = 0.8 / len(policies)
    for axis, (name, title) in zip(axes, panels.items(), strict=True):
        for row in (row for row in rows if row.policy in policies):
            one = row.comparisons[name]
            at = files.index(row.file) + (policies.index(row.policy) + 0.5) * width - 0.4
            axis.bar(at, one.ratio - 1, width * 0.92, bottom=1, color=paint[row.policy])
            axis.plot([at, at], [one.p10, one.p90], color=SWITCHING, linewidth=0.8)
            number = f"{one.ratio:.{1 if one.ratio >= 1 else 2}f}"
            foot, side = ((0, -3), "top") if one.ratio >= 1 else ((0, 2), "bottom")
            axis.annotate(
                number, (at, 1), foot, textcoords="offset points", ha="center", va=side,
                fontsize=7, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )  # fmt: skip
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
        axis.tick_params("x", length=0)
        axis.set_ylabel("times as fast as FIFO")
        axis.set_title(title)
    handles: list[Artist] = [Patch(color=paint[policy], label=policy) for policy in policies]
    handles.append(Line2D([], [], color=SWITCHING, linewidth=0.8, label="P10 to P90"))
    handles.append(Line2D([], [], color="black", linestyle=":", label="clairvoyant bound"))
    widest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), LETTERS // (widest + KEY_LETTERS)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    figure.suptitle(_title(scene, order_words(scene)))
    return figure


def _title(scene: Scene, *words: str) -> str:
    """A scene in words that need no manual."""
    good = f"{GOOD_IN_BIN[scene.bin_type]:.0%} of the trials good, " if scene.bin_type else ""
    return f"{bin_words(scene.bin_type)}: {good}{', '.join((device_words(scene), *words))}"


def _span(rows: Sequence[PolicyRow], name: str) -> tuple[float, float]:
    """An axis that shows all of a figure's ratios, its whiskers and the bound."""
    mine = [row.comparisons[name] for row in rows]
    highest = max(max(one.p90, one.ratio / one.bound_share) for one in mine)
    return min(0.9, *(0.9 * one.p10 for one in mine)), 1.2 * highest


def incumbents(
    title: str, curves: Mapping[str, Sequence[OrderResult]], paint: Mapping[str, str]
) -> Figure:
    """How the lowest loss falls, the mean over the orders, until it hardly falls any more."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axis = figure.subplots()
    last = 0
    lines: dict[tuple[float, ...], list[str]] = {}
    for policy, results in curves.items():
        mean = np.mean([result.incumbent for result in results], axis=0)
        lines.setdefault(tuple(mean.tolist()), []).append(policy)
        last = max(last, *np.flatnonzero(mean > SETTLED).tolist(), 0)
    for line, policies in lines.items():
        # Of two that are the same one would hide the other: it bears both names.
        label = " = ".join(policies)
        axis.step(SAMPLED, line, where="post", color=paint[policies[0]], label=label)
    axis.set_xlim(0, float(SAMPLED[min(last + 1, len(SAMPLED) - 1)]))
    axis.set_ylim(0, 1)
    axis.set_xlabel("time, as a share of the least time for all trials")
    axis.set_ylabel("lowest loss so far\n(start = 1, best of all = 0)")
    axis.set_title(title)
    axis.legend()
    return figure


def gantt(title: str, cases: Sequence[Case]) -> Figure:
    """Who had which device when, in the first order: a panel for each policy."""
    order = order_of(cases[0].scene, 0)
    devices = cases[0].scene.devices
    paint = {place: COLORS[i % len(COLORS)] for i, place in enumerate(order.good)}
    height = 0.55 + 0.28 * devices
    figure = Figure(figsize=(9, 1 + height * len(cases)), layout="constrained")
    axes = figure.subplots(len(cases), 1, sharex=True, squeeze=False)[:, 0]
    for axis, case in zip(axes, cases, strict=True):
        _stays(axis, case, order, paint)
        axis.set_ylim(devices - 0.5, -0.5)
        axis.set_yticks(range(devices), device_names(cases[0].scene))
        axis.set_title(case.contender.label)
        axis.set_ylabel("device: speed" if case.scene.speeds else "device")
        axis.margins(x=0.01)
    axes[-1].set_xlim(left=0)
    axes[-1].set_xlabel("seconds")
    figure.suptitle(f"{title}, the first order")
    handles: list[Artist] = [Patch(color=COLORS[0], label="good trials, a color each")]
    dot = Line2D([], [], color="black", marker="o", markerfacecolor="white", linestyle="")
    dot.set(markersize=4, label="reaches the goal")
    handles.append(dot)
    handles.append(Patch(color=QUIET, label="other trials"))
    handles.append(Patch(color=SWITCHING, label="switching"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def device_names(scene: Scene) -> list[str]:
    """What devices are called beside their rows: unequal ones by their speeds, too."""
    speeds = [f": {100 * speed:g}" for speed in scene.speeds] or [""] * scene.devices
    return [f"{device}{speed}" for device, speed in enumerate(speeds)]


def _stays(axis: Any, case: Case, order: SubmissionOrder, paint: Mapping[int, str]) -> None:
    outcome = outcome_of(case, order)
    shown: dict[str, list[Corners]] = {}
    switching = []
    for stay in outcome.stays:
        mine = shown.setdefault(paint.get(stay.trial, QUIET), [])
        mine.append(_corners(stay.device, stay.begun, stay.ended))
        switching.append(_corners(stay.device, stay.taken, stay.begun))
        switching.append(_corners(stay.device, stay.ended, stay.freed))
    # One shape for all of a color: a picture of hundreds of stays remains small. Switches have an
    # edge, or few of them would be wide enough to be seen.
    for color, stays in (*shown.items(), (SWITCHING, switching)):
        edge = 0.5 if color == SWITCHING else 0.0
        shape = Shape.make_compound_path_from_polys(np.array(stays))
        axis.add_patch(PathPatch(shape, facecolor=color, edgecolor=color, linewidth=edge))
    axis.autoscale_view()
    for place, step in steps_to_goal(order).items():
        at = time_of(outcome, place, step)
        device = next(
            stay.device for stay in outcome.stays if stay.trial == place and stay.last >= step
        )
        axis.plot(at, device, "o", color="black", markerfacecolor="white", markersize=4)


def _corners(device: int, begun: float, ended: float) -> Corners:
    top, bottom = device - 0.35, device + 0.35
    return ((begun, top), (ended, top), (ended, bottom), (begun, bottom))
