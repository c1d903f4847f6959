"""A study run for real, with a head and a node of its own, and kept as its export.

What is kept is enough to read every figure from; a run that is there already, of the same
study, program, slots and policy with the same settings and defaults, is not run again, so that a
benchmark can be interrupted at any time and begins again with the run that was cut short. Runs of
another machine or other versions are refused rather than mixed with new ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import report
from benchmarks.orphans import scratch
from hermesctl import Client
from hermesctl.sdk import local
from hermesd.core.model import Phase
from hermesd.core.placement import make_placement
from hermesd.policy import make_policy
from hermesd.sim.contenders import Contender
from hermesd.sim.drive import SimulatedOutcome
from hermesd.sim.exports import Exported, open_export
from hermesd.sim.replay import happened

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "0"}
# What the programs of the benchmarks are made with.
_MODULES = ("keras", "tensorflow", "torch", "numpy", "sklearn")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A study to run: its file's content without a schedule, and the folder of its program."""

    name: str
    spec: Mapping[str, object]
    directory: Path
    contender: Contender
    #: How many CPU slots, or their shares, such as "80%,40%"; None: the machine's GPUs.
    slots: int | str | None
    #: Whether a trial of one step is trained before, so that the first start finds the framework
    #: imported as all others do.
    warm: bool = True
    #: A study that the same head has seen to its end; the daemons are started anew after it.
    earlier: Wanted | None = None

    def study(self) -> dict[str, object]:
        """The whole study file."""
        plugins = {"policy": self.contender.policy, "placement": self.contender.placement}
        schedule = {
            key: {"name": plugin.name, **{name: _plain(value) for name, value in plugin.settings}}
            for key, plugin in plugins.items()
        }
        return {**self.spec, "schedule": schedule}

    def settings(self) -> str:
        """The policy and the placement with all their settings: defaults change."""
        policy, placement = self.contender.policy, self.contender.placement
        return f"{make_policy(policy)!r}, {make_placement(placement)!r}"

    def fingerprint(self) -> str:
        """What makes a kept run one of this."""
        text = json.dumps([self.study(), self.slots, self.warm], sort_keys=True)
        programs = [path.read_bytes() for path in sorted(self.directory.glob("*.py"))]
        if self.earlier:
            programs.append(self.earlier.fingerprint().encode())
        return hashlib.sha256(b"\0".join([text.encode(), *programs])).hexdigest()


@dataclass(frozen=True, slots=True)
class Lived:
    """A run: its export, what happened by it, and how loaded the machine was before it."""

    export: Path
    exported: Exported
    outcome: SimulatedOutcome
    load: float
    #: The seconds from the start of the daemons to the submission.
    lead: float

    @property
    def busy(self) -> float:
        """The seconds for which trials were trained."""
        return sum(trial.use.busy_seconds for trial in self.exported.trials)

    @property
    def overhead(self) -> float:
        """The share of device time that went into suspending and resuming."""
        return self.outcome.overhead_seconds / (self.outcome.overhead_seconds + self.busy)

    @property
    def cores(self) -> float:
        """Processor seconds a second of training; a trial alone on its core has nearly 1."""
        return sum(trial.use.cpu_seconds for trial in self.exported.trials) / self.busy


def folder(benchmark: str) -> Path:
    """Where a benchmark's runs are kept."""
    path = report.RESULTS / "runs" / benchmark
    path.mkdir(parents=True, exist_ok=True)
    return path


def kept(wanted: Wanted, where: Path) -> Lived | None:
    """The run if it is there already.

    Raises SystemExit if it is, and was made on another machine or with other versions.
    """
    export, about = where / f"{wanted.name}.jsonl", where / f"{wanted.name}.json"
    if not about.exists():
        return None
    said = json.loads(about.read_text())
    if said["fingerprint"] != wanted.fingerprint():
        return None
    # The first runs that were kept do not say.
    if said.get("settings", wanted.settings()) != wanted.settings():
        return None
    advice = f"move {where} away to make its runs again"
    report.must_agree(about, said.get("conditions", conditions()), conditions(), advice)
    return _lived(export, said["load"], said["lead"])


def live(wanted: Wanted, where: Path) -> Lived:
    """Run the study to its end and keep it.

    Raises:
        ValueError: a trial did not complete.
    """
    export, about = where / f"{wanted.name}.jsonl", where / f"{wanted.name}.json"
    print(f"running {wanted.name}", file=sys.stderr, flush=True)
    load, at = os.getloadavg()[0], datetime.now(UTC).isoformat(timespec="seconds")
    about.unlink(missing_ok=True)
    study = wanted.study()
    with scratch() as folder:
        if wanted.earlier:
            with own_head(folder, wanted.slots) as hermes:
                finished(hermes, wanted.earlier.study(), wanted.earlier.directory)
        begun = time.monotonic()
        with own_head(folder, wanted.slots) as hermes:
            if wanted.warm:
                finished(hermes, {**study, **_one_step(wanted.spec)}, wanted.directory)
            lead = time.monotonic() - begun
            done = finished(hermes, study, wanted.directory)
            report.write_whole(export, b"".join(hermes.export(done)))
    lived = _lived(export, load, lead)
    said = {
        "fingerprint": wanted.fingerprint(), "settings": wanted.settings(), "load": load,
        "at": at, "lead": lead, "conditions": conditions(),
    }  # fmt: skip
    report.write_whole(about, (json.dumps(said, indent=1) + "\n").encode())
    return lived


@contextmanager
def own_head(state: Path, slots: int | str | None) -> Iterator[Client]:
    """A head and a node with these CPU slots, which share nothing with the user's own."""
    environment = {**os.environ, "HERMES_STATE": str(state)}
    # A benchmark that is told to end stops its daemons first.
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda number, frame: sys.exit(128 + number))
    try:
        process = asyncio.run(local.start(environment, slots=slots))
        assert process is not None
        with Client(f"unix:{state / 'head.sock'}") as hermes:
            yield hermes
    finally:
        asyncio.run(local.stop(environment))
    process.wait()


def finished(hermes: Client, study: Mapping[str, object], directory: Path) -> str:
    """Submit a study and wait for its end; its id."""
    submission = hermes.submit(study, directory=directory, again=True, environment=_QUIET)
    hermes.wait(submission)
    return submission.study


def _lived(export: Path, load: float, lead: float) -> Lived:
    exported = open_export(export)
    left = [trial.id for trial in exported.trials if trial.phase is not Phase.COMPLETED]
    if left:
        raise ValueError(f"{export}: not completed: {', '.join(left)}")
    return Lived(export, exported, happened(exported), load, lead)


def conditions() -> dict[str, str | int]:
    """What a run was measured on and with."""
    return {**report.machine(), **report.software(*_MODULES)}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _one_step(spec: Mapping[str, object]) -> dict[str, object]:
    """The parts of a study that make it one trial of one step: the first point of its space."""
    parameters = spec["parameters"]
    assert isinstance(parameters, Mapping)
    first = {
        name: {"values": each["values"][:1]} if "values" in each else each
        for name, each in parameters.items()
    }
    return {"name": "warm", "parameters": first, "stop": {"max_steps": 1}}
