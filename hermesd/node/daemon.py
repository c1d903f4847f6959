"""The node daemon: one for each state directory. Hosts outlive it; the next one takes them over."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from hermesd.config.schema import NodeConfig
from hermesd.expecting import StateRefused, expecting
from hermesd.logs import get_logger
from hermesd.node.loop import NodeLoop
from hermesd.node.machine import cgroups, cpu_quotas, images, processes
from hermesd.node.machine.accounts import Accounts
from hermesd.node.machine.devices.cpu import CpuSlots
from hermesd.node.machine.devices.nvml import Gpus
from hermesd.node.machine.devices.rack import Rack
from hermesd.node.machine.environment import OWNER
from hermesd.node.provisions import Provisions
from hermesd.node.runner.cleanup import BURIAL_SECONDS
from hermesd.node.storage.shared_directory import Shared, SharedAway
from hermesd.node.storage.trial_folder import TrialFolders
from hermesd.notify import keep_watchdog_fed, notify
from hermesd.security.accounts import account, close

_SHIM = Path(__file__).resolve().parents[2] / "trainer_shim"
_REMOVE = "remove it, while no node runs there"
_UNTOLD = (
    'node.run_as: expected "self" where one person alone submits (programs run as {account} and can'
    " read all that is this account's, the node's key too), or as root \"users\" or"
    ' "400000-465535" (as accounts of their users); or --run-as: see docs/security.md'
)

log = get_logger()


class AlreadyRunning(Exception):
    """Another node daemon holds this state directory."""


async def serve(config: NodeConfig) -> None:
    """Run a node until SIGTERM or SIGINT. Raises AlreadyRunning, NameTaken, NoQuota, SharedAway;
    StateRefused, for one, where nobody said as whom it may run users' programs.

    SIGUSR1 has one that parts begin with that, and take its time.
    """
    require_run_as(config)
    stop, soon = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(disk_threads())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if config.stops_by == "part":
        loop.add_signal_handler(signal.SIGUSR1, soon.set)
    feeder = loop.create_task(keep_watchdog_fed())
    try:
        await run_node(config, os.environ, stop, lambda: notify("READY=1"), soon)
    finally:
        feeder.cancel()


def require_run_as(config: NodeConfig) -> None:
    """See that the node was told as whom to run users' programs. Raises StateRefused."""
    if config.run_as is None and not _is_of_one_person(config):
        raise StateRefused(_UNTOLD.format(account=account(os.geteuid())))


def _is_of_one_person(config: NodeConfig) -> bool:
    """Whether the head is this account's own, at a socket that no other can come to."""
    if config.embedded or not config.knows_its_head:
        return True
    if not config.head.startswith("unix:"):
        return False
    try:
        there = Path(config.head.removeprefix("unix:")).parent.stat()
    except OSError:
        return False
    return there.st_uid == os.geteuid() and not there.st_mode & 0o077


def disk_threads() -> ThreadPoolExecutor:
    """As many threads as asyncio would start by and by to wait for disks: later the programs here
    may have taken all that the system gives. Raises RuntimeError if they cannot be had."""
    count = min(32, (os.cpu_count() or 1) + 4)
    executor, together = ThreadPoolExecutor(count, "disk"), threading.Barrier(count + 1)
    try:
        for _ in range(count):
            executor.submit(together.wait)
        together.wait()
    except RuntimeError:
        together.abort()
        executor.shutdown(wait=False)
        raise
    return executor


async def run_node(
    config: NodeConfig,
    environ: Mapping[str, str],
    stop: asyncio.Event,
    ready: Callable[[], None],
    soon: asyncio.Event | None = None,
) -> None:
    """Be the node of these settings until `stop` is set; `ready` is called once it serves.

    `environ` is what trials' clean environments are taken from; `soon` has a node that parts do so
    before `stop`. What becomes of the trials is `at_stop`'s. Raises AlreadyRunning, NameTaken
    where another daemon is this node (the trials go on), NoQuota where slots are shares of cores
    that cannot be held, SharedAway where the shared directory is, StateRefused where a setting or
    the state will not do.
    """
    state, sockets = config.state_dir, config.runtime_path
    for key, folder in (("state_dir", state), ("runtime_dir", sockets)):
        remedy = f"move away what is there, or set node.{key}"
        with config.taking(key, "a directory", remedy):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    accounts = Accounts(config)
    with _locked(state / "lock"):
        _close(config, accounts)
        TrialFolders(state / "trials", sockets).take_over()
        if not (state / "trials").exists():
            await _end_those_before(state)
        with expecting(state / "shim", "a directory of the daemon's own", _REMOVE):
            _expose_shim(state / "shim")
        _see_reached(state, accounts)
        slots, gpus, rack = await find_devices(config)
        if not config.knows_its_head:
            remedy = "`hermesd node join HOST:PORT TOKEN`, or head in [node]"
            log.warning("no head was joined or set", tries=config.head, remedy=remedy)
        name = group_name(config)
        groups = cgroups.detect(name)
        held = cpu_quotas.detect(name, slots.percents, groups)
        made = await images.detect(config.criu, state, state / "shim", accounts.probe)
        log.info(made.fact)
        await images.try_gpus(gpus, state, state / "shim", made, accounts.probe)
        log.info(gpus.fact())
        log.info(accounts.fact)
        shared = await _shared(config, accounts)
        provisions = Provisions(groups, held, shared, made, accounts, untested_frameworks())
        await NodeLoop(config, environ, rack, provisions).run(stop, ready, soon or asyncio.Event())


