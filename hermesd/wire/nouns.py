"""Runs, quanta, checkpoints, devices and values as messages, and back."""

from __future__ import annotations

from typing import Protocol, TypeVar

from hermesd.core.model import (
    Checkpoint,
    Device,
    Fidelity,
    Goal,
    Milestone,
    OnStall,
    Plugin,
    Quantum,
    RunId,
    Scalar,
    Setting,
    Tier,
)
from hermesd.pb.hermes.v1 import node_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types

TIERS: dict[Tier, types.Tier] = {
    Tier.PARK: types.TIER_PARK,
    Tier.CHECKPOINT: types.TIER_CHECKPOINT,
    Tier.KILL: types.TIER_KILL,
}
FIDELITIES: dict[Fidelity, types.Fidelity] = {
    Fidelity.UNKNOWN: types.FIDELITY_UNSPECIFIED,
    Fidelity.EXACT: types.FIDELITY_EXACT,
    Fidelity.EXACT_IF_DETERMINISTIC: types.FIDELITY_EXACT_IF_DETERMINISTIC,
    Fidelity.PARAMETERS_EXACT: types.FIDELITY_PARAMETERS_EXACT,
    Fidelity.PARK_ONLY: types.FIDELITY_PARK_ONLY,
    Fidelity.AUTHOR: types.FIDELITY_AUTHOR,
}
GOALS: dict[Goal, types.Goal] = {
    Goal.MINIMIZE: types.GOAL_MINIMIZE,
    Goal.MAXIMIZE: types.GOAL_MAXIMIZE,
}
ON_STALL: dict[OnStall, types.OnStall] = {
    OnStall.TELL: types.ON_STALL_TELL,
    OnStall.RETRY: types.ON_STALL_RETRY,
    OnStall.FAIL: types.ON_STALL_FAIL,
}
CONDITIONS: dict[str, pb.RunCondition] = {
    "starting": pb.RUN_CONDITION_STARTING,
    "running": pb.RUN_CONDITION_RUNNING,
    "parked": pb.RUN_CONDITION_PARKED,
    "ended": pb.RUN_CONDITION_ENDED,
}

Word = TypeVar("Word")
Number = TypeVar("Number", bound=int)


class OfRun(Protocol):
    """Every message about one run."""

    @property
    def trial(self) -> str: ...
    @property
    def attempt(self) -> int: ...


class Malformed(Exception):
    """A message that no version of this protocol sends; says which field and value."""


def word_of(words: dict[Word, Number], number: Number, field: str) -> Word:
    """The word that a number stands for. Raises Malformed, naming the field."""
    for word, known in words.items():
        if known == number:
            return word
    raise Malformed(f"{field}: {number}, expected one of {sorted(words.values())}")


def run_of(message: OfRun, field: str) -> RunId:
    """The run that a message is about. Raises Malformed, naming the field."""
    if not message.trial or message.attempt < 1:
        raise Malformed(
            f"{field}: run {message.trial!r}#{message.attempt}, expected a trial and an attempt"
            " of 1 or more"
        )
    return RunId(message.trial, message.attempt)


def checkpoint_to_proto(checkpoint: Checkpoint) -> types.Checkpoint:
    """The message of a checkpoint."""
    return types.Checkpoint(
        id=checkpoint.id,
        trial=checkpoint.trial,
        attempt=checkpoint.attempt,
        step=checkpoint.step,
        sha256=checkpoint.sha256,
        size_bytes=checkpoint.size_bytes,
        nodes=checkpoint.nodes,
    )


def checkpoint_from_proto(message: types.Checkpoint) -> Checkpoint:
    """The checkpoint of a message."""
    return Checkpoint(
        message.id,
        message.trial,
        message.attempt,
        message.step,
        message.sha256,
        message.size_bytes,
        tuple(message.nodes),
    )


def checkpoint_of(message: _WithCheckpoint) -> Checkpoint | None:
    if not message.HasField("checkpoint"):
        return None
    return checkpoint_from_proto(message.checkpoint)


_WithCheckpoint = pb.Launch | pb.RunSuspended | pb.RunCompleted


def optional(checkpoint: Checkpoint | None) -> types.Checkpoint | None:
    return None if checkpoint is None else checkpoint_to_proto(checkpoint)


def quantum_to_proto(quantum: Quantum) -> types.Quantum:
    """The message of a quantum; absent limits stay unset."""
    return types.Quantum(
        seconds=quantum.seconds,
        until_step=quantum.until_step,
        loss=quantum.loss,
        exact=quantum.exact,
        milestones=[types.Milestone(percent=m.percent, loss=m.loss) for m in quantum.milestones],
    )


def quantum_from_proto(message: types.Quantum) -> Quantum:
    """The quantum of a message."""
    return Quantum(
        message.seconds if message.HasField("seconds") else None,
        message.until_step if message.HasField("until_step") else None,
        message.loss if message.HasField("loss") else None,
        message.exact,
        tuple(Milestone(m.percent, m.loss) for m in message.milestones),
    )


def device_to_proto(device: Device) -> types.Device:
    """The message of a device."""
    return types.Device(
        id=device.id,
        node=device.node,
        kind=device.kind,
        memory_bytes=device.memory_bytes,
        cores=device.cores,
    )


def device_from_proto(message: types.Device) -> Device:
    """The device of a message."""
    return Device(
        message.id, message.node, message.kind, message.memory_bytes, tuple(message.cores)
    )


def named_value(name: str, value: Scalar) -> types.NamedValue:
    match value:
        case bool():
            return types.NamedValue(name=name, value=types.Value(bool_value=value))
        case int():
            return types.NamedValue(name=name, value=types.Value(int_value=value))
        case float():
            return types.NamedValue(name=name, value=types.Value(double_value=value))
        case str():
            return types.NamedValue(name=name, value=types.Value(string_value=value))


def plugin_to_proto(plugin: Plugin) -> types.Plugin:
    """The message of a policy or placement."""
    return types.Plugin(
        name=plugin.name, settings=[_setting(name, value) for name, value in plugin.settings]
    )


def _setting(name: str, value: Setting) -> types.NamedValue:
    if not isinstance(value, tuple):
        return named_value(name, value)
    items = types.ValueList(values=[named_value(name, item).value for item in value])
    return types.NamedValue(name=name, value=types.Value(list_value=items))


def scalar_of(message: types.NamedValue) -> Scalar:
    value = message.value
    match value.WhichOneof("kind"):
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "string_value":
            return value.string_value
        case kind:
            raise Malformed(f"{message.name}: {kind or 'no value'}, expected a scalar")
