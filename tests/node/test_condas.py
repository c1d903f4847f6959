"""A conda environment is found by its name on each node, and a study's trials run in it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hermesd.core.commands import Launch, Look
from hermesd.core.events import Looked, RunCompleted, RunFailed
from hermesd.core.model import Goal, Program, Quantum, RunId, RunTerms
from hermesd.core.node.messages import Assignment, Work
from hermesd.node.machine.conda import Condas, NoConda
from hermesd.node.outbox import Outbox
from tests.node.conftest import CPU0, Head, Node, blob, looked

NEED = "conda environment vision"


def environment(prefix: Path, python: str = sys.executable) -> Path:
    """What conda leaves of an environment, as far as anybody here looks at it."""
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(python)
    return prefix


def fake_conda(folder: Path, envs: list[Path]) -> Path:
    """A `conda` that knows these environments, and notes when it is asked."""
    folder.mkdir()
    listed = json.dumps({"envs": list(map(str, envs))})
    tool = folder / "conda"
    tool.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/asked\ncat <<'END'\n{listed}\nEND\n")
    tool.chmod(0o755)
    return folder


def condas(environ: Mapping[str, str]) -> tuple[Condas, Outbox]:
    outbox = Outbox()
    return Condas("n1", environ, outbox), outbox


async def found(environ: Mapping[str, str], name: str = "vision") -> Path:
    return await condas({"PATH": "/usr/bin:/bin", **environ})[0].prefix(name)


async def test_it_is_found_where_conda_keeps_environments(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    root = tmp_path / "opt"
    prefix = environment(root / "envs" / "vision")
    for variables in (
        {"CONDA_PREFIX": str(root)},
        {"CONDA_PREFIX": str(root / "envs" / "other")},
        {"CONDA_EXE": str(root / "bin" / "conda")},
        {"MAMBA_ROOT_PREFIX": str(root)},
        {"CONDA_ENVS_PATH": f"/nowhere:{root / 'envs'}"},
    ):
        assert await found({**home, **variables}) == prefix


async def test_it_is_found_by_condas_record_of_environments(tmp_path: Path) -> None:
    prefix = environment(tmp_path / "elsewhere" / "vision")
    (tmp_path / ".conda").mkdir()
    record = tmp_path / ".conda" / "environments.txt"
    record.write_text(f"{tmp_path}/removed/vision\n\n{prefix}\n")
    assert await found({"HOME": str(tmp_path)}) == prefix
    # The folder of one's own environments goes before it.
    own = environment(tmp_path / ".conda" / "envs" / "vision")
    assert await found({"HOME": str(tmp_path)}) == own


async def test_a_conda_that_cannot_be_started_is_as_if_there_were_none(tmp_path: Path) -> None:
    """One whose own interpreter was moved away, as conda's script names it."""
    tool = tmp_path / "conda"
    tool.write_text("#!/nowhere/bin/python\n")
    tool.chmod(0o755)
    looking, outbox = condas(
        {"HOME": str(tmp_path), "CONDA_EXE": str(tool), "PATH": "/usr/bin:/bin"}
    )
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(looking.run())
        looking.want(["vision"])
        assert (await looked(outbox)).sights == ((NEED, "it is not here; there is none"),)
        watching.cancel()


async def test_conda_itself_is_asked_for_what_is_not_found_otherwise(tmp_path: Path) -> None:
    prefix = environment(tmp_path / "far" / "vision")
    base = environment(tmp_path / "miniforge")
    (base / "condabin").mkdir()
    tool = fake_conda(tmp_path / "tool", [base, prefix])
    environ = {"HOME": str(tmp_path), "PATH": f"{tool}:/usr/bin:/bin"}
    looking, _ = condas(environ)
    assert await looking.prefix("vision") == prefix
    assert await looking.prefix("base") == base
    with pytest.raises(NoConda, match=r"^it is not here; there are base, vision$"):
        await looking.prefix("visoin")
    assert (tool / "asked").read_text() == "env list --json\n", "once a minute at most"


@pytest.mark.parametrize("said", ["", "no JSON", '{"envs": 7}', "{}"])
async def test_a_conda_that_makes_no_sense_knows_none(tmp_path: Path, said: str) -> None:
    tool = tmp_path / "conda"
    tool.write_text(f"#!/bin/sh\nprintf '%s' '{said}'\n")
    tool.chmod(0o755)
    with pytest.raises(NoConda, match="it is not here; there is none"):
        await found({"HOME": str(tmp_path), "CONDA_EXE": str(tool)})


async def test_an_environment_without_python_cannot_be_used(tmp_path: Path) -> None:
    environment(tmp_path / ".conda" / "envs" / "vision", "/nowhere/python")
    with pytest.raises(NoConda, match=r"vision/bin/python is not there, or cannot be run"):
        await found({"HOME": str(tmp_path)})


async def test_one_that_is_made_later_is_noticed_when_asked_for_again(tmp_path: Path) -> None:
    looking, outbox = condas({"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    async with asyncio.TaskGroup() as tasks:
        looks = tasks.create_task(looking.run())
        looking.want(["vision"])
        [(name, reason)] = (await looked(outbox)).sights
        assert (name, reason) == (NEED, "it is not here; there is none")
        environment(tmp_path / ".conda" / "envs" / "vision")
        looking.want(["vision"])
        assert (await looked(outbox)).sights == ((NEED, ""),)
        looks.cancel()


PROGRAM = """
import os, sys, trainer_shim
where = [os.environ[name] for name in ("CONDA_PREFIX", "CONDA_DEFAULT_ENV")]
print(sys.executable, *where, sys.argv, flush=True)
trainer_shim.attach().report(1, loss=0.5)
"""


def launched(head: Head, attempt: int, conda: str) -> RunId:
    code = blob({"train.py": PROGRAM})
    name = hashlib.sha256(code).hexdigest()
    head.blobs[name] = code
    elsewhere = (("CONDA_PREFIX", "/home/somebody/miniconda"),)
    program = Program(("python", "train.py", "--lr=1"), "", name, "/", elsewhere, conda=conda)
    work = Work(program, (), "loss", Goal.MINIMIZE, 7)
    run = RunId("digits/1", attempt)
    head.send(Assignment(Launch(run, (CPU0,), Quantum(), ""), None, work, RunTerms()))
    return run


@pytest.fixture
def with_conda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node daemon that finds a conda on its PATH, which knows an environment."""
    prefix = environment(tmp_path / "far" / "vision")
    tool = fake_conda(tmp_path / "tool", [prefix])
    for name in ("CONDA_PREFIX", "CONDA_EXE", "CONDA_ENVS_PATH", "MAMBA_ROOT_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tool}{os.pathsep}{os.environ['PATH']}")
    return prefix


async def test_a_trial_runs_in_the_environment_that_its_study_names(
    with_conda: Path, head: Head, node: Node
) -> None:
    head.send(Look("n1", (), (), ("vision", "speech")))
    await head.until(lambda: Looked("n1", ((NEED, ""),)) in head.events)
    lacks = "it is not here; there are vision"
    await head.until(lambda: Looked("n1", (("conda environment speech", lacks),)) in head.events)
    await head.hears(RunCompleted, launched(head, 1, "vision"))
    output = (node.config.state_dir / "trials" / "digits" / "1" / "output.log").read_text()
    assert f"{with_conda}/bin/python {with_conda} vision ['train.py', '--lr=1']" in output
    failed = await head.hears(RunFailed, launched(head, 2, "speech"))
    assert failed.error_kind == "unmet"
    assert failed.detail.startswith("conda environment speech: it is not here; there are vision")
