"""Runs of one training script: undisturbed, suspended at steps, and without Hermes.

An outcome is each step's loss and the script's last word, to be compared bit for bit.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.forked import WITHOUT, Forked
from tests.trainer_shim.driving import Event, Trial, Zygote, ending, environment
from trainer_shim.host.run import BLIND

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
# For a program that imports Keras itself, and of the other frameworks none: Lightning needs them.
IMPORTING_KERAS = {**QUIET, "PYTHONPATH": WITHOUT}
Outcome = tuple[dict[int, float], str]


@contextmanager
def warm_zygote(folder: Path, preload: str, **variables: str) -> Iterator[Zygote]:
    """A process that has imported a framework, and run nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**QUIET, **variables}.items():
            patch.setenv(name, value)
        warm = Zygote(folder / "sock", preload, of_keras=preload == "keras" and not variables)
    try:
        yield warm
    finally:
        warm.close()


@contextmanager
def tensorflow_zygote(folder: Path, **variables: str) -> Iterator[Zygote]:
    """A process that has imported TensorFlow, and Keras 3 unless there are `variables`."""
    with warm_zygote(folder, "tensorflow" if variables else "keras", **variables) as warm:
        yield warm


def with_keras(folder: Path, *lines: str) -> str:
    """What these lines print, run in a folder by a Python that has imported Keras, of no trial."""
    script = folder / "train.py"
    script.write_text("\n".join(lines))
    run = Forked("keras", str(script), environment=environment(**QUIET), folder=folder)
    code, printed, errors = run.communicate()
    assert code == 0, errors
    return printed


