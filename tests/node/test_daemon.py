"""A node daemon with real hosts and real programs, and a head that says what it wants."""

from collections.abc import Awaitable, Callable

import pytest

from hermesd.core.events import (
    FidelityKnown,
    NodeJoined,
    RunCompleted,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import Fidelity, RunId

from .conftest import CPU0, CPU1, Head, Node

Launch = Callable[..., RunId]
Running = Callable[..., Awaitable[RunId]]
Suspended = Callable[..., Awaitable[RunSuspended]]

SHORT = ("python", "train.py", "50", "0.001")


async def test_hello_says_what_this_machine_has(head: Head, node: Node) -> None:
    joined = await head.hears(NodeJoined)
    assert [device.id for device in joined.devices] == [CPU0, CPU1]
    assert joined.live == ()
    assert any("CPU slots" in fact for fact in joined.facts)
    await head.until(lambda: bool(head.usage))
    assert {usage.device for usage in head.usage[0].devices} == {CPU0, CPU1}


async def test_a_run_from_launch_to_completion(head: Head, node: Node, launch: Launch) -> None:
    run = launch(argv=SHORT)
    started = await head.hears(RunStarted, run)
    assert started.step == 0
    done = await head.hears(RunCompleted, run)
    assert done.step == 50
    assert head.steps(run.trial) == list(range(1, 51))
    assert head.steps(run.trial, "total") == list(range(1, 51))
    chunks = [chunk for report, _ in head.points for chunk in report.chunks]
    assert sum(chunk.size for chunk in chunks) == 50
    assert chunks[-1].low == pytest.approx(1 / 50)
    known = await head.hears(FidelityKnown, run)
    assert known.fidelity is Fidelity.AUTHOR
