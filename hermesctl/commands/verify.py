"""`hermesctl verify-resume`: whether a suspended trial computes what it would undisturbed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.status import Status

from hermesctl.commands.options import FileArgument, OutputOption, SetOption
from hermesctl.commands.preview import prepare
from hermesctl.errors import ExitCode, HermesError, Problem, Refused, UsageError
from hermesctl.render.output import Format, emit
from hermesctl.render.tables import cell, grid, params_text
from hermesctl.study_file.snapshot import snapshot
from hermesctl.study_file.submission import Prepared, inherited_environment, interpreter
from hermesctl.terminal import say, stderr, stdout
from hermesctl.text import count, printable
from hermesctl.waiting import is_live
from hermesd import children
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1.types_pb2 import NamedValue, StudySpec, Value

# Running the engine of the resume certificate, and what it says.
#
# The engine is a process of its own, in a folder of its own; when we leave, however that
# is, it has ended, and with it all that it had started.

ENGINE = (sys.executable, "-m", "hermesd.verify")
_END_SECONDS = 20.0
_LOG_LINES_SHOWN = 15

Said = Mapping[str, Any]


async def certificate(prepared: Prepared, arguments: Sequence[str]) -> AsyncGenerator[Said, None]:
    """What the engine says of a study: its progress, then the certificate.

    Raises UsageError for what can't be meant, Refused when the program fails undisturbed.
    """
    with tempfile.TemporaryDirectory(prefix="hermes-verify-") as name:
        folder = Path(name)
        _write_request(folder, prepared)
        async with _engine(folder, arguments) as process:
            assert process.stdout is not None
            done = False
            async for line in process.stdout:
                said = json.loads(line)
                _raise_refusal(said, prepared)
                done = said["kind"] == "certificate"
                yield said
            if not done:
                raise HermesError(f"the verification ended without a result:\n{_log_end(folder)}")


def _write_request(folder: Path, prepared: Prepared) -> None:
    spec = StudySpec()
    spec.CopyFrom(prepared.spec)
    if spec.conda:
        words = (
            "its interpreter as `python` in its place: the check runs on this machine, not on a"
            " node"
        )
        raise UsageError(f"conda: {printable(spec.conda)}: expected {words}")
    spec.python = interpreter(spec.python, prepared.directory, here=True)
    environment = inherited_environment(spec, os.environ)
    request = pb.SubmitStudyRequest(
        spec=spec,
        submit_directory=str(prepared.directory),
        environment=[
            NamedValue(name=name, value=Value(string_value=text))
            for name, text in environment.items()
        ],
    )
    with snapshot(prepared.directory, tuple(spec.data)) as code:
        request.code_sha256 = code.sha256
        (folder / "code.tar").write_bytes(code.tar.read())
    (folder / "request.pb").write_bytes(request.SerializeToString())


@asynccontextmanager
async def _engine(
    folder: Path, arguments: Sequence[str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    with (folder / "engine.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *ENGINE,
            str(folder),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # It ends with its standard input. To send it a signal, Python would look whether it is
        # there, and take from its own watcher the process that has just ended.
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            await children.end(process)


def _raise_refusal(said: Said, prepared: Prepared) -> None:
    if said["kind"] == "failed":
        raise Refused(f"the program fails undisturbed: {said['reason']}")
    if said["kind"] == "refused":
        found = [
            Problem(
                error["expected"], _option(error["field_path"]), error["value"], error["nearest"]
            )
            for error in said["errors"]
        ]
        raise UsageError("expected a study", prepared.located(tuple(found)))


def _option(field_path: str) -> str:
    return {"trial": "--trial", "suspend_at": "--suspend-at", "tree": "--tree"}.get(
        field_path, field_path
    )


def _log_end(folder: Path) -> str:
    lines = (folder / "engine.log").read_text(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES_SHOWN:])


_STYLES = {"equal": "green", "not run": "yellow"}


def verify_resume(
    file: FileArgument,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Compare runs of 2 N steps. Default: as many as take a minute.",
            show_default=False,
        ),
    ] = None,
    suspend_at: Annotated[
        str | None,
        typer.Option(
            metavar="K,K,...",
            help="Suspend after these steps. Default: the first, the middle, the last but one, "
            "and the first of some epochs.",
            show_default=False,
        ),
    ] = None,
    trial: Annotated[int, typer.Option(min=1, help="Which trial of the study.")] = 1,
    tree: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Of a study with `share: tree`: compare each of its first N trials, as they go on "
            "from each other's checkpoints, with the same trial run alone.",
            show_default=False,
        ),
    ] = None,
    settings: SetOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Compare a trial that is suspended with one that is not, bit for bit, in each tier.

    Runs on this machine, without a head. Exit code 1: they differ, or the program isn't repeatable;
    4: it fails even when it is not suspended.

    Example: hermesctl verify-resume study.yaml --steps 20 --suspend-at 1,20,39
    """
    prepared = prepare(file, settings=settings)
    arguments = ["--trial", str(trial)]
    if steps is not None:
        arguments += ["--steps", str(steps)]
    if suspend_at is not None:
        arguments += ["--suspend-at", _steps(suspend_at)]
    if tree is not None:
        arguments += ["--tree", str(tree)]
    try:
        said = asyncio.run(_run(prepared, arguments))
    except KeyboardInterrupt:
        say("\ninterrupted; none of its processes is left")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if tree is not None:
        rows = [_branch(each) for each in said["trials"]]
        document = {"identical": said["equal"], "trials": rows}
        emit(stdout(), output, document, [_flat(each) for each in rows], lambda _: _tree(said))
        raise typer.Exit(0 if said["equal"] else 1)
    tiers = [_tier(tier) for tier in said["tiers"]]
    rest = {key: value for key, value in said.items() if key not in ("kind", "equal", "tiers")}
    document = {"identical": said["equal"], **rest, "tiers": tiers}
    rows = [_flat(tier) for tier in tiers]
    emit(stdout(), output, document, rows, lambda _: _picture(said, file))
    if said["equal"] is False or not any(tier["verdict"] == "equal" for tier in tiers):
        raise typer.Exit(1)


