"""`hermesctl doctor`: what is wrong here, and how to mend it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hermesctl.async_client import AsyncClient
from hermesctl.checks import Verdict, examine
from hermesctl.errors import ExitCode
from hermesctl.options import HeadOption, OutputOption
from hermesctl.output import Format, emit, row
from hermesctl.running import run
from hermesctl.tables import cell, grid
from hermesctl.terminal import stdout

_STYLES = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.FAILED: "bold red"}


def doctor(
    python: Annotated[
        str,
        typer.Option(metavar="PYTHON", help="The trials' interpreter; default: yours."),
    ] = "",
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Check this machine, the head and its nodes. Exit code 4: something needs mending.

    Example: hermesctl doctor --python .venv/bin/python
    """

    async def body(client: AsyncClient) -> ExitCode | None:
        checks = await examine(client, python, os.environ)
        table = grid("", "check", "found", "how to mend it")
        for check in checks:
            mark = cell(check.verdict, _STYLES[check.verdict])
            table.add_row(mark, cell(check.name), cell(check.words), cell(check.remedy, "dim"))
        rows = [row(check) for check in checks]
        emit(stdout(), output, {"checks": rows}, rows, lambda _: table)
        failed = any(check.verdict is Verdict.FAILED for check in checks)
        return ExitCode.REFUSED if failed else None

    run(body, head=head)
