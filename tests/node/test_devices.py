"""CPU slots are what the settings say; a machine without a GPU says so in plain words."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hermesd.config.schema import NodeConfig
from hermesd.config.slots import SlotSetting, usable_cores
from hermesd.core.commands import Suspend
from hermesd.core.events import NodeJoined, Reported, RunSuspended
from hermesd.core.model import Device, RunId, Tier
from hermesd.expecting import StateAway
from hermesd.node.daemon import find_devices
from hermesd.node.machine.devices import nvml
from hermesd.node.machine.devices.cpu import CpuSlots, seat_of
from hermesd.node.machine.devices.nvml import Gpus, chosen
from hermesd.node.machine.devices.nvml import seat_of as on_bus
from hermesd.node.machine.devices.rack import Rack
from tests.trainer_shim.test_device_memory import USES, driver_in

from .conftest import PROGRAM, SHORT, Head, Node

CORE = min(os.sched_getaffinity(0))


async def test_slots_are_lists_of_cores() -> None:
    slots = CpuSlots([SlotSetting((CORE,)), SlotSetting((CORE,))])
    first, second = await slots.find("n1")
    assert (first.id, first.kind, first.cores) == ("n1/cpu0", "cpu", (CORE,))
    assert second.id == "n1/cpu1"
    assert slots.fact() == "2 CPU slots"
    assert slots.environment("n1/cpu0")["CUDA_VISIBLE_DEVICES"] == ""
    assert await slots.released("n1/cpu0", frozenset({1})) is None


async def test_a_slots_use_is_that_of_its_cores() -> None:
    slots = CpuSlots([SlotSetting((CORE,))])
    await slots.find("n1")
    await slots.use()
    sum(range(10**6))
    use = (await slots.use())["n1/cpu0"]
    assert 0.0 <= use.utilization <= 1.0


GPUS = [("GPU-1a", "A100", 1, ""), ("GPU-1b", "A100", 1, ""), ("GPU-2", "H200", 2, "")]


def test_gpus_are_chosen_by_number_or_uuid_each_once() -> None:
    assert chosen(GPUS, None) == GPUS
    assert chosen(GPUS, ()) == []
    assert chosen(GPUS, ("2", "GPU-1a", "0")) == [GPUS[2], GPUS[0]]
    for wrong in ("3", "GPU-1", "GPU-9", "-1"):
        with pytest.raises(LookupError, match=f"visible_gpus has {wrong}"):
            chosen(GPUS, (wrong,))


def test_a_uuid_that_no_gpu_has_is_that_of_one_that_is_lost() -> None:
    found = ["GPU is lost", *GPUS[1:]]
    said = "GPU is lost; no GPU that answers has the UUID GPU-1a"
    assert chosen(found, ("GPU-2", "GPU-1a")) == [GPUS[2], said]
    assert chosen(found, ("GPU-2", "0")) == [GPUS[2], "GPU is lost"]
    with pytest.raises(LookupError, match="visible_gpus has GPU-9, which is 0 of 3"):
        chosen(found, ("GPU-1a", "GPU-9"))


def test_a_gpu_sits_where_its_bus_says(tmp_path: Path) -> None:
    """Two of them below one switch, as the kernel shows a machine."""
    for bus, switch in (("0000:c1:00.0", "0000:c0:02.0"), ("0000:c2:00.0", "0000:c0:03.0")):
        there = tmp_path / "devices" / "pci0000:c0" / "0000:c0:01.1" / switch / bus
        there.mkdir(parents=True)
        (there / "numa_node").write_text("1\n")
        (tmp_path / "bus").mkdir(exist_ok=True)
        (tmp_path / "bus" / bus).symlink_to(there)
    seats = [on_bus(f"0000{bus}", tmp_path / "bus") for bus in ("0000:C1:00.0", "0000:C2:00.0")]
    assert seats[0] == ("node1", "pci0000:c0", "0000:c0:01.1", "0000:c0:02.0")
    assert seats[0][:3] == seats[1][:3]
    assert on_bus("0000:D1:00.0", tmp_path / "bus") == on_bus("", tmp_path / "bus") == ()


def test_a_slot_sits_on_the_numa_node_of_all_of_its_cores(tmp_path: Path) -> None:
    for core in range(3):
        (tmp_path / f"cpu{core}" / f"node{core // 2}").mkdir(parents=True)
    assert seat_of((0, 1), tmp_path) == ("node0",)
    assert seat_of((1, 2), tmp_path) == seat_of((7,), tmp_path) == ()


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


class MachineDriver(types.ModuleType):
    """A driver of one GPU, on which `holding` are the processes."""

    def __init__(self, holding: list[set[int]]) -> None:
        super().__init__("pynvml")
        self.asked = itertools.chain(holding, itertools.repeat(holding[-1]))
        self.answers: dict[str, object] = {}

    def __getattr__(self, name: str) -> object:
        answers: dict[str, object] = {
            "nvmlInit": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlSystemGetDriverVersion": "570",
            "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=150 << 30, used=1 << 30),
            "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=40),
        }
        if name == "nvmlDeviceGetComputeRunningProcesses":
            return lambda gpu: [types.SimpleNamespace(pid=pid) for pid in next(self.asked)]
        return lambda *arguments: {**answers, **self.answers}.get(name)


class Mutes(types.ModuleType):
    """A driver that has lost its GPU."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("GPU is lost")


