"""Many simulated nodes in one process, each with a connection of its own to a real head.

A node says Hello with one device, and of the trial that it is given reports, as real ones do: each
second ten steps of a loss and eleven other metrics, in as few messages as the head asks for. What
it says tells when it was sent, which earns leases; a heartbeat it sends while it has no trial. Its
quantum is over every so many seconds, which the head answers by a command.

`serve` is the other end without a head: a server that understands and keeps nothing, and answers as
often as one does. What that takes, a head takes for its transport alone.

A process of its own, told by lines: it says `attached SECONDS` when every node is welcome,
and after a `measure SECONDS` on its input one line of JSON with what its nodes have seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc

import hermesd
from benchmarks.report import quantile
from hermesd import wire
from hermesd.binding import bind
from hermesd.head.fleet.session import NODES_WITHOUT_DELAY, PATIENCE_SECONDS, REPORT_SECONDS
from hermesd.head.security.authority import Authority
from hermesd.head.security.listen import OPTIONS
from hermesd.pb.hermes.v1 import node_pb2, node_pb2_grpc, types_pb2
from hermesd.security import pem
from hermesd.security.enrollment import Membership, channel_options

METRICS = ("loss", *(f"metric_{number}" for number in range(11)))
STEPS = 10
REDIAL_SECONDS = 0.5
# A second that begins a little early is one.
SLACK_SECONDS = 0.5
# So many begin a connection at a time: one that takes long is given up.
AT_ONCE = 50
_OPTIONS = [
    *channel_options(),
    # Otherwise nodes of one process would share a connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
]


@dataclass
class Seen:
    """Seconds that answers took: leases, acknowledgments of reports, commands at quanta's ends."""

    lease: list[float] = field(default_factory=list)
    safe: list[float] = field(default_factory=list)
    command: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    dropped: int = 0

    def forget(self) -> None:
        self.dropped = 0
        for values in self._all().values():
            values.clear()

    def _all(self) -> dict[str, list[float]]:
        return {
            "lease": self.lease,
            "safe": self.safe,
            "command": self.command,
            "late": self.late,
        }

    def figures(self) -> dict[str, tuple[int, float, float]]:
        """Of each kind how many, the median and the 99th percentile."""
        return {
            kind: (len(values), quantile(values, 0.5), quantile(values, 0.99))
            for kind, values in self._all().items()
            if values
        }


class Node:
    """One node: a writer's turn a second, and a reader."""

    def __init__(
        self,
        name: str,
        head: str,
        membership: Membership,
        quantum_seconds: float,
        seen: Seen,
        gate: asyncio.Semaphore,
    ) -> None:
        self.name = name
        self.seen = seen
        self._quantum_seconds = quantum_seconds
        self._gate = gate
        self.welcome = asyncio.Event()
        self.has_trial = asyncio.Event()
        self._channel = grpc.aio.secure_channel(head, membership.credentials(), options=_OPTIONS)
        self._stub: Any = node_pb2_grpc.NodeServiceStub(self._channel)
        self._call: Any = None
        self._run: dict[str, Any] = {}
        self._sequence = self._step = self._number = 0
        self._grant = 0
        self._sent: deque[tuple[int, float]] = deque()
        self._report_seconds = REPORT_SECONDS
        self._untold: node_pb2.Report | None = None
        self._told = 0.0
        self._asked = 0.0
        self._due = 0.0
        self._seen_paths: list[str] = []

    async def attach(self) -> None:
        """Keep a stream open, as a node does."""
        while True:
            try:
                async with self._gate:
                    self._call = self._stub.Attach()
                    await self._call.write(node_pb2.AttachRequest(hello=self._hello()))
                    self._hear(await self._call.read())
                while (answer := await self._call.read()) is not grpc.aio.EOF:
                    self._hear(answer)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                self.seen.dropped += 1
            self.welcome.clear()
            await asyncio.sleep(REDIAL_SECONDS)

    def _hello(self) -> node_pb2.Hello:
        names = [f"{self.name}/cpu:0"]
        device = types_pb2.Device(id=names[0], node=self.name, kind="cpu", memory_bytes=2**30)
        running = node_pb2.RUN_CONDITION_RUNNING
        run = node_pb2.LiveRun(**self._run, condition=running, devices=names, step=self._step)
        return node_pb2.Hello(
            node=self.name, boot_id="boot", version=hermesd.__version__, devices=[device],
            runs=[run] if self._step else [],
        )  # fmt: skip

    def _hear(self, answer: node_pb2.AttachResponse) -> None:
        now = time.monotonic()
        if answer.HasField("lease"):
            self.seen.lease.append(now - answer.lease.sent_boottime_seconds)
            self._report_seconds = answer.lease.report_seconds
        while self._sent and self._sent[0][0] <= answer.acknowledged_sequence:
            self.seen.safe.append(now - self._sent.popleft()[1])
        match answer.WhichOneof("message"):
            case "welcome":
                self.welcome.set()
            case "launch":
                launch = answer.launch
                self._run = {"trial": launch.trial, "attempt": launch.attempt}
                self._due = now + self._quantum_seconds * random.random()
            case "renew":
                self._grant = answer.renew.grant
                self.seen.command.append(now - self._asked)
                self._due = now + self._quantum_seconds
            case "look":
                self._seen_paths += answer.look.paths
            case _:
                pass  # hints

    async def live(self) -> None:
        """A second after the other, from a moment of its own on."""
        while True:
            await self.welcome.wait()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._live()

    async def _live(self) -> None:
        due = time.monotonic() + random.uniform(0, 1)
        while self.welcome.is_set():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.seen.late.append(time.monotonic() - due)
            due += 1.0
            for message in self._second():
                message.boottime_seconds = time.monotonic()
                await self._call.write(message)

    def _second(self) -> Iterator[node_pb2.AttachRequest]:
        now = time.monotonic()
        if self._seen_paths:
            sights = [node_pb2.Sight(path=path) for path in self._seen_paths]
            self._seen_paths.clear()
            yield self._event(looked=node_pb2.Looked(node=self.name, sights=sights))
        if not self._run:
            yield node_pb2.AttachRequest(heartbeat=node_pb2.Heartbeat())
            return
        if not self._step:
            self.has_trial.set()
            yield self._event(run_started=node_pb2.RunStarted(**self._run, start_seconds=0.1))
        report = self._report()
        # As a node's outbox does.
        if self._untold is not None:
            wire.join_reports(self._untold, report)
        else:
            self._untold = report
        if now >= min(self._due, self._told + self._report_seconds - SLACK_SECONDS):
            yield self._event(report=self._untold)
            self._untold, self._told = None, now
        if now >= self._due:
            self._due, self._asked = float("inf"), time.monotonic()
            ended = node_pb2.QuantumEnded(**self._run, grant=self._grant, step=self._step)
            yield self._event(quantum_ended=ended)

    def _event(self, **message: Any) -> node_pb2.AttachRequest:
        self._sequence += 1
        self._sent.append((self._sequence, time.monotonic()))
        return node_pb2.AttachRequest(sequence=self._sequence, **message)

    def _report(self) -> node_pb2.Report:
        first, self._step, self._number = self._step + 1, self._step + STEPS, self._number + 1
        loss = 1 / self._step
        chunk = node_pb2.LossChunk(
            first_step=first, last_step=self._step, count=STEPS, total=STEPS * loss,
            low=loss, high=loss,
        )  # fmt: skip
        steps = list(range(first, self._step + 1))
        others = len(METRICS) - 1
        points = node_pb2.MetricPoints(
            metrics=METRICS, counts=[STEPS] + [1] * others,
            steps=steps + steps[-1:] * others, values=[loss] * (STEPS + others),
        )  # fmt: skip
        return node_pb2.Report(
            **self._run, step=self._step, chunks=[chunk], points=points, busy_seconds=1.0,
            examples=320, memory_bytes=2**28, cpu_seconds=1.0, number=self._number,
        )  # fmt: skip


