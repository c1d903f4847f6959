"""What people see of studies, trials and nodes: messages made from the state.

Losses leave here in the signal's own direction; inside everything is "lower is better".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from hermesd import wire
from hermesd.core.model import (
    Goal,
    MetricMode,
    MetricSummary,
    Node,
    Phase,
    Study,
    TrialId,
)
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.study import spec_of
from hermesd.wire.nouns import FIDELITIES, TIERS, named_value

STATES: Mapping[Phase, types.TrialState] = {
    Phase.WAITING: types.TRIAL_STATE_WAITING,
    Phase.STARTING: types.TRIAL_STATE_STARTING,
    Phase.RUNNING: types.TRIAL_STATE_RUNNING,
    Phase.SUSPENDING: types.TRIAL_STATE_SUSPENDING,
    Phase.COMPLETED: types.TRIAL_STATE_COMPLETED,
    Phase.FAILED: types.TRIAL_STATE_FAILED,
    Phase.STOPPED: types.TRIAL_STATE_STOPPED,
    Phase.CANCELLED: types.TRIAL_STATE_CANCELLED,
}


def signed(study: Study | None, loss: float | None) -> float | None:
    """A loss in the direction of the study's signal; unset if it is not known."""
    if loss is None:
        return None
    return -loss if study is not None and study.signal_goal is Goal.MAXIMIZE else loss


def metric_of(study: Study, trial: Trial) -> float | None:
    """The value that the leaderboard ranks; None if the metric was never seen."""
    summary = trial.metrics.get(study.metric)
    if summary is None:
        return None
    return summary.last if study.mode is MetricMode.LAST else _best(summary, study.goal)


def _best(summary: MetricSummary, goal: Goal) -> float:
    best = summary.low if goal is Goal.MINIMIZE else summary.high
    unseen = math.inf if goal is Goal.MINIMIZE else -math.inf
    return math.nan if best == unseen and math.isnan(summary.last) else best


def standing(study: Study, trial: Trial) -> tuple[int, float, int]:
    """What the leaderboard sorts by: numbers first, then NaN, then no metric seen."""
    value = metric_of(study, trial)
    if value is None:
        return (2, 0.0, trial.spec.number)
    if math.isnan(value):
        return (1, 0.0, trial.spec.number)
    return (0, value if study.goal is Goal.MINIMIZE else -value, trial.spec.number)


def ranked(state: State, study: Study) -> list[Trial]:
    """The trials of a study, best first."""
    trials = [state.trials[trial] for trial in state.members[study.id]]
    return sorted(trials, key=lambda trial: standing(study, trial))


def ranks(state: State, study: Study) -> dict[TrialId, int]:
    """The rank of each trial of a study, from 1."""
    return {trial.id: rank for rank, trial in enumerate(ranked(state, study), 1)}


def trial_view(state: State, trial: Trial, rank: int) -> pb.Trial:
    """A trial as people see it."""
    study = state.studies[trial.spec.study]
    use, run, kept = trial.use, trial.run, trial.kept
    busy, per_step = use.busy_seconds, trial.seconds_per_step
    view = pb.Trial(
        id=trial.id,
        study=study.id,
        number=trial.spec.number,
        state=STATES[trial.phase],
        paused=trial.paused,
        parameters=[named_value(name, value) for name, value in trial.spec.parameters],
        step=trial.step,
        planned_steps=trial.planned_steps or 0,
        signal=signed(study, trial.loss),
        metric=metric_of(study, trial),
        metrics=metric_values(study, trial.metrics),
        attempt=trial.attempt,
        preemptions=trial.preemptions,
        fidelity=FIDELITIES[trial.fidelity],
        fidelity_reason=trial.fidelity_reason,
        busy_seconds=busy,
        overhead_seconds=use.overhead_seconds,
        failures=[
            pb.Failure(
                device=failure.device,
                error_kind=failure.error_kind,
                detail=failure.detail,
                step=failure.step,
                at_unix_seconds=failure.at,
                attempt=failure.attempt,
            )
            for failure in trial.failures
        ],
        reason=trial.reason,
        examples_per_second=use.examples / busy if busy else 0.0,
        steps_per_second=1 / per_step if per_step else 0.0,
        memory_bytes=use.memory_bytes,
        cpu_use=use.cpu_seconds / busy if busy else 0.0,
        milestone_percent=trial.milestone_percent,
        rank=rank,
        framework=trial.framework,
        argv=trial.spec.argv,
    )
    if run is not None:
        view.device = run.devices[0]
        view.quantum.CopyFrom(wire.quantum_to_proto(run.quantum))
    elif kept is not None:
        view.kept_tier = TIERS[kept.tier]
        view.kept_node = state.slots[kept.device].device.node if kept.device in state.slots else ""
    if trial.checkpoint is not None:
        view.checkpoint.CopyFrom(wire.checkpoint_to_proto(trial.checkpoint))
    return view


