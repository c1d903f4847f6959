"""What a daemon says is written where it can be, and ends nobody where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermesd.logs import LossyFile


def test_lines_that_are_dropped_are_counted_and_told() -> None:
    reader, writer = os.pipe2(os.O_NONBLOCK)
    lossy = LossyFile(writer)
    full = bytes(1 << 20)  # more than a pipe holds
    assert lossy.write(full) == len(full)
    assert lossy.write(b"lost\n") == 5
    os.read(reader, 1 << 20)
    lossy.write(b"said\n")
    count = b"level=warning event='log lines were dropped' lines=2"
    assert os.read(reader, 1 << 16) == b"\n" + count + (
        b" reason='Resource temporarily unavailable'\nsaid\n"
    )
    lossy.write(b"again\n")
    assert os.read(reader, 1 << 16) == b"again\n"


PROGRAM = """
import sys, warnings
import structlog
from hermesd import logs
logs.configure()
structlog.get_logger().info("one")
warnings.warn("two")
print("three", file=sys.stderr, flush=True)
print(open(sys.argv[1]).fileno())
"""


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "0>&- 1>&2 2>&-"])
def test_no_stderr_ends_a_daemon(tmp_path: Path, stderr: str) -> None:
    """Nor does a file of its own become the descriptor that lines are written to."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$1" "$1" {stderr}', sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert done.returncode == 0
    assert not done.stdout or int(done.stdout) > 2
