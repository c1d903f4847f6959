"""What goes over the wire comes back as it was; what cannot be understood is named."""

from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd import wire
from hermesd.codec import Malformed
from hermesd.core.commands import Kill, Launch, Release, Renew, Stop, Suspend, WriteDown
from hermesd.core.events import DeviceFailed, NodeJoined, Reclaimed, Reported, RunEvent, Yielded
from hermesd.core.losses import Chunk
from hermesd.core.model import (
    Checkpoint,
    Device,
    Fidelity,
    Goal,
    LiveRun,
    Milestone,
    OnStall,
    Processes,
    Program,
    Quantum,
    RunId,
    RunTerms,
    Stage,
    Tier,
    TrialSpec,
)
from hermesd.core.node.messages import Assignment, Order, Save, Series, Upcoming, Work
from hermesd.core.progress import reported
from hermesd.core.trial import Run, Trial
from hermesd.pb.hermes.v1 import node_pb2 as pb

text = st.text(st.characters(codec="utf-8"), max_size=8)
name = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
count = st.integers(0, 2**31 - 1)
number = st.floats(allow_nan=False)
terms = st.builds(
    RunTerms,
    identity=text,
    durability_seconds=number,
    suspend_deadline_seconds=number,
    hung_seconds=st.floats(60, 1e6),
    stalled=st.sampled_from(OnStall),
    processes=st.sampled_from([None, *Processes]),
)
runs = st.builds(RunId, name, st.integers(1, 2**31 - 1))
checkpoints = st.builds(
    Checkpoint, name, name, st.integers(1, 99), count, text, count, st.lists(name).map(tuple)
)
quanta = st.builds(
    Quantum,
    seconds=st.none() | number,
    until_step=st.none() | count,
    loss=st.none() | number,
    exact=st.booleans(),
    milestones=st.lists(st.builds(Milestone, number, number), max_size=3).map(tuple),
)
chunks = st.builds(Chunk, count, count, st.integers(1, 99), number, number, number)
series = st.builds(
    lambda metric, points: Series(metric, *map(tuple, zip(*points, strict=True))),
    name,
    st.lists(st.tuples(count, number), min_size=1, max_size=4),
)
scalars = text | st.integers(-(2**63), 2**63 - 1) | number | st.booleans()


by_hint: dict[object, st.SearchStrategy[object]] = {
    RunId: runs,
    Checkpoint: checkpoints,
    Checkpoint | None: st.none() | checkpoints,
    int: count,
    int | None: st.none() | st.integers(1, 2**31 - 1),
    float: number,
    str: text,
    Tier: st.sampled_from(Tier),
    Fidelity: st.sampled_from(Fidelity),
}


def of_type(event: type) -> st.SearchStrategy[RunEvent]:
    """Any value of an event's type."""
    return st.builds(event, **{n: by_hint[h] for n, h in get_type_hints(event).items()})


run_events = st.one_of(*(of_type(kind) for kind in RunEvent.__args__ if kind is not Reported))


places = st.builds(Yielded, name, text) | st.builds(Reclaimed, name)


@given(run_events | st.builds(DeviceFailed, name, text) | places, st.integers(0, 2**62))
def test_every_event_survives_the_wire(event: wire.NodeEvent, sequence: int) -> None:
    sent = pb.AttachRequest.FromString(
        wire.event_to_proto(event, sequence=sequence).SerializeToString()
    )
    assert sent.sequence == sequence
    assert wire.event_from_proto(sent) == event


@given(
    runs,
    st.lists(chunks, max_size=3),
    st.lists(series, max_size=3, unique_by=lambda one: one.metric),
    st.booleans(),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
)
def test_a_report_carries_its_points_with_their_last_values_and_ranges(
    run: RunId, losses: list[Chunk], points: list[Series], spoiled: bool, number: int, on_gpu: int
) -> None:
    last = tuple((one.metric, one.values[-1]) for one in points)
    wide = tuple((one.metric, min(one.values), max(one.values)) for one in points if one.steps[1:])
    known = (50, 1.5, 0.5, 64, 4096, spoiled, wide, number, on_gpu)
    report = Reported(run, 7, tuple(losses), last, *known)
    sent = wire.event_to_proto(report, points)
    assert wire.event_from_proto(sent) == report
    assert wire.points_from_proto(sent.report.points) == tuple(points)


