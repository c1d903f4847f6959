"""Images that fail: the program is not harmed, and nothing goes on from what is not whole."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hermesd.node.storage import checkpoints
from hermesd.node.storage.checkpoints import DamagedCheckpoint
from tests.images.driving import (
    Failing,
    WorldTrial,
    argv,
    begun,
    criu,
    files_in,
    lay_out,
    saved,
    undisturbed,
)
from tests.images.programs import PROGRAMS, python
from trainer_shim import checkpoint_dir
from trainer_shim.host.freeze import descendants

PROGRAM = PROGRAMS["grows a file"]
# A host that waits no longer for CRIU than a test does.
IMPATIENT = """
import sys
from trainer_shim.host import __main__, image
image.LIMIT_SECONDS = 5.0
__main__.main(sys.argv[1:])
"""
# One whose first image waits for the test before it is compressed.
PATIENT = """
import os, sys
from trainer_shim.host import __main__, image
compress, folder = image._compress, os.path.dirname(sys.argv[1])

def when_told(*given):
    if os.path.exists(folder + "/there"):
        open(folder + "/there", "w").close()
        open(folder + "/gate").close()
    compress(*given)

image._compress = when_told
__main__.main(sys.argv[1:])
"""
# One that finds the disk full when it compresses its first image.
CRAMPED = """
import errno, os, sys
from trainer_shim.host import __main__, image
compress, seen = image._compress, os.path.dirname(sys.argv[1]) + "/seen"

def full(*given):
    if not os.path.exists(seen):
        open(seen, "w").close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    compress(*given)

