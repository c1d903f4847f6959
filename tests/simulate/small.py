"""Curves small enough to compute every figure by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hermesd.core.model import Plugin
from hermesd.sim.curves import Floats, Job, Switch
from hermesd.sim.drive import Drive, SimulatedOutcome
from hermesd.sim.orders import LossGoal, SubmissionOrder

# The worked example of these tests: one device, a switch of 1 s (0.36 s to leave, 0.64 s to
# start), iterations of 1 s, no smoothing. Only the second trial reaches the goal, at its step 2.
SLOW, STEEP = (10.0, 9.0, 8.0, 7.0), (10.0, 4.0, 2.0, 1.0)
GOAL = LossGoal(theta=4.0, start=10.0, best=1.0)


def job(losses: Sequence[float], seconds: float = 1.0, diverges: bool = False) -> Job:
    return Job(tuple(losses), seconds, len(losses) + diverges, smoothing=1, diverges=diverges)


def order(*curves: Sequence[float], goal: LossGoal = GOAL, switch: float = 1.0) -> SubmissionOrder:
    jobs = tuple(job(losses) for losses in curves)
    good = tuple(place for place, losses in enumerate(curves) if min(losses) <= goal.theta)
    return SubmissionOrder(jobs, good, goal, Switch.split(switch))


FREE = Plugin("free")
EXAMPLE = order(SLOW, STEEP)


def play(
    jobs: SubmissionOrder, policy: Plugin, devices: int = 1, placement: Plugin = FREE
) -> SimulatedOutcome:
    return Drive(jobs, devices, policy, placement).run()


def trainings(
    path: Path, trials: int = 48, steps: int = 60, seed: int = 5, lows: Floats | None = None
) -> Path:
    """An archive of trainings that fall to a floor of their own; a few fall far."""
    chance = np.random.default_rng(seed)
    floors = np.sort(chance.uniform(0.1, 2.5, trials)) if lows is None else lows
    falls = np.exp(-np.arange(steps) / chance.uniform(3, 30, (trials, 1)))
    base = floors[:, None] + (3 - floors[:, None]) * falls
    settings = [(i % 4, (16, 24, 32, 50)[i // 4 % 4], 1e-3, 0.01) for i in range(trials)]
    np.savez(
        path,
        base=base.astype(np.float32),
        total=(base + 1).astype(np.float32),
        step_s=chance.uniform(0.9, 1.1, trials).astype(np.float32),
        cfg=np.array(settings),
        meta=json.dumps({"name": "small", "opts": ["sgd", "momentum", "rmsprop", "adam"]}),
    )
    return path
