"""What a program writes comes home, while it runs and when it is over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermesctl.errors import ExitCode
from tests.e2e.cluster import running
from tests.e2e.test_try_out import hermesctl

PROGRAM = """
import os, time
os.makedirs("runs/1")
for name in ("runs/1/a.png", "log.csv"):
    with open(name, "w") as file:
        file.write(name)
while not os.path.exists({gate!r}):
    time.sleep(0.02)
"""


@pytest.mark.timeout(120)
async def test_the_files_of_a_trial_are_listed_fetched_and_printed(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with running(tmp_path_factory.mktemp("h")) as cluster:
        program = PROGRAM.format(gate=str(gate))
        study = await cluster.submit("files", {"train.py": program}, {"rate": [1.0]})
        trial = f"{study}/1"

        async def written() -> bool:
            code, out, _ = await hermesctl(cluster, "trial", "files", trial, "-o", "json")
            return code == 0 and "log.csv" in [file["path"] for file in json.loads(out)["files"]]

        await cluster.until(written)
        gate.touch()
        await cluster.finished(study)

        _, out, _ = await hermesctl(cluster, "trial", "files", trial)
        assert [line.split()[-1] for line in out.splitlines()[1:]] == [
            "log.csv", "runs/1/a.png", "train.py",
        ]  # fmt: skip
        assert await hermesctl(cluster, "trial", "files", "cat", trial, "log.csv") == (
            0, "log.csv", "",
        )  # fmt: skip
        to = tmp_path / "best"
        code, _, err = await hermesctl(
            cluster, "trial", "files", "get", trial, "runs", "*.csv", "--to", str(to)
        )
        assert (code, "2 files" in err) == (0, True)
        assert {str(path.relative_to(to)) for path in to.rglob("*") if path.is_file()} == {
            "runs/1/a.png",
            "log.csv",
        }
        assert (to / "runs/1/a.png").read_text() == "runs/1/a.png"
        code, out, err = await hermesctl(cluster, "trial", "files", "cat", trial, "best.pt")
        assert (code, out) == (ExitCode.NOT_FOUND, "")
        assert "its working copy has no such file: best.pt" in err
        code, out, err = await hermesctl(cluster, "trial", "files", "cat", trial, "*")
        assert code == ExitCode.USAGE
