"""Whether a node finds out what it can do with a CRIU, and says so."""

import mmap
import os
from pathlib import Path

import pytest

import trainer_shim
from hermesd.node.machine import images
from trainer_shim.host import image


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    folder = tmp_path / "shim"
    folder.mkdir()
    (folder / "trainer_shim").symlink_to(Path(trainer_shim.__file__).parent)
    return folder


async def test_without_a_criu_there_are_none(tmp_path: Path, shim: Path) -> None:
    found = await images.detect("no-such-criu", tmp_path, shim)
    assert found.criu == ""
    assert "there is no no-such-criu here; to change that: install CRIU 4" in found.fact
    assert "node.criu is off" in (await images.detect("off", tmp_path, shim)).fact


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo broken >&2; exit 1", "--version fails: broken"),
        ("[ $1 = --version ] && echo Version: 9.9 || exit 1", "CRIU ended with 1"),
        ("[ $1 = --version ] && echo Version: 9.9 || exit 0", "CRIU brought nothing back"),
    ],
)
async def test_a_criu_that_does_not_work_is_not_used(
    tmp_path: Path, shim: Path, script: str, why: str
) -> None:
    criu = tmp_path / "criu"
    criu.write_text(f"#!/bin/sh\n{script}\n")
    criu.chmod(0o755)
    found = await images.detect(str(criu), tmp_path, shim)
    assert found.criu == ""
    assert why in found.fact or "may not make namespaces" in found.fact
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("try-")] == []


async def test_the_command_that_unlocks_them_is_named(
    tmp_path: Path, shim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tried(*arguments: object) -> str:
        *_, world = arguments
        if world:
            raise images.NotBegun("this user may not make namespaces of its own")
        return answer

    monkeypatch.setattr(images, "_run", tried)
    monkeypatch.setattr(images, "_NAMESPACES", (("kernel.ostype", "Linux", "0"),))
    answer = "CRIU cannot be used"
    found = await images.detect("sh", tmp_path, shim)
    words, _, remedy = found.fact.partition(images.REMEDY)
    assert words == "no images of processes: this user may not make namespaces of its own"
    assert remedy.startswith("sudo sysctl kernel.ostype=0, or sudo setcap cap_checkpoint_restore")
    answer = '{"version": "4.2", "features": [], "is_root": false}'
    found = await images.detect("sh", tmp_path, shim)
    assert found.remedy == "sudo sysctl kernel.ostype=0", "which is the better way"
    assert found.why.startswith("CRIU 4.2 by its capabilities, since this user may not")


def test_what_a_program_finds_here_is_told_beside_files_whose_names_are_no_text(
    tmp_path: Path,
) -> None:
    found = image.features()
    path = os.fsencode(tmp_path) + b"/\xff\xfe"
    with open(path, "w+b") as file:
        file.write(b"-" * mmap.PAGESIZE)
        file.flush()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
            assert image.features() == found
