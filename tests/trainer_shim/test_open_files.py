"""What CRIU has written of open files: the lengths of some are forgotten, and nothing else."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from trainer_shim.host.open_files import forget_sizes

MAGIC = struct.pack("<II", 0x54564319, 0x56303138)
SIZE = bytes([8 << 3, 44])


def entry(path: bytes, size: bytes) -> bytes:
    """A regular file, with its number, its path, maybe its length, and its mode, as CRIU writes
    it: each field by its number and kind."""
    said = bytes([1 << 3, 7, 6 << 3 | 2, len(path)]) + path + size + bytes([10 << 3, 1])
    whole = bytes([1 << 3, 1, 2 << 3, 7, 3 << 3 | 2, len(said)]) + said
    return struct.pack("<I", len(whole)) + whole


def test_lengths_are_forgotten_of_the_named_files_whatever_their_names_are_made_of(
    tmp_path: Path,
) -> None:
    file, named, other = tmp_path / "files.img", b"/tmp/no-utf-8-\xff", b"/tmp/other"
    file.write_bytes(MAGIC + entry(named, SIZE) + entry(other, SIZE))
    forget_sizes(str(file), [os.fsdecode(named)])
    assert file.read_bytes() == MAGIC + entry(named, b"") + entry(other, SIZE)
