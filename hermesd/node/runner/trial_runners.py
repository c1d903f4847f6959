"""Who looks after which trial of this node.

Rule: a trial has one trainer at most, made when it is first needed and let go when it rests.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from hermesd.core.model import Time, TrialId
from hermesd.core.node.actions import (
    Action,
    DeleteCheckpoints,
    DeleteTrialFiles,
    DiscardRebuilt,
    ExtendLeases,
    FetchCheckpoint,
    Rebuild,
    ResumeRun,
    Spawn,
    TellHead,
    WatchRequirements,
)
from hermesd.core.node.messages import Assignment, Failed
from hermesd.node.retry import until_done
from hermesd.node.runner.cleanup import BURIAL_SECONDS, end_strays
from hermesd.node.runner.context import NodeContext
from hermesd.node.runner.trial_runner import Settle, TrialRunner
from hermesd.node.storage.trial_folder import (
    BadTrial,
    TrialFolder,
    UnreadableFolder,
)

# A disk that cannot be read for longer holds up the node's other trials.
READING_SECONDS = 10.0
DISMISSAL_SECONDS = 3 * BURIAL_SECONDS

log = structlog.get_logger()


class TrialRunners:
    """The runners of a node's trials."""

    def __init__(self, site: NodeContext) -> None:
        self._site = site
        self._folders = site.disk.folders
        self._trainers: dict[TrialId, TrialRunner] = {}

    @property
    def empty(self) -> bool:
        """Whether no trial is looked after."""
        return not self._trainers

    @property
    def cgroups(self) -> set[str]:
        """The names of the groups of the trials that are looked after."""
        return {self._folders.of(trial).cgroup for trial in self._trainers}

    def carry_out(self, action: Action) -> None:
        """Pass an action of the machine on to the runner of its trial."""
        match action:
            case TellHead() | FetchCheckpoint() | DeleteCheckpoints() | WatchRequirements():
                pass
            case ExtendLeases(expires):
                self._extend(expires)
            case Spawn(assignment) | ResumeRun(assignment):
                try:
                    self._trainer(assignment.run.trial).order(action)
                except BadTrial as error:
                    self._site.driver.say(Failed(assignment.run, "not_started", str(error)))
            case DiscardRebuilt(trial):
                self.settle(trial)
            case Rebuild(assignment):
                self._trainer(assignment.run.trial).order(action)
            case DeleteTrialFiles(trial):
                with contextlib.suppress(BadTrial):  # such a trial never had anything here
                    self._trainer(trial).order(action)
            case _:
                self._trainer(action.run.trial).order(action)

    def _extend(self, expires: Time) -> None:
        for trainer in self._trainers.values():
            trainer.extend(expires)

    def acknowledged(self, sequence: int) -> None:
        """The head has everything up to this number safe."""
        for trainer in self._trainers.values():
            trainer.acknowledged(sequence)

    def settle(self, trial: TrialId) -> None:
        """The head has the outcome of the trial's newest run safe."""
        if trial in self._trainers:
            self._trainers[trial].order(Settle())

    async def adopt(self) -> None:
        """Take over every run that the head may not know the end of, all at once: a host that does
        not answer is waited for no longer than it alone would be. What was rebuilt for a run that
        nobody asked for yet ends: it is worth its checkpoint."""
        async with asyncio.TaskGroup() as tasks:
            for folder in self._folders.rebuilt():
                tasks.create_task(self._trainer(folder.trial).abandon())
        async with asyncio.TaskGroup() as tasks:
            for folder in self._folders.journalled():
                tasks.create_task(self._adopt(folder))
        await until_done(self._end_strays, "leftovers of other trials are not ended")

    async def _end_strays(self) -> None:
        """End what no run is known of: what a daemon before this one could not end, say."""
        node, known = self._site.shim.parent, set(self._trainers)
        if pids := await asyncio.to_thread(end_strays, self._folders.trials, node, known):
            log.warning("ended what was left of trials that are over", pids=sorted(pids))

    async def _adopt(self, folder: TrialFolder) -> None:
        trainer = self._trainer(folder.trial)

        async def read() -> Assignment | None:
            return await asyncio.to_thread(folder.journalled)

        try:
            assignment = await until_done(
                read, "a run cannot be read", seconds=READING_SECONDS, trial=folder.trial
            )
        except (UnreadableFolder, OSError) as error:
            log.error("a run is lost", reason=str(error))
            await trainer.abandon()
            return
        if assignment is not None:
            log.info("found", run=str(assignment.run))
            await trainer.adopt(assignment)

    async def dismiss(self) -> None:
        """Have every host end itself and what it has, as far as that is possible soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISMISSAL_SECONDS), asyncio.TaskGroup() as tasks:
                for trainer in self._trainers.values():
                    tasks.create_task(trainer.dismiss())

    def _trainer(self, trial: TrialId) -> TrialRunner:
        """Who looks after the trial. Raises BadTrial."""
        trainer = self._trainers.get(trial)
        if trainer is None:
            trainer = TrialRunner(self._site, self._folders.of(trial))
            self._trainers[trial] = trainer
            self._site.tasks.create_task(self._look_after(trial, trainer))
        return trainer

    async def _look_after(self, trial: TrialId, trainer: TrialRunner) -> None:
        await trainer.run()
        del self._trainers[trial]
        self._site.driver.changed()
