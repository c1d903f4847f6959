"""What people see of studies, trials and nodes: messages made from the state.

Losses leave here in the signal's own direction; inside the head, lower is always better.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import median
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message

from hermesd import wire
from hermesd.codec import named_value
from hermesd.core.decide.explanation import why_paused
from hermesd.core.fast_replace import replace
from hermesd.core.model import Goal, Milestone, Phase, Quantum, Stage, Study, StudyId, TrialId
from hermesd.core.state import State
from hermesd.core.tree import StageTree, path_of, until
from hermesd.core.trial import MetricSummary, Trial
from hermesd.head.api.ranking import (
    MODES,
    Measure,
    RankedTrials,
    all_reported,
    leaderboard,
    measure,
)
from hermesd.head.refusals import NotNow
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.pieces import AT_ONCE, LOOKED_AT, Pieces, gathered, parts
from hermesd.study import spec_of
from hermesd.wire import FIDELITIES, GOALS, TIERS, plugin_to_proto

T = TypeVar("T")
Shown = TypeVar("Shown")
Number = TypeVar("Number", int, float)
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
    # No -loss: an accuracy of 0 would be shown as -0.
    return 0.0 - loss if study is not None and study.signal_goal is Goal.MAXIMIZE else loss


def quantum_view(study: Study | None, quantum: Quantum) -> types.Quantum:
    """A quantum whose losses are values of the study's signal."""
    shown = replace(
        quantum,
        loss=signed(study, quantum.loss),
        milestones=tuple(
            Milestone(each.percent, signed(study, each.loss) or 0.0) for each in quantum.milestones
        ),
    )
    return wire.quantum_to_proto(shown)


def serialized(
    trials: Sequence[T],
    view: Callable[[T], Shown],
    of: Callable[[list[Shown]], Message],
    rest: Message,
) -> Pieces[bytes]:
    """An answer that repeats trials, or their names, in bytes: those of its parts, one behind
    another, are those of the whole. `rest` is what it says beside them."""
    said = [rest.SerializeToString()]
    for some in parts(trials, AT_ONCE):
        said.append(of([view(trial) for trial in some]).SerializeToString())
        yield
    return b"".join(said)


def among_its_study(state: State, trial_id: TrialId) -> Pieces[pb.Trial]:
    """A trial that a request was about as people see it. Raises NotNow if it was removed since."""
    if trial_id not in state.trials:
        raise NotNow(f"{trial_id} has been removed since, with its study")
    trial = state.trials[trial_id]
    board = yield from leaderboard(state, state.studies[trial.spec.study])
    return ranked_view(state, trial, board)


def ranked_view(state: State, trial: Trial, board: RankedTrials) -> pb.Trial:
    """A trial as people see it, among those of its study."""
    view = trial_view(state, trial, board.measure, board.ranks[trial.id])
    if trial.phase.final:
        return view
    study, pace = state.studies[trial.spec.study], trial.seconds_per_step
    steps, allowed = _length(study, trial, board), _seconds_allowed(study, trial)
    stands_still = trial.paused or (trial.run is not None and trial.run.stalled_since is not None)
    if pace:
        left = min((steps - trial.step) * pace if steps > trial.step else math.inf, allowed)
        if left < math.inf and not stands_still:
            view.remaining_seconds = left
        if allowed < math.inf:
            within = trial.step + math.ceil(allowed / pace)
            steps = min(steps or within, within)
    view.expected_steps = max(trial.step, steps) if steps else 0
    return view


