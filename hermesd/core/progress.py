"""What an event changes in one trial: pure functions from a trial to the trial after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from hermesd.core.commands import Suspend
from hermesd.core.events import Reported, RunFailed, RunStarted, RunSuspended
from hermesd.core.failures import Prospects, blamed, one_line, set_back
from hermesd.core.fast_replace import replace
from hermesd.core.losses import QuantumLosses, extend, truncate
from hermesd.core.model import (
    Checkpoint,
    Device,
    DeviceId,
    NodeId,
    Phase,
    Quantum,
    RunId,
    Study,
    Tier,
    Time,
)
from hermesd.core.tables import Rejected
from hermesd.core.trial import (
    Abandoned,
    Ending,
    Kept,
    MetricSummary,
    Pace,
    Result,
    Run,
    SwitchCost,
    Trial,
)

# Seconds per step on a device kind: the newest report weighs this much.
STEP_SECONDS_WEIGHT = 0.2
# A program may name its metrics by its steps; each report would take longer than the one before.
METRICS_KEPT = 1_000


def close_quantum(trial: Trial) -> Trial:
    """The running quantum becomes the latest finished one, if it saw any loss."""
    if not trial.current.count:
        return replace(trial, quanta=trial.quanta + 1)
    return replace(
        trial,
        quanta=trial.quanta + 1,
        first=trial.first or trial.current,
        before=trial.latest,
        latest=trial.current,
        current=QuantumLosses(),
    )


def started(trial: Trial, event: RunStarted, tier: Tier | None, now: Time) -> Trial:
    """Training goes on from `event.step`; `tier` is the one it was resumed from, None if fresh."""
    costs, use = trial.costs, trial.use
    # A first start is no switch: every schedule pays it once.
    if tier is not None:
        cost = replace(costs.get(tier, SwitchCost()), resume_seconds=event.start_seconds)
        costs = {**costs, tier: cost}
        use = replace(use, overhead_seconds=use.overhead_seconds + event.start_seconds)
    run = trial.run
    assert run is not None
    if event.step < run.restored_step:
        trial = set_back(trial, run, event.step, now)
    if event.step < trial.step:
        trial = back_at(trial, event.step)
    return replace(
        trial,
        run=replace(run, started=True, begun=event.step),
        phase=Phase.RUNNING if trial.phase is Phase.STARTING else trial.phase,
        costs=costs,
        use=use,
        kept=None,
        abandoned=None,
        longest_start_seconds=max(trial.longest_start_seconds, event.start_seconds),
        began_busy=trial.began_busy if tier and tier.in_process else use.busy_seconds,
        planned_steps=event.planned_steps or trial.planned_steps,
    )


def reported(
    trial: Trial, event: Reported, device: Device, corrections: Mapping[DeviceId, float]
) -> Trial:
    """Progress on a device; `corrections` are those of devices that differ from their kind."""
    gained = event.step - trial.step
    begun = trial.run.begun if trial.run is not None else 0
    step_seconds, paces, run = trial.step_seconds, trial.paces, trial.run
    # An iteration may take longer than its host waits before it tells what a silent program uses.
    seconds = event.busy_seconds + (run.silent_seconds if run is not None else 0.0)
    paced = gained > 0 and seconds > 0 and run is not None and run.warm
    if paced:
        step_seconds, paces = _measured(trial, seconds / gained, device, corrections)
    use = replace(
        trial.use,
        busy_seconds=trial.use.busy_seconds + event.busy_seconds,
        cpu_seconds=trial.use.cpu_seconds + event.cpu_seconds,
        examples=trial.use.examples + event.examples,
        steps=trial.use.steps + max(0, event.step - max(trial.step, begun)),
        memory_bytes=max(trial.use.memory_bytes, event.memory_bytes),
        device_memory_bytes=max(trial.use.device_memory_bytes, event.device_memory_bytes),
    )
    if run is not None:
        run = replace(
            run,
            warm=run.warm or gained > 0,
            heard=max(run.heard, event.number),
            silent_seconds=0.0 if gained > 0 else seconds,
            stalled_since=None if gained > 0 else run.stalled_since,
            paced=run.paced or paced,
        )
    return replace(
        trial,
        run=run,
        step=max(trial.step, event.step),
        planned_steps=event.planned_steps or trial.planned_steps,
        passes=trial.passes + event.passes,
        curve=extend(trial.curve, event.chunks),
        current=trial.current.with_chunks(event.chunks),
        metrics=with_metrics(trial.metrics, event),
        not_finite=trial.not_finite or event.not_finite,
        step_seconds=step_seconds,
        paces=paces,
        use=use,
    )


def _measured(
    trial: Trial, fresh: float, device: Device, corrections: Mapping[DeviceId, float]
) -> tuple[dict[str, float], dict[str, tuple[Pace, ...]]]:
    """The seconds an iteration by kind, and the paces, after a report of `fresh` seconds."""
    before = trial.paces.get(device.kind, ())
    elsewhere = [each for each in before if each.device != device.id]
    # What slows single reports down, as a validation does, is not the device's.
    goes_on = before and before[0].device == device.id and trial.run and trial.run.paced
    pace = Pace(device.id, min(before[0].seconds, fresh) if goes_on else fresh)
    old = trial.step_seconds.get(device.kind, fresh)
    if before:  # it was as fast as the device on which it ran then
        old *= corrections.get(before[0].device, 1.0) / corrections.get(device.id, 1.0)
    return (
        {**trial.step_seconds, device.kind: old + STEP_SECONDS_WEIGHT * (fresh - old)},
        {**trial.paces, device.kind: (pace, *elsewhere[:1])},
    )


def with_metrics(known: Mapping[str, MetricSummary], event: Reported) -> dict[str, MetricSummary]:
    """The metrics with those of a report."""
    metrics = dict(known)
    ranges = {name: (low, high) for name, low, high in event.ranges}
    for name, value in event.metrics:
        if name not in metrics and len(metrics) >= METRICS_KEPT:
            continue
        low, high = ranges.get(name, (value, value))
        metrics[name] = _with_values(metrics.get(name), event.step, value, low, high)
    return metrics


def _with_values(
    summary: MetricSummary | None, step: int, last: float, low: float, high: float
) -> MetricSummary:
    seen = summary or MetricSummary(step, last)
    lowest, low_step = (low, step) if low < seen.low else (seen.low, seen.low_step)
    highest, high_step = (high, step) if high > seen.high else (seen.high, seen.high_step)
    return MetricSummary(step, last, lowest, highest, low_step, high_step)


def measured(value: float) -> MetricSummary:
    """A metric of which one value alone is known."""
    return _with_values(None, 0, value, value, value)


def _without_later(summary: MetricSummary, step: int) -> MetricSummary | None:
    """What was seen up to `step`, as far as that is known; None if it is nothing.

    What is forgotten is seen again when the trial has trained that again; until then the other
    extreme is all that is known of both.
    """
    if summary.step <= step:
        return summary
    low, high = (summary.low, summary.low_step), (summary.high, summary.high_step)
    known = [seen for seen in (low, high) if 0 < seen[1] <= step]
    if not known:
        return None
    (low_value, low_step), (high_value, high_step) = min(known), max(known)
    return MetricSummary(step, None, low_value, high_value, low_step, high_step)


def stop_reason(trial: Trial, study: Study) -> str | None:
    """Why the study's stop rule ends this trial now, None while it does not."""
    rule = study.stop
    if trial.not_finite and rule.on_nan:
        return "the loss is not finite (stop.on_nan)"
    if rule.max_steps is not None and trial.step >= rule.max_steps:
        return f"stop.max_steps = {rule.max_steps} is reached"
    if rule.max_seconds is not None and trial.use.busy_seconds >= rule.max_seconds:
        return f"stop.max_seconds = {rule.max_seconds:g} is reached"
    if rule.target is not None and trial.curve:
        sign = -1.0 if study.signal_goal == "maximize" else 1.0
        if (loss := trial.loss) is not None and loss <= sign * rule.target:
            return f"stop.target = {rule.target:g} is reached"
    return None


