"""How many devices each trial gets, in studies whose trials may have more or fewer.

While other trials wait, a trial gets as few as its study allows. Devices that nobody waits for go
to trials that become faster by them, at the end of their quantum. To get another number of devices,
a trial must be started again from its checkpoint, since its processes are made for one number; so
the gain must be many times what a suspend and a resume cost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from hermesd.core.decide.queue import Queues
from hermesd.core.model import DeviceId, NodeId, Phase, StudyId, Time, TrialId
from hermesd.core.policy import ElasticJob
from hermesd.core.quotas import DeviceQuotas
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.core.widths import (
    is_of_any_width,
    narrowed,
    remaining_steps,
    resize_seconds,
    speed_of,
    tried_up_to,
)

# How many times its cost a resize, or a move to other devices, has to save.
WORTH = 5.0
# A trial that becomes faster by less than this has no use for more devices.
FASTER = 1.05


def spare_to_first(jobs: Sequence[ElasticJob], devices: int) -> Mapping[TrialId, int]:
    """Give each job its minimum. Spare devices go to the first job that becomes faster by them, up
    to the width at which it is fastest, then to the next."""
    given = {job.trial: job.min for job in jobs}
    spare = devices - sum(given.values())
    for job in jobs:
        best = job.min
        for width in range(job.min + 1, min(job.max, job.min + spare) + 1):
            if job.speed(width) > FASTER * job.speed(best):
                best = width
        given[job.trial] = best
        spare -= best - job.min
    return given


class Resize(NamedTuple):
    """On how many devices a running trial is to go on, on others if it has as many, and why."""

    width: int
    reason: str


class Resizing:
    """Who gets how many devices, in one decision about the open devices of a pool."""

    def __init__(
        self,
        state: State,
        queues: Queues,
        quotas: DeviceQuotas,
        now: Time,
    ) -> None:
        self._state = state
        self._queues = queues
        self._quotas = quotas
        self._now = now
        self._wanted: dict[TrialId, int] = {}
        self._jobs: dict[TrialId, ElasticJob] = {}
        self._crowd = 0

    def plan(
        self,
        ranked: Sequence[Trial],
        occupants: Collection[TrialId],
        waiting: Sequence[Trial],
        free: Collection[DeviceId],
    ) -> None:
        """Decide how many devices each trial is to have.

        Args:
            ranked: trials of elastic width that run or wait, the most deserving first.
            occupants: those whose quantum is over.
            waiting: all trials, of any study, that wait for a device of the pool.
            free: the devices that these can have.
        """
        state = self._state
        needed = sum(state.fewest(trial) for trial in waiting)
        self._crowd = len(waiting) if needed > len(free) else 0
        jobs = [
            job
            for trial in ranked
            if trial.run is None or trial.phase is Phase.RUNNING
            if (job := self._job(trial, trial.id in occupants, free)) is not None
        ]
        self._jobs = {job.trial: job for job in jobs}
        theirs = [state.trials[job.trial] for job in jobs]
        devices = len(free) + sum(len(trial.run.devices) for trial in theirs if trial.run)
        devices -= sum(state.fewest(each) for each in waiting if each.id not in self._jobs)
        devices -= sum(
            max(trial.aim - len(trial.run.devices), 0)
            for trial in ranked
            if trial.run is not None and trial.phase is Phase.SUSPENDING
        )
        self._divide(jobs, devices)
        for trial in ranked:
            if trial.run is None or trial.id in occupants:
                choice = self._queues.choice(trial, self._now)
                if choice is not None and choice.width:
                    self._wanted[trial.id] = choice.width

    def _divide(self, jobs: Sequence[ElasticJob], devices: int) -> None:
        """Among the studies in the order of their first trials: each has what those before it
        leave, and its policy, or the rule for all, divides that."""
        trials = self._state.trials
        studies = dict.fromkeys(trials[job.trial].spec.study for job in jobs)
        spare = devices - sum(job.min for job in jobs)
        for study in studies:
            theirs = [job for job in jobs if trials[job.trial].spec.study == study]
            least = sum(job.min for job in theirs)
            given = self._queues.widths(study, theirs, least + max(spare, 0))
            if given is None:
                given = spare_to_first(theirs, least + max(spare, 0))
            self._wanted.update(given)
            spare -= sum(given.get(job.trial, job.min) for job in theirs) - least

    def _job(self, trial: Trial, is_open: bool, free: Collection[DeviceId]) -> ElasticJob | None:
        """What may be decided about a trial; None if its width cannot change now."""
        state, study = self._state, self._state.studies[trial.spec.study]
        gains = state.facts[study.id].gains
        speed = speed_of(trial, gains, study.devices)
        is_image = trial.checkpoint is not None and trial.checkpoint.image_of
        if speed is None or is_image or not trial.fidelity.restorable:
            return None
        # One has as many as its memory needs, which differs by kind: no more for speed.
        if not is_of_any_width(trial) or trial.has_outgrown:
            return None
        least = state.fewest(trial)
        most = min(study.widest, 2 * tried_up_to(trial, gains, study.devices))
        if trial.run is None:
            most = min(most, self._room(trial, free))
            if state.made_for(trial):
                most = least
            least = least if self._crowd else max(least, min(trial.aim, most))
        else:
            has = len(trial.run.devices)
            if is_open:
                most = min(most, self._room(trial, free))
            # By the rule for all, nobody gives a device back but to those that have none.
            least = least if self._queues.widens(study.id) or (self._crowd and is_open) else has
        steps = float(remaining_steps(trial, study))
        return ElasticJob(trial.id, steps, speed, least, max(least, most))

    def _room(self, trial: Trial, free: Collection[DeviceId]) -> int:
        """The most devices of one node and kind that the trial could have now."""
        slots, run = self._state.slots, trial.run
        groups: Counter[tuple[NodeId, str]] = Counter()
        mine = run.devices if run is not None else ()
        for name in (*mine, *free):
            device = slots[name].device
            groups[device.node, device.kind] += name in mine or self._queues.fits(trial, name)
        quota = len(mine) + self._quotas.left(trial)
        return int(min(max(groups.values(), default=0), quota))

    def width(self, trial: Trial, free: Collection[DeviceId]) -> int:
        """How many of the free devices a waiting trial takes."""
        least, study = self._state.fewest(trial), self._state.studies[trial.spec.study]
        saved = trial.checkpoint
        if saved and saved.id == trial.freed and not trial.has_outgrown:
            # As it was made on so many, it can be used on so many, though they are not awaited.
            made_on = study.as_own(saved).devices
            return made_on if least < made_on <= self._room(trial, free) else least
        wanted = min(self._wanted.get(trial.id, least), study.widest)
        if not is_of_any_width(trial) or trial.has_outgrown:
            return least
        if wanted <= least or self._crowd or self._state.made_for(trial):
            return least
        return narrowed(trial, least, max(least, min(wanted, self._room(trial, free))))

    def of(self, trial: Trial, free: Collection[DeviceId]) -> Resize | None:
        """The new width of a running trial whose quantum is over; None if it keeps its own."""
        job, run = self._jobs.get(trial.id), trial.run
        if job is None or run is None:
            return None
        study, has = self._state.studies[trial.spec.study], len(run.devices)
        most = min(study.widest, max(has, self._room(trial, free)))
        wanted = max(study.devices, min(self._wanted.get(trial.id, has), most))
        width = narrowed(trial, study.devices, wanted)
        if width == has or (width > has and self._crowd):
            return None
        words = f"it continues on {_devices(width)} instead of {has}"
        if width < has and self._crowd:
            return Resize(width, f"{words}: {self._crowd} waiting")
        if width < has:
            words, saved = f"{words}, which others use better", self._saved(study.id)
        else:
            times = job.speed(width) / job.speed(has)
            words = f"{words}, which nobody waits for: {times:.2g} times as fast"
            saved = _seconds(job, has) - _seconds(job, width)
        cost = resize_seconds(trial, self._state.facts[study.id])
        if not saved > WORTH * cost:
            return None
        return Resize(width, f"{words}, to save {saved:.3g} s for {cost:.2g} s")

    def _saved(self, study: StudyId) -> float:
        """How many seconds earlier, in sum, the trials of a study end by all that is planned."""
        saved = 0.0
        for job in self._jobs.values():
            trial = self._state.trials[job.trial]
            if trial.spec.study == study and trial.run is not None:
                has = len(trial.run.devices)
                saved += _seconds(job, has) - _seconds(job, self._wanted.get(job.trial, has))
        return saved


def _seconds(job: ElasticJob, width: int) -> float:
    """The time until its end at this width."""
    speed = job.speed(width)
    return job.remaining_steps / speed if speed > 0 else math.inf


def _devices(count: int) -> str:
    return f"{count} device{'s' * (count > 1)}"