class Runs:
    """Runs of one program, each in a folder of its own; cold ones if there is no zygote."""

    def __init__(self, zygote: Zygote | None, folder: Path, program: str, **variables: str) -> None:
        self.environment = environment(**QUIET, **variables)
        self.folder = folder
        self.script = folder / "train.py"
        self.script.write_text(program)
        self._zygote = zygote
        self._spawning = threading.Lock()  # the zygote answers one at a time

    @contextmanager
    def trial(
        self,
        name: str,
        *arguments: str,
        work: Path | None = None,
        stages: Sequence[tuple[int | None, dict[str, object]]] = (),
        **parameters: object,
    ) -> Iterator[Trial]:
        """A new trial of the program, which may find what another has left in `work`.

        Its arguments are those given, the first of which is its epochs, and its other `parameters`,
        of which those in `stages` change.
        """
        argv = [sys.executable, str(self.script), *arguments]
        argv += [f"--{name}={value}" for name, value in parameters.items()]
        given = {"epochs": int(arguments[0])} if arguments else {}
        trial = Trial(
            self.folder / name,
            argv,
            env=self.environment,
            seed=7,
            parameters={**given, **parameters},
            lengths=["epochs"],
            stages=stages,
        )
        if work is not None:
            shutil.copytree(work, trial.directory / "work", dirs_exist_ok=True)
        with ending(trial):
            with self._spawning:
                trial.launch(self._zygote)
            yield trial

    def plain(self) -> str:
        """The last word of the program without Hermes."""
        folder = self.folder / "plain"
        folder.mkdir()
        if self._zygote is not None and self._zygote.of_keras:
            return last_word(with_keras(folder, self.script.read_text()))
        return last_word(
            subprocess.run(
                [sys.executable, str(self.script)],
                cwd=folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            ).stdout
        )

    def undisturbed(self, *arguments: str) -> Outcome:
        """From start to end."""
        with self.trial("undisturbed", *arguments) as trial:
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

    def parked_everywhere(self, promise: str) -> tuple[Outcome, dict[int, str], Path]:
        """One process, held and saved at every boundary: its outcome, the checkpoints, and the
        folder it worked in. A resume promises this, and nothing else, all the time."""
        checkpoints: dict[int, str] = {}
        with self.trial("parked") as trial:
            trial.start(limit=1)
            while (event := trial.until("parked", "completed"))["kind"] == "parked":
                step = event["step"]
                trial.send("checkpoint", id=f"at-{step}")
                checkpoints[step] = trial.until("checkpointed")["path"]
                trial.resume(limit=step + 1)
            assert {level for level, _ in promised(trial)} == {promise}, promised(trial)
            return outcome(trial), checkpoints, trial.directory / "work"

    def resumed(self, step: int, checkpoint: str, work: Path) -> Outcome:
        """From a checkpoint of another trial to the end; the losses after it only."""
        with self.trial(f"resumed-{step}", work=work) as trial:
            trial.start(restore=checkpoint)
            started = trial.until("started")
            assert started["step"] == step
            trial.until("completed")
            return outcome(trial)

    def resumed_wrongly(
        self, undisturbed: Outcome, checkpoints: dict[int, str], work: Path
    ) -> list[int]:
        """The checkpoints from which a new process does not compute the rest of this."""
        losses, final = undisturbed

        def differs(step: int) -> bool:
            after = {at: loss for at, loss in losses.items() if at > step}
            return self.resumed(step, checkpoints[step], work) != (after, final)

        with ThreadPoolExecutor(2) as pool:
            wrong = dict(zip(checkpoints, pool.map(differs, checkpoints), strict=True))
        return [step for step in checkpoints if wrong[step]]

    def suspended(self, *steps: int) -> Outcome:
        """Ended at each of these boundaries, and begun again from the checkpoint."""
        with self.trial("suspended") as trial:
            complete(trial, *steps)
            return outcome(trial)

    def extended(self, epochs: Sequence[str], suspend_at: int | None = None) -> Outcome:
        """Trained to its end for each number of epochs, from the end before; perhaps suspended."""
        losses: dict[int, float] = {}
        restore = work = None
        for number in epochs:
            with self.trial(f"for-{number}", number, work=work) as trial:
                work = trial.directory / "work"
                trial.start(restore=restore, limit=suspend_at)
                assert trial.until("started")["step"] == max(losses, default=0)
                if trial.until("parked", "completed")["kind"] == "parked":
                    suspend_at = None
                    trial.start(restore=suspend(trial)["checkpoint"]["path"])
                    trial.until("completed")
                restore = trial.events[-1]["checkpoint"]["path"]
                more, line = outcome(trial)
                planned = [event["steps"] for event in trial.events if event["kind"] == "planned"]
                assert planned[-1:] in ([], [max(more)]), "the planned length is told anew"
                assert not losses.keys() & more.keys(), "no step is trained twice"
                losses |= more
        return losses, line


def suspend(trial: Trial) -> Event:
    """End a parked trial by a checkpoint."""
    trial.suspend("checkpoint")
    event = trial.until("suspended", "checkpoint_failed")
    assert event["kind"] == "suspended", event["reason"]
    return event


def complete(trial: Trial, *steps: int) -> None:
    """Run a trial to its end, ended at each of these boundaries and begun again from there."""
    restore = None
    for step in steps:
        trial.start(restore=restore, limit=step)
        assert trial.until("parked")["step"] == step
        restore = suspend(trial)["checkpoint"]["path"]
    trial.start(restore=restore)
    trial.until("completed")


def outcome(trial: Trial) -> Outcome:
    """The losses, and what the program printed last."""
    return trial.losses(), last_word(trial.output)


def last_word(output: str) -> str:
    """The one line that the program prints at its end."""
    (line,) = [line for line in output.splitlines() if line.startswith("FINAL")]
    return line


def promised(trial: Trial) -> list[tuple[str, str]]:
    """Each level and reason that was said, in order. What a host says of a program that has come to
    no iteration for some seconds counts only if that is the last: on a busy machine any is so slow.
    """
    said = [event for event in trial.events if event["kind"] == "fidelity"]
    words = [(event["level"], event["reason"]) for event in said]
    return [each for each in words[:-1] if each[1] != BLIND] + words[-1:]


def fidelity(trial: Trial) -> tuple[str, str]:
    """The level and the reason that were said last."""
    return promised(trial)[-1]
