"""The first seconds of one trial, as `preview --try` and `submit --try` run them.

It is a study of one trial, on the devices and with the environment that the whole study would have.
It is deleted afterward, however it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from hermesctl.errors import HermesError
from hermesctl.invocation import command
from hermesctl.render.tables import cell, grid, value_text
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import Study, TrialDetail, TrialState
from hermesctl.study_file.submission import Prepared
from hermesctl.terminal import asked_to_end, say
from hermesctl.text import count, nearest, one_line, printable
from hermesctl.waiting import progress
from hermesctl.yaml_text import Data
from hermesd.pb.hermes.v1.types_pb2 import StudySpec

TRIED_SECONDS = 30.0
_OWN = "hermes/"  # what Hermes measures itself
_OUTPUT_LINES = 8
_FIRST_OF_ALL = 100  # among the user's own studies


class Tried:
    """What came of it."""

    def __init__(self, study: Study, detail: TrialDetail) -> None:
        self.trial = detail.trial
        self.metrics = [each for each in self.trial.metrics if not each.name.startswith(_OWN)]
        self._study = study
        self._output = detail.output_tail

    @property
    def has_failed(self) -> bool:
        """Whether the program failed."""
        return self.trial.state is TrialState.FAILED

    @property
    def doubt(self) -> str:
        """What speaks against starting all trials though this one went well; else empty."""
        names = [each.name for each in self.metrics]
        wanted = self._study.metric
        if self.has_failed or wanted in names:
            return ""
        whole = self.trial.state is TrialState.COMPLETED
        by = "whole first trial" if whole else f"first {self.trial.busy_seconds:.0f} s of a trial"
        near = nearest(wanted, names)
        meant = f" (did you mean {printable(near)}?)" if near else ""
        return f"metric {printable(wanted)} was not reported by the {by}{meant}"

    def view(self) -> RenderableType:
        """The metrics, and what they are for; the end of the output of a program that failed."""
        trial = self.trial
        if self.has_failed:
            lines = self._output.rstrip().splitlines()[-_OUTPUT_LINES:]
            output = [cell(f"  {printable(line)}") for line in lines]
            why = one_line(trial.reason)
            return Group(Text(f"the first trial failed: {why}", style="red"), *output)
        table = grid("metric", ">last", "")
        roles = {self._study.metric: "ranks the trials"}
        for each in self.metrics:
            last = value_text(each.last) if each.last is not None else ""
            table.add_row(cell(each.name), cell(last), cell(roles.get(each.name, ""), "dim"))
        planned = f" of {trial.planned_steps}" if trial.planned_steps else ""
        did = f"did {count(trial.step, 'step')}{planned} in {trial.busy_seconds:.1f} s"
        said = f"the first trial {did} and reported"
        if not self.metrics:
            return Text(f"{said} no metric", style="yellow")
        if len(self.metrics) > 1:
            return Group(Text(f"{said}:"), table)
        hint = "further ones: print them as val_acc=0.93, or call trainer_shim.log(val_acc=0.93)"
        return Group(Text(f"{said}:"), table, Text(hint, style="dim"))

    def document(self) -> dict[str, Data]:
        """The same for programs."""
        return {
            "state": str(self.trial.state),
            "steps": self.trial.step,
            "planned_steps": self.trial.planned_steps,
            "seconds": self.trial.busy_seconds,
            "metrics": {each.name: each.last for each in self.metrics},
            "reason": self.trial.reason,
            "doubt": self.doubt,
        }


async def try_out(
    client: AsyncClient, prepared: Prepared, environment: Mapping[str, str] | None = None
) -> Tried:
    """Run the first trial of a study for some seconds, from its first step on.

    Whoever is asked to end meanwhile is cancelled, as by Ctrl-C, and forgets it first.
    """
    task = asyncio.current_task()
    assert task is not None

    def leave() -> None:
        # A terminal that closes tells so more than once, and what was begun is to be forgotten.
        if not task.cancelling():
            task.cancel()

    alone = replace(prepared, spec=_of_one_trial(prepared.spec))
    with asked_to_end(leave):
        submission = await client.submit(alone, again=True, environment=environment)
        study = submission.study
        try:
            say(f"trying the first trial for {TRIED_SECONDS:.0f} s, as {printable(study)}")
            with progress("waiting until it was tried"):
                detail = await client.wait(submission)
            return Tried(detail.study, await client.trial(f"{study}/1"))
        finally:
            await _forget(client, study)


def _of_one_trial(spec: StudySpec) -> StudySpec:
    one = StudySpec()
    one.CopyFrom(spec)
    name = spec.name or spec.program.rpartition("/")[2].removesuffix(".py")
    one.name, one.run_cap, one.priority = f"{name}-try", 1, _FIRST_OF_ALL
    one.stop.max_seconds = TRIED_SECONDS
    one.retry.max_failures = 1
    one.suspend.replicas = 0
    return one


async def _forget(client: AsyncClient, study: str) -> None:
    try:
        await client.stop(study)
        await client.wait(study)
        await client.remove(study)
    except HermesError as error:
        say(f"{printable(study)} is still there: {error}; {command(f'study rm {study}')}")
