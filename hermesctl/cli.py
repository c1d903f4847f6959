"""`hermesctl`: the command line, put together.

Results on stdout, the rest on stderr, exit codes as in errors.py.
"""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from hermesctl.commands import (
    authority,
    checkpoint,
    cluster,
    local,
    node,
    study,
    token,
    trial,
    trial_files,
    user,
)
from hermesctl.commands.audit import audit
from hermesctl.commands.completion import completion
from hermesctl.commands.convert import convert
from hermesctl.commands.doctor import doctor
from hermesctl.commands.options import HeadOption, OutputOption
from hermesctl.commands.preview import preview
from hermesctl.commands.running import HermesGroup, root_head, run
from hermesctl.commands.submit import submit
from hermesctl.commands.verify import verify_resume
from hermesctl.commands.watch import best, logs, status, tail, top, why
from hermesctl.errors import ExitCode, Unreachable
from hermesctl.render.output import Format, emit, row
from hermesctl.render.tables import facts_table
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.versions import client_version
from hermesctl.terminal import stdout
from hermesctl.yaml_text import Data

_DAILY, _NOUNS, _SETUP = "Every day", "By noun", "Setup"

app = typer.Typer(
    cls=HermesGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Share devices between the trials of a hyper-parameter search.

    Example: hermesctl submit train.py --grid learning_rate=1e-3,5e-4 --local --follow
    """,
    epilog="\n".join(["Exit codes:", *(f"{code:>5d}  {code.meaning}" for code in ExitCode)]),
)
for command in (submit, preview, status, top, tail, logs, best, why):
    app.command(rich_help_panel=_DAILY)(command)
app.add_typer(study.app, name="study", rich_help_panel=_NOUNS)
trial.app.add_typer(trial_files.app, name="files")
app.add_typer(trial.app, name="trial", rich_help_panel=_NOUNS)
app.add_typer(checkpoint.app, name="checkpoint", rich_help_panel=_NOUNS)
app.add_typer(node.app, name="node", rich_help_panel=_NOUNS)
app.add_typer(local.app, name="local", rich_help_panel=_SETUP)
app.add_typer(cluster.app, name="cluster", rich_help_panel=_SETUP)
app.add_typer(user.app, name="user", rich_help_panel=_SETUP)
app.add_typer(token.app, name="token", rich_help_panel=_SETUP)
app.add_typer(authority.app, name="authority", rich_help_panel=_SETUP)
app.command(rich_help_panel=_SETUP)(user.login)
app.command(rich_help_panel=_SETUP)(user.logout)
app.command(rich_help_panel=_SETUP)(user.context)
app.command(rich_help_panel=_SETUP)(audit)
app.command(rich_help_panel=_SETUP)(convert)
app.command(rich_help_panel=_SETUP)(doctor)
app.command("verify-resume", rich_help_panel=_SETUP)(verify_resume)
app.command(rich_help_panel=_SETUP)(completion)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(client_version())
        raise typer.Exit


@app.callback()
def root(
    head: HeadOption = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print this client's version.",
            show_default=False,
        ),
    ] = False,
) -> None:
    """What stands before the command."""
    root_head.set(head)


@app.command(rich_help_panel=_SETUP)
def version(head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """Print the versions of this client and of the head, if one answers.

    Example: hermesctl version -o json
    """

    async def body(client: AsyncClient) -> None:
        document: dict[str, Data] = {"client": client_version(), "head": None}
        words = "no head answers"
        try:
            info = await client.server_info()
        except Unreachable:
            pass
        else:
            document["head"] = row(info)
            words = info.version
            if info.read_only:
                words += f" (read-only: {info.read_only_reason})"
        facts = [("hermesctl", client_version()), ("head", words)]
        emit(stdout(), output, document, [document], lambda _: facts_table(facts))

    run(body, head=head)


def main() -> None:
    """The entry point."""
    # Whoever starts us may block signals, or ignore SIGCHLD, which has no child's exit code told.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        # A locale without our characters is no reason to fail.
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="hermesctl")


if __name__ == "__main__":
    main()
