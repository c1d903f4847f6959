"""`hermesd simulate`: from its arguments to figures on standard output."""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar, cast, get_args

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hermesd.refusal import FieldError, Refused, nearest, one_of, shown
from hermesd.sim.compare import (
    Case,
    OrderResult,
    Recorded,
    Scene,
    cases_of,
    compare,
    opened,
    order_of,
    read,
)
from hermesd.sim.contenders import FIFO, contenders
from hermesd.sim.curves import MOST_SECONDS, Loss
from hermesd.sim.orders import ALL, BINS, Good
from hermesd.sim.report import as_json, report, widest
from hermesd.sim.rows import PolicyRow, Summary, rows_of, summaries_of

T = TypeVar("T")
LOSSES: tuple[str, ...] = get_args(Loss)
GOODS: tuple[str, ...] = get_args(Good)
OUTPUTS = ("table", "json")
BOTH, DRAWN = "1,2", 16
# Of words as short as ours, half a likeness is none: val is not total.
ALIKE = 0.6
# Devices beyond the trials stand idle, and each costs time at every decision.
MOST_DEVICES = 1_024
DIGITS = 9  # of a number that is read at all
NO_CHARTS = "matplotlib, which draws them: pip install matplotlib"


# `bins` is the option --bin. What is said of them is said of the options.
OPTIONS = (
    "curves", "policy", "devices", "bin", "trials", "orders", "switch_cost", "metric_loss", "good",
    "seed", "output", "charts", "history",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Words:
    """The options as they were written."""

    curves: Sequence[Path]
    policy: str
    devices: str
    #: Without it, a stock of curves is drawn from in both bins, and an exported study is run whole.
    bins: str | None
    #: How many are drawn; by default 16.
    trials: int | None
    orders: int
    switch_cost: str
    metric_loss: str
    good: str
    seed: int
    processes: int
    output: str
    charts: Path | None
    history: Sequence[Path] = ()


def simulate(words: Words) -> None:
    """Compare the policies and print the figures.

    Raises:
        Refused: an option that will not do.
        SimulationStalled: a policy failed.
    """
    output = _one_of("output", words.output, OUTPUTS)
    if words.charts is not None and find_spec("matplotlib") is None:
        raise Refused(FieldError("charts", str(words.charts), NO_CHARTS))
    chosen = contenders(words.policy)
    scenes = _scenes(words)
    if words.charts is not None:
        _prepare(words.charts)
    cases = cases_of(scenes, chosen)
    with _progress() as bar:
        task = bar.add_task("orders", total=sum(case.scene.orders for case in cases))
        results = compare(cases, words.processes, lambda done: bar.advance(task, done))
    names = _names([scene.recorded.path for scene in scenes])
    rows = rows_of(results, {scene: names[scene.recorded.path] for scene in scenes})
    rows = [row for row in rows if FIFO in chosen or row.policy != FIFO.label]
    summaries = summaries_of(rows)
    if words.charts is not None:
        _draw(words.charts, rows, results)
    if output == "json":
        print(as_json(rows, summaries))
        return
    _print(rows, summaries)


def _print(rows: Sequence[PolicyRow], summaries: Sequence[Summary]) -> None:
    """Tables as wide as the terminal; where there is none, as wide as they are, for a file.

    A policy's settings are never cut: figures that people copy are whole.
    """
    console = Console(highlight=False)
    width = console.width if console.is_terminal or "COLUMNS" in os.environ else None
    drawn, below = report(rows, summaries, width)
    wide = Console(width=max(console.width, widest(drawn)))
    with wide.capture() as tables, console.capture() as words:
        for table in drawn:
            wide.print(table)
        for line in below:
            console.print(line, style="dim", soft_wrap=width is None)
    for line in (tables.get() + words.get()).splitlines():
        print(line.rstrip())


def _prepare(folder: Path) -> None:
    """Make the folder before the work, not after it. Raises Refused if nothing can be put there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> Refused:
    expected = f"a folder that can be written to ({error.strerror})"
    return Refused(FieldError("charts", str(folder), expected))


def _draw(
    folder: Path, rows: Sequence[PolicyRow], results: Mapping[Case, Sequence[OrderResult]]
) -> None:
    """Raises Refused if the pictures cannot be written."""
    from hermesd.sim.charts import draw_charts

    try:
        written = draw_charts(folder, rows, results)
    except OSError as error:
        raise _unwritable(folder, error) from None
    print(f"{len(written)} charts are in {folder}", file=sys.stderr)


def _progress() -> Progress:
    """A bar on standard error, for people only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal,
        transient=True,
    )  # fmt: skip


