"""The processes of a trial that has several: one for each of its devices, as torchrun starts them.

Rank 0 is the trial: its reports count, its checkpoint includes what the others have saved, and it
ends last. All stop at the same step, since one that waited at a boundary would keep the others from
theirs, if they need it for an all-reduce. So the host tells each to hold one step after the
furthest of them, and tells them a later step whenever one had already passed that when it got the
message. This comes to an end: a program reads its messages at the next boundary, stores its step
before it looks, and stores where it was told to hold before it does: one that has stored both holds
at that step, or at its own if that is later, and nobody need go further for its sake.
"""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_shim import file_moves
from trainer_shim.channel.frames import Message
from trainer_shim.channel.page import NO_LIMIT
from trainer_shim.host.freeze import WorkGroup
from trainer_shim.host.imaging import Arrival
from trainer_shim.host.output import Output
from trainer_shim.host.worker import Start, Worker, outcome_of_status
from trainer_shim.saver import rank_folder
from trainer_shim.spec import Spec, named_cores

_ADDRESS = "127.0.0.1"
# Below them are the ports of well-known services, above them those that Kubernetes forwards.
_PORTS = 20_000, 30_000
_PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_USUAL_RANGE = 32_768, 60_999  # Linux's own, where a container hides that file
# PyTorch's processes meet at a store, one of two; the usual one has an io_uring, which no image
# holds. 0 is the other one.
_STORE = "USE_LIBUV"


@dataclass
class Rank:
    """One of a trial's other processes."""

    number: int
    worker: Worker
    output: Output
    #: The step at which it waits.
    held: int | None = None
    #: Where it has saved what belongs to the checkpoint being made.
    saved: str | None = None
    #: What it has saved as it ended.
    part: Message | None = None
    said: Message | None = None
    #: How it has ended.
    status: int | None = None
    #: It comes to no boundaries.
    is_blind: bool = False

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.status is None


