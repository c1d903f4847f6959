"""Cgroups hold a whole trial, whatever it forks; a system without them says so."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermesd.node.machine import cgroups, processes
from hermesd.node.machine.cgroups import Cgroups, Hierarchy, NoCgroups

TREE = """
import os, sys, time
for group in sys.argv[1:]:
    open(group + "/cgroup.procs", "w").write(str(os.getpid()))
    if os.fork() == 0:
        os.setsid()
        break
print(flush=True)
time.sleep(1000)
"""


@pytest.fixture(params=[2, 1])
def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cgroups]:
    """Each hierarchy that this machine gives us."""
    kinds = {2: "cgroup2", 1: "cgroup"}
    mounts = [each for each in cgroups.mounts() if each[2] == kinds[request.param]]
    monkeypatch.setattr(cgroups, "mounts", lambda: mounts)
    found = cgroups.detect(f"hermes-test-{os.getpid()}")
    if not isinstance(found, Hierarchy):
        pytest.skip(found.fact)
    yield found
    found.kill("t@1")
    found.remove("t@1")


async def test_everything_of_a_trial_is_found_and_ended(groups: Cgroups) -> None:
    made = groups.create("t@1")
    assert made is not None
    tree = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        TREE,
        str(made.host),
        str(made.work),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert tree.stdout is not None
    for _ in range(3):
        await tree.stdout.readline()
    members = groups.members("t@1")
    assert len(members) == 3
    assert tree.pid in members
    groups.kill("t@1")
    for pid in members:
        await processes.exited(pid)
    await tree.communicate()
    assert groups.members("t@1") == set()
    groups.remove("t@1")
    assert not made.work.exists()


def test_a_group_that_was_left_frozen_thaws(groups: Cgroups) -> None:
    made = groups.create("t@1")
    assert made is not None
    switch = made.work / "cgroup.freeze"
    on, off = ("1", "0") if switch.exists() else ("FROZEN", "THAWED")
    switch = switch if switch.exists() else made.work / "freezer.state"
    switch.write_text(on)
    groups.create("t@1")
    assert switch.read_text().strip() == off


async def test_groups_that_hold_nothing_go_but_for_those_that_are_kept(groups: Cgroups) -> None:
    busy, kept, left = (groups.create(name) for name in ("t@1", "t@2", "t@3"))
    assert busy
    assert kept
    assert left
    sleeper = await asyncio.create_subprocess_exec("sleep", "1000")
    (busy.host / "cgroup.procs").write_text(str(sleeper.pid))
    groups.sweep({"t@2"})
    assert busy.work.exists(), "the program of its host is to enter it"
    assert kept.work.exists()
    assert not left.host.parents[1].exists()
    sleeper.kill()
    await sleeper.wait()
    groups.sweep()
    assert not busy.host.parents[2].exists(), "the node's own group is the last to go"


def test_a_trial_that_never_was_has_no_members(groups: Cgroups) -> None:
    groups.kill("none@1")
    groups.remove("none@1")
    assert groups.members("none@1") == set()


def test_a_system_without_any_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda path: b"proc /proc proc rw 0 0\n")
    found = cgroups.detect("hermes-test")
    assert isinstance(found, NoCgroups)
    assert "none is mounted" in found.fact
    assert found.create("t@1") is None
    assert found.members("t@1") == set()


def test_a_name_of_any_bytes_keeps_no_mount_from_being_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody may mount something: a stick with an old label is enough."""
    said = b"/dev/sdb1 /media/M\xfcller\x0b\x85 vfat rw 0 0\ncgroup2 /group cgroup2 rw 0 0\n"
    monkeypatch.setattr(Path, "read_bytes", lambda path: said)
    stick, group = cgroups.mounts()
    assert os.fsencode(stick[1]) == b"/media/M\xfcller\x0b\x85"
    assert stick[2:] == ["vfat", "rw", "0", "0"]
    assert group[1:3] == ["/group", "cgroup2"]
