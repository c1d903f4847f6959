"""The wire's messages -> records. Pure translation; an unknown enum is no reason to fail.

A head that is one minor version newer may say words that this client does not know: they become
`other` (events), `waiting` (states) or their bare text.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.descriptor import EnumDescriptor

from hermesctl.sdk import records
from hermesctl.sdk.events import Event, EventKind
from hermesctl.sdk.records import TrialState
from hermesctl.study_file.schema import short_enum_name
from hermesctl.study_file.write import plugin_label, study_data, value_data
from hermesctl.yaml_text import Data
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types

# What a head that does not say it ranks by, where the study names no metric.
_DEFAULT_METRIC = "loss"


def enum_word(enum: EnumDescriptor, number: int) -> str:
    """`park-only` for FIDELITY_PARK_ONLY; empty for the unspecified or unknown value."""
    if number == 0 or number not in enum.values_by_number:
        return ""
    return short_enum_name(enum, number).replace("_", "-")


def trial_state(number: int) -> TrialState:
    """The state; a newer head's unknown state counts as waiting."""
    word = enum_word(types.TrialState.DESCRIPTOR, number)
    return TrialState(word) if word in set(TrialState) else TrialState.WAITING


def values(named: Iterable[types.NamedValue]) -> dict[str, Data]:
    """Hyper-parameters as plain data."""
    return {item.name: value_data(item.value) for item in named}


def metrics(messages: Iterable[pb.MetricValue]) -> tuple[records.MetricValue, ...]:
    """Metric values, in the order in which the head tells them."""
    return tuple(
        records.MetricValue(
            name=m.name,
            last=m.last if m.HasField("last") else None,
            best=m.best if m.HasField("best") else None,
            low=m.low if m.HasField("low") else None,
            high=m.high if m.HasField("high") else None,
        )
        for m in messages
    )


def checkpoint(message: types.Checkpoint) -> records.Checkpoint:
    """A checkpoint."""
    return records.Checkpoint(
        message.id, message.step, message.sha256, message.size_bytes, tuple(message.nodes)
    )


def quantum(message: types.Quantum) -> records.Quantum:
    """A grant."""
    return records.Quantum(
        seconds=message.seconds if message.HasField("seconds") else None,
        until_step=message.until_step if message.HasField("until_step") else None,
        loss=message.loss if message.HasField("loss") else None,
    )


def failure(message: pb.Failure) -> records.Failure:
    """A failed run."""
    return records.Failure(
        device=message.device,
        kind=message.error_kind,
        detail=message.detail,
        step=message.step,
        at_unix_seconds=message.at_unix_seconds,
        attempt=message.attempt,
    )


def trial(message: pb.Trial) -> records.Trial:
    """A trial."""
    return records.Trial(
        id=message.id,
        study=message.study,
        number=message.number,
        state=trial_state(message.state),
        paused=message.paused,
        params=values(message.parameters),
        step=message.step,
        planned_steps=message.planned_steps,
        signal=message.signal if message.HasField("signal") else None,
        metric=message.metric if message.HasField("metric") else None,
        metrics=metrics(message.metrics),
        attempt=message.attempt,
        preemptions=message.preemptions,
        device=message.device,
        quantum=quantum(message.quantum) if message.HasField("quantum") else None,
        kept_tier=enum_word(types.Tier.DESCRIPTOR, message.kept_tier),
        kept_node=message.kept_node,
        fidelity=enum_word(types.Fidelity.DESCRIPTOR, message.fidelity),
        fidelity_reason=message.fidelity_reason,
        busy_seconds=message.busy_seconds,
        overhead_seconds=message.overhead_seconds,
        checkpoint=checkpoint(message.checkpoint) if message.HasField("checkpoint") else None,
        failures=tuple(failure(f) for f in message.failures),
        reason=message.reason,
        not_extended=message.not_extended,
        tags=tuple(message.tags),
        note=message.note,
        last_run_reason=message.last_run_reason,
        examples_per_second=message.examples_per_second,
        steps_per_second=message.steps_per_second,
        memory_bytes=message.memory_bytes,
        cpu_use=message.cpu_use,
        milestone_percent=message.milestone_percent,
        rank=message.rank or None,
        framework=message.framework,
        argv=tuple(message.argv),
        stalled_since_unix_seconds=message.stalled_since_unix_seconds or None,
        expected_steps=message.expected_steps,
        remaining_seconds=message.remaining_seconds
        if message.HasField("remaining_seconds")
        else None,
        forked_from=message.forked_from,
        forked_at_step=message.forked_at_step,
    )


