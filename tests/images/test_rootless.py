"""The same for an ordinary user, whom root makes for the test, in a user namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from hermesd.node.machine import detach
from hermesd.node.machine.detached import WORLD
from tests.images.driving import (
    WorldTrial,
    criu,
    files_in,
    lay_out,
    missing,
    suspended_again_and_again,
    undisturbed,
    wait_for_more,
)
from tests.images.programs import PROGRAMS
from tests.trainer_shim.driving import ROOT

NOBODY = 65534
# One that others than root may start, and that is what `make test` runs by.
PYTHON = "/usr/bin/python3"

pytestmark = [pytest.mark.root, pytest.mark.image]


class Theirs(WorldTrial):
    """A trial of another user."""

    python = PYTHON

    def start_host(self, command: list[str], env: dict[str, str], log: IO[bytes]) -> int:
        """With nothing of root's."""
        words = [PYTHON, "-I", "-S", str(self.shim / "detach.py"), *WORLD, *command]
        return int(
            subprocess.run(
                words, stdout=subprocess.PIPE, stderr=log, user=NOBODY, group=NOBODY,
                extra_groups=(), env={**env, "HOME": "/tmp"}, cwd=self.shim, check=True,
            ).stdout
        )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder of that user's with the shim, and a CRIU."""
    tool = criu(tmp_path)
    folder = Path(tempfile.mkdtemp(prefix="hermes-"))
    shutil.copytree(ROOT / "trainer_shim", folder / "shim" / "trainer_shim")
    shutil.copy(detach.__file__, folder / "shim" / "detach.py")
    yield folder, tool
    shutil.rmtree(folder)


def _give(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    folder.chmod(0o755)


def _theirs(name: str, folder: Path, tool: str) -> Theirs:
    program = PROGRAMS[name]
    if not Path(PYTHON).exists() or (lacks := missing(program)):
        pytest.skip(f"no {lacks or PYTHON} here")
    words = [word.format(python=PYTHON) for word in program.argv]
    trial = Theirs(folder / "t", words, criu=tool)
    trial.shim = folder / "shim"
    lay_out(program, trial.directory / "work")
    _give(folder)
    return trial


@pytest.mark.parametrize(
    "name",
    ["generator", "many threads", "sqlite", "subprocess", "deleted open file", "shell", "c"],
)
def test_an_ordinary_user_needs_no_privileges(
    name: str, place: tuple[Path, str], tmp_path: Path
) -> None:
    trial = _theirs(name, *place)
    output, files = undisturbed(PROGRAMS[name], tmp_path / "plain")
    suspended_again_and_again(trial, len(output))
    assert trial.output == output
    assert files_in(trial.directory / "work") == files


def test_what_only_root_can_keep_is_parked_and_named(place: tuple[Path, str]) -> None:
    trial = _theirs("pool of processes", *place)
    try:
        trial.launch()
        trial.start()
        trial.until("started")
        wait_for_more(trial, 10)
        trial.suspend("checkpoint")
        failed = trial.until("checkpoint_failed")
        assert "semaphore" in failed["reason"]
        fidelity = [event for event in trial.events if event["kind"] == "fidelity"][-1]
        assert fidelity["level"] == "park-only"
        assert "semaphore" in fidelity["reason"]
        trial.until("parked")
        trial.resume()
        trial.until("completed")
        trial.quit()
    finally:
        trial.end()
