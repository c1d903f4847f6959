"""Run the digits study under each tool on two cores and compare: `python -m benchmarks.peers`.

`[--epochs N] [--tools LIST] [--runs N]`; runs that were made before are not made again. The others
get an environment of their own, made at the first run, that sees this one's TensorFlow. A tool's
time begins when its program is started, importing included; Hermes' when its daemons are. With
`--gpu`, a loop and Hermes search a residual network in PyTorch on this machine's one GPU, in this
environment, which needs torchvision and scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.live import Wanted, folder, kept, live
from benchmarks.peers.race import Note, Race, race_of, read_diary, truth_of
from benchmarks.peers.training import EXAMPLE, RESNET
from benchmarks.report import publish
from hermesd.sim.contenders import contenders
from hermesd.sim.figures import time_of

ROOT = Path(__file__).parents[2]
SLOTS = 2
LOOP = "loop"
# The module of each of the others, and its words after the diary and the number of epochs.
OTHERS = {
    LOOP: ("plain", "1"),
    "two_loops": ("plain", "2"),
    "optuna_halving": ("with_optuna", "halving"),
    "optuna_hyperband": ("with_optuna", "hyperband"),
    "ray_asha": ("with_ray",),
}
OURS = ("best_first", "asha")
TOOLS = (*OTHERS, *(f"hermes_{name}" for name in OURS))
ON_GPU = (LOOP, "hermes_best_first")


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


def others(tool: str, epochs: int, more: bool, gpu: bool) -> Run | None:
    """A run of another tool, made if it is not there and `more` are wanted."""
    where = folder(name_of(gpu))
    diary, about = where / f"{tool}-{epochs}.jsonl", where / f"{tool}-{epochs}.json"
    if about.exists():
        said = json.loads(about.read_text())
        seconds = said["ended"] - said["begun"]
        return Run(read_diary(diary, said["begun"]), seconds, said["load"])
    if not more:
        return None
    module, *words = ("script",) if gpu else OTHERS[tool]
    python = sys.executable if gpu else interpreter()
    print(f"running {tool}", file=sys.stderr, flush=True)
    variables = {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "0"}
    load, at = os.getloadavg()[0], datetime.now(UTC).isoformat(timespec="seconds")
    diary.unlink(missing_ok=True)
    begun = time.monotonic()
    subprocess.run(
        [python, "-m", f"benchmarks.peers.{module}", diary, str(epochs), *words],
        env={**os.environ, **variables, "RAY_USAGE_STATS_ENABLED": "0"},
        cwd=tempfile.gettempdir(),
        check=True,
    )
    said = {"begun": begun, "ended": time.monotonic(), "load": load, "at": at}
    about.write_text(json.dumps(said, indent=1) + "\n")
    return Run(read_diary(diary, begun), said["ended"] - begun, load)


def ours(policy: str, epochs: int, more: bool, gpu: bool) -> Run | None:
    """A run of Hermes, made if it is not there and `more` are wanted."""
    example, where = RESNET if gpu else EXAMPLE, folder(name_of(gpu))
    spec = yaml.safe_load((example / "study.yaml").read_text())
    spec["parameters"]["epochs"] = {"value": epochs}
    (contender,) = contenders(policy)
    slots = None if gpu else SLOTS
    wanted = Wanted(f"hermes_{policy}-{epochs}", spec, example, contender, slots, warm=False)
    run = kept(wanted, where)
    if run is None and more:
        run = live(wanted, where)
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


def made(tool: str, epochs: int, more: bool, gpu: bool) -> Run | None:
    """A tool's run, made if it is not there and `more` are wanted."""
    if tool in OTHERS:
        return others(tool, epochs, more, gpu)
    return ours(tool.removeprefix("hermes_"), epochs, more, gpu)


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--epochs", type=int, default=12, help="epochs of a trial (12)")
    parser.add_argument("--tools", default=",".join(TOOLS), help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--runs", type=int, default=len(TOOLS), help="at most so many runs now")
    parser.add_argument("--gpu", action="store_true", help="on the GPU of this machine")
    options = parser.parse_args()
    runs: dict[str, Run] = {}
    left, gpu = options.runs, options.gpu
    tools = ON_GPU if gpu else TOOLS
    wanted = [tool for tool in tools if tool == LOOP or tool in options.tools.split(",")]
    for tool in wanted:
        run = made(tool, options.epochs, more=False, gpu=gpu)
        if run is None and left > 0:
            run = made(tool, options.epochs, more=True, gpu=gpu)
            left -= 1
        if run is not None:
            runs[tool] = run
    if LOOP in runs:
        truth = truth_of(runs[LOOP].notes)
        about = ("load", "switches", "overhead")
        columns = ["tool", *(field.name for field in fields(Race)), *about]
        rows: list[list[str | float]] = []
        for tool, run in runs.items():
            values = asdict(race_of(run.notes, truth, run.seconds)).values()
            told = ("never" if each is None else each for each in values)
            rows.append([tool, *told, run.load, run.switches, run.overhead])
        publish(name_of(gpu), columns, rows)
    missing = [tool for tool in wanted if tool not in runs]
    if missing:
        print(f"not run yet: {', '.join(missing)}; run this again", file=sys.stderr)


if __name__ == "__main__":
    main()
