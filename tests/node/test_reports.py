"""A host's events become facts; losses turn, thinned ones keep their weight, NaN is set aside."""

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.events import Checkpointed, FidelityKnown, RunCompleted, RunFailed
from hermesd.core.losses import REPORT_CHUNKS
from hermesd.core.model import Checkpoint, Fidelity, Goal, RunId, Tier
from hermesd.core.node.messages import (
    LeftDevice,
    Parked,
    Planned,
    Progress,
    Series,
    Started,
)
from hermesd.node.frames import Frame
from hermesd.node.machine import processes
from hermesd.node.outbox import Outbox
from hermesd.node.runner.host_events import REASON_CHARACTERS, HostEvents, fact_of
from hermesd.pb.hermes.v1 import node_pb2 as pb

RUN = RunId("t/1", 3)
KEPT = {"id": "s9", "path": "/x", "step": 9, "bytes": 5, "sha256": "ab"}
CHECKPOINT = Checkpoint("t/1@s9", "t/1", 3, 9, "ab", 5, ("n1",))


def fact(goal: Goal = Goal.MINIMIZE, **frame: object) -> object:
    return fact_of({"attempt": 3, "seq": 1, **frame}, "t/1", goal, "loss", "n1")


def reported(losses: list[object], first: int = 1, steps: list[int] | None = None) -> Frame:
    steps = steps or [first + i for i in range(len(losses))]
    numbers = [float(x) for x in losses if float(x) == float(x)]  # type: ignore[arg-type]
    return {
        "kind": "reported",
        "first_step": first,
        "last_step": steps[-1],
        "count": steps[-1] - first + 1,
        "points": [[s, {"loss": v, "acc": 0.5}] for s, v in zip(steps, losses, strict=True)],
        "signal": {
            "count": steps[-1] - first + 1,
            "min": min(numbers, default=None),
            "max": max(numbers, default=None),
        },
        "busy_seconds": 1.5,
        "examples": 64,
        "memory_bytes": 7,
        "cpu_seconds": 0.5,
    }


def progress(frame: Frame, goal: Goal = Goal.MINIMIZE) -> Progress:
    made = fact(goal, **frame)
    assert isinstance(made, Progress)
    return made


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ({"kind": "started", "step": 4, "worker_pid": 1}, Started(RUN, 4)),
        ({"kind": "resumed", "step": 4}, Started(RUN, 4)),
        ({"kind": "planned", "steps": 50}, Planned(RUN, 50)),
        ({"kind": "parked", "step": 4, "cause": "limit"}, Parked(RUN, 4, 0, "limit")),
        ({"kind": "parked", "step": 4, "at_boundary": False}, Parked(RUN, 4, midway=True)),
        (
            {"kind": "fidelity", "level": "park-only", "reason": "why", "framework": "jax"},
            FidelityKnown(RUN, Fidelity.PARK_ONLY, "why", "jax"),
        ),
        ({"kind": "checkpointed", **KEPT}, Checkpointed(RUN, CHECKPOINT)),
        (
            {"kind": "suspended", "tier": "checkpoint", "step": 9, "checkpoint": KEPT},
            LeftDevice(RUN, Tier.CHECKPOINT, 9, CHECKPOINT),
        ),
        (
            {"kind": "suspended", "tier": "kill", "step": 9, "checkpoint": None, "cause": "late"},
            LeftDevice(RUN, Tier.KILL, 9, None, "late"),
        ),
        ({"kind": "completed", "step": 9, "checkpoint": None}, RunCompleted(RUN, 9)),
        (
            {"kind": "failed", "error_kind": "exit", "detail": "d", "error_signature": "s"},
            RunFailed(RUN, "exit", "d", "s"),
        ),
        (
            {
                "kind": "failed",
                "error_kind": "out_of_memory",
                "detail": "killed by the kernel: out of memory",
                "error_signature": "killed by the kernel: out of memory",
                "step": 7,
            },
            RunFailed(
                RUN,
                "out_of_memory",
                "killed by the kernel: out of memory",
                "killed by the kernel: out of memory",
                7,
            ),
        ),
        ({"kind": "of a newer host"}, None),
    ],
)
def test_each_event_states_its_fact(frame: Frame, expected: object) -> None:
    assert fact(**frame) == expected


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=100), st.integers(1, 1000))
def test_chunks_cover_every_iteration_once(losses: list[float], first: int) -> None:
    chunks = progress(reported(list(losses), first)).report.chunks
    assert len(chunks) <= REPORT_CHUNKS
    covered = [step for c in chunks for step in range(c.first_step, c.last_step + 1)]
    assert covered == list(range(first, first + len(losses)))
    assert sum(chunk.size for chunk in chunks) == len(losses)
    assert sum(chunk.total for chunk in chunks) == pytest.approx(sum(losses), abs=1e-3)
    assert min(chunk.low for chunk in chunks) == min(losses)
    assert max(chunk.high for chunk in chunks) == max(losses)