image._compress = full
__main__.main(sys.argv[1:])
"""

pytestmark = pytest.mark.image


@pytest.fixture
def tool(tmp_path: Path) -> str:
    return criu(tmp_path)


class Gate:
    """What the first image of a trial, whose host is yet to begin, has to pass."""

    def __init__(self, trial: WorldTrial) -> None:
        self._there, self._gate = trial.directory / "there", trial.directory / "gate"
        os.mkfifo(self._there)
        os.mkfifo(self._gate)
        trial.host = "-c", PATIENT

    def is_reached(self) -> None:
        """Wait until the image is there."""
        with self._there.open():
            self._there.unlink()

    def opens(self) -> None:
        """Let it through."""
        self._gate.open("w").close()


@pytest.fixture
def failing(tmp_path: Path, tool: str) -> Failing:
    return Failing(tmp_path, tool)


@pytest.fixture
def trial(tmp_path: Path, failing: Failing) -> Iterator[WorldTrial]:
    trial = WorldTrial(tmp_path / "t", [sys.executable, "main.py"], criu=str(failing.path))
    lay_out(PROGRAM, trial.directory / "work")
    trial.launch()
    yield trial
    trial.end()


def _ends_as_undisturbed(trial: WorldTrial, tmp_path: Path) -> None:
    trial.until("completed")
    trial.quit()
    output, files = undisturbed(PROGRAM, tmp_path / "plain")
    assert trial.output == output
    assert files_in(trial.directory / "work") == files


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("exit 1", "CRIU ended with 1"),
        # As on a full disk, amid the program's pages.
        ("trap '' XFSZ; ulimit -f 100", "CRIU"),
        ("exit 127", "CRIU ended with 127"),
    ],
)
def test_what_cannot_be_imaged_is_parked_and_goes_on(
    trial: WorldTrial, failing: Failing, tmp_path: Path, what: str, reason: str
) -> None:
    begun(trial)
    failing.does(what)
    trial.suspend("checkpoint")
    assert reason in trial.until("checkpoint_failed")["reason"]
    trial.until("parked")
    assert list(trial.checkpoints.iterdir()) == [], "nothing half-made is left"
    told = [event for event in trial.events if event["kind"] == "fidelity"][-1]
    assert told["level"] == "park-only"
    assert reason in told["reason"]
    trial.resume()
    _ends_as_undisturbed(trial, tmp_path)


_TCP = """
import socket
client = socket.create_connection(("127.0.0.1", int(open("../../port").read())))
"""
_IO_URING = """
import ctypes
setup, entries, parameters = 425, 4, (ctypes.c_char * 256)()
if ctypes.CDLL(None).syscall(setup, entries, parameters) < 0: print("refused", flush=True)
"""
_PEER = """
import socket
client = socket.socket(socket.AF_UNIX); client.connect("../../peer")
"""


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (_TCP, "it has an open network connection (TCP)"),
        (_IO_URING, "it uses io_uring"),
        (_PEER, "it is connected to a program outside of the trial"),
    ],
    ids=["tcp", "io_uring", "peer"],
)
def test_what_an_image_cannot_hold_is_named_and_the_program_goes_on(
    tmp_path: Path, tool: str, source: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if subprocess.check_output([sys.executable, "-c", source.partition("client")[0]]):
        pytest.skip("no io_uring here")
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    loop = "for step in range(70): print(step, flush=True); rest()"
    program = python(source + loop)
    trial = WorldTrial(tmp_path / "t", [sys.executable, "main.py"], criu=tool)
    lay_out(program, trial.directory / "work")
    server = socket.create_server(("127.0.0.1", 0))
    (tmp_path / "port").write_text(str(server.getsockname()[1]))
    with server, socket.socket(socket.AF_UNIX) as peer, ExitStack() as ends:
        peer.bind("peer")
        peer.listen()
        trial.launch()
        try:
            begun(trial)
            if source is _PEER:
                ends.enter_context(peer.accept()[0])
            trial.suspend("checkpoint")
            assert reason in trial.until("checkpoint_failed")["reason"]
            trial.until("parked")
            trial.resume()
            trial.until("completed")
            trial.quit()
        finally:
            trial.end()
    assert trial.output == "".join(f"{step}\n" for step in range(70))


@pytest.mark.root
@pytest.mark.parametrize("megabytes", [1, 6, 13, 14, 15, 16, 18])
def test_a_disk_that_is_full_at_any_stage_of_an_image_costs_nothing(
    trial: WorldTrial, tmp_path: Path, megabytes: int
) -> None:
    trial.end()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", trial.checkpoints]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("no file systems can be mounted here")
    try:
        trial.launch()
        begun(trial)
        trial.suspend("checkpoint")
        event = trial.until("checkpoint_failed", "suspended")
        if event["kind"] == "suspended":  # there was room, just about
            trial.end()
            trial.launch()
            trial.start(restore=event["checkpoint"]["path"])
        else:
            assert "No space left on device" in event["reason"]
            trial.until("parked")
            assert list(trial.checkpoints.iterdir()) == []
            trial.resume()
        _ends_as_undisturbed(trial, tmp_path)
    finally:
        trial.end()
        subprocess.run(["umount", trial.checkpoints], check=True)


def test_a_criu_that_is_killed_at_the_program_costs_what_came_after_the_image_before(
    trial: WorldTrial, failing: Failing, tmp_path: Path
) -> None:
    begun(trial)
    path = saved(trial)
    begun(trial, path)
    failing.does("kill -9 $$")
    trial.suspend("checkpoint")
    event = trial.until("suspended")
    assert event["tier"] == "kill"
    assert event["checkpoint"]["path"] == path
    failing.does("")
    trial.end()
    trial.launch()
    trial.start(restore=path)
    _ends_as_undisturbed(trial, tmp_path)


def test_a_criu_that_hangs_is_ended_and_costs_what_came_after_the_image_before(
    trial: WorldTrial, failing: Failing, tmp_path: Path
) -> None:
    begun(trial)
    path = saved(trial)
    trial.end()
    trial.host = "-c", IMPATIENT
    trial.launch()
    begun(trial, path)
    failing.does("exec sleep 1000")
    trial.suspend("checkpoint")
    event = trial.until("suspended")
    assert event["tier"] == "kill"
    assert event["cause"].endswith("its image failed: CRIU has not ended in 5 s")
    assert event["checkpoint"]["path"] == path
    failing.does("")
    trial.end()
    trial.host = WorldTrial.host
    trial.launch()
    trial.start(restore=path)
    _ends_as_undisturbed(trial, tmp_path)


def test_the_device_is_free_before_the_image_is_written(
    trial: WorldTrial, failing: Failing, tmp_path: Path
) -> None:
    begun(trial)
    failing.waits()
    trial.suspend("checkpoint")
    parked = trial.until("parked")
    assert parked["is_being_written"]
    assert list(trial.checkpoints.glob("*/manifest.json")) == []
    failing.goes_on()
    path = trial.until("suspended")["checkpoint"]["path"]
    trial.end()
    trial.launch()
    trial.start(restore=path)
    _ends_as_undisturbed(trial, tmp_path)


def test_a_trial_that_is_ended_while_its_image_is_written_ends(
    trial: WorldTrial, failing: Failing
) -> None:
    begun(trial)
    failing.waits()
    trial.suspend("checkpoint")
    trial.until("parked")
    trial.send("kill")
    assert trial.until("suspended")["tier"] == "kill"


def test_an_image_in_passing_disturbs_nothing(trial: WorldTrial, tmp_path: Path) -> None:
    begun(trial)
    trial.send("checkpoint", id="passing")
    assert trial.until("checkpointed")["id"] == "passing"
    _ends_as_undisturbed(trial, tmp_path)


def test_an_image_in_passing_that_finds_the_disk_full_is_told_of_and_followed_by_the_next(
    trial: WorldTrial, tmp_path: Path
) -> None:
    trial.end()
    trial.host = "-c", CRAMPED
    trial.launch()
    begun(trial)
    trial.send("checkpoint", id="passing")
    failed = trial.until("checkpoint_failed")
    assert (failed["id"], "No space left" in failed["reason"]) == ("passing", True)
    assert [each["level"] for each in trial.events if each["kind"] == "fidelity"][-1] == "exact"
    trial.suspend("checkpoint")
    path = trial.until("suspended")["checkpoint"]["path"]
    trial.end()
    trial.launch()
    trial.start(restore=path)
    _ends_as_undisturbed(trial, tmp_path)


def test_a_suspend_during_an_image_in_passing_waits_for_it(
    trial: WorldTrial, tmp_path: Path
) -> None:
    begun(trial)
    trial.send("checkpoint", id="passing")
    trial.suspend("park")
    trial.until("parked")
    trial.resume()
    _ends_as_undisturbed(trial, tmp_path)


def test_a_suspend_while_an_image_in_passing_is_compressed_loses_neither(
    trial: WorldTrial, tmp_path: Path
) -> None:
    trial.end()
    gate = Gate(trial)
    trial.launch()
    begun(trial)
    trial.send("checkpoint", id="passing")
    gate.is_reached()
    trial.suspend("checkpoint")
    trial.until("parked")
    gate.opens()
    event = trial.until("checkpointed", "suspended")
    assert (event["kind"], event.get("id")) == ("checkpointed", "passing")
    path = trial.until("suspended")["checkpoint"]["path"]
    assert not path.endswith("passing")
    trial.end()
    trial.launch()
    trial.start(restore=path)
    _ends_as_undisturbed(trial, tmp_path)


def test_a_stop_during_an_image_in_passing_has_its_last_checkpoint(trial: WorldTrial) -> None:
    begun(trial)
    trial.send("checkpoint", id="passing")
    trial.send("stop", deadline_seconds=60)
    event = trial.until("suspended")
    assert (event["tier"], event["cause"]) == ("checkpoint", "stop")
    assert not event["checkpoint"]["path"].endswith("passing")


def test_a_program_that_cannot_be_brought_back_has_failed_to_be_restored(
    trial: WorldTrial, failing: Failing, tmp_path: Path
) -> None:
    begun(trial)
    path = saved(trial)
    failing.does("exit 3")
    trial.start(restore=path)
    with pytest.raises(AssertionError, match=r"'error_kind': 'restore'.*CRIU ended with 3"):
        trial.until("started")
    failing.does("")
    trial.end()
    trial.launch()
    trial.start(restore=path)
    _ends_as_undisturbed(trial, tmp_path)


# By CRIU, once all of the program is there, and before it may go on.
AMID = 'set -- "$@" --action-script {}'


@pytest.mark.parametrize("amid", [False, True])
def test_a_restore_that_hangs_is_ended_with_all_that_is_back_by_then(
    amid: bool, trial: WorldTrial, failing: Failing, tmp_path: Path
) -> None:
    begun(trial)
    path = saved(trial)
    trial.end()
    trial.host = "-c", IMPATIENT
    trial.launch()
    script = tmp_path / "hang"
    script.write_text('#!/bin/sh\n[ "$CRTOOLS_SCRIPT_ACTION" != post-restore ] || sleep 1000\n')
    script.chmod(0o755)
    failing.does(AMID.format(script) if amid else "exec sleep 1000")
    trial.start(restore=path)
    with pytest.raises(AssertionError, match=r"'error_kind': 'restore'.*has not ended in 5 s"):
        trial.until("started")
    # Whatever has ended is collected when the host has something else to do.
    until = time.monotonic() + 60
    while descendants(trial.pid, ()):
        assert time.monotonic() < until, "some of it is still there"
    failing.does("")
    trial.end()
    trial.host = WorldTrial.host
    trial.launch()
    trial.start(restore=path)
    _ends_as_undisturbed(trial, tmp_path)


# It has a file, and one that has no name any more.
LARGE = python("""
import os
large, deleted = open("large", "w+b"), open("deleted", "w+b")
large.write(bytes(range(256)) * 2000)
deleted.write(bytes(range(256)) * 2000)
os.unlink("deleted")
for step in range(70):
    print(step, flush=True)
    large.write(b"more"); deleted.write(b"more"); large.flush(); deleted.flush()
    rest()
