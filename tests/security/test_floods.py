"""Whoever opens connections and says nothing keeps nobody else out, and fills no log."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.crowd import FEW, Crowd
from tests.e2e.test_joining import Place, notified
from tests.forked import Forked
from tests.head.test_transport import free_port

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


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_by_whose_connection_there_was_a_call_is_not_ended(host: str) -> None:
    """Even though it is the oldest one of the same address."""
    crowd, peers = Crowd(4 * FEW), []

    async def answer(request: bytes, context: Any) -> bytes:
        peers.append(context.peer())
        crowd.called("user alice", context.peer())
        return request

    server = grpc.aio.server()
    method: Any = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a", {"b": method})])
    address = f"{host}:{server.add_insecure_port(f'{host}:0')}"
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.unary_unary("/a/b")
        await call(b"1")
        with ExitStack() as stack:
            bare = [
                stack.enter_context(
                    socket.create_connection((host.strip("[]"), int(address.rpartition(":")[2])))
                )
                for _ in range(4 * FEW)
            ]
            with crowd.watched(address):
                # The oldest of those have been ended: all that this address may not have.
                for one in bare[: 2 * FEW + 1]:
                    one.settimeout(60)
                    while one.recv(4096):
                        pass
            await call(b"2")
    assert peers == [peers[0]] * 2
    await server.stop(None)
