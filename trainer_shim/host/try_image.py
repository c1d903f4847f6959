"""Tries out whether a process can be restored from an image of it; `hermesd node` runs it.

`python -m trainer_shim.host.try_image CRIU FOLDER`, in a world of its own, prints as JSON which
version of CRIU did it, and what other machines must have for images of this one; or what went
wrong. With `gpu`, the process also has something on the GPU, which the driver moves away first.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from typing import Any, Callable

from trainer_shim.host import cuda, image, world
from trainer_shim.host.cuda import CudaError
from trainer_shim.host.freeze import become_subreaper
from trainer_shim.host.image import ImageError, Source
from trainer_shim.host.imaging import WorkingChild

_AT_ONCE = 3  # descriptors that every program has


def main(criu: str, folder: str, device: str = "") -> dict[str, Any]:
    """What there is to say once this CRIU has brought a process back.

    Raises ImageError, CudaError, OSError.
    """
    folder = os.path.abspath(folder)
    version = subprocess.run([criu, "--version"], capture_output=True, text=True, check=False)
    words = version.stdout.split()
    if version.returncode != 0 or len(words) < 2:
        raise ImageError(f"{criu} --version fails: {version.stderr.strip()[:200]}")
    become_subreaper()
    memory = world.begin(folder)
    world.number_high()
    for name in ("work", "checkpoints"):
        os.mkdir(os.path.join(folder, name))
    source = Source(cuda.begin_use() if device else _sleeper(), os.path.join(folder, "work"), {})
    try:
        _take_and_bring_back(criu, source, os.path.join(folder, "checkpoints"), memory, device)
    finally:
        _end(source.pid)
    return {"version": words[1], "features": image.features(), "is_root": world.is_root()}


def _take_and_bring_back(
    criu: str, source: Source, checkpoints: str, memory: str, device: str
) -> None:
    """Raises as `main`."""
    if device:
        _move(cuda.take_off, source.pid)
        os.kill(source.pid, signal.SIGSTOP)
        os.waitpid(source.pid, os.WUNTRACED)
    fields = {"trial": "none", "attempt": 1, "step": 0}
    path = image.take(criu, source, checkpoints, "image", fields, memory, lambda _: None)["path"]
    os.kill(source.pid, signal.SIGKILL)
    os.waitpid(source.pid, 0)
    restorer = os.fork()
    if restorer == 0:
        try:
            image.bring_back(criu, path, {}, source.folder, memory)
        finally:
            os._exit(1)
    _, status = os.waitpid(restorer, 0)
    if status != 0:
        raise ImageError(image.why_not(memory, os.waitstatus_to_exitcode(status)))
    try:
        os.kill(source.pid, signal.SIGCONT if device else signal.SIGKILL)
    except ProcessLookupError:
        raise ImageError("CRIU brought nothing back") from None
    if device:
        _move(cuda.put_back, source.pid)
        cuda.end_use(source.pid)
    else:
        os.waitpid(source.pid, 0)


def _end(pid: int) -> None:
    """End a process unless it has ended: outside of a world nobody else would. By then its number
    may be one of somebody else's, which is no child of this process."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)


def _move(move: Callable[[Collection[int]], dict[str, Any]], pid: int) -> None:
    """In a child, as a host has it done. Raises CudaError."""
    child = WorkingChild(lambda tell: move([pid]))
    os.waitpid(child.pid, 0)
    said = next(iter(child.words()), {})
    os.close(child.fd)
    if why := said.get("done", {"why": said.get("error", "it was cut short")}).get("why"):
        raise CudaError(why)


def _sleeper() -> int:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(_AT_ONCE):
            os.dup2(null, fd)
        os.closerange(_AT_ONCE, 256)
        while True:
            signal.pause()
    return pid


if __name__ == "__main__":
    try:
        print(json.dumps(main(*sys.argv[1:])))
    except CudaError as error:
        print(error)
    except (ImageError, OSError, ValueError) as error:
        print(f"CRIU cannot be used: {error}")