deleted.seek(0)
print(hash(deleted.read()), flush=True)
""")


@pytest.mark.root
@pytest.mark.parametrize("kilobytes", [40, 600])
def test_a_disk_that_is_full_while_a_program_comes_back_is_not_the_images_fault(
    failing: Failing, tmp_path: Path, kilobytes: int
) -> None:
    trial = WorldTrial(tmp_path / "l", [sys.executable, "main.py"], criu=str(failing.path))
    work = trial.directory / "work"
    lay_out(LARGE, work)
    try:
        trial.launch()
        begun(trial)
        path = saved(trial)
        trial.end()
        mount = ["mount", "-t", "tmpfs", "-o", f"mode=755,size={kilobytes}k", "none", work]
        if subprocess.run(mount, check=False).returncode != 0:
            pytest.skip("no file systems can be mounted here")
        lay_out(LARGE, work)
        trial.launch()
        trial.start(restore=path)
        failed = r"'error_kind': 'not_started'.*No space left on device"
        with pytest.raises(AssertionError, match=failed):
            trial.until("started")
        trial.end()
        subprocess.run(["mount", "-o", "remount,size=4m", work], check=True)
        trial.launch()
        trial.start(restore=path)
        trial.until("completed")
        trial.quit()
        output, files = undisturbed(LARGE, tmp_path / "plain")
        assert trial.output == output
        assert files_in(work) == files
    finally:
        trial.end()
        subprocess.run(["umount", work], check=False)


def test_an_image_of_a_machine_with_more_features_is_for_others(
    trial: WorldTrial, tmp_path: Path
) -> None:
    begun(trial)
    path = Path(saved(trial))
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["features"].append("warp_drive")
    (path / "manifest.json").write_text(json.dumps(manifest))
    trial.start(restore=str(path))
    with pytest.raises(AssertionError, match=r"'unfit'.*this machine lacks warp_drive"):
        trial.until("started")


def test_an_image_waits_for_another_node_where_the_number_of_its_process_is_taken(
    trial: WorldTrial, failing: Failing
) -> None:
    begun(trial)
    path = saved(trial)
    failing.does(
        'echo "Error (criu/cr-restore.c:1): Can\'t fork for 1001: File exists" > criu.log; exit 1'
    )
    trial.start(restore=path)
    with pytest.raises(AssertionError, match=r"'unfit'.*the number of a process of it is taken"):
        trial.until("started")


def test_an_image_is_not_tried_where_a_library_is_another(
    trial: WorldTrial, tmp_path: Path
) -> None:
    begun(trial)
    path = Path(saved(trial))
    manifest = json.loads((path / "manifest.json").read_text())
    assert os.path.realpath(sys.executable) in manifest["outside"]
    assert not any(str(tmp_path) in each for each in manifest["outside"])
    manifest["outside"] |= {"/etc/passwd": 1, "/opt/data.h5": 10}
    (path / "manifest.json").write_text(json.dumps(manifest))
    trial.start(restore=str(path))
    lacks = (
        r"'unfit'.*lacks /etc/passwd of 1 bytes \(it has \d+\), /opt/data.h5 of 10 bytes \(it say"
    )
    with pytest.raises(AssertionError, match=lacks):
        trial.until("started")


def test_an_image_is_not_tried_where_less_is_left_of_a_file_than_it_has_mapped(
    tmp_path: Path, tool: str
) -> None:
    """It would be killed by SIGBUS as it reads there; what others have added does no harm."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shared = elsewhere / "shared"
    shared.write_bytes(b"x" * 12_288)
    maps = f'import mmap; file = open("{shared}", "r+b"); m = mmap.mmap(file.fileno(), 8192)\n'
    steps = "for step in range(70): print(step, flush=True); rest()\n"
    program = python(maps + steps + "print(m[0], m[8191])\n")
    trial = WorldTrial(tmp_path / "t", argv(program), criu=tool)
    lay_out(program, trial.directory / "work")
    trial.launch()
    try:
        begun(trial)
        path = saved(trial)
        for size in (20_480, 8192):
            os.truncate(shared, size)
            trial.start(restore=path)
            trial.until("completed")
        os.truncate(shared, 8191)
        trial.start(restore=path)
        with pytest.raises(AssertionError, match=r"'unfit'.*shared of 8192 bytes \(it has 8191\)"):
            trial.until("started")
    finally:
        trial.end()


