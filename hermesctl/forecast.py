"""When a study that is not submitted yet can be expected to have something.

Rule: it fails soft. Without an earlier study that is alike, or if the simulator has no answer in
time, the words say so, and the preview is shown without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from hermesctl.async_client import AsyncClient
from hermesctl.errors import HermesError
from hermesctl.records import Study, TrialState
from hermesctl.simulation import progress, simulated
from hermesctl.study_writer import study_data, value_data
from hermesctl.tables import cell, grid
from hermesctl.text import count, duration, one_line, printable
from hermesctl.yaml_text import Data
from hermesd.pb.hermes.v1.types_pb2 import StudySpec

PATIENCE_SECONDS = 20.0
# As few curves as these say nothing of a leaderboard.
FEWEST_TRIALS = 3
# How alike parameter names must be where the program is another one. Of a program of the same
# file name one must be the same: it may be another one all the same.
ALIKE = 0.5
# Draws of the earlier study's trials: ten, or fewer where a study has many trials.
MOST_DRAWS, MOST_TRIALS = 10, 160
NONE_EARLIER = (
    "no forecast: this head has no earlier study with such parameters of which"
    f" {FEWEST_TRIALS} trials were trained"
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected, or why nothing is; `likeness` is the earlier study's. So many devices are
    `attached` and could take it, and so many other studies, which share them, are `busy`."""

    expected: Mapping[str, Any] | None
    likeness: str = ""
    attached: int = 0
    busy: int = 0
    reason: str = ""


async def forecast(client: AsyncClient, spec: StudySpec, policy: str, trials: int) -> Forecast:
    """What the curves of earlier studies say of a study of so many trials."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            with progress("looking at earlier studies"):
                return await _forecast(client, spec, policy, trials)
    except TimeoutError:
        return Forecast(None, reason=f"no forecast: it takes over {PATIENCE_SECONDS:.0f} s")
    except HermesError as error:
        return Forecast(None, reason=f"no forecast: {one_line(str(error))}")


async def _forecast(client: AsyncClient, spec: StudySpec, policy: str, trials: int) -> Forecast:
    studies = [study async for study in client.studies()]
    found = nearest(studies, study_data(spec))
    if found is None:
        return Forecast(None, reason=NONE_EARLIER)
    study, likeness = found
    kind = spec.resources.device_kind
    devices = sum(
        device.healthy and kind in ("", device.kind)
        for node in await client.nodes()
        if node.connected and not node.draining
        for device in node.devices
    )
    draws = max(1, min(MOST_DRAWS, MOST_TRIALS // max(1, trials)))
    label = label_of(policy, spec)
    flags: dict[str, object] = {
        "trials": trials,
        "devices": max(1, devices),
        "draws": draws,
        "policy": label,
    }
    if policy != "fifo":
        flags["policy"] = f"{label},fifo"
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    expected = await simulated(study.id, client.export(study), "forecast", *words)
    busy = sum(not other.finished for other in studies)
    return Forecast(expected, likeness, devices, busy)


def nearest(studies: Sequence[Study], spec: Mapping[str, Any]) -> tuple[Study, str] | None:
    """The study most like this spec, and what both have in common; None if none is like it.

    The same program counts most, then how many names of parameters are the same, then how many
    trials were trained, then what is newer.
    """
    best: tuple[tuple[bool, float, int, float], Study] | None = None
    for study in studies:
        trained = study.counts.get(TrialState.COMPLETED, 0)
        same, shared = program(study.spec) == program(spec), overlap(study.spec, spec)
        if trained < FEWEST_TRIALS or not (shared >= ALIKE or (same and shared > 0)):
            continue
        rank = (same, shared, trained, study.submitted_unix_seconds)
        if best is None or rank > best[0]:
            best = rank, study
    if best is None:
        return None
    (same, shared, _, _), study = best
    named = {1.0: "the same parameters"}.get(
        shared, f"{100 * shared:.0f} % of the parameters' names"
    )
    return study, f"{'the same program' if same else 'another program'}, {named}"


def program(spec: Mapping[str, Any]) -> str:
    """What tells a study's program from others: the file's name, or the command."""
    if named := spec.get("program"):
        return Path(str(named)).name
    return " ".join(map(str, spec.get("command") or ()))


def overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The share of all names of parameters that both have."""
    mine, theirs = set(one.get("parameters") or ()), set(other.get("parameters") or ())
    return len(mine & theirs) / len(mine | theirs) if mine | theirs else 1.0


def label_of(policy: str, spec: StudySpec) -> str:
    """A policy with the settings that the study gives it and its placement, as the simulator reads
    them."""
    schedule = spec.schedule
    settings = [
        f"{setting.name}={_setting(value_data(setting.value))}"
        for setting in (*schedule.policy.settings, *schedule.placement.settings)
    ]
    if schedule.placement.name:
        settings.append(f"placement={schedule.placement.name}")
    return ":".join([policy, ",".join(settings)]) if settings else policy


def _setting(value: Data) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ":".join(map(_setting, value)) + ":" if isinstance(value, list) else str(value)


def forecast_view(forecast: Forecast) -> RenderableType:
    """The forecast for people, or why there is none."""
    expected = forecast.expected
    if expected is None:
        return cell(forecast.reason, "dim")
    devices = count(expected["devices"], "device")
    if not forecast.attached:
        devices += " (none is attached now)"
    earlier = f"{expected['study']} ({count(expected['trained'], 'trial')}, {forecast.likeness})"
    table = grid("expected", ">first good trial", ">best within 2 %", ">best trained", ">all done")
    for policy in expected["policies"]:
        spans = [policy[key] for key in ("first_good", "near_best", "best", "all_done")]
        table.add_row(cell(printable(policy["policy"])), *(cell(_span(span)) for span in spans))
    lines: list[RenderableType] = [cell(f"on {devices}, going by {earlier}:"), table]
    if forecast.busy:
        unfinished = count(forecast.busy, "unfinished study")
        lines.append(cell(f"later, as {unfinished} will share the devices", "yellow"))
    return Group(*lines)


def _span(span: Mapping[str, float]) -> str:
    """The usual time, and the least and the most where they are others."""
    usual, least, most = (duration(span[key]) for key in ("median", "least", "most"))
    return usual if least == most else f"{usual} ({least} … {most})"
