"""Conda environments that studies name, found on this node under the same name.

The disk is searched first; `conda` itself, which takes a second to answer, is asked only for a name
that was not found there. Nothing is created: people make and remove environments on this machine,
and the changes are noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hermesd import children
from hermesd.core.model import NodeId, conda_need
from hermesd.logs import get_logger
from hermesd.node.clock import boottime
from hermesd.node.machine import processes
from hermesd.node.machine.watched_names import Sight, WatchedNames
from hermesd.node.outbox import Outbox

ASK_SECONDS = 60.0
ANSWER_SECONDS = 60.0
NAMED = 10
_TOOLS = ("conda", "mamba", "micromamba")

log = get_logger()


class NoConda(Exception):
    """There is no such environment here, or none that trials can use; says why."""


class Condas:
    """The environments of this machine, by name; the head is told of them by the outbox."""

    def __init__(self, node: NodeId, environ: Mapping[str, str], outbox: Outbox) -> None:
        self.watched = WatchedNames(node, outbox, conda_need)
        self._environ = environ
        self._listed: tuple[Path, ...] = ()
        self._ask_after = 0.0

    def want(self, names: Iterable[str], *, briefly: bool = False) -> None:
        """Say of these whether they are here, even if it was said before."""
        for name in names:
            self._ask_after = 0.0
            self.watched.watch((name,), briefly=briefly)

    async def run(self) -> None:
        """Look again and again, and say what has changed."""
        await self.watched.run(self._look)

    async def _look(self, names: Sequence[str]) -> AsyncIterator[list[Sight]]:
        for name in names:
            try:
                await self.prefix(name)
            except NoConda as error:
                yield [(name, str(error))]
            else:
                yield [(name, "")]

    async def prefix(self, name: str) -> Path:
        """Where the environment is. Raises NoConda."""
        found = await asyncio.to_thread(_by_name, lying(self._environ))
        if name not in found:
            await self._list()
            found |= await asyncio.to_thread(_by_name, self._listed)
        if name not in found:
            there = sorted(found)
            more = f" and {len(there) - NAMED} more" if len(there) > NAMED else ""
            names = f"there are {', '.join(there[:NAMED])}{more}" if there else "there is none"
            raise NoConda(f"it is not here; {names}")
        python = found[name] / "bin" / "python"
        if not os.access(python, os.X_OK):
            raise NoConda(f"{python} is not there, or cannot be run by the node daemon's user")
        return found[name]

    async def _list(self) -> None:
        """Ask conda for all that it knows, unless it was asked a moment ago."""
        if boottime() < self._ask_after:
            return
        self._ask_after = boottime() + ASK_SECONDS
        path = self._environ.get("PATH", os.defpath)
        tools = (self._environ.get("CONDA_EXE"), *(shutil.which(t, path=path) for t in _TOOLS))
        tool = next((each for each in tools if each and os.access(each, os.X_OK)), None)
        self._listed = () if tool is None else await self._told_by(tool)

    async def _told_by(self, tool: str) -> tuple[Path, ...]:
        try:
            process = await asyncio.create_subprocess_exec(
                tool, "env", "list", "--json",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._environ,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:  # one that was moved names an interpreter that is gone
            log.warning("conda cannot be asked", tool=tool, error=error.strerror)
            return ()
        leader = processes.Remembered.of(process.pid)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                said, _ = await process.communicate()
            return tuple(Path(each) for each in json.loads(said)["envs"])
        except (TimeoutError, ValueError, KeyError, TypeError):
            return ()  # it is as if there were none
        finally:
            if process.returncode is None:
                await leader.end()
                await children.end(process)


def lying(environ: Mapping[str, str]) -> Iterator[Path]:
    """The environments that conda's own records and folders name; the first of a name counts."""
    home = Path(environ.get("HOME", "/"))
    for folder in _folders(environ, home):
        with contextlib.suppress(OSError):
            yield from sorted(path for path in folder.iterdir() if _is_one(path))
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = (home / ".conda" / "environments.txt").read_text(encoding="utf-8").splitlines()
        yield from (path for line in lines if line and _is_one(path := Path(line)))
    yield from (root for root in _roots(environ) if _is_one(root))


def _folders(environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    named = environ.get("CONDA_ENVS_PATH") or environ.get("CONDA_ENVS_DIRS") or ""
    yield from (Path(each) for each in named.split(os.pathsep) if each)
    yield from (root / "envs" for root in _roots(environ))
    yield home / ".conda" / "envs"


def _roots(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where conda itself is: an environment that is activated lies below it."""
    if active := environ.get("CONDA_PREFIX"):
        path = Path(active)
        yield path.parent.parent if path.parent.name == "envs" else path
    if tool := environ.get("CONDA_EXE"):
        yield Path(tool).parent.parent
    if root := environ.get("MAMBA_ROOT_PREFIX"):
        yield Path(root)


def _is_one(path: Path) -> bool:
    return (path / "conda-meta").is_dir()


def _by_name(prefixes: Iterable[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for prefix in prefixes:
        found.setdefault("base" if (prefix / "condabin").is_dir() else prefix.name, prefix)
    return found
