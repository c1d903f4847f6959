"""Search under each tool on two cores and compare: `python -m benchmarks.peers`.

`[--models LIST] [--orders N] [--tools LIST] [--epochs N] [--resume] [--runs N]`. Three kinds of
models: a convolutional network on images of digits (*cnn*), a recurrent one on text (*rnn*), a
multilayer perceptron on a photograph (*mlp*); the same parameters are searched of each, by 16
random points an order. The table has medians over the orders. What `--resume` finds made is not
made again, so it may be cut short at any time.

The others get an environment of their own, made at the first run, that sees this one's TensorFlow.
A tool's time begins when its program is started, importing included; Hermes' when its daemons are.
`hermes_best_first_earlier` has seen an earlier study: of the kind that comes before in the list,
other points, to its end under the same daemons, which are started anew after it. The time of that
does not count. With `--gpu`, a loop and Hermes search a residual network in PyTorch on this
machine's one GPU, in this environment, which needs torchvision and scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.live import Wanted, conditions, folder, kept, live
from benchmarks.peers.race import Note, Race, race_of, read_diary, truth_of
from benchmarks.peers.training import MODELS, ON_GPU, study
from benchmarks.report import digest, median, must_agree, publish, write_whole
from hermesd.sim.contenders import contenders
from hermesd.sim.figures import time_of

ROOT = Path(__file__).parents[2]
SLOTS = 2
LOOP = "loop"
# The module of each of the others, and its words after the diary, the search and its epochs.
OTHERS = {
    LOOP: ("plain", "1"),
    "two_loops": ("plain", "2"),
    "optuna_halving": ("with_optuna", "halving"),
    "optuna_hyperband": ("with_optuna", "hyperband"),
    "ray_asha": ("with_ray",),
}
EARLIER = "_earlier"
OURS = ("asha", "best_first", f"best_first{EARLIER}")
TOOLS = (*OTHERS, *(f"hermes_{name}" for name in OURS))
KINDS = tuple(model for model in MODELS if model != ON_GPU)
RACE = [field.name for field in fields(Race)]
COLUMNS = ["model", "tool", "orders", *RACE, "load", "switches", "overhead"]
# The points of earlier studies are those of orders that are not run.
EARLIER_ORDERS = 1_000


class Search(NamedTuple):
    """What each tool gets: the trials of an order, each for so many epochs."""

    model: str
    order: int
    epochs: int

    def spec(self) -> dict[str, Any]:
        """The study for Hermes."""
        spec = study(self.model, self.order)
        spec["parameters"]["epochs"] = {"value": self.epochs}
        return spec

    def wanted(self, policy: str, earlier: Wanted | None = None) -> Wanted:
        """The study under a policy."""
        name = f"{self.model}-{self.order}-{self.epochs}-hermes_{policy}"
        (contender,) = contenders(policy)
        slots = None if self.model == ON_GPU else SLOTS
        where = MODELS[self.model]
        run = Wanted(name, self.spec(), where, contender, slots, warm=False, earlier=earlier)
        return run if earlier is None else replace(run, name=f"{name}{EARLIER}")

    def before(self) -> Search:
        """The earlier study: of another kind of models, with other points."""
        model = KINDS[KINDS.index(self.model) - 1]
        return Search(model, EARLIER_ORDERS + self.order, self.epochs)


class Run(NamedTuple):
    """What a tool did."""

    notes: list[Note]
    seconds: float
    #: Of the machine, before.
    load: float
    #: Of Hermes: its suspends, and the share of its device time that went into these and resumes.
    switches: int = 0
    overhead: float = 0.0


def interpreter() -> Path:
    """The others' Python, in an environment beside ours that is made if it is not there."""
    home = Path(sys.prefix) / "peers"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        print(f"making {home}", file=sys.stderr, flush=True)
        venv.create(home, with_pip=True, clear=True)
        requirements = Path(__file__).parent / "requirements.txt"
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
        site = next(home.glob("lib/python*/site-packages"))
        (site / "hermes.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (home / "ready").touch()
    return python


def others(tool: str, search: Search, new: bool) -> Run | None:
    """A run of another tool: a new one, or the one that is kept.

    Raises SystemExit if that was made otherwise than it would be now.
    """
    gpu = search.model == ON_GPU
    where, name = folder(name_of(gpu)), f"{search.model}-{search.order}-{search.epochs}-{tool}"
    diary, about = where / f"{name}.jsonl", where / f"{name}.json"
    texts = [
        json.dumps(search.spec()),
        *map(Path.read_text, sorted(MODELS[search.model].glob("*.py"))),
        *map(Path.read_text, sorted(Path(__file__).parent.glob("*.py"))),
        (Path(__file__).parent / "requirements.txt").read_text(),
    ]
    made_with = {**conditions(), "search": digest("\0".join(texts))}
    if not new:
        if not about.exists():
            return None
        said = json.loads(about.read_text())
        advice = f"move {where} away to make its runs again"
        must_agree(about, said["conditions"], made_with, advice)
        return Run(read_diary(diary, said["begun"]), said["ended"] - said["begun"], said["load"])
    module, *words = ("script",) if gpu else OTHERS[tool]
    python = sys.executable if gpu else interpreter()
    print(f"running {name}", file=sys.stderr, flush=True)
    # Ray's trials would make way for all else on the machine, as no other tool's do.
    variables = {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "0"}
    variables |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    load, at = os.getloadavg()[0], datetime.now(UTC).isoformat(timespec="seconds")
    diary.unlink(missing_ok=True)
    about.unlink(missing_ok=True)
    begun = time.monotonic()
    subprocess.run(
        [python, "-m", f"benchmarks.peers.{module}", diary, *map(str, search), *words],
        env={**os.environ, **variables},
        cwd=tempfile.gettempdir(),
        check=True,
    )
    said = {"begun": begun, "ended": time.monotonic(), "load": load, "at": at}
    text = json.dumps({**said, "conditions": made_with}, indent=1)
    write_whole(about, f"{text}\n".encode())
    return Run(read_diary(diary, begun), said["ended"] - begun, load)


def ours(policy: str, search: Search, new: bool) -> Run | None:
    """A run of Hermes: a new one, or the one that is kept."""
    name = policy.removesuffix(EARLIER)
    earlier = search.before().wanted(name) if name != policy else None
    wanted, where = search.wanted(name, earlier), folder(name_of(search.model == ON_GPU))
    run = (live if new else kept)(wanted, where)
    if run is None:
        return None
    places = {trial.id: place for place, trial in enumerate(run.exported.trials)}
    notes = [
        Note(places[trial], epoch, loss, run.lead + time_of(run.outcome, places[trial], step))
        for trial, losses in validation(run.export).items()
        for epoch, (step, loss) in enumerate(sorted(losses.items()), 1)
    ]
    seconds, outcome = run.lead + max(run.outcome.finished), run.outcome
    return Run(notes, seconds, run.load, outcome.switches, run.overhead)


def made(tool: str, search: Search, new: bool) -> Run | None:
    """A tool's run: a new one, or the one that is kept."""
    if tool in OTHERS:
        return others(tool, search, new)
    return ours(tool.removeprefix("hermes_"), search, new)


def name_of(gpu: bool) -> str:
    """Of the benchmark and of its runs."""
    return "peers_gpu" if gpu else "peers"


def validation(export: Path) -> dict[str, dict[int, float]]:
    """The validation losses of an exported study's trials by step."""
    found: dict[str, dict[int, float]] = {}
    for line in export.read_text().splitlines():
        piece: dict[str, Any] = json.loads(line)
        if piece["type"] == "points" and piece["metric"] == "val_loss":
            points = zip(map(int, piece["steps"]), map(float, piece["values"]), strict=True)
            found.setdefault(piece["trial"], {}).update(points)
    return found


# Of each tool on each kind of models: its runs, and what they came to.
Figures = dict[tuple[str, str], list[tuple[Run, Race]]]


def rows(found: Figures) -> list[list[str | float]]:
    """The medians over the orders of each tool on each kind; the highest load and difference."""
    table: list[list[str | float]] = []
    for (model, tool), races in found.items():
        row: list[str | float] = [model, tool, len(races)]
        for field in RACE:
            values = [getattr(race, field) for _, race in races]
            # What a tool never came to is later, or worse, than anything.
            known = [math.inf if value is None else value for value in values]
            middle = max(known) if field == "differs" else median(known)
            row.append("never" if math.isinf(middle) else middle)
        runs = [run for run, _ in races]
        row += [
            max(run.load for run in runs),
            median([run.switches for run in runs]),
            median([run.overhead for run in runs]),
        ]
        table.append(row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--models", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--orders", type=int, default=1, help="how many draws of 16 trials (1)")
    parser.add_argument("--tools", default=",".join(TOOLS), help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--epochs", type=int, default=12, help="epochs of a trial (12)")
    parser.add_argument("--resume", action="store_true", help="go on with the runs that are kept")
    parser.add_argument("--runs", type=int, default=1_000_000, help="at most so many runs now")
    parser.add_argument("--gpu", action="store_true", help="on the GPU of this machine")
    options = parser.parse_args()
    for name, known in (("models", KINDS), ("tools", TOOLS)):
        if unknown := set(getattr(options, name).split(",")) - set(known):
            wrong = ", ".join(sorted(unknown))
            parser.error(f"--{name}: {wrong}: expected some of {','.join(known)}")
    models = [ON_GPU] if options.gpu else options.models.split(",")
    asked_for = {LOOP, *(["hermes_best_first"] if options.gpu else options.tools.split(","))}
    left, missing = options.runs, 0
    found: Figures = {}
    for search in (Search(m, o, options.epochs) for o in range(options.orders) for m in models):
        truth = None
        for tool in (tool for tool in TOOLS if tool in asked_for):
            run = made(tool, search, new=False) if options.resume else None
            if run is None and left > 0:
                run = made(tool, search, new=True)
                left -= 1
            if run is None:
                missing += 1
                continue
            if tool == LOOP:
                truth = truth_of(run.notes)
            if truth is not None:
                race = race_of(run.notes, truth, run.seconds)
                found.setdefault((search.model, tool), []).append((run, race))
    publish(name_of(options.gpu), COLUMNS, rows(found))
    if missing:
        print(f"{missing} runs are not made yet; run this again with --resume", file=sys.stderr)


if __name__ == "__main__":
    main()
