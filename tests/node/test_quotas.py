"""Slots that are shares of a core are kinds of their own, and the kernel holds each share."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from hermesd.config.schema import NodeConfig
from hermesd.config.slots import SlotSetting
from hermesd.core.events import NodeJoined, RunStarted, RunSuspended
from hermesd.core.model import RunId, Tier
from hermesd.node.daemon import group_name, run_node
from hermesd.node.machine import cgroups, cpu_quotas, processes
from hermesd.node.machine.cgroups import Hierarchy, NoCgroups
from hermesd.node.machine.cpu_quotas import CpuQuotas, NoQuota, NoShares, Unified

from .conftest import CPU0, CPU1, Head, Node, becomes, worker_of

Launch = Callable[..., RunId]
Running = Callable[..., Awaitable[RunId]]
Suspended = Callable[..., Awaitable[RunSuspended]]

CORE = min(os.sched_getaffinity(0))
SHARES = (SlotSetting((CORE,), 60), SlotSetting((CORE,), 30))


@pytest.fixture
def held(config: NodeConfig) -> CpuQuotas:
    """What the node's slots are held by, where this machine lets us write a cpu controller."""
    name = group_name(config)
    try:
        return cpu_quotas.detect(name, {CPU0: 60}, cgroups.detect(name))
    except NoQuota as error:
        pytest.skip(str(error))


def cpu_group(pid: int) -> Path:
    """The group whose quota holds a process."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    rows = [row.split(":", 2) for row in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    for _, mount, kind, options, *_ in mounts:
        for _, controllers, path in rows:
            if kind == "cgroup" and "cpu" in options.split(",") and "cpu" in controllers.split(","):
                return Path(mount + path)
    (mount,) = (mount[1] for mount in mounts if mount[2] == "cgroup2")
    (path,) = (path for _, controllers, path in rows if not controllers)
    return Path(mount + path)


def quota(group: Path) -> str:
    """The microseconds of each period; "-1" or "max" is all of it."""
    v1 = group / "cpu.cfs_quota_us"
    return (v1 if v1.exists() else group / "cpu.max").read_text().split()[0]


def throttled(group: Path) -> int:
    """How many periods ended before all that the group had to do."""
    words = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(words["nr_throttled"])


def favor(group: Path) -> None:
    """Let the group have its quota whoever else is busy: else there is nothing to be held back."""
    for path in (group, group.parent):
        for name, most in (("cpu.shares", "262144"), ("cpu.weight", "10000")):
            if (path / name).exists():
                (path / name).write_text(most)


@pytest.fixture
def shares(held: CpuQuotas, config: NodeConfig) -> Iterator[NodeConfig]:
    """A node of two slots; its groups go once its processes have."""
    yield config.model_copy(update={"cpu_slots": SHARES})
    held.sweep()


async def test_a_trial_has_the_share_of_the_slot_that_it_is_on(
    head: Head,
    shares: NodeConfig,
    held: CpuQuotas,
    launch: Launch,
    running: Running,
    suspended: Suspended,
    no_survivors: None,
) -> None:
    async with Node(shares):
        joined = await head.hears(NodeJoined)
        assert [device.kind for device in joined.devices] == ["cpu-60%", "cpu-30%"]
        assert "2 CPU slots (60 %, 30 % of a core)" in joined.facts
        assert any("shares of cores are held by the cgroup v" in fact for fact in joined.facts)
        first = await running(device=CPU0)
        _, worker = worker_of(shares)
        group = cpu_group(worker)
        assert quota(group) == "60000"
        await suspended(first, Tier.PARK)
        second = launch(attempt=2, parked=first, device=CPU1)
        await head.hears(RunStarted, second)
        assert quota(cpu_group(worker)) == "30000"
        written = await suspended(second, Tier.CHECKPOINT)
        third = launch(attempt=3, checkpoint=written.checkpoint, device=CPU0)
        await head.hears(RunStarted, third)
        assert quota(cpu_group(worker_of(shares)[1])) == "60000"
        await suspended(third, Tier.KILL)

        def is_gone() -> bool:
            held.sweep()  # as the node does when the next one ends
            return not group.exists()

        await becomes(is_gone)


SPINNING = """
import os, trainer_shim
trial = trainer_shim.attach()
trial.report(1, loss=1.0)
if os.fork() == 0:
    os.setsid()
while True:
    pass
"""


async def test_the_kernel_holds_all_that_a_program_forks_to_its_share(
    head: Head, shares: NodeConfig, running: Running, no_survivors: None
) -> None:
    async with Node(shares):
        await head.hears(NodeJoined)
        await running(program=SPINNING, device=CPU1)
        host, worker = worker_of(shares)
        group = cpu_group(worker)
        await becomes(lambda: bool(processes.below(host) - {worker}))  # it forks after its report
        forked = processes.below(host) - {worker}
        favor(group)
        assert all(cpu_group(pid) == group for pid in forked)
        await becomes(lambda: throttled(group) > 3)


def test_whole_cores_need_no_quota() -> None:
    assert isinstance(cpu_quotas.detect("hermes-test", {}, NoCgroups("a test")), NoShares)


async def test_slots_that_cannot_be_held_are_refused(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "detect", lambda name: NoCgroups("a test"))
    monkeypatch.setattr(cpu_quotas, "mounts", list)
    with pytest.raises(NoQuota, match="all slots would be equally fast: list cores such as"):
        await run_node(
            config.model_copy(update={"cpu_slots": SHARES}), {}, asyncio.Event(), lambda: None
        )


def test_a_controller_that_is_read_only_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = [["cgroup", "/proc", "cgroup", "ro,cpu", "0", "0"]]
    monkeypatch.setattr(cpu_quotas, "mounts", lambda: mounts)
    with pytest.raises(NoQuota, match=r"can be written here \(/proc/.*: "):
        cpu_quotas.detect("hermes-test", {CPU0: 60}, NoCgroups("a test"))


def test_a_group_that_was_given_no_cpu_controller_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    monkeypatch.setattr(cpu_quotas, "mounts", list)
    with pytest.raises(NoQuota, match=r"can be written here \(/.*: it has no cpu controller\)"):
        cpu_quotas.detect("hermes-test", {CPU0: 60}, Hierarchy(tmp_path / "hermes-n1", 2))
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.controllers"]


def test_in_v2_the_share_is_written_where_the_trial_is_frozen(tmp_path: Path) -> None:
    """What is written where; that a kernel holds it is seen where v2 has the cpu controller."""
    root = tmp_path / "hermes-n1"
    work = root / "digits@1" / "run" / "work"
    work.mkdir(parents=True)
    two = Unified(root, {CPU0: 60})
    two.hold("digits@1", (CPU0,), {1})
    assert (work / "cpu.max").read_text() == "60000 100000"
    assert (root / "cpu.weight").read_text() == "100"
    handed_down = [root, root / "digits@1", root / "digits@1" / "run"]
    assert [(path / "cgroup.subtree_control").read_text() for path in handed_down] == ["+cpu"] * 3
    two.hold("digits@1", ("n1/whole",), {1})
    assert (work / "cpu.max").read_text() == "max 100000"
