"""Whoever opens connections and says nothing keeps nobody else out, and fills no log."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.test_joining import Place, notified
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