def _scenes(words: Words) -> list[Scene]:
    """Every file with every number of devices and bin; each is tried, so that all can be drawn."""
    loss = cast(Loss, _one_of("metric_loss", words.metric_loss, LOSSES))
    good = cast(Good, _one_of("good", words.good, GOODS))
    switch = None if words.switch_cost == "paper" else _seconds(words.switch_cost)
    if not words.curves:
        raise Refused(FieldError("curves", "", "at least one file of recorded curves"))
    trials = DRAWN if words.trials is None else words.trials
    for field, value in (("trials", trials), ("orders", words.orders)):
        if value < 1:
            raise Refused(FieldError(field, str(value), "1 or more"))
    if words.seed < 0:
        raise Refused(FieldError("seed", str(words.seed), "0 or more"))
    for path in words.history:
        read(path, loss)
    scenes = []
    for path in dict.fromkeys(words.curves):
        recorded = Recorded(path, loss, switch, good)
        stock = opened(recorded)[0]
        drawn = words.bins is not None or not stock.whole
        bins = _list("bin", BOTH if words.bins is None else words.bins, _bin) if drawn else [ALL]
        if words.trials is not None and set(bins) == {ALL}:
            told = f"--trials {trials} has no effect on {path}, which is run whole"
            print(f"hermesd: note: {told}: {len(stock.jobs)} trials", file=sys.stderr)
        for devices in _list("devices", words.devices, _devices):
            for bin_type in bins:
                scene = Scene(
                    recorded,
                    devices if isinstance(devices, int) else len(devices),
                    bin_type,
                    trials,
                    words.orders,
                    words.seed,
                    () if isinstance(devices, int) else devices,
                    tuple(words.history),
                )
                order_of(scene, 0)
                scenes.append(scene)
    return scenes


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """What files are called in the figures: their stems, or their paths where stems agree."""
    stems = [path.stem for path in dict.fromkeys(paths)]
    return {path: path.stem if stems.count(path.stem) == 1 else str(path) for path in paths}


def _one_of(field: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise Refused(FieldError(field, value, one_of(choices), nearest(value, choices, ALIKE)))
    return value


def _list(field: str, text: str, read: Callable[[str, str], T]) -> list[T]:
    """What is read of each part; where one is missing, the whole text is what will not do."""
    return list(dict.fromkeys(read(field, part.strip() or text) for part in text.split(",")))


def _devices(field: str, text: str) -> int | tuple[float, ...]:
    """A number of equal devices, or the speed of each."""
    parts = text.split(":")
    if not all(part.isdecimal() and len(part) <= DIGITS and int(part) > 0 for part in parts):
        expected = (
            "whole numbers above 0, with commas between them, or the relative speeds of unequal"
            " devices with colons between them (100:70:50)"
        )
        raise Refused(FieldError(field, shown(text), expected))
    count = int(text) if len(parts) == 1 else len(parts)
    if count > MOST_DEVICES:
        expected = f"at most {MOST_DEVICES:,}: more devices than trials stand idle"
        raise Refused(FieldError(field, text, expected))
    return count if len(parts) == 1 else tuple(int(part) / 100 for part in parts)


def _bin(field: str, text: str) -> int:
    return BINS[_one_of(field, text, list(BINS))]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MOST_SECONDS:
        expected = f"paper, or seconds of 0 or more, up to {MOST_SECONDS:g}"
        raise Refused(FieldError("switch_cost", text, expected))
    return seconds