def metric_values(
    study: Study | None, metrics: Mapping[str, MetricSummary]
) -> list[pb.MetricValue]:
    """Each metric's last and best value; only the study's own may be one to maximise."""
    goals: dict[str, Goal] = {}
    if study is not None:
        goals = {study.signal: study.signal_goal, study.metric: study.goal}
    return [
        pb.MetricValue(
            name=name, last=summary.last, best=_best(summary, goals.get(name, Goal.MINIMIZE))
        )
        for name, summary in sorted(metrics.items())
    ]


def study_view(state: State, study: Study) -> pb.Study:
    """A study as people see it."""
    trials = ranked(state, study)
    counts = Counter(trial.phase for trial in trials)
    finished = not state.active[study.id]
    view = pb.Study(
        id=study.id,
        spec=_effective_spec(study),
        owner=study.owner,
        submitted_unix_seconds=study.submitted,
        counts=[pb.StateCount(state=STATES[p], count=counts[p]) for p in Phase if counts[p]],
        busy_seconds=sum(trial.use.busy_seconds for trial in trials),
        overhead_seconds=sum(trial.use.overhead_seconds for trial in trials),
        preemptions=sum(trial.preemptions for trial in trials),
        finished=finished,
        checkpoint_bytes=sum(t.checkpoint.size_bytes for t in trials if t.checkpoint),
        code_sha256=study.program.code_sha256,
        submit_directory=study.program.submit_directory,
        remaining_seconds=None if finished else remaining_seconds(state, study, trials),
    )
    if trials and standing(study, trials[0])[0] == 0:
        view.best_trial = trials[0].id
        view.best_metric = metric_of(study, trials[0]) or 0.0
    if finished and trials:
        view.finished_unix_seconds = max(trial.finished or 0.0 for trial in trials)
    return view


def _effective_spec(study: Study) -> types.StudySpec:
    """What was submitted, with the policy and the placement that it got if it named none."""
    spec = spec_of(study)
    for message, plugin in (
        (spec.schedule.policy, study.policy),
        (spec.schedule.placement, study.placement),
    ):
        if not message.name:
            message.name = plugin.name
            message.settings.extend(
                named_value(name, value)
                for name, value in plugin.settings
                if not isinstance(value, tuple)
            )
    return spec


def remaining_seconds(state: State, study: Study, trials: Sequence[Trial]) -> float | None:
    """Until the last trial ends, at the speed measured so far, on the devices that are there.

    Trials of unknown length count as long as the known ones are on average; None while none is.
    """
    devices = sum(
        slot.healthy
        and state.nodes[slot.device.node].connected
        and study.device_kind in ("", slot.device.kind)
        for slot in state.slots.values()
    )
    speeds = [t.seconds_per_step for t in trials if t.seconds_per_step]
    lengths = [length for t in trials if (length := _length(study, t))]
    if not devices or not speeds or not lengths:
        return None
    speed, typical = sum(speeds) / len(speeds), sum(lengths) / len(lengths)
    left = [
        max(0.0, (_length(study, t) or typical) - t.step) * (t.seconds_per_step or speed)
        for t in trials
        if not t.phase.final
    ]
    return max(sum(left) / devices, max(left, default=0.0))


def _length(study: Study, trial: Trial) -> int | None:
    known = [n for n in (trial.planned_steps, study.stop.max_steps) if n]
    return min(known) if known else None


def node_view(
    state: State, node: Node, usage: Mapping[str, types.Usage], silent_seconds: float
) -> pb.Node:
    """A node as people see it."""
    view = pb.Node(
        id=node.id,
        connected=node.connected,
        facts=node.facts,
        version=node.version,
        silent_seconds=silent_seconds,
    )
    for slot in state.slots.values():
        if slot.device.node != node.id:
            continue
        status = view.devices.add(
            device=wire.device_to_proto(slot.device),
            trial=slot.run.trial if slot.run else "",
            reserved_for=slot.reserved or "",
            healthy=slot.healthy,
            reason=slot.reason,
            busy_seconds=slot.busy_seconds,
        )
        if slot.device.id in usage:
            status.usage.CopyFrom(usage[slot.device.id])
    return view
