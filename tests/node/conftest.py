"""A head made of a real servicer, and a node daemon in this process or in one of its own."""

import asyncio
import contextlib
import hashlib
import io
import os
import signal
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest

from hermesd import wire
from hermesd.config.schema import NodeConfig
from hermesd.config.slots import SlotSetting
from hermesd.core.commands import Launch, Suspend
from hermesd.core.events import Looked, NodeJoined, Reported, RunStarted, RunSuspended
from hermesd.core.model import (
    Checkpoint,
    Goal,
    OnStall,
    Processes,
    Program,
    Quantum,
    RunId,
    RunTerms,
    Tier,
)
from hermesd.core.node.messages import Assignment, CheckpointSource, Order, Series, Work
from hermesd.node.daemon import group_name, run_node
from hermesd.node.machine import cgroups, processes
from hermesd.node.outbox import Outbox
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2_grpc
from tests.waiting import until

Event = TypeVar("Event")
CPU0, CPU1 = "n1/cpu0", "n1/cpu1"


async def looked(outbox: Outbox) -> Looked:
    """What a watcher tells the head next of what it found."""
    event = wire.event_from_proto(await outbox.take())
    assert isinstance(event, Looked)
    return event


async def becomes(is_true: Callable[[], bool]) -> None:
    """Wait for what nobody announces: a file, a process."""
    while not is_true():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


class Head(node_pb2_grpc.NodeServiceServicer):
    """What the tests see of a node. `deaf` keeps acknowledgments back."""

    def __init__(self) -> None:
        self.events: list[wire.NodeEvent | NodeJoined] = []
        self.points: list[tuple[Reported, tuple[Series, ...]]] = []
        self.sequences: list[int] = []
        self.chunks: list[pb.FileChunk] = []
        self.usage: list[pb.UsageReport] = []
        self.goodbyes: list[str] = []
        self.not_saved: list[pb.NotSaved] = []
        self.held: list[pb.Holding] = []
        self.blobs: dict[str, bytes] = {}
        self.hello = pb.Hello()
        self.deaf = False
        self.lease_seconds = 600.0
        self._out: asyncio.Queue[pb.AttachResponse | None] = asyncio.Queue()
        self._news = asyncio.Condition()

    async def Attach(self, request_iterator: AsyncIterator[pb.AttachRequest], context: Any) -> None:
        self._out = out = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(request_iterator, out))
            while (response := await out.get()) is not None:
                await context.write(response)
            listening.cancel()

    async def _listen(
        self,
        requests: AsyncIterator[pb.AttachRequest],
        out: asyncio.Queue[pb.AttachResponse | None],
    ) -> None:
        async for request in requests:
            await self._take(request, out)
        out.put_nowait(None)

    async def _take(
        self, request: pb.AttachRequest, out: asyncio.Queue[pb.AttachResponse | None]
    ) -> None:
        match request.WhichOneof("message"):
            case "hello":
                self.hello = request.hello
                welcome = pb.Welcome(head_version="test", lease_seconds=600, lease_grace_seconds=5)
                out.put_nowait(pb.AttachResponse(welcome=welcome))
            case "file_chunk":
                self.chunks.append(request.file_chunk)
            case "usage":
                self.usage.append(request.usage)
            case "holdings":
                self.held += request.holdings.trials
            case "not_saved":
                self.not_saved.append(request.not_saved)
            case "goodbye":
                self.goodbyes.append(request.goodbye.reason)
        if request.WhichOneof("message") != "hello":
            lease = pb.Lease(
                sent_boottime_seconds=request.boottime_seconds,
                lease_seconds=self.lease_seconds,
                head="this one",
                journal_sequence=4711,
            )
            out.put_nowait(pb.AttachResponse(lease=lease))
        event = wire.event_from_proto(request)
        if event is not None:
            self.events.append(event)
            self.sequences.append(request.sequence)
            if isinstance(event, Reported):
                self.points.append((event, wire.points_from_proto(request.report.points)))
        if request.sequence and not self.deaf:
            self.acknowledge(request.sequence, out)
        async with self._news:
            self._news.notify_all()

    def acknowledge(self, sequence: int, out: asyncio.Queue[Any] | None = None) -> None:
        (out or self._out).put_nowait(pb.AttachResponse(acknowledged_sequence=sequence))

    async def GetBlob(
        self, request: pb.GetBlobRequest, context: Any
    ) -> AsyncIterator[pb.GetBlobResponse]:
        if request.sha256 not in self.blobs:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such blob")
        blob = self.blobs[request.sha256]
        for at in range(0, len(blob), 1000):
            yield pb.GetBlobResponse(data=blob[at : at + 1000])

    def send(self, order: Order | pb.SendFile | pb.Forget) -> None:
        match order:
            case pb.SendFile():
                response = pb.AttachResponse(send_file=order)
            case pb.Forget():
                response = pb.AttachResponse(forget=order)
            case _:
                response = wire.command_to_proto(order)
        self._out.put_nowait(response)

    def hang_up(self) -> None:
        self._out.put_nowait(None)

    async def until(self, is_there: Callable[[], bool]) -> None:
        """Wait for something to become true of what was heard."""
        async with self._news:
            await self._news.wait_for(is_there)

    async def hears(
        self, kind: type[Event], run: RunId | None = None, after: int = 0, count: int = 1
    ) -> Event:
        """The first event of a kind (about a run) that came as number `after` or later."""

        def found() -> list[Event]:
            return [
                event
                for event in self.events[after:]
                if isinstance(event, kind) and (run is None or getattr(event, "run", None) == run)
            ]

        await self.until(lambda: len(found()) >= count)
        return found()[count - 1]

    def steps(self, trial: str, metric: str = "loss") -> list[int]:
        """The steps of every point of a trial's metric, in the order in which they came."""
        return [
            step
            for report, points in self.points
            if report.run.trial == trial
            for series in points
            if series.metric == metric
            for step in series.steps
        ]


