"""`hermesctl user`, `login`, `logout`, `context`: people who work from other machines."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hermesctl.commands.options import HeadOption, OutputOption, YesOption
from hermesctl.commands.running import NounGroup, confirm, run, show_change
from hermesctl.errors import NotFound, UsageError
from hermesctl.invocation import command
from hermesctl.render.output import Format, emit, row
from hermesctl.render.tables import cell, facts_table, grid
from hermesctl.render.user_views import user_facts, users_table
from hermesctl.sdk import contexts
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.people import invite, members, revoke, users
from hermesctl.sdk.records import Invited
from hermesctl.terminal import say, stdout
from hermesctl.text import printable
from hermesctl.yaml_text import Data
from hermesd.security.accounts import current_user
from hermesd.security.identity import NotEnrolled, Role, said_token

DAY_SECONDS = 86_400.0

app = typer.Typer(
    cls=NounGroup, help="List, invite and revoke users; show how they share the devices."
)
ValidOption = Annotated[
    float, typer.Option("--days", min=0.001, max=30, help="How many days the token stays valid.")
]


class PersonRole(StrEnum):
    """What a person may be at a head."""

    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


RoleOption = Annotated[
    PersonRole,
    typer.Option(
        "--role",
        help="A user sees and changes their own studies. An operator sees and changes all, and"
        " drains nodes. An admin can also invite and revoke.",
    ),
]


@app.command("ls")
def list_users(head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """List nodes and people with a certificate, and each person's quotas and use of the devices.

    Use is device time; each second counts half as much after the head's half-life. A user sees only
    themselves.

    Example: hermesctl user ls -o wide
    """

    async def body(client: AsyncClient) -> None:
        known = await members(client.connection)
        sharing = {user.name: user for user in await users(client.connection)}
        if not known and not sharing and output.for_people:
            invites = command("user token NAME")
            say(f"note: nobody has used this head yet; {invites} invites someone")
            return
        document = {
            "members": [row(member) for member in known],
            "users": [row(user) for user in sharing.values()],
        }
        emit(
            stdout(),
            output,
            document,
            [row(user) for user in sharing.values()],
            lambda wide: users_table(known, sharing, wide),
        )

    run(body, head=head)


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="As `user ls` prints it. Default: you."),
    ] = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show a user: what they have, what they used lately, their share, their quotas.

    Example: hermesctl user show alice
    """

    async def body(client: AsyncClient) -> None:
        known = await members(client.connection)
        sharing = {user.name: user for user in await users(client.connection)}
        wanted = name or _myself(head)
        found = sharing.get(wanted)
        if found is None:
            raise NotFound(f"no user {printable(wanted)} has studies here, or used devices")
        facts = user_facts(found, known)
        emit(stdout(), output, {"user": row(found)}, [row(found)], lambda _: facts_table(facts))

    run(body, head=head)


def _myself(head: str | None) -> str:
    """Who the caller is at the head that is meant: by the login, else by the account."""
    known = {one.name: one for one in contexts.contexts(os.environ)}
    current = contexts.current(os.environ) if head is None else known.get(head)
    return current_user() if current is None else current.user


@app.command("token")
def user_token(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What the person is called at the head.")
    ],
    role: RoleOption = PersonRole.USER,
    days: ValidOption = 1.0,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Print the command that lets a person use this head from another machine; it works once.

    Example: hermesctl user token alice
    """

    async def body(client: AsyncClient) -> None:
        invited = await invite(client.connection, Role(role), name, days * DAY_SECONDS)
        logs_in = f"hermesctl login {invited.address} {invited.token} --user {name}"
        show_invited(output, invited, logs_in)

    run(body, head=head)


def show_invited(output: Format, invited: Invited, by: str) -> None:
    """Print the command by which somebody accepts an invitation, as it stands."""
    document: dict[str, Data] = {**row(invited), "command": by}
    if output.for_people:
        print(by)
    else:
        show_change(output, "", document)


@app.command("revoke")
def user_revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `user ls` prints it.")],
    role: Annotated[
        PersonRole | None,
        typer.Option("--role", help="Revoke only this role. Default: all of the user's roles."),
    ] = None,
    yes: YesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Revoke a person's access at once: every certificate, and tokens not yet redeemed.

    Example: hermesctl user revoke alice
    """
    roles = [Role(each) for each in ([role] if role is not None else PersonRole)]
    confirm(f"Revoke the access of {printable(name)}?", yes=yes)

    async def body(client: AsyncClient) -> None:
        revoked = await revoke(client.connection, roles, name)
        lost = "has no access" if role is None else f"is no {role}"
        words = f"{printable(name)} {lost} any more"
        show_change(output, words, {"name": name, "roles": [str(each) for each in revoked]})

    run(body, head=head)


def login(
    head: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the head listens.")],
    token: Annotated[
        str | None,
        typer.Argument(
            metavar="TOKEN", help="What `hermesctl user token` printed.", show_default=False
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file that holds the token, readable only by you; `-` reads standard input.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Your name at the head. Default: your user name here.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call the head here. Default: its HOST.")
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Log in to a head on another machine; later commands then use it.

    Example: hermesctl login gpu1.example.org:7411 --token-file -
    """
    try:
        word = said_token(token, token_file)
    except NotEnrolled as error:
        raise UsageError(printable(str(error))) from None
    if ":" not in head:
        form = f"{printable(head)}: expected HOST:PORT, for example gpu1.example.org:7411"
        raise UsageError(form)
    called = name or head.rpartition(":")[0].strip("[]")
    user = user or current_user()
    context = contexts.login(os.environ, head, word, called, user)
    words = f"logged in; --head {context.name} means this head, and so do commands without --head"
    show_change(output, words, {"name": context.name, "head": head, "user": user})


def logout(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which login. Default: the current one.")
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Forget a login and its key.

    Example: hermesctl logout
    """
    current = contexts.current(os.environ)
    gone = name or (current.name if current is not None else None)
    if gone is None:
        show_change(output, "not logged in anywhere", {"name": None})
        return
    was = contexts.context(os.environ, gone)
    try:
        words = f"login {was.head} TOKEN --user {was.user} --name {gone}"
    except UsageError:  # to forget a damaged one is the way out of it
        words = f"login HOST:PORT TOKEN --name {gone}"
    contexts.logout(os.environ, gone)
    again = command(words)
    forgot = f"forgot {printable(gone)}, with its key; to log in again, with a new token from an"
    show_change(output, f"{forgot} admin: {again}", {"name": gone})


def context(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The one to use; `local` is this machine's own head."),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the heads that you have logged in to, or choose one.

    Example: hermesctl context gpu1.example.org
    """
    if name is not None:
        contexts.use(os.environ, None if name == "local" else name)
        if output.for_people:
            return
    current = contexts.current(os.environ)
    rows: list[dict[str, Data]] = [
        {
            "name": one.name,
            "head": one.head,
            "user": one.user,
            "current": current is not None and current.name == one.name,
        }
        for one in contexts.contexts(os.environ)
    ]
    table = grid("", "name", "head", "user")
    for one in rows:
        cells = (str(one[key]) for key in ("name", "head", "user"))
        table.add_row(cell("*" if one["current"] else ""), *map(cell, cells))
    if not rows and output.for_people:
        logs_in = command("login HOST:PORT TOKEN")
        say(f"note: you are not logged in to any head; {logs_in} logs in to one")
        return
    emit(stdout(), output, {"contexts": rows}, rows, lambda _: table)
