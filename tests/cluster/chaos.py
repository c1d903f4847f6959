"""A cluster at work, and every way to break it.

Each fault names the node that it meets, and ends when what it did is over; what it leaves behind is
there for the next one. What a fault must not do is asserted there; what must be true after all of
them is for the judges (`book`, `ledger`).
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from hermesctl.sdk.records import Checkpoint, StudyDetail, Trial, TrialState
from hermesd.node.clock import boottime
from tests.cluster.book import PACE_SECONDS, SCRIPT, Book, expected
from tests.cluster.clocks import Clocks
from tests.cluster.ledger import Ledger, read
from tests.cluster.place import NODES, SLOTS, Place, kill

# Longer than it takes until a node that is silent is given up: who trains on then is to be seen.
STEPS = 600
# A checkpoint is due after so much training, in place of the usual 60 seconds.
DURABILITY_SECONDS = 1.0
# A training takes 30 s: who was far and began anew lost more.
MOST_LOST_SECONDS = 22.0
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
    chance: random.Random
    studies: list[str] = field(default_factory=list)
    rates: int = 0
    seen: int = 0

    # Work.

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
        rates = [(self.rates + number) / 100_000 for number in range(1, trials + 1)]
        self.rates += trials
        book = {"value": str(self.book.folder)}
        self.studies.append(await self.submit(SCRIPT, rates, steps={"value": STEPS}, book=book))

    async def details(self) -> list[StudyDetail]:
        return [await self.place.client.study(study) for study in self.studies]

    async def trials(self) -> list[Trial]:
        """Those of the explicit loops."""
        return [trial for detail in await self.details() for trial in detail.trials]

    async def under_way(self, steps: int) -> None:
        """Wait until trials have got so many steps further, and run on all nodes; if need be new
        ones."""
        begun: int | None = None

        async def far_enough() -> bool:
            nonlocal begun
            details = await self.details()
            if all(detail.study.finished for detail in details):
                await self.more_work(len(NODES) * SLOTS)
            trials = [trial for detail in details for trial in detail.trials]
            taken = sum(trial.step for trial in trials)
            begun = taken if begun is None else begun
            at_work = {t.device.split("/")[0] for t in trials if t.state is TrialState.RUNNING}
            return taken >= begun + steps and len(at_work) == len(NODES)

        await self.place.until(far_enough)

    # Faults: of processes.

    async def head_killed(self) -> None:
        kill([self.place.head.daemon])

    async def node_daemon_killed(self, name: str) -> None:
        kill([self.place.nodes[name].daemon])

    async def host_killed(self, name: str) -> None:
        kill(self.place.nodes[name].pids("host")[:1])

    async def trainer_killed(self, name: str) -> None:
        kill(self.place.nodes[name].pids("trainer")[-1:])

    async def zygote_killed(self, name: str) -> None:
        """With every process that it has forked: those of the Keras trials there."""
        kill(self.place.nodes[name].pids("zygote"))

    # Faults: of machines.

    async def node_off_and_on(self, name: str) -> None:
        node = self.place.nodes[name]
        node.die()
        node.boot()

    async def node_off_for_long(self, name: str) -> None:
        await self.until_copied(name)
        before, there = await self.last_event(), await self.attempts_on(name)
        self.place.nodes[name].die()
        await self.gone_on_elsewhere(name, there, before)
        self.place.nodes[name].boot()

    async def short_partition(self, name: str) -> None:
        """Shorter than the lease: nothing stops, and nothing goes on elsewhere."""
        before = await self.last_event()
        async with self.unplugged([name]):
            pass

        async def back() -> bool:
            return await self.place.connected(name)

        await self.place.until(back)
        assert name not in await self.given_up_since(before)

    async def long_partition(self, name: str) -> None:
        """Longer than the lease: what trains there stops, and goes on elsewhere."""
        await self.until_copied(name)
        before, there = await self.last_event(), await self.attempts_on(name)
        trials = [trial for trial in await self.trials() if trial.id in there]
        writers = {self.book.writer(float(str(trial.params["rate"]))) for trial in trials}
        async with self.unplugged([name]):
            given_up = await self.gone_on_elsewhere(name, there, before)
        await self.place.until(self.place.whole)
        self.book.check_ended(writers, given_up)

    async def head_cut_off(self) -> None:
        """For longer than the lease, from all nodes at once: all trials rest, and none is lost."""
        before, until = await self.last_event(), boottime() + 1.5 * self.place.lease_seconds

        async def over() -> bool:
            return boottime() >= until

        async with self.unplugged(NODES):
            await self.place.until(over)
        await self.place.until(self.place.whole)
        assert not await self.given_up_since(before)

    async def clocks_set(self) -> None:
        """All wall clocks jump, and then the head begins anew by its own."""
        before = await self.last_event()
        for name, seconds in CLOCKS.items():
            self.clocks.set(name, seconds)
        await self.under_way(len(NODES) * SLOTS)
        kill([self.place.head.daemon])
        await self.place.until(self.place.whole)
        assert not await self.given_up_since(before)

    @asynccontextmanager
    async def unplugged(self, nodes: Collection[str]) -> AsyncIterator[None]:
        """A block with cables pulled; it begins when the head has noticed. For all nodes that of
        the head is pulled."""
        cable = "head" if len(nodes) == len(NODES) else next(iter(nodes))

        async def silent() -> bool:
            known = await self.place.known()
            return not any(known[node].connected for node in nodes)

        self.place.wires.pull(cable)
        try:
            await self.place.until(silent)
            yield
        finally:
            self.place.wires.plug(cable)

    # What the head knows.

    async def until_copied(self, name: str) -> None:
        """Wait until another node has a checkpoint of a trial that runs on this one, and will for
        some time; if need be a new one."""

        async def copied() -> bool:
            trials = await self.trials()
            if all(trial.step > STEPS / 4 for trial in trials):
                await self.more_work(len(NODES) * SLOTS)
            here = [trial for trial in trials if trial.device.startswith(f"{name}/")]
            young = [trial.checkpoint for trial in here if trial.step <= STEPS / 4]
            return any(_elsewhere(checkpoint, name) for checkpoint in young)

        await self.place.until(copied)

    async def attempts_on(self, name: str) -> dict[str, int]:
        """The trials of the explicit loops that are on a node, and which attempt of each."""
        trials = await self.trials()
        return {t.id: t.attempt for t in trials if t.device.startswith(f"{name}/")}

    async def gone_on_elsewhere(self, name: str, there: Mapping[str, int], after: int) -> float:
        """Wait until the head counts a node as lost, and what was on it trains on other nodes; when
        the first was heard, by boot time."""
        left, lost = dict(there), 0.0
        async with aclosing(self.place.client.events(after=after)) as events:
            async for event in events:
                if (event.kind, event.device) == ("node-lost", name):
                    lost = lost or boottime()
                if event.kind == "started" and event.attempt > left.get(event.trial, event.attempt):
                    del left[event.trial]
                elif event.kind == "completed":
                    left.pop(event.trial, None)
                if lost and not left:
                    return lost
        raise AssertionError("the head's events have ended")

    async def last_event(self) -> int:
        """The number of the newest event."""
        async with aclosing(self.place.client.events(after=self.seen, once=True)) as events:
            async for event in events:
                self.seen = event.sequence
        return self.seen

    async def given_up_since(self, sequence: int) -> set[str]:
        """The nodes that were lost after this event."""
        async with aclosing(self.place.client.events(after=sequence, once=True)) as events:
            return {event.device async for event in events if event.kind == "node-lost"}

    # What must be true.

    async def check(self) -> None:
        """Every trial of the explicit loops completed, with exactly the losses it has to have; none
        ran twice, none lost what was safe, and checkpoints were written in time."""
        client = self.place.client
        for study in self.studies:
            detail = await client.wait(study)
            assert {trial.state for trial in detail.trials} == {TrialState.COMPLETED}
            for trial in detail.trials:
                curve = await client.curve(trial.id)
                points = dict(zip(curve.steps, curve.values, strict=True))
                assert points == expected(float(str(trial.params["rate"])), STEPS), trial.id
        self.book.check()
        lost = max(self.book.lost(), default=0) * PACE_SECONDS
        assert lost <= MOST_LOST_SECONDS, f"{lost:.0f} s of training were done again"
        ledger = Ledger(read(self.place.head.state / "journal.db"))
        assert ledger.complaints == []
        assert ledger.rescued, "no trial had to go on from a copy: nothing was tried"
        # Of half of them: how late a single one is says how busy this machine is.
        assert median(ledger.trained) * PACE_SECONDS <= 2 * DURABILITY_SECONDS

    async def curves(self, study: str) -> list[dict[int, float]]:
        """The losses of a study's trials, once all of them have completed."""
        detail = await self.place.client.wait(study)
        assert {trial.state for trial in detail.trials} == {TrialState.COMPLETED}
        curves = [await self.place.client.curve(trial.id) for trial in detail.trials]
        return [dict(zip(curve.steps, curve.values, strict=True)) for curve in curves]


def _elsewhere(checkpoint: Checkpoint | None, name: str) -> bool:
    """Whether another node has the checkpoint as well."""
    return checkpoint is not None and bool(set(checkpoint.nodes) - {name})
