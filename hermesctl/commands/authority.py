"""`hermesctl authority`: the key by which a head is known, and its replacement."""

from __future__ import annotations

from typing import Annotated

import typer

from hermesctl.commands.options import HeadOption, OutputOption, YesOption
from hermesctl.commands.running import NounGroup, confirm, run
from hermesctl.commands.user import DAY_SECONDS
from hermesctl.invocation import command
from hermesctl.render.output import Format, emit, row
from hermesctl.render.tables import facts_table
from hermesctl.render.user_views import authority_facts
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.people import authority, rotate_authority
from hermesctl.sdk.records import AuthorityStatus
from hermesctl.terminal import say, stdout

app = typer.Typer(
    cls=NounGroup, help="Show and replace the key that a head signs all certificates with."
)


@app.command()
def show(head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """Show whether the authority is being replaced, and who has not heard of it yet.

    Example: hermesctl authority show
    """

    async def body(client: AsyncClient) -> None:
        _emit(await authority(client.connection), output)

    run(body, head=head)


@app.command()
def rotate(
    days: Annotated[
        float,
        typer.Option("--days", min=0.0002, max=366, help="For how many days both keys are valid."),
    ] = 30.0,
    yes: YesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Replace the authority's key by a new one, while everything runs.

    Both are valid for --days. Connected nodes change over by themselves, and people by any command,
    once in each half of that time. Whoever does not connect in the second half has to join or log
    in again.

    Example: hermesctl authority rotate --days 30
    """
    confirm("Replace the authority's key, and end all certificates of the old one then?", yes=yes)

    async def body(client: AsyncClient) -> None:
        begun = await rotate_authority(client.connection, days * DAY_SECONDS)
        _emit(begun, output)
        if output.for_people:
            say(f"note: {command('authority show')} lists who has not heard of it yet")

    run(body, head=head)


def _emit(found: AuthorityStatus, output: Format) -> None:
    document = {"authority": row(found)}
    emit(stdout(), output, document, [row(found)], lambda _: facts_table(authority_facts(found)))
