"""How long a trial of each example takes from its start to its first step: in an interpreter of its
own, forked from one that has imported the framework, and from one that has imported all that its
program needs of other libraries, too, as nodes have them. In turns; examples whose frameworks are
not here are left out. `python -m benchmarks.starts [--rounds N]`.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.orphans import scratch
from benchmarks.report import median, publish, software
from hermesd.node.runner.imports_ahead import imports_ahead
from tests.trainer_shim.driving import ROOT, Trial, Zygote, ending, environment
from tests.trainer_shim.suspending import QUIET, warm_zygote

EXAMPLES = {
    "digits": ("keras", "sklearn"),
    "pytorch": ("torch", "sklearn"),
    "lightning": ("torch", "lightning", "sklearn"),
    "transformers": ("torch", "transformers"),
}


def started(folder: Path, example: str, zygote: Zygote | None) -> float:
    """Seconds until a trial has begun its first step."""
    script = ROOT / "examples" / example / "train.py"
    trial = Trial(folder, [sys.executable, str(script)], environment(**QUIET))
    asked = time.monotonic()
    with ending(trial.launch(zygote)):
        trial.start()
        trial.until("started")
        return time.monotonic() - asked


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    rows: list[list[str | float]] = []
    for example, frameworks in EXAMPLES.items():
        if len(software(*frameworks)) < len(frameworks):
            continue
        ahead = imports_ahead(ROOT / "examples" / example) or ""
        seconds: list[list[float]] = [[], [], []]
        with scratch() as folder, ExitStack() as stack:
            zygotes: list[Zygote | None] = [None]
            for number, preload in enumerate((ahead.split(",")[0], ahead)):
                (folder / str(number)).mkdir()
                zygotes.append(stack.enter_context(warm_zygote(folder / str(number), preload)))
            for round in range(rounds):
                for way, zygote in enumerate(zygotes):
                    trial = folder / f"{way}-{round}"
                    seconds[way].append(started(trial, example, zygote))
        cold, framework, all_of_it = map(median, seconds)
        rows.append([example, cold, framework, all_of_it, framework / all_of_it])
    publish("starts", ["example", "cold", "framework", "all imports", "times sooner"], rows)


if __name__ == "__main__":
    main()
