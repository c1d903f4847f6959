"""A program that comes to its own end around a suspend has completed, and is never trained again.

The program stands behind its last step, on no boundary, until the test lets it go. A stopped host
hears neither an order nor the program's end: so both are under way at once, as they are in a race.
"""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, running
from trainer_shim.host.freeze import WorkGroup

STEPS = 3
PROGRAM = """
import os
import trainer_shim

def save(folder):
    open(os.path.join(folder, "weights"), "w").close()

with open({begun!r}, "a") as file:
    print("begun", file=file)
trial = trainer_shim.attach()
for step in range(1, {steps} + 1):
    trial.report(step, loss=1.0 / step{save})
with open({gate!r}) as gate:
    gate.read()
"""
STARTING = types_pb2.TRIAL_STATE_STARTING
RUNNING = types_pb2.TRIAL_STATE_RUNNING
SUSPENDING = types_pb2.TRIAL_STATE_SUSPENDING
WAITING = types_pb2.TRIAL_STATE_WAITING
COMPLETED = types_pb2.TRIAL_STATE_COMPLETED


@dataclass
class Standing:
    """A trial whose program stands behind its last step."""

    cluster: Cluster
    study: str
    begun: Path
    gate: Path
    opened: int = -1

    def stands(self) -> bool:
        """Whether the program waits at the gate, which is then held shut."""
        try:
            self.opened = os.open(self.gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False
        return True

    def let_go(self) -> None:
        """Let the program end, frozen or not."""
        (host,) = self.cluster.pids("host")
        (program,) = self.cluster.pids("trainer")
        WorkGroup(host, freezer_of(program)).thaw()
        os.close(self.opened)

    async def has_exited(self) -> None:
        """Wait until the program has ended, whether its host knows or not."""
        await self.cluster.until(lambda: not self.cluster.pids("trainer"))

    @asynccontextmanager
    async def unheard(self) -> AsyncIterator[None]:
        """Its host takes nothing in for the length of the block."""
        (host,) = self.cluster.pids("host")
        os.kill(host, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(host, signal.SIGCONT)

    # The head's side.

    async def pause(self) -> None:
        asked = control.PauseTrialsRequest(request_id=uuid.uuid4().hex, selection=self._selection)
        await self.cluster.stub.PauseTrials(asked)

    async def resume(self) -> None:
        asked = control.ResumeTrialsRequest(request_id=uuid.uuid4().hex, selection=self._selection)
        await self.cluster.stub.ResumeTrials(asked)

    async def drain(self) -> None:
        """Have it leave its node, by a checkpoint if there is a way to write one."""
        (node,) = (await self.cluster.stub.ListNodes(control.ListNodesRequest())).nodes
        asked = control.DrainNodeRequest(request_id=uuid.uuid4().hex, node=node.id)
        await self.cluster.stub.DrainNode(asked)

    async def undrain(self) -> None:
        """Have the node take trials again, if it was drained."""
        (node,) = (await self.cluster.stub.ListNodes(control.ListNodesRequest())).nodes
        if node.draining:
            asked = control.UndrainNodeRequest(request_id=uuid.uuid4().hex, node=node.id)
            await self.cluster.stub.UndrainNode(asked)

    @property
    def _selection(self) -> control.Selection:
        return control.Selection(study=self.study)

    async def trial(self) -> types_pb2.Trial:
        (trial,) = (await self.cluster.study(self.study)).trials
        return trial

    async def comes_to(self, state: types_pb2.TrialState) -> None:
        async def is_there() -> bool:
            return (await self.trial()).state == state

        await self.cluster.until(is_there)

    async def comes_to_rest(self) -> None:
        """Wait until nothing of it runs."""

        async def is_at_rest() -> bool:
            return (await self.trial()).state in (WAITING, COMPLETED)

        await self.cluster.until(is_at_rest)

    async def has_completed_once(self) -> None:
        """Wait until the trial has ended, or has lost what it came to."""

        async def is_decided() -> bool:
            trial = await self.trial()
            lost = trial.state == WAITING and not trial.kept_tier
            return lost or trial.state >= COMPLETED or self.beginnings > 1

        await self.cluster.until(is_decided)
        trial = await self.trial()
        assert (trial.state, trial.step) == (COMPLETED, STEPS)
        assert self.beginnings == 1
        assert not trial.failures

    @property
    def beginnings(self) -> int:
        """How often the program began."""
        return len(self.begun.read_text().splitlines())


def freezer_of(pid: int) -> str | None:
    """The cgroup that a trial's program is frozen with; None where programs are only signaled."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "freezer") and path.endswith("/run/work"):
            for _, root, kind, options, *_ in mounts:
                if kind == "cgroup2" if not controllers else "freezer" in options.split(","):
                    return root + path
    return None


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="hermes-") as state:
        async with running(Path(state), slots=1) as cluster:
            yield cluster


@asynccontextmanager
async def standing(
    cluster: Cluster, folder: Path, deadline_seconds: float, saves: bool = True
) -> AsyncIterator[Standing]:
    """A cluster's only trial, which has done its last step, and waits before it ends."""
    begun, gate = folder / "begun", folder / "gate"
    folder.mkdir()
    os.mkfifo(gate)
    program = PROGRAM.format(
        begun=str(begun), gate=str(gate), steps=STEPS, save=", save=save" if saves else ""
    )
    suspend = types_pb2.Suspend(deadline_seconds=deadline_seconds)
    study = await cluster.submit("once", {"train.py": program}, {}, suspend=suspend)
    trial = Standing(cluster, study, begun, gate)
    await cluster.until(trial.stands)
    await trial.comes_to(RUNNING)
    yield trial
    await trial.undrain()
    await cluster.until(lambda: not cluster.pids("host"))


Order: TypeAlias = Callable[[Standing], Awaitable[None]]


async def before_the_order(trial: Standing, order: Order) -> None:
    async with trial.unheard():
        trial.let_go()
        await trial.has_exited()
        await order(trial)
        await trial.comes_to(SUSPENDING)


async def with_the_order_on_its_way(trial: Standing, order: Order) -> None:
    async with trial.unheard():
        await order(trial)
        await trial.comes_to(SUSPENDING)
        trial.let_go()
        await trial.has_exited()


async def before_a_boundary(trial: Standing, order: Order) -> None:
    await order(trial)
    await trial.comes_to(SUSPENDING)
    trial.let_go()
    # Its host may hear of the order when the program is on its way out: then it is parked there.
    await trial.comes_to_rest()
    if (await trial.trial()).state == WAITING:
        await trial.undrain()  # or it would wait there for ever
        await trial.resume()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("order", [Standing.pause, Standing.drain], ids=["park", "checkpoint"])
async def test_a_program_that_ends_as_it_is_suspended_has_completed(
    order: Order, cluster: Cluster, tmp_path: Path
) -> None:
    for moment in (before_the_order, with_the_order_on_its_way, before_a_boundary):
        async with standing(cluster, tmp_path / moment.__name__, deadline_seconds=60.0) as trial:
            await moment(trial, order)
            await trial.has_completed_once()


async def while_frozen(trial: Standing) -> None:
    trial.let_go()


async def while_told_to_go_on(trial: Standing) -> None:
    async with trial.unheard():
        await trial.resume()
        await trial.comes_to(STARTING)
        trial.let_go()
        await trial.has_exited()


async def after_it_went_on(trial: Standing) -> None:
    await trial.resume()
    await trial.comes_to(RUNNING)
    trial.let_go()


async def while_told_to_be_written_down(trial: Standing) -> None:
    async with trial.unheard():
        await trial.drain()
        trial.let_go()
        await trial.has_exited()


MOMENTS = (while_frozen, while_told_to_go_on, after_it_went_on, while_told_to_be_written_down)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("saves", [False, True], ids=["park-only", "restorable"])
async def test_a_program_that_ends_although_it_is_parked_has_completed(
    saves: bool, cluster: Cluster, tmp_path: Path
) -> None:
    for moment in MOMENTS:
        async with standing(cluster, tmp_path / moment.__name__, 1.0, saves) as trial:
            await trial.pause()
            await trial.comes_to(WAITING)
            assert (await trial.trial()).kept_tier == types_pb2.TIER_PARK
            await moment(trial)
            await trial.has_completed_once()
