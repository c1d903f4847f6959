"""What really became of an exported study, told as a simulation tells what would have.

Rule: only the journal's own times count. Between two reports of a run its iterations are taken to
be evenly spread.
"""

from __future__ import annotations

from hermesd.core.commands import Launch
from hermesd.core.events import (
    PolicyFailed,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import Time, TrialId
from hermesd.record import Entry
from hermesd.simulate.contenders import FIFO
from hermesd.simulate.drive import Outcome
from hermesd.simulate.exports import Exported
from hermesd.simulate.stay import Stay
from hermesd.spelling import label_of


def devices_of(exported: Exported) -> int:
    """How many devices the study's trials were launched on; 1 if no launch is in the export."""
    launches = [entry for _, entry in exported.entries if isinstance(entry, Launch)]
    return len({device for launch in launches for device in launch.devices}) or 1


def decided_by(exported: Exported) -> str:
    """The study's own policy with its settings, and what went on in its place if it failed."""
    own = label_of(exported.study.policy, exported.study.placement)
    failed = any(isinstance(entry, PolicyFailed) for _, entry in exported.entries)
    return f"{own}, then {FIFO.label}" if failed else own


def away_seconds(exported: Exported) -> Time:
    """Seconds, over all its devices, in which one was not the study's though a trial waited.

    They were with other studies then, away or held back, or the trial was: what a simulation in
    which the study has its devices to itself knows nothing of.
    """
    devices, at, away = devices_of(exported), exported.study.submitted, 0.0
    going = {trial.id for trial in exported.trials}
    holding: set[TrialId] = set()
    ends = [(each.finished, each.id) for each in exported.trials if each.finished is not None]
    timeline: list[tuple[Time, Entry | TrialId]] = [*exported.entries, *ends]
    for now, what in sorted(timeline, key=lambda each: each[0]):
        free, waiting = devices - len(holding), len(going - holding)
        away += max(0.0, now - at) * max(0, min(free, waiting))
        at = max(at, now)
        match what:
            case Launch(run):
                holding.add(run.trial)
            case RunSuspended(run) | RunCompleted(run) | RunFailed(run):
                holding.discard(run.trial)
            case str():
                going.discard(what)
                holding.discard(what)
            case _:
                pass
    return away


def happened(exported: Exported) -> Outcome:
    """The study as it ran, in seconds since its submission; a trial going on ends at its last
    report. Of iterations that were trained twice the first time counts."""
    origin = exported.study.submitted
    places = {trial.id: place for place, trial in enumerate(exported.trials)}
    histories = [_History(place, job.steps) for place, job in enumerate(exported.curves.jobs)]
    for at, entry in exported.entries:
        match entry:
            case RunStarted(run, step) if run.trial in places:
                histories[places[run.trial]].began(at - origin, step)
            case Reported(run, step) | RunCompleted(run, step) if run.trial in places:
                histories[places[run.trial]].reached(at - origin, step)
    finished = []
    for trial, history in zip(exported.trials, histories, strict=True):
        history.close()
        over = trial.finished if trial.phase.final else None
        finished.append(history.last if over is None else over - origin)
    return Outcome(
        stays=tuple(stay for history in histories for stay in history.stays),
        finished=tuple(finished),
        switches=sum(trial.preemptions for trial in exported.trials),
        overhead_seconds=sum(trial.use.overhead_seconds for trial in exported.trials),
        decisions=0,
        decision_seconds=0.0,
    )


class _History:
    """One trial's stretches between reports, which together are its `steps` iterations."""

    def __init__(self, place: int, steps: int) -> None:
        self.stays: list[Stay] = []
        self.last: Time = 0.0
        self._place = place
        self._steps = steps
        self._done = 0
        self._mark: tuple[Time, int] = (0.0, 0)

    def began(self, at: Time, step: int) -> None:
        """A run goes on from a step."""
        self._mark = (at, step)
        self.last = max(self.last, at)

    def reached(self, at: Time, step: int) -> None:
        """A run has done a step."""
        (begun, first), self._mark, self.last = self._mark, (at, step), max(self.last, at)
        first, step = min(first, self._done), min(step, self._steps)
        if step <= self._done:
            return
        each = (at - begun) / (step - first)
        begun += (self._done - first) * each
        self.stays.append(Stay(self._place, 0, begun, begun, at, at, self._done, step, each))
        self._done = step

    def close(self) -> None:
        """Points without a report of their own came with the last one."""
        self.reached(self.last, self._steps)
