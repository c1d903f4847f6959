"""When a study that has not been submitted yet can be expected to have results.

If there is no similar earlier study, or the simulator does not answer in time, the forecast says
so, and the preview is shown without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any, Protocol

from hermesctl.errors import HermesError
from hermesctl.sdk.likeness import Wanted, nearest
from hermesctl.sdk.local import HERMESD
from hermesctl.sdk.records import DEFAULT_POOL, Study, Submission
from hermesctl.sdk.simulation import simulated
from hermesctl.study_file.submission import Prepared, program_sha256
from hermesctl.study_file.write import plugin_label, study_data
from hermesctl.text import count, one_line, printable
from hermesctl.waiting import progress
from hermesd import children
from hermesd.pb.hermes.v1.types_pb2 import Plugin

# Whether a policy that a package of this environment brings keeps what every policy promises.
#
# Nothing of a policy is imported here; `hermesd policy check` tries it out in its own
# process. What this environment lacks, the head alone can know.

GROUP = "hermes.policies"
COMMAND = (*HERMESD, "policy", "check")
PATIENCE_SECONDS = 20.0


async def distrust(policy: str) -> list[str]:
    """What to say of a policy of a package, as `plugin_label` writes it, that fails its check;
    nothing of any other."""
    name = policy.partition(":")[0]
    if not entry_points(group=GROUP, name=name):
        return []
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        policy,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            with progress(f"trying out the policy {printable(name)}"):
                said = (await process.communicate())[1]
    except TimeoutError:
        found = [f"no answer within {PATIENCE_SECONDS:.0f} s"]
    else:
        lines = said.decode("utf-8", "replace").splitlines()
        found = [line.removeprefix("hermesd: ") for line in lines]
        if not process.returncode:
            return []
    finally:
        await children.end(process)
    first = printable(found[0].removeprefix(f"{policy}: ")) if found else "it failed"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return [
        f"policy {printable(name)} fails its check: {first}{more}; where it fails, fifo decides"
        " instead:"
        f" `hermesd policy check {printable(policy)}` shows everything"
    ]


# Draws of the earlier study's trials: ten, or fewer where a study has many trials.
MOST_DRAWS, MOST_TRIALS = 10, 160
NAMED = 5


class EarlierStudies(Protocol):
    """The head's studies: what a forecast asks an `AsyncClient` for."""

    def studies(self) -> AsyncGenerator[Study, None]:
        """All that may be seen, in the head's order."""

    def export(self, study: Study) -> AsyncGenerator[bytes, None]:
        """One of them as JSON Lines: itself, its trials, its journal and its points."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a study would be: as a submission that was not stored, the policy that it would be run
    by, and when it can be expected to have something."""

    submission: Submission
    policy: str
    forecast: Forecast


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of a study, or why nothing is."""

    expected: Mapping[str, Any] | None
    #: Of the earlier study whose curves are used.
    likeness: str = ""
    #: So many devices that could take its trials are attached.
    attached: int = 0
    #: So many other studies share them.
    busy: int = 0
    #: Why nothing is expected; else empty.
    reason: str = ""


async def forecast(
    client: EarlierStudies, prepared: Prepared, policy: str, checked: Submission
) -> Forecast:
    """What the curves of earlier studies say of a study that was checked, run by a policy with its
    settings as `plugin_label` writes them."""
    if checked.misfits:
        why = "; ".join(checked.misfits[:NAMED])
        more = len(checked.misfits) - NAMED
        why += f"; and {count(more, 'node')} more" if more > 0 else ""
        return Forecast(None, reason=f"no forecast: no node can take its trials: {why}")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            with progress("looking at earlier studies"):
                return await _forecast(client, prepared, policy, checked)
    except TimeoutError:
        return Forecast(None, reason=f"no forecast: it takes more than {PATIENCE_SECONDS:.0f} s")
    except HermesError as error:
        return Forecast(None, reason=f"no forecast: {one_line(str(error))}")


async def _forecast(
    client: EarlierStudies, prepared: Prepared, policy: str, checked: Submission
) -> Forecast:
    spec = prepared.spec
    studies = [study async for study in client.studies()]
    wanted = Wanted(study_data(spec), str(prepared.directory), program_sha256(prepared))
    found = nearest(studies, wanted)
    if (study := found.study) is None:
        return Forecast(None, reason=found.words)
    trials, devices = len(checked.trials), checked.fitting_devices
    draws = max(1, min(MOST_DRAWS, MOST_TRIALS // max(1, trials)))
    flags: dict[str, object] = {
        "trials": trials,
        "devices": max(1, devices),
        "draws": draws,
        "policy": policy if policy.partition(":")[0] == "fifo" else f"{policy},fifo",
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    expected = await simulated(study.id, client.export(study), "forecast", *words)
    pool = spec.pool or DEFAULT_POOL
    busy = sum(not other.finished and other.pool == pool for other in studies)
    return Forecast(expected, found.words, devices, busy)


async def with_doubts(prepared: Prepared, submission: Submission) -> Submission:
    """With a note if a new study's policy fails its check."""
    if submission.identical_to:
        return submission
    doubts = await distrust(policy_of(prepared, submission))
    return replace(submission, notes=(*submission.notes, *doubts))


def policy_of(prepared: Prepared, submission: Submission) -> str:
    """Its policy with its settings, as the head said; one of an earlier version does not say."""
    if submission.policy:
        return submission.policy
    schedule = prepared.spec.schedule
    by_default = "asha" if prepared.spec.HasField("early_terminate") else "best_first"
    policy = schedule.policy if schedule.policy.name else Plugin(name=by_default)
    return plugin_label(policy, schedule.placement)