def study(message: pb.Study) -> records.Study:
    """A study."""
    return records.Study(
        id=message.id,
        spec=study_data(message.spec),
        owner=message.owner,
        submitted_unix_seconds=message.submitted_unix_seconds,
        counts={trial_state(c.state): c.count for c in message.counts if c.count},
        best_trial=message.best_trial,
        best_metric=message.best_metric if message.HasField("best_metric") else None,
        busy_seconds=message.busy_seconds,
        overhead_seconds=message.overhead_seconds,
        preemptions=message.preemptions,
        remaining_seconds=(
            message.remaining_seconds if message.HasField("remaining_seconds") else None
        ),
        finished=message.finished,
        finished_unix_seconds=(
            message.finished_unix_seconds if message.HasField("finished_unix_seconds") else None
        ),
        checkpoint_bytes=message.checkpoint_bytes,
        code_sha256=message.code_sha256,
        submit_directory=message.submit_directory,
        metric=message.ranking.metric.name or message.spec.metric.name or _DEFAULT_METRIC,
        metric_reason=message.ranking.reason,
        policy=message.policy.name or message.spec.schedule.policy.name,
        paused=message.paused,
        pool=message.pool or message.spec.pool or records.DEFAULT_POOL,
        waits_for=message.waits_for,
        reported=tuple(message.reported),
        program_sha256=message.program_sha256,
        notices=tuple(message.notices),
        policy_label=_policy_label(message),
        deciding=plugin_label(message.deciding),
        metric_goal=enum_word(types.Goal.DESCRIPTOR, message.ranking.metric.goal),
        metric_mode=enum_word(types.MetricMode.DESCRIPTOR, message.ranking.metric.mode),
    )


def _policy_label(message: pb.Study) -> str:
    """The policy with its settings, and its placement if that is not the plain `free`."""
    policy = message.policy if message.policy.name else message.spec.schedule.policy
    placement = message.placement
    plain = placement.name == "free" and not placement.settings
    return plugin_label(policy, None if plain else placement)


def leaderboard(message: pb.BestTrialsResponse) -> records.Leaderboard:
    """The best trials, and what ranks them."""
    metric = message.ranking.metric
    return records.Leaderboard(
        map(trial, message.trials),
        metric.name or _DEFAULT_METRIC,
        enum_word(types.Goal.DESCRIPTOR, metric.goal),
        enum_word(types.MetricMode.DESCRIPTOR, metric.mode),
    )


def metric_choice(message: pb.SetMetricResponse) -> records.MetricChoice:
    """What a study is ranked by from now on."""
    metric = message.ranking.metric
    return records.MetricChoice(
        metric.name,
        enum_word(types.Goal.DESCRIPTOR, metric.goal),
        enum_word(types.MetricMode.DESCRIPTOR, metric.mode),
        tuple(message.notes),
    )


def study_detail(message: pb.GetStudyResponse) -> records.StudyDetail:
    """A study with its trials in the order of their numbers."""
    return records.StudyDetail(
        study=study(message.study),
        trials=tuple(sorted(map(trial, message.trials), key=lambda t: t.number)),
        next_up=tuple(message.next_up),
        journal_sequence=message.journal_sequence,
    )


def usage(message: types.Usage) -> records.Usage:
    """A measurement of use."""
    return records.Usage(message.utilization, message.memory_bytes)


def trial_detail(message: pb.GetTrialResponse) -> records.TrialDetail:
    """A trial with its last output."""
    return records.TrialDetail(
        trial(message.trial),
        message.output_tail,
        tuple(map(usage, message.usage)),
        message.parked_memory,
    )


