"""A head that says how long its loop was held: `python -m benchmarks.held head ...`

Whatever the loop does in one go for more than some milliseconds of its thread's CPU time is a line
in its log. CPU time, since that is hardly longer where others use the machine as well.
"""

from __future__ import annotations

import sys
import time
from asyncio import Handle
from pathlib import Path

from hermesd.__main__ import main

LONG_SECONDS = 0.005
_MARK = "held for "


def seconds(log: Path, start: int) -> tuple[float, int]:
    """The longest time in a log from a place on, 0.0 for none that is long, and the log's end."""
    text = log.read_bytes()
    lines = text[start:].decode(errors="replace").splitlines()
    found = [float(line.removeprefix(_MARK)) for line in lines if line.startswith(_MARK)]
    return max(found, default=0.0), len(text)


def _measured() -> None:
    run = Handle._run

    def timed(handle: Handle) -> None:
        began = time.thread_time()
        run(handle)
        if (took := time.thread_time() - began) > LONG_SECONDS:
            print(f"{_MARK}{took:.4f}", file=sys.stderr, flush=True)

    Handle._run = timed  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    _measured()
    main()
