"""One run of the trial, with its own host: started, suspended, resumed, listened to, ended.

Every run has the same paths and the same environment, so nothing depends on where it ran. One run
is made at a time, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hermesd.core.node.messages import Work
from hermesd.node import deep_trees
from hermesd.node.frames import Frame
from hermesd.node.machine import processes
from hermesd.node.machine.environment import program_environment
from hermesd.node.runner import cleanup, host_link
from hermesd.node.runner.host_link import HostLink
from hermesd.node.runner.imports_ahead import imports_ahead
from hermesd.node.runner.start import spec_of
from hermesd.node.runner.zygotes import Zygotes
from hermesd.node.storage import checkpoints, code
from hermesd.node.storage.trial_folder import TrialFolder
from hermesd.verify import contents
from hermesd.verify.comparison import ARRAYS, TrialOutput, shown, state_of

_OUTPUT_BYTES = 1 << 20
_ORPHAN_SECONDS = 10
_DEADLINE_SECONDS = 600
_OUTPUT_LINES = 15
# What C++ libraries log of the machine, such as that there is no GPU: E0000 00:00:1795383823.799085
_LOGGED = re.compile(r"[IWEF]\d{4} \d\d:\d\d:[\d.]+ ")
_MOST_SECONDS = 60.0
_STEPLESS_SECONDS = 300.0


class ArmFailed(Exception):
    """The program, or a suspend or resume of it, failed; says how, with the end of its output."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where runs take place, and of what."""

    folder: TrialFolder
    snapshot: Path
    shim: Path
    zygotes: Zygotes
    work: Work
    environ: Mapping[str, str]
    #: What each of its processes finds in its environment besides, if they are ranks of each other;
    #: nothing for one that is none.
    ranks: Sequence[Mapping[str, str]] = ()
    criu: str = ""  # where images are made of the program's processes
    world: tuple[str, ...] = ()
    #: What the program sees of its GPUs; whether the driver was seen to move what it has there, and
    #: whether images hold that.
    gpus: Mapping[str, str] = field(default_factory=dict)
    gpu_is_moved: bool = False
    gpu_is_imaged: bool = False


