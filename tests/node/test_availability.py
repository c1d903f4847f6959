"""A node says what it leaves to others: itself out of its hours, a GPU that somebody else uses.

The driver is a made one, at the border where the real one is asked; the processes are real.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import types
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from hermesd.config.schema import NodeConfig
from hermesd.config.values import parse
from hermesd.core.events import NodeJoined, Reclaimed, Yielded
from hermesd.node.machine import availability
from hermesd.node.machine.availability import CALM_LOOKS, Availability, described
from hermesd.node.machine.devices.nvml import Gpus
from hermesd.node.machine.devices.rack import Rack
from hermesd.node.machine.environment import OWNER
from hermesd.node.outbox import Outbox
from hermesd.wire import NodeEvent

from .conftest import Head, Node

GPU = "n1/gpu0"
MONDAY_NOON, MONDAY_NIGHT = datetime(2024, 1, 1, 12, 0), datetime(2024, 1, 1, 23, 30)


class MachineDriver(types.ModuleType):
    """A driver of one GPU; `pids` compute on it now, and None is a driver that gives no answer."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.pids: set[int] | None = set()

    def __getattr__(self, name: str) -> object:
        answers: dict[str, object] = {
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlSystemGetDriverVersion": "570",
            "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=150 << 30, used=1 << 30),
            "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=40),
        }
        if name == "nvmlDeviceGetComputeRunningProcesses":
            if self.pids is None:
                raise RuntimeError("driver not loaded")
            found = [types.SimpleNamespace(pid=pid) for pid in self.pids]
            return lambda gpu: found
        return lambda *arguments: answers.get(name)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> MachineDriver:
    made = MachineDriver()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    monkeypatch.setattr(availability, "sees_every_process", lambda: True)
    return made


@dataclass
class Machine:
    """Its availability by a clock that a test sets, and what it told the head."""

    config: NodeConfig
    now: datetime = MONDAY_NOON
    outbox: Outbox = field(default_factory=Outbox)

    async def come(self) -> Machine:
        rack = Rack([Gpus()])
        await rack.find("n1")
        self.availability = Availability(self.config, rack, self.outbox, lambda: self.now)
        return self

    async def look(self, times: int = 2) -> list[NodeEvent]:
        """Look some times; what was told then."""
        for _ in range(times):
            await self.availability.look()
        return [entry.event for entry in self.outbox.acknowledge(self.outbox.last)]


@pytest.fixture
async def machine(driver: MachineDriver, tmp_path: Path) -> Machine:
    return await Machine(NodeConfig(name="n1", state_dir=tmp_path / "node")).come()


class Started:
    """Starts processes, and ends them with the test."""

    def __init__(self) -> None:
        self._all: list[asyncio.subprocess.Process] = []

    async def __call__(self, *argv: str, env: Mapping[str, str] | None = None) -> int:
        one = await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            start_new_session=True,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._all.append(one)
        assert one.stdout is not None
        return int(await one.stdout.readline())

    async def end(self) -> None:
        for one in self._all:
            os.killpg(one.pid, signal.SIGKILL)
            await one.wait()
        self._all.clear()


@pytest.fixture
async def start() -> AsyncIterator[Started]:
    started = Started()
    yield started
    await started.end()


WAITS = ("sh", "-c", "echo $$; read line")
# Its child, which says its own number, has nothing of its environment.
PARENT = ("sh", "-c", "env -i sh -c 'echo $$; read line'; true")


async def test_a_foreign_process_has_the_gpu_from_the_second_look_until_it_is_gone_for_long(
    machine: Machine, driver: MachineDriver, start: Started
) -> None:
    pid = await start(*WAITS)
    driver.pids = {pid}
    assert await machine.look(1) == []
    (said,) = await machine.look(1)
    assert isinstance(said, Yielded)
    assert said.place == GPU
    assert said.reason == f"{described(pid)} uses it"
    assert machine.availability.yields == ((GPU, said.reason),)
    assert await machine.look(CALM_LOOKS) == []
    driver.pids = set()
    assert await machine.look(CALM_LOOKS - 1) == []
    assert await machine.look(1) == [Reclaimed(GPU)]
    assert machine.availability.yields == ()