def _steps(text: str) -> str:
    words = text.replace(" ", "").split(",")
    if not all(word.isdecimal() and int(word) for word in words):
        raise UsageError(f"--suspend-at {printable(text)}: expected steps, for example 1,10,19")
    return ",".join(words)


async def _run(prepared: Prepared, arguments: list[str]) -> Said:
    """The certificate, with the progress shown on the way."""
    console = stderr()
    status = Status("starting", console=console) if is_live(console) else None
    last: Said = {}
    before = ""
    if status is not None:
        status.start()
    try:
        async with aclosing(certificate(prepared, arguments)) as saying:
            async for last in saying:
                if last["kind"] != "progress":
                    continue
                if status is not None:
                    status.update(f"{last['run']}: step {last['step']} of {last['steps']}")
                elif last["run"] != before:
                    before = str(last["run"])
                    say(before)
    finally:
        if status is not None:
            status.stop()
    return last


def _picture(said: Said, file: Path) -> RenderableType:
    parameters = params_text(said["parameters"])
    heading = f"{printable(file.name)}, trial {said['trial']}" + (
        f": {parameters}" if parameters else ""
    )
    facts = f"{count(said['steps'], 'step')}; fidelity {said['fidelity']}: {said['reason']}"
    table = grid("tier", "verdict", "~suspended after", "~compared")
    lines: dict[str, RenderableType] = {}  # of what several tiers share, one is enough
    for tier in said["tiers"]:
        style = _STYLES.get(tier["verdict"], "bold red")
        steps = ", ".join(map(str, tier["suspended_at"]))
        verdict = cell(tier["verdict"], style)
        table.add_row(cell(tier["tier"]), verdict, cell(steps), cell(_compared(tier)))
        if tier["verdict"] == "differs":
            where = f"{tier['tier']} parts at {_where(tier['difference'])}"
            lines[where] = cell(where)
        if tier["why"]:
            why = f"why: {tier['why']}".splitlines()
            lines.setdefault(tier["why"], Group(*(cell(line, "dim") for line in why)))
    return Group(cell(heading, "bold"), cell(facts), "", table, *lines.values())


def _branch(found: Said) -> dict[str, Any]:
    """A trial of a tree in the words that scripts rely on."""
    branch, difference = found["branch"], found["difference"]
    rest = {key: value for key, value in found.items() if key not in ("branch", "difference")}
    begins = {"carrier": branch["carrier"] or None, "from_step": branch["step"]}
    return {"trial": branch["trial"], **begins, **rest, "first_difference": difference}


def _tree(said: Said) -> RenderableType:
    table = grid(">trial", "~goes on from", "verdict", "~compared with itself alone")
    lines: list[RenderableType] = []
    for each in said["trials"]:
        branch, style = each["branch"], _STYLES.get(each["verdict"], "bold red")
        begins = f"trial {branch['carrier']} at step {branch['step']}" if branch["step"] else ""
        compared = _compared(each) or each["why"].splitlines()[0]
        row = (begins, each["verdict"], compared)
        table.add_row(cell(str(branch["trial"])), cell(row[0]), cell(row[1], style), cell(row[2]))
        if each["difference"] is not None:
            where = _where(each["difference"]).replace("undisturbed", "alone")
            words = where.replace("suspended", "in the tree")
            lines += [cell(f"trial {branch['trial']} parts at {words}"), cell(each["why"], "dim")]
    return Group(table, *lines)


def _compared(tier: Said) -> str:
    if not tier["values"]:
        return ""
    state = f", {count(tier['files'], 'file')} of state" if tier["files"] else ", no state"
    return f"{count(tier['values'], 'value')}{state}"


def _where(found: Said) -> str:
    place = "the final state" if found["step"] is None else f"step {found['step']}"
    return f"{place}: {found['name']}: {found['before']} undisturbed, {found['after']} suspended"


def _tier(tier: Said) -> dict[str, Any]:
    """A tier in the words that scripts rely on."""
    renamed = ("suspended_at", "difference")
    return {
        "tier": tier["tier"],
        "boundaries": tier["suspended_at"],
        "differ": tier["verdict"] == "differs",
        "first_difference": tier["difference"],
        **{key: value for key, value in tier.items() if key not in renamed},
    }


def _flat(tier: Said) -> dict[str, Any]:
    found = tier["first_difference"] or {}
    names = ("step", "name", "before", "after")
    return {
        **{k: v for k, v in tier.items() if k != "first_difference"},
        **{n: found.get(n) for n in names},
    }
