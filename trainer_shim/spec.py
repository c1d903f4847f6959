"""What a host is told about its trial: the file spec.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

# The file's name, in the directory of its trial.
SPEC = "spec.json"
# The variable that names the cores of the slot, with commas between them.
CORES = "HERMES_CPU_CORES"
HUNG_SECONDS = 900.0  # unless the study says another time


@dataclass(frozen=True)
class Spec:
    """One trial as the node daemon describes it. Sizes in bytes, times in seconds."""

    trial: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    checkpoints: str
    output: str
    socket: str
    directory: str
    signal: str = "loss"
    metrics: dict[str, str] = field(default_factory=dict)  # patterns of output, by metric
    seed: int | None = None
    output_limit_bytes: int = 64 << 20
    lease_grace_seconds: float = 60.0
    orphan_seconds: float = 900.0
    hung_seconds: float = HUNG_SECONDS
    cgroup_work: str | None = None
    cgroup_host: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    # Those of the parameters that say how long to train.
    lengths: list[str] = field(default_factory=list)
    # Of those that change: until which step (None: the end), the values, whether a checkpoint is
    # written as it ends.
    stages: list[Any] = field(default_factory=list)
    # Each time that so many further steps are done a checkpoint is written; 0: at none.
    checkpoint_steps: int = 0
    criu: str = ""  # where CRIU is, if images are to be made of the program
    # Whether the driver can move what it has on its GPU to the host's memory.
    moves_device_memory: bool = False
    # Whether an image holds it then, and it can be put back on that GPU from one.
    images_hold_device_memory: bool = False
    # What each of its processes finds in its environment besides, if there are several.
    ranks: list[dict[str, str]] = field(default_factory=list)
    own_files: str = ""  # the folder whose files it looks after, if that is not `cwd`
    temporary: str = ""  # the folder for its temporary files, if it may have one of its own

    @property
    def files(self) -> str:
        """The folder whose files are put back with the program."""
        return self.own_files or self.cwd

    def within(self, environment: Mapping[str, str]) -> Spec:
        """The same with this in its environment, too."""
        return replace(self, env={**self.env, **environment})

    def of_rank(self, number: int, environment: Mapping[str, str]) -> Spec:
        """The same for another of its processes: its checkpoints become part of the first one's,
        which looks after the files of the working directory."""
        folder = os.path.join(self.directory, "ranks", str(number))
        return replace(
            self.within(environment),
            checkpoints=os.path.join(folder, "checkpoints"),
            own_files=os.path.join(folder, "files"),
            output=f"{self.output}.rank{number}",
            criu="",
        )

    @property
    def gpu(self) -> str:
        """The GPU that it was given, or several; empty for none."""
        return self.env.get("CUDA_VISIBLE_DEVICES", "")

    @property
    def cores(self) -> list[int] | None:
        """Those of the slot that it runs in, if it has some of its own."""
        return named_cores(self.env)

    @classmethod
    def load(cls, path: str) -> Spec:
        """Read spec.json: what is known here. Raises TypeError naming a field that is missing, or
        if there are none."""
        with open(path) as file:
            said = {**json.load(file)}
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in said.items() if name in known}
        return cls(**{**given, "directory": os.path.dirname(os.path.abspath(path))})


def named_cores(environment: Mapping[str, str]) -> list[int] | None:
    """The cores that an environment names; None where it names none."""
    named = environment.get(CORES)
    return [int(core) for core in named.split(",")] if named else None


class Stages:
    """Stages in order: until which step each lasts (None: to the end), its values, and whether a
    checkpoint is written as it ends, from which other trials go on. Such a one is also written
    whenever `every` further steps are done (0: never)."""

    def __init__(self, stages: Sequence[Sequence[Any]] = (), every: int = 0) -> None:
        self._every = every
        self._stages = [(until, dict(values)) for until, values, *_ in stages]
        self._forks = {until for until, _, *forks in stages if any(forks)}

    @property
    def names(self) -> list[str]:
        """What changes."""
        return list(self._stages[0][1]) if self._stages else []

    def at(self, step: int) -> Mapping[str, Any]:
        """The values of the iteration that comes after `step` of them."""
        return next((v for until, v in self._stages if until is None or step < until), {})

    def turn(self, step: int) -> int | None:
        """The first step after this one at which something is to be done; None: there is none."""
        end = next((until for until, _ in self._stages if until is None or step < until), None)
        if not self._every:
            return end
        due = (step // self._every + 1) * self._every
        return due if end is None else min(due, end)

    def ended(self, first: int, step: int) -> int | None:
        """The first step from this one on, and before another, at which a stage ends."""
        ends = (until for until, _ in self._stages if until is not None)
        return next((until for until in ends if first <= until < step), None)

    def part(self, step: int) -> bool:
        """Whether it is a stage's end from which other trials go on."""
        return step in self._forks

    def forks(self, turn: int, step: int) -> bool:
        """Whether other trials may go on from where so many steps are done, if something was to be
        done at `turn`: iterations may come several at a time."""
        return self.part(step) or bool(self._every and turn and turn % self._every == 0)
