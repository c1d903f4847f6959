"""Which runner is in charge of which trial of this node.

A trial has at most one runner, which is made when it is first needed and dropped when the trial
rests.
"""

from __future__ import annotations

import asyncio
import contextlib

from hermesd.core.events import RunFailed
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
from hermesd.core.node.messages import Assignment
from hermesd.logs import get_logger
from hermesd.node.machine import processes
from hermesd.node.runner.cleanup import BURIAL_SECONDS, end_strays
from hermesd.node.runner.context import NodeContext
from hermesd.node.runner.retry import until_done
from hermesd.node.runner.trial_runner import Settle, TrialRunner
from hermesd.node.storage.trial_folder import (
    BadTrial,
    TrialFolder,
    UnreadableFolder,
)

# A disk that cannot be read for longer holds up the node's other trials.
READING_SECONDS = 10.0
DISMISSAL_SECONDS = 3 * BURIAL_SECONDS

log = get_logger()


class TrialRunners:
    """The runners of a node's trials."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._folders = context.disk.folders
        self._runners: dict[TrialId, TrialRunner] = {}

    @property
    def empty(self) -> bool:
        """Whether no trial is looked after."""
        return not self._runners

    @property
    def cgroups(self) -> set[str]:
        """The names of the groups of the trials that are looked after."""
        return {self._folders.of(trial).cgroup for trial in self._runners}

    def pids(self) -> dict[TrialId, list[int]]:
        """The training processes of the trials that have some."""
        found = {trial: sorted(runner.worker_pids) for trial, runner in self._runners.items()}
        return {trial: pids for trial, pids in found.items() if pids}

    def carry_out(self, action: Action) -> None:
        """Pass an action of the machine on to the runner of its trial."""
        match action:
            case TellHead() | FetchCheckpoint() | DeleteCheckpoints() | WatchRequirements():
                pass
            case ExtendLeases(expires):
                self._extend(expires)
            case Spawn(assignment) | ResumeRun(assignment):
                try:
                    self._runner(assignment.run.trial).order(action)
                except BadTrial as error:
                    self._context.driver.say(RunFailed(assignment.run, "not_started", str(error)))
            case DiscardRebuilt(trial):
                self.settle(trial)
            case Rebuild(assignment):
                self._runner(assignment.run.trial).order(action)
            case DeleteTrialFiles(trial):
                with contextlib.suppress(BadTrial):  # such a trial never had anything here
                    self._runner(trial).order(action)
            case _:
                self._runner(action.run.trial).order(action)

    def _extend(self, expires: Time) -> None:
        for runner in self._runners.values():
            runner.extend(expires)

    def acknowledged(self, sequence: int) -> None:
        """The head has everything up to this number safe."""
        for runner in self._runners.values():
            runner.acknowledged(sequence)

    def settle(self, trial: TrialId) -> None:
        """The head has the outcome of the trial's newest run safe."""
        if trial in self._runners:
            self._runners[trial].order(Settle())

    async def adopt(self) -> None:
        """Take over every run that the head may not know the end of, all at once: a host that does
        not answer is waited for no longer than it alone would be. What was rebuilt for a run that
        nobody asked for yet ends: it is worth its checkpoint."""
        async with asyncio.TaskGroup() as tasks:
            for folder in self._folders.rebuilt():
                tasks.create_task(self._runner(folder.trial).abandon())
        async with asyncio.TaskGroup() as tasks:
            for folder in self._folders.journaled():
                tasks.create_task(self._adopt(folder))
        await until_done(self._end_strays, "leftovers of other trials are not ended")

    async def _end_strays(self) -> None:
        """End what no run is known of: what a daemon before this one could not end, say."""
        node, known = self._context.shim.parent, set(self._runners)
        if pids := await asyncio.to_thread(end_strays, self._folders.trials, node, known):
            log.warning("ended what was left of trials that are over", pids=sorted(pids))
            # The head may give their devices on as soon as it hears of this node.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BURIAL_SECONDS):
                    for pid in pids:
                        await processes.exited(pid)

    async def _adopt(self, folder: TrialFolder) -> None:
        runner = self._runner(folder.trial)

        async def read() -> Assignment | None:
            return await asyncio.to_thread(folder.journaled)

        try:
            assignment = await until_done(
                read, "a run cannot be read", seconds=READING_SECONDS, trial=folder.trial
            )
        except (UnreadableFolder, OSError) as error:
            log.error("a run is lost", reason=str(error))
            await runner.abandon()
            return
        if assignment is not None:
            log.info("found", run=str(assignment.run))
            await runner.adopt(assignment)

    async def dismiss(self) -> None:
        """Have every host end itself and what it has, as far as that is possible soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISMISSAL_SECONDS), asyncio.TaskGroup() as tasks:
                for runner in self._runners.values():
                    tasks.create_task(runner.dismiss())

    def _runner(self, trial: TrialId) -> TrialRunner:
        """Who looks after the trial. Raises BadTrial."""
        runner = self._runners.get(trial)
        if runner is None:
            runner = TrialRunner(self._context, self._folders.of(trial))
            self._runners[trial] = runner
            self._context.tasks.create_task(self._look_after(trial, runner))
        return runner

    async def _look_after(self, trial: TrialId, runner: TrialRunner) -> None:
        await runner.run()
        del self._runners[trial]
        self._context.driver.changed()