def back_at(trial: Trial, step: int) -> Trial:
    """The trial with all progress past `step` gone, and with it what metrics were seen there."""
    kept = {name: _without_later(seen, step) for name, seen in trial.metrics.items()}
    metrics = {name: seen for name, seen in kept.items() if seen is not None}
    curve = truncate(trial.curve, step)
    return replace(trial, step=step, curve=curve, metrics=metrics, kept=None)


def forked(trial: Trial, parent: Trial | None, node: NodeId) -> Trial:
    """The trial at the checkpoint that it begins from, which is its own now and lies on `node`.

    What its parent had learned by then is what it has learned, as far as that is still known.
    """
    begin = trial.forked
    assert begin is not None
    own = f"{trial.id}@{begin.id.rpartition('@')[2]}"
    there = replace(begin, id=own, trial=trial.id, nodes=(node,))
    # Of the checkpoints that a node has of a trial, those of later attempts are newer. (A fork that
    # a person has asked for counts on from its beginning, or never: see `Added`.)
    attempt = max(trial.attempt, begin.attempt) if trial.spec.root else trial.attempt
    trial = replace(trial, checkpoint=there, copying=None, step=begin.step, attempt=attempt)
    if parent is None:
        return trial
    return replace(
        trial,
        curve=truncate(parent.curve, begin.step),
        fidelity=parent.fidelity,
        fidelity_reason=parent.fidelity_reason,
        framework=parent.framework,
    )


