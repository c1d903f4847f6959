"""A head, a node and their trainers as real processes, and the means to kill any of them."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import tarfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio

from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import control_pb2_grpc, types_pb2
from tests.forked import Forked
from tests.study_specs import parameter

POLL_SECONDS = 0.05


def processes(state: Path) -> Iterator[tuple[int, list[str]]]:
    """Pid and command line of every live process that belongs to this cluster."""
    marker = str(state).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if marker not in command and marker not in (entry / "environ").read_bytes():
                continue  # as are most of all processes: no more of them is read
            stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if stat[0] != "Z":
            yield int(entry.name), command.decode(errors="replace").split("\0")


def parent(pid: int) -> int:
    """The parent of a process; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


class Cluster:
    """One `hermesd local` with everything it started."""

    def __init__(self, state: Path, slots: int) -> None:
        self.state = state
        self.slots = slots
        self.process: asyncio.subprocess.Process | None = None
        self.channel: grpc.aio.Channel | None = None

    @property
    def stub(self) -> control_pb2_grpc.ControlServiceStub:
        if self.channel is None:
            self.channel = grpc.aio.insecure_channel(
                f"unix:{self.state}/head.sock",
                options=[
                    ("grpc.initial_reconnect_backoff_ms", 100),
                    ("grpc.max_reconnect_backoff_ms", 300),
                ],
            )
        return control_pb2_grpc.ControlServiceStub(self.channel)

    async def start(self) -> None:
        words = ["-m", "hermesd.cli", "local", "--state", str(self.state)]
        with (self.state / "test-out.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *words,
                "--slots",
                str(self.slots),
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        await self.until(self._answers)

    async def _answers(self) -> bool:
        try:
            await self.stub.ServerInfo(control.ServerInfoRequest(), timeout=2)
        except grpc.aio.AioRpcError:
            return False
        return True

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds; the test's own time limit is the bound."""
        while True:
            answer = holds()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def submit(
        self,
        name: str,
        files: dict[str, str],
        grid: Mapping[str, list[float] | Mapping[str, Any]],
        **spec: object,
    ) -> str:
        """Upload the files, run `train.py` over the grid; the study's id."""
        sheet = types_pb2.StudySpec(
            name=name,
            program="train.py",
            method=types_pb2.SEARCH_METHOD_GRID,
            metric=types_pb2.Metric(name="loss", goal=types_pb2.GOAL_MINIMIZE),
            parameters=[
                parameter(axis, {"values": values} if isinstance(values, list) else values)
                for axis, values in grid.items()
            ],
            **{"python": sys.executable, **spec},  # type: ignore[arg-type]
        )
        blob = await self.stub.PutBlob(iter([control.PutBlobRequest(data=tar(files))]))
        answer = await self.stub.SubmitStudy(
            control.SubmitStudyRequest(
                request_id=uuid.uuid4().hex,
                spec=sheet,
                code_sha256=blob.sha256,
                submit_directory=str(self.state),
            )
        )
        return str(answer.study)

    async def study(self, study: str) -> control.GetStudyResponse:
        """The study, however often the head has to be asked again."""
        while True:
            try:
                return await self.stub.GetStudy(control.GetStudyRequest(study=study), timeout=5)
            except grpc.aio.AioRpcError as error:
                if error.code() not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                ):
                    raise
                await asyncio.sleep(POLL_SECONDS)

    async def finished(self, study: str) -> control.GetStudyResponse:
        async def over() -> bool:
            return bool((await self.study(study)).study.finished)

        await self.until(over)
        return await self.study(study)

    async def steps(self, study: str) -> int:
        """Steps that all trials have done so far."""
        return sum(trial.step for trial in (await self.study(study)).trials)

    def pids(self, kind: str) -> list[int]:
        """The pids of `local`, `head`, `node`, `zygote`, `host` or `trainer` processes."""
        found: dict[int, str] = {}
        for pid, words in processes(self.state):
            line = " ".join(words)
            for role in ("local", "head", "node"):
                if f"hermesd.cli {role}" in line:
                    found[pid] = role
            for role in ("zygote", "host"):
                if f"trainer_shim.{role}" in line:
                    found[pid] = role
        # A training process is forked by its host and bears the same command line.
        trainers = {pid for pid, role in found.items() if found.get(parent(pid)) == role == "host"}
        if kind == "trainer":
            return sorted(trainers)
        return sorted(pid for pid, role in found.items() if role == kind and pid not in trainers)

    def kill(self, pids: list[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def stop(self) -> None:
        if self.channel is not None:
            await self.channel.close()
            self.channel = None
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()


class Unattended(Cluster):
    """A head and a node that nobody starts again: forked from a process that has imported them,
    without a `hermesd local`."""

    daemons: tuple[Forked, ...] = ()

    async def start(self) -> None:
        socket = f"{self.state}/head.sock"
        self._begin("head", "--socket", socket)
        await self.until(self._answers)
        self._begin(
            *("node", "--head", f"unix:{socket}", "--name", "local", "--slots", str(self.slots))
        )

    def _begin(self, daemon: str, *words: str) -> None:
        state = ("--state", f"{self.state}/{daemon}", "--embedded")
        environment = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"}
        forked = Forked("hermesd", daemon, *words, *state, environment=environment)
        self.daemons = (forked, *self.daemons)

    async def stop(self) -> None:
        await super().stop()
        for daemon in self.daemons:
            with suppress(ProcessLookupError):
                os.kill(daemon.pid, signal.SIGTERM)
            _, out, errors = await asyncio.to_thread(daemon.communicate)
            with (self.state / "test-out.log").open("a") as log:
                log.write(out + errors)
        self.daemons = ()


def tar(files: dict[str, str]) -> bytes:
    """The files as an uncompressed archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


@asynccontextmanager
async def running(
    state: Path, slots: int = 2, kind: type[Cluster] = Unattended
) -> AsyncIterator[Cluster]:
    """A cluster for the length of a block; whatever is left of it afterward is killed. Tests that
    kill daemons want a `Cluster`."""
    cluster = kind(state, slots)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
        cluster.kill([pid for pid, _ in processes(state) if pid != os.getpid()])


def multiplying(condition: str) -> str:
    """A program that trains while the condition holds. Each step multiplies the state, so that one
    that is lost or repeated shows in every later loss."""
    return MULTIPLYING.replace("CONDITION", condition)


MULTIPLYING = """
import argparse, json, pathlib, time
import trainer_shim

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state.json").read_text())
    print("restored", step, flush=True)

def save(folder):
    (pathlib.Path(folder) / "state.json").write_text(json.dumps([state, step]))

while CONDITION:
    time.sleep(0.02)
    state, step = state * (1 - rate), step + 1
    trial.report(step, loss=state, save=save)
"""
