"""How long a small call takes while another user has the head work hard.

    python -m benchmarks.callers [--trials 100000] [--seconds 10] [load ...]
    python -m benchmarks.callers [--trials 100000] changes

Alice has a study of so many trials, Bob one of four. Bob asks for his study, and marks a trial of
his, twenty times a second each, while processes of Alice's do nothing else than one of these, or
all of them: previews of a study as large as hers, eight GetStudy at a time, 32 exports, StopTrials
and RetryTrials of all her trials in turn, eight readers of the whole journal. A real head over TLS
on loopback; `idle` is the same without Alice, and `times_idle` what her load makes of the p99.

With `changes` Alice does once, one after another, what changes all of her trials, while Bob asks
for his study twenty times a second. `held_ms` is the most CPU time that the head's loop spent in
one go meanwhile, in which nobody else was answered; the longest of Bob's calls says the same where
nothing else uses the machine. Both end with the rows of their table in docs/benchmarks.md.

Alice's processes are niced to 19: where people work, they are on another machine than the head. A
call counts from when it is due, so that a head which stops for a second is seen by all the calls of
that second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc

from benchmarks import held
from benchmarks.daemons import Daemons, daemons
from benchmarks.report import median, publish, quantile
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc, enroll_pb2, enroll_pb2_grpc
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.security.enrollment import Membership, channel_options, enroll

LOADS = ("preview", "get", "export", "retry", "watch")
WORDS = {
    "idle": "nothing",
    "preview": "previews of 100,000 trials",
    "get": "the study, eight calls at a time",
    "export": "32 exports",
    "retry": "stopping and retrying all trials",
    "watch": "eight readers of the journal",
    "all": "all of these",
}
CALLS_PER_SECOND = 20
CHANGES_COLUMNS = ["change", "seconds", "held_ms", "calls", "p50_ms", "p99_ms", "worst_ms"]
COLUMNS = ["load", "call", "calls", "p50_ms", "p99_ms", "worst_ms", "times_idle"]
OPTIONS = [*channel_options(), ("grpc.max_receive_message_length", -1)]
_IDS = itertools.count(1)


def _id() -> str:
    return f"{time.monotonic_ns()}-{next(_IDS)}"


def study(name: str, trials: int) -> types.StudySpec:
    """A random search in two parameters."""

    def axis(name: str) -> types.Parameter:
        low, high = types.Value(double_value=0.0), types.Value(double_value=1.0)
        return types.Parameter(name=name, min=low, max=high)

    return types.StudySpec(
        name=name,
        program="train.py",
        method=types.SEARCH_METHOD_RANDOM,
        run_cap=trials,
        parameters=[axis("lr"), axis("decay")],
    )


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[grpc.aio.Channel]:
    """A channel by the certificate in `folder`."""
    member = Membership(folder)
    credentials = member.credentials()
    async with grpc.aio.secure_channel(member.head, credentials, options=OPTIONS) as channel:
        yield channel


# Alice.


async def load(kind: str, folder: Path, trials: int) -> None:
    """Do one thing for ever; what is answered is not even parsed."""
    async with connected(folder) as channel:

        def method(name: str) -> Callable[..., Any]:
            service = "/hermes.v1.ControlService/"
            streams = name in ("ExportStudy", "WatchJournal")
            make: Any = channel.unary_stream if streams else channel.unary_unary
            called: Callable[..., Any] = make(
                f"{service}{name}", request_serializer=lambda message: message.SerializeToString()
            )
            return called

        async def drained(call: Any) -> None:
            async for _ in call:
                pass

        selection = pb.Selection(study="large")

        async def once() -> None:
            match kind:
                case "preview":
                    asked = pb.SubmitStudyRequest(
                        request_id=_id(), spec=study("more", trials), validate_only=True
                    )
                    await method("SubmitStudy")(asked)
                case "get":
                    await method("GetStudy")(pb.GetStudyRequest(study="large"))
                case "export":
                    await drained(method("ExportStudy")(pb.ExportStudyRequest(study="large")))
                case "retry":
                    for name, request in (
                        ("StopTrials", pb.StopTrialsRequest),
                        ("RetryTrials", pb.RetryTrialsRequest),
                    ):
                        await method(name)(request(request_id=_id(), selection=selection))
                case "watch":
                    await drained(method("WatchJournal")(pb.WatchJournalRequest(once=True)))
                case _:
                    raise ValueError(kind)

        async def for_ever() -> None:
            while True:
                try:
                    await once()
                except grpc.aio.AioRpcError as error:
                    # Of all loads together she may have 32 streams and 32 calls open.
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                    await asyncio.sleep(0.05)

        beside = {"get": 8, "export": 32, "watch": 8}.get(kind, 1)
        print("loading", flush=True)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(beside):
                tasks.create_task(for_ever())


@contextmanager
def loading(kinds: tuple[str, ...], folder: Path, trials: int) -> Any:
    """Processes of Alice's for the block."""
    words = [sys.executable, "-m", "benchmarks.callers", "--load"]
    processes = [
        subprocess.Popen(
            [*words, kind, "--folder", str(folder), "--trials", str(trials)],
            stdout=subprocess.PIPE,
        )
        for kind in kinds
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise SystemExit("a load did not begin")
        yield
        for process in processes:
            if process.poll() is not None:
                raise SystemExit("a load ended early")
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


# Bob.


def changes(trials: int) -> Iterator[tuple[str, str, Any]]:
    """What Alice does with all of her trials: in words, which call, and the request."""
    everything: dict[str, Any] = {"selection": pb.Selection(study="large")}
    low, wider = types.Value(double_value=0.0), types.Value(double_value=2.0)
    axis = types.Parameter(name="lr", min=low, max=wider)
    half = trials // 2
    more = pb.AddTrialsRequest(study="large", count=trials - half)
    stop, retry = pb.StopTrialsRequest(**everything), pb.RetryTrialsRequest(**everything)

    def extend(**fields: Any) -> Any:
        return pb.ExtendStudyRequest(**everything, **fields)

    yield "submit", "SubmitStudy", pb.SubmitStudyRequest(spec=study("large", half))
    yield "add trials", "AddTrials", more
    yield "mark", "MarkTrials", pb.MarkTrialsRequest(**everything, add_tags=["seen"])
    yield "extend: a limit", "ExtendStudy", extend(stop=types.Stop(max_steps=1_000))
    yield "extend: fewer", "ExtendStudy", extend(run_cap=half)
    yield "extend: as many again", "ExtendStudy", extend(run_cap=trials)
    yield "extend: drawn anew", "ExtendStudy", extend(axes=[axis])
    yield "stop", "StopTrials", stop
    yield "extend: resumed", "ExtendStudy", extend(stop=types.Stop(max_steps=2_000))
    yield "stop", "StopTrials", stop
    yield "retry", "RetryTrials", retry
    yield "stop", "StopTrials", stop
    yield "remove", "RemoveStudy", pb.RemoveStudyRequest(study="large")


async def changed(folder: Path, trials: int, log: Path) -> list[list[str | float]]:
    """Rows: how long each change took, how long it held the loop, and Bob's calls meanwhile."""
    rows: list[list[str | float]] = []
    _, seen = held.seconds(log, 0)
    async with connected(folder / "alice") as hers, connected(folder / "bob") as his:
        alice: Any = control_pb2_grpc.ControlServiceStub(hers)
        bob: Any = control_pb2_grpc.ControlServiceStub(his)
        for name, call, request in changes(trials):
            request.request_id = _id()
            begun, times = time.monotonic(), list[float]()
            change = getattr(alice, call)(request)
            while not change.done():
                due = begun + len(times) / CALLS_PER_SECOND
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await bob.GetStudy(pb.GetStudyRequest(study="small"))
                times.append(time.monotonic() - due)
            await change
            took = time.monotonic() - begun
            longest, seen = held.seconds(log, seen)
            figures = [median(times) * 1e3, quantile(times, 0.99) * 1e3, max(times) * 1e3]
            rows.append([name, took, longest * 1e3, len(times), *figures])
            print(*rows[-1], flush=True)
    return rows


async def measured(folder: Path, seconds: float) -> dict[str, list[float]]:
    """Seconds that his calls took, by what they were."""
    found: dict[str, list[float]] = {"GetStudy": [], "MarkTrials": []}
    async with connected(folder) as channel, asyncio.TaskGroup() as tasks:
        stub: Any = control_pb2_grpc.ControlServiceStub(channel)

        def asked(name: str, number: int) -> Any:
            if name == "GetStudy":
                return pb.GetStudyRequest(study="small")
            chosen = pb.Selection(trials=["small/1"])
            return pb.MarkTrialsRequest(request_id=_id(), selection=chosen, note=f"{number}")

        async def one_after_another(name: str) -> None:
            begun = time.monotonic()
            for number in range(int(seconds * CALLS_PER_SECOND)):
                due = begun + number / CALLS_PER_SECOND
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await getattr(stub, name)(asked(name, number))
                found[name].append(time.monotonic() - due)

        for name in found:
            tasks.create_task(one_after_another(name))
    return found


async def prepared(head: Daemons, folder: Path, trials: int, is_large: bool) -> None:
    """Both users, and their studies; without the large one if she is to submit that herself, as an
    admin: what a user may change in some minutes is bounded."""
    word = (head.folder / "head" / "token").read_text().split("\n")[0]
    admin = (("authorization", f"Bearer {word}"),)
    async with grpc.aio.insecure_channel(f"unix:{head.folder}/head/head.sock") as channel:
        enrollment: Any = enroll_pb2_grpc.EnrollServiceStub(channel)
        for name in ("alice", "bob"):
            is_user = is_large or name == "bob"
            role = enroll_pb2.IDENTITY_ROLE_USER if is_user else enroll_pb2.IDENTITY_ROLE_ADMIN
            asked = enroll_pb2.InviteRequest(role=role, name=name)
            token = (await enrollment.Invite(asked, metadata=admin)).token
            await asyncio.to_thread(enroll, head.address, token, name, folder / name)
    large = [("alice", "large", trials)] if is_large else []
    for name, called, size in (*large, ("bob", "small", 4)):
        async with connected(folder / name) as channel:
            stub: Any = control_pb2_grpc.ControlServiceStub(channel)
            spec = study(called, size)
            await stub.SubmitStudy(pb.SubmitStudyRequest(request_id=_id(), spec=spec))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", nargs="*", choices=[*LOADS, "all", "changes", []], help="some")
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        os.nice(19)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(load(given.load, given.folder, given.trials))
        return
    rows: list[list[str | float]] = []
    idle: dict[str, float] = {}
    with daemons() as head:
        head.start_head("benchmarks.held" if "changes" in given.loads else "hermesd.cli")
        folder = head.folder / "users"
        asyncio.run(prepared(head, folder, given.trials, "changes" not in given.loads))
        if "changes" in given.loads:
            rows = asyncio.run(changed(folder, given.trials, head.folder / "head.log"))
            publish("changes", CHANGES_COLUMNS, rows)
            for name, _, longest, *_, worst in rows:
                print(f"| {name} | {longest:.0f} ms | {worst:.0f} ms |")
            return
        for name in ("idle", *(given.loads or [*LOADS, "all"])):
            kinds = {"idle": (), "all": LOADS}.get(name, (name,))
            with loading(kinds, folder / "alice", given.trials):
                found = asyncio.run(measured(folder / "bob", given.seconds))
            for call, times in found.items():
                p99 = quantile(times, 0.99) * 1e3
                idle.setdefault(call, p99)
                figures = [median(times) * 1e3, p99, max(times) * 1e3, p99 / idle[call]]
                rows.append([name, call, len(times), *figures])
                print(*rows[-1], flush=True)
    publish("callers", COLUMNS, rows)
    for read, marked in zip(rows[::2], rows[1::2], strict=True):
        cells = [f"{row[place]:.0f} ms" for row in (read, marked) for place in (3, 4)]
        print(f"| {WORDS[str(read[0])]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
