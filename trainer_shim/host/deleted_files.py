"""Gives deleted files that a stopped program has mapped a name for a while.

Semaphores of `multiprocessing`, memory that PyTorch's workers share, and memory files are of this
kind. CRIU can read them only as root of the machine. So what is mapped is copied to a file with a
name in shared memory, and every process that has it mapped or open is made to use that instead, by
system calls that it makes on our behalf while it is stopped. The name is removed again when the
image has been written, and when the program has been restored from it. It says whose it is, so that
it can be found where whoever had to remove it was killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import re
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from trainer_shim.host.world import SHARED_MEMORY

_PREFIX = "hermes-mapped-"
_DELETED = " (deleted)"
# Memory without a file, which the kernel shows as one: CRIU knows it.
_NO_FILES = ("/dev/zero", "/SYSV", "/[aio]", "/anon_hugepage")
_MAP = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) (\d+) +(.*)")
_CHUNK = 1 << 20
_STOP_SECONDS, _POLL_SECONDS = 5.0, 0.0005
# <linux/ptrace.h>, and the system calls and registers of x86-64.
_CONT_STEP, _GETREGS, _SETREGS, _DETACH, _SEIZE, _INTERRUPT = 9, 12, 13, 17, 0x4206, 0x4207
_CLOSE, _LSEEK, _MMAP, _OPENAT, _DUP3 = 3, 8, 9, 257, 292
_REGISTERS, _RAX, _ORIG_RAX, _RIP, _RSP = 27, 10, 15, 16, 19
_ARGUMENTS = (14, 13, 12, 7, 9, 8)  # rdi, rsi, rdx, r10, r8, r9
_SYSCALL = b"\x0f\x05"
_RED_ZONE = 128
_WALL = 0x40000000
_ERRORS_FROM = 2**64 - 4095


@dataclass(frozen=True)
class _Mapping:
    pid: int
    start: int
    end: int
    protection: int
    offset: int


@dataclass
class _Deleted:
    """One file, and where it is to be found."""

    mappings: list[_Mapping] = field(default_factory=list)
    open: list[tuple[int, int]] = field(default_factory=list)  # process and descriptor


class HalfDone(OSError):
    """Of the processes that have shared a file some have another one now."""


@contextlib.contextmanager
def named(pids: Collection[int], whose: str) -> Iterator[None]:
    """Within, the shared files that the processes have mapped have names, which tell that they are
    those of the trial whose checkpoints are at `whose`. Raises OSError."""
    names = f"{_names_of(whose)}{os.urandom(8).hex()}-"
    try:
        if platform.machine() == "x86_64":
            for number, file in enumerate(_deleted(pids).values()):
                _give_name(file, os.path.join(SHARED_MEMORY, f"{names}{number}"))
        yield
    finally:
        forget(name for name in os.listdir(SHARED_MEMORY) if name.startswith(names))


def forget(names: Iterable[str]) -> None:
    """Take the names away again that were given to files in shared memory."""
    for name in names:
        if name.startswith(_PREFIX):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(SHARED_MEMORY, name))


def forget_left(whose: str) -> None:
    """Take all names away that the files of a trial had been given, of which none is needed."""
    names = _names_of(whose)
    with contextlib.suppress(FileNotFoundError):  # there is no shared memory here
        forget(name for name in os.listdir(SHARED_MEMORY) if name.startswith(names))


def _names_of(whose: str) -> str:
    """How they begin; hermesd.node.runner.cleanup knows it, too."""
    return f"{_PREFIX}{hashlib.sha256(os.fsencode(whose)).hexdigest()[:12]}-"


def _deleted(pids: Collection[int]) -> dict[tuple[int, int], _Deleted]:
    """The files that are mapped to be shared, and deleted, by device and inode."""
    found: dict[tuple[int, int], _Deleted] = {}
    for pid in pids:
        with open(f"/proc/{pid}/maps", errors="replace") as maps:
            for line in maps:
                if (parts := _MAP.match(line)) is None:
                    continue
                start, end, kinds, offset, device, inode, name = parts.groups()
                if "s" in kinds and name.endswith(_DELETED) and not name.startswith(_NO_FILES):
                    major, _, minor = device.partition(":")
                    key = os.makedev(int(major, 16), int(minor, 16)), int(inode)
                    bits = sum(bit for bit, sign in ((1, "r"), (2, "w"), (4, "x")) if sign in kinds)
                    mapping = _Mapping(pid, int(start, 16), int(end, 16), bits, int(offset, 16))
                    found.setdefault(key, _Deleted()).mappings.append(mapping)
    for pid in pids if found else ():
        for name in os.listdir(f"/proc/{pid}/fd"):
            state = os.stat(f"/proc/{pid}/fd/{name}")
            if (state.st_dev, state.st_ino) in found:
                found[state.st_dev, state.st_ino].open.append((pid, int(name)))
    return found


def _give_name(file: _Deleted, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _copy(file, target)
    finally:
        os.close(target)
    try:
        for pid in {mapping.pid for mapping in file.mappings} | {pid for pid, _ in file.open}:
            with _Puppet(pid) as puppet:
                for mapping in file.mappings:
                    if mapping.pid == pid:
                        puppet.take_mapping(mapping, path)
                for owner, fd in file.open:
                    if owner == pid:
                        puppet.take_open(fd, path)
    except OSError as error:
        raise HalfDone(f"a file that it shares could not be replaced: {error}") from error


def _copy(file: _Deleted, target: int) -> None:
    """What is in the file: from a descriptor, else as far as it is mapped."""
    if file.open:
        pid, fd = file.open[0]
        with open(f"/proc/{pid}/fd/{fd}", "rb") as source:
            size = os.fstat(source.fileno()).st_size
            os.ftruncate(target, size)
            os.lseek(target, 0, os.SEEK_SET)
            while data := source.read(_CHUNK):
                _write_at(target, os.lseek(target, 0, os.SEEK_CUR), data)
                os.lseek(target, len(data), os.SEEK_CUR)
        return
    for mapping in file.mappings:
        with open(f"/proc/{mapping.pid}/mem", "rb", buffering=0) as memory:
            at = mapping.start
            while at < mapping.end:
                memory.seek(at)
                try:
                    data = memory.read(min(_CHUNK, mapping.end - at))
                except OSError:  # the file ends before its mapping does
                    break
                place = mapping.offset + at - mapping.start
                os.ftruncate(target, max(os.fstat(target).st_size, place + len(data)))
                _write_at(target, place, data)
                at += len(data)


def _write_at(target: int, place: int, data: bytes) -> None:
    """Leave holes where there is nothing: they take no memory."""
    if data.strip(b"\0"):
        os.pwrite(target, data, place)


def _stopped_thread(pid: int) -> int:
    """One of the process's threads, of which the first may be over. Who was let go stops again."""
    until = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < until:
        for name in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
            with open(f"/proc/{pid}/task/{name}/stat", encoding="latin-1") as file:
                if file.read().rpartition(")")[2].split()[0] == "T":
                    return int(name)
        time.sleep(_POLL_SECONDS)
    raise OSError(f"process {pid} is not stopped")