def trial_view(state: State, trial: Trial, measure: Measure, rank: int = 0) -> pb.Trial:
    """A trial as people see it, `measure` being what its study ranks by."""
    study = state.studies[trial.spec.study]
    use, run, kept = trial.use, trial.run, trial.kept
    busy, per_step = use.busy_seconds, trial.seconds_per_step
    view = pb.Trial(
        id=trial.id,
        study=study.id,
        number=trial.spec.number,
        state=STATES[trial.phase],
        paused=trial.paused and not study.outside,
        parameters=[named_value(name, value) for name, value in trial.spec.parameters],
        step=trial.step,
        planned_steps=trial.planned_steps or 0,
        signal=signed(study, trial.loss),
        metric=measure.value(trial),
        metrics=metric_values(trial.metrics, measure),
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
        reason=_reason(trial, study),
        not_extended=trial.not_extended,
        last_run_reason=trial.reason if trial.phase is Phase.WAITING else "",
        examples_per_second=_examples_per_second(trial),
        steps_per_second=1 / per_step if per_step else 0.0,
        memory_bytes=use.memory_bytes,
        device_memory_bytes=use.device_memory_bytes,
        cpu_use=use.cpu_seconds / busy if busy else 0.0,
        milestone_percent=trial.milestone_percent,
        rank=rank,
        framework=trial.framework,
        argv=trial.spec.argv,
        tags=trial.tags,
        note=trial.note,
        forked_from=trial.forked.trial if trial.forked else "",
        forked_at_step=trial.forked.step if trial.forked else 0,
        replaced_by=trial.replaced_by,
        rides_on=trial.carrier or "",
        shared_steps=trial.step if trial.carrier else trial.carried_steps,
        resizes=trial.resizes,
        widths=[
            pb.WidthSpeed(devices=width, steps_per_second=1.0 / seconds if seconds else 0.0)
            for width, seconds in sorted({trial.width: 0.0, **trial.width_seconds}.items())
            if width
        ],
    )
    if run is not None:
        if run.stalled_since is not None:
            view.stalled_since_unix_seconds = run.stalled_since
            view.steps_per_second = view.examples_per_second = 0.0
        view.device = ", ".join(run.devices)
        view.quantum.CopyFrom(quantum_view(study, run.quantum))
    elif kept is not None:
        view.kept_tier = TIERS[kept.tier]
        view.kept_node = state.slots[kept.device].device.node if kept.device in state.slots else ""
    if trial.checkpoint is not None:
        view.checkpoint.CopyFrom(wire.checkpoint_to_proto(trial.checkpoint))
    return view


def _examples_per_second(trial: Trial) -> float:
    """At its speed of now, as the steps are told; over all of its time while that is unknown."""
    use, per_step = trial.use, trial.seconds_per_step
    if per_step and use.steps:
        return use.examples / use.steps / per_step
    return use.examples / use.busy_seconds if use.busy_seconds else 0.0


def _reason(trial: Trial, study: Study) -> str:
    """Why the trial is in its state now: what its last run said is no reason to wait still."""
    run = trial.run
    if trial.ending is not None:
        return trial.ending.reason
    if run is not None and run.asked is not None:
        return run.asked.reason
    if run is not None and run.stalled_since is not None:
        return f"stalled: no step after {trial.step}"
    if trial.phase.final:
        return trial.reason
    if trial.paused:
        return why_paused(trial, study)
    return f"rides on {trial.carrier}" if trial.carrier else ""


def shared_out_seconds(state: State, trial: Trial) -> float:
    """What a trial's steps took, each divided among the trials that have done the same."""
    if not trial.spec.root:
        return 0.0
    tree = StageTree()
    for each in state.riding.kin[trial.spec.root]:
        other = state.trials[each]
        if other.step:
            path = path_of(other.spec) or (Stage(None, ()),)
            tree.insert("", until(path, other.step), other.id)
    nodes = tree.along("", until(path_of(trial.spec) or (Stage(None, ()),), trial.step))
    steps = sum(node.steps / len(node.members) for node in nodes if trial.id in node.members)
    return steps * (trial.seconds_per_step or 0.0)


def metric_values(metrics: Mapping[str, MetricSummary], measure: Measure) -> list[pb.MetricValue]:
    """Each metric's last value and its range; which end is the best is known of one alone."""
    found = []
    for name, summary in sorted(metrics.items()):
        value = pb.MetricValue(name=name)
        if summary.last is not None:
            value.last = summary.last
        if summary.measured:
            value.low, value.high = summary.low, summary.high
            if name == measure.metric:
                value.best = measure.best(summary)
        found.append(value)
    return found


def ranking_view(measure: Measure) -> pb.Ranking:
    """What is ranked, and why."""
    return pb.Ranking(metric=_metric(measure), reason=measure.reason)