class OtherRanks:
    """Those of one trial; without any, all of this does nothing."""

    def __init__(self, spec: Spec, group: WorkGroup) -> None:
        self._spec = spec
        self._group = group
        self._first: Worker | None = None
        self._first_held: int | None = None
        self._saving: str | None = None
        self._is_fork = False
        self._at = 0  # where all are told to hold; 0: nowhere
        self._fork_at = 0  # where those that come there wait for a checkpoint of all; 0: nowhere
        self._gone_on_from = 0  # the furthest step at which some held, and went on
        self.others: dict[int, Rank] = {}
        self._outputs: dict[int, Output] = {}  # of those that are about to be there
        self._locks: dict[int, socket.socket] = {}  # by the port that each is for
        self._expected: Message | None = None  # their state, if an image is being brought back
        self.failed: Message | None = None  # how the one of them that failed first did
        self.are_ended = False  # by us
        self.are_cut_off = False  # some of them by that, on the way to their own end
        self.cpu_seconds, self.memory_bytes = 0.0, 0  # of those that have ended

    # Their beginning and end.

    def environments(self, are_imaged: bool) -> list[dict[str, str]]:
        """What each process is told of the others."""
        count = len(self._spec.ranks)
        self._leave_ports()
        self._locks = _take_ports(count)
        ports = list(self._locks)
        workers = [f"{_ADDRESS}:{port}" for port in ports]
        return [
            {
                "RANK": str(number),
                "LOCAL_RANK": str(number),
                "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": str(count),
                "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1",
                "ROLE_NAME": "default",
                "ROLE_RANK": str(number),
                "ROLE_WORLD_SIZE": str(count),
                # By this frameworks know that they are not to start the processes themselves.
                "TORCHELASTIC_RUN_ID": "hermes",
                "TORCHELASTIC_RESTART_COUNT": "0",
                "TORCHELASTIC_MAX_RESTARTS": "0",
                "MASTER_ADDR": _ADDRESS,
                "MASTER_PORT": str(ports[0]),
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": workers},
                        "task": {"type": "worker", "index": number},
                    }
                ),
                **({_STORE: self._spec.env.get(_STORE, "0")} if are_imaged else {}),
                **environment,
            }
            for number, environment in enumerate(self._spec.ranks)
        ]

    def starts(
        self,
        environments: Sequence[Mapping[str, str]],
        attempt: int,
        restore: str | None,
        limit: int | None,
        memory: str | None,
    ) -> list[Start]:
        """What those after the first are given, in these environments."""
        starts = []
        for number, environment in enumerate(environments[1:], 1):
            spec = self._spec.of_rank(number, environment)
            file_moves.remove_tree(spec.checkpoints)
            for folder in (spec.checkpoints, spec.files):
                os.makedirs(folder, exist_ok=True)
            output = self._output_of(number, spec)
            own = None if restore is None else os.path.join(restore, rank_folder(number))
            # What a trial of fewer processes has saved, all of them begin with.
            source = own if own is not None and os.path.isdir(own) else restore
            if source is not None:
                output.hold_back()
            start = Start(spec, attempt, source, limit, None, output, memory, number)
            starts.append(start)
        return starts

    def _output_of(self, number: int, spec: Spec) -> Output:
        self._outputs[number] = Output(spec.output, spec.output_limit_bytes)
        return self._outputs[number]

    def leave(self) -> None:
        """In a child: close what belongs to the host."""
        for output in self._outputs.values():
            output.close()
        self._leave_ports()

    def _leave_ports(self) -> None:
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    def begin(self, first: Worker, others: Mapping[int, Worker]) -> None:
        """They are there, by their numbers."""
        self._first, self._first_held, self.failed = first, None, None
        self._at, self._saving, self.are_ended, self.are_cut_off = 0, None, False, False
        self._fork_at = self._gone_on_from = 0
        self.cpu_seconds, self.memory_bytes = 0.0, 0
        for number, worker in others.items():
            self.others[number] = Rank(number, worker, self._outputs.pop(number))

    # An image of all of them.

    def mark(self, id: str) -> None:
        """Of what was printed, this was before the image."""
        for rank in self._running():
            rank.output.mark(id, rank.worker.pipe)

    def state(self) -> Message:
        """What is known of them, which are stopped, for whoever brings them back."""
        others = {
            rank.number: {**rank.worker.state(), "held": rank.held, "is_blind": rank.is_blind}
            for rank in self._running()
        }
        places = {"held": self._first_held, "gone_on_from": self._gone_on_from}
        ports = list(self._locks)
        return {"count": len(self._spec.ranks), "others": others, "ports": ports, **places}

    def expect(
        self,
        said: Message | None,
        arrivals: dict[int, Arrival],
        path: str,
        memory: str | None,
    ) -> None:
        """Those of this `state` are about to be brought back from the image at `path`: they are put
        among the `arrivals`. No other trial is to take the ports at which they meet."""
        self._expected = said
        self._leave_ports()
        for port in said.get("ports", ()) if said is not None else ():
            if (lock := _locked(int(port))) is not None:
                self._locks[int(port)] = lock
        for name, state in said["others"].items() if said is not None else ():
            if not 0 < (number := int(name)) < len(self._spec.ranks):
                raise ValueError("one of its processes has a number that none can have")
            spec = self._spec.of_rank(number, {})
            for folder in (spec.checkpoints, spec.files):
                os.makedirs(folder, exist_ok=True)
            output = self._output_of(number, spec)
            output.go_on_from(os.path.basename(path))
            arrivals[number] = Arrival(state, output, memory, number)

    def are_back(self, first: Worker, others: Mapping[int, Worker]) -> None:
        """All are there, stopped as they were expected."""
        self.begin(first, others)
        said, self._expected = self._expected, None
        if said is None:
            return
        self._first_held, self._gone_on_from = said["held"], said["gone_on_from"]
        for number, worker in {0: first, **others}.items():
            if (cores := named_cores(self._spec.ranks[number])) is not None:
                self._group.pin(cores, worker.pid)
        for number, rank in self.others.items():
            state = said["others"][str(number)]
            rank.held, rank.is_blind = state["held"], state["is_blind"]

    def ended(
        self,
        pid: int,
        status: int,
        cpu_seconds: float,
        memory_bytes: int,
        is_first_gone: bool,
    ) -> bool:
        """Whether a process that was reaped, having used this, is one of them; how it ended, if
        badly, is kept. Of `is_first_gone` see `heard`."""
        rank = next((each for each in self._running() if each.worker.pid == pid), None)
        if rank is None:
            return False
        for message in rank.worker.channel.read():
            self.heard(rank.number, message, is_first_gone)
        rank.status = status
        self.cpu_seconds += cpu_seconds
        self.memory_bytes += memory_bytes
        if rank.worker.pipe is not None:
            rank.output.pump(rank.worker.pipe)
        rank.worker.release()
        bad = status != 0 or (rank.said is not None and rank.said["kind"] == "failed")
        rank.output.let_through(show=bad)
        rank.output.close()
        if bad and rank.said is None and self.are_ended:
            self.are_cut_off = self.are_cut_off or self.failed is None
        elif bad and rank.said is None:
            outcome = outcome_of_status(status, False, None)
            # Nothing that comes of another's end ends it by SIGKILL. Without a word, it was before
            # those whom it has left alone.
            is_cause = not is_first_gone or status == signal.SIGKILL
            self._fails(rank, {**outcome, "failed_at": 0.0 if is_cause else math.inf})
        return True

    def first_has_ended(self, attempt: int) -> None:
        """The first one has ended well, so they can't hold with it any more: the others go on to
        their own end."""
        self.limit(None)
        self.go_on(attempt, is_first_told=True)
        self._first = None

    def _fails(self, rank: Rank, outcome: Message) -> None:
        """One has failed: the others are of no use any more, and what they say comes of it."""
        if self.failed is None or outcome["failed_at"] < self.failed["failed_at"]:
            detail = f"rank {rank.number}: {outcome['detail']}"
            if outcome.get("error_kind") == "exit" and (line := rank.output.last_line()):
                detail += f": {line}"
            self.failed = {**outcome, "kind": "failed", "detail": detail, "rank": rank.number}
        self.end()

    def end(self) -> None:
        """End all that is left."""
        self.are_ended = True
        self._group.kill()

    def release(self) -> None:
        """All have ended, or been killed: let go of what was theirs."""
        for rank in self._running():
            if rank.worker.pipe is not None:
                rank.output.pump(rank.worker.pipe)
            rank.output.let_through()
            rank.worker.release()
            rank.output.close()
        self.others.clear()
        self.leave()
        self._outputs.clear()
        self._first, self._first_held = None, None

    @property
    def are_left(self) -> bool:
        """Whether any of them has not ended."""
        return any(rank.runs for rank in self.others.values())

    def _running(self) -> list[Rank]:
        return [rank for rank in self.others.values() if rank.runs]

    # What they say.

    def pump(self, number: int) -> bool:
        """Move what a process has printed; False once it prints no more."""
        rank = self.others[number]
        assert rank.worker.pipe is not None
        return rank.output.pump(rank.worker.pipe)

    def heard(self, number: int, message: Message, is_first_gone: bool) -> None:
        """One frame of another than the first; what it reports is not told again. If the first is
        gone without a word, what another says of its end comes of that."""
        rank = self.others[number]
        kind = message.get("kind")
        if kind == "blind":
            rank.is_blind = True
        elif kind == "restored":
            rank.output.let_through()
            rank.worker.tell("restored")
        elif kind in ("failed", "completed") and rank.said is None:
            rank.said = message
            if kind == "failed":
                said = {**message, "failed_at": math.inf} if is_first_gone else message
                self._fails(rank, said)
        elif kind == "part":
            rank.part = message
        elif kind == "checkpointed" and message["id"] == self._saving:
            rank.saved = message["path"]
            self._save_first()

    # The same step.

    def halt(self) -> None:
        """Have all hold at one and the same step."""
        self._at = 0
        self._aim()

    def holds(self, number: int, step: int, for_fork: bool = False) -> bool:
        """A process waits at a boundary; whether by now all do, at the same.

        Where others are to go on from (`for_fork`), each waits by itself, and goes no further
        whatever it is told: only those that hold before it are told to come there, too.
        """
        if not self.others:
            return True
        if for_fork:
            self._fork_at, self._at = step, 0
        if step < self._at:
            return False  # before this was heard, it was told to go on and hold later
        if number == 0:
            self._first_held = step
        else:
            self.others[number].held = step
        if self.all_hold_at() == step:
            return True
        if self._fork_at:
            self._bring_on(self._fork_at)
        elif self._at:
            self._aim()
        return False

    def all_hold_at(self) -> int | None:
        """The one step at which all wait that come to boundaries, if they do; some may have ended
        since others began to wait."""
        held = {held for _, held in self._looping()}
        if len(held) != 1 or None in held:
            return None
        self._at = 0
        return held.pop()

    def _looping(self) -> Iterator[tuple[Worker, int | None]]:
        """Those that come to boundaries, each with the step at which it waits."""
        if self._first is not None:
            yield self._first, self._first_held
        for rank in self._running():
            # One that is in no loop yet, or between two passes, comes to the next one.
            if not rank.is_blind:
                yield rank.worker, rank.held

    def _aim(self) -> None:
        while True:
            aim = max((self._next_hold(*each) for each in self._looping()), default=0)
            if aim <= self._at:
                return
            self._at = aim
            self._bring_on(aim, are_all_told=True)

    def _next_hold(self, worker: Worker, held: int | None) -> int:
        """The first step at which a process can be held, if it was told nothing more."""
        page = worker.page
        if held is not None:
            return held
        if page.halt == self._at:
            return max(page.step, self._at)
        # None goes beyond the limit that all of them have.
        return min(page.step + 1, page.limit)

    def _bring_on(self, aim: int, are_all_told: bool = False) -> None:
        """Have those that wait before a step hold there; be all of them told so, or those alone."""
        for worker, held in list(self._looping()):
            is_behind = held is not None and held < aim
            if are_all_told or is_behind:
                worker.tell("halt", at=aim)
        if self._first_held is not None and self._first_held < aim:
            self._first_held = None
        for rank in self._running():
            if rank.held is not None and rank.held < aim:
                rank.held = None

    def all_seen_ended(self) -> Iterator[tuple[int, int, float]]:
        """Process number, exit status and CPU seconds of those that are over and not the host's to
        reap, the first one of them included."""
        workers = [rank.worker for rank in self._running()]
        for worker in workers if self._first is None else [*workers, self._first]:
            if (end := worker.end_seen()) is not None:
                yield (worker.pid, *end)

    def limit(self, step: int | None) -> None:
        """Have the others hold by themselves at the step at which the first one does."""
        for rank in self._running():
            rank.worker.page.limit = NO_LIMIT if step is None else step

    def tell(self, number: int, kind: str, **fields: Any) -> None:
        """Tell one of the processes."""
        worker = self.others[number].worker if number else self._first
        if worker is not None:
            worker.tell(kind, **fields)

    def awaits(self, step: int) -> bool:
        """Whether all may yet hold at a step: none has gone on from there, or from a later one."""
        return step > self._gone_on_from

    def go_on(self, attempt: int, is_first_told: bool) -> None:
        """Tell those that wait to go on, and the first one unless it is told by others."""
        held = [held for _, held in self._looping() if held is not None]
        self._at = self._fork_at = 0
        self._saving = None  # what one of them has saved too late is no part of anything
        self._gone_on_from = max(held, default=self._gone_on_from)
        for rank in self._running():
            if rank.held is not None:
                rank.held = None
                rank.worker.tell("resume", attempt=attempt)
        if self._first is not None and self._first_held is not None and not is_first_told:
            self._first.tell("resume", attempt=attempt)
        self._first_held = None

    # A checkpoint.

    def save(self, id: str, is_fork: bool) -> None:
        """Have every process that waits save its own, and then the first one all of it."""
        self._saving, self._is_fork = id, is_fork
        for rank in self._running():
            rank.saved = None
            if rank.held is not None:
                rank.worker.tell("save", id=id, wait=True)
        self._save_first()

    def parts(self, step: int) -> tuple[dict[str, str], list[int]]:
        """What the others have saved as they ended, if after this step, by the folders that it
        comes to lie in; and who of them has saved nothing of the kind."""
        ends = {rank.number: rank.part for rank in self.others.values()}
        there = {n: part["path"] for n, part in ends.items() if part and part["step"] == step}
        return {rank_folder(n): path for n, path in there.items()}, sorted(ends.keys() - there)

    def _save_first(self) -> None:
        waits = [rank for rank in self._running() if rank.held is not None]
        if self._first is not None and all(rank.saved is not None for rank in waits):
            saved = {rank.number: rank.saved for rank in waits}
            of_others = list(saved.items())
            self.tell(0, "save", id=self._saving, wait=True, is_fork=self._is_fork, ranks=of_others)
            self._saving = None


