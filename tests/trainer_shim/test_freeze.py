"""A work group stops, goes on and ends as one, whatever it forked; in a cgroup and without."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from trainer_shim.host.freeze import WorkGroup, how_ended, is_dying

ROOTS = {
    "v2": [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")],
    "v1": [Path("/sys/fs/cgroup/freezer")],
}
FILES = {"v2": "cgroup.freeze", "v1": "freezer.state"}


@pytest.fixture(params=["v1", "v2"])
def cgroup(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty cgroup with a freezer of this version."""
    for root in ROOTS[request.param]:
        folder = root / f"hermes-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / FILES[request.param]).exists():
            yield folder
            folder.rmdir()
            return
        folder.rmdir()
    pytest.skip(f"no {request.param} freezer can be made here")


@pytest.fixture
def family(cgroup: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A shell with a child in a session of its own, both in the cgroup."""
    enter = f"echo $$ > {cgroup}/cgroup.procs; (setsid sleep 1000 &) ; echo up; sleep 1000"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", enter], stdout=subprocess.PIPE, start_new_session=True
    )
    assert shell.stdout is not None
    assert shell.stdout.readline() == b"up\n"
    yield shell
    shell.stdout.close()
    shell.kill()
    shell.wait()


def pids(cgroup: Path) -> set[int]:
    return set(map(int, (cgroup / "cgroup.procs").read_text().split()))


SPAWNING = """
import os, sys
begins = [(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)]
os.waitpid(os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}, file_actions=begins), 0)
"""


def test_a_process_stops_that_waits_for_its_child_to_begin_a_program(tmp_path: Path) -> None:
    """The child, which opens its input first, is stopped before the program begins."""
    os.mkfifo(tmp_path / "input")
    parent = subprocess.Popen(
        [sys.executable, "-c", SPAWNING, str(tmp_path / "input")], start_new_session=True
    )
    group = WorkGroup(os.getpid(), None)

    def mine() -> set[int]:
        below = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text()
        return {parent.pid, *map(int, below.split())}

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "members", mine)
        while len(mine()) < 2 or state(parent.pid) != "D":  # a disk is waited for like that, too
            pass
        assert not group.freeze(), "it waits, and its child is stopped"
        with open(tmp_path / "input", "w"):
            while not group.freeze():
                pass
            assert {state(pid) for pid in mine()} == {"T"}
            group.kill()
    parent.wait()


@pytest.mark.root
def test_frozen_thawed_and_killed_even_while_frozen(
    cgroup: Path, family: subprocess.Popen[bytes]
) -> None:
    group = WorkGroup(os.getpid(), str(cgroup))
    while len(pids(cgroup)) < 3:
        pass
    members = pids(cgroup)
    assert family.pid in members
    assert members <= group.members()
    while not group.freeze():
        pass
    group.thaw()
    while not group.freeze():
        pass
    with pytest.MonkeyPatch.context() as patch:  # others are below the test's own process, too
        patch.setattr(group, "members", lambda: pids(cgroup))
        group.kill()
    family.wait()
    while pids(cgroup):
        pass


def test_a_process_is_dying_once_no_thread_of_it_goes_on(tmp_path: Path) -> None:
    leaves = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1e6,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    program = subprocess.Popen([sys.executable, "-c", leaves])
    try:
        until(lambda: how_ended(program.pid))  # its first thread
        assert not is_dying(program.pid)
    finally:
        program.kill()
    until(lambda: is_dying(program.pid))
    program.wait()
