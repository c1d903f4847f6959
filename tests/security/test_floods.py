"""Whoever opens connections and says nothing keeps nobody else out, and fills no log."""

from __future__ import annotations

import asyncio
import json
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd import barring
from hermesd.config.schema import NodeConfig
from hermesd.crowd import FEW, Crowd, _who
from hermesd.node.storage import transfer_service
from hermesd.node.storage.fetching import Fetching
from hermesd.pb.hermes.v1 import enroll_pb2
from tests.e2e.test_joining import Place, notified
from tests.forked import Forked
from tests.head.test_enroll import Open
from tests.head.test_enroll import head as enrolling
from tests.head.test_transport import free_port
from tests.node.test_fetching import Giver

__all__ = ["enrolling"]

DESCRIPTORS = 200


@contextmanager
def flooded(*addresses: str) -> Iterator[list[socket.socket]]:
    """More connections to each than the head may have files open, none of which says a word."""
    with ExitStack() as stack:
        found = []
        for address in addresses:
            host, _, port = address.rpartition(":")
            for _ in range(DESCRIPTORS + 20):
                found.append(stack.enter_context(socket.create_connection((host, int(port)))))
        yield found


@contextmanager
def head(place: Place, log: Path) -> Iterator[None]:
    """One with few files."""
    limited = ("sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh")
    with notified(place.folder) as (path, ready), log.open("w") as file:
        environment = {**place.environment, "NOTIFY_SOCKET": path}
        process = subprocess.Popen(
            [*limited, sys.executable, "-m", "hermesd", "head"], env=environment, stderr=file
        )
        try:
            ready()
            yield
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait()


@pytest.mark.timeout(180)
def test_bare_connections_keep_nobody_else_out(tmp_path: Path) -> None:
    place = Place(tmp_path)
    metrics = f"127.0.0.1:{free_port()}"
    place.environment["HERMES_HEAD_METRICS_PORT"] = metrics.rpartition(":")[2]
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print('loss: 0.5')")
    log = tmp_path / "log"
    with head(place, log):
        login = place.ctl("user", "token", "alice", admin=True).split()
        place.ctl(*login[1:], "--name", "lab")
        before = log.read_text().count("\n")
        floods = (place.address, place.environment["HERMES_HEAD_ENROLL"], metrics)
        with flooded(*floods) as connections:
            # By the socket all goes on, what needs files of the head's own, too.
            program = str(project / "train.py")
            place.ctl("submit", program, "--grid", "lr=0.1,0.2", "--name", "fit", admin=True)
            place.ctl("user", "token", "bob", admin=True)
            listed = json.loads(place.ctl("study", "ls", "-o", "json", admin=True))["studies"]
            assert [study["id"] for study in listed] == ["fit"]
            # And the head lets go of those that say nothing: no more than its patience later,
            # others come in. Reading waits for that.
            for one in connections:
                one.settimeout(60)
                try:
                    while one.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
            assert "fit" not in place.ctl("--head", "lab", "study", "ls")
        assert log.read_text().count("\n") < before + 20, log.read_text()


FLOOD = Path(__file__).with_name("flood.py")


@pytest.fixture
def open_place() -> Iterator[Place]:
    """One whose socket other accounts can come to, if its mode lets them."""
    folder = Path(tempfile.mkdtemp(prefix="hermes-"))
    folder.chmod(0o755)
    place = Place(folder)
    place.environment["HERMES_HEAD_SOCKET"] = f"{folder}/head.sock"
    yield place
    shutil.rmtree(folder)


