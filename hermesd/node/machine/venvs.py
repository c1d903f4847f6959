"""Virtual environments from studies' requirements files: made once on this node, named by their
content.

An environment is made in its final place, by one installer at a time, and counts only once it is
marked as complete. If making it fails, the end of what pip (or uv) said is reported, and it is
tried again later. One that takes very long does not hold up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from hermesd import children
from hermesd.core.events import Looked
from hermesd.core.model import NodeId, Venv
from hermesd.logs import get_logger
from hermesd.node import deep_trees
from hermesd.node.clock import boottime
from hermesd.node.deep_trees import PARTIAL
from hermesd.node.machine import processes
from hermesd.node.machine.accounts import PASSABLE, UnixAccount, as_owner, own, owned, owner_of
from hermesd.node.machine.detached import STAY, launch
from hermesd.node.machine.environment import OWNER, as_if, passed
from hermesd.node.outbox import Outbox
from hermesd.node.reasons import words_of

AGAIN_SECONDS = 300.0
MAKE_SECONDS = 1800.0
BEING_MADE = "it is being made"
# One whose index does not answer must not keep all others waiting: nor must many of those, so that
# each has a turn for so long only, and then goes on beside those that come next; no more than some
# in all, whatever that costs the others, since each takes its part of the machine.
AT_ONCE = 2
MOST_AT_ONCE = 8
TURN_SECONDS = 120.0
_SAID_CHARACTERS = 600
_SAID_BYTES = 4 * _SAID_CHARACTERS
_HEARING_SECONDS = 1.0
_WHOLE = ".whole"

log = get_logger()


class NotMade(Exception):
    """The environment could not be made; says why."""


def is_whole(folder: Path) -> bool:
    """Whether it is an environment, and not one that is being made, or removed."""
    return (folder / _WHOLE).exists() and not folder.name.startswith(PARTIAL)


def places(root: Path) -> list[Path]:
    """Where environments lie: those of the daemon's own account, and those of others."""
    return [root, *(path for path in _below(root) if path.name.isdigit())]


