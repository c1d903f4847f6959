"""`hermesctl doctor`: what is wrong here, and how to fix it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hermesctl.commands.frameworks import NoInterpreter, frameworks
from hermesctl.commands.options import HeadOption, OutputOption
from hermesctl.commands.running import run
from hermesctl.errors import ExitCode, HermesError, Refused, Unreachable, UsageError
from hermesctl.invocation import command
from hermesctl.render.node_views import more_machines, quarantined, waiting
from hermesctl.render.output import Format, emit, row
from hermesctl.render.tables import cell, grid, moment
from hermesctl.sdk.address import state_directory
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import Study
from hermesctl.sdk.versions import check_skew, client_version
from hermesctl.study_file.submission import interpreter
from hermesctl.terminal import stdout
from hermesctl.text import count, one_line, size
from hermesctl.waiting import progress
from hermesd.expecting import REMEDY

# What `doctor` looks at, from the client's side.
#
# Each check says what it found and how to fix it.

_FREE_BYTES_WANTED = 2 << 30


class DoctorVerdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at, what was found, and how to fix it."""

    name: str
    verdict: DoctorVerdict
    words: str
    remedy: str = ""


async def examine(client: AsyncClient, python: str, environment: Mapping[str, str]) -> list[Check]:
    """All checks, in the order in which to mend them."""
    checks = [_python(), _disk(environment)]
    checks += await _head(client)
    with progress("asking the trials' python what it has"):
        checks += await _frameworks(python)
    checks.append(_completion())
    return checks


def _python() -> Check:
    return Check("python", DoctorVerdict.OK, f"{platform.python_version()} ({sys.executable})")


def _disk(environment: Mapping[str, str]) -> Check:
    folder = state_directory(environment)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    words = f"{size(free)} free at {folder}"
    if free < _FREE_BYTES_WANTED:
        remedy = "free some, or set HERMES_STATE to a larger disk; checkpoints need room"
        return Check("disk", DoctorVerdict.FAILED, words, remedy)
    return Check("disk", DoctorVerdict.OK, words)


async def _head(client: AsyncClient) -> list[Check]:
    try:
        info = await client.server_info()
    except Unreachable as error:
        first, *rest = str(error).splitlines()
        return [
            Check("head", DoctorVerdict.FAILED, first, "; ".join(" ".join(r.split()) for r in rest))
        ]
    except HermesError as error:
        return [Check("head", DoctorVerdict.FAILED, str(error))]
    checks = [
        Check("head", DoctorVerdict.OK, f"version {info.version} at {client.connection.address}")
    ]
    try:
        check_skew(client_version(), info.version)
    except Refused as error:
        checks.append(Check("versions", DoctorVerdict.FAILED, str(error)))
    if info.read_only:
        remedy = "see the head's log; hermesd head --repair names what it would set aside"
        words = f"read-only: {info.read_only_reason}"
        checks.append(Check("journal", DoctorVerdict.FAILED, words, remedy))
    return checks + await _nodes(client)


async def _nodes(client: AsyncClient) -> list[Check]:
    try:
        nodes = await client.nodes()
    except HermesError as error:
        return [Check("nodes", DoctorVerdict.FAILED, str(error))]
    if not nodes:
        return [
            Check("nodes", DoctorVerdict.FAILED, "none", more_machines(client.connection.address))
        ]
    checks = []
    for node in nodes:
        name = f"node {node.id}"
        checks += [Check(name, DoctorVerdict.FAILED, one_line(words)) for words in node.warnings]
        if not node.connected:
            gone = command(f"node lost {node.id} --for-good")
            words = "lost: its trials go on elsewhere" if node.lost else "not connected"
            remedy = f"see its log; {gone} if it does not come back" if node.lost else "see its log"
            checks.append(Check(name, DoctorVerdict.FAILED, words, remedy))
            continue
        broken = [d for d in node.devices if not d.healthy]
        found = count(len(node.devices), "device")
        if node.draining:
            remedy = command(f"node undrain {node.id}")
            checks.append(Check(name, DoctorVerdict.NOTE, f"{found}, {node.state}", remedy))
        else:
            checks.append(Check(name, DoctorVerdict.OK, found))
        checks += [Check(name, DoctorVerdict.FAILED, f"{d.id}: {d.reason}") for d in broken]
        for place, kept in quarantined(node):
            until = moment(kept.until_unix_seconds)
            words = f"{place} is in quarantine until {until}: {one_line(kept.reason)}"
            checks.append(Check(name, DoctorVerdict.NOTE, words, command(f"node release {place}")))
        # A node says of itself what it can and can't do (cgroups, GPUs, zygote).
        for fact in node.facts:
            words, _, remedy = fact.partition(REMEDY)
            checks.append(Check(name, DoctorVerdict.NOTE, words, remedy))
    return checks + _studies([study async for study in client.studies()])


