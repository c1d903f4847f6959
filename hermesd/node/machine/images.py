"""Whether process images of trials can be made on this machine, found out by making one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermesd.expecting import REMEDY
from hermesd.logs import get_logger
from hermesd.node.machine import detached, processes
from hermesd.node.machine.accounts import UnixAccount, own
from hermesd.node.machine.detached import WORLD, NotBegun
from hermesd.node.machine.devices.nvml import Gpus
from hermesd.node.machine.environment import passed

TRY_SECONDS = 30.0
TOLD_BYTES = 64 << 10
_OFF = "off"
# All that a CRIU needs to work for any user in the machine's own namespaces: to choose the number
# of a process, and to give its rights up. It gains no right over processes of others.
CAPABILITIES = "cap_checkpoint_restore,cap_setpcap"
# What keeps users from namespaces of their own: a setting of the kernel, its value, a better one.
_NAMESPACES = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
)

log = get_logger()


@dataclass(frozen=True, slots=True)
class ProcessImages:
    """Whether images of processes can be made here, and by what."""

    #: The path of CRIU; empty where no images can be made.
    criu: str
    #: Why none can be made, or which CRIU makes them.
    why: str
    #: What an image finds on this machine, and may need on another one.
    features: tuple[str, ...] = ()
    #: How hosts are started for them: in namespaces of their own, or in those of the machine.
    world: tuple[str, ...] = ()
    #: What would have them made here, or made in a better way.
    remedy: str = ""

    @property
    def fact(self) -> str:
        """For people."""
        said = "any program is suspended as an image of its processes, by"
        words = f"{said if self.criu else 'no images of processes:'} {self.why}"
        return words + (f"{REMEDY}{self.remedy}" if self.remedy else "")


async def detect(
    named: str, state: Path, shim: Path, account: UnixAccount | None = None
) -> ProcessImages:
    """What can be done here with the CRIU of this name or path; `off` for none. It is tried as
    `account`, by default as this process: in namespaces of its own and, where it may have none,
    without, for which CRIU needs capabilities."""
    account = account or own()
    if named == _OFF:
        return ProcessImages("", "node.criu is off")
    criu = shutil.which(os.path.expanduser(named))
    if criu is None:
        remedy = "install CRIU 4 or later (a package named criu), or set node.criu"
        return ProcessImages("", f"there is no {named} here", remedy=remedy)
    criu = os.path.abspath(criu)
    command = ["trainer_shim.host.try_image", criu, "."]
    refused = allows = ""
    world: tuple[str, ...] = WORLD
    try:
        said = await _run(command, {}, state, shim, account, world)
    except NotBegun as error:
        refused, world, allows = str(error), (), _allows_namespaces()
        said = await _run(command, {}, state, shim, account, world)
    try:
        found = json.loads(said)
    except ValueError:
        if not refused:
            return ProcessImages("", said)
        remedy = f"sudo setcap {CAPABILITIES}+eip {criu}"
        return ProcessImages("", refused, remedy=f"{allows}, or {remedy}" if allows else remedy)
    way = "as root" if found["is_root"] else "without privileges"
    way = f"by its capabilities, since {refused}" if refused else way
    features = tuple(found["features"])
    return ProcessImages(criu, f"CRIU {found['version']} {way}", features, world, allows)


async def try_gpus(
    gpus: Gpus, state: Path, shim: Path, made: ProcessImages, account: UnixAccount | None = None
) -> None:
    """See what the driver of the GPUs does, as a host of `account` would find it, in a world of its
    own where images are made in one."""

    async def tried(module: Sequence[str], environment: Mapping[str, str]) -> str:
        try:
            return await _run(module, environment, state, shim, account or own(), made.world)
        except NotBegun as error:
            return str(error)

    await gpus.try_out(tried, made.criu)


async def _run(
    module: Sequence[str],
    more: Mapping[str, str],
    state: Path,
    shim: Path,
    account: UnixAccount,
    world: Sequence[str],
) -> str:
    """The last line that a module of trainer_shim prints, given its arguments, as a trial's host is
    run, in a folder of its own, and with `more` in its environment; or what went wrong. Raises
    NotBegun where there are no namespaces."""
    with tempfile.TemporaryDirectory(dir=state, prefix="try-") as folder:
        os.chown(folder, account.uid, account.gid)
        return await run_in(module, more, Path(folder), shim, account, world)


async def run_in(
    module: Sequence[str],
    more: Mapping[str, str],
    folder: Path,
    shim: Path,
    account: UnixAccount,
    world: Sequence[str],
) -> str:
    """The same in this folder."""
    environment = {**passed(os.environ), "PYTHONPATH": str(shim), **more}
    command = [sys.executable, "-m", *module]
    # Read by its descriptor: another program of the account may put anything at its place.
    told = os.open(folder / "told", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    try:
        pid = await detached.start(
            command, environment, folder=folder, errors=told, world=world, account=account
        )
        async with asyncio.timeout(TRY_SECONDS):
            await processes.exited(pid)
        return detached.end_of(told, TOLD_BYTES).rpartition("\n")[2]
    except NotBegun:
        why = detached.end_of(told)
        raise NotBegun(f"this user may not make namespaces of its own ({why})") from None
    except TimeoutError:
        processes.kill(processes.of_user([pid], account.uid))
        return f"trying one out took more than {TRY_SECONDS:g} s"
    finally:
        os.close(told)


def _allows_namespaces() -> str:
    """The command that lets users make namespaces, where one is known."""
    for key, forbids, allows in _NAMESPACES:
        path = Path("/proc/sys", key.replace(".", "/"))
        if path.exists() and path.read_text().strip() == forbids:
            return f"sudo sysctl {key}={allows}"
    return ""
