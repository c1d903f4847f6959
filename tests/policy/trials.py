"""Trials as a policy would see them, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hermesd.core.losses import Chunk, QuantumLosses, extend
from hermesd.core.model import Ending, Phase, Quantum, RunId, SwitchCost, Tier, TrialSpec, Use
from hermesd.core.policy import Facts, View
from hermesd.core.trial import Run, Trial


def trial(number: int = 0, **known: Any) -> Trial:
    """A waiting trial that never ran, but for what is `known` of it."""
    spec = TrialSpec(f"s/{number}", "s", number, (), (), 0)
    return replace(Trial(spec, 0.0, 0.0), **known)


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
    return replace(each, phase=Phase.COMPLETED, finished=9.0)


def view(*trials: Trial, devices: int = 1, now: float = 100.0) -> View:
    """A study of these trials."""
    return View(
        now,
        [each for each in trials if not each.phase.final],
        [each for each in trials if each.phase.final],
        devices,
        Facts(),
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
    ]