@pytest.mark.parametrize(
    ("said", "tier", "words"),
    [
        ('{"away": 0.5, "back": 0.3}', Tier.PARK, "moves what a parked process has there"),
        ("the driver is older than 570", Tier.CHECKPOINT, "since the driver is older than 570"),
    ],
)
async def test_a_gpu_is_parked_on_once_its_driver_was_seen_to_move_what_is_there(
    monkeypatch: pytest.MonkeyPatch, said: str, tier: Tier, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", MachineDriver([set()]))
    gpus = Gpus()
    rack = Rack([gpus])
    await rack.find("n1")

    async def tried(module: Sequence[str], environment: Mapping[str, str]) -> str:
        assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
        return said

    await gpus.try_out(tried)
    assert rack.cheapest == {"n1/gpu0": tier}
    assert rack.parks(["n1/gpu0"]) is (tier is Tier.PARK)
    assert words in gpus.fact()


@pytest.mark.parametrize(
    ("said", "is_held", "words"),
    [
        ('{"version": "4.2.1"}', True, "memory, and images of processes hold that"),
        ("it uses a GPU", False, "memory, and images of processes do not hold that, since it uses"),
    ],
)
async def test_images_hold_what_is_on_a_gpu_once_one_was_seen_to(
    monkeypatch: pytest.MonkeyPatch, said: str, is_held: bool, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", MachineDriver([set()]))
    gpus = Gpus()
    rack = Rack([gpus])
    await rack.find("n1")

    async def tried(module: Sequence[str], environment: Mapping[str, str]) -> str:
        is_image = module == ["trainer_shim.host.try_image", "/bin/criu", ".", "gpu"]
        return said if is_image else '{"away": 0.5, "back": 0.3}'

    await gpus.try_out(tried, "/bin/criu")
    assert rack.parks(["n1/gpu0"])
    assert rack.are_imaged(["n1/gpu0"]) is is_held
    assert words in gpus.fact()


@pytest.mark.parametrize(
    ("settings", "devices"),
    [
        ({}, ["n1/gpu0"]),
        ({"cpu_slots": 2}, ["n1/cpu0", "n1/cpu1", "n1/gpu0"]),
        ({"cpu_slots": 1, "gpus": False}, ["n1/cpu0"]),
    ],
)
async def test_cores_beside_a_gpu_are_lent_only_where_they_are_named(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, object], devices: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", MachineDriver([set()]))
    config = NodeConfig.model_validate({"name": "n1", **settings})
    _, _, rack = await find_devices(config)
    assert list(rack.devices) == devices


async def test_a_gpu_that_is_lost_takes_none_of_the_others_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, lost = MachineDriver([{7}]), {1}

    def handle(key: int | str) -> str:
        number = int(str(key).removeprefix("GPU-"))
        if number in lost:
            raise RuntimeError("GPU is lost")
        return f"GPU-{number}"

    driver.__dict__.update(
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetUUID=lambda gpu: gpu,
    )
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    gpus = Gpus()
    assert [device.id for device in await gpus.find("n1")] == ["n1/gpu0", "n1/gpu2"]
    assert gpus.environment("n1/gpu2")["CUDA_VISIBLE_DEVICES"] == "GPU-2"
    never = "n1/gpu1 is not lent, since the driver does not answer for it: GPU is lost"
    assert gpus.warnings() == (never,)
    named = Gpus(["GPU-2", "GPU-1"])
    assert [device.id for device in await named.find("n1")] == ["n1/gpu0"]
    assert named.warnings() == (f"{never}; no GPU that answers has the UUID GPU-1",)
    lost.add(0)
    assert dict(await gpus.holders()) == {"n1/gpu2": frozenset({7})}
    assert gpus.warnings()[1].startswith(
        "nobody knows who uses the GPUs, since the driver does not answer: n1/gpu0: GPU is lost"
    )
    monkeypatch.setattr(nvml, "are_there", lambda has_library: True)
    for visible in (["1"], None):
        with pytest.raises(StateAway, match="GPUs: GPU is lost; expected"):
            await Gpus(visible).find("n1")
        lost.add(2)


async def test_without_a_gpu_each_core_is_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Mutes("pynvml"))
    slots, _, rack = await find_devices(NodeConfig.model_validate({"name": "n1"}))
    assert len(rack.devices) == len(usable_cores())
    assert slots.fact().startswith(f"{len(usable_cores())} CPU slot")


class Absent(types.ModuleType):
    """No library of the driver here, as pynvml says it."""

    def nvmlInit(self) -> None:
        error = RuntimeError("NVML Shared Library Not Found")
        error.value = 12  # type: ignore[attr-defined]
        raise error


def plugged_in(folder: Path, vendor: str, kind: str, driver: str) -> None:
    (folder / "0000:01:00.0").mkdir()
    if driver:
        (folder / "0000:01:00.0" / "driver").symlink_to(f"../drivers/{driver}")
    (folder / "0000:01:00.0" / "vendor").write_text(f"{vendor}\n")
    (folder / "0000:01:00.0" / "class").write_text(f"{kind}\n")


@pytest.mark.parametrize(
    ("driver", "file", "vendor", "kind", "bound_to", "lends_cores"),
    [
        (Mutes("pynvml"), "nvidia0", "0x8086", "0x030000", "", False),
        (Absent("pynvml"), "nvidia0", "0x8086", "0x030000", "", False),
        (Mutes("pynvml"), "null", "0x10de", "0x030200", "", False),
        (Mutes("pynvml"), "null", "0x10de", "0x030200", "nvidia", False),
        (Mutes("pynvml"), "null", "0x10de", "0x030200", "vfio-pci", True),
        # The library would be here if its GPUs were for us: a container that was given none.
        (Absent("pynvml"), "null", "0x10de", "0x030200", "nvidia", True),
        (Mutes("pynvml"), "null", "0x10de", "0x020000", "", True),
        (Mutes("pynvml"), "nvidiactl", "0x8086", "0x030000", "", True),
    ],
)
async def test_cores_are_not_lent_for_gpus_whose_driver_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    driver: types.ModuleType,
    file: str,
    vendor: str,
    kind: str,
    bound_to: str,
    lends_cores: bool,
) -> None:
    files, bus = tmp_path / "dev", tmp_path / "bus"
    files.mkdir()
    bus.mkdir()
    (files / file).touch()
    plugged_in(bus, vendor, kind, bound_to)
    monkeypatch.setattr(nvml, "_FILES", files)
    monkeypatch.setattr(nvml, "_BUS", bus)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    config = NodeConfig.model_validate({"name": "n1"})
    if lends_cores:
        _, _, rack = await find_devices(config)
        assert len(rack.devices) == len(usable_cores())
        return
    with pytest.raises(StateAway, match=r"GPUs: .*set node\.gpus = false to lend CPU slots alone"):
        await find_devices(config)
    _, _, rack = await find_devices(config.model_copy(update={"gpus": False}))
    assert len(rack.devices) == len(usable_cores())


