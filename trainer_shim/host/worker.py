"""One training process as its host sees it: forked, sent messages, stopped, reaped."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

from trainer_shim.channel.agent_channel import HOST_GONE
from trainer_shim.channel.frames import FrameConnection, Message
from trainer_shim.channel.page import NO_LIMIT, ControlPage
from trainer_shim.channel.pipes import Pipes, pipe_pair
from trainer_shim.host import world
from trainer_shim.host.event_log import boottime
from trainer_shim.host.freeze import die_with_parent, enter_cgroup
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
    ) -> None:
        self.pid = pid
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
            "pipes": self.outside.names,
            "page": self.page.state,
            "to_agent": (unread + self.channel.unsent).hex(),
            "from_agent": self.channel.begun.hex(),
        }

    @property
    def has_exited(self) -> bool:
        """Whether the process is over and waits to be reaped."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PIDFD, self.pidfd, flags) is not None
        except ChildProcessError:  # reaped already: others of the program are waited for
            return True

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


def fork_worker(
    spec: Spec,
    attempt: int,
    restore: str | None,
    limit: int | None,
    cores: list[int] | None,
    output: Output,
    memory: str | None = None,
) -> Worker | ProgramLaunch:
    """Fork. The parent gets the Worker; the child, already in its cgroup, session and working
    directory, with the output pipe as its standard output, gets the ProgramLaunch. `memory` is a
    folder for what an image is to find again."""
    ours, theirs = pipe_pair()
    read_end, write_end = output.pipe()
    page = ControlPage.create(memory)
    outside = Outside(theirs, write_end) if memory is not None else None
    page.limit = NO_LIMIT if limit is None else limit
    host = os.getpid()
    pid = os.fork() if memory is None else world.fork()
    if pid != 0:
        theirs.close()
        os.close(write_end)
        return Worker(pid, FrameConnection(ours), page, read_end, outside)
    die_with_parent(host)
    os.setsid()
    enter_cgroup(spec.cgroup_work)
    ours.close()
    os.close(read_end)
    if outside is not None:
        world.own_ipc()
        outside.close()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(write_end, 1)
    os.dup2(write_end, 2)
    os.close(null)
    os.close(write_end)
    os.chdir(spec.cwd)
    return ProgramLaunch(spec, attempt, restore, cores, theirs, page)


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
