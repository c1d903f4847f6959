"""What training scripts write down of themselves, and what must be true of it.

Nobody is believed but the scripts: each process of a trial signs each of its steps, in a file
that all machines share, and holds the trial's lock while it takes one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby, pairwise
from pathlib import Path

PACE_SECONDS = 0.05
# Each step multiplies the state: one that is lost or repeated shows in every later loss.
SCRIPT = f"""
import argparse, fcntl, json, os, pathlib, secrets, time
import trainer_shim

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--steps", type=int)
parser.add_argument("--book")
arguments = parser.parse_args()
book = f"{{arguments.book}}/{{arguments.rate}}"
lock = open(f"{{book}}.lock", "a")
page = os.open(f"{{book}}.steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
me = secrets.token_hex(16)  # another one in each process, also in one that goes on

trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state.json").read_text())

def save(folder):
    (pathlib.Path(folder) / "state.json").write_text(json.dumps([state, step]))

while step < arguments.steps:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        open(f"{{book}}.twice", "w").close()
        raise
    time.sleep({PACE_SECONDS})
    state, step = state * (1 - arguments.rate), step + 1
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.write(page, f"{{me}} {{step}} {{now}}\\n".encode())
    fcntl.flock(lock, fcntl.LOCK_UN)
    trial.report(step, loss=state, save=save)
"""


def expected(rate: float, steps: int) -> dict[int, float]:
    """The losses of an undisturbed run."""
    losses, state = {}, 1.0
    for step in range(1, steps + 1):
        state *= 1 - rate
        losses[step] = state
    return losses


class Book:
    """The folder that the scripts write to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def trials(self) -> list[Path]:
        """The pages of the trials that have taken a step."""
        return sorted(self.folder.glob("*.steps"))

    def check(self) -> None:
        """No trial ran in two places: neither at the same moment, nor one process after another
        had gone on from a checkpoint of it."""
        assert not list(self.folder.glob("*.twice")), "a trial ran twice at once"
        for page in self.trials():
            processes = list(_writers(page))
            assert len(processes) == len(set(processes)), f"{page.stem}: one went on after another"

    def writer(self, rate: float) -> str:
        """The process that took a trial's newest step; empty if it has taken none."""
        page = self.folder / f"{rate}.steps"
        return _lines(page)[-1][0] if page.exists() else ""

    def lost(self) -> list[int]:
        """How many steps each process did again that another had done before it."""
        return [
            step - first + 1
            for page in self.trials()
            for (one, step, _), (other, first, _) in pairwise(_lines(page))
            if one != other and first <= step
        ]

    def check_ended(self, writers: Collection[str], moment: float) -> None:
        """These processes took no step after a moment of the boot clock: their lease was over, and
        whoever came after them could have begun."""
        for page in self.trials():
            late = [
                step for process, step, at in _lines(page) if process in writers and at > moment
            ]
            assert not late, f"{page.stem}: step {late[0]} came after the end of its lease"


def _lines(page: Path) -> list[tuple[str, int, float]]:
    words = (line.split() for line in page.read_text().splitlines())
    return [(process, int(step), float(at)) for process, step, at in words]


def _writers(page: Path) -> Iterator[str]:
    """The processes that trained a trial, one after the other."""
    for process, steps in groupby(_lines(page), lambda line: line[0]):
        taken = [step for _, step, _ in steps]
        assert taken == list(range(taken[0], taken[-1] + 1)), f"{page.stem}: a step is left out"
        yield process
