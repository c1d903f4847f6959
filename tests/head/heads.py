"""A real head over a Unix socket, and a node that says exactly what a test wants it to say."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

import hermesd
from hermesd import wire
from hermesd.config.schema import HeadConfig
from hermesd.core.node.messages import Series
from hermesd.head.fleet import session as session_module
from hermesd.head.fleet.session import NodeSession
from hermesd.head.server import Running, running
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc, node_pb2, node_pb2_grpc
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.security.token import Token
from tests.study_specs import spec

COUNT = itertools.count(1)


def by_token(path: Path) -> tuple[tuple[str, str], ...]:
    """The metadata of who calls with the token in a file."""
    return Token.of(path.read_text()).metadata


def request_id() -> str:
    return f"request-{next(COUNT)}"


@dataclass
class World:
    """A head and stubs to talk to it."""

    running: Running
    channel: grpc.aio.Channel
    control: control_pb2_grpc.ControlServiceAsyncStub
    nodes: node_pb2_grpc.NodeServiceAsyncStub
    directory: Path

    async def submit(self, message: types.StudySpec | None = None, **fields: Any) -> Any:
        request = pb.SubmitStudyRequest(
            request_id=fields.pop("request_id", None) or request_id(),
            spec=message or spec(),
            **fields,
        )
        return await self.control.SubmitStudy(request)

    async def trial(self, name: str) -> pb.Trial:
        listed = await self.control.ListTrials(
            pb.ListTrialsRequest(study=name.split("/")[0], page_size=1000)
        )
        return next(trial for trial in listed.trials if trial.id == name)

    @property
    def state(self) -> Any:
        return self.running.head.state


@asynccontextmanager
async def world(
    directory: Path, silence_seconds: float = 600.0, **settings: Any
) -> AsyncIterator[World]:
    """A head with its state in `directory`, embedded unless told otherwise. It takes no node for
    silent: those of tests say no heartbeats, and a busy machine takes long for what is between."""
    config = HeadConfig(**{"state_dir": directory, "embedded": True, **settings})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module, "SILENCE_SECONDS", silence_seconds)
        async with _serving(config, directory) as up:
            yield up


@asynccontextmanager
async def _serving(config: HeadConfig, directory: Path) -> AsyncIterator[World]:
    async with running(config) as up, grpc.aio.insecure_channel(f"unix:{config.socket_path}") as c:
        control: Any = control_pb2_grpc.ControlServiceStub(c)
        nodes: Any = node_pb2_grpc.NodeServiceStub(c)
        yield World(up, c, control, nodes, directory)


def session(node: str = "box", peer: str = "here", lease_seconds: float = 600.0) -> NodeSession:
    """A stream's outbox without a stream."""

    def grant(sent: float) -> node_pb2.Lease:
        return node_pb2.Lease(sent_boottime_seconds=sent, lease_seconds=lease_seconds)

    return NodeSession(node, peer, grant, lease_seconds)


