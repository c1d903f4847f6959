"""An unchanged Keras program on a node: warm start, park, checkpoint, and the same losses."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hermesd.core.events import FidelityKnown, RunCompleted, RunFailed, RunStarted, RunSuspended
from hermesd.core.model import Fidelity, RunId, Tier
from tests.forked import WITHOUT

from .conftest import CPU1, Head, Node

pytestmark = pytest.mark.tensorflow

PROGRAM = """
import sys
import numpy
import keras
keras.utils.set_random_seed(3)
x = numpy.random.default_rng(0).normal(size=(64, 8)).astype("float32")
model = keras.Sequential([keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, x.sum(1), batch_size=8, epochs=int(sys.argv[1]), verbose=0)
print("weights", repr(float(sum(w.sum() for w in model.get_weights()))))
"""
# How often the program was run in its working directory.
BEFORE = """
import pathlib
import sys
runs = pathlib.Path("runs")
before = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (before + 1))
"""
LONG: dict[str, Any] = {
    "argv": ("python", "train.py", "150"),
    "environment": (("PYTHONPATH", WITHOUT),),
}


def weights(node: Node, trial: str) -> str:
    text = (node.config.state_dir / "trials" / trial / "output.log").read_text()
    return text[text.index("weights") :]


@pytest.mark.timeout(240)
async def test_suspended_in_both_tiers_it_ends_as_if_nothing_had_happened(
    head: Head,
    node: Node,
    launch: Callable[..., RunId],
    running: Callable[..., Awaitable[RunId]],
    suspended: Callable[..., Awaitable[RunSuspended]],
) -> None:
    plain = launch(trial="plain/1", program=PROGRAM, **LONG, device=CPU1)
    await head.hears(RunCompleted, plain)
    run = launch(trial="moved/1", program=PROGRAM, **LONG)
    await head.hears(RunStarted, run)
    assert (await head.hears(FidelityKnown, run)).fidelity in (
        Fidelity.EXACT,
        Fidelity.EXACT_IF_DETERMINISTIC,
    )
    parked = await suspended(run, Tier.PARK)
    second = launch(trial="moved/1", attempt=2, program=PROGRAM, **LONG, parked=run)
    await head.hears(RunStarted, second)
    kept = await suspended(second, Tier.CHECKPOINT)
    assert kept.tier is Tier.CHECKPOINT
    assert parked.step <= kept.step < 1200
    third = launch(trial="moved/1", attempt=3, program=PROGRAM, **LONG, checkpoint=kept.checkpoint)
    done = await head.hears(RunCompleted, third)
    assert done.step == 1200
    moved, plain_losses = losses(head, "moved/1"), losses(head, "plain/1")
    # A report has so many points at the most: on a fast machine not of every step.
    both = moved.keys() & plain_losses.keys()
    assert len(both) > 100
    assert {step: moved[step] for step in both} == {step: plain_losses[step] for step in both}
    assert weights(node, "moved/1") == weights(node, "plain/1")


@pytest.mark.timeout(240)
async def test_what_cannot_be_restored_twice_is_set_aside(
    head: Head,
    node: Node,
    launch: Callable[..., RunId],
    running: Callable[..., Awaitable[RunId]],
    suspended: Callable[..., Awaitable[RunSuspended]],
) -> None:
    """A program that trains on more data each time: it goes on from the beginning."""
    program = PROGRAM.replace("(64, 8)", "(64 + 8 * before, 8)").replace("import sys", BEFORE)
    first = await running(program=program, **LONG)
    kept = (await suspended(first, Tier.CHECKPOINT)).checkpoint
    assert kept is not None
    for attempt in (2, 3):
        run = launch(attempt=attempt, program=program, **LONG, checkpoint=kept)
        failed = await head.hears(RunFailed, run)
        assert failed.error_kind == "restore"
        assert "data differ" in failed.detail
    fourth = launch(attempt=4, program=program, **LONG, checkpoint=kept)
    assert (await head.hears(RunStarted, fourth)).step == 0
    assert (await head.hears(RunCompleted, fourth)).step == 1200
    unusable = node.config.state_dir / "trials" / "digits" / "1" / "unusable"
    assert [path.name for path in unusable.iterdir()] == [kept.id.rpartition("@")[2]]


def losses(head: Head, trial: str) -> dict[int, float]:
    """The own loss of each iteration that was reported."""
    return {
        step: value
        for report, points in head.points
        if report.run.trial == trial
        for series in points
        if series.metric == "loss"
        for step, value in zip(series.steps, series.values, strict=True)
    }
