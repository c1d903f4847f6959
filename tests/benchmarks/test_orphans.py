"""What a benchmark has started is gone once the benchmark is, also when it was killed."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.orphans import scratch, users

pytestmark = pytest.mark.timeout(60)

# A program in a session of its own that names the folder, and one that merely works in it.
BENCHMARK = """
import subprocess, sys
from benchmarks.orphans import scratch

with scratch() as folder:
    wait = "import time; time.sleep(600)"
    named = [sys.executable, "-c", wait, str(folder)]
    for argv, cwd in ((named, "/"), (named[:3], folder)):
        print(subprocess.Popen(argv, cwd=cwd, start_new_session=True).pid)
    print(folder, flush=True)
    sys.stdin.read()
"""


def ended(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 30)[0])


def test_what_a_killed_benchmark_started_is_ended() -> None:
    benchmark = subprocess.Popen(
        [sys.executable, "-c", BENCHMARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert benchmark.stdout is not None
    assert benchmark.stdin is not None
    pids = [int(benchmark.stdout.readline()) for _ in range(2)]
    folder = Path(benchmark.stdout.readline().strip())
    watcher = next(pid for pid in users(folder) if pid not in pids)
    descriptors = [os.pidfd_open(pid) for pid in (*pids, watcher)]
    benchmark.kill()
    benchmark.wait()
    assert [ended(descriptor) for descriptor in descriptors] == [True, True, True]
    assert not folder.exists()
    for descriptor in descriptors:
        os.close(descriptor)
    benchmark.stdin.close()
    benchmark.stdout.close()


def test_a_folder_is_gone_after_its_block() -> None:
    with scratch() as folder:
        (folder / "model.keras").write_bytes(b"weights")
    assert not folder.exists()