async def test_cores_are_not_lent_instead_of_gpus_that_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", MachineDriver([set()]))
    config = NodeConfig.model_validate({"name": "n1", "visible_gpus": [3]})
    with pytest.raises(StateAway, match="GPUs: visible_gpus has 3, which is 0 of 1"):
        await find_devices(config)


async def test_of_several_gpus_none_is_parked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has seen that something comes back to another than it was taken from."""
    driver = MachineDriver([set()])
    driver.answers = {"nvmlDeviceGetCount": 2}
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    gpus = Gpus()
    rack = Rack([gpus])
    await rack.find("n1")

    async def tried(module: Sequence[str], environment: Mapping[str, str]) -> str:
        raise AssertionError("nothing is tried out")

    await gpus.try_out(tried)
    assert set(rack.cheapest.values()) == {Tier.CHECKPOINT}


@pytest.mark.parametrize(
    ("holding", "reason"),
    [
        ([{7, 8}, {8, 9}, {9}], None),
        ([{7}], "process 7 still holds it"),
    ],
)
async def test_a_gpu_is_free_when_its_driver_lists_none_of_ours(
    monkeypatch: pytest.MonkeyPatch, holding: list[set[int]], reason: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", MachineDriver(holding))
    gpus = Gpus(release_seconds=60.0 if reason is None else 0.0)
    (gpu,) = await gpus.find("n1")
    assert (gpu.id, gpu.kind, gpu.cores) == ("n1/gpu0", "NVIDIA H200", ())
    assert gpus.fact().startswith("1 GPU (driver 570)")
    assert gpus.environment("n1/gpu0")["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert await gpus.use() == {"n1/gpu0": (0.4, 1 << 30)}
    assert await gpus.released("n1/gpu0", frozenset({7, 8})) == reason


async def test_a_driver_that_hangs_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = threading.Event()

    class Hangs(MachineDriver):
        def __getattr__(self, name: str) -> object:
            if name == "nvmlDeviceGetHandleByUUID":
                return lambda uuid: goes_on.wait()
            return super().__getattr__(name)

    monkeypatch.setitem(sys.modules, "pynvml", Hangs([set()]))
    gpus = Gpus()
    await gpus.find("n1")
    monkeypatch.setattr("hermesd.node.machine.devices.nvml.ANSWER_SECONDS", 0.05)
    try:
        reason = await gpus.released("n1/gpu0", frozenset({7}))
        assert reason == "the driver does not answer: it was silent for 0.05 s"
        assert dict(await gpus.use()) == {}
        assert dict(await gpus.holders()) == {}
    finally:
        goes_on.set()


async def test_what_the_driver_does_not_answer_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = MachineDriver([set()])
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    rack = Rack([Gpus()])
    await rack.find("n1")
    assert rack.warnings() == ()
    lost = Mutes("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", lost)
    with capture_logs() as logs:
        for _ in range(3):
            assert dict(await rack.holders()) == {}
            assert dict(await rack.use()) == {}
        assert rack.warnings() == (
            "nobody knows who uses the GPUs, since the driver does not answer: n1/gpu0: GPU is lost"
            "; none of these is left to others meanwhile",
            "nobody knows how busy the GPUs are, since the driver does not answer: n1/gpu0: GPU is"
            " lost",
        )
        monkeypatch.setitem(sys.modules, "pynvml", driver)
        assert await rack.holders()
        assert await rack.use()
        assert rack.warnings() == ()
    said = [(entry["event"], entry.get("unknown") or entry["known"]) for entry in logs]
    assert said == [
        ("the driver does not answer", "who uses the GPUs"),
        ("the driver does not answer", "how busy the GPUs are"),
        ("the driver answers again", "who uses the GPUs"),
        ("the driver answers again", "how busy the GPUs are"),
    ]


HUNG = """
import asyncio, sys, threading, types
from hermesd.node.machine.devices import nvml