def node(message: pb.Node) -> records.Node:
    """A node."""
    return records.Node(
        id=message.id,
        connected=message.connected,
        devices=tuple(map(device, message.devices)),
        facts=tuple(message.facts),
        version=message.version,
        silent_seconds=message.silent_seconds,
        draining=message.draining,
        pool=message.pool or records.DEFAULT_POOL,
        resting=message.resting,
        parked=tuple(message.parked),
        stuck=tuple(message.stuck),
        only_copies=message.only_copies,
        lacking=tuple(message.lacking),
        warnings=tuple(message.warnings),
        lost=message.lost,
        exclusions=tuple(records.Exclusion(e.study, e.reason) for e in message.exclusions),
        quarantine=quarantine(message.quarantine) if message.HasField("quarantine") else None,
    )


def device(message: pb.DeviceStatus) -> records.Device:
    """A device and who is on it."""
    return records.Device(
        id=message.device.id,
        node=message.device.node,
        kind=message.device.kind,
        memory_bytes=message.device.memory_bytes,
        cores=tuple(message.device.cores),
        trial=message.trial,
        reserved_for=message.reserved_for,
        healthy=message.healthy,
        reason=message.reason,
        usage=usage(message.usage),
        busy_seconds=message.busy_seconds,
        yielded=message.yielded,
        quarantine=quarantine(message.quarantine) if message.HasField("quarantine") else None,
        strikes=tuple(
            records.Strike(s.trial, s.error_kind, s.detail, s.at_unix_seconds)
            for s in message.strikes
        ),
        others=message.others,
        speed=message.speed or 1.0,
        comparisons=message.comparisons,
    )


def quarantine(message: pb.Quarantine) -> records.Quarantine:
    """Until when a place is kept from trials, and why."""
    return records.Quarantine(message.until_unix_seconds, message.reason)


def curve(message: pb.GetCurveResponse) -> records.Curve:
    """A curve."""
    return records.Curve(
        message.metric,
        tuple(message.steps),
        tuple(message.values),
        tuple(message.metrics_available),
    )


def explanation(message: pb.ExplainTrialResponse) -> records.Explanation:
    """Why a trial runs or waits."""
    return records.Explanation(
        trial=message.trial,
        summary=message.summary,
        ranking=tuple(
            records.Ranked(r.trial, r.words, trial_state(r.state)) for r in message.ranking
        ),
        last_decision=message.last_decision,
        policy=message.policy,
        left_out=tuple(
            records.LeftOut(each.place, each.reason, each.until_unix_seconds or None)
            for each in message.left_out
        ),
        notices=tuple(message.notices),
    )


def event(message: pb.PublicEvent) -> Event:
    """A public event."""
    word = enum_word(pb.PublicEventKind.DESCRIPTOR, message.kind)
    return Event(
        sequence=message.sequence,
        at_unix_seconds=message.at_unix_seconds,
        study=message.study,
        trial=message.trial,
        attempt=message.attempt,
        device=message.device,
        kind=EventKind(word) if word in set(EventKind) else EventKind.OTHER,
        step=message.step,
        loss=message.loss if message.HasField("loss") else None,
        quantum=quantum(message.quantum) if message.HasField("quantum") else None,
        tier=enum_word(types.Tier.DESCRIPTOR, message.tier),
        reason=message.reason,
        seconds=message.seconds if message.HasField("seconds") else None,
        successor=message.successor,
        percent=message.percent if message.HasField("percent") else None,
        metrics=metrics(message.metrics),
    )


def server_info(message: pb.ServerInfoResponse) -> records.ServerInfo:
    """What the head says of itself."""
    return records.ServerInfo(
        version=message.version,
        cluster_id=message.cluster_id,
        started_unix_seconds=message.started_unix_seconds,
        policies=tuple(message.policies),
        placements=tuple(message.placements),
        read_only=message.read_only,
        read_only_reason=message.read_only_reason,
        journal_sequence=message.journal_sequence,
    )