async def swarm(head: str, folder: Path, quantum_seconds: float) -> None:
    """Be the nodes whose memberships lie in the folder, until the input ends."""
    seen = Seen()
    members = sorted(folder.iterdir())
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    begun = time.monotonic()
    gate = asyncio.Semaphore(AT_ONCE)
    nodes = [
        Node(path.name, head, Membership(path), quantum_seconds, seen, gate) for path in members
    ]
    async with asyncio.TaskGroup() as tasks:
        lives = [tasks.create_task(part()) for node in nodes for part in (node.attach, node.live)]
        for node in nodes:
            await node.welcome.wait()
        print(f"attached {time.monotonic() - begun}", flush=True)
        while line := await lines.readline():
            for node in nodes:
                await node.has_trial.wait()
            seen.forget()
            await asyncio.sleep(float(line.split()[1]))
            print(json.dumps({"dropped": seen.dropped, **seen.figures()}), flush=True)
        for life in lives:
            life.cancel()


async def _attach(streams: list[str], requests: Any, context: Any) -> None:
    """The messages of a head of these streams, and nothing behind them."""
    answered = 0.0
    streams.append(context.peer())
    async for request in requests:
        match request.WhichOneof("message"):
            case "hello":
                welcome = node_pb2.Welcome(head_version=hermesd.__version__, lease_seconds=600.0)
                await context.write(node_pb2.AttachResponse(welcome=welcome))
                launch = node_pb2.Launch(trial=f"endless/{request.hello.node}", attempt=1)
                await context.write(node_pb2.AttachResponse(launch=launch))
            case "quantum_ended":
                ended = request.quantum_ended
                run = {"trial": ended.trial, "attempt": ended.attempt}
                renew = node_pb2.Renew(**run, grant=ended.grant + 1, reason="nobody waits")
                await context.write(node_pb2.AttachResponse(renew=renew))
            case _ if time.monotonic() - answered >= PATIENCE_SECONDS:
                answered = time.monotonic()
                lease = node_pb2.Lease(
                    sent_boottime_seconds=request.boottime_seconds, lease_seconds=600.0,
                    report_seconds=len(streams) / NODES_WITHOUT_DELAY,
                )  # fmt: skip
                safe = request.sequence
                answer = node_pb2.AttachResponse(lease=lease, acknowledged_sequence=safe)
                await context.write(answer)


async def serve(address: str, state: Path) -> None:
    """Be the other end at this address, by the authority of a head's state directory."""
    server = grpc.aio.server(options=OPTIONS)
    service: Any = SimpleNamespace(Attach=functools.partial(_attach, []), GetBlob=None)
    node_pb2_grpc.add_NodeServiceServicer_to_server(service, server)
    authority = Authority(state / "authority")
    bind(server, address, pem.server_credentials(authority.server_files, members_only=True))
    await server.start()
    print("serving", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    kind, address, path, *quantum = sys.argv[1:]
    if kind == "serve":
        asyncio.run(serve(address, Path(path)))
    else:
        asyncio.run(swarm(address, Path(path), float(*quantum)))
