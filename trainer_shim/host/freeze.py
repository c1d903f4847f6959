"""Stops, wakes and ends everything that a training process has become.

A group counts as frozen only when every thread of it was seen stopped. With a cgroup (v2, or a v1
freezer) nothing escapes. Without one, the group is found as the host's descendants: the host is a
child subreaper, so a daemonized grandchild is still below it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection

from trainer_shim.program import connections

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# A process forked between two looks is found by the next: this many looks must be enough for
# any program but a fork bomb, which only a cgroup stops.
_LOOKS = 8
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CPU_TIMES = slice(
    11, 15
)  # among the fields from the state on: own and children's, user and system
_FLAGS, _EXIT_CODE = 6, 49
_IS_EXITING = 4  # a flag of a thread
_OWN_MEMORY = ("RssAnon:", "RssShmem:")
_MOVED = ("rchar:", "wchar:")


def become_subreaper() -> None:
    """Let orphaned descendants of this process become its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which forked it, is gone."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def enter_cgroup(path: str | None) -> None:
    """Move this process into the cgroup at `path`, if one is given."""
    if path is not None:
        _write(os.path.join(path, "cgroup.procs"), str(os.getpid()))


class WorkGroup:
    """The processes below `host`: all of the cgroup `cgroup` where there is one."""

    def __init__(self, host: int, cgroup: str | None) -> None:
        self._host = host
        self.tools: set[int] = set()  # children of the host that are not the program's
        self._is_held = False
        self._may_be_mute = False  # an image was made of it, or begun
        self._told_to_stop: set[int] = set()
        self._v2 = _file(cgroup, "cgroup.freeze")
        self._v1 = _file(cgroup, "freezer.state") if self._v2 is None else None
        self._events = _file(cgroup, "cgroup.events")
        self._killer = _file(cgroup, "cgroup.kill")
        self._procs = _file(cgroup, "cgroup.procs")
        self._memory = _file(cgroup, "memory.stat") if self._v2 is not None else None
        self._oom = _file(cgroup, "memory.events") or _file(cgroup, "memory.oom_control")

    def freeze(self) -> bool:
        """Stop every thread; whether all were seen stopped. Call again until they are."""
        if self._v2 is not None:
            _write(self._v2, "1")
            return self._events is not None and "frozen 1" in _read(self._events)
        if self._v1 is not None:
            _write(self._v1, "FROZEN")
            return _read(self._v1).strip() == "FROZEN"
        return self._stop_all()

    def hold(self) -> bool:
        """Freeze, by signals alone, as an image needs it; whether all threads were seen stopped.
        Call again until they are."""
        self._may_be_mute = True
        if (self._v2 is not None or self._v1 is not None) and not self._is_held:
            if not self.freeze():
                return False
            self._stop_all()
            self._is_held = True
            self._unfreeze()
        return self._stop_all()

    def is_brought_back(self) -> None:
        """What is in the group now was stopped by a signal when its image was made."""
        self._is_held = True

    def thaw(self) -> None:
        """Let every thread go on."""
        self._unfreeze()
        if self._may_be_mute:
            connections.go_on(self.members())
            self._may_be_mute = False
        self._told_to_stop.clear()
        if self._is_held or (self._v2 is None and self._v1 is None):
            self._is_held = False
            self._signal_all(signal.SIGCONT)

    def _unfreeze(self) -> None:
        if self._v2 is not None:
            _write(self._v2, "0")
        elif self._v1 is not None:
            _write(self._v1, "THAWED")

    def kill(self) -> None:
        """Kill every process, stopped ones included."""
        if self._killer is not None:
            _write(self._killer, "1")
            return
        for _ in range(_LOOKS):
            if not self._signal_all(signal.SIGKILL):
                break
        if self._v1 is not None:
            _write(self._v1, "THAWED")  # a v1 freezer holds back even SIGKILL

    def pin(self, cores: list[int], root: int = 0) -> None:
        """Keep every thread on these cores from now on; with `root`, those of it and below it."""
        for pid in {root, *descendants(root, ())} if root else self.members():
            for thread in _threads(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread, cores)

    def memory_bytes(self) -> int:
        """What the group holds that only its end gives back: no pages of files, which the kernel
        drops at need. A memory cgroup counts what processes share once, and for the first of them;
        without one it counts for each."""
        if self._memory is not None:
            counts = dict(line.split() for line in _read(self._memory).splitlines())
            return sum(int(counts.get(name, 0)) for name in ("anon", "shmem"))
        return sum(_own_memory_bytes(pid) for pid in self.members())

    def cpu_seconds(self) -> float:
        """CPU time of the group's processes, and of those that they have waited for."""
        ticks = 0
        for pid in self.members():
            fields = _stat(f"/proc/{pid}/stat")
            ticks += sum(map(int, fields[_CPU_TIMES])) if fields is not None else 0
        return ticks / _TICKS_PER_SECOND

    def moved_bytes(self) -> int:
        """What the group's processes have read and written, pipes and files."""
        lines = (
            line.split() for pid in self.members() for line in _read(f"/proc/{pid}/io").splitlines()
        )
        return sum(int(count) for name, count in lines if name in _MOVED)

    def out_of_memory_kills(self) -> int:
        """How many of the group's processes the kernel has killed for memory."""
        for line in _read(self._oom).splitlines() if self._oom is not None else ():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
        return 0

    def members(self) -> set[int]:
        """The process ids of the group, zombies left out."""
        pids = descendants(self._host, self.tools)
        if self._procs is not None:
            pids.update(int(pid) for pid in _read(self._procs).split())
        return pids - {self._host} - self.tools

    def _stop_all(self) -> bool:
        seen: set[int] = set()
        for _ in range(_LOOKS):
            members = self.members()
            # Once: of a process that has stopped already, another would wait to be delivered, and
            # no image can be made of it.
            _signal(members - self._told_to_stop, signal.SIGSTOP)
            self._told_to_stop |= members
            if members == seen:
                break
            seen = members
        going = {pid: states for pid in seen if (states := _going(pid))}
        for pid, states in going.items():
            if "D" in states:
                # It may wait for a child that it has forked (vfork) to begin a program: a child
                # that is stopped before that would let it neither go on nor stop.
                _signal(_children(pid), signal.SIGCONT)
                self._told_to_stop -= _children(pid)
        return not going

    def _signal_all(self, number: int) -> set[int]:
        members = self.members()
        _signal(members, number)
        return members


