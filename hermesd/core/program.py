"""What a trial's process is made of: its command line, its interpreter, what that has installed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Venv:
    """A virtual environment: an interpreter, and what a requirements file wants installed."""

    python: str
    requirements: str

    @property
    def name(self) -> str:
        """The same wherever it is made: of what it is made of."""
        made_of = f"{self.python}\n{self.requirements}".encode()
        return f"venv-{hashlib.sha256(made_of).hexdigest()[:16]}"


def conda_need(name: str) -> str:
    """What a conda environment is called among what studies need, which are paths besides."""
    return f"conda environment {name}"


@dataclass(frozen=True, slots=True)
class Program:
    """What a node needs to run a study's trials; each trial's argv is built from its parameters."""

    argv: tuple[str, ...]
    python: str
    code_sha256: str
    submit_directory: str
    environment: tuple[tuple[str, str], ...] = ()
    data: tuple[str, ...] = ()
    requirements: str = ""
    # The name of a conda environment, which has the interpreter.
    conda: str = ""

    @property
    def interpreter(self) -> tuple[str, ...]:
        """The path of the interpreter that nodes must have; none where each finds its own."""
        return (self.python,) if self.python.startswith("/") and not self.conda else ()

    @property
    def environment_need(self) -> str:
        """What the environment is called that nodes must have; empty without one."""
        if self.conda:
            return conda_need(self.conda)
        return "" if self.venv is None else self.venv.name

    @property
    def venv(self) -> Venv | None:
        """What it runs in, if not in its interpreter as that is."""
        return Venv(self.python, self.requirements) if self.requirements else None
