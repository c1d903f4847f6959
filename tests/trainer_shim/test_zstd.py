"""What is compressed comes back, and what is not is refused."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from trainer_shim import zstd

assert zstd.is_here(), "wherever tests run dpkg or rpm needs it"


def _content(path: Path) -> bytes:
    return b"".join(bytes(part) for part in zstd.content(str(path)))


@pytest.mark.parametrize("megabytes", [0, 1, 9, 90])
def test_a_file_comes_back(megabytes: int, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(megabytes << 18) + bytes(3 * megabytes << 18)
    (tmp_path / "plain").write_bytes(content)
    small = b"".join(zstd.compressed(str(tmp_path / "plain")))
    assert len(small) <= len(content) / 2
    (tmp_path / "small").write_bytes(small)
    assert _content(tmp_path / "small") == content
    if content and (tool := shutil.which("zstd")):
        by_tool = subprocess.run([tool, "-dc"], input=small, capture_output=True, check=True)
        assert by_tool.stdout == content


@pytest.mark.parametrize("content", [b"no such thing", zstd.SUFFIX.encode() * 100])
def test_what_is_not_compressed_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(zstd.NotZstd):
        _content(tmp_path / "bad")


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"abc" * 1000)
    whole = b"".join(zstd.compressed(str(tmp_path / "plain")))
    (tmp_path / "cut").write_bytes(whole[:-3])
    with pytest.raises(zstd.NotZstd):
        _content(tmp_path / "cut")
