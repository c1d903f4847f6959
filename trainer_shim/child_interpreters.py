"""Reaches a Python that the trial's program has started by itself: another interpreter, one with
options, a console script, or the last line of a shell script.

One process at a time is the trial: the first that imports a framework. It holds a lock, which ends
with it. Once one process has trained, no other is taken for the trial. Processes that only prepare
or start others, without a framework, are left alone. Files are looked after from that import on.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import sys
from dataclasses import replace
from pathlib import Path

from trainer_shim import current_agent
from trainer_shim.adapters import registry
from trainer_shim.agent import Agent
from trainer_shim.channel import frames
from trainer_shim.channel.page import PAGE_NAME, ControlPage
from trainer_shim.channel.pipes import Pipes
from trainer_shim.metrics import streams
from trainer_shim.program import command_line, framework_scan
from trainer_shim.spec import SPEC, Spec
from trainer_shim.trainee import Trainee

# On PYTHONPATH, its sitecustomize runs before the first line of any program.
ENTRY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry")
UNSEEN = "the program uses no framework that Hermes can see into"
_SECOND = "several programs of the trial train, one after the other"
_CHANNEL, _PAGE, _SEED = "HERMES_CHANNEL_FDS", "HERMES_PAGE_FD", "HERMES_SEED"
_CHECKPOINTS, _FOLDER, _RESTORE = "HERMES_CHECKPOINTS", "HERMES_FOLDER", "HERMES_RESTORE"
_OURS = (_CHANNEL, _PAGE, _CHECKPOINTS, _FOLDER, _RESTORE)


def environment(channel: Pipes, page: int, spec: Spec, restore: str | None) -> dict[str, str]:
    """What a program is given so that a Python below it can be reached; see `_OURS`."""
    given = {
        _CHANNEL: f"{channel.reads},{channel.writes}",
        _PAGE: str(page),
        # What the others of several processes have of their own. All else is longer than a variable
        # may be, and lies in the trial's directory.
        _CHECKPOINTS: spec.checkpoints,
        _FOLDER: spec.files,
    }
    return given if restore is None else {**given, _RESTORE: restore}


def begin() -> None:
    """Watch this interpreter, which is about to run a program."""
    if _inherited() is None:
        return
    seed = os.environ.get(_SEED)
    registry.watch(None if seed is None else int(seed), claim)
    if os.getsid(0) == os.getpid() and _RESTORE not in os.environ:
        _judge()  # the host has become this very process: nothing else will come


def claim() -> Agent | None:
    """This process's agent; None if another process of the trial has one."""
    found = current_agent.current()
    inherited = _inherited()
    if found is not None or inherited is None:
        return found
    channel, page = inherited[0], ControlPage(inherited[1])
    try:
        fcntl.lockf(page.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    spec = _spec(os.environ[_CHECKPOINTS], os.environ[_FOLDER])
    attempt, restore = int(os.environ["HERMES_ATTEMPT"]), os.environ.get(_RESTORE)
    agent = Trainee(channel, page, spec, attempt, restore)
    for fd in (channel.reads, channel.writes, page.fd):
        os.set_inheritable(fd, False)
    _own_environment()
    if page.step:
        agent.fidelity("park-only", _SECOND)
        return None
    current_agent.install(agent)
    atexit.register(_close, agent)
    agent.begin()
    streams.watch(agent)
    return agent


def _spec(checkpoints: str, folder: str) -> Spec:
    """What the host was told, for this one of its processes. Raises OSError without it."""
    above = Path(checkpoints).parents
    directory = next((each for each in above if (each / SPEC).is_file()), above[0])
    spec = Spec.load(str(directory / SPEC))
    return replace(spec, checkpoints=checkpoints, own_files=folder)


def _inherited() -> tuple[Pipes, int] | None:
    """The descriptors of channel and page, if those that started this process left them open."""
    try:
        reads, writes = map(int, os.environ[_CHANNEL].split(","))
        page = int(os.environ[_PAGE])
        is_channel = all(_link(fd).startswith("pipe:") for fd in (reads, writes))
        is_page = PAGE_NAME in _link(page)
    except (KeyError, ValueError, OSError):
        return None
    return (Pipes(reads, writes), page) if is_channel and is_page else None


def _link(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _own_environment() -> None:
    """From here on the program's environment is its own."""
    for name in _OURS:
        os.environ.pop(name, None)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path != ENTRY)


def _judge() -> None:
    """Say so if this program will never show an iteration."""
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[1:-1]]
    program = command_line.split(words).program
    inherited = _inherited()
    if program and inherited is not None and framework_scan.is_blind(program[0]):
        said = {"level": "park-only", "reason": UNSEEN, "framework": "none"}
        frames.send(inherited[0], {"kind": "fidelity", **said})
        frames.send(inherited[0], {"kind": "blind", "is_unseen": True})


def _close(agent: Agent) -> None:
    """At the exit: an exception that nobody caught has left its mark by then."""
    agent.closing(well=getattr(sys, "last_type", None) is None)
