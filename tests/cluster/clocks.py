"""Wall clocks of single machines, set while their daemons run: libfaketime, told by a file each.

Only the wall clock: the clock that counts from the boot is the kernel's, as it is where somebody
sets the time of a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

LIBRARIES = ("/usr/lib", "/usr/lib64")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The machines' clocks; each has a file in the folder."""

    folder: Path
    library: Path

    def environment(self, machine: str) -> Mapping[str, str]:
        """What the machine's daemon is to be started with."""
        self.set(machine, 0)
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.folder / f"{machine}.clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, machine: str, seconds: int) -> None:
        """Set a machine's clock so many seconds off the right time."""
        path = self.folder / f"{machine}.clock"
        fresh = path.with_suffix(".fresh")
        fresh.write_text(f"{seconds:+d}")
        fresh.rename(path)


def clocks(folder: Path) -> Clocks:
    """Clocks that can be set; skips the test where they cannot."""
    places = (Path(root).glob("**/faketime/libfaketime.so.1") for root in LIBRARIES)
    found = [path for place in places for path in place]
    if not found:
        pytest.skip("no libfaketime here")
    return Clocks(folder, found[0])
