"""The wire's messages as records, field by field of the same name; an unknown word is no error.

`FORMS` says which record belongs to which message, and what is special about it. A head that is one
minor version newer may use words that this client does not know: they become `other` (events),
`waiting` (states) or an empty text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

from hermesctl.sdk import records
from hermesctl.sdk.events import Event, EventKind
from hermesctl.sdk.records import TrialState
from hermesctl.study_file.schema import short_enum_name
from hermesctl.study_file.write import plugin_label, study_data, value_data
from hermesctl.yaml_text import Data
from hermesd.codec import Codec, MessageForm
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import enroll_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.security.identity import ROLES, root_mark

R = TypeVar("R")

# What a head that does not say it ranks by, where the study names no metric.
_DEFAULT_METRIC = "loss"


def enum_word(enum: EnumDescriptor, number: int) -> str:
    """`park-only` for FIDELITY_PARK_ONLY; empty for the unspecified or unknown value."""
    if number == 0 or number not in enum.values_by_number:
        return ""
    return short_enum_name(enum, number).replace("_", "-")


def _word(name: str) -> Callable[[Any], str]:
    """Reads a field as the word of its enum."""
    return lambda message: enum_word(
        message.DESCRIPTOR.fields_by_name[name].enum_type, getattr(message, name)
    )


def _state(message: Any) -> TrialState:
    """The state; a newer head's unknown state counts as waiting."""
    word = _word("state")(message)
    return TrialState(word) if word in set(TrialState) else TrialState.WAITING


def _kind(message: pb.PublicEvent) -> EventKind:
    word = _word("kind")(message)
    return EventKind(word) if word in set(EventKind) else EventKind.OTHER


def _role(message: Any) -> str:
    return ROLES[message.role]


def values(named: Iterable[types.NamedValue]) -> dict[str, Data]:
    """Hyper-parameters as plain data."""
    return {item.name: value_data(item.value) for item in named}


def _policy_label(message: pb.Study) -> str:
    """The policy with its settings, and its placement if that is not the plain `free`."""
    policy = message.policy if message.policy.name else message.spec.schedule.policy
    placement = message.placement
    plain = placement.name == "free" and not placement.settings
    return plugin_label(policy, None if plain else placement)


def _by_number(message: pb.GetStudyResponse) -> tuple[records.Trial, ...]:
    trials = (record(records.Trial, each) for each in message.trials)
    return tuple(sorted(trials, key=attrgetter("number")))


FORMS: Mapping[type, MessageForm] = {
    records.Usage: MessageForm(types.Usage),
    records.Quarantine: MessageForm(pb.Quarantine),
    records.Exclusion: MessageForm(pb.Exclusion),
    records.Strike: MessageForm(pb.Strike, names={"kind": "error_kind"}),
    records.Device: MessageForm(
        pb.DeviceStatus,
        derived={
            "id": attrgetter("device.id"),
            "node": attrgetter("device.node"),
            "kind": attrgetter("device.kind"),
            "memory_bytes": attrgetter("device.memory_bytes"),
            "cores": lambda status: tuple(status.device.cores),
        },
        absent={"speed": 1.0},
    ),
    records.Node: MessageForm(pb.Node, absent={"pool": records.DEFAULT_POOL}),
    records.MetricValue: MessageForm(pb.MetricValue),
    records.Checkpoint: MessageForm(types.Checkpoint),
    records.Quantum: MessageForm(types.Quantum),
    records.Failure: MessageForm(pb.Failure, names={"kind": "error_kind"}),
    records.WidthSpeed: MessageForm(pb.WidthSpeed),
    records.Trial: MessageForm(
        pb.Trial,
        derived={
            "state": _state,
            "params": lambda trial: values(trial.parameters),
            "kept_tier": _word("kept_tier"),
            "fidelity": _word("fidelity"),
        },
    ),
    records.TrialDetail: MessageForm(pb.GetTrialResponse),
    records.Study: MessageForm(
        pb.Study,
        derived={
            "spec": lambda study: study_data(study.spec),
            "counts": lambda study: {
                _state(each): each.count for each in study.counts if each.count
            },
            "metric": lambda study: (
                study.ranking.metric.name or study.spec.metric.name or _DEFAULT_METRIC
            ),
            "metric_reason": attrgetter("ranking.reason"),
            "metric_goal": lambda study: _word("goal")(study.ranking.metric),
            "metric_mode": lambda study: _word("mode")(study.ranking.metric),
            "policy": lambda study: study.policy.name or study.spec.schedule.policy.name,
            "policy_label": _policy_label,
            "deciding": lambda study: plugin_label(study.deciding),
            "pool": lambda study: study.pool or study.spec.pool or records.DEFAULT_POOL,
        },
    ),
    records.Submission: MessageForm(
        pb.SubmitStudyResponse,
        derived={
            "study": lambda response: response.study or response.identical_to,
            "policy": lambda response: plugin_label(response.policy, response.placement),
        },
    ),
    records.StudyDetail: MessageForm(pb.GetStudyResponse, derived={"trials": _by_number}),
    records.MetricChoice: MessageForm(
        pb.SetMetricResponse,
        derived={
            "metric": attrgetter("ranking.metric.name"),
            "goal": lambda choice: _word("goal")(choice.ranking.metric),
            "mode": lambda choice: _word("mode")(choice.ranking.metric),
        },
    ),
    records.Curve: MessageForm(pb.GetCurveResponse),
    records.Ranked: MessageForm(pb.RankedTrial, derived={"state": _state}),
    records.LeftOut: MessageForm(pb.LeftOut),
    records.Explanation: MessageForm(pb.ExplainTrialResponse),
    records.ServerInfo: MessageForm(pb.ServerInfoResponse),
    records.User: MessageForm(pb.User),
    records.AuditEntry: MessageForm(pb.AuditEntry),
    records.Invited: MessageForm(enroll_pb2.InviteResponse),
    records.Member: MessageForm(enroll_pb2.Identity, derived={"role": _role}),
    records.AuthorityStatus: MessageForm(
        enroll_pb2.AuthorityStatus, derived={"roots": lambda status: root_mark(status.roots)}
    ),
    records.IssuedToken: MessageForm(enroll_pb2.IssuedToken, derived={"role": _role}),
    Event: MessageForm(pb.PublicEvent, derived={"kind": _kind, "tier": _word("tier")}),
}
_CODEC = Codec(FORMS)


def record(kind: type[R], message: Message) -> R:
    """The record of a message."""
    made: R = _CODEC.decode(kind, message)
    return made


def leaderboard(message: pb.BestTrialsResponse) -> records.Leaderboard:
    """The best trials, and what ranks them."""
    metric = message.ranking.metric
    return records.Leaderboard(
        (record(records.Trial, each) for each in message.trials),
        metric.name or _DEFAULT_METRIC,
        _word("goal")(metric),
        _word("mode")(metric),
        {each.name: _word("goal")(each) for each in message.objectives},
        message.front,
    )