def _take_ports(count: int) -> dict[int, socket.socket]:
    """Ports that nobody has now, each with a lock: while that is open, no other host takes it.

    The kernel gives them to nobody who just wants any, where it leaves enough for that; else they
    are from the upper half of what it gives. Raises OSError where too few can be had.
    """
    taken: dict[int, socket.socket] = {}
    if not count:
        return taken
    first, last = _ephemeral()
    least, most = _PORTS
    middle = (first + last + 1) // 2
    ports = [
        *_from_anywhere([*range(least, min(most, first)), *range(last + 1, 1 << 16)]),
        *_from_anywhere(range(middle, last + 1)),
        *range(first, middle),
    ]
    for port in ports:
        if len(taken) == count:
            break
        if (lock := _locked(port)) is None:
            continue
        try:
            with socket.socket() as probe:
                probe.bind((_ADDRESS, port))
            taken[port] = lock
        except OSError:
            lock.close()
    if len(taken) < count:
        for lock in taken.values():
            lock.close()
        raise OSError(
            errno.EADDRINUSE,
            f"a trial of {count} processes needs as many ports of {_ADDRESS}, and only"
            f" {len(taken)} are free",
        )
    return taken


def _ephemeral() -> tuple[int, int]:
    """The first and last of the ports that the kernel gives to those who want any."""
    try:
        with open(_PORT_RANGE) as file:
            first, last = map(int, file.read().split())
    except (OSError, ValueError):
        return _USUAL_RANGE
    return first, last


def _from_anywhere(ports: Sequence[int]) -> list[int]:
    """All of them, beginning at a random one."""
    begin = int.from_bytes(os.urandom(4), "big") % max(1, len(ports))
    return [*ports[begin:], *ports[:begin]]


def _locked(port: int) -> socket.socket | None:
    """Keeps other hosts from a port while it is open; None where one of them has it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0hermes-port-{port}")  # a name, as the ports are, of this network
    except OSError:
        lock.close()
        return None
    return lock
