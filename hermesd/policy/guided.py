"""Best first, with the probes ordered by a model of the trials over their hyper-parameters.

A trial is judged by its pace along the curve of the one that leads: how many of the leader's steps
one of its own was worth. What paces the others would have is read off a Gaussian process, and one
of them is probed whenever it may be faster than the fastest that was probed and is not good yet.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hermesd.core.model import TrialId
from hermesd.core.plugins import require
from hermesd.core.policy import Claim, Field, Ranking, View
from hermesd.core.trial import Trial
from hermesd.policy.best_first import BestFirst
from hermesd.policy.good_soon import GOOD, NEVER, good_soon, path_of
from hermesd.policy.pace import Track
from hermesd.policy.surrogate import Prospect, positions, prospects

# Inverting takes time with the cube of the probes: it is learned from so many at most.
MOST_PROBES = 200
# What is known of where the good end is read off so many trials.
SAMPLED = 64
# Slownesses are logarithms of 1 / pace. This is that of a trial that shows nothing; where all
# that were probed are good, or never will be, one that may be below this bar is probed next.
SLOWEST, BAR = 4.0, 1.0
# How far the process is believed about a trial that was probed: its neighbours were seen as well.
BELIEF = 0.8


@dataclass(frozen=True, slots=True)
class Guided:
    """`best_first`, but a trial is probed only if it promises to be among the fastest.

    The first `first_probes` go in order of submission. Then the trials that are not good yet are
    in order of their slowness: those that were probed by what they showed and their neighbours
    did, the others by what is expected less `caution` deviations.
    """

    name: ClassVar[str] = "guided"
    probe_share: float = 0.02
    first_probes: int = 4
    caution: float = 1.0

    def __post_init__(self) -> None:
        BestFirst(self.probe_share)
        require(self.first_probes >= 2, "first_probes", self.first_probes, "2 or more")
        require(0 <= self.caution < math.inf, "caution", self.caution, "0 or more")

    def plan(self, view: View) -> Iterator[Claim]:
        """Every candidate, most deserving first."""
        everyone = [*view.trials, *view.finished]
        order = BestFirst(self.probe_share).suited(_some([t for t in everyone if t.curve]))
        probed = [trial for trial in everyone if order.probed(trial)]
        candidates = [trial for trial in view.trials if trial.candidate]
        known = sorted((t for t in candidates if order.probed(t)), key=order.score)
        unknown = [trial for trial in candidates if not order.probed(trial)]
        leader = min(probed, key=order.level, default=None)
        path = path_of(order, leader) if leader is not None else None
        if leader is None or path is None or len(probed) < self.first_probes:
            for trial in (*unknown, *known):
                yield Claim(trial.id, order.quantum(trial, view.facts), order.words(trial))
            return
        slowness = {trial.id: _slowness(order, path, trial) for trial in probed}
        expected = _expected(everyone, probed, slowness, [*known, *unknown])
        for trial in known:
            mean = expected[trial.id].mean
            slowness[trial.id] += BELIEF * (mean - slowness[trial.id])
        for trial in unknown:
            prospect = expected[trial.id]
            slowness[trial.id] = prospect.mean - self.caution * prospect.deviation
        first, later = _split(order, leader, probed, known, slowness)
        unknown.sort(key=lambda trial: slowness[trial.id])
        bar = slowness[first[0].id] if first else BAR
        worth = bisect_right(unknown, bar, key=lambda trial: slowness[trial.id])
        for trial in (*unknown[:worth], *first, *later, *unknown[worth:]):
            pace = math.exp(-slowness[trial.id])
            words = f"{order.words(trial)}, {pace:.2g} of the leader's pace"
            yield Claim(trial.id, order.quantum(trial, view.facts), words)

    def words(self, trial: Trial) -> str:
        return BestFirst(self.probe_share).words(trial)


def _some(trials: Sequence[Trial]) -> Sequence[Trial]:
    """Evenly many of them, `SAMPLED` at most."""
    return trials[:: max(1, -(-len(trials) // SAMPLED))]


def _slowness(order: BestFirst, path: Track, trial: Trial) -> float:
    """How many times as many steps as the leader it needs for the same loss, as a logarithm."""
    level = order.level(trial)
    if not math.isfinite(level) or not trial.step:
        return SLOWEST
    return min(SLOWEST, -math.log(max(path.step_of(level), 0.5) / trial.step))


def _expected(
    everyone: Sequence[Trial],
    probed: Sequence[Trial],
    slowness: Mapping[TrialId, float],
    asked: Sequence[Trial],
) -> dict[TrialId, Prospect]:
    """What the process expects of each trial that is asked about."""
    row = {trial.id: place for place, trial in enumerate(everyone)}
    table = positions(everyone)
    learned = probed[:: 1 + (len(probed) - 1) // MOST_PROBES]
    found = prospects(
        table[[row[trial.id] for trial in learned]],
        np.array([slowness[trial.id] for trial in learned]),
        table[[row[trial.id] for trial in asked]],
    )
    return {trial.id: prospect for trial, prospect in zip(asked, found, strict=True)}


def _split(
    order: BestFirst,
    leader: Trial,
    probed: Sequence[Trial],
    known: Sequence[Trial],
    slowness: Mapping[TrialId, float],
) -> tuple[list[Trial], list[Trial]]:
    """Those probed trials that hurry, and those that do not: the good ones and the hopeless.

    Until the leader is good that is all of them, the lowest loss first.
    """
    adapted = good_soon(order, order.good, Field(leader, _some(probed)), most=1.0)
    if adapted is None or not known:
        return list(known), []
    ranking: Ranking = adapted.facing(known[0])
    kinds = {trial.id: ranking.score(trial)[0] for trial in known}
    fastest = sorted(known, key=lambda trial: slowness[trial.id])
    good = [trial for trial in known if kinds[trial.id] == GOOD]
    hopeless = [trial for trial in fastest if kinds[trial.id] == NEVER]
    first = [trial for trial in fastest if kinds[trial.id] not in (GOOD, NEVER)]
    return first, [*good, *hopeless]