async def test_a_glance_is_no_use(machine: Machine, driver: MachineDriver, start: Started) -> None:
    first, second = await start(*WAITS), await start(*WAITS)
    for pids in ({first}, {second}, {first}, set()):
        driver.pids = pids
        assert await machine.look(1) == []


async def test_what_this_node_started_is_nobodys_and_so_is_what_that_started(
    machine: Machine, driver: MachineDriver, start: Started
) -> None:
    trial = machine.config.state_dir / "trials" / "digits" / "1"
    marked = {**os.environ, OWNER: str(trial)}
    driver.pids = {
        os.getpid(),
        await start(*WAITS, env=marked),
        await start(*PARENT, env=marked),
        await start(*WAITS, env={**os.environ, OWNER: str(machine.config.state_dir)}),
    }
    assert await machine.look() == []


async def test_another_nodes_trial_is_foreign(
    machine: Machine, driver: MachineDriver, start: Started, tmp_path: Path
) -> None:
    other = {**os.environ, OWNER: str(tmp_path / "node-2" / "trials" / "t")}
    driver.pids = {await start(*WAITS, env=other)}
    assert [type(said) for said in await machine.look()] == [Yielded]


async def test_what_has_ended_and_a_silent_driver_change_nothing(
    machine: Machine, driver: MachineDriver, start: Started
) -> None:
    pid = await start(*WAITS)
    driver.pids = {pid}
    await machine.look()
    driver.pids = None
    assert await machine.look(2 * CALM_LOOKS) == []
    await start.end()
    driver.pids = {pid}
    assert await machine.look(CALM_LOOKS) == [Reclaimed(GPU)]
    assert described(pid) == f"process {pid}"


async def test_a_node_that_is_not_to_yield_looks_at_nobody(
    driver: MachineDriver, tmp_path: Path, start: Started
) -> None:
    config = NodeConfig(name="n1", state_dir=tmp_path, yield_gpus=False)
    machine = await Machine(config).come()
    driver.pids = {await start(*WAITS)}
    assert await machine.look(3) == []


async def test_out_of_its_hours_the_node_is_yielded_and_says_when_it_is_back(
    driver: MachineDriver, tmp_path: Path
) -> None:
    nights = parse(["Mon-Fri 19:00-07:00", "Sat-Sun"])
    machine = await Machine(NodeConfig(name="n1", state_dir=tmp_path, hours=nights)).come()
    reason = f"it serves {nights}; again from Mon 19:00"
    assert await machine.look(1) == [Yielded("n1", reason)]
    assert await machine.look(5) == []
    machine.now = MONDAY_NIGHT
    assert await machine.look(1) == [Reclaimed("n1")]
    assert machine.availability.facts == (f"serves {nights}",)


async def test_the_daemon_tells_the_head_with_its_hello_and_as_it_changes(
    head: Head,
    config: NodeConfig,
    no_survivors: None,
    driver: MachineDriver,
    monkeypatch: pytest.MonkeyPatch,
    start: Started,
) -> None:
    monkeypatch.setattr(availability, "LOOK_SECONDS", 0.01)
    pid = await start(*WAITS)
    driver.pids = {pid}
    shared = config.model_copy(update={"gpus": True, "cpu_slots": ()})
    async with Node(shared):
        joined = await head.hears(NodeJoined)
        assert [device.id for device in joined.devices] == [GPU]
        assert joined.yields == ((GPU, f"{described(pid)} uses it"),)
        driver.pids = set()
        assert await head.hears(Reclaimed) == Reclaimed(GPU)
        after = len(head.events)
        driver.pids = {pid}
        assert (await head.hears(Yielded, None, after)).place == GPU
