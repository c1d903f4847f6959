"""A folder for a benchmark's processes, of which none outlives the benchmark, however it ends.

Training programs and daemons are made to outlive those that start them. Left behind by a benchmark
that was killed, they would train on beside the one that measures the rest.
`python -m benchmarks.orphans FOLDER` is the process that waits for the end of its stdin, which the
benchmark holds open, then ends whatever was started for the folder, and removes it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_POLL_SECONDS = 0.05
# A process that a cgroup holds frozen does not die of a signal.
_PATIENCE_SECONDS = 10.0


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder. What uses it has it in its command line or environment, or is there."""
    folder = Path(tempfile.mkdtemp(prefix="hermes-"))
    watcher = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.orphans", str(folder)],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is not meant for it
    )
    try:
        yield folder
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()


def users(folder: Path) -> list[int]:
    """The processes, other than this one, that were started for the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # it ended meanwhile, or is somebody else's
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if os.fsencode(folder) in words or (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
    return found


def clear(folder: Path) -> None:
    """End what uses the folder, and remove it."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    # A process may start another between the look and the kill.
    while (pids := users(folder)) and time.monotonic() < give_up:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    clear(Path(sys.argv[1]))
