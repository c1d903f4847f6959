"""Whatever a program says, the head hears of it, and the stream goes on."""

from collections.abc import Callable

import pytest

from hermesd import wire
from hermesd.core.events import (
    DeviceFailed,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import Checkpoint, RunId, Tier
from hermesd.core.node.messages import Series
from hermesd.node.sanitize import LARGEST_BYTES, TEXT_CHARACTERS, message_of
from hermesd.wire import NodeEvent

from .conftest import Head, Node
from .test_daemon import SHORT

RUN = RunId("digits/1", 1)
LONE = "bad \udc80 byte"
HUGE = "x" * (2 * LARGEST_BYTES)


def heard(event: NodeEvent, *points: Series) -> NodeEvent | None:
    """What the head makes of it."""
    message = message_of(event, points)
    if message is None:
        return None
    assert message.ByteSize() <= LARGEST_BYTES
    said = wire.event_from_proto(message)
    assert isinstance(said, NodeEvent)
    return said


def test_what_can_be_said_is_said_as_it_is() -> None:
    failed = RunFailed(RUN, "exception", "x" * 20_000, "E", 3)
    assert heard(failed) == failed


def test_texts_that_no_message_carries_are_made_to() -> None:
    assert heard(RunFailed(RUN, "exception", LONE, LONE, 3)) == RunFailed(
        RUN, "exception", r"bad \udc80 byte", r"bad \udc80 byte", 3
    )
    long = heard(RunFailed(RUN, "exception", HUGE, "E", 3))
    assert long == RunFailed(RUN, "exception", "x" * TEXT_CHARACTERS + "...", "E", 3)
    assert heard(DeviceFailed("n1/cpu0", LONE)) == DeviceFailed("n1/cpu0", r"bad \udc80 byte")


def test_metrics_keep_their_values() -> None:
    points = Series(LONE, (1, 2), (0.5, float("nan")))
    said = heard(Reported(RUN, 2, (), ((LONE, float("nan")),)), points)
    assert isinstance(said, Reported)
    assert [name for name, _ in said.metrics] == [r"bad \udc80 byte"]


def test_a_report_too_large_keeps_its_step() -> None:
    many = [Series(f"m{n}", tuple(range(100)), (1.0,) * 100) for n in range(2000)]
    assert heard(Reported(RUN, 2, (), ()), *many) == Reported(RUN, 2, (), ())


@pytest.mark.parametrize(
    "outcome",
    [
        RunSuspended(RUN, Tier.CHECKPOINT, 2**70, None, 0.0),
        RunCompleted(RUN, 7, Checkpoint(LONE, RUN.trial, 1, 7, "", 2**70, ("n1",))),
        RunFailed(RUN, "exit", "", "", -(2**70)),
    ],
)
def test_the_end_of_a_run_is_told_in_any_case(outcome: NodeEvent) -> None:
    assert heard(outcome) == RunFailed(RUN, "lost", "the run's outcome cannot be told", "", 0)


def test_what_cannot_be_said_at_all_is_left_out() -> None:
    assert heard(RunStarted(RUN, 2**70, 0.0)) is None


SPEAKER = """
import sys, trainer_shim
trial = trainer_shim.attach()
for step in range(1, 4):
    trial.report(step, loss=1.0 / step, **{"odd \\udc80": float("nan")})
raise ValueError("bad \\udc80 byte")
"""


async def test_a_programs_odd_characters_cost_nothing_but_themselves(
    head: Head, node: Node, launch: Callable[..., RunId]
) -> None:
    run = launch(program=SPEAKER)
    failed = await head.hears(RunFailed, run)
    assert (failed.error_kind, failed.signature) == (
        "exception",
        r"ValueError: bad \udc80 byte",
    )
    assert head.steps(run.trial) == [1, 2, 3]
    assert head.steps(run.trial, r"odd \udc80") == []
    await head.hears(RunCompleted, launch(trial="digits/2", argv=SHORT))