@contextmanager
def attacked(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """By somebody who fills a port for as long as the block lasts."""
    attacker = subprocess.Popen([sys.executable, FLOOD, *words], stdout=subprocess.PIPE)
    assert attacker.stdout is not None
    with attacker, attacker.stdout:
        assert attacker.stdout.readline() == b"flooding\n"
        try:
            yield attacker
            assert attacker.poll() is None
        finally:
            attacker.kill()


@pytest.mark.root
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("port", "says"),
    [("listen", ""), ("enroll", "tls"), ("enroll", "http2"), ("socket", ""), ("socket", "http2")],
)
def test_who_fills_a_port_all_the_time_keeps_nobody_else_out(
    open_place: Place, port: str, says: str
) -> None:
    """Nor who is ended, and comes again at once, as fast as they can."""
    place = open_place
    folder = place.folder
    log, path = folder / "log", f"unix:{folder}/head.sock"
    by_socket = {"HERMES_HEAD": path, "HERMES_TOKEN_FILE": f"{folder}/head/token"}

    def ctl(*words: str, **environment: str) -> str:
        """A program of its own, which has ten seconds to come through."""
        whole = {**place.environment, **environment}
        code, out, errors = Forked("hermesctl", *words, environment=whole).communicate()
        assert code == 0, errors
        return out

    with head(place, log):
        login = ctl("user", "token", "alice", **by_socket).split()[1:]
        ctl(*login, "--name", "lab")
        mode = (folder / "head.sock").stat().st_mode
        there, source = {
            "listen": (place.address, "127.0.0.2"),
            "enroll": (place.environment["HERMES_HEAD_ENROLL"], "127.0.0.2"),
            "socket": (path, "65534"),
        }[port]
        with attacked(there, source, *([says] if says else [])):
            for number in range(5):
                if port == "listen":
                    assert "alice" in ctl("--head", "lab", "user", "ls")
                elif port == "socket":
                    assert "alice" in ctl("user", "ls", **by_socket)
                else:
                    login = ctl("user", "token", f"user{number}", **by_socket).split()[1:]
                    ctl(*login, "--name", f"lab{number}")
        assert "a port is crowded" in log.read_text()
        assert log.read_text().count("a port is crowded") == 1
        assert (folder / "head.sock").stat().st_mode == mode


@asynccontextmanager
async def answering(crowd: Crowd, host: str) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that lets in everybody who calls, each as the user that the request names; its
    address, and by which connections calls came."""
    peers: list[str] = []

    async def answer(request: bytes, context: Any) -> bytes:
        peers.append(context.peer())
        crowd.called(f"user {request.decode()}", context.peer())
        return request

    server = grpc.aio.server()
    method: Any = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a", {"b": method})])
    address = f"{host}:{server.add_insecure_port(f'{host}:0')}"
    await server.start()
    yield address, peers
    await server.stop(None)


def ended(connections: list[socket.socket], least: int) -> None:
    """So many of them have been ended."""
    ends = select.poll()
    for one in connections:
        ends.register(one, select.POLLRDHUP)
    while least > 0:
        for number, _ in ends.poll():
            ends.unregister(number)
            least -= 1


async def call(channel: grpc.aio.Channel, user: bytes) -> None:
    method: Any = channel.unary_unary("/a/b")
    await method(user)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_by_whose_connection_there_was_a_call_is_not_ended(host: str) -> None:
    """Even though it is the oldest one of the same address."""
    crowd = Crowd(4 * FEW)
    async with (
        answering(crowd, host) as (address, peers),
        grpc.aio.insecure_channel(address) as channel,
    ):
        await call(channel, b"alice")
        with ExitStack() as stack:
            there = host.strip("[]"), int(address.rpartition(":")[2])
            bare = [stack.enter_context(socket.create_connection(there)) for _ in range(4 * FEW)]
            with crowd.watched(address):
                # All that are more than this address may have beside that one.
                ended(bare, 2 * FEW + 1)
            await call(channel, b"alice")
    assert peers == [peers[0]] * 2


def link_local() -> str | None:
    """An address of this machine that holds on one link alone, with that link's name."""
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else ():
        address, _, _, scope, _, name = line.split()
        if scope == "20":
            return f"{IPv6Address(int(address, 16))}%{name}"
    return None