def test_an_image_does_not_go_on_with_other_hyper_parameters(
    trial: WorldTrial, tmp_path: Path
) -> None:
    begun(trial)
    path = saved(trial)
    trial.end()
    spec = json.loads(trial.spec.read_text())
    trial.spec.write_text(json.dumps({**spec, "parameters": {"rate": 1}}))
    trial.launch()
    trial.start(restore=path)
    with pytest.raises(AssertionError, match="its process was started with other"):
        trial.until("started")


def test_one_bit_in_any_file_of_an_image_is_found(trial: WorldTrial, tmp_path: Path) -> None:
    begun(trial)
    path = Path(saved(trial))
    checkpoints.verified(path)
    names = [str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()]
    assert any(name.startswith("processes/pages") for name in names)
    assert {file.stat().st_mode & 0o77 for file in path.rglob("processes/*")} == {0}
    for name in names:
        if not (path / name).stat().st_size:
            continue
        damaged = tmp_path / "damaged"
        shutil.copytree(path, damaged)
        with (damaged / name).open("r+b") as file:
            first = file.read(1)
            os.pwrite(file.fileno(), bytes([first[0] ^ 16]), 0)
        with pytest.raises(DamagedCheckpoint):
            checkpoints.verified(damaged)
        shutil.rmtree(damaged)


def test_a_host_refuses_a_damaged_image_and_goes_on_from_the_one_before(
    trial: WorldTrial, tmp_path: Path
) -> None:
    begun(trial)
    first = saved(trial)
    begun(trial, first)
    second = Path(saved(trial))
    pages = next(second.glob("processes/pages-*"))
    data = bytearray(pages.read_bytes())
    data[len(data) // 2] ^= 1
    pages.write_bytes(data)
    trial.start(restore=str(second))
    with pytest.raises(AssertionError, match=rf"'error_kind': 'restore'.*{pages.name} is"):
        trial.until("started")
    newest = checkpoint_dir.newest_undamaged(str(trial.checkpoints))
    assert newest is not None
    assert newest["path"] == first
    trial.end()
    trial.launch()
    trial.start(restore=first)
    _ends_as_undisturbed(trial, tmp_path)
