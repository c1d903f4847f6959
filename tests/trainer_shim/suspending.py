"""Runs of one training script: undisturbed, suspended at steps, and without Hermes.

Rule: an outcome is each step's loss and the script's last word, to be compared bit for bit.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trainer_shim.driving import Event, Trial, Zygote, ending, environment

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
Outcome = tuple[dict[int, float], str]


@contextmanager
def tensorflow_zygote(folder: Path, **variables: str) -> Iterator[Zygote]:
    """A process that has imported TensorFlow and Keras, and run nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**QUIET, **variables}.items():
            patch.setenv(name, value)
        warm = Zygote(folder / "sock", "tensorflow" if variables else "keras")
    try:
        yield warm
    finally:
        warm.close()


class Runs:
    """Runs of one program, each in a folder of its own."""

    def __init__(self, zygote: Zygote, folder: Path, program: str, **variables: str) -> None:
        self.environment = environment(**QUIET, **variables)
        self.zygote = zygote
        self.folder = folder
        self.script = folder / "train.py"
        self.script.write_text(program)

    @contextmanager
    def trial(self, name: str) -> Iterator[Trial]:
        """A new trial of the program."""
        argv = [sys.executable, str(self.script)]
        trial = Trial(self.folder / name, argv, env=self.environment, seed=7)
        with ending(trial.launch(self.zygote)):
            yield trial

    def plain(self) -> str:
        """The last word of the program without Hermes."""
        folder = self.folder / "plain"
        folder.mkdir()
        run = subprocess.run(
            [sys.executable, str(self.script)],
            cwd=folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return last_word(run.stdout)

    def undisturbed(self) -> Outcome:
        """From start to end."""
        with self.trial("undisturbed") as trial:
            trial.start()
            trial.until("completed")
            return outcome(trial)

    def parked(self, *steps: int) -> Outcome:
        """Held at each of these boundaries, in one process."""
        with self.trial("parked") as trial:
            trial.start(limit=steps[0])
            for step, following in zip(steps, (*steps[1:], None), strict=True):
                assert trial.until("parked")["step"] == step
                trial.resume(limit=following)
            trial.until("completed")
            return outcome(trial)

    def suspended(self, *steps: int) -> Outcome:
        """Ended at each of these boundaries, and begun again from the checkpoint."""
        with self.trial("suspended") as trial:
            restore = None
            for step in steps:
                trial.start(restore=restore, limit=step)
                assert trial.until("parked")["step"] == step
                restore = suspend(trial)["checkpoint"]["path"]
            trial.start(restore=restore)
            trial.until("completed")
            return outcome(trial)


def suspend(trial: Trial) -> Event:
    """End a parked trial by a checkpoint."""
    trial.suspend("checkpoint")
    event = trial.until("suspended", "checkpoint_failed")
    assert event["kind"] == "suspended", event["reason"]
    return event


def outcome(trial: Trial) -> Outcome:
    """The losses, and what the program printed last."""
    return trial.losses(), last_word(trial.output)


def last_word(output: str) -> str:
    """The one line that the program prints at its end."""
    (line,) = [line for line in output.splitlines() if line.startswith("FINAL")]
    return line


def fidelity(trial: Trial) -> tuple[str, str]:
    """The level and the reason that were said last."""
    said = [event for event in trial.events if event["kind"] == "fidelity"]
    return said[-1]["level"], said[-1]["reason"]
