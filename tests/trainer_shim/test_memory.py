"""What a parked trial is taken to hold of the node's memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trainer_shim.host.freeze import WorkGroup

MEBIBYTE = 1 << 20
HOLDING = """
import mmap, os, subprocess, sys
own = bytearray(os.urandom(1) * (64 << 20))
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
seen = sum(mapped[i] for i in range(0, len(mapped), 4096))
print("up", flush=True)
sys.stdin.read()
"""


def test_pages_of_files_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100 * MEBIBYTE))
    below = WorkGroup(os.getpid(), None)
    before = below.memory_bytes()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path / "file")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"up\n"
    held = below.memory_bytes() - before
    holder.stdin.close()
    holder.wait()
    holder.stdout.close()
    assert 64 * MEBIBYTE <= held < 100 * MEBIBYTE


def test_a_memory_cgroup_counts_for_itself(tmp_path: Path) -> None:
    for name, text in {
        "cgroup.freeze": "0",
        "cgroup.procs": "",
        "memory.stat": "anon 1000\nfile 900000\nshmem 24\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert WorkGroup(os.getpid(), str(tmp_path)).memory_bytes() == 1024
