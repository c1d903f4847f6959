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

# Programs in sessions of their own: one names the folder, one has it in its environment (a daemon
# that is told its state so), and one merely works in it.
BENCHMARK = """
import subprocess, sys
from benchmarks.orphans import scratch

with scratch() as folder:
    wait = "import time; time.sleep(600)"
    named = [sys.executable, "-c", wait, str(folder)]
    told = {"HERMES_HEAD_STATE_DIR": str(folder / "head")}
    for argv, cwd, env in ((named, "/", {}), (named[:3], "/", told), (named[:3], folder, {})):
        print(subprocess.Popen(argv, cwd=cwd, env=env, start_new_session=True).pid)
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
    pids = [int(benchmark.stdout.readline()) for _ in range(3)]
    folder = Path(benchmark.stdout.readline().strip())
    watcher = next(pid for pid in users(folder) if pid not in pids)
    descriptors = [os.pidfd_open(pid) for pid in (*pids, watcher)]
    benchmark.kill()
    benchmark.wait()
    assert [ended(descriptor) for descriptor in descriptors] == [True] * 4
    assert not folder.exists()
    for descriptor in descriptors:
        os.close(descriptor)
    benchmark.stdin.close()
    benchmark.stdout.close()


def test_a_folder_is_gone_after_its_block() -> None:
    with scratch() as folder:
        (folder / "model.keras").write_bytes(b"weights")
    assert not folder.exists()
