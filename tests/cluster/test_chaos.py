"""Break everything of a cluster: no trial runs twice, none is lost, and all have the losses of an
undisturbed run.

Two clusters and orders of faults. The quick one has as many faults at a time as there are machines
for, each on one of its own, and needs no root. The long one has 40 trials, and each fault alone.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from tests.cluster.book import Book
from tests.cluster.chaos import KERAS, Chaos
from tests.cluster.clocks import clocks
from tests.cluster.network import namespaces, ways
from tests.cluster.place import NODES, Wiring, place

SEED = 5
everywhere = pytest.mark.parametrize(
    "network", [pytest.param(namespaces, marks=pytest.mark.root), ways], ids=["namespaces", "ways"]
)


@asynccontextmanager
async def chaos(
    factory: pytest.TempPathFactory,
    network: Wiring,
    lease_seconds: float,
    trials: int,
    keras_rates: list[float],
) -> AsyncIterator[Chaos]:
    """A cluster with work; at the end of the block all of it has to be as it was to be.

    A Keras program has its losses of itself, from before anything breaks.
    """
    folder = factory.mktemp("c")
    watches = clocks(folder)
    async with place(folder, network, watches.environment, lease_seconds) as cluster:
        made = Chaos(cluster, watches, Book(folder / "book"), folder, random.Random(SEED))
        calm = await made.submit(KERAS, keras_rates, pace={"value": 0})
        undisturbed = await made.curves(calm)
        keras = await made.submit(KERAS, keras_rates, pace={"value": 0.1})
        await made.more_work(trials)
        yield made
        await made.check()
        assert await made.curves(keras) == undisturbed


@pytest.mark.slow
@everywhere
@pytest.mark.tensorflow
@pytest.mark.timeout(900)
async def test_nothing_that_breaks_changes_a_result(
    tmp_path_factory: pytest.TempPathFactory, network: Wiring
) -> None:
    async with chaos(tmp_path_factory, network, 10.0, 9, [0.01]) as cluster:
        rounds: list[Callable[[str, str, str], list[Coroutine[None, None, None]]]] = [
            lambda one, two, three: [
                cluster.host_killed(one),
                cluster.trainer_killed(two),
                cluster.zygote_killed(three),
                cluster.node_daemon_killed(three),
                cluster.head_killed(),
            ],
            lambda one, two, _: [cluster.node_off_for_long(one), cluster.short_partition(two)],
            lambda one, two, _: [cluster.long_partition(one), cluster.node_off_and_on(two)],
            lambda *_: [cluster.head_cut_off(), cluster.clocks_set()],
        ]
        for faults in rounds:
            await cluster.under_way(60)
            async with asyncio.TaskGroup() as tasks:
                for fault in faults(*cluster.chance.sample(NODES, 3)):
                    tasks.create_task(fault)
            await cluster.place.until(cluster.place.whole)
            cluster.book.check()


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.timeout(1800)
async def test_nothing_that_breaks_alone_changes_a_result(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    network = namespaces if os.geteuid() == 0 else ways
    async with chaos(tmp_path_factory, network, 12.0, 37, [0.01, 0.02, 0.03]) as cluster:

        def somewhere(fault: Callable[[str], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
            return lambda: fault(cluster.chance.choice(NODES))

        faults: list[Callable[[], Awaitable[None]]] = [
            cluster.head_killed,
            somewhere(cluster.node_daemon_killed),
            somewhere(cluster.host_killed),
            somewhere(cluster.trainer_killed),
            somewhere(cluster.zygote_killed),
            somewhere(cluster.node_off_and_on),
            somewhere(cluster.node_off_for_long),
            somewhere(cluster.short_partition),
            somewhere(cluster.long_partition),
            cluster.head_cut_off,
            cluster.clocks_set,
        ]
        cluster.chance.shuffle(faults)
        for fault in faults:
            await cluster.under_way(250)
            await fault()
            await cluster.place.until(cluster.place.whole)
            cluster.book.check()
