"""When this machine is not available: outside its hours, when it leaves, or while a foreign process
uses a GPU.

This only reports it. The head then has the runs there given back, and starts nothing there until it
is told that it may. A process is foreign to a GPU if neither it nor a process that started it has
the mark of this node.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable, Set
from datetime import datetime
from pathlib import Path

from hermesd.config.schema import NodeConfig
from hermesd.core.events import Reclaimed, Yielded
from hermesd.core.model import DeviceId, Place
from hermesd.logs import get_logger
from hermesd.node.machine import processes
from hermesd.node.machine.devices.rack import Rack
from hermesd.node.machine.environment import OWNER
from hermesd.node.outbox import Outbox

LOOK_SECONDS = 1.0
# A GPU is taken back when nobody was seen on it so many times in a row.
CALM_LOOKS = 30
# Of the first pid namespace: in another one, the driver's process ids are not ours.
_FIRST_NAMESPACE = "pid:[4026531836]"

log = get_logger()


class Availability:
    """What the node yields; the head is told of each change by the outbox."""

    def __init__(
        self,
        config: NodeConfig,
        rack: Rack,
        outbox: Outbox,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._name = config.name
        self._hours = config.hours
        self._state = config.state_dir.absolute()
        self._rack = rack
        self._outbox = outbox
        self._clock = clock
        self._watches = config.yields_gpus and sees_every_process()
        self._yields: dict[Place, str] = {}
        self._seen: dict[DeviceId, Set[int]] = {}
        self._calm: dict[DeviceId, int] = {}
        self._going = ""
        self._for_good = False

    @property
    def yields(self) -> tuple[tuple[Place, str], ...]:
        """The places that others have now, and why."""
        return tuple(self._yields.items())

    @property
    def facts(self) -> tuple[str, ...]:
        """What it keeps to, for people."""
        return (f"serves {self._hours}",) if self._hours is not None else ()

    @property
    def parting(self) -> bool:
        """Whether this machine goes for good."""
        return self._for_good

    def go(self, reason: str, *, for_good: bool) -> None:
        """Say that this node goes, for good with its machine or until its next daemon comes;
        nothing takes that back."""
        self._going, self._for_good = reason, for_good
        self._set(self._name, reason)

    async def keep(self) -> None:
        """Look again and again, for as long as this task lives."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """See whether it is time, and who is on the GPUs. One glance at a process is too little:
        what only asks a GPU for its name is gone by the next."""
        self._set(self._name, self._out_of_hours())
        if self._watches:
            for device, pids in (await self._rack.holders()).items():
                self._judge(device, {pid for pid in pids if self._is_foreign(pid)})

    def _out_of_hours(self) -> str:
        now = self._clock()
        if self._going:
            return self._going
        if self._hours is None or self._hours.hold(now):
            return ""
        return f"it serves {self._hours}; again from {self._hours.again(now)}"

    def _judge(self, device: DeviceId, foreign: Set[int]) -> None:
        before, self._seen[device] = self._seen.get(device, frozenset()), foreign
        self._calm[device] = 0 if foreign else self._calm.get(device, 0) + 1
        if (staying := foreign & before) and device not in self._yields:
            self._set(device, f"{described(min(staying))} uses it")
        elif self._calm[device] >= CALM_LOOKS:
            self._set(device, "")

    def _set(self, place: Place, reason: str) -> None:
        if self._yields.get(place, "") == reason:
            return
        if reason:
            self._yields[place] = reason
            log.info("yielded", place=place, reason=reason)
            self._outbox.tell(Yielded(place, reason, place == self._name and self.parting))
        else:
            del self._yields[place]
            log.info("reclaimed", place=place)
            self._outbox.tell(Reclaimed(place))

    def _is_foreign(self, pid: int) -> bool:
        """Not so of one that has ended."""
        if pid == os.getpid():
            return False
        above: int | None = pid
        while above is not None and above > 1:
            try:
                owner = processes.started_with(above, OWNER)
            except PermissionError:
                owner = None
            except OSError:
                return above != pid
            if owner and Path(owner).is_relative_to(self._state):
                return False
            above = processes.parent(above)
        return True


def described(pid: int) -> str:
    """`process 4711 (python) of bob`."""
    folder = Path(f"/proc/{pid}")
    try:
        name = (folder / "comm").read_text(errors="backslashreplace").strip()
        uid = folder.stat().st_uid
    except OSError:
        return f"process {pid}"
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"uid {uid}"
    return f"process {pid} ({name}) of {user}"


def sees_every_process() -> bool:
    """Whether process ids mean to us what they mean to the driver: not so in a container."""
    return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