async def find_devices(config: NodeConfig) -> tuple[CpuSlots, Gpus, Rack]:
    """What this node lends. Cores beside GPUs are lent only where somebody says so: a trial that
    could have a GPU would take many times as long there."""
    gpus = Gpus(config.visible_gpus)
    has_gpus = config.gpus and bool(await gpus.find(config.name))
    slots = CpuSlots(() if has_gpus and not config.names_slots else config.cpu_slots)
    rack = Rack([slots, gpus] if config.gpus else [slots])
    await rack.find(config.name)
    return slots, gpus, rack


async def _end_those_before(state: Path) -> None:
    """End what still runs of a state directory that was removed: to the head its runs are over, and
    go on elsewhere."""
    root, ours = state.absolute(), os.stat("/proc/self/root")

    def belongs(pid: int) -> bool:
        owner = processes.started_with(pid, OWNER)
        if owner is None or not Path(owner).is_relative_to(root):
            return False
        # In a container of this machine the same path may be another directory.
        return os.path.samestat(os.stat(f"/proc/{pid}/root"), ours)

    try:
        async with asyncio.timeout(BURIAL_SECONDS):
            while pids := await asyncio.to_thread(processes.kill_those, belongs):
                log.warning("ended what ran of a state directory that is gone", pids=sorted(pids))
                for pid in pids:
                    await processes.exited(pid)
    except TimeoutError:
        log.error("processes of a state directory that is gone will not die", state=str(root))


async def _shared(config: NodeConfig, accounts: Accounts) -> Shared | None:
    if config.shared_dir is None:
        return None
    try:
        apart = accounts.switch
        return await asyncio.to_thread(Shared, config.shared_dir, config.name, apart)
    except SharedAway as error:
        raise SharedAway(f"{config.told('shared_dir')}: {error}") from None


def group_name(config: NodeConfig) -> str:
    """The cgroup of a node; two nodes of one name on one machine have different directories."""
    digest = hashlib.sha256(str(config.state_dir.absolute()).encode()).hexdigest()[:8]
    return f"hermes-{config.name}-{digest}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with expecting(path, "a file", _REMOVE):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise AlreadyRunning(f"{path.parent}: another node daemon runs here") from None
    try:
        yield
    finally:
        os.close(fd)


def _close(config: NodeConfig, accounts: Accounts) -> None:
    """Have what is the daemon's closed to all other accounts, whoever made it, and when; the
    accounts of programs pass through to what is theirs. Raises OSError."""
    state = config.state_dir
    (state / "runs").mkdir(exist_ok=True)
    for path in (state, config.runtime_path, state / "runs", state / "membership"):
        if path.is_dir():
            ours = path in (state, config.runtime_path)
            close(path, passable=ours and accounts.switch)
    for path in (state / "accounts.json", state / "lock", *(state / "membership").glob("*")):
        if path.is_file():
            close(path)
    if not accounts.switch:
        return
    for name in ("code", "homes", "trials", "venvs"):
        (state / name).mkdir(exist_ok=True)
        close(state / name, passable=True)
    for study in (state / "trials").iterdir():
        close(study, passable=True)
        for trial in study.iterdir() if study.is_dir() else ():
            close(trial)


def _see_reached(state: Path, accounts: Accounts) -> None:
    """See that who runs programs comes to what they need. Raises StateRefused."""
    needed = (state / "trials", state / "shim" / "trainer_shim" / "spec.py")
    for path in needed if accounts.switch else ():
        if (closed := accounts.closed_to_programs(path)) is not None:
            raise StateRefused(
                f"{closed}: expected a directory that the accounts of programs can pass through to"
                f" {path} (chmod o+x), or another one that they can"
            )


def untested_frameworks() -> tuple[str, ...]:
    """Those that this Python has in a version with which a trial can only be parked, if it runs in
    it; nothing is imported for that."""
    known = runpy.run_path(str(_SHIM / "adapters" / "private_names.py"))
    doubts = [doubt for _, _, doubt in known["installed"]() if doubt]
    parked = "trials that use it can only be parked"
    return tuple(f"{sys.executable}: {doubt}; {parked}" for doubt in doubts)


def _expose_shim(folder: Path) -> None:
    """A directory with nothing but trainer_shim in it, for the import path of trials' hosts."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    link, fresh = folder / "trainer_shim", folder / "trainer_shim.new"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(_SHIM)
    os.rename(fresh, link)