@pytest.fixture
async def head(tmp_path: Path) -> AsyncIterator[Head]:
    servicer = Head()
    server = grpc.aio.server()
    node_pb2_grpc.add_NodeServiceServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{tmp_path}/head.sock")
    await server.start()
    yield servicer
    await server.stop(0)


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    return NodeConfig(
        name="n1",
        state_dir=tmp_path / "node",
        head=f"unix:{tmp_path}/head.sock",
        cpu_slots=(SlotSetting((0,)), SlotSetting((0,))),
        gpus=False,
    )


@pytest.fixture
def no_survivors(config: NodeConfig) -> Iterator[None]:
    """End every process of this test's node, whatever became of it."""
    yield
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(config.state_dir).encode() in command:
            os.kill(int(entry.name), signal.SIGKILL)
    groups = cgroups.detect(group_name(config))
    for folder in (config.state_dir / "trials").glob("*/*"):
        name = f"{folder.parent.name}@{folder.name}"
        groups.kill(name)
        until(lambda name=name: not groups.members(name))
        groups.remove(name)


class Node:
    """A node daemon in this process."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> "Node":
        await self._tasks.__aenter__()
        serving = run_node(self.config, os.environ, self._stop, self._ready.set)
        self._tasks.create_task(serving)
        await self._ready.wait()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._stop.set()
        await self._tasks.__aexit__(*error)


@pytest.fixture
async def node(head: Head, config: NodeConfig, no_survivors: None) -> AsyncIterator[Node]:
    async with Node(config) as running:
        await head.hears(NodeJoined)
        yield running


PROGRAM = """
import json, os, sys, time, trainer_shim
trial = trainer_shim.attach()
steps, pace, *enough = int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]
step, total = 0, 0.0
if trial.resume:
    step, total = json.load(open(os.path.join(trial.resume.path, "state.json")))
def save(folder):
    with open(os.path.join(folder, "state.json"), "w") as file:
        json.dump([step, total], file)
while step < steps and not any(map(os.path.exists, enough)):
    time.sleep(pace)
    step += 1
    total += step
    trial.report(step, loss=1.0 / step, save=save, total=total)
