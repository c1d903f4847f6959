"""The node stream's messages, from and to the core's events and orders.

Pure, and shared by both ends. `FORMS` says which type is which message, and what is not plain about
it. A message that the core cannot represent (an unknown enum value, an unset oneof, an attempt
below 1) raises `Malformed`, which names the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import isnan
from typing import Any, TypeAlias, get_args

from google.protobuf.message_factory import GetMessageClass

from hermesd.codec import Codec, Malformed, MessageForm, words
from hermesd.core import commands, events, model
from hermesd.core.events import NodeJoined, Reported, RunEvent
from hermesd.core.losses import Chunk
from hermesd.core.model import Checkpoint, Device, Fidelity, Goal, NodeId, Plugin, Quantum, Tier
from hermesd.core.node import messages
from hermesd.core.node.messages import Assignment, Order, Series
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types

NodeEvent: TypeAlias = (
    RunEvent
    | events.DeviceFailed
    | events.Yielded
    | events.Reclaimed
    | events.CopyEvent
    | events.Looked
)

TIERS = words(Tier, types.Tier.DESCRIPTOR)
FIDELITIES = words(Fidelity, types.Fidelity.DESCRIPTOR)
GOALS = words(Goal, types.Goal.DESCRIPTOR)


def _check_run(message: Any, path: str) -> None:
    if not message.trial or message.attempt < 1:
        raise Malformed(
            f"{path}: run {message.trial!r}#{message.attempt}, expected a trial and an attempt"
            " of 1 or more"
        )


def _check_hello(message: pb.Hello, path: str) -> None:
    if not message.node or not message.boot_id:
        raise Malformed(f"{path}: node and boot_id, expected both")


def _check_report(message: pb.Report, path: str) -> None:
    if any(chunk.count < 1 for chunk in message.chunks):
        raise Malformed(f"{path}.chunks: a chunk without an iteration, expected 1 or more")


def _parked(message: pb.Launch) -> model.RunId | None:
    return model.RunId(message.trial, message.parked_attempt) if message.parked_attempt else None


FORMS: Mapping[type, MessageForm] = {
    # Nouns
    model.RunId: MessageForm(check=_check_run),
    model.Checkpoint: MessageForm(types.Checkpoint),
    model.Milestone: MessageForm(types.Milestone),
    model.Quantum: MessageForm(types.Quantum),
    model.Device: MessageForm(types.Device),
    model.Plugin: MessageForm(types.Plugin),
    model.LiveRun: MessageForm(pb.LiveRun),
    model.Program: MessageForm(pb.Program),
    model.Venv: MessageForm(pb.Venv, also={"name": lambda venv: venv.name}),
    Chunk: MessageForm(pb.LossChunk, names={"size": "count"}),
    # What a node says
    NodeJoined: MessageForm(
        pb.Hello,
        names={"live": "runs"},
        derived={"owner": lambda message: ""},  # not for the node to say
        check=_check_hello,
    ),
    Reported: MessageForm(
        pb.Report,
        # Beside a report go the points themselves.
        derived={
            "metrics": lambda message: _last(message.points),
            "ranges": lambda message: _ranges(message.points),
        },
        check=_check_report,
    ),
    events.RunStarted: MessageForm(pb.RunStarted),
    events.RunStalled: MessageForm(pb.RunStalled),
    events.QuantumEnded: MessageForm(pb.QuantumEnded),
    events.MilestonePassed: MessageForm(pb.MilestonePassed),
    events.RunSuspended: MessageForm(pb.RunSuspended),
    events.RunCompleted: MessageForm(pb.RunCompleted),
    events.RunFailed: MessageForm(pb.RunFailed, names={"signature": "error_signature"}),
    events.Checkpointed: MessageForm(pb.Checkpointed),
    events.ParkLost: MessageForm(pb.ParkLost),
    events.FidelityKnown: MessageForm(pb.FidelityKnown),
    events.DeviceFailed: MessageForm(pb.DeviceFailed),
    events.Yielded: MessageForm(pb.Yielded),
    events.Reclaimed: MessageForm(pb.Reclaimed),
    events.Copied: MessageForm(pb.Copied),
    events.NotCopied: MessageForm(pb.NotCopied),
    events.Dropped: MessageForm(pb.Dropped),
    events.Spoilt: MessageForm(pb.Spoilt),
    events.Looked: MessageForm(pb.Looked),
    # What the head says
    model.Stage: MessageForm(pb.Stage),
    messages.Work: MessageForm(pb.Program),
    messages.CheckpointSource: MessageForm(pb.Source),
    commands.Launch: MessageForm(
        pb.Launch,
        derived={
            "parked": _parked,
            "checkpoint": lambda message: (
                message.checkpoint.id if message.HasField("checkpoint") else None
            ),
        },
        also={"parked_attempt": lambda launch: launch.parked.attempt if launch.parked else 0},
    ),
    model.RunTerms: MessageForm(absent={"hung_seconds": model.HUNG_SECONDS}),
    Assignment: MessageForm(pb.Launch, names={"work": "program"}),
    commands.Renew: MessageForm(pb.Renew),
    commands.Suspend: MessageForm(pb.SuspendRun),
    commands.Stop: MessageForm(pb.StopRun),
    commands.Kill: MessageForm(pb.KillRun, here="node"),
    commands.WriteDown: MessageForm(pb.WriteDown, here="node"),
    commands.Release: MessageForm(pb.ReleaseTrial, here="node"),
    commands.Look: MessageForm(pb.LookAt, here="node"),
    messages.Upcoming: MessageForm(pb.Upcoming),
    messages.Save: MessageForm(pb.SaveRun),
    messages.Fetch: MessageForm(pb.CopyCheckpoint, here="node"),
    messages.DropCopies: MessageForm(pb.DropCheckpoints),
}
CODEC = Codec(FORMS)


def _kinds(of: Any, kinds: Iterable[type]) -> dict[str, type]:
    """The types by the name that their message has among those of a stream."""
    said = of.DESCRIPTOR.oneofs_by_name["message"].fields
    names: dict[Any, str] = {GetMessageClass(each.message_type): each.name for each in said}
    return {names[FORMS[kind].message]: kind for kind in kinds}


_EVENTS = _kinds(pb.AttachRequest, (NodeJoined, *get_args(NodeEvent)))
_ORDERS = _kinds(pb.AttachResponse, get_args(Order))
_EVENT_NAMES = {kind: name for name, kind in _EVENTS.items()}
_ORDER_NAMES = {kind: name for name, kind in _ORDERS.items()}


def hello_to_proto(joined: NodeJoined) -> pb.AttachRequest:
    """The Hello of a node."""
    return pb.AttachRequest(hello=CODEC.encode(joined))


def event_to_proto(
    event: NodeEvent, points: Iterable[Series] = (), sequence: int = 0
) -> pb.AttachRequest:
    """The message of an event; `points` go with a report, beside what is folded."""
    said = CODEC.fields(event)
    if isinstance(event, Reported):
        said["points"] = points_to_proto(points)
    whole: dict[str, Any] = {_EVENT_NAMES[type(event)]: said}
    return pb.AttachRequest(sequence=sequence, **whole)


def join_reports(report: pb.Report, later: pb.Report) -> bool:
    """Have a report say what the next one of its run says, too.

    False, and nothing is changed, if only the earlier one has some metric: the head would take its
    last value for one of the later step.
    """
    series = {one.metric: one for one in points_from_proto(later.points)}
    for metric, steps, values in points_from_proto(report.points):
        if metric not in series:
            return False
        after = series[metric]
        series[metric] = Series(metric, steps + after.steps, values + after.values)
    report.points.CopyFrom(points_to_proto(series.values()))
    report.chunks.extend(later.chunks)
    report.step, report.number = later.step, later.number
    report.planned_steps = later.planned_steps or report.planned_steps
    report.busy_seconds += later.busy_seconds
    report.cpu_seconds += later.cpu_seconds
    report.examples += later.examples
    report.passes += later.passes
    report.memory_bytes = max(report.memory_bytes, later.memory_bytes)
    report.device_memory_bytes = max(report.device_memory_bytes, later.device_memory_bytes)
    report.not_finite |= later.not_finite
    return True


def event_from_proto(request: pb.AttachRequest) -> NodeJoined | NodeEvent | None:
    """The event that a node's message stands for. Raises Malformed.

    None for what is no event: heartbeat, goodbye, usage, a piece of a file, that
    no checkpoint could be written, and kinds that a
    newer node knows.
    """
    name = request.WhichOneof("message")
    if name not in _EVENTS:
        return None
    event: NodeJoined | NodeEvent = CODEC.decode(_EVENTS[name], getattr(request, name), name)
    return event


def command_to_proto(order: Order) -> pb.AttachResponse:
    """The message of an order; `messages.assignment` makes one of a Launch."""
    whole: dict[str, Any] = {_ORDER_NAMES[type(order)]: CODEC.fields(order)}
    return pb.AttachResponse(**whole)


def command_from_proto(response: pb.AttachResponse, node: NodeId) -> Order | None:
    """The order that a head's message stands for, at this node. Raises Malformed.

    None for what orders nothing: welcome, acknowledgment, lease, farewell, a client's wish to
    see a file, and kinds that a newer head knows.
    """
    name = response.WhichOneof("message")
    if name not in _ORDERS:
        return None
    order: Order = CODEC.decode(_ORDERS[name], getattr(response, name), name, node)
    return order


def launch_to_proto(order: Assignment) -> pb.Launch:
    """The message of a launch; a node also keeps it as its journal of the run."""
    message: pb.Launch = CODEC.encode(order)
    return message


def launch_from_proto(message: pb.Launch) -> Assignment:
    """The launch of a message. Raises Malformed."""
    order: Assignment = CODEC.decode(Assignment, message, "launch")
    return order


def checkpoint_to_proto(checkpoint: Checkpoint) -> types.Checkpoint:
    """The message of a checkpoint."""
    message: types.Checkpoint = CODEC.encode(checkpoint)
    return message


def quantum_to_proto(quantum: Quantum) -> types.Quantum:
    """The message of a quantum; absent limits stay unset."""
    message: types.Quantum = CODEC.encode(quantum)
    return message


def device_to_proto(device: Device) -> types.Device:
    """The message of a device."""
    message: types.Device = CODEC.encode(device)
    return message


def plugin_to_proto(plugin: Plugin) -> types.Plugin:
    """The message of a policy or placement."""
    message: types.Plugin = CODEC.encode(plugin)
    return message


def points_to_proto(points: Iterable[Series]) -> pb.MetricPoints:
    """The message of points of several metrics."""
    series = list(points)
    return pb.MetricPoints(
        metrics=[one.metric for one in series],
        counts=[len(one.steps) for one in series],
        steps=[step for one in series for step in one.steps],
        values=[value for one in series for value in one.values],
    )


def points_from_proto(message: pb.MetricPoints) -> tuple[Series, ...]:
    """The points that travel beside a report. Raises Malformed."""
    metrics, counts, values = _columns(message)
    steps = tuple(message.steps[:])
    found, end = [], 0
    for metric, count in zip(metrics, counts, strict=True):
        begin, end = end, end + count
        found.append(Series(metric, steps[begin:end], values[begin:end]))
    return tuple(found)


def _columns(message: pb.MetricPoints) -> tuple[Sequence[str], Sequence[int], tuple[float, ...]]:
    """Metrics, how many points each has, and the values. Raises Malformed."""
    # A slice is copied by the library at once, an iteration asks it for each number.
    metrics, counts, values = message.metrics[:], message.counts[:], tuple(message.values[:])
    if len(metrics) != len(counts) or min(counts, default=1) < 1:
        raise Malformed(
            f"report.points: {len(metrics)} metrics with {counts[:8]} points, expected as many"
            " numbers as metrics, each at least 1"
        )
    if not sum(counts) == len(message.steps) == len(values):
        raise Malformed(
            f"report.points: {len(message.steps)} steps and {len(values)} values,"
            f" expected {sum(counts)} of each"
        )
    return metrics, counts, values


def _last(message: pb.MetricPoints) -> tuple[tuple[str, float], ...]:
    """Each metric's last value. Raises Malformed."""
    metrics, counts, values = _columns(message)
    ends = accumulate(counts)
    return tuple((metric, values[end - 1]) for metric, end in zip(metrics, ends, strict=True))


def _ranges(message: pb.MetricPoints) -> tuple[tuple[str, float, float], ...]:
    """The lowest and highest number of the metrics that have several values; NaN is none."""
    metrics, counts, values = _columns(message)
    found, end = [], 0
    for metric, count in zip(metrics, counts, strict=True):
        begin, end = end, end + count
        if count > 1 and (numbers := [each for each in values[begin:end] if not isnan(each)]):
            found.append((metric, min(numbers), max(numbers)))
    return tuple(found)