def _below(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


class Venvs:
    """The environments below `root`; the head is told of them by the outbox."""

    def __init__(
        self,
        node: NodeId,
        root: Path,
        environ: Mapping[str, str],
        outbox: Outbox,
        are_shared: bool = True,
    ) -> None:
        self._node = node
        self._root = root
        self._environ = passed(environ, "PIP_", "UV_")
        self._outbox = outbox
        # Made as the account of each program that needs it, once it needs it: to install is to
        # run whatever is installed.
        self._are_shared = are_shared
        self._wanted: dict[str, Venv] = {}
        self._said: dict[str, str] = {}
        self._asked = asyncio.Event()
        self._under_way: set[str] = set()
        self._again: dict[str, float] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def want(self, venvs: Iterable[Venv]) -> None:
        """See that these are there, and say so even if it was said before."""
        for venv in venvs:
            self._wanted[venv.name] = venv
            self._said.pop(venv.name, None)
            self._again.pop(venv.name, None)
            self._asked.set()

    def forget(self) -> None:
        """Whoever asked is there no more; what is still wanted will be asked for again."""
        self._wanted.clear()
        self._said.clear()

    async def run(self) -> None:
        """Make what is wanted, and now and then try again what could not be made."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._clear_away())
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await self._asked.wait()
                self._asked.clear()
                for venv in list(self._wanted.values()):
                    if self._is_due(venv.name):
                        self._under_way.add(venv.name)
                        tasks.create_task(self._see_to(venv))

    async def _clear_away(self) -> None:
        """Remove what a daemon before this one had not made to its end."""
        try:
            for place, folder in [(p, path) for p in places(self._root) for path in _below(p)]:
                if not folder.name.isdigit():  # else a place of others
                    await self._clear(place, folder)
        except OSError as error:
            log.warning("what is left of environments is not removed", why=words_of(error))

    async def _clear(self, place: Path, folder: Path) -> None:
        async with self._locks.setdefault(str(folder), asyncio.Lock()):
            if not is_whole(folder):
                await self._end_others(folder, owner_of(place))
                await asyncio.to_thread(deep_trees.remove, folder)

    def _is_due(self, name: str) -> bool:
        waits = name in self._under_way or boottime() < self._again.get(name, 0.0)
        return not waits and self._said.get(name) != ""

    async def _see_to(self, venv: Venv) -> None:
        try:
            if self._are_shared:
                if not is_whole(self._root / venv.name):
                    self._say(venv, BEING_MADE)
                await self.interpreter(venv)
            self._say(venv, "")
        except NotMade as error:
            self._say(venv, str(error))
        except OSError as error:
            self._say(venv, words_of(error))
        finally:
            self._under_way.discard(venv.name)

    def _say(self, venv: Venv, reason: str) -> None:
        if venv.name in self._wanted and self._said.get(venv.name) != reason:
            self._said[venv.name] = reason
            self._outbox.tell(Looked(self._node, ((venv.name, reason),)))

    async def interpreter(self, venv: Venv, account: UnixAccount | None = None) -> str:
        """The environment's own interpreter; it is made, as the account (by default this process's)
        whose programs use it, if it is not there. Raises NotMade."""
        account = account or own()
        place = self._root
        if not account.is_own:
            place = self._root / str(account.uid)
            self._root.mkdir(exist_ok=True, mode=PASSABLE)
            account.make_folder(place)
        folder = place / venv.name
        if not is_whole(folder):  # else nobody waits for others that are being made
            # Of those turns each account has one, and the places are its own: none of its that
            # hangs takes a place from others.
            own_turn = self._locks.setdefault(str(place), asyncio.Lock())
            async with (
                self._locks.setdefault(str(folder), asyncio.Lock()),
                self._places if account.is_own else own_turn,
                self._turn(),
            ):
                await self._see_made(venv, folder, account)
        return str(folder / "bin" / "python")

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """A turn, for the block or until it is too long."""
        await self._turns.acquire()
        over = contextlib.ExitStack()
        over.callback(self._turns.release)
        timer = asyncio.get_running_loop().call_later(TURN_SECONDS, over.close)
        try:
            yield
        finally:
            timer.cancel()
            over.close()

    async def _see_made(self, venv: Venv, folder: Path, account: UnixAccount) -> None:
        if is_whole(folder):
            return
        begun = boottime()
        try:
            await self._make(venv, folder, account)
        except (NotMade, OSError) as error:
            await asyncio.to_thread(deep_trees.remove, folder)
            if isinstance(error, NotMade):
                raise
            raise NotMade(f"{error.filename or folder}: {error.strerror}") from None
        finally:
            # What took long in vain is not what the next turn is for.
            self._again[venv.name] = boottime() + 2 * (boottime() - begun)
        log.info("environment made", venv=venv.name)

    async def _make(self, venv: Venv, folder: Path, account: UnixAccount) -> None:
        """Raises NotMade, OSError."""
        await self._end_others(folder, account.uid)
        await asyncio.to_thread(deep_trees.remove, folder)
        wanted, python = folder / "requirements.txt", str(folder / "bin" / "python")
        with as_owner(folder.parent):
            folder.mkdir(parents=True)
            with wanted.open("x", encoding="utf-8") as file:
                file.write(venv.requirements)
        uv = shutil.which("uv", path=self._environ.get("PATH", os.defpath))
        run = partial(self._run, account, folder)
        if uv is not None:
            await run(uv, "venv", "--allow-existing", "--python", venv.python, ".")
            await run(uv, "pip", "install", "--python", python, "-r", str(wanted))
        else:
            await run(venv.python, "-m", "venv", ".")
            quiet = ("--no-input", "--disable-pip-version-check", "--quiet")
            await run(python, "-m", "pip", "install", *quiet, "-r", str(wanted))
        owned(folder.parent, (folder / _WHOLE).touch)

    async def _end_others(self, folder: Path, uid: int) -> None:
        """End what an installer of a daemon that was killed still does in the same place, as this
        user: somebody else's program can be started with any mark, again and again."""
        mark = str(folder.absolute())

        def belongs(pid: int) -> bool:
            return processes.started_with(pid, OWNER) == mark and processes.runs_as(pid, uid)

        while pids := await asyncio.to_thread(processes.kill_those, belongs):
            for pid in pids:
                await processes.exited(pid)

    async def _run(self, account: UnixAccount, folder: Path, *words: str) -> None:
        """Run to its end. Raises NotMade with the end of what it said, OSError."""
        environment = {**as_if(self._environ, account), OWNER: str(folder.absolute())}
        process = await launch(words, environment, STAY, folder=folder, account=account)
        leader = processes.Remembered.of(process.pid)
        assert process.stdout is not None
        hearing = asyncio.get_running_loop().create_task(_last_words(process.stdout))
        is_late = False
        try:
            async with asyncio.timeout(MAKE_SECONDS):
                await processes.exited(process.pid)
        except TimeoutError:
            is_late = True
        finally:
            try:
                # What it has started, a compiler's server say, may hold its output open.
                await leader.end()
                await asyncio.wait({hearing}, timeout=_HEARING_SECONDS)
                await children.end(process)
                await asyncio.wait({hearing}, timeout=_HEARING_SECONDS)
            finally:
                hearing.cancel()
        if is_late:
            raise NotMade(f"{words[0]} was not done within {MAKE_SECONDS:g} s")
        if process.returncode:
            said = hearing.result() if hearing.done() else b""
            text = said.decode(errors="replace").strip()[-_SAID_CHARACTERS:]
            raise NotMade(text or f"{' '.join(words)} ended with {process.returncode}")


async def _last_words(output: asyncio.StreamReader) -> bytes:
    """The end of what is printed, once nobody prints there any more."""
    said = b""
    while more := await output.read(1 << 16):
        said = (said + more)[-_SAID_BYTES:]  # it may print without end
    return said
