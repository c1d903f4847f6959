"""What policies are tried on: trials in every condition, and a small study from start to end.

No clock, no processes: trials are made by hand and trained by arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hermesd.core.history import Ending, SwitchCost, Use
from hermesd.core.losses import Chunk, QuantumLosses, chunked, extend
from hermesd.core.model import Phase, Quantum, RunId, Stage, Tier, Time, TrialId, TrialSpec
from hermesd.core.policy import Facts, Planning, Policy, View
from hermesd.core.trial import Run, Trial

STUDY_TRIALS, STUDY_STEPS, STEP_SECONDS = 6, 120, 0.25
# A study that takes more decisions than this will not end: its shortest quanta are 0.1 s.
MOST_DECISIONS = 5_000


def trial(number: int = 0, **known: Any) -> Trial:
    """A waiting trial that never ran, but for what is `known` of it."""
    spec = TrialSpec(f"s/{number}", "s", number, (_stage(number),), (), 0)
    return replace(Trial(spec, 0.0, 0.0), **known)


def _stage(number: int) -> Stage:
    optimizer = ("sgd", "adam", "momentum")[number % 3]
    return Stage(None, (("lr", 10.0 ** -(number % 4)), ("optimizer", optimizer)))


def losses(*values: float) -> QuantumLosses:
    """The losses of one quantum."""
    return QuantumLosses(len(values), min(values), max(values))


def curve(values: Sequence[float]) -> tuple[Chunk, ...]:
    """One chunk an iteration, from step 1 on."""
    return extend((), [Chunk(i, i, 1, v, v, v) for i, v in enumerate(values, 1)])


def trained(number: int, values: Sequence[float], **known: Any) -> Trial:
    """A trial that was seen for one quantum, in which it showed these losses."""
    seen = losses(*values)
    shown = {"quanta": 1, "first": seen, "latest": seen, "step": len(values)}
    return trial(number, curve=curve(values), **{**shown, **known})


def on_device(each: Trial, expired: bool = True) -> Trial:
    """The trial running, by default with its quantum over."""
    run = Run(RunId(each.id, 1), ("n/0",), Quantum(1.0), 0.0, expired=expired)
    return replace(each, phase=Phase.RUNNING, run=run, attempt=1)


def finished(each: Trial) -> Trial:
    """The trial, completed."""
    return replace(each, phase=Phase.COMPLETED, finished=9.0)


def view(*trials: Trial, devices: int = 1, now: Time = 100.0, facts: Facts | None = None) -> View:
    """A study of these trials."""
    return View(
        now,
        [each for each in trials if not each.phase.final],
        [each for each in trials if each.phase.final],
        devices,
        facts or Facts(),
    )


def costing(suspend: float, resume: float) -> dict[Tier, SwitchCost]:
    """Measured costs of a switch in the park tier."""
    return {Tier.PARK: SwitchCost(suspend, resume)}


def mixed_bag() -> list[Trial]:
    """Trials in every condition that a policy may meet."""
    nan = float("nan")
    falling = [3.0 - i / 20 for i in range(40)]
    return [
        trial(0),
        trial(1, planned_steps=1000),
        trained(2, falling, planned_steps=100, use=Use(busy_seconds=4.0)),
        trained(3, [1.0] * 30, costs=costing(0.5, 1.5), served_seconds=50.0),
        trained(4, [nan, nan, nan], not_finite=True),
        trained(5, [-0.1, -0.2, -0.3], milestone_percent=50.0, milestones_passed=2),
        trial(6, quanta=2, served_seconds=20.0),
        on_device(trained(7, falling[:10], planned_steps=200)),
        on_device(trained(8, falling), expired=False),
        replace(on_device(trial(9), expired=False), phase=Phase.STARTING),
        replace(
            on_device(trained(10, falling)),
            phase=Phase.SUSPENDING,
            ending=Ending(Phase.CANCELLED, ""),
        ),
        trained(11, [float("inf")] * 5),
        trained(12, [0.0] * 25, preemptions=4, rested=70.0),
        finished(trained(13, falling, planned_steps=40)),
        finished(trial(14)),
        replace(trained(15, falling[:20], planned_steps=40), phase=Phase.FAILED, finished=8.0),
        trained(16, falling, planned_steps=40, use=Use(busy_seconds=9.0), submitted=50.0),
        trained(17, [5e-324, 1e300, 5.0], step_seconds={"cpu": 0.5}, planned_steps=3),
        trained(18, [2.0], planned_steps=100_000, use=Use(busy_seconds=0.1, cpu_seconds=0.3)),
    ]


def rehearse(policy: Policy) -> dict[TrialId, Time]:
    """When each trial of a small study on one device ended under the policy.

    Raises:
        TimeoutError: some trial does not end, because the policy never claims it a device, or
            grants so little that the study does not get on.
    """
    trials = {each.id: each for each in (trial(n) for n in range(STUDY_TRIALS))}
    now, ends = 0.0, dict[TrialId, Time]()
    for _ in range(MOST_DECISIONS):
        chosen = _first(policy, view(*trials.values(), now=now, facts=Facts(0.1, 0.2)))
        if chosen is None:
            break
        winner, quantum = chosen
        for each in trials.values():
            if each.run is not None and each.id != winner:
                trials[each.id] = _suspended(each, now)
        ran = _ran(trials[winner], quantum, now)
        now += (ran.step - trials[winner].step) * STEP_SECONDS
        if ran.step >= STUDY_STEPS:
            ran, ends[winner] = replace(finished(ran), run=None), now
        trials[winner] = ran
    if len(ends) < STUDY_TRIALS:
        left = sorted(trials.keys() - ends.keys())
        raise TimeoutError(f"{', '.join(left)} did not end: the policy claims them no device")
    return ends


def _first(policy: Policy, study: View) -> tuple[TrialId, Quantum] | None:
    """Who gets the device, and for how long."""
    if isinstance(policy, Planning):
        return next(((claim.trial, claim.quantum) for claim in policy.plan(study)), None)
    order = sorted(study.trials, key=policy.score)
    return next(((each.id, policy.quantum(each, study.facts)) for each in order), None)


def _ran(each: Trial, quantum: Quantum, now: Time) -> Trial:
    """The trial after its quantum: 1 / k to a floor of its own."""
    until = STUDY_STEPS if quantum.until_step is None else min(quantum.until_step, STUDY_STEPS)
    steps = until - each.step
    if quantum.seconds is not None:
        steps = min(steps, math.ceil(quantum.seconds / STEP_SECONDS))
    begin, floor = each.step + 1, each.spec.number / 10
    values = [floor + 1 / step for step in range(begin, begin + steps)]
    chunks = chunked(begin, values)
    seen = QuantumLosses().with_chunks(chunks)
    busy = each.use.busy_seconds + steps * STEP_SECONDS
    return replace(
        on_device(each),
        planned_steps=STUDY_STEPS,
        step=each.step + steps,
        curve=extend(each.curve, chunks),
        quanta=each.quanta + 1,
        first=each.first or seen,
        before=each.latest,
        latest=seen,
        use=Use(busy_seconds=busy),
        step_seconds={"cpu": STEP_SECONDS},
    )


def _suspended(each: Trial, now: Time) -> Trial:
    return replace(
        each,
        phase=Phase.WAITING,
        run=None,
        rested=now,
        served_seconds=each.use.busy_seconds,
        preemptions=each.preemptions + 1,
        costs=costing(0.1, 0.2),
    )
