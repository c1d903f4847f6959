"""NVIDIA GPUs, through the driver's management library.

All calls are made in one thread of its own, for which nobody waits forever, since a hung driver
must neither stop the daemon nor keep it from ending. A machine without GPUs simply has none, and
says so; one that has some whose driver does not answer is no machine without. If it answers for
some of them, as when one has fallen off its bus, those are lent. A GPU counts as released when the
driver lists none of our processes on it any more.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from hermesd.core.model import Device, DeviceId, NodeId, Tier
from hermesd.expecting import StateAway
from hermesd.logs import get_logger
from hermesd.node.machine.devices import DeviceUse

RELEASE_SECONDS = 30.0
# The driver may have to initialize every GPU first. One that is silent for longer hangs.
ANSWER_SECONDS = 60.0
_POLL_SECONDS = 0.05
# Where the kernel shows what is plugged in, and the files of devices that programs may open.
_BUS, _FILES = Path("/sys/bus/pci/devices"), Path("/dev")
_NVIDIA, _DISPLAYS = "0x10de", "0x03"
_NO_LIBRARY = 12

WHO, HOW_BUSY = "who uses the GPUs", "how busy the GPUs are"

# The UUID, kind, bytes and place on the bus of one; or why the driver does not answer for it.
Gpu = tuple[str, str, int, str] | str
Answer = TypeVar("Answer")

log = get_logger()


class Gpus:
    """The GPUs of this machine. A suspend ends the process, unless the driver was seen to move what
    it has on its GPU to the host's memory and back."""

    def __init__(
        self, visible: Sequence[str] | None = None, release_seconds: float = RELEASE_SECONDS
    ) -> None:
        self._visible = visible
        self._driver = _Driver()
        self._release_seconds = release_seconds
        self.cheapest = Tier.CHECKPOINT
        self.are_imaged = False
        self._uuids: dict[DeviceId, str] = {}
        self._words, self._ends = "0 GPUs", ""
        self._lost: tuple[str, ...] = ()
        self._unknown: dict[str, str] = {}

    async def _ask(self, question: Callable[[Any], Answer]) -> Answer:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.wrap_future(self._driver.ask(question))
        except TimeoutError:
            raise TimeoutError(f"it was silent for {ANSWER_SECONDS:g} s") from None

    async def find(self, node: NodeId) -> tuple[Device, ...]:
        """The GPUs there are now. Raises StateAway if there are some of which the driver does not
        tell, or not those that are to be lent."""
        try:
            found, driver = await self._ask(_inventory)
            found = chosen(found, self._visible)
            if found and all(isinstance(gpu, str) for gpu in found):
                raise LookupError(found[0])
        except Exception as error:  # the library's own errors have no common type we may name
            if self._visible or are_there(getattr(error, "value", None) != _NO_LIBRARY):
                raise StateAway(
                    f"GPUs: {error}; expected the NVIDIA driver to tell of those of this machine:"
                    " see what nvidia-smi says; or set node.gpus = false to lend CPU slots alone"
                ) from None
            self._words = f"0 GPUs ({error})"
            return ()
        devices, lost, self._uuids = [], [], {}
        for index, gpu in enumerate(found):
            device = f"{node}/gpu{index}"
            if isinstance(gpu, str):
                lost.append(f"{device} is not lent, since the driver does not answer for it: {gpu}")
                continue
            uuid, kind, memory, bus = gpu
            self._uuids[device] = uuid
            devices.append(Device(device, node, kind, memory, seat=seat_of(bus)))
        self._lost = tuple(lost)
        self._words = f"{len(devices)} GPU{'' if len(devices) == 1 else 's'} (driver {driver})"
        return tuple(devices)

    async def try_out(
        self, tried: Callable[[Sequence[str], Mapping[str, str]], Awaitable[str]], criu: str = ""
    ) -> None:
        """See whether a process can be parked without its GPU, and whether an image of one holds
        what it had there, if a CRIU makes some: `tried` runs a module of trainer_shim as a trial's
        host would, in a folder and in this environment besides, and answers with what it printed
        last. Which of several GPUs something is put back on was never tried."""
        if len(self._uuids) != 1:
            self._ends = "; a suspend ends the process after a checkpoint" if self._uuids else ""
            return
        (device,) = self._uuids
        environment = self.environment(device)
        said = await tried(["trainer_shim.host.cuda"], environment)
        if not _is_well(said):
            self._ends = f"; a suspend ends the process after a checkpoint, since {said}"
            return
        self.cheapest = Tier.PARK
        self._ends = "; the driver moves what a parked process has there to the host's memory"
        if criu:
            said = await tried(["trainer_shim.host.try_image", criu, ".", "gpu"], environment)
            self.are_imaged = _is_well(said)
            held = "hold that" if self.are_imaged else f"do not hold that, since {said}"
            self._ends += f", and images of processes {held}"

    def fact(self) -> str:
        return self._words + self._ends

    def environment(self, device: DeviceId) -> Mapping[str, str]:
        return {"CUDA_VISIBLE_DEVICES": self._uuids[device], "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    async def released(self, device: DeviceId, pids: frozenset[int]) -> str | None:
        uuid = self._uuids[device]
        loop = asyncio.get_running_loop()
        until = loop.time() + self._release_seconds
        while True:
            try:
                holding = await self._ask(lambda nvml: _processes(nvml, uuid)) & pids
            except Exception as error:  # the library's own errors have no common type we may name
                return f"the driver does not answer: {error}"
            if not holding:
                return None
            if loop.time() >= until:
                return f"process {min(holding)} still holds it"
            await asyncio.sleep(_POLL_SECONDS)

    async def holders(self) -> Mapping[DeviceId, frozenset[int]]:
        found = await self._of_each(WHO, _processes)
        return {name: frozenset(pids) for name, pids in found.items()}

    async def use(self) -> Mapping[DeviceId, DeviceUse]:
        return await self._of_each(HOW_BUSY, _use)

    def warnings(self) -> tuple[str, ...]:
        costs = {WHO: "; none of these is left to others meanwhile", HOW_BUSY: ""}
        return self._lost + tuple(
            f"nobody knows {what}, since the driver does not answer: {why}{costs[what]}"
            for what, why in self._unknown.items()
        )

    async def _of_each(
        self, what: str, question: Callable[[Any, str], Answer]
    ) -> Mapping[DeviceId, Answer]:
        """The driver's answer about each GPU for which it has one; a warning for the others."""
        found, failed = {}, []
        for name, uuid in self._uuids.items():
            try:
                found[name] = await self._ask(lambda nvml, uuid=uuid: question(nvml, uuid))  # type: ignore[misc]
            except TimeoutError as error:  # it would be as silent about the others
                failed = [str(error)]
                break
            except Exception as error:  # the library's own errors have no common type we may name
                failed.append(f"{name}: {error}")
        if failed:
            unknown = ", ".join(failed)
            if what not in self._unknown:
                log.warning("the driver does not answer", unknown=what, error=unknown)
            self._unknown[what] = unknown
        elif self._unknown.pop(what, None) is not None:
            log.info("the driver answers again", known=what)
        return found


class _Driver:
    """The driver's library in a thread of its own, begun with the first question; a daemon, so that
    nobody waits for one that hangs when the process ends."""

    def __init__(self) -> None:
        self._questions: SimpleQueue[tuple[Callable[[Any], Any], Future[Any]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, question: Callable[[Any], Answer]) -> Future[Answer]:
        """Have a question put to the library; whoever gives up waiting cancels it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer, name="nvml", daemon=True)
            self._thread.start()
        asked: Future[Answer] = Future()
        self._questions.put((question, asked))
        return asked

    def _answer(self) -> None:
        while True:
            question, asked = self._questions.get()
            if not asked.set_running_or_notify_cancel():
                continue
            try:
                import pynvml

                answer = question(pynvml)
            except BaseException as error:  # for who has asked; this thread answers the next
                asked.set_exception(error)
            else:
                asked.set_result(answer)


def _is_well(said: str) -> bool:
    """Whether what was tried out has worked: it prints JSON then."""
    try:
        json.loads(said)
    except ValueError:
        return False
    return True


def chosen(found: Sequence[Gpu], visible: Sequence[str] | None) -> list[Gpu]:
    """The GPUs that are named by number or by the beginning of a UUID; all where nothing is said. A
    UUID that none of them has is that of one for which the driver does not answer.

    Raises LookupError for one that is not there.
    """
    if visible is None:
        return list(found)
    there: dict[int, Gpu] = {}
    lost = [i for i, gpu in enumerate(found) if isinstance(gpu, str)]
    for name in visible:
        named = [
            i for i, gpu in enumerate(found) if not isinstance(gpu, str) and gpu[0].startswith(name)
        ]
        if name.isdigit():
            named = [int(name)] if int(name) < len(found) else []
        elif not named and (left := [i for i in lost if i not in there]):
            there[left[0]] = f"{found[left[0]]}; no GPU that answers has the UUID {name}"
            continue
        if len(named) != 1:
            raise LookupError(f"visible_gpus has {name}, which is {len(named)} of {len(found)}")
        there[named[0]] = found[named[0]]
    return list(there.values())


def are_there(has_library: bool) -> bool:
    """Whether this machine has GPUs of NVIDIA that its programs are to use, without asking the
    driver: where its library is not installed, they were put into this container, or are not."""
    if any(_FILES.glob("nvidia[0-9]*")):
        return True
    return has_library and any(
        _line(device / "vendor") == _NVIDIA
        and _line(device / "class").startswith(_DISPLAYS)
        and (device / "driver").resolve().name in ("driver", "nvidia")  # no other one has it
        for device in _BUS.glob("*")
    )


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def seat_of(bus: str, devices: Path = _BUS) -> tuple[str, ...]:
    """Where a device of the PCIe bus sits: its NUMA node, and the bridges above it."""
    # The driver writes more digits of the domain than the kernel.
    path = devices / bus.lower()[-len("0000:00:00.0") :]
    if not bus or not path.exists():
        return ()
    numa = path / "numa_node"
    node = numa.read_text().strip() if numa.exists() else "-1"
    bridges = [part for part in path.resolve().parts[:-1] if ":" in part]
    return (f"node{node}", *bridges)


def _bus(nvml: Any, gpu: Any) -> str:
    """The address of a GPU on its bus; empty if the driver does not tell it."""
    try:
        said = nvml.nvmlDeviceGetPciInfo(gpu).busId
    except Exception:  # the library's own errors have no common type we may name
        return ""
    return said.decode() if isinstance(said, bytes) else str(said)


def _inventory(nvml: Any) -> tuple[list[Gpu], str]:
    """All GPUs, in the driver's order, and its version."""
    nvml.nvmlInit()
    found: list[Gpu] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(gpu).total
            name = nvml.nvmlDeviceGetName(gpu)
            found.append((nvml.nvmlDeviceGetUUID(gpu), name, memory, _bus(nvml, gpu)))
        except Exception as error:  # the library's own errors have no common type we may name
            found.append(str(error))
    return found, nvml.nvmlSystemGetDriverVersion()


def _processes(nvml: Any, uuid: str) -> set[int]:
    gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
    listed = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    return {process.pid for process in listed}


def _use(nvml: Any, uuid: str) -> DeviceUse:
    gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
    busy = nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100
    return DeviceUse(busy, nvml.nvmlDeviceGetMemoryInfo(gpu).used)