def fall_back(trial: Trial) -> Trial:
    """The trial as its newest checkpoint has it, or as it was submitted.

    One that ends will not train that again: what it came to stays, though no copy of it is left.
    """
    return replace(trial, kept=None) if trial.ending else rewound(trial)


def rewound(trial: Trial) -> Trial:
    """The trial as it is trained on from its newest checkpoint, or from the beginning."""
    return back_at(trial, trial.checkpoint.step if trial.checkpoint else 0)


def on_its_place(trial: Trial, now: Time) -> Trial:
    """A suspended trial as if the run that it is kept as were its present one, since now."""
    assert trial.kept is not None
    run = Run(trial.kept.run, (trial.kept.device,), Quantum(), now, started=True)
    return replace(trial, run=run)


def released(trial: Trial, now: Time) -> Trial:
    """The device is free again; what was asked as a final end takes effect."""
    assert trial.run is not None
    freed = replace(
        trial,
        run=None,
        phase=Phase.WAITING,
        served_seconds=trial.served_seconds + max(0.0, now - trial.run.since),
        rested=now,
    )
    return ended(freed, now, trial.ending) if trial.ending else freed


def ended(trial: Trial, now: Time, ending: Ending) -> Trial:
    """The trial in its final phase; nothing more is expected of it.

    One that was extended and failed for good, or got no further, has its result again: what was
    won is never lost.
    """
    done = replace(
        trial,
        run=None,
        phase=ending.phase,
        reason=ending.reason,
        ending=None,
        result=trial.result if ending.phase is Phase.CANCELLED else None,
        finished=now,
        home=None,
        carrier=None,
    )
    before = trial.result
    if before is None or (ending.phase is not Phase.FAILED and _gained(trial, ending, before)):
        return done
    nothing = "its program had nothing more to do"
    why = nothing if ending.phase is Phase.COMPLETED else one_line(ending.reason)
    return replace(
        done,
        result=None,
        not_extended=why,
        reason=f"not extended: {why}",
        **{each.name: getattr(before, each.name) for each in fields(before)},
    )


def _gained(trial: Trial, ending: Ending, before: Result) -> bool:
    """Whether a trial that goes on from its result has come to more than that."""
    ended_by_itself = ending.phase is Phase.COMPLETED and before.phase is not Phase.COMPLETED
    return trial.step > before.step or (ended_by_itself and trial.step == before.step)


def result_of(trial: Trial) -> Result | None:
    """What a trial that is over has come to; None if that is nothing to keep.

    Of one that was extended and then cancelled that is what it had come to before.
    """
    if trial.phase not in (Phase.COMPLETED, Phase.STOPPED):
        return trial.result
    return Result(**{each.name: getattr(trial, each.name) for each in fields(Result)})


def suspended(trial: Trial, event: RunSuspended, now: Time) -> Trial:
    """The run gave its device back at `event.step`, kept in `event.tier`."""
    run = trial.run
    assert run is not None
    if trial.current.count:
        trial = _merge_leftover(trial) if run.expired else close_quantum(trial)
    cost = replace(trial.costs.get(event.tier, SwitchCost()), suspend_seconds=event.release_seconds)
    trial = with_checkpoint(trial, event.checkpoint)
    trial = replace(
        trial,
        step=max(trial.step, event.step),
        costs={**trial.costs, event.tier: cost},
        use=replace(trial.use, overhead_seconds=trial.use.overhead_seconds + event.release_seconds),
        kept=Kept(
            event.tier,
            run.id,
            run.devices[0],
            event.memory_bytes,
            len(run.devices),
            midway=_is_midway(run, event),
        ),
        preemptions=trial.preemptions + (0 if trial.ending else 1),
        overdue=trial.overdue + _was_overdue(run, event),
        reason=run.asked.reason if run.asked else event.cause,
    )
    lost = event.tier is Tier.KILL or (
        event.tier is Tier.CHECKPOINT
        and (trial.checkpoint is None or trial.checkpoint.step < event.step)
    )
    return released(fall_back(trial) if lost else trial, now)