def test_thinned_points_stand_for_what_is_left_out() -> None:
    frame = reported([4.0, 2.0], first=1, steps=[50, 100])
    frame["signal"].update(min=0.5, max=9.0)
    first, last = progress(frame).report.chunks
    assert (first.first_step, first.last_step, first.size, first.mean) == (1, 50, 50, 4.0)
    assert (last.first_step, last.last_step, last.size, last.mean) == (51, 100, 50, 2.0)
    assert (last.low, first.high) == (0.5, 9.0), "the extremes of all iterations are kept"


def test_a_maximized_signal_is_negated_and_its_points_are_not() -> None:
    made = progress(reported([0.25, 0.75]), Goal.MAXIMIZE)
    assert [chunk.mean for chunk in made.report.chunks] == [-0.25, -0.75]
    assert dict(made.report.metrics) == {"loss": 0.75, "acc": 0.5}
    assert made.points[0].values == (0.25, 0.75)


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_a_loss_that_is_no_number_is_flagged_and_left_out(bad: str) -> None:
    made = progress(reported([1.0, bad, 3.0]))
    assert made.report.not_finite
    covered = [(c.first_step, c.last_step) for c in made.report.chunks]
    assert covered == [(1, 1), (3, 3)]
    assert all(math.isfinite(chunk.total) for chunk in made.report.chunks)
    assert not math.isfinite(made.points[0].values[1])
    nothing = progress(reported([bad, bad])).report
    assert (nothing.chunks, nothing.not_finite, nothing.step) == ((), True, 2)


def test_an_extreme_between_thinned_points_is_flagged_too() -> None:
    frame = reported([1.0, 2.0], steps=[10, 20])
    frame["signal"]["max"] = "inf"
    assert progress(frame).report.not_finite


def test_a_report_without_the_signal_still_tells_the_rest() -> None:
    frame = reported([1.0])
    frame["points"] = [[1, {"acc": 0.5}]]
    frame["signal"] = {"count": 0, "min": None, "max": None}
    made = progress(frame)
    assert made.report.chunks == ()
    assert not made.report.not_finite
    assert made.report.metrics == (("acc", 0.5),)
    assert (made.report.busy_seconds, made.report.examples) == (1.5, 64)


@pytest.mark.parametrize(
    "frame",
    [
        {"kind": "started"},
        {"kind": "fidelity", "level": "perfect"},
        {"kind": "suspended", "tier": "x", "step": 1},
        {"kind": "planned", "steps": 2**70},
        {"kind": "completed", "step": -1},
        {"kind": "parked", "step": float("inf")},
        {"kind": "checkpointed", **KEPT, "bytes": 2**63},
    ],
)
def test_an_event_that_makes_no_sense_is_refused(frame: Frame) -> None:
    with pytest.raises((KeyError, ValueError, OverflowError)):
        fact(**frame)


def test_a_point_may_be_of_the_step_before_the_reports_iterations() -> None:
    """What a program tells after a pass is of the pass's last step, which was reported before."""
    frame = reported([1.0, 2.0], first=8, steps=[8, 9])
    frame["points"] = [[7, {"val_acc": 0.5}], *frame["points"]]
    made = progress(frame)
    assert [(c.first_step, c.last_step) for c in made.report.chunks] == [(8, 8), (9, 9)]
    assert Series("val_acc", (7,), (0.5,)) in made.points


@pytest.mark.parametrize("steps", [[2**70], [-5, -4], [10, 5]])
def test_steps_that_the_wire_cannot_carry_are_refused(steps: list[int]) -> None:
    frame = reported([1.0] * len(steps), first=steps[0], steps=steps)
    with pytest.raises(ValueError, match="expected rising ones"):
        fact(**frame)


def test_a_report_has_the_number_that_its_host_gave_it() -> None:
    assert progress({**reported([1.0]), "seq": 7}).report.number == 7


