"""What the head says to a node, from and to the node machine's orders."""

from __future__ import annotations

from hermesd.core.commands import Kill, Launch, Look, Release, Renew, Stop, Suspend, WriteDown
from hermesd.core.model import HUNG_SECONDS, NodeId, Program, RunId, Venv
from hermesd.core.node.messages import (
    Assignment,
    CheckpointSource,
    DropCopies,
    Fetch,
    Order,
    Upcoming,
    Work,
)
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.wire.nouns import (
    GOALS,
    ON_STALL,
    TIERS,
    checkpoint_from_proto,
    checkpoint_of,
    checkpoint_to_proto,
    named_value,
    optional,
    quantum_from_proto,
    quantum_to_proto,
    run_of,
    scalar_of,
    word_of,
)


def command_to_proto(order: Order) -> pb.AttachResponse:
    """The message of an order; `messages.assignment` makes one of a Launch."""
    match order:
        case Assignment():
            return pb.AttachResponse(launch=launch_to_proto(order))
        case Renew((trial, attempt), grant, quantum, reason, extends):
            return pb.AttachResponse(
                renew=pb.Renew(
                    trial=trial,
                    attempt=attempt,
                    grant=grant,
                    quantum=quantum_to_proto(quantum),
                    reason=reason,
                    extends=extends,
                )
            )
        case Suspend((trial, attempt), tier, deadline, successor, reason):
            return pb.AttachResponse(
                suspend=pb.SuspendRun(
                    trial=trial,
                    attempt=attempt,
                    tier=TIERS[tier] if tier else types.TIER_UNSPECIFIED,
                    deadline_seconds=deadline,
                    successor=successor or "",
                    reason=reason,
                )
            )
        case Stop((trial, attempt), deadline, reason):
            return pb.AttachResponse(
                stop=pb.StopRun(
                    trial=trial, attempt=attempt, reason=reason, deadline_seconds=deadline
                )
            )
        case Kill((trial, attempt), _, reason):
            return pb.AttachResponse(kill=pb.KillRun(trial=trial, attempt=attempt, reason=reason))
        case WriteDown((trial, attempt)):
            return pb.AttachResponse(write_down=pb.WriteDown(trial=trial, attempt=attempt))
        case Fetch(checkpoint, sources, keep, _, identity):
            copy = pb.CopyCheckpoint(
                checkpoint=checkpoint_to_proto(checkpoint),
                sources=map(_source_to_proto, sources),
                keep=keep,
                identity=identity,
            )
            return pb.AttachResponse(copy=copy)
        case DropCopies(trial, identity):
            return pb.AttachResponse(drop=pb.DropCheckpoints(trial=trial, identity=identity))
        case Look(_, paths, venvs, condas, briefly):
            made = [
                pb.Venv(name=each.name, python=each.python, requirements=each.requirements)
                for each in venvs
            ]
            return pb.AttachResponse(
                look=pb.LookAt(paths=paths, venvs=made, condas=condas, briefly=briefly)
            )
        case Release(trial, _, forget):
            return pb.AttachResponse(release=pb.ReleaseTrial(trial=trial, forget=forget))
        case Upcoming(trials, turns):
            return pb.AttachResponse(upcoming=pb.Upcoming(trials=trials, turns=turns))


def launch_to_proto(order: Assignment) -> pb.Launch:
    """The message of a launch; a node also keeps it as its journal of the run."""
    launch, work = order.launch, order.work
    return pb.Launch(
        trial=launch.run.trial,
        attempt=launch.run.attempt,
        devices=launch.devices,
        quantum=quantum_to_proto(launch.quantum),
        reason=launch.reason,
        parked_attempt=launch.parked.attempt if launch.parked else 0,
        checkpoint=optional(order.checkpoint),
        program=pb.Program(
            argv=work.program.argv,
            python=work.program.python,
            code_sha256=work.program.code_sha256,
            environment=[named_value(name, v) for name, v in work.program.environment],
            parameters=[named_value(name, v) for name, v in work.parameters],
            signal=work.signal,
            signal_goal=GOALS[work.signal_goal],
            seed=work.seed,
            submit_directory=work.program.submit_directory,
            data=work.program.data,
            requirements=work.program.requirements,
            conda=work.program.conda,
        ),
        durability_seconds=order.durability_seconds,
        suspend_deadline_seconds=order.suspend_deadline_seconds,
        identity=order.identity,
        sources=map(_source_to_proto, order.sources),
        result_checkpoint=order.result_checkpoint,
        kept_parked=order.kept_parked,
        start_allowance_seconds=order.start_allowance_seconds,
        hung_seconds=order.hung_seconds,
        stalled=ON_STALL[order.stalled],
    )


