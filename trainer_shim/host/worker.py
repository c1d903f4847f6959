"""One training process as its host sees it: forked, sent messages, stopped, reaped."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from trainer_shim.channel.agent_channel import HOST_GONE
from trainer_shim.channel.frames import FrameConnection, Message
from trainer_shim.channel.page import NO_LIMIT, ControlPage
from trainer_shim.channel.pipes import Pipes, pipe_pair
from trainer_shim.host import world
from trainer_shim.host.event_log import boottime
from trainer_shim.host.freeze import die_with_parent, enter_cgroup, how_ended, is_dying
from trainer_shim.host.output import Output
from trainer_shim.spec import Spec


@dataclass
class ProgramLaunch:
    """What the forked child needs to become the training process."""

    spec: Spec
    attempt: int
    restore: str | None
    cores: list[int] | None
    channel: Pipes
    page: ControlPage


class Outside:
    """The pipes of a training process whose other ends its host has: what an image of it names,
    and what it is given in their place when it is brought back."""

    def __init__(self, channel: Pipes, output: int) -> None:
        self.names = [_name_of(fd) for fd in (channel.reads, channel.writes, output)]
        self._mail = os.dup(channel.reads)

    def unread(self) -> bytes:
        """What the process, which is stopped, has not read; it is put back."""
        os.set_blocking(self._mail, False)
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._mail, 1 << 20)
        os.set_blocking(self._mail, True)  # it is the process's own way to read, too
        return data

    def close(self) -> None:
        """Let go of them."""
        os.close(self._mail)


def _name_of(pipe: int) -> str:
    return f"pipe:[{os.fstat(pipe).st_ino}]"


class Worker:
    """The parent's end: channel, page, output pipe and process id."""

    def __init__(
        self,
        pid: int,
        channel: FrameConnection,
        page: ControlPage,
        pipe: int,
        outside: Outside | None = None,
        root: int = 0,
    ) -> None:
        self.pid = pid
        #: Of the tree that an image holds: itself, or the process above all of a trial's.
        self.root = root or pid
        self.pidfd = os.pidfd_open(pid)
        self.outside = outside
        self.channel = channel
        self.page = page
        self.pipe: int | None = pipe
        self.started_at = boottime()

    def tell(self, kind: str, **fields: object) -> None:
        """Say in the page that there is a frame, and send it to the agent.

        In this order: an agent that has read more than the page says would wait for a frame
        that nobody sends.
        """
        self.page.mail += 1
        self.channel.send({"kind": kind, **fields})

    def state(self) -> Message:
        """What is to be known of the process, which is stopped, to bring it back from an image."""
        assert self.outside is not None
        unread = self.outside.unread()
        self.channel.stream.sendall(unread)
        return {
            "pid": self.pid,
            "root": self.root,
            "pipes": self.outside.names,
            "page": self.page.state,
            "to_agent": (unread + self.channel.unsent).hex(),
            "from_agent": self.channel.begun.hex(),
        }

    @property
    def has_exited(self) -> bool:
        """Whether the process is over, reaped or not."""
        return bool(select.select([self.pidfd], [], [], 0)[0])

    @property
    def is_dying(self) -> bool:
        """Whether the process is over, or about to be."""
        return self.has_exited or is_dying(self.pid)

    def end_seen(self) -> tuple[int, float] | None:
        """Exit status and CPU seconds of a process that is over, but is not for its host to reap:
        the one above it leaves it as it is. None unless that is so."""
        is_seen = self.root != self.pid and self.has_exited
        return how_ended(self.pid) if is_seen else None

    def release(self) -> None:
        """Close what belonged to the process, which is gone."""
        os.close(self.pidfd)
        self.channel.close()
        self.page.close()
        if self.outside is not None:
            self.outside.close()
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None