async def test_what_another_daemon_may_have_told_is_no_part_of_a_later_report() -> None:
    """The head drops a report that it knows: what else were in it would be lost, or count twice."""
    outbox = Outbox()
    outbox.report_seconds = 3600.0

    def say(said: Progress) -> int:
        outbox.tell(said.report, said.points)
        return outbox.last

    async def taken(devices: object) -> int:
        return 0

    driver, rack = SimpleNamespace(outbox=outbox, say=say), SimpleNamespace(memory_taken=taken)
    context: Any = SimpleNamespace(node="n1", driver=driver, rack=rack)
    folder: Any = SimpleNamespace(trial="t/1")
    launch = SimpleNamespace(devices=("n1/cpu0",))
    work = SimpleNamespace(signal="loss", signal_goal=Goal.MINIMIZE)
    assignment: Any = SimpleNamespace(launch=launch, work=work)
    hearing = HostEvents(context, folder, assignment)
    hearing.told_before = 3
    for number in range(1, 6):
        await hearing.hear({**reported([1.0], number), "attempt": 3, "seq": number})
    outbox.seal()
    async with asyncio.timeout(10):
        sent = [await outbox.take() for _ in range(4)]
    assert [[chunk.first_step for chunk in each.report.chunks] for each in sent] == [
        [1], [2], [3], [4, 5],
    ]  # fmt: skip


async def test_of_a_trial_no_more_processes_are_looked_for_than_it_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_for: list[int] = []

    def numbered(inner: int, member: int, uid: int) -> int:
        looked_for.append(inner)
        return inner

    monkeypatch.setattr(processes, "numbered", numbered)
    driver = SimpleNamespace(outbox=Outbox(), say=lambda fact: 0)
    context: Any = SimpleNamespace(node="n1", driver=driver)
    launch = SimpleNamespace(devices=("n1/cpu0", "n1/cpu1"))
    work = SimpleNamespace(signal="loss", signal_goal=Goal.MINIMIZE)
    assignment: Any = SimpleNamespace(launch=launch, work=work, run=RUN, checkpoint=None)
    folder: Any = SimpleNamespace(trial="t/1", uid=0)
    hearing = HostEvents(context, folder, assignment)
    pids = list(range(10, 10_000))
    started = {"kind": "started", "attempt": 3, "seq": 1, "step": 0, "seconds": 1.0}
    await hearing.hear({**started, "worker_pid": 9, "rank_pids": pids, "restored_from": None})
    assert looked_for == [9, 10]
    assert hearing.worker_pids == {9, 10}


def hearing_of(outbox: Outbox) -> HostEvents:
    driver: Any = SimpleNamespace(outbox=outbox)
    context: Any = SimpleNamespace(node="n1", driver=driver)
    launch = SimpleNamespace(devices=("n1/cpu0",))
    work = SimpleNamespace(signal="loss", signal_goal=Goal.MINIMIZE)
    assignment: Any = SimpleNamespace(launch=launch, work=work, run=RUN)
    folder: Any = SimpleNamespace(trial="t/1")
    return HostEvents(context, folder, assignment)


def not_saved(number: int, reason: object, name: str = "s9") -> Frame:
    said = {"kind": "checkpoint_failed", "attempt": 3, "seq": number}
    return {**said, "id": name, "reason": reason}


async def taken(outbox: Outbox) -> pb.AttachRequest:
    async with asyncio.timeout(10):
        return await outbox.take()


async def nothing_is_left(outbox: Outbox) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await outbox.take()


async def test_that_nothing_could_be_written_down_is_told_to_whoever_waits() -> None:
    hearing = hearing_of(outbox := Outbox())
    hearing.asked_checkpoint = "s9"
    await hearing.hear(not_saved(1, "disk full"))
    await hearing.hear(not_saved(1, "disk full"))  # the host repeats what was not acknowledged
    sent = await taken(outbox)
    assert (sent.sequence, sent.WhichOneof("message")) == (0, "not_saved")
    told = sent.not_saved
    assert (told.trial, told.attempt, told.reason) == (RUN.trial, RUN.attempt, "disk full")
    await nothing_is_left(outbox)


async def test_a_host_that_says_much_of_it_fills_no_memory() -> None:
    hearing = hearing_of(outbox := Outbox())
    for number in range(1, 11):
        await hearing.hear(not_saved(number, "x" * 50_000))
    await nothing_is_left(outbox)
    hearing.asked_checkpoint = "s9"
    await hearing.hear(not_saved(11, "of another one", "s8"))
    await nothing_is_left(outbox)
    for number in range(12, 22):
        await hearing.hear(not_saved(number, "x" * 50_000))
    assert (await taken(outbox)).not_saved.reason == "x" * REASON_CHARACTERS
    await nothing_is_left(outbox)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("/data/caf\udce9: disk full", "/data/caf?: disk full"),
        (None, ""),
        (["no", "text"], ""),
    ],
)
async def test_why_nothing_was_written_may_be_any_words(reason: object, told: str) -> None:
    hearing = hearing_of(outbox := Outbox())
    hearing.asked_checkpoint = "s9"
    await hearing.hear(not_saved(1, reason))
    assert (await taken(outbox)).not_saved.reason == told