def _metric(chosen: Measure) -> types.Metric:
    return types.Metric(name=chosen.metric, goal=GOALS[chosen.goal], mode=MODES[chosen.mode])


def study_view(
    state: State,
    study: Study,
    board: RankedTrials,
    waits_for: str = "",
    notices: Iterable[str] = (),
) -> Pieces[pb.Study]:
    """A study as people see it; `waits_for` says who has the devices that it could use, `notices`
    what its author should know."""
    trials = board.trials
    counts = Counter(trial.phase for trial in trials)
    unfinished = [trial for trial in trials if not trial.phase.final]
    finished = state.is_over(study.id)
    yield
    left = None if finished else (yield from remaining_seconds(state, study, board))
    names = yield from all_reported(trials)
    saved = (t.checkpoint.size_bytes for t in trials if t.checkpoint)
    own = (trial.step - trial.carried_steps for trial in trials if trial.carrier is None)
    view = pb.Study(
        id=study.id,
        spec=_effective_spec(study),
        owner=study.owner,
        submitted_unix_seconds=study.submitted,
        counts=[pb.StateCount(state=STATES[p], count=counts[p]) for p in Phase if counts[p]],
        busy_seconds=(yield from _sum(trial.use.busy_seconds for trial in trials)),
        overhead_seconds=(yield from _sum(trial.use.overhead_seconds for trial in trials)),
        preemptions=(yield from _sum(trial.preemptions for trial in trials)),
        finished=finished,
        checkpoint_bytes=(yield from _sum(saved)),
        code_sha256=study.program.code_sha256,
        submit_directory=study.program.submit_directory,
        remaining_seconds=left and left.usual,
        remaining_least_seconds=left and left.least,
        remaining_most_seconds=left and left.most,
        paused=not study.outside and bool(unfinished) and all(each.paused for each in unfinished),
        ranking=ranking_view(board.measure),
        pool=study.pool,
        policy=plugin_to_proto(state.own_policy(study.id)),
        placement=plugin_to_proto(state.placement_of(study.id)),
        waits_for=waits_for,
        reported=names,
        program_sha256=study.program_sha256,
        trials_wanted=state.searching.get(study.id, 0),
        notices=notices,
        signal=study.signal,
        steps=(yield from _sum(trial.step for trial in trials)),
        trained_steps=(yield from _sum(own)),
    )
    if study.id in state.fallen:
        view.deciding.CopyFrom(plugin_to_proto(state.policy_of(study.id)))
    if (best := board.best) is not None:
        view.best_trial = best.id
        view.best_metric = board.measure.value(best) or 0.0
    if finished and trials:
        view.finished_unix_seconds = max(trial.finished or 0.0 for trial in trials)
    return view


def _sum(values: Iterable[Number]) -> Pieces[Number | int]:
    return sum((yield from gathered(values, LOOKED_AT)))


def _effective_spec(study: Study) -> types.StudySpec:
    """What was submitted, with the policy and the placement that it got if it named none, and with
    the metric and the signal that were chosen since."""
    spec = spec_of(study)
    if study.metric_chosen:
        spec.metric.CopyFrom(_metric(measure(study, ())))
    if study.signal_chosen:
        signal = types.Signal(name=study.signal, goal=GOALS[study.signal_goal])
        spec.signal.CopyFrom(signal)
    for message, plugin in (
        (spec.schedule.policy, study.policy),
        (spec.schedule.placement, study.placement),
    ):
        if not message.name:
            message.CopyFrom(plugin_to_proto(plugin))
    return spec


class Left(NamedTuple):
    """Seconds until a study's last trial ends, if the trials that were not measured are as fast as
    the fastest, the usual, or the slowest one that was."""

    least: float
    usual: float
    most: float


