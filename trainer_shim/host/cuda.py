"""The NVIDIA driver's checkpoint: moves what processes have on a GPU to the host's memory, and
back.

The calls are those of "CUDA Checkpointing" in NVIDIA's CUDA Driver API, which drivers before 570
lack. They are made in a child process, since a fault in the driver's library must end no host.
`python -m trainer_shim.host.cuda` tries them out on a process of its own, and prints as JSON how
long they took, or what went wrong; `hermesd node` runs it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Collection
from typing import Any

LIBRARY = "libcuda.so.1"
LOCK_SECONDS = 10.0
_NOT_INITIALIZED = 3  # said of a process that uses no GPU
# How the driver says that there is no room on a GPU.
FULL = "CUDA_ERROR_OUT_OF_MEMORY"
_STATES = ("running", "locked", "checkpointed", "failed")
_TRIED_BYTES = 4 << 20
_READY = b"ready"
_STANDARD = 3  # descriptors that every program has


class CudaError(Exception):
    """The driver refused a call, or there is none; `code` is the driver's, 0 without one."""

    def __init__(self, words: str, code: int = 0) -> None:
        super().__init__(words)
        self.code = code


class _LockArgs(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class CudaDriver:
    """The driver's calls about other processes of this user. Each raises CudaError."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise CudaError(f"there is no {LIBRARY} ({error})") from None
        if not hasattr(self._library, "cuCheckpointProcessLock"):
            raise CudaError("the driver is older than 570")
        self.call("cuInit", 0)

    def call(self, name: str, *args: object) -> None:
        """Any function of the library. Raises CudaError unless it says 0."""
        code = getattr(self._library, name)(*args)
        if code != 0:
            said = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(said))
            raise CudaError(f"{name}: {(said.value or b'unknown error').decode()}", code)

    def state(self, pid: int) -> str:
        """How the process is: running, locked, checkpointed or failed; empty if it uses no GPU."""
        state = ctypes.c_int()
        try:
            self.call("cuCheckpointProcessGetState", pid, ctypes.byref(state))
        except CudaError as error:
            if error.code == _NOT_INITIALIZED:
                return ""
            raise
        return _STATES[state.value] if 0 <= state.value < len(_STATES) else str(state.value)

    def lock(self, pid: int) -> None:
        """Hold back its calls of the driver, once the work that it has submitted is done."""
        arguments = _LockArgs(int(LOCK_SECONDS * 1e3))
        self.call("cuCheckpointProcessLock", pid, ctypes.byref(arguments))

    def checkpoint(self, pid: int) -> None:
        """Move what the locked process has on its GPU into its memory."""
        self.call("cuCheckpointProcessCheckpoint", pid, None)

    def restore(self, pid: int) -> None:
        """Move it back; the process is locked then. If the GPU is too full, it is lost."""
        self.call("cuCheckpointProcessRestore", pid, None)

    def unlock(self, pid: int) -> None:
        """Let its calls of the driver go on."""
        self.call("cuCheckpointProcessUnlock", pid, None)


def take_off(pids: Collection[int]) -> dict[str, Any]:
    """Move what these processes have on their GPU to the host's memory. Answers with those that
    had something (`pids`); or `why` not, and whether they are of no more use then (`is_lost`)."""
    locked: list[int] = []
    try:
        driver = CudaDriver()
        for pid in pids:
            if driver.state(pid):
                driver.lock(pid)
                locked.append(pid)
    except CudaError as error:
        for pid in locked:
            with contextlib.suppress(CudaError):
                driver.unlock(pid)
        return {"why": str(error), "is_lost": False}
    return _each(driver, locked, "checkpoint")


def put_back(pids: Collection[int]) -> dict[str, Any]:
    """Move it back; the processes go on. Answers as `take_off` does."""
    try:
        driver = CudaDriver()
    except CudaError as error:
        return {"why": str(error), "is_lost": True}
    return _each(driver, pids, "restore", "unlock")


def _each(driver: CudaDriver, pids: Collection[int], *steps: str) -> dict[str, Any]:
    try:
        for step in steps:
            for pid in pids:
                getattr(driver, step)(pid)
    except CudaError as error:
        return {"why": str(error), "is_lost": True}
    return {"pids": list(pids)}


# Trying it out.


def main() -> dict[str, float]:
    """How many seconds each way took of a process that has little. Raises CudaError."""
    pid, seconds = begin_use(), {}
    try:
        for name, move in (("away", take_off), ("back", put_back)):
            began = time.monotonic()
            moved = move([pid])
            if "why" in moved:
                raise CudaError(moved["why"])
            seconds[name] = time.monotonic() - began
    except CudaError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    end_use(pid)
    return seconds


def begin_use() -> int:
    """Start a process that has something on the GPU, and no file open that is somebody else's. Its
    number; raises CudaError."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        _use_gpu(writes)
    os.close(writes)
    with open(reads, "rb") as pipe:
        said = pipe.read()
    if said != _READY:
        os.waitpid(pid, 0)
        raise CudaError(said.decode() or "the process that was to try it has ended")
    return pid


def end_use(pid: int) -> None:
    """End a process that was begun so. Raises CudaError unless what it had is still there."""
    os.kill(pid, signal.SIGUSR1)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise CudaError("what came back is not what there was")


def _use_gpu(fd: int) -> None:
    """Put something on the GPU, say so, and see that it is still there when a signal comes."""
    status = 1
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(_STANDARD):
            os.dup2(null, standard)
        os.closerange(_STANDARD, fd)
        os.closerange(fd + 1, 256)
        driver, wanted = CudaDriver(), os.urandom(_TRIED_BYTES)
        context, place = ctypes.c_void_p(), ctypes.c_uint64()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        driver.call("cuCtxSetCurrent", context)
        driver.call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(_TRIED_BYTES))
        driver.call("cuMemcpyHtoD_v2", place, wanted, ctypes.c_size_t(_TRIED_BYTES))
        os.write(fd, _READY)
        os.close(fd)
        signal.sigwait({signal.SIGUSR1})
        found = ctypes.create_string_buffer(_TRIED_BYTES)
        driver.call("cuMemcpyDtoH_v2", found, place, ctypes.c_size_t(_TRIED_BYTES))
        status = int(found.raw != wanted)
    except CudaError as error:
        with contextlib.suppress(OSError):  # said already that it was ready
            os.write(fd, str(error).encode())
    finally:
        os._exit(status)


if __name__ == "__main__":
    try:
        print(json.dumps(main()))
    except (CudaError, OSError) as error:
        print(error)
        sys.exit(1)