async def test_a_connection_by_a_link_local_address_is_found_by_the_name_that_grpc_gives_it() -> (
    None
):
    """Else those who call by it count as callers who say nothing."""
    assert _who("fe80::1", 80, 0, 4)[1] == "ipv6:%5Bfe80::1%254%5D:80"
    if (mine := link_local()) is None:
        return
    crowd = Crowd(4 * FEW)
    async with answering(crowd, "[::]") as (address, peers):
        port = int(address.rpartition(":")[2])
        there = f"[{mine.replace('%', '%25')}]:{port}"
        async with grpc.aio.insecure_channel(there) as channel:
            await call(channel, b"alice")
            found = crowd._look({port}, 0.0)[port].connected
            assert [one.peer for one in found] == peers


def test_of_link_local_addresses_each_is_somebody_else() -> None:
    """They all begin alike; elsewhere who has one address has all that do."""
    one, other = (_who(f"fe80::{last}", 1, 0, 2)[0] for last in (1, 2))
    elsewhere = _who("fe80::1", 1, 0, 3)[0]
    assert len({one, other, elsewhere}) == 3
    assert _who("fd00::1", 1)[0] == _who("fd00::2", 1)[0]


def test_the_kernel_bars_one_link_local_address_alone() -> None:
    if (mine := link_local()) is None:
        pytest.skip("no link-local address here")
    there = socket.getaddrinfo(mine, 1, socket.AF_INET6)[0][4]
    host, link = str(there[0]).partition("%")[0], int(there[-1])
    ours = _who(host, 1, 0, link)[0]
    others = [_who(f"fe80::{last:x}", 1, 0, link)[0] for last in range(1, barring.MOST)]
    wide = [_who("fd00:1::1", 1)[0], _who("10.9.8.7", 1)[0]]
    with socket.create_server(("::", 0), family=socket.AF_INET6) as listener:
        there = host, listener.getsockname()[1], 0, link

        def is_let_in(seconds: float | None) -> bool:
            with socket.socket(socket.AF_INET6) as caller:
                caller.settimeout(seconds)
                try:
                    caller.connect(there)
                except TimeoutError:
                    return False
                return True

        barring.bar_addresses(listener, [*wide, *others[2:]])
        assert is_let_in(None)
        barring.bar_addresses(listener, [*wide, *others[3:], ours])
        assert not is_let_in(0.2)
        barring.bar_addresses(listener, [ours[:8]])
        assert not is_let_in(0.2)
        barring.bar_addresses(listener, [])
        assert is_let_in(None)


async def test_nobody_keeps_a_port_by_calling_once_on_each_connection() -> None:
    crowd = Crowd(8 * FEW)
    async with answering(crowd, "127.0.0.1") as (address, _), AsyncExitStack() as stack:
        alone: Any = (("grpc.use_local_subchannel_pool", 1),)
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, options=alone))
            for _ in range(4 * FEW + 4)
        ]
        for channel in channels:
            await call(channel, b"mallory")
        ready = grpc.ChannelConnectivity.READY
        async with asyncio.TaskGroup() as tasks:
            ends = [tasks.create_task(each.wait_for_state_change(ready)) for each in channels]
            with crowd.watched(address):
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            assert not any(end.done() for end in ends[-FEW:])
            for end in ends:
                end.cancel()


async def test_the_port_where_a_node_gives_checkpoints_makes_room_as_well(
    enrolling: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_service, "most_connections", lambda: 4 * FEW)
    monkeypatch.setattr(transfer_service, "_OPTIONS", [])  # which end them, later
    node = enroll_pb2.IDENTITY_ROLE_NODE
    await enrolling.member(node, "a", tmp_path / "a" / "membership")
    mine = await enrolling.member(node, "b", tmp_path / "b")
    giver = Giver(tmp_path / "a")
    await giver.server.start(NodeConfig(name="a", state_dir=tmp_path / "a"))
    host, _, port = giver.server.address.rpartition(":")
    try:
        with ExitStack() as stack:
            bare = [
                stack.enter_context(socket.create_connection((host, int(port))))
                for _ in range(4 * FEW)
            ]
            await asyncio.to_thread(ended, bare, 2 * FEW)
            await Fetching(mine).bring(giver.checkpoint, (giver.source(),), tmp_path / "x")
    finally:
        await giver.server.stop()
