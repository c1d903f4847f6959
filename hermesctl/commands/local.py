"""`hermesctl local`: your own head and node on this machine."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from hermesctl.commands.options import OutputOption
from hermesctl.errors import ExitCode
from hermesctl.invocation import command
from hermesctl.render.output import Format, emit
from hermesctl.render.tables import facts_table
from hermesctl.sdk import local
from hermesctl.terminal import say, stdout

app = typer.Typer(
    no_args_is_help=True, help="Start and stop your own head and node on this machine."
)


@app.command()
def start(
    slots: Annotated[
        str | None,
        typer.Option(
            metavar="SLOTS",
            help="CPU slots: 4, or shares of a core: 70%,30%. Default: one for each core.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start your head and node in the background, unless they are running.

    They keep running when this terminal closes. Set HERMES_STATE to keep their data in another
    directory.

    Example: hermesctl local start --slots 4
    """
    process = asyncio.run(local.start(os.environ, slots=slots, say=say))
    if process is not None:
        say(f"it runs; {command('local stop')} ends it")
    elif slots is None:
        say("it runs already")
    else:
        has = local.slots_told(asyncio.run(local.find(os.environ)).state)
        again = command(f"local start --slots {slots}")
        say(f"it runs already, with {has}; to change that: {command('local stop')}, then {again}")


@app.command()
def stop() -> None:
    """Stop your head and node; trials are checkpointed and go on after the next start.

    Example: hermesctl local stop
    """
    stopped = asyncio.run(local.stop(os.environ, say=say))
    say("stopped" if stopped else "it does not run")


@app.command()
def status(output: OutputOption = Format.TABLE) -> None:
    """Show whether your head is running, and where everything is. Exit code 5: it is not.

    Example: hermesctl local status -o json
    """
    found = asyncio.run(local.find(os.environ))
    document = {
        "answers": found.answers,
        "pid": found.pid,
        "socket": str(found.socket),
        "state": str(found.state),
        "log": str(found.state / "local.log"),
    }
    if found.answers:
        words = "runs"
    elif found.pid is not None:
        words = "a process is there and does not answer"
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
