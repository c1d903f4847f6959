"""A second daemon under the name of one that serves ends and says why, and nothing runs twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hermesd.core.model import Phase
from hermesd.head.fleet import duplicate_nodes
from tests.e2e.cluster import Cluster, multiplying
from tests.e2e.test_lost_node import becomes, killed
from tests.head.heads import World, world


async def started(head: World, state: Path) -> asyncio.subprocess.Process:
    state.mkdir(exist_ok=True)
    words = ["-m", "hermesd.cli", "node", "--name", "box", "--slots", "1"]
    words += ["--state", str(state), "--head", f"unix:{head.directory}/head.sock"]
    with (state.parent / f"{state.name}.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, *words, stdout=log, stderr=log, start_new_session=True
        )


@pytest.mark.timeout(120)
async def test_a_second_state_directory_under_one_name_neither_serves_nor_doubles_a_trial(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_nodes, "PROOF_SECONDS", 1.0)
    root = tmp_path_factory.mktemp("t")
    (root / "head").mkdir()
    mine, theirs = root / "a", root / "b"
    async with AsyncExitStack() as stack:
        head = await stack.enter_async_context(world(root / "head"))
        for state in (mine, theirs):
            stack.callback(killed, state)
        first = await started(head, mine)
        await becomes(lambda: len(head.state.slots) == 1)
        cluster = Cluster(root / "head", slots=0)
        stack.push_async_callback(cluster.stop)
        gate = root / "enough"
        condition = f"not pathlib.Path({str(gate)!r}).exists()"
        study = await cluster.submit("one", {"train.py": multiplying(condition)}, {"rate": [0.001]})
        trial = f"{study}/1"
        await becomes(lambda: head.state.trials[trial].step > 0)

        second = await started(head, theirs)
        assert await second.wait() == 4
        last = (root / "b.log").read_text().splitlines()[-1]
        assert last.startswith("hermesd: node box is served by another daemon, from unix:")
        assert "another state directory of its machine" in last
        assert head.state.nodes["box"].connected

        # The first is gone for now, and its trial is not: the other is no reason to run it anew.
        os.kill(first.pid, signal.SIGKILL)
        await first.wait()
        await becomes(lambda: not head.state.nodes["box"].connected)
        second = await started(head, theirs)
        refused = "another state directory of this machine of the name box has 1 trial"
        await becomes(lambda: refused in (root / "b.log").read_text())
        second.terminate()
        await second.wait()
        assert head.state.trials[trial].phase is Phase.RUNNING

        again = await started(head, mine)
        await becomes(lambda: head.state.nodes["box"].connected)
        gate.touch()
        await cluster.finished(study)
        assert head.state.trials[trial].attempt == 1
        again.terminate()
        await again.wait()
