"""CPU slots are what the settings say; a machine without a GPU says so in plain words."""

import os

import pytest

from hermesd.core.model import Tier
from hermesd.node.devices.cpu import CpuSlots
from hermesd.node.devices.nvml import Gpus
from hermesd.node.devices.rack import Rack

CORE = min(os.sched_getaffinity(0))


async def test_slots_are_lists_of_cores() -> None:
    slots = CpuSlots([(CORE,), (CORE,)])
    first, second = await slots.find("n1")
    assert (first.id, first.kind, first.cores) == ("n1/cpu0", "cpu", (CORE,))
    assert second.id == "n1/cpu1"
    assert slots.fact() == "2 CPU slots"
    assert slots.environment("n1/cpu0")["CUDA_VISIBLE_DEVICES"] == ""
    assert await slots.released("n1/cpu0", frozenset({1})) is None


async def test_a_slots_use_is_that_of_its_cores() -> None:
    slots = CpuSlots([(CORE,)])
    await slots.find("n1")
    await slots.use()
    sum(range(10**6))
    use = (await slots.use())["n1/cpu0"]
    assert 0.0 <= use.utilization <= 1.0


async def test_no_driver_means_no_gpu() -> None:
    gpus = Gpus()
    devices = await gpus.find("n1")
    if devices:
        pytest.skip("this machine has GPUs")
    assert gpus.fact().startswith("0 GPUs")
    assert dict(await gpus.use()) == {}


@pytest.mark.gpu
async def test_gpus_are_found_measured_and_released() -> None:
    gpus = Gpus(release_seconds=0.1)
    devices = await gpus.find("n1")
    if not devices:
        pytest.skip(gpus.fact())
    first = devices[0]
    assert gpus.cheapest is Tier.CHECKPOINT
    assert first.memory_bytes > 1 << 30
    assert gpus.environment(first.id)["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
    assert (await gpus.use())[first.id].memory_bytes >= 0
    assert await gpus.released(first.id, frozenset({os.getpid()})) is None


async def test_a_rack_asks_whoever_a_device_belongs_to() -> None:
    rack = Rack([CpuSlots([(CORE,)])])
    await rack.find("n1")
    assert list(rack.devices) == ["n1/cpu0"]
    assert rack.cheapest == {"n1/cpu0": Tier.PARK}
    assert rack.cores("n1/cpu0") == (CORE,)
    assert dict(await rack.released(["n1/cpu0", "n1/unplugged"], frozenset())) == {}
    assert rack.facts() == ("1 CPU slot",)
