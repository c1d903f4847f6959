"""What a node says to the head, from and to the core's events."""

from __future__ import annotations

from collections.abc import Iterable

from hermesd.core.events import (
    Checkpointed,
    Copied,
    CopyEvent,
    DeviceFailed,
    Dropped,
    FidelityKnown,
    Looked,
    MilestonePassed,
    NodeJoined,
    NotCopied,
    ParkLost,
    QuantumEnded,
    Reclaimed,
    Reported,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunStalled,
    RunStarted,
    RunSuspended,
    Spoilt,
    Yielded,
)
from hermesd.core.model import LiveRun
from hermesd.core.node.messages import Series
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.wire.nouns import (
    CONDITIONS,
    FIDELITIES,
    TIERS,
    Malformed,
    checkpoint_from_proto,
    checkpoint_of,
    checkpoint_to_proto,
    device_from_proto,
    device_to_proto,
    optional,
    run_of,
    word_of,
)
from hermesd.wire.reports import report_from_proto, report_to_proto

NodeEvent = RunEvent | DeviceFailed | Yielded | Reclaimed | CopyEvent | Looked


def hello_to_proto(joined: NodeJoined) -> pb.AttachRequest:
    """The Hello of a node."""
    return pb.AttachRequest(
        hello=pb.Hello(
            node=joined.node,
            boot_id=joined.boot_id,
            version=joined.version,
            devices=[device_to_proto(device) for device in joined.devices],
            runs=[
                pb.LiveRun(
                    trial=live.run.trial,
                    attempt=live.run.attempt,
                    condition=CONDITIONS[live.condition],
                    devices=live.devices,
                    step=live.step,
                    identity=live.identity,
                )
                for live in joined.live
            ],
            facts=joined.facts,
            yields=[pb.Yielded(place=place, reason=why) for place, why in joined.yields],
            disk=joined.disk,
            shared=joined.shared,
            parting=joined.parting,
            machine=joined.machine,
            parked_memory_bytes=joined.parked_memory_bytes,
        )
    )


def hello_from_proto(message: pb.Hello) -> NodeJoined:
    """The NodeJoined that a Hello stands for. Raises Malformed."""
    if not message.node or not message.boot_id:
        raise Malformed("hello: node and boot_id, expected both")
    return NodeJoined(
        node=message.node,
        boot_id=message.boot_id,
        devices=tuple(device_from_proto(device) for device in message.devices),
        live=tuple(
            LiveRun(
                run_of(live, "hello.runs"),
                word_of(CONDITIONS, live.condition, "hello.runs.condition"),
                tuple(live.devices),
                live.step,
                live.identity,
            )
            for live in message.runs
        ),
        facts=tuple(message.facts),
        version=message.version,
        yields=tuple((each.place, each.reason) for each in message.yields),
        disk=message.disk,
        shared=message.shared,
        parting=message.parting,
        machine=tuple(message.machine),
        parked_memory_bytes=message.parked_memory_bytes,
    )


def event_to_proto(
    event: NodeEvent, points: Iterable[Series] = (), sequence: int = 0
) -> pb.AttachRequest:
    """The message of an event; `points` go with a report, beside what is folded."""
    request = _event_to_proto(event, points)
    request.sequence = sequence
    return request


def _event_to_proto(event: NodeEvent, points: Iterable[Series]) -> pb.AttachRequest:
    match event:
        case DeviceFailed(device, reason):
            return pb.AttachRequest(device_failed=pb.DeviceFailed(device=device, reason=reason))
        case Yielded(place, reason, parting):
            yielded = pb.Yielded(place=place, reason=reason, parting=parting)
            return pb.AttachRequest(yielded=yielded)
        case Reclaimed(place):
            return pb.AttachRequest(reclaimed=pb.Reclaimed(place=place))
        case Looked(node, sights):
            seen = [pb.Sight(path=path, reason=reason) for path, reason in sights]
            return pb.AttachRequest(looked=pb.Looked(node=node, sights=seen))
        case Copied(node, trial, name):
            return pb.AttachRequest(copied=pb.Copied(node=node, trial=trial, checkpoint=name))
        case NotCopied(node, trial, name, reason, way):
            refused = pb.NotCopied(node=node, trial=trial, checkpoint=name, reason=reason, way=way)
            return pb.AttachRequest(not_copied=refused)
        case Dropped(node, trial):
            return pb.AttachRequest(dropped=pb.Dropped(node=node, trial=trial))
        case Spoilt(node, trial, name, reason, instead):
            spoilt = pb.Spoilt(node=node, trial=trial, checkpoint=name, reason=reason)
            if instead is not None:
                spoilt.instead.CopyFrom(checkpoint_to_proto(instead))
            return pb.AttachRequest(spoilt=spoilt)
        case Reported():
            return pb.AttachRequest(report=report_to_proto(event, points))
        case RunStarted((trial, attempt), step, seconds, planned):
            return pb.AttachRequest(
                run_started=pb.RunStarted(
                    trial=trial,
                    attempt=attempt,
                    step=step,
                    start_seconds=seconds,
                    planned_steps=planned or 0,
                )
            )
        case QuantumEnded((trial, attempt), grant, step):
            return pb.AttachRequest(
                quantum_ended=pb.QuantumEnded(trial=trial, attempt=attempt, grant=grant, step=step)
            )
        case MilestonePassed((trial, attempt), percent, loss, step):
            return pb.AttachRequest(
                milestone_passed=pb.MilestonePassed(
                    trial=trial, attempt=attempt, percent=percent, loss=loss, step=step
                )
            )
        case Checkpointed((trial, attempt), checkpoint):
            return pb.AttachRequest(
                checkpointed=pb.Checkpointed(
                    trial=trial, attempt=attempt, checkpoint=checkpoint_to_proto(checkpoint)
                )
            )
        case RunStalled((trial, attempt), step, seconds):
            return pb.AttachRequest(
                run_stalled=pb.RunStalled(trial=trial, attempt=attempt, step=step, seconds=seconds)
            )
        case ParkLost((trial, attempt), reason):
            return pb.AttachRequest(
                park_lost=pb.ParkLost(trial=trial, attempt=attempt, reason=reason)
            )
        case FidelityKnown((trial, attempt), fidelity, reason, framework):
            return pb.AttachRequest(
                fidelity_known=pb.FidelityKnown(
                    trial=trial,
                    attempt=attempt,
                    fidelity=FIDELITIES[fidelity],
                    reason=reason,
                    framework=framework,
                )
            )
        case RunSuspended() | RunCompleted() | RunFailed():
            return _outcome_to_proto(event)