class Arm:
    """A run under way."""

    def __init__(self, bench: Bench, link: HostLink, heard: Callable[[int], None]) -> None:
        #: What was heard of it so far.
        self.outcome = TrialOutput(signal=bench.work.signal)
        # By step, the checkpoints that it wrote in passing for others to go on from.
        self.forks: dict[int, str] = {}
        self._bench = bench
        self._link = link
        self._heard = heard
        self._attempt = 0
        self._is_timed = False
        self._alarm: asyncio.TimerHandle | None = None

    async def start(self, limit: int | None, restore: str | None = None) -> bool:
        """Run in a new process up to `limit` steps; whether the program goes on after them.

        Without a limit, for a minute from its first step, or for five without any.
        """
        self._attempt += 1
        self._is_timed = limit is None
        return await self._run("start", limit, restore=restore)

    async def resume(self, limit: int) -> bool:
        """Let the parked process go on up to `limit` steps; whether it goes on after them."""
        self._attempt += 1
        return await self._run("resume", limit)

    async def checkpoint(self) -> str:
        """End the parked process; where its checkpoint is. Raises ArmFailed."""
        event = await self._given_back()
        if event["kind"] == "checkpoint_failed":
            raise ArmFailed(f"no checkpoint: {event['reason']}")
        if event["tier"] != "checkpoint":
            raise ArmFailed(f"it was ended without a checkpoint: {event['cause']}")
        return str(event["checkpoint"]["path"])

    async def take_state(self) -> None:
        """End the parked process and add its state to the outcome, if it can be saved. Raises
        ArmFailed where the program fails meanwhile."""
        event = await self._given_back()
        if event["kind"] == "suspended" and event["tier"] == "checkpoint":
            self._keep_state(str(event["checkpoint"]["path"]))

    async def _given_back(self) -> Frame:
        """Have the parked process end with a checkpoint; what came of that."""
        self._ask("suspend", tier="checkpoint", deadline_seconds=_DEADLINE_SECONDS)
        return await self._until("suspended", "checkpoint_failed")

    async def _run(self, kind: str, limit: int | None, **fields: object) -> bool:
        self._ask(kind, limit_step=limit, **fields)
        try:
            event = await self._until("parked", "completed")
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
        while event["kind"] == "parked" and event["step"] and not event["at_boundary"]:
            # Stopped between two loops when its minute was over, it has not told all that it did.
            self._attempt += 1
            self._ask("resume", limit_step=1)
            event = await self._until("parked", "completed")
        self.outcome.step = int(event["step"])
        if event["kind"] == "parked":
            return True
        self.outcome.ended = True
        if event["checkpoint"] is not None and event["checkpoint"]["step"] == event["step"]:
            self._keep_state(str(event["checkpoint"]["path"]))
        return False

    def _keep_state(self, path: str) -> None:
        manifest = json.loads(Path(path, checkpoints.MANIFEST).read_text())
        self.outcome.is_imaged = manifest.get("form") == "image"
        if self.outcome.is_imaged:
            return
        state = state_of(manifest["files"])
        if not any(name.endswith(ARRAYS) for name in state):  # the program writes its own
            state = {name: contents.sum_of(Path(path, name)) for name in state}
        self.outcome.state = state

    def _ask(self, kind: str, **fields: object) -> None:
        self._link.send(kind, attempt=self._attempt, **fields)

    async def _until(self, *kinds: str) -> Frame:
        while (event := await self._link.hear()) is not None:
            kind = event["kind"]
            if kind == "fidelity":
                self.outcome.level, self.outcome.reason = event["level"], event["reason"]
            elif kind == "reported":
                self.outcome.hear(event)
                self._heard(int(event["last_step"]))
                self._time(int(event["last_step"]))
            elif kind == "checkpointed" and event.get("is_fork"):
                self.forks[int(event["step"])] = str(event["path"])
            elif kind == "failed":
                raise ArmFailed(f"{event['error_signature']}{self._last_output()}")
            if kind in kinds:
                return event
        raise ArmFailed(f"its host ended{self._last_output()}")

    def _time(self, step: int) -> None:
        """Have a run without a limit end in time; imports and data are no part of its minute."""
        if not self._is_timed or (self._alarm is not None and step == 0):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._is_timed = step == 0
        seconds = _MOST_SECONDS if step else _STEPLESS_SECONDS
        asked = {"tier": "park", "deadline_seconds": _DEADLINE_SECONDS}
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(seconds, lambda: self._ask("suspend", **asked))

    def look(self) -> None:
        """Add what the run has printed and left in its folder to the outcome."""
        folder = self._bench.folder
        with contextlib.suppress(OSError):
            self.outcome.output = shown(folder.output.read_bytes().decode(errors="replace"))
        self.outcome.files, texts = contents.look(folder.work, self.outcome.ended)
        self.outcome.texts = {name: shown(text) for name, text in texts.items()}

    def _last_output(self) -> str:
        try:
            lines = self._bench.folder.output.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        lines = [line for line in lines if not _LOGGED.match(line)]
        return "".join(f"\n  {line}" for line in lines[-_OUTPUT_LINES:])


# For trainer_shim.host.checkpoint_forms, which chooses by cost: of two exact forms, the framework's
# checkpoint is to be proven. An image is exact by the way it is made.
_COSTLY_IMAGES = {"image": {"away": 1e9, "back": 1e9}}


@asynccontextmanager
async def arm(bench: Bench, heard: Callable[[int], None]) -> AsyncIterator[Arm]:
    """A fresh run of the program; when the block is left, it is gone.

    Raises ArmFailed where nothing can be started.
    """
    folder, work = bench.folder, bench.work
    program = work.program
    deep_trees.remove(folder.path)
    folder.path.mkdir(parents=True)
    code.working_copy(bench.snapshot, folder.work, program.submit_directory, program.data)
    environment = program_environment(bench.environ, work, bench.gpus, (), folder.path)
    folder.write_spec(
        {
            **spec_of(folder, work, environment),
            "output_limit_bytes": _OUTPUT_BYTES,
            "lease_grace_seconds": _ORPHAN_SECONDS,
            "orphan_seconds": _ORPHAN_SECONDS,
            "criu": bench.criu,
            "ranks": [dict(rank) for rank in bench.ranks],
            "moves_device_memory": bench.gpu_is_moved,
            "images_hold_device_memory": bench.gpu_is_imaged,
        }
    )
    (folder.path / "forms.json").write_text(json.dumps(_COSTLY_IMAGES))
    preload = imports_ahead(folder.work)
    try:
        link = await host_link.start(
            folder, program.python, preload, environment, bench.shim, bench.zygotes,
            bench.world,
        )  # fmt: skip
    except OSError as error:
        raise ArmFailed(str(error)) from None
    try:
        yield Arm(bench, link, heard)
    finally:
        link.close()
        # The program dies with its host, by the kernel's hand.
        members = processes.below(link.host_pid)
        processes.kill([link.host_pid, *members])
        await asyncio.shield(processes.exited(link.host_pid))
        cleanup.forget_names(folder)
