"""The small process that owns one live trial: `python -m trainer_shim.host <dir>/spec.json`.

It has one thread and one loop, and never runs an operation of a framework, since a host must be
able to fork the training process again and again. It outlives its node daemon, keeps every event
until it is acknowledged, and suspends its trial when nobody looks after it.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from itertools import product
from typing import Any

from trainer_shim import checkpoint_dir, signals
from trainer_shim.channel.frames import FrameConnection, FrameError, Message
from trainer_shim.host import deleted_files
from trainer_shim.host.event_log import boottime
from trainer_shim.host.freeze import become_subreaper, enter_cgroup, how_ended
from trainer_shim.host.launch import run_program
from trainer_shim.host.supervisor import Supervisor
from trainer_shim.host.worker import ProgramLaunch
from trainer_shim.spec import Spec

_FORGOTTEN_SECONDS = 24 * 3600.0
# Without a program a host is of use only while its daemon is about to ask something of it.
_EMPTY_SECONDS = 60.0


class Host:
    """The loop over socket, daemon, agent, output pipe, process and clock."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.trial = Supervisor(spec, self._publish)
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(spec.socket)
        self._daemon: FrameConnection | None = None
        self._attached = False
        self._alone_since = boottime()
        self._rested = False
        self._watched: dict[int, tuple[Any, int]] = {}
        self._seen: set[int] = set()  # to have ended, and not reaped yet
        self._quit = False

    def serve(self) -> ProgramLaunch | None:
        """Run until told to quit (None), or until this is the forked training process."""
        while not self._quit:
            self._watch()
            for key, _ in self._selector.select(self._timeout()):
                launch = self._ready(key.data)
                if launch is not None:
                    self._leave()
                    return launch
            self._reap()
            self._tick(boottime())
        self.trial.close()
        os.unlink(self.spec.socket)
        return None

    def _watch(self) -> None:
        """Bring the selector in line with what there is to watch."""
        wanted: dict[int, tuple[Any, int]] = {
            self._listener.fileno(): ("listener", selectors.EVENT_READ)
        }
        if self._daemon is not None:
            events = selectors.EVENT_READ
            if self._daemon.wants_write:
                events |= selectors.EVENT_WRITE
            wanted[self._daemon.stream.fileno()] = ("daemon", events)
        worker = self.trial.worker
        if worker is not None:
            if not worker.channel.closed:
                wanted[worker.channel.stream.fileno()] = ("agent", selectors.EVENT_READ)
            if worker.pipe is not None:
                wanted[worker.pipe] = ("output", selectors.EVENT_READ)
            if not self.trial.is_left:
                wanted[worker.pidfd] = ("exit", selectors.EVENT_READ)
        for number, rank in self.trial.ranks.others.items():
            other = rank.worker
            if rank.runs:
                if not other.channel.closed:
                    wanted[other.channel.stream.fileno()] = (
                        ("agent", number),
                        selectors.EVENT_READ,
                    )
                if other.pipe is not None:
                    wanted[other.pipe] = (("output", number), selectors.EVENT_READ)
                wanted[other.pidfd] = (("exit", number), selectors.EVENT_READ)
        if self.trial.images.fd is not None:
            wanted[self.trial.images.fd] = ("image", selectors.EVENT_READ)
        if self.trial.device_memory.fd is not None:
            wanted[self.trial.device_memory.fd] = ("device", selectors.EVENT_READ)
        if wanted == self._watched:
            return
        for fd in self._watched:
            self._selector.unregister(fd)
        for fd, (name, events) in wanted.items():
            self._selector.register(fd, events, name)
        self._watched = wanted

    def _ready(self, name: Any) -> ProgramLaunch | None:
        worker = self.trial.worker
        if isinstance(name, tuple):
            self._ready_of_rank(*name)
            return None
        if name == "listener":
            self._accept()
        elif name == "daemon":
            return self._read_daemon()
        elif name == "image":
            self.trial.hear_image()
        elif name == "device":
            self.trial.device_memory.hear()
        elif worker is not None and name == "agent":
            self.trial.hear_out()
        elif (
            worker is not None
            and name == "output"
            and worker.pipe is not None
            and not self.trial.output.pump(worker.pipe)
        ):
            # Registered again under the same number, a new pipe would be mistaken for this one.
            self._selector.unregister(worker.pipe)
            del self._watched[worker.pipe]
            os.close(worker.pipe)
            worker.pipe = None
        return None

    def _ready_of_rank(self, name: str, number: int) -> None:
        rank = self.trial.ranks.others.get(number)
        if rank is None or not rank.runs:
            return
        if name == "agent":
            self.trial.heard_of_rank(number)
        elif name == "output" and not self.trial.ranks.pump(number):
            assert rank.worker.pipe is not None
            self._unwatch((name, number))
            os.close(rank.worker.pipe)
            rank.worker.pipe = None

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        self._drop_daemon()
        self._daemon = FrameConnection(sock)

    def _drop_daemon(self) -> None:
        if self._daemon is not None:
            if self._watched.pop(self._daemon.stream.fileno(), None) is not None:
                self._selector.unregister(self._daemon.stream)
            self._daemon.close()
            self._daemon = None
            self._attached = self._rested = False
            self._alone_since = boottime()

    def _read_daemon(self) -> ProgramLaunch | None:
        daemon = self._daemon
        if daemon is None:
            return None
        daemon.flush()
        try:
            messages = daemon.read()
        except FrameError:
            messages, daemon.closed = [], True
        for message in messages:
            launch = self._request(message)
            if launch is not None:
                return launch
        if daemon.closed and daemon is self._daemon:
            self._drop_daemon()
        return None

    def _request(self, message: Message) -> ProgramLaunch | None:
        """Carry out one request; stale ones and unknown kinds (a newer daemon) do nothing."""
        kind, trial = message.get("kind"), self.trial
        if kind == "attach":
            self._attach(int(message.get("after", 0)))
        elif kind == "ack":
            trial.log.ack(int(message["seq"]))
        elif kind == "quit":
            self._quit = True
        elif kind == "lease":
            trial.lease_expires = float(message["expires_boottime"])
            trial.lease_grace = float(message.get("grace_seconds", trial.lease_grace))
        elif int(message.get("attempt", 0)) < trial.attempt:
            return None
        elif kind == "start":
            return trial.start(
                message["attempt"],
                message["restore"],
                message["limit_step"],
                message.get("cores"),
                bool(message.get("hold")),
            )
        elif kind == "resume":
            trial.resume(message["attempt"], message["limit_step"], message.get("cores"))
        elif kind == "suspend":
            trial.suspend(message["tier"], float(message["deadline_seconds"]))
        elif kind == "report":
            trial.report(message.get("at_step"))
        elif kind == "checkpoint":
            trial.checkpoint(message["id"])
        elif kind == "demote":
            trial.demote(message.get("id"), float(message.get("deadline_seconds", 60.0)))
        elif kind == "stop":
            trial.stop(float(message["deadline_seconds"]))
        elif kind == "kill":
            trial.kill()
        return None

    def _attach(self, after: int) -> None:
        if self._daemon is None:
            return
        trial, worker = self.trial, self.trial.worker
        self._daemon.send(
            {
                "kind": "attached",
                "trial": self.spec.trial,
                "attempt": trial.attempt,
                "phase": trial.phase,
                "worker_pid": worker.pid if worker is not None else None,
                "host_pid": os.getpid(),
                "step": trial.run.reached,
                "last_seq": trial.log.last_seq,
                # Said and acknowledged long ago, perhaps; a new daemon needs it all the same.
                **trial.run.standing,
            }
        )
        for event in trial.log.after(after):
            self._daemon.send(event)
        self._attached = True

    def _publish(self, event: Message) -> None:
        if self._daemon is not None and self._attached:
            self._daemon.send(event)

    def _reap(self) -> None:
        """Collect every child that has died: the trainer, and orphans that came to us. Of several
        trainers that are below another process, see which have died."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._unwatch("image", "device")
            if pid in self._seen:
                self._seen.remove(pid)
            elif not self.trial.tool_ended(pid, status):
                used_seconds = used.ru_utime + used.ru_stime
                self._ended(pid, status, used_seconds, used.ru_maxrss * 1024)
        for pid, status, cpu_seconds in list(self.trial.ranks.all_seen_ended()):
            if pid not in self._seen:
                self._seen.add(pid)
                self._ended(pid, status, cpu_seconds, 0)
        # The number of one that another process has reaped may come again.
        self._seen = {pid for pid in self._seen if how_ended(pid) is not None}

    def _ended(self, pid: int, status: int, cpu_seconds: float, memory_bytes: int) -> None:
        worker = self.trial.worker
        ways = ("agent", "output", "exit")
        self._unwatch(*ways, *product(ways, self.trial.ranks.others))
        if worker is not None and pid == worker.pid:
            self.trial.exited(status, cpu_seconds, memory_bytes)
        else:
            self.trial.rank_ended(pid, status, cpu_seconds, memory_bytes)

    def _unwatch(self, *names: Any) -> None:
        for fd, (name, _) in list(self._watched.items()):
            if name in names:
                self._selector.unregister(fd)
                del self._watched[fd]

    def _timeout(self) -> float | None:
        times = [self.trial.deadline()]
        if not self._attached:
            times.append(self._alone_since + self._patience_seconds)
        due = [time for time in times if time is not None]
        return max(0.0, min(due) - boottime()) if due else None

    def _tick(self, now: float) -> None:
        self.trial.tick(now)
        if self._attached:
            return
        alone = now - self._alone_since
        if alone < self._patience_seconds:
            return
        if self._rested or self._is_empty:
            self._quit = True
        else:
            # Nobody looks after the trial: a checkpoint if it has one to give, else parked.
            self._rested = True
            if self.trial.phase == "running" or self.trial.can_be_rebuilt:
                self.trial.suspend("checkpoint", self.trial.lease_grace, "orphan")

    @property
    def _is_empty(self) -> bool:
        """Whether there is no program: what it came to is written down for any daemon to read."""
        return self.trial.phase in ("idle", "ended")

    @property
    def _patience_seconds(self) -> float:
        """How long a daemon is waited for."""
        if self._is_empty:
            return _EMPTY_SECONDS
        return _FORGOTTEN_SECONDS if self._rested else self.spec.orphan_seconds

    def _leave(self) -> None:
        """In the forked child: close what belongs to the host."""
        self._selector.close()
        self._listener.close()
        if self._daemon is not None:
            self._daemon.stream.close()
        self.trial.log.close()
        self.trial.output.close()
        self.trial.ranks.leave()


def _listen(path: str) -> socket.socket:
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(old)
    listener.listen(4)
    return listener


def serve_trial(spec_path: str) -> ProgramLaunch | None:
    """Be the host of the trial; in a forked training process, what it is to run."""
    spec = Spec.load(spec_path)
    enter_cgroup(spec.cgroup_host)
    become_subreaper()
    os.makedirs(spec.checkpoints, exist_ok=True)
    checkpoint_dir.sweep(spec.checkpoints)
    deleted_files.forget_left(spec.checkpoints)
    return Host(spec).serve()


def main(argv: list[str]) -> None:
    """Cold start: one host, and on each fork one training process that leaves from here."""
    signals.unblock()
    if "PYTHONHASHSEED" not in os.environ:
        # Sets of strings must iterate in the same order in every process of a trial.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "trainer_shim.host", *argv], environment)
    launch = serve_trial(argv[0])
    if launch is not None:
        run_program(launch, {})


if __name__ == "__main__":
    main(sys.argv[1:])