def _outcome_to_proto(event: RunSuspended | RunCompleted | RunFailed) -> pb.AttachRequest:
    match event:
        case RunSuspended((trial, attempt), tier, step, checkpoint, seconds, cause, memory):
            return pb.AttachRequest(
                run_suspended=pb.RunSuspended(
                    trial=trial,
                    attempt=attempt,
                    tier=TIERS[tier],
                    step=step,
                    checkpoint=optional(checkpoint),
                    release_seconds=seconds,
                    cause=cause,
                    memory_bytes=memory,
                )
            )
        case RunCompleted((trial, attempt), step, checkpoint):
            return pb.AttachRequest(
                run_completed=pb.RunCompleted(
                    trial=trial, attempt=attempt, step=step, checkpoint=optional(checkpoint)
                )
            )
        case RunFailed((trial, attempt), kind, detail, signature, step, newest):
            return pb.AttachRequest(
                run_failed=pb.RunFailed(
                    trial=trial,
                    attempt=attempt,
                    error_kind=kind,
                    detail=detail,
                    error_signature=signature,
                    step=step,
                    newest_attempt=newest,
                )
            )


def event_from_proto(request: pb.AttachRequest) -> NodeJoined | NodeEvent | None:
    """The event that a node's message stands for. Raises Malformed.

    None for what is no event: heartbeat, goodbye, usage, a piece of a file, and kinds that a
    newer node knows.
    """
    match request.WhichOneof("message"):
        case "hello":
            return hello_from_proto(request.hello)
        case "report":
            return report_from_proto(request.report)
        case "run_started":
            started = request.run_started
            run = run_of(started, "run_started")
            planned = started.planned_steps or None
            return RunStarted(run, started.step, started.start_seconds, planned)
        case "quantum_ended":
            ended = request.quantum_ended
            return QuantumEnded(run_of(ended, "quantum_ended"), ended.grant, ended.step)
        case "milestone_passed":
            passed = request.milestone_passed
            run = run_of(passed, "milestone_passed")
            return MilestonePassed(run, passed.percent, passed.loss, passed.step)
        case "checkpointed":
            saved = request.checkpointed
            run = run_of(saved, "checkpointed")
            return Checkpointed(run, checkpoint_from_proto(saved.checkpoint))
        case "fidelity_known":
            known = request.fidelity_known
            fidelity = word_of(FIDELITIES, known.fidelity, "fidelity_known.fidelity")
            run = run_of(known, "fidelity_known")
            return FidelityKnown(run, fidelity, known.reason, known.framework)
        case "run_stalled":
            stalled = request.run_stalled
            return RunStalled(run_of(stalled, "run_stalled"), stalled.step, stalled.seconds)
        case "park_lost":
            return ParkLost(run_of(request.park_lost, "park_lost"), request.park_lost.reason)
        case "device_failed":
            return DeviceFailed(request.device_failed.device, request.device_failed.reason)
        case "yielded":
            return Yielded(request.yielded.place, request.yielded.reason, request.yielded.parting)
        case "reclaimed":
            return Reclaimed(request.reclaimed.place)
        case "copied":
            there = request.copied
            return Copied(there.node, there.trial, there.checkpoint)
        case "looked":
            sights = tuple((sight.path, sight.reason) for sight in request.looked.sights)
            return Looked(request.looked.node, sights)
        case "not_copied":
            missed = request.not_copied
            named = missed.node, missed.trial, missed.checkpoint
            return NotCopied(*named, missed.reason, missed.way)
        case "dropped":
            return Dropped(request.dropped.node, request.dropped.trial)
        case "spoilt":
            bad = request.spoilt
            other = checkpoint_from_proto(bad.instead) if bad.HasField("instead") else None
            return Spoilt(bad.node, bad.trial, bad.checkpoint, bad.reason, other)
        case _:
            return _outcome_from_proto(request)


def _outcome_from_proto(
    request: pb.AttachRequest,
) -> RunSuspended | RunCompleted | RunFailed | None:
    match request.WhichOneof("message"):
        case "run_suspended":
            left = request.run_suspended
            return RunSuspended(
                run_of(left, "run_suspended"),
                word_of(TIERS, left.tier, "run_suspended.tier"),
                left.step,
                checkpoint_of(left),
                left.release_seconds,
                left.cause,
                left.memory_bytes,
            )
        case "run_completed":
            done = request.run_completed
            return RunCompleted(run_of(done, "run_completed"), done.step, checkpoint_of(done))
        case "run_failed":
            failed = request.run_failed
            return RunFailed(
                run_of(failed, "run_failed"),
                failed.error_kind,
                failed.detail,
                failed.error_signature,
                failed.step,
                failed.newest_attempt,
            )
        case _:
            return None
