"""A machine on loan joins by a token in a file, and leaves with nothing lost and nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermesctl import Client
from hermesctl.sdk.records import Trial
from hermesd.security.enrollment import enroll
from hermesd.security.identity import NotEnrolled
from tests.e2e.cluster import multiplying
from tests.e2e.test_joining import Place, notified
from tests.waiting import ASK_SECONDS, until

RATE = 0.001


def study(folder: Path) -> tuple[Path, Path]:
    """The program, and the file by which its trials are told to end."""
    program, ends = folder / "study" / "train.py", folder / "ends"
    program.parent.mkdir()
    program.write_text(multiplying(f"not pathlib.Path({str(ends)!r}).exists()"))
    return program, ends


def undisturbed(rate: float, step: int) -> float:
    """The loss at a step of a trial that was never moved."""
    state = 1.0
    for _ in range(step):
        state *= 1 - rate
    return state


def watching(place: Place) -> Client:
    """A client of the head, with all rights."""
    return Client(f"unix:{place.folder}/head/head.sock", patience_seconds=60.0)


def restored(client: Client, trial: Trial) -> int:
    """The step at which the last run of a trial began."""
    log = b"".join(client.logs(trial.id)).decode()
    return int(log.rsplit("restored", 1)[1].split()[0])


def last_loss(client: Client, trial: Trial) -> float:
    """The loss that a trial reported last."""
    return float(client.curve(trial.id, "loss").values[-1])


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
def guest(place: Place, name: str, token: Path) -> Iterator[Guest]:
    folder = place.folder / f"tmp-{name}"
    folder.mkdir()
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


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("g"))


@pytest.mark.timeout(300)
def test_what_a_guest_trains_goes_on_elsewhere(place: Place) -> None:
    program, ends = study(place.folder)
    token = place.folder / "token"
    with place.daemon("head"), watching(place) as client:
        token.write_text(place.ctl("node", "token", "--uses", "2", admin=True).split()[4])
        with guest(place, "lent", token) as lent:
            place.ctl("submit", str(program), "--grid", f"rate={RATE}", admin=True)
            until(lambda: next(client.trials("train")).step >= 50, ASK_SECONDS)
            with guest(place, "next", token) as after:
                until(lambda: sum(node.connected for node in client.nodes()) == 2, ASK_SECONDS)
                lent.leave(signal.SIGUSR1)
                assert [node.id for node in client.nodes()] == ["next"]
                until(lambda: next(client.trials("train")).state == "running", ASK_SECONDS)
                ends.touch()
                assert client.wait("train").study.finished
                [trial] = client.trials("train")
                assert trial.state == "completed"
                assert restored(client, trial) >= 50
                assert last_loss(client, trial) == undisturbed(RATE, trial.step)
                known = json.loads(place.ctl("user", "ls", "-o", "json", admin=True))["members"]
                assert [one["name"] for one in known] == ["next"], "no certificate stays"
                after.leave(signal.SIGTERM)  # with what nobody else has


def test_a_guest_keeps_nothing_so_it_takes_no_state(place: Place) -> None:
    words = ["node", "join", "127.0.0.1:1", "token", "--guest"]
    for option in (["--state", str(place.folder)], ["--enroll-only"]):
        done = subprocess.run(
            [sys.executable, "-m", "hermesd.cli", *words, *option],
            env=place.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{option[0]} and --guest: a guest serves at once" in done.stderr


# What a program does that wants to be a node: it looks through all of this test that its account
# may read. What it reads of a pipe would be missing there, so it reads none.
LOOKING = """
import pathlib, time
needle, folder = {backwards!r}[::-1].encode(), {folder!r}
places = [path for path in pathlib.Path(folder, "share").rglob("*") if path.is_file()]
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if folder.encode() in (process / "environ").read_bytes():
            open_files = [file for file in process.glob("fd/*") if file.is_file()]
            places += [process / "environ", process / "cmdline", *open_files]
    except OSError:
        pass
found = []
for place in places:
    try:
        if needle in place.read_bytes():
            found.append(str(place))
    except OSError:
        pass
print(f"looked: {{len(places)}} found: {{found}} .", flush=True)
time.sleep(600)
"""


@pytest.mark.timeout(180)
def test_a_program_of_a_batch_job_finds_no_token_to_join_by(place: Place) -> None:
    """Slurm's part is played by two scripts; the job and all in it are real."""
    share, tools = place.folder / "share", place.folder / "tools"
    (place.folder / "study").mkdir()
    program = place.folder / "study" / "train.py"
    tools.mkdir()
    for name, body in (
        ("sbatch", f'cp "$2" {place.folder}/job.sh; echo 17'),
        ("srun", 'until [ "$1" = bash ]; do shift; done; exec "$@"'),
    ):
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    place.environment |= {
        "PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(tools),
        "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "17",
    }  # fmt: skip
    with place.daemon("head"), watching(place) as client:
        words = ("--cpus-per-node", "1", "--share", str(share), "--hermesd", str(tools / "hermesd"))
        (tools / "hermesd").write_text(f'#!/bin/sh\nexec {sys.executable} -m hermesd.cli "$@"\n')
        (tools / "hermesd").chmod(0o755)
        place.ctl("cluster", "launch", "--slurm", *words, admin=True)
        [folder] = share.iterdir()
        token = (folder / "token").read_text()
        program.write_text(LOOKING.format(backwards=token[:-41:-1], folder=str(place.folder)))
        job = subprocess.Popen(
            ["bash", str(place.folder / "job.sh")],
            env=place.environment, cwd=place.folder, start_new_session=True,
        )  # fmt: skip
        try:
            place.ctl("submit", str(program), admin=True)
            until(lambda: next(client.trials("train")).state == "running", ASK_SECONDS)

            def log_to_its_end() -> str:
                text = b"".join(client.logs("train/1")).decode()
                return text if " ." in text else ""

            log = until(log_to_its_end, ASK_SECONDS)
            assert " found: [] ." in log, log
            assert int(log.split("looked: ")[1].split()[0]) > 10
            with pytest.raises(NotEnrolled, match="the token was used, or is too old"):
                enroll(place.address, token, "rogue", place.folder / "rogue")
        finally:
            os.killpg(job.pid, signal.SIGTERM)
            job.wait()