def _was_overdue(run: Run, event: RunSuspended) -> bool:
    """Whether the run was to be kept, and was ended as it came to no boundary by the deadline."""
    asked = run.asked
    wanted = isinstance(asked, Suspend) and asked.tier is not Tier.KILL
    return wanted and run.started and event.tier is Tier.KILL


def _is_midway(run: Run, event: RunSuspended) -> bool:
    """Whether the run was parked from outside, as it came to no boundary by the deadline."""
    asked = run.asked
    if not isinstance(asked, Suspend) or event.tier is not Tier.PARK:
        return False
    return event.release_seconds >= asked.deadline_seconds


def _merge_leftover(trial: Trial) -> Trial:
    """Losses between a quantum's end and the release belong to that quantum."""
    latest, more = trial.latest, trial.current
    if latest is None:
        return close_quantum(trial)
    joined = QuantumLosses(
        latest.count + more.count, min(latest.low, more.low), max(latest.high, more.high)
    )
    first = joined if trial.quanta == 1 else trial.first
    return replace(trial, first=first, latest=joined, current=QuantumLosses())


def with_checkpoint(trial: Trial, checkpoint: Checkpoint | None) -> Trial:
    """The trial with a newer durable checkpoint; an older one is ignored."""
    before = trial.checkpoint.step if trial.checkpoint else 0
    if checkpoint is None or checkpoint.step < before:
        return trial
    misfortunes = 0 if checkpoint.step > before else trial.misfortunes
    if (known := trial.checkpoint) is not None and known.id == checkpoint.id:  # said twice
        places = tuple(dict.fromkeys((*known.nodes, *checkpoint.nodes)))
        devices = checkpoint.devices or known.devices
        return replace(trial, checkpoint=replace(checkpoint, nodes=places, devices=devices))
    older = known if known is not None and not known.image_of else trial.before_image
    return replace(
        trial,
        checkpoint=checkpoint,
        before_image=older if checkpoint.image_of else None,
        misfortunes=misfortunes,
        copy_after=0.0,
    )


def failed(trial: Trial, event: RunFailed, study: Study, left: Prospects, now: Time) -> Trial:
    """One more failure: tried again from the last checkpoint, or failed for good; see `blamed`."""
    trial = blamed(trial, event, study, left, now)
    if trial.current.count:
        trial = close_quantum(trial)
    return released(fall_back(trial), now)


# What still comes of a run that was given up: pure functions of a trial that has fallen back.
#
# Its node may come back before the trial goes on elsewhere. Then its reports are the truth
# about the steps up to a checkpoint of it, and the trial goes on from there as if nothing had
# been; of steps that were never heard of, no checkpoint is used.


def fallen_back(trial: Trial, run: RunId) -> Trial:
    """The trial as its newest checkpoint has it; what was heard of the run is kept beside."""
    heard = Abandoned(run.attempt, trial.step, trial.curve, trial.metrics)
    return replace(fall_back(trial), abandoned=heard)


def may_return(trial: Trial, run: RunId) -> bool:
    """Whether this is the run that was given up, and its trial has not been launched since."""
    left = trial.abandoned
    return left is not None and left.attempt == run.attempt and trial.run is None


def heard_late(trial: Trial, event: Reported) -> Trial:
    """The trial, with one more report of the run that was given up. Raises Rejected."""
    left = trial.abandoned
    assert left is not None
    known = left.curve[-1].last_step if left.curve else 0
    if event.step < left.step or (event.chunks and event.chunks[-1].last_step <= known):
        raise Rejected(f"step {event.step} of {trial.id} was reported before")
    if event.not_finite:
        raise Rejected(f"{event.run} was given up: what it has come to is tried again")
    heard = replace(
        left,
        step=event.step,
        curve=extend(left.curve, event.chunks),
        metrics=with_metrics(left.metrics, event),
    )
    return replace(trial, abandoned=heard)


def recovered(trial: Trial, checkpoint: Checkpoint) -> Trial:
    """The trial as a checkpoint of the run that was given up has it, if that is further."""
    left = trial.abandoned
    assert left is not None
    if checkpoint.step > left.step:
        return trial  # what was reported up to there was not heard: its curve would have a gap
    found = with_checkpoint(trial, checkpoint)
    if checkpoint.step <= trial.step or trial.phase.final:
        return found
    there = replace(found, step=left.step, curve=left.curve, metrics=left.metrics)
    return back_at(there, checkpoint.step)
