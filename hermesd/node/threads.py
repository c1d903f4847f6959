"""The threads in which a node daemon waits for disks: all there from the beginning, since later the
programs here may have taken as many as the system gives."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor


def started() -> ThreadPoolExecutor:
    """As many as asyncio would start by and by. Raises RuntimeError if they cannot be had."""
    count = min(32, (os.cpu_count() or 1) + 4)
    executor, together = ThreadPoolExecutor(count, "disk"), threading.Barrier(count + 1)
    try:
        for _ in range(count):
            executor.submit(together.wait)
        together.wait()
    except RuntimeError:
        together.abort()
        executor.shutdown(wait=False)
        raise
    return executor
