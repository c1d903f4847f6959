"""`hermesctl local`: your own head and node on this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated

import typer

from hermesctl.commands.options import OutputOption, YesOption
from hermesctl.commands.running import confirm, show_change
from hermesctl.errors import ExitCode, HermesError
from hermesctl.invocation import command
from hermesctl.render.output import Format, emit
from hermesctl.render.tables import facts_table
from hermesctl.sdk import local
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import Trial
from hermesctl.terminal import say, stdout
from hermesctl.text import printable
from hermesctl.yaml_text import Data

app = typer.Typer(
    no_args_is_help=True, help="Start and stop your own head and node on this machine."
)
# Those of which a checkpoint brings nothing back; empty while nothing is known of a trial.
_ENDS_WITH_ITS_PROCESSES = ("", "park-only")
_NAMED = 3


@app.command()
def start(
    slots: Annotated[
        str | None,
        typer.Option(
            metavar="SLOTS",
            help="CPU slots: 4, or shares of a core: 70%,30%. Default: one for each core, but"
            " none if there are GPUs.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Start your head and node in the background, unless they are running.

    They keep running when this terminal closes. Set HERMES_STATE to keep their data in another
    directory.

    Example: hermesctl local start --slots 4
    """
    process = asyncio.run(local.start(os.environ, slots=slots, say=say))
    found = asyncio.run(local.find(os.environ))
    if process is not None:
        words = f"it runs; {command('local stop')} ends it"
    elif slots is None:
        words = "it runs already"
    else:
        has, again = local.slots_told(found.state), command(f"local start --slots {slots}")
        words = (
            f"it runs already, with {has}; to change that: {command('local stop')}, then {again}"
        )
    show_change(output, words, {**_document(found), "started": process is not None})


@app.command()
def stop(yes: YesOption = False, output: OutputOption = Format.TABLE) -> None:
    """Stop your head and node; trials are checkpointed and go on after the next start.

    Asks first if trials that cannot write a checkpoint would have to start over.

    Example: hermesctl local stop
    """
    if lost := asyncio.run(_lost()):
        say(_told(lost))
        confirm("Stop your head and node?", yes=yes)
    stopped = asyncio.run(local.stop(os.environ, say=say))
    document = {**_document(asyncio.run(local.find(os.environ))), "stopped": stopped}
    show_change(output, "stopped" if stopped else "it does not run", document)


async def _lost() -> list[Trial]:
    """The trials whose steps would be lost; none of a head that can't tell."""
    found = await local.find(os.environ)
    if found.pid is None or not found.answers:
        return []
    try:
        async with AsyncClient(f"unix:{found.socket}", patience_seconds=0.0) as client:
            return [
                trial
                async for study in client.studies()
                if not study.finished
                async for trial in client.trials(study)
                if not trial.state.final
                and trial.fidelity in _ENDS_WITH_ITS_PROCESSES
                and trial.step > (trial.checkpoint.step if trial.checkpoint else 0)
            ]
    except HermesError:
        return []


def _told(lost: Sequence[Trial]) -> str:
    named = ", ".join(f"{printable(each.id)} ({each.step} steps)" for each in lost[:_NAMED])
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    why = printable(lost[0].fidelity_reason) or "it is not known yet how it resumes"
    starts = "they start" if len(lost) > 1 else "it starts"
    return f"no checkpoint can be taken of {named}{more}: after a stop {starts} over ({why})"


@app.command()
def status(output: OutputOption = Format.TABLE) -> None:
    """Show whether your head is running, and where everything is. Exit code 5: it is not.

    Example: hermesctl local status -o json
    """
    found = asyncio.run(local.find(os.environ))
    document = _document(found)
    if found.answers:
        words = "runs"
    elif found.pid is not None:
        words = "a process is there but does not answer"
    else:
        words = f"does not run; {command('local start')}"
    facts = [
        ("local head", words),
        ("process", str(found.pid or "-")),
        *((name, str(document[name])) for name in ("socket", "state", "log")),
    ]
    emit(stdout(), output, document, [document], lambda _: facts_table(facts))
    if not found.answers:
        raise typer.Exit(ExitCode.UNREACHABLE)


def _document(found: local.LocalHead) -> dict[str, Data]:
    return {
        "answers": found.answers,
        "pid": found.pid,
        "socket": str(found.socket),
        "state": str(found.state),
        "log": str(found.state / "local.log"),
    }
