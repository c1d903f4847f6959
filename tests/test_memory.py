"""The memory that a node may use."""

import os
from pathlib import Path

import pytest

from hermesd.config.values import usable_memory

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b", {"a/memory.max": "1000", "a/b/memory.max": "max"}, 1000),
        ("0::/a/b", {"a/memory.max": "5000", "a/b/memory.max": "70"}, 70),
        ("0::/", {"memory.max": "900"}, 900),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "800"}, 800),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": str(1 << 62)}, MACHINE),
        ("3:cpu,cpuacct:/a", {"memory/a/memory.limit_in_bytes": "800"}, MACHINE),
        ("0::/a", {}, MACHINE),
    ],
)
def test_the_smallest_limit_on_the_way_up_counts(
    tmp_path: Path, own: str, files: dict[str, str], expected: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert usable_memory(tmp_path, own) == expected


def test_a_machine_has_memory() -> None:
    assert 0 < usable_memory() <= MACHINE