def _source_to_proto(source: CheckpointSource) -> pb.Source:
    return pb.Source(node=source.node, address=source.address, ticket=source.ticket)


def _sources_of(message: pb.Launch | pb.CopyCheckpoint) -> tuple[CheckpointSource, ...]:
    return tuple(CheckpointSource(one.node, one.address, one.ticket) for one in message.sources)


def launch_from_proto(message: pb.Launch) -> Assignment:
    """The launch of a message. Raises Malformed."""
    run = run_of(message, "launch")
    checkpoint = checkpoint_of(message)
    launch = Launch(
        run,
        tuple(message.devices),
        quantum_from_proto(message.quantum),
        message.reason,
        RunId(run.trial, message.parked_attempt) if message.parked_attempt else None,
        checkpoint.id if checkpoint else None,
    )
    program = message.program
    work = Work(
        Program(
            tuple(program.argv),
            program.python,
            program.code_sha256,
            program.submit_directory,
            tuple((item.name, str(scalar_of(item))) for item in program.environment),
            tuple(program.data),
            program.requirements,
            program.conda,
        ),
        tuple((item.name, scalar_of(item)) for item in program.parameters),
        program.signal,
        word_of(GOALS, program.signal_goal, "launch.program.signal_goal"),
        program.seed,
    )
    return Assignment(
        launch,
        checkpoint,
        work,
        message.durability_seconds,
        message.suspend_deadline_seconds,
        message.identity,
        _sources_of(message),
        message.result_checkpoint,
        message.kept_parked,
        message.start_allowance_seconds,
        message.hung_seconds or HUNG_SECONDS,  # a head of before says none
        word_of(ON_STALL, message.stalled or types.ON_STALL_TELL, "launch.stalled"),
    )


def command_from_proto(response: pb.AttachResponse, node: NodeId) -> Order | None:
    """The order that a head's message stands for, at this node. Raises Malformed.

    None for what orders nothing: welcome, acknowledgement, lease, farewell, a client's wish to
    see a file, and kinds that a newer head knows.
    """
    match response.WhichOneof("message"):
        case "launch":
            return launch_from_proto(response.launch)
        case "renew":
            renew = response.renew
            quantum = quantum_from_proto(renew.quantum)
            return Renew(run_of(renew, "renew"), renew.grant, quantum, renew.reason, renew.extends)
        case "suspend":
            suspend = response.suspend
            return Suspend(
                run_of(suspend, "suspend"),
                word_of(TIERS, suspend.tier, "suspend.tier") if suspend.tier else None,
                suspend.deadline_seconds,
                suspend.successor or None,
                suspend.reason,
            )
        case "stop":
            stop = response.stop
            return Stop(run_of(stop, "stop"), stop.deadline_seconds, stop.reason)
        case "kill":
            return Kill(run_of(response.kill, "kill"), node, response.kill.reason)
        case "write_down":
            return WriteDown(run_of(response.write_down, "write_down"), node)
        case "release":
            return Release(response.release.trial, node, response.release.forget)
        case "copy":
            copy = response.copy
            saved = checkpoint_from_proto(copy.checkpoint)
            return Fetch(saved, _sources_of(copy), tuple(copy.keep), node, copy.identity)
        case "drop":
            return DropCopies(response.drop.trial, response.drop.identity)
        case "look":
            venvs = tuple(Venv(each.python, each.requirements) for each in response.look.venvs)
            paths, condas = tuple(response.look.paths), tuple(response.look.condas)
            return Look(node, paths, venvs, condas, response.look.briefly)
        case "upcoming":
            return Upcoming(tuple(response.upcoming.trials), response.upcoming.turns)
        case _:
            return None
