"""A machine and a person join a head by one-time tokens, with the commands that people type."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.forked import Forked
from tests.head.test_transport import free_port
from tests.waiting import ASK_SECONDS, until

REPOSITORY = Path(__file__).resolve().parents[2]


class Place:
    """A head that other machines may join, and this user's home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HERMES_")},
            "HERMES_NODE_RUN_AS": "self",
            "XDG_CONFIG_HOME": str(folder / "config"),
            "HERMES_STATE": str(folder / "state"),
            "HERMES_HEAD_ENROLL": f"127.0.0.1:{free_port()}",
            "HERMES_HEAD_LISTEN": self.address,
            "HERMES_HEAD_STATE_DIR": str(folder / "head"),
            "PYTHONPATH": str(REPOSITORY),
        }

    @contextmanager
    def daemon(self, *words: str) -> Iterator[None]:
        """A daemon of hermesd until the block ends; it says READY before the block begins."""
        command = [sys.executable, "-m", "hermesd", *words]
        with notified(self.folder) as (socket, ready):
            process = subprocess.Popen(command, env={**self.environment, "NOTIFY_SOCKET": socket})
            try:
                ready()
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()

    def ctl(self, *words: str, admin: bool = False) -> str:
        """What a command prints; as the head's own admin, over its socket, or as who logged in."""
        environment = dict(self.environment)
        if admin:
            environment["HERMES_HEAD"] = f"unix:{self.folder}/head/head.sock"
        code, out, errors = Forked("hermesctl", *words, environment=environment).communicate()
        assert code == 0, errors
        return out

    def until_connected(self, node: str, *words: str) -> None:
        """Ask again and again: a daemon is ready before its first stream to the head is."""

        def is_connected() -> bool:
            nodes = json.loads(self.ctl(*words, "node", "ls", "-o", "json"))["nodes"]
            return any(one["id"] == node and one["connected"] for one in nodes)

        until(is_connected, ASK_SECONDS)


@contextmanager
def notified(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A socket for sd_notify, and what waits for READY=1."""

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        path = str(folder / f"notify-{len(list(folder.iterdir()))}")
        listener.bind(path)

        def ready() -> None:
            while b"READY=1" not in listener.recv(4096):
                pass

        yield path, ready


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_token_makes_a_machine_a_node_and_a_person_a_user(place: Place) -> None:
    node = ("--state", str(place.folder / "node"), "--slots", "1")
    with place.daemon("head"):
        join = place.ctl("node", "token", "--name", "box", admin=True).split()
        assert join[:4] == ["hermesd", "node", "join", place.address]
        with place.daemon(*join[1:], *node):
            login = place.ctl("user", "token", "alice", admin=True).split()
            assert login[:3] == ["hermesctl", "login", place.address]
            place.ctl(*login[1:], "--name", "lab")
            place.until_connected("box")
        with place.daemon("node", *node):  # by itself it finds its head and its name again
            place.until_connected("box", "--head", "lab")
    [context] = json.loads(place.ctl("context", "-o", "json"))["contexts"]
    assert context == {"name": "lab", "head": place.address, "user": "alice", "current": True}
    place.ctl("logout")
    assert json.loads(place.ctl("context", "-o", "json"))["contexts"] == []


def test_who_is_revoked_has_nothing_left(place: Place) -> None:
    """Neither the certificate of before a promotion, nor the one since."""
    contexts = ("user", "operator")
    with place.daemon("head"):
        for role in contexts:
            login = place.ctl("user", "token", "alice", "--role", role, admin=True).split()
            place.ctl(*login[1:], "--name", role)
        place.ctl("user", "revoke", "alice", "--role", "operator", "-y", admin=True)
        place.ctl("--head", "user", "study", "ls")
        login = place.ctl("user", "token", "alice", "--role", "operator", admin=True).split()
        place.ctl("logout", "operator")
        place.ctl(*login[1:], "--name", "operator")
        place.ctl("user", "revoke", "alice", "-y", admin=True)
        for context in contexts:
            with pytest.raises(AssertionError, match=f"of {context} alice is no longer valid"):
                place.ctl("--head", context, "study", "ls")


def test_ports_of_a_head_speak_no_tls_before_1_3(place: Place) -> None:
    with place.daemon("head"):
        for address in (place.address, place.environment["HERMES_HEAD_ENROLL"]):
            assert handshake(address, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
            with pytest.raises(OSError, match=r"HANDSHAKE_FAILURE|EOF|reset"):
                handshake(address, ssl.TLSVersion.TLSv1_2)


def handshake(address: str, newest: ssl.TLSVersion) -> str | None:
    """The version that the port and a client of up to this version agree upon."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = newest
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host, int(port)))
    with context.wrap_socket(plain) as secured:
        return secured.version()
