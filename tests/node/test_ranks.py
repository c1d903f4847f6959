"""A run on several devices: what a node starts on each of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hermesd.core.events import RunCompleted, RunFailed
from hermesd.core.model import Processes, RunId
from hermesd.node.storage.trial_folder import TrialFolder
from tests.node.conftest import CPU1, Head, Node

TELLS = """
import json, os
names = ["RANK", "WORLD_SIZE", "HERMES_CPU_CORES", "CUDA_VISIBLE_DEVICES"]
print(json.dumps([os.environ.get(name) for name in names]), flush=True)
"""


@pytest.mark.parametrize(
    ("processes", "told"),
    [
        (None, [["0", "2", "0", ""], ["1", "2", "0", ""]]),
        (Processes.RANKS, [["0", "2", "0", ""], ["1", "2", "0", ""]]),
        (Processes.WORKERS, [["0", "2", "0", ""], ["1", "2", "0", ""]]),
        (Processes.ONE, [[None, None, "0", ""]]),
    ],
)
async def test_a_process_for_each_device_or_one_for_all(
    head: Head,
    node: Node,
    launch: Callable[..., RunId],
    tmp_path: Path,
    processes: Processes | None,
    told: list[list[str | None]],
) -> None:
    run = launch(program=TELLS, others=(CPU1,), processes=processes)
    await head.hears(RunCompleted, run)
    folder = TrialFolder(node.config.state_dir / "trials", tmp_path, "digits/1")
    logs = [folder.output, folder.output.with_name("output.log.rank1")]
    assert [json.loads(log.read_text()) for log in logs if log.exists()] == told


async def test_the_rank_that_failed_is_named(
    head: Head, node: Node, launch: Callable[..., RunId]
) -> None:
    fails = "import os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('shape')\n"
    run = launch(program=f"{fails}time.sleep(60)\n", others=(CPU1,))
    failed = await head.hears(RunFailed, run)
    assert failed.rank == 1
    assert "rank 1: " in failed.detail
    assert "ValueError: shape" in failed.detail