class Node:
    """The other end of an Attach stream."""

    def __init__(
        self,
        world: World,
        name: str = "box",
        slots: int = 1,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.name = name
        self.slots = slots
        self.call = world.nodes.Attach(metadata=metadata)
        self.sequence = 0
        self.acknowledged = 0
        self.unread: list[node_pb2.AttachResponse] = []

    def device(self, slot: int = 0) -> types.Device:
        return types.Device(
            id=f"{self.name}/cpu:{slot}", node=self.name, kind="cpu", memory_bytes=2**30
        )

    async def hello(self, **fields: Any) -> node_pb2.Welcome:
        """Say Hello and wait for the welcome."""
        message = node_pb2.Hello(
            **{
                "node": self.name,
                "boot_id": "boot-1",
                "version": hermesd.__version__,
                "devices": [self.device(slot) for slot in range(self.slots)],
                **fields,
            }
        )
        await self.call.write(node_pb2.AttachRequest(hello=message))
        return (await self.expect("welcome")).welcome

    async def say(self, **message: Any) -> None:
        """Send a message that wants an acknowledgment."""
        self.sequence += 1
        await self.call.write(node_pb2.AttachRequest(sequence=self.sequence, **message))

    async def beat(self, at: float = 1.0) -> None:
        """Ask for a lease that counts from then."""
        request = node_pb2.AttachRequest(heartbeat=node_pb2.Heartbeat(), boottime_seconds=at)
        await self.call.write(request)

    async def lease(self) -> node_pb2.Lease:
        """The next lease; what it came with is kept for later."""
        while not (response := await self.next()).HasField("lease"):
            self.unread.append(response)
        self.unread.append(response)
        return response.lease

    async def next(self) -> node_pb2.AttachResponse:
        response = await self.call.read()
        if response is grpc.aio.EOF:
            raise EOFError(await self.call.details())
        self.acknowledged = max(self.acknowledged, response.acknowledged_sequence)
        return response

    async def expect(self, kind: str) -> node_pb2.AttachResponse:
        """The next message of this kind; others are kept for later."""
        for response in self.unread:
            if response.WhichOneof("message") == kind:
                self.unread.remove(response)
                return response
        while (response := await self.next()).WhichOneof("message") != kind:
            self.unread.append(response)
        return response

    async def settle(self) -> None:
        """Wait until everything said so far is acknowledged, reports with what is nothing new."""
        await self.say()
        while self.acknowledged < self.sequence:
            self.unread.append(await self.next())

    async def ended(self) -> None:
        """Read until the head ends the stream."""
        try:
            while True:
                await self.next()
        except EOFError:
            return

    async def start(self) -> node_pb2.Launch:
        """Take the next launch and say that it runs."""
        launch = (await self.expect("launch")).launch
        run = {"trial": launch.trial, "attempt": launch.attempt}
        await self.say(run_started=node_pb2.RunStarted(**run, start_seconds=0.1))
        return launch

    async def report(
        self,
        launch: node_pb2.Launch,
        first: int,
        losses: list[float],
        not_finite: bool = False,
        chunks: bool = True,
        passes: int = 0,
        **metrics: float,
    ) -> None:
        """Losses from the step `first` on; other metrics are of the last one. Without `chunks` the
        signal is none of them."""
        steps = list(range(first, first + len(losses)))
        points = {"loss": (steps, losses)}
        points.update({name: (steps[-1:], [value]) for name, value in metrics.items()})
        chunk = node_pb2.LossChunk(
            first_step=steps[0],
            last_step=steps[-1],
            count=len(losses),
            total=sum(losses),
            low=min(losses),
            high=max(losses),
        )
        await self.say(
            report=node_pb2.Report(
                trial=launch.trial,
                attempt=launch.attempt,
                passes=passes,
                step=steps[-1],
                chunks=[chunk] if chunks else [],
                points=wire.points_to_proto(
                    Series(name, at, values) for name, (at, values) in points.items()
                ),
                busy_seconds=0.5,
                examples=64,
                memory_bytes=1000,
                not_finite=not_finite,
            )
        )

    async def complete(self, launch: node_pb2.Launch, step: int = 10) -> None:
        await self.say(
            run_completed=node_pb2.RunCompleted(
                trial=launch.trial, attempt=launch.attempt, step=step
            )
        )


async def events(world: World, until: int, after: int = 0, **fields: Any) -> list[pb.PublicEvent]:
    """Follow the journal until an event of kind `until`."""
    seen: list[pb.PublicEvent] = []
    call = world.control.WatchJournal(pb.WatchJournalRequest(after_sequence=after, **fields))
    async for response in call:
        for event in response.events:
            seen.append(event)
            if event.kind == until:
                call.cancel()
                return seen
    return seen


async def status(awaitable: Any) -> tuple[grpc.StatusCode, str]:
    """How a call is refused."""
    try:
        await awaitable
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("it was not refused")


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
