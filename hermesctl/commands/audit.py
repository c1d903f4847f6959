"""`hermesctl audit`: who changed what at the head, and who was refused what."""

from __future__ import annotations

from typing import Annotated

import typer

from hermesctl.commands.options import HeadOption, OutputOption
from hermesctl.commands.running import run
from hermesctl.errors import UsageError
from hermesctl.render.output import Format, emit, row
from hermesctl.render.user_views import audit_table
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.people import audit as entries_of
from hermesctl.study_file.load import seconds
from hermesctl.terminal import say, stdout
from hermesctl.text import printable


def audit(
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Only as far back as this, such as 12h or 7d.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this user or node.", show_default=False),
    ] = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only what the head refused.", show_default=False)
    ] = False,
    last: Annotated[
        int, typer.Option("--last", "-n", min=1, metavar="N", help="At most the newest N.")
    ] = 100,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """For admins: show who changed what, from where, and who was refused.

    Example: hermesctl audit --refused --since 7d
    """
    within = None if since is None else seconds(since)
    if since is not None and within is None:
        expected = "expected a duration such as 90s, 12h or 7d"
        raise UsageError(f"--since: {printable(since)}: {expected}")

    async def body(client: AsyncClient) -> None:
        found = await entries_of(client.connection, last, within or 0.0, name or "", refused)
        if not found and output.for_people:
            say("note: the audit has no such entries")
        rows = [row(entry) for entry in found]
        emit(stdout(), output, {"entries": rows}, rows, lambda wide: audit_table(found, wide))

    run(body, head=head)
