"""`hermesctl token`: tokens for people who reach a head by its socket or a loopback port."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hermesctl.commands.options import HeadOption, OutputOption, YesOption
from hermesctl.commands.running import NounGroup, confirm, run, show_change
from hermesctl.commands.user import DAY_SECONDS, PersonRole, RoleOption
from hermesctl.errors import UsageError
from hermesctl.invocation import command
from hermesctl.render.output import Format, emit, row, write
from hermesctl.render.user_views import tokens_table
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.people import issue_token, revoke_token, tokens
from hermesctl.sdk.token import TOKEN_VARIABLE
from hermesctl.terminal import say, stdout
from hermesctl.text import printable
from hermesctl.yaml_text import Data
from hermesd.security.identity import Role

app = typer.Typer(
    cls=NounGroup,
    help="Make, list and revoke the tokens of people who use a head on its own machine.",
)


@app.command("create")
def create(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A name for it, such as alice-notebooks."),
    ],
    user: Annotated[str, typer.Option("--user", metavar="USER", help="The person it is for.")],
    role: RoleOption = PersonRole.USER,
    days: Annotated[
        float, typer.Option("--days", min=0.001, max=366, help="How many days it is good for.")
    ] = 90.0,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A new file for it, which only you can read. Default: print it.",
            show_default=False,
        ),
    ] = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Make a token with which a person, or their program, can use this head.

    It is shown only once, since the head keeps nothing but its hash. Its holder sets
    HERMES_TOKEN_FILE to the file's path. People on other machines log in instead: `hermesctl user
    token`.

    Example: hermesctl token create alice-laptop --user alice --to alice.token
    """
    if to is not None and os.path.lexists(to):
        raise UsageError(f"--to: {printable(str(to))}: expected no file there yet")

    async def body(client: AsyncClient) -> None:
        text = await issue_token(client.connection, name, user, Role(role), days * DAY_SECONDS)
        document: dict[str, Data] = {"name": name, "user": user, "role": str(role)}
        if to is None and output.for_people:
            write(stdout(), text.rstrip("\n"))
            return
        if to is None:
            show_change(output, "", {**document, "token": text.rstrip("\n")})
            return
        try:
            descriptor = os.open(to, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(text)
        except OSError as error:
            await revoke_token(client.connection, name)
            raise UsageError(f"--to: {printable(str(to))}: {error.strerror}") from None
        words = f"{printable(str(to))} is for {printable(user)}: {TOKEN_VARIABLE} names it there"
        show_change(output, words, {**document, "file": str(to)})

    run(body, head=head)


@app.command("ls")
def list_tokens(head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the valid tokens. A user sees only their own.

    Example: hermesctl token ls
    """

    async def body(client: AsyncClient) -> None:
        found = await tokens(client.connection)
        if not found and output.for_people:
            say(f"note: nobody has a token; {command('token create NAME --user USER')} makes one")
            return
        rows = [row(token) for token in found]
        emit(stdout(), output, {"tokens": rows}, rows, lambda _: tokens_table(found))

    run(body, head=head)


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `token ls` prints it.")],
    yes: YesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Revoke a token at once; open streams end, too.

    Example: hermesctl token revoke alice-laptop
    """
    confirm(f"Revoke the token {printable(name)}?", yes=yes)

    async def body(client: AsyncClient) -> None:
        await revoke_token(client.connection, name)
        show_change(output, f"the token {printable(name)} is no longer valid", {"name": name})

    run(body, head=head)