class _Puppet:
    """A stopped process that makes system calls on our behalf, and goes on as if it had not."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._thread = _stopped_thread(pid)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [
            ctypes.c_long,
            ctypes.c_long,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        self._libc.ptrace.restype = ctypes.c_long

    def __enter__(self) -> _Puppet:
        self._ptrace(_SEIZE)
        self._ptrace(_INTERRUPT)
        os.waitpid(self._thread, _WALL)
        self._registers = self._get()
        self._memory = os.open(f"/proc/{self._pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        self._instruction = self._find_instruction()
        return self

    def __exit__(self, *_: object) -> None:
        self._set(self._registers)
        os.close(self._memory)
        self._ptrace(_DETACH)
        _stopped_thread(self._pid)

    def take_mapping(self, mapping: _Mapping, path: str) -> None:
        """Have the file at `path` where this one is mapped."""
        fd = self._open(path, os.O_RDWR | os.O_CLOEXEC)
        size, shared_fixed = mapping.end - mapping.start, 0x01 | 0x10
        start, bits, offset = mapping.start, mapping.protection, mapping.offset
        self._call(_MMAP, start, size, bits, shared_fixed, fd, offset)
        self._call(_CLOSE, fd)

    def take_open(self, fd: int, path: str) -> None:
        """Have the file at `path` open under this number."""
        with open(f"/proc/{self._pid}/fdinfo/{fd}") as file:
            said = dict(line.split(":", 1) for line in file if ":" in line)
        flags, at = int(said["flags"], 8), int(said["pos"])
        new = self._open(path, flags & ~os.O_CREAT & ~os.O_EXCL & ~os.O_TRUNC & ~os.O_TMPFILE)
        self._call(_LSEEK, new, at, os.SEEK_SET)
        self._call(_DUP3, new, fd, flags & os.O_CLOEXEC)
        self._call(_CLOSE, new)

    def _open(self, path: str, flags: int) -> int:
        words = os.fsencode(path) + b"\0"
        place = self._registers[_RSP] - _RED_ZONE - 2 * len(words)
        before = os.pread(self._memory, len(words), place)
        os.pwrite(self._memory, words, place)
        try:
            at_cwd = 2**64 - 100
            return self._call(_OPENAT, at_cwd, place, flags, 0)
        finally:
            os.pwrite(self._memory, before, place)

    def _call(self, number: int, *arguments: int) -> int:
        registers = (ctypes.c_uint64 * _REGISTERS)(*self._registers)
        for place, value in zip(_ARGUMENTS, arguments):
            registers[place] = value
        registers[_RAX], registers[_RIP] = number, self._instruction
        registers[_ORIG_RAX] = 2**64 - 1  # the call that it was stopped in is not made again yet
        self._set(registers)
        while True:
            self._ptrace(_CONT_STEP)
            _, status = os.waitpid(self._thread, _WALL)
            if not os.WIFSTOPPED(status):
                raise OSError(f"process {self._pid} has ended")
            if os.WSTOPSIG(status) == signal.SIGTRAP and status >> 16 == 0:
                break
        answer = int(self._get()[_RAX])
        if answer >= _ERRORS_FROM:
            raise OSError(2**64 - answer, os.strerror(2**64 - answer))
        return answer

    def _find_instruction(self) -> int:
        """Where the kernel's own library in the process makes a system call."""
        with open(f"/proc/{self._pid}/maps", errors="replace") as maps:
            line = next((line for line in maps if line.rstrip().endswith("[vdso]")), "")
        if (parts := _MAP.match(line)) is None:
            raise OSError(f"process {self._pid} has no vdso")
        start, end = int(parts[1], 16), int(parts[2], 16)
        found = os.pread(self._memory, end - start, start).find(_SYSCALL)
        if found < 0:
            raise OSError("the vdso makes no system call")
        return start + found

    def _get(self) -> ctypes.Array[ctypes.c_uint64]:
        registers = (ctypes.c_uint64 * _REGISTERS)()
        self._ptrace(_GETREGS, ctypes.addressof(registers))
        return registers

    def _set(self, registers: ctypes.Array[ctypes.c_uint64]) -> None:
        self._ptrace(_SETREGS, ctypes.addressof(registers))

    def _ptrace(self, request: int, data: int = 0) -> None:
        if self._libc.ptrace(request, self._thread, None, data) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"ptrace: {os.strerror(number)}")