class Start:
    """What a training process is given, made before it is forked. `memory` is a folder for what an
    image is to find again."""

    def __init__(
        self,
        spec: Spec,
        attempt: int,
        restore: str | None,
        limit: int | None,
        cores: list[int] | None,
        output: Output,
        memory: str | None = None,
        rank: int = 0,
    ) -> None:
        self.spec, self.attempt, self.restore, self.cores = spec, attempt, restore, cores
        self._ours, self._theirs = pipe_pair()
        self._read_end, self._write_end = output.pipe()
        self._page = ControlPage.create(memory, rank)
        self._outside = Outside(self._theirs, self._write_end) if memory is not None else None
        self._page.limit = NO_LIMIT if limit is None else limit

    def worker(self, pid: int, root: int = 0) -> Worker:
        """The parent's end, once it is forked."""
        self._theirs.close()
        os.close(self._write_end)
        channel = FrameConnection(self._ours)
        return Worker(pid, channel, self._page, self._read_end, self._outside, root)

    def become(self, parent: int) -> ProgramLaunch:
        """In the child: be it, already in its cgroup, session and working directory, with the
        output pipe as its standard output."""
        spec = self.spec
        die_with_parent(parent)
        os.setsid()
        enter_cgroup(spec.cgroup_work)
        self._close_ours()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(self._write_end, 1)
        os.dup2(self._write_end, 2)
        os.close(null)
        os.close(self._write_end)
        os.chdir(spec.cwd)
        launch = self.attempt, self.restore, self.cores, self._theirs, self._page
        return ProgramLaunch(spec, *launch)

    def leave(self) -> None:
        """In another child: let go of what is not its own."""
        self._close_ours()
        self._theirs.close()
        os.close(self._write_end)
        self._page.leave()

    def _close_ours(self) -> None:
        self._ours.close()
        os.close(self._read_end)
        if self._outside is not None:
            self._outside.close()


def fork_workers(starts: Sequence[Start], memory: str | None) -> list[Worker] | ProgramLaunch:
    """Fork each of them. The parent gets the Workers; a child gets what it needs to become one.
    With `memory` they have clocks of their own and, if they are several, one process above them."""
    host = os.getpid()
    if memory is not None and len(starts) > 1:
        return _fork_below_one(starts, host)
    workers = []
    for start in starts:
        pid = os.fork() if memory is None else world.fork()
        if pid == 0:
            if memory is not None:
                world.own_ipc()
            return _become(start, starts, host)
        workers.append(pid)
    return [start.worker(pid) for start, pid in zip(starts, workers)]


def _become(start: Start, starts: Sequence[Start], parent: int) -> ProgramLaunch:
    for other in starts:
        if other is not start:
            other.leave()
    return start.become(parent)


def _fork_below_one(starts: Sequence[Start], host: int) -> list[Worker] | ProgramLaunch:
    """Several processes are the children of one that does nothing: an image is of one tree. It
    leaves those that have ended for the host to look at."""
    told, tells = os.pipe()
    root = world.fork()
    if root != 0:
        os.close(tells)
        with os.fdopen(told) as answer:
            pids = [int(word) for word in answer.read().split()]
        if len(pids) < len(starts):
            raise OSError("its processes cannot be started")
        return [start.worker(pid, root) for start, pid in zip(starts, pids)]
    die_with_parent(host)
    os.setsid()
    enter_cgroup(starts[0].spec.cgroup_work)
    os.close(told)
    world.own_ipc()
    parent = os.getpid()
    for start in starts:
        try:
            pid = os.fork()
        except OSError:  # the host, which lacks a number, says so
            os._exit(1)
        if pid == 0:
            os.close(tells)
            return _become(start, starts, parent)
        os.write(tells, f"{pid} ".encode())
    _do_nothing()


def _do_nothing() -> NoReturn:
    """For ever, as a program of little memory; a child of it that ends stays as it is."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.chdir("/")
        waits = "import signal\nwhile True: signal.pause()"
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", waits])
    finally:
        os._exit(1)


def outcome_of_status(status: int, killed_for_memory: bool, said: Message | None) -> Message:
    """The terminal event's kind and fields, from the exit status and what was said before.

    The word decides and the status only confirms; it speaks alone of a program that failed
    without one.
    """
    code = os.waitstatus_to_exitcode(status)
    if said is not None:
        return {**said, "exit_code": code}
    if code > 0:
        kind, detail = "exit", f"exit status {code}"
        if code == HOST_GONE:
            detail += " (as of a program that has closed its connection to Hermes, an open file)"
    elif killed_for_memory:
        kind, detail = "out_of_memory", "killed by the kernel: out of memory"
    else:
        # Nothing that a program does wrong ends it by SIGKILL: someone else did.
        kind = "killed" if code == -signal.SIGKILL else "signal"
        detail = f"killed by {signal.Signals(-code).name}"
    return {
        "kind": "failed",
        "error_kind": kind,
        "detail": detail,
        "error_signature": "" if kind == "killed" else detail,
        "exit_code": code,
    }