TRAINING = Trial(
    TrialSpec("t/1", "t", 1, (Stage(None, ()),), (), 0), 0.0, 0.0,
    run=Run(RunId("t/1", 1), ("box/cpu:0",), Quantum(), 0.0, started=True),
)  # fmt: skip


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9), st.data())
def test_reports_that_became_one_say_the_same_as_one_after_the_other(
    losses: list[float], data: st.DataObject
) -> None:
    device, whole, apart, step = Device("box/cpu:0", "box", "cpu", 0), None, TRAINING, 0
    for number, value in enumerate(losses, 1):
        step += (steps := data.draw(st.integers(1, 9)))
        chunk = Chunk(step - steps + 1, step, steps, steps * value, value, value)
        points = [Series(metric, (step,), (value,)) for metric in ("loss", "acc")]
        report = Reported(
            RunId("t/1", 1), step, (chunk,), planned_steps=99, busy_seconds=1.0, cpu_seconds=0.5,
            examples=steps, memory_bytes=data.draw(st.integers(0, 9)), number=number,
            passes=number % 2,
        )  # fmt: skip
        message = wire.event_to_proto(report, points)
        said = wire.event_from_proto(message)
        assert isinstance(said, Reported)
        apart = reported(apart, said, device, {})
        if whole is None:
            whole = message
        else:
            assert wire.join_reports(whole.report, message.report)
    assert whole is not None
    once = wire.event_from_proto(whole)
    assert isinstance(once, Reported)
    together = reported(TRAINING, once, device, {})
    for field in ("step", "curve", "current", "use", "passes", "planned_steps"):
        assert getattr(together, field) == getattr(apart, field), field
    assert together.run is not None
    assert together.run.heard == len(losses)
    for metric in ("loss", "acc"):
        one, other = together.metrics[metric], apart.metrics[metric]
        for field in ("step", "last", "low", "high"):
            assert getattr(one, field) == getattr(other, field)


work = st.builds(
    Work,
    st.builds(
        Program,
        st.lists(text).map(tuple),
        text,
        text,
        text,
        st.lists(st.tuples(name, text)).map(tuple),
        st.lists(text).map(tuple),
    ),
    st.lists(st.tuples(name, scalars)).map(tuple),
    text,
    st.sampled_from(Goal),
    st.integers(0, 2**62),
)


@st.composite
def assignments(draw: st.DrawFn) -> Assignment:
    run = draw(runs)
    checkpoint = draw(st.none() | checkpoints)
    parked = draw(st.none() | st.integers(1, 99))
    launch = Launch(
        run,
        draw(st.lists(name).map(tuple)),
        draw(quanta),
        draw(text),
        RunId(run.trial, parked) if parked else None,
        checkpoint.id if checkpoint else None,
    )
    kept = draw(text)
    allowed = draw(st.floats(0, 1e6))
    never = draw(st.booleans())
    return Assignment(
        launch,
        checkpoint,
        draw(work),
        draw(terms),
        kept_parked=kept,
        start_allowance_seconds=allowed,
        never_anew=never,
    )


orders = st.one_of(
    assignments(),
    st.builds(Renew, runs, st.integers(0, 99), quanta, text, st.booleans()),
    st.builds(Suspend, runs, st.none() | st.sampled_from(Tier), number, st.none() | name, text),
    st.builds(Stop, runs, number, text),
    st.builds(Kill, runs, st.just("n1"), text),
    st.builds(WriteDown, runs, st.just("n1")),
    st.builds(Release, name, st.just("n1"), st.booleans()),
    st.builds(Save, runs),
    st.builds(Upcoming, st.lists(name).map(tuple), st.integers(0, 99)),
)


@given(orders)
def test_every_order_survives_the_wire(order: Order) -> None:
    sent = pb.AttachResponse.FromString(wire.command_to_proto(order).SerializeToString())
    assert wire.command_from_proto(sent, "n1") == order


def test_hello_survives_the_wire() -> None:
    joined = NodeJoined(
        "n1",
        "boot",
        (Device("n1/cpu0", "n1", "cpu", 1 << 30, (0,)),),
        tuple(
            LiveRun(RunId("t/1", attempt), condition, ("n1/cpu0",), 5)
            for attempt, condition in enumerate(("starting", "running", "parked", "ended"), 1)
        ),
        ("0 GPUs",),
        "0.1.0",
        disk="one disk",
    )
    assert wire.event_from_proto(wire.hello_to_proto(joined)) == joined


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.AttachRequest(run_started=pb.RunStarted(trial="t")), "run_started: run 't'#0"),
        (
            pb.AttachRequest(run_suspended=pb.RunSuspended(trial="t", attempt=1)),
            "run_suspended.tier: 0",
        ),
        (pb.AttachRequest(hello=pb.Hello(node="n")), "hello: node and boot_id"),
        (
            pb.AttachRequest(
                report=pb.Report(trial="t", attempt=1, points=pb.MetricPoints(metrics=["a"]))
            ),
            "report.points: 1 metrics with",
        ),
        (
            pb.AttachRequest(
                report=pb.Report(
                    trial="t",
                    attempt=1,
                    points=pb.MetricPoints(metrics=["a"], counts=[2], steps=[1, 2], values=[0.5]),
                )
            ),
            "report.points: 2 steps and 1 values",
        ),
        (
            pb.AttachRequest(
                report=pb.Report(
                    trial="t",
                    attempt=1,
                    points=pb.MetricPoints(
                        metrics=["a", "b"], counts=[2, -1], steps=[1], values=[0.5]
                    ),
                )
            ),
            "each at least 1",
        ),
        (
            pb.AttachRequest(report=pb.Report(trial="t", attempt=1, chunks=[pb.LossChunk()])),
            "report.chunks",
        ),
    ],
)
def test_what_cannot_be_understood_is_named(message: pb.AttachRequest, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        wire.event_from_proto(message)


def test_what_is_no_event_and_no_order_is_passed_over() -> None:
    assert wire.event_from_proto(pb.AttachRequest(heartbeat=pb.Heartbeat())) is None
    assert wire.event_from_proto(pb.AttachRequest()) is None
    assert wire.command_from_proto(pb.AttachResponse(lease=pb.Lease()), "n1") is None