print("done", step, total, flush=True)
"""
SHORT = ("python", "train.py", "50", "0.001")


def blob(files: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return stream.getvalue()


@pytest.fixture
def launch(head: Head, tmp_path: Path) -> Callable[..., RunId]:
    """Send a Launch of a small program; by default one that reports through the explicit API."""

    def send(
        trial: str = "digits/1",
        attempt: int = 1,
        argv: tuple[str, ...] = ("python", "train.py", "100000", "0.005"),
        program: str = PROGRAM,
        device: str = CPU0,
        parked: RunId | None = None,
        checkpoint: Checkpoint | None = None,
        quantum: Quantum | None = None,
        goal: Goal = Goal.MINIMIZE,
        data: tuple[str, ...] = (),
        python: str = sys.executable,
        identity: str = "",
        sources: tuple[CheckpointSource, ...] = (),
        result: str = "",
        stalled: OnStall = OnStall.TELL,
        beside: tuple[str, ...] = (),
        user: str = "",
        environment: tuple[tuple[str, str], ...] = (),
        others: tuple[str, ...] = (),
        processes: Processes | None = None,
        never_anew: bool = False,
    ) -> RunId:
        code = blob({"train.py": program, **dict.fromkeys(beside, "")})
        name = hashlib.sha256(code).hexdigest()
        head.blobs[name] = code
        run = RunId(trial, attempt)
        order = Launch(
            run,
            (device, *others),
            quantum or Quantum(),
            "",
            parked,
            checkpoint.id if checkpoint else None,
        )
        source = Program(argv, python, name, str(tmp_path), environment, data)
        work = Work(source, (("lr", 0.1),), "loss", goal, 7)
        terms = RunTerms(
            identity=identity,
            suspend_deadline_seconds=10.0,
            stalled=stalled,
            processes=processes,
        )
        sent = Assignment(
            order, checkpoint, work, terms, sources, result, user=user, never_anew=never_anew
        )
        head.send(sent)
        return run

    return send


def suspend(run: RunId, tier: Tier | None = None) -> Suspend:
    return Suspend(run, tier, 10.0, None, "its quantum is over")


@pytest.fixture
def running(head: Head, launch: Callable[..., RunId]) -> Callable[..., Awaitable[RunId]]:
    """Launch, and wait for a report."""

    async def begin(**wanted: Any) -> RunId:
        after = len(head.events)
        run = launch(**wanted)
        await head.hears(RunStarted, run, after)
        await head.hears(Reported, run, after)
        return run

    return begin


@pytest.fixture
def suspended(head: Head) -> Callable[..., Awaitable[RunSuspended]]:
    """Suspend, and wait for the release."""

    async def give_back(run: RunId, tier: Tier | None = None) -> RunSuspended:
        after = len(head.events)
        head.send(suspend(run, tier))
        return await head.hears(RunSuspended, run, after)

    return give_back


DAEMON = """
import asyncio, os, sys
from hermesd.config.schema import NodeConfig
from hermesd.node.daemon import run_node
config = NodeConfig.model_validate_json(sys.argv[1])
asyncio.run(run_node(config, os.environ, asyncio.Event(), lambda: None))
"""


async def daemon_process(
    config: NodeConfig, program: str = DAEMON, before: Sequence[str] = ()
) -> asyncio.subprocess.Process:
    """A node daemon, started by the command `before` if one is given."""
    return await asyncio.create_subprocess_exec(
        *before,
        sys.executable,
        "-c",
        program,
        config.model_dump_json(),
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )


def host_of(config: NodeConfig, trial: str = "digits/1") -> int:
    """The host of a trial: of all with its command line the one that is nobody's child."""
    spec = str(config.state_dir / "trials" / trial / "spec.json").encode()
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and spec in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    (host,) = found - {child for pid in found for child in processes.below(pid)}
    return host


def worker_of(node: Node | NodeConfig, trial: str = "digits/1") -> tuple[int, int]:
    """The host and the training process of a trial."""
    host = host_of(node.config if isinstance(node, Node) else node, trial)
    return host, min(processes.below(host))