def remaining_seconds(state: State, study: Study, board: RankedTrials) -> Pieces[Left | None]:
    """Until the last trial ends, at the speeds measured so far, on the devices that are there, as
    far as other studies leave them.

    A trial that was not measured takes the median of those that were, in speed and in length; one
    that has completed was as long as it is. None takes longer than stop.max_seconds. One that has
    not begun first starts, as long as others did. Trials that are yet to be proposed count as well.
    None until one was measured, and while a person holds a trial back: that one does not end.
    """
    trials = board.trials
    unfinished = [trial for trial in trials if not trial.phase.final]
    if not unfinished or any(trial.paused for trial in unfinished):
        return None  # what its searcher proposes next is not known yet, or waits for a person
    devices = sum(
        slot.sound
        and state.serves(slot.device, study)
        and state.nodes[slot.device.node].open
        and study.device_kind in ("", slot.device.kind)
        for slot in state.slots.values()
    )
    yield
    paces = yield from gathered((trial.seconds_per_step for trial in trials), LOOKED_AT)
    speeds = [pace for pace in paces if pace]
    took = (t.step if t.phase is Phase.COMPLETED else 0 for t in trials)
    each = (n or _length(study, t, board) for t, n in zip(trials, took, strict=True))
    lengths = [n for n in (yield from gathered(each, LOOKED_AT)) if n]
    limit = math.inf if study.stop.max_seconds is None else study.stop.max_seconds
    if not devices or not speeds or (not lengths and limit == math.inf):
        return None
    typical = median(lengths) if lengths else math.inf
    start = median([t.longest_start_seconds for t in trials if t.attempt] or [0.0])
    yet_to_come = max(0, state.searching.get(study.id, 0) - len(trials))
    at_a_time = _left_to(state, study, devices) / study.devices

    def at(speed: float) -> Pieces[float]:
        each = (
            min(
                max(0.0, (_length(study, t, board) or typical) - _own_begin(state, t))
                * (t.seconds_per_step or speed),
                _seconds_allowed(study, t),
            )
            + (0.0 if t.attempt or t.carrier else start)
            for t in unfinished
        )
        left = yield from gathered(each, LOOKED_AT)
        left += [min(typical * speed, limit) + start] * yet_to_come
        return max(sum(left) / at_a_time, max(left, default=0.0))

    usual = yield from at(median(speeds))
    return Left((yield from at(min(speeds))), usual, (yield from at(max(speeds))))


def _own_begin(state: State, trial: Trial) -> float:
    """The step from which on a trial trains by itself: a rider only once it parts."""
    if trial.carrier is None:
        return trial.step
    parts = state.riding.riders[trial.carrier][trial.id]
    return math.inf if parts is None else parts


def _left_to(state: State, study: Study, devices: int) -> float:
    """How many of the devices a study has on average, beside others that could use them: users by
    their weights, the studies of one alike, and nobody more than they have trials for."""
    trials = {  # of a large study no more are counted than there are devices
        other.id: len([*islice(_not_paused(state, other.id), devices)])
        for other in state.studies.values()
        if other.pool == study.pool
        and (not other.device_kind or study.device_kind in ("", other.device_kind))
        and (other.owner != study.owner or other.priority >= study.priority)
    }
    wanting = {name: number for name, number in trials.items() if number}
    owners = Counter(state.studies[name].owner for name in wanting)
    weights = {
        name: state.terms_of(owner).weight / owners[owner]
        for name in wanting
        for owner in [state.studies[name].owner]
    }
    left = float(devices)
    while True:
        level = left / math.fsum(weights[name] for name in wanting)
        sated = [
            name
            for name, number in wanting.items()
            if name != study.id and number < level * weights[name]
        ]
        if not sated:
            return level * weights[study.id]
        left -= sum(wanting.pop(name) for name in sated)


def _not_paused(state: State, study: StudyId) -> Iterator[TrialId]:
    return (trial for trial in state.active[study] if not state.trials[trial].paused)


def _length(study: Study, trial: Trial, board: RankedTrials) -> int:
    """How many steps it takes in all: by its plan, of which completed trials may have needed a part
    only, or without a plan as many as those, and at most those allowed. 0: nobody knows."""
    plan = trial.planned_steps
    own = (round(plan * board.completed_share) or plan) if plan else board.completed_steps
    return min((n for n in (own, study.stop.max_steps) if n), default=0)


def _seconds_allowed(study: Study, trial: Trial) -> float:
    """How long stop.max_seconds lets it train on; infinite without one."""
    limit = study.stop.max_seconds
    return math.inf if limit is None else max(0.0, limit - trial.use.busy_seconds)
