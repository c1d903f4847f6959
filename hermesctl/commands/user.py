"""`hermesctl user`, `login`, `logout`, `context`: people who work from other machines."""

from __future__ import annotations

import getpass
import os
from typing import Annotated

import typer

from hermesctl import contexts
from hermesctl.async_client import AsyncClient
from hermesctl.members import invite, members, revoke
from hermesctl.options import HeadOption, OutputOption, YesOption
from hermesctl.output import Format, emit, row
from hermesctl.running import NounGroup, confirm, run
from hermesctl.tables import grid, moment
from hermesctl.terminal import say, stdout
from hermesctl.text import printable
from hermesctl.yaml_text import Data
from hermesd.enrolment import Role

DAY_SECONDS = 86_400.0

app = typer.Typer(cls=NounGroup, help="Those who may use the head from other machines.")
ValidOption = Annotated[
    float, typer.Option("--days", min=0.001, max=30, help="How long the token may be redeemed.")
]


@app.command("ls")
def list_members(head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the nodes and people with a certificate.

    Example: hermesctl user ls
    """

    async def body(client: AsyncClient) -> None:
        known = await members(client.connection)
        rows = [row(member) for member in known]
        table = grid("name", "role", "certificate ends")
        for member in known:
            table.add_row(printable(member.name), member.role, moment(member.expires_unix_seconds))
        emit(stdout(), output, {"members": rows}, rows, lambda _: table)

    run(body, head=head)


@app.command("token")
def user_token(
    name: Annotated[str, typer.Argument(help="What the person is called at the head.")],
    admin: Annotated[bool, typer.Option("--admin", help="May invite and revoke, too.")] = False,
    days: ValidOption = 1.0,
    head: HeadOption = None,
) -> None:
    """Print the command that lets a person use this head from another machine; good once.

    Example: hermesctl user token alice
    """

    async def body(client: AsyncClient) -> None:
        role = Role.ADMIN if admin else Role.USER
        invited = await invite(client.connection, role, name, days * DAY_SECONDS)
        print(f"hermesctl login {invited.address} {invited.token} --user {name}")

    run(body, head=head)


@app.command("revoke")
def user_revoke(
    name: Annotated[str, typer.Argument(help="As `user ls` has it.")],
    admin: Annotated[bool, typer.Option("--admin", help="The admin of that name.")] = False,
    yes: YesOption = False,
    head: HeadOption = None,
) -> None:
    """Take a person's access back, at once.

    Example: hermesctl user revoke alice
    """
    confirm(f"Revoke the access of {printable(name)}?", yes=yes)

    async def body(client: AsyncClient) -> None:
        await revoke(client.connection, Role.ADMIN if admin else Role.USER, name)

    run(body, head=head)
    say(f"{printable(name)} has no access any more")


def login(
    head: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the head listens.")],
    token: Annotated[str, typer.Argument(help="What `hermesctl user token` printed.")],
    user: Annotated[
        str | None, typer.Option(help="Who you are at the head; default: as here.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call the head here; default: its HOST.")
    ] = None,
) -> None:
    """Log in to a head on another machine; from then on it is the one that commands mean.

    Example: hermesctl login gpu1.example.org:7411 TOKEN
    """
    called = name or head.rpartition(":")[0].strip("[]")
    context = contexts.login(os.environ, head, token, called, user or getpass.getuser())
    say(f"logged in; --head {context.name} means this head, and so do commands without --head")


def logout(
    name: Annotated[str | None, typer.Argument(help="Default: the current context.")] = None,
) -> None:
    """Forget a login, with its key.

    Example: hermesctl logout
    """
    current = contexts.current(os.environ)
    gone = name or (current.name if current is not None else None)
    if gone is None:
        say("not logged in anywhere")
        return
    contexts.logout(os.environ, gone)
    say(f"forgot {printable(gone)}")


def context(
    name: Annotated[
        str | None, typer.Argument(help="The one to use; `local` is this machine's own head.")
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the heads that you have logged in to, or choose one.

    Example: hermesctl context gpu1.example.org
    """
    if name is not None:
        contexts.use(os.environ, None if name == "local" else name)
        return
    current = contexts.current(os.environ)
    rows: list[dict[str, Data]] = [
        {
            "name": one.name,
            "head": one.membership.head,
            "user": one.membership.identity.name,
            "current": current is not None and current.name == one.name,
        }
        for one in contexts.contexts(os.environ)
    ]
    table = grid("", "name", "head", "user")
    for one in rows:
        cells = (printable(str(one[key])) for key in ("name", "head", "user"))
        table.add_row("*" if one["current"] else "", *cells)
    emit(stdout(), output, {"contexts": rows}, rows, lambda _: table)
