"""A node dies for good, with its disk: its trial goes on at the other one, from the copy there, or
from that in the directory that both share."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from hermesd.core.decide.scheduler import LeaseTerms
from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import POLL_SECONDS, Cluster, multiplying, processes
from tests.head.heads import World, world

# A lease long enough for a busy machine, so that only the death of its node ends a run.
LEASE = LeaseTerms(lease_seconds=8.0, grace_seconds=2.0, margin_seconds=1.0)
RATES = [0.001, 0.002]
STEPS = 400


def killed(state: Path) -> None:
    """kill -9 of everything of a node, as when its machine loses power."""
    for pid, _ in processes(state):
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def node(name: str, head: World, shared: Path | None) -> AsyncIterator[Path]:
    """A node daemon of one slot, as a process; its state directory."""
    state = head.directory.parent / name
    state.mkdir()
    words = ["-m", "hermesd.cli", "node", "--name", name, "--slots", "1", "--embedded"]
    words += ["--state", str(state), "--head", f"unix:{head.directory}/head.sock"]
    variables = {} if shared is None else {"HERMES_NODE_SHARED_DIR": str(shared)}
    with (state.parent / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **variables},
        )  # fmt: skip
    try:
        yield state
    finally:
        killed(state)
        await process.wait()


async def becomes(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("copies", ["on peers", "in a shared directory"])
async def test_a_trial_goes_on_at_the_other_node_when_its_own_is_gone(
    tmp_path_factory: pytest.TempPathFactory, copies: str
) -> None:
    root = tmp_path_factory.mktemp("l")
    shared = root / "nfs" if copies != "on peers" else None
    if shared is not None:
        shared.mkdir()
    (root / "head").mkdir()
    async with AsyncExitStack() as stack:
        head = await stack.enter_async_context(world(root / "head"))
        head.running.head.scheduler.lease = LEASE
        states = {name: await stack.enter_async_context(node(name, head, shared)) for name in "ab"}
        await becomes(lambda: len(head.state.slots) == 2)
        cluster = Cluster(root / "head", slots=0)
        stack.push_async_callback(cluster.stop)
        study = await cluster.submit(
            "twins",
            {"train.py": multiplying(f"step < {STEPS}")},
            {"rate": RATES},
            suspend=types_pb2.Suspend(durability_seconds=1.0),
        )
        first, second = f"{study}/1", f"{study}/2"

        def copied(trial: str, step: int) -> bool:
            found = head.state.trials[trial].copied
            return found is not None and found.step >= step

        await becomes(lambda: copied(first, 100) and copied(second, 100))
        victim = head.state.node_of(head.state.trials[first])
        (other,) = set(states) - {victim}
        assert (states[other] / "trials" / first).exists() == (shared is None)
        killed(states[victim])
        shutil.rmtree(states[victim])
        answer = await cluster.finished(study)
        assert {trial.state for trial in answer.trials} == {types_pb2.TRIAL_STATE_COMPLETED}
        for trial, rate in zip(answer.trials, RATES, strict=True):
            curve = await cluster.stub.GetCurve(control.GetCurveRequest(trial=trial.id))
            points = dict(zip(curve.steps, curve.values, strict=True))
            truth, state = {}, 1.0
            for step in range(1, STEPS + 1):
                state *= 1 - rate
                truth[step] = state
            assert points == truth
        moved = states[other] / "trials" / first / "output.log"
        assert int(moved.read_text().split()[1]) >= 100, "it went on from where the copy was"
        assert head.state.trials[second].attempt == 1, "the other one never noticed"