def _studies(studies: Sequence[Study]) -> list[Check]:
    """What keeps studies from running, and what the authors of those that go on, or of the newest,
    should know."""
    checks = []
    for study in studies:
        found = [words for words in (waiting(study),) if words]
        if not study.finished or study is studies[-1]:
            found += [one_line(words) for words in study.notices]
        check = f"hermesd policy check {study.policy}"
        for words in found:
            # What says itself how to fix it is taken at its word.
            remedy = check if f"`{check}`" in words else command(f"why {study.id}/1")
            checks.append(Check(f"study {study.id}", DoctorVerdict.NOTE, words, remedy))
    return checks


async def _frameworks(python: str) -> list[Check]:
    name = "trials' python"
    try:
        chosen = interpreter(python, Path.cwd(), here=True)
        found = await frameworks(chosen)
    except UsageError as error:
        return [Check(name, DoctorVerdict.FAILED, str(error))]
    except NoInterpreter as error:
        return [Check(name, DoctorVerdict.FAILED, f"{chosen}: {error}")]
    if not found:
        either = " or ".join(f"'{_wanted(extra)}'" for extra in ("tensorflow", "torch"))
        remedy = f"{chosen} -m pip install {either}, or name another with `python:`"
        words = f"{chosen}: no framework that Hermes can see into"
        return [Check(name, DoctorVerdict.NOTE, words, remedy)]
    listed = ", ".join(f"{each.package} {each.version}" for each in found)
    remedy = "without a tested version its trials can only be parked"
    doubts = [Check(name, DoctorVerdict.NOTE, each.doubt, remedy) for each in found if each.doubt]
    return [Check(name, DoctorVerdict.OK, f"{chosen} with {listed}"), *doubts]


def _wanted(extra: str) -> str:
    """What installs the framework that an extra of ours is named after, wherever we came from."""
    ours = importlib.metadata.requires("hermes-scheduler") or ()
    mark = re.compile(rf"extra\s*==\s*['\"]{extra}['\"]")
    found = (needed for needed in ours if mark.search(needed) and needed.startswith(extra))
    return next(found, extra).partition(";")[0].strip()


def _completion() -> Check:
    places = (
        "~/.bash_completions/hermesctl.sh",
        "~/.zfunc/_hermesctl",
        "~/.config/fish/completions/hermesctl.fish",
    )
    if any(Path(place).expanduser().exists() for place in places):
        return Check("completion", DoctorVerdict.OK, "installed")
    remedy = command("--install-completion")
    return Check("completion", DoctorVerdict.NOTE, "not installed for your shell", remedy)


_STYLES = {
    DoctorVerdict.OK: "green",
    DoctorVerdict.NOTE: "yellow",
    DoctorVerdict.FAILED: "bold red",
}


def doctor(
    python: Annotated[
        str,
        typer.Option(metavar="PYTHON", help="The interpreter that trials use. Default: yours."),
    ] = "",
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Check this machine, the head and its nodes. Exit code 4: something needs fixing.

    Example: hermesctl doctor --python .venv/bin/python
    """

    async def body(client: AsyncClient) -> ExitCode | None:
        checks = await examine(client, python, os.environ)
        table = grid("", "|check", "~found", "~how to fix it")
        for check in checks:
            mark = cell(check.verdict, _STYLES[check.verdict])
            table.add_row(mark, cell(check.name), cell(check.words), cell(check.remedy, "dim"))
        rows = [row(check) for check in checks]
        emit(stdout(), output, {"checks": rows}, rows, lambda _: table)
        failed = any(check.verdict is DoctorVerdict.FAILED for check in checks)
        return ExitCode.REFUSED if failed else None

    run(body, head=head)
