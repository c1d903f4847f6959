"""The node's clock: seconds since boot, including the time in which the machine sleeps. Leases are
counted by it."""

from __future__ import annotations

import time
from pathlib import Path


def boottime() -> float:
    """Now."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Which boot of this machine `boottime` counts from."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
