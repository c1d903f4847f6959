"""A machine on loan joins by a token in a file, and leaves with nothing lost and nothing left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.test_joining import Place, notified
from tests.e2e.test_lost_node import SCRIPT, STEPS

RATE = 0.001


class Guest:
    """A guest's daemon, with a TMPDIR of its own."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder

    def leave(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        assert self.process.wait() == 0
        assert list(self.folder.iterdir()) == []


@contextmanager
def guest(place: Place, name: str) -> Iterator[Guest]:
    folder, token = place.folder / f"tmp-{name}", place.folder / f"{name}.token"
    folder.mkdir()
    token.write_text(place.ctl("node", "token", "--uses", "2", admin=True).split()[4])
    words = ["node", "join", place.address, "--token-file", str(token), "--guest"]
    command = [sys.executable, "-m", "hermesd.cli", *words, "--name", name, "--slots", "1"]
    with notified(place.folder) as (socket, ready):
        environment = {**place.environment, "TMPDIR": str(folder), "NOTIFY_SOCKET": socket}
        process = subprocess.Popen(command, env=environment, cwd=place.folder)
        try:
            ready()
            yield Guest(process, folder)
        finally:
            process.kill()
            process.wait()


def trial(place: Place) -> dict[str, object]:
    [one] = json.loads(place.ctl("trial", "ls", "-o", "json", admin=True))["trials"]
    return one


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("g"))


def nodes(place: Place) -> list[str]:
    listed = json.loads(place.ctl("node", "ls", "-o", "json", admin=True))
    return [one["id"] for one in listed["nodes"]]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", [signal.SIGUSR1, signal.SIGTERM], ids=["soon", "now"])
def test_what_a_guest_trains_goes_on_elsewhere(place: Place, how: signal.Signals) -> None:
    (place.folder / "train.py").write_text(SCRIPT)
    with place.daemon("head"), guest(place, "lent") as lent:
        place.ctl("submit", str(place.folder / "train.py"), "--grid", f"rate={RATE}", admin=True)
        while int(str(trial(place)["step"])) < 50:
            pass
        with guest(place, "next") as after:
            while len(nodes(place)) < 2:
                pass
            lent.leave(how)
            assert nodes(place) == ["next"]
            while trial(place)["state"] != "completed":
                pass
            log = place.ctl("logs", str(trial(place)["id"]), admin=True)
            assert int(log.split("restored")[1].split()[0]) >= 50
            assert trial(place)["step"] == STEPS
            known = json.loads(place.ctl("user", "ls", "-o", "json", admin=True))["members"]
            assert [one["name"] for one in known] == ["next"], "the certificate has gone, too"
            after.leave(signal.SIGTERM)  # with the only copy of what is finished


def test_a_guest_keeps_nothing_so_it_takes_no_state(place: Place) -> None:
    words = ["node", "join", "127.0.0.1:1", "token", "--guest"]
    for option in (["--state", str(place.folder)], ["--enrol-only"]):
        done = subprocess.run(
            [sys.executable, "-m", "hermesd.cli", *words, *option],
            env=place.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{option[0]} and --guest: a guest serves at once" in done.stderr