driver = types.ModuleType("pynvml")
driver.nvmlInit = threading.Event().wait
sys.modules["pynvml"] = driver
nvml.ANSWER_SECONDS = 0.05
gpus = nvml.Gpus()
assert asyncio.run(gpus.find("n1")) == ()
print(gpus.fact())
"""


def test_a_driver_that_hangs_does_not_keep_the_daemon_from_ending() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "0 GPUs (it was silent for 0.05 s)\n"


async def test_a_rack_asks_whoever_a_device_belongs_to() -> None:
    rack = Rack([CpuSlots([SlotSetting((CORE,))])])
    await rack.find("n1")
    assert list(rack.devices) == ["n1/cpu0"]
    assert rack.cheapest == {"n1/cpu0": Tier.PARK}
    assert rack.devices["n1/cpu0"].cores == (CORE,)
    assert rack.environment(["n1/cpu0"])["CUDA_VISIBLE_DEVICES"] == ""
    assert dict(await rack.released(["n1/cpu0", "n1/unplugged"], frozenset())) == {}
    assert rack.facts() == ("1 CPU slot",)


class FourGpus:
    """Of which each program is to see its own."""

    cheapest = Tier.CHECKPOINT

    async def find(self, node: str) -> tuple[Device, ...]:
        return tuple(Device(f"{node}/gpu{i}", node, "H200", 1) for i in range(4))

    def environment(self, device: str) -> dict[str, str]:
        return {
            "CUDA_VISIBLE_DEVICES": f"GPU-{device[-1]}",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }


async def test_a_program_of_several_devices_sees_them_in_their_order() -> None:
    rack = Rack([FourGpus()])  # type: ignore[list-item]
    await rack.find("n1")
    assert rack.environment(["n1/gpu2", "n1/gpu0"]) == {
        "CUDA_VISIBLE_DEVICES": "GPU-2,GPU-0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


async def test_what_is_taken_of_a_gpus_memory_is_asked_of_its_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", MachineDriver([set()]))
    rack = Rack([CpuSlots([SlotSetting((CORE,))]), Gpus()])
    await rack.find("n1")
    assert await rack.memory_taken(["n1/gpu0", "n1/unplugged"]) == 1 << 30
    assert await rack.memory_taken(["n1/cpu0"]) == 0, "it has none of its own"


async def test_a_report_tells_what_is_taken_of_the_gpus_memory(
    monkeypatch: pytest.MonkeyPatch,
    head: Head,
    config: NodeConfig,
    launch: Callable[..., RunId],
    no_survivors: None,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", MachineDriver([set()]))
    async with Node(config.model_copy(update={"gpus": True, "cpu_slots": ()})):
        await head.hears(NodeJoined)
        run = launch(argv=SHORT, device="n1/gpu0")
        assert (await head.hears(Reported, run)).device_memory_bytes == 1 << 30


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc here")
async def test_a_trial_parked_on_a_gpu_leaves_it_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    head: Head,
    config: NodeConfig,
    launch: Callable[..., RunId],
    no_survivors: None,
    tmp_path: Path,
) -> None:
    """Once the driver, here a test's, was seen to move what is on it."""
    driver = driver_in(tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, "pynvml", MachineDriver([set()]))
    async with Node(config.model_copy(update={"gpus": True, "cpu_slots": ()})):
        await head.hears(NodeJoined)
        tried = driver.calls()
        run = launch(device="n1/gpu0", program=USES + PROGRAM)
        await head.hears(Reported, run)
        head.send(Suspend(run, Tier.PARK, 60.0, None, "test"))
        assert (await head.hears(RunSuspended, run)).tier is Tier.PARK
        again = launch(attempt=2, device="n1/gpu0", parked=run, program=USES + PROGRAM)
        await head.hears(Reported, again)
        assert driver.calls()[len(tried) :] == ["lock", "checkpoint", "restore", "unlock"]
