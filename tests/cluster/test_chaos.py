"""Break everything of a cluster, one after the other: no trial runs twice, none is lost, and all
have the losses of an undisturbed run.

One cluster and one order of faults, drawn by a seed: what a fault leaves behind is there for the
next one. Each waits for trainings to be under way, and ends when the cluster is whole again.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hermesctl.records import Checkpoint, StudyDetail, TrialState
from hermesd.node.clock import boottime
from tests.cluster.book import SCRIPT, Book, expected
from tests.cluster.clocks import Clocks, clocks
from tests.cluster.place import LEASE_SECONDS, NODES, SLOTS, Place, kill, place

SEED = 5
TRIALS, STEPS = 37, 240
KERAS_RATES = [0.01, 0.02, 0.03]
# Steps of all trials together that each fault waits for.
BETWEEN = 250
# A checkpoint is due after so much training, in place of the usual 60 seconds.
DURABILITY_SECONDS = 1.0
# The training that a fault may cost, of the 12 seconds of a trial: that, and what it takes to write
# and to copy one where all of the machines share two cores.
LOST_SECONDS = 10.0
# How far wall clocks jump. Certificates begin an hour before their authority, and last 90 days.
CLOCKS = {"head": 30 * 86_400, "node-a": 70 * 86_400, "node-b": -1800}
SCHEDULE = {"policy": {"name": "round_robin", "quantum_seconds": 3}}

KERAS = """
import argparse, time
import keras
import numpy
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--pace", type=float)
arguments = parser.parse_args()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(arguments.rate), "mse")
class Pace(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(arguments.pace)
x = numpy.random.default_rng(1).normal(size=(128, 4)).astype("float32")
model.fit(x, x.sum(1), batch_size=16, epochs=20, callbacks=[Pace()], verbose=0)
"""


@dataclass
class Chaos:
    """The cluster under test, its studies, and the faults."""

    place: Place
    clocks: Clocks
    book: Book
    folder: Path
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    studies: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    seen: int = 0
    # When a node was cut off for so long that its trials went on elsewhere, by boot time.
    cut: list[tuple[float, float]] = field(default_factory=list)

    # -- work ------------------------------------------------------------------------------------

    async def submit(self, script: str, rates: list[float], **others: Mapping[str, object]) -> str:
        """A study of a trial for each rate."""
        code = self.folder / f"code-{len(script)}"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(script)
        sheet: dict[str, object] = {
            "name": "chaos",
            "program": "train.py",
            "method": "grid",
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"rate": {"values": rates}, **others},
            "suspend": {"durability_seconds": DURABILITY_SECONDS},
            "schedule": SCHEDULE,
        }
        return (await self.place.client.submit(sheet, directory=code)).study

    async def more_work(self, trials: int) -> None:
        """A study of explicit loops, whose trials have rates that no others have."""
        first = TRIALS * len(self.studies)
        rates = [(first + number + 1) / 100_000 for number in range(trials)]
        book = {"value": str(self.book.folder)}
        self.studies.append(await self.submit(SCRIPT, rates, steps={"value": STEPS}, book=book))

    async def details(self) -> list[StudyDetail]:
        return [await self.place.client.study(study) for study in self.studies]

    async def under_way(self) -> None:
        """Wait until trials have got further; if need be new ones."""
        begun: int | None = None

        async def far_enough() -> bool:
            nonlocal begun
            details = await self.details()
            if all(detail.study.finished for detail in details):
                await self.more_work(len(NODES) * SLOTS)
            steps = sum(trial.step for detail in details for trial in detail.trials)
            begun = steps if begun is None else begun
            return steps >= begun + BETWEEN and bool(self.training())

        await self.place.until(far_enough)

    # -- faults ----------------------------------------------------------------------------------

    def victim(self) -> str:
        """A node with trials; any, if all of them have ended meanwhile."""
        return self.chance.choice(self.training() or NODES)

    def training(self) -> list[str]:
        """The nodes that have trials."""
        return [name for name in NODES if self.place.nodes[name].pids("trainer")]

    async def head_killed(self) -> None:
        kill([self.place.head.daemon])

    async def node_daemon_killed(self) -> None:
        kill([self.place.nodes[self.victim()].daemon])

    async def host_killed(self) -> None:
        kill(self.place.nodes[self.victim()].pids("host")[:1])

    async def trainer_killed(self) -> None:
        kill(self.place.nodes[self.victim()].pids("trainer")[:1])

    async def zygote_killed(self) -> None:
        """With every process that it has forked: those of the Keras trials there."""
        kill(self.place.nodes[self.victim()].pids("zygote"))

    async def node_off_and_on(self) -> None:
        node = self.place.nodes[self.victim()]
        node.die()
        node.boot()

    async def node_off_for_long(self) -> None:
        name = self.victim()
        there = await self.attempts_on(name)
        self.place.nodes[name].die()
        await self.gone_on_elsewhere(name, there)
        self.place.nodes[name].boot()

    async def short_partition(self) -> None:
        """Shorter than the lease: nothing stops, and nothing goes on elsewhere."""
        async with self.unplugged(self.victim()):
            pass
        await self.place.until(self.place.whole)
        assert not await self.given_up_by_now()

    async def long_partition(self) -> None:
        """Longer than the lease: what trains there stops, and goes on elsewhere."""
        name, begun = self.victim(), boottime()
        there = await self.attempts_on(name)
        async with self.unplugged(name):
            await self.gone_on_elsewhere(name, there)
        self.cut.append((begun, boottime()))

    async def head_cut_off(self) -> None:
        """For longer than the lease, from all nodes at once: all trials rest, and none is lost."""
        until = boottime() + 2 * LEASE_SECONDS

        async def over() -> bool:
            return boottime() >= until

        async with self.unplugged("head"):
            await self.place.until(over)
        await self.place.until(self.place.whole)
        assert not await self.given_up_by_now()

    async def clocks_set(self) -> None:
        """All wall clocks jump, and then the head begins anew by its own."""
        for name, seconds in CLOCKS.items():
            self.clocks.set(name, seconds)
        await self.under_way()
        kill([self.place.head.daemon])
        await self.place.until(self.place.whole)
        assert not await self.given_up_by_now()

    @asynccontextmanager
    async def unplugged(self, name: str) -> AsyncIterator[None]:
        """A block with a cable pulled; it begins when the head has noticed."""
        gone = NODES if name == "head" else (name,)

        async def silent() -> bool:
            known = await self.place.known()
            return not any(known[node].connected for node in gone)

        self.place.wires.pull(name)
        try:
            await self.place.until(silent)
            yield
        finally:
            self.place.wires.plug(name)

    # -- what the head wrote down ----------------------------------------------------------------

    async def attempts_on(self, name: str) -> dict[str, tuple[int, int]]:
        """The trials of the explicit loops that are on a node: which attempt of each, and the step
        of the checkpoint of it that another node has."""
        trials = [trial for detail in await self.details() for trial in detail.trials]
        return {
            trial.id: (trial.attempt, copied(trial.checkpoint, name))
            for trial in trials
            if trial.device.startswith(f"{name}/")
        }

    async def gone_on_elsewhere(self, name: str, there: Mapping[str, tuple[int, int]]) -> None:
        """Wait until the head counts a node as lost, and what was on it trains on other nodes, from
        the copies or further."""
        left, lost = dict(there), False
        async with aclosing(self.place.client.events(after=self.seen)) as events:
            async for event in events:
                lost = lost or (event.kind, event.device) == ("node-lost", name)
                attempt, step = left.get(event.trial, (event.attempt, 0))
                if event.kind == "started" and event.attempt > attempt:
                    assert event.step >= step, f"{event.trial} went on from less than its copy"
                    del left[event.trial]
                elif event.kind == "completed":
                    left.pop(event.trial, None)
                if lost and not left:
                    return

    async def given_up_by_now(self) -> set[str]:
        """The nodes that were lost since this was asked last."""
        async with aclosing(self.place.client.events(after=self.seen, once=True)) as events:
            async for event in events:
                self.note(event.sequence, event.kind, event.device)
        lost, self.lost = self.lost, set()
        return lost

    def note(self, sequence: int, kind: str, device: str) -> None:
        self.seen = sequence
        if kind == "node-lost":
            self.lost.add(device)

    # -- what must be true -----------------------------------------------------------------------

    async def check_loops(self) -> None:
        """Every trial of the explicit loops completed, with exactly the losses it has to have."""
        client = self.place.client
        for study in self.studies:
            detail = await client.wait(study)
            assert {trial.state for trial in detail.trials} == {TrialState.COMPLETED}
            for trial in detail.trials:
                curve = await client.curve(trial.id)
                points = dict(zip(curve.steps, curve.values, strict=True))
                assert points == expected(float(str(trial.params["rate"])), STEPS), trial.id
        self.book.check()
        assert self.book.most_lost_seconds(self.cut) <= LOST_SECONDS

    async def curves(self, study: str) -> list[dict[int, float]]:
        """The losses of a study's trials, once all of them have completed."""
        detail = await self.place.client.wait(study)
        assert {trial.state for trial in detail.trials} == {TrialState.COMPLETED}
        curves = [await self.place.client.curve(trial.id) for trial in detail.trials]
        return [dict(zip(curve.steps, curve.values, strict=True)) for curve in curves]


def copied(checkpoint: Checkpoint | None, name: str) -> int:
    """The step of a checkpoint, if another node has it as well."""
    return checkpoint.step if checkpoint and set(checkpoint.nodes) - {name} else 0


@pytest.mark.root
@pytest.mark.tensorflow
@pytest.mark.timeout(900)
async def test_nothing_that_breaks_changes_a_result(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("c")
    watches = clocks(folder)
    async with place(folder, watches.environment) as cluster:
        chaos = Chaos(cluster, watches, Book(folder / "book"), folder)
        calm = await chaos.curves(await chaos.submit(KERAS, KERAS_RATES, pace={"value": 0}))
        keras = await chaos.submit(KERAS, KERAS_RATES, pace={"value": 0.1})
        await chaos.more_work(TRIALS)
        faults: list[Callable[[], Awaitable[None]]] = [
            chaos.head_killed,
            chaos.node_daemon_killed,
            chaos.host_killed,
            chaos.trainer_killed,
            chaos.zygote_killed,
            chaos.node_off_and_on,
            chaos.node_off_for_long,
            chaos.short_partition,
            chaos.long_partition,
            chaos.head_cut_off,
            chaos.clocks_set,
        ]
        chaos.chance.shuffle(faults)
        for fault in faults:
            await chaos.under_way()
            await chaos.given_up_by_now()
            await fault()
            await cluster.until(cluster.whole)
            chaos.book.check()
        await chaos.check_loops()
        assert await chaos.curves(keras) == calm
