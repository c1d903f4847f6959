"""A work group in a cgroup stops, goes on and ends as one, whatever it forked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer_shim.freeze import WorkGroup

pytestmark = pytest.mark.root
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
    group.kill()
    family.wait()
    while pids(cgroup):
        pass