def _signal(pids: Collection[int], number: int) -> None:
    # Parents are older than their children, and must not outlive them to see how they end.
    for pid in sorted(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def how_ended(pid: int) -> tuple[int, float] | None:
    """Exit status and CPU seconds of a process that is over and was not reaped yet."""
    fields = _stat(f"/proc/{pid}/stat")
    if fields is None or fields[0] not in "ZX":
        return None
    return int(fields[_EXIT_CODE]), sum(map(int, fields[_CPU_TIMES])) / _TICKS_PER_SECOND


def is_dying(pid: int) -> bool:
    """Whether a process is on its way out, or over: others may see that it has closed its
    connections before it counts as ended."""
    stats = (_stat(f"/proc/{pid}/task/{thread}/stat") for thread in _threads(pid))
    return all(fields is None or int(fields[_FLAGS]) & _IS_EXITING for fields in stats)


def descendants(pid: int, without: Collection[int]) -> set[int]:
    """The living processes below a process, but for some and what is below those."""
    found: set[int] = set()
    unseen = [pid]
    while unseen:
        children = _children(unseen.pop()) - found - set(without)
        new = {child for child in children if _alive(child)}
        found |= new
        unseen += new
    return found


def _children(pid: int) -> set[int]:
    paths = (f"/proc/{pid}/task/{thread}/children" for thread in _threads(pid))
    return {int(child) for path in paths for child in _read(path).split()}


def _alive(pid: int) -> bool:
    """Whether any thread of a process is alive: its first one may be over before the others."""
    return any(
        (fields := _stat(f"/proc/{pid}/task/{thread}/stat")) is not None and fields[0] not in "ZX"
        for thread in _threads(pid)
    )


def _going(pid: int) -> set[str]:
    """The states of those threads of a process that are not stopped."""
    stats = (_stat(f"/proc/{pid}/task/{thread}/stat") for thread in _threads(pid))
    return {fields[0] for fields in stats if fields is not None} - set("TtZX")


def _own_memory_bytes(pid: int) -> int:
    lines = map(str.split, _read(f"/proc/{pid}/status").split("\n"))
    return sum(int(words[1]) for words in lines if words[:1] and words[0] in _OWN_MEMORY) << 10


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _stat(path: str) -> list[str] | None:
    """The fields of a stat file from the state on: the command's name may hold spaces."""
    text = _read(path)
    return text[text.rindex(")") + 2 :].split() if text else None


def _file(cgroup: str | None, name: str) -> str | None:
    path = os.path.join(cgroup, name) if cgroup is not None else ""
    return path if os.path.exists(path) else None


def _read(path: str) -> str:
    """The text of a small kernel file; nothing when what it was about is gone."""
    try:
        # What a process calls itself is of any bytes.
        with open(path, encoding="latin-1", newline="\n") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
