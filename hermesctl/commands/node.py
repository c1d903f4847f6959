"""`hermesctl node`: the nodes and their devices."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from hermesctl.async_client import AsyncClient
from hermesctl.commands.user import DAY_SECONDS, ValidOption
from hermesctl.errors import NotFound, UsageError
from hermesctl.members import invite, revoke
from hermesctl.node_records import Node
from hermesctl.options import HeadOption, NodeArgument, OutputOption, YesOption
from hermesctl.output import Format, emit, row
from hermesctl.running import NounGroup, confirm, run
from hermesctl.tables import devices_table, devices_text, facts_table, nodes_table
from hermesctl.terminal import say, stdout
from hermesctl.text import duration, printable
from hermesd.enrolment import Role

app = typer.Typer(cls=NounGroup, help="List and show nodes. Without a verb: the list, or one node.")


@app.command("ls")
def list_nodes(head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the nodes.

    Example: hermesctl node ls -o wide
    """

    async def body(client: AsyncClient) -> None:
        nodes = await client.nodes()
        rows = [row(node) for node in nodes]
        emit(stdout(), output, {"nodes": rows}, rows, lambda wide: nodes_table(nodes, wide))

    run(body, head=head)


@app.command()
def show(node: NodeArgument, head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """Show a node: its devices, who is on them, what it found out about its machine.

    Example: hermesctl node show local
    """

    async def body(client: AsyncClient) -> None:
        found = _named(await client.nodes(), node)
        rows = [row(device) for device in found.devices]
        state = "connected" if found.connected else f"silent for {duration(found.silent_seconds)}"
        facts = [
            ("node", found.id),
            ("state", state),
            ("version", found.version or "-"),
            ("devices", devices_text(found.devices)),
            *(("" if i else "machine", fact) for i, fact in enumerate(found.facts)),
        ]
        view = Group(facts_table(facts), Text(), devices_table(found.devices))
        emit(stdout(), output, {"node": row(found)}, rows, lambda _: view)

    run(body, head=head)


@app.command()
def token(
    name: Annotated[str, typer.Option(help="Of the node; without, it gives its own.")] = "",
    days: ValidOption = 1.0,
    head: HeadOption = None,
) -> None:
    """Print the command that has another machine join this head as a node; good once.

    Example: hermesctl node token
    """

    async def body(client: AsyncClient) -> None:
        invited = await invite(client.connection, Role.NODE, name, days * DAY_SECONDS)
        named = f" --name {name}" if name else ""
        print(f"hermesd node join {invited.address} {invited.token}{named}")

    run(body, head=head)


@app.command("revoke")
def node_revoke(node: NodeArgument, yes: YesOption = False, head: HeadOption = None) -> None:
    """End a node's certificate: it cannot attach again until it has joined anew.

    Example: hermesctl node revoke gpu2
    """
    confirm(f"Revoke the certificate of {printable(node)}?", yes=yes)

    async def body(client: AsyncClient) -> None:
        await revoke(client.connection, Role.NODE, node)

    run(body, head=head)
    say(f"{printable(node)} cannot attach any more")


def _named(nodes: list[Node], name: str) -> Node:
    """The node of this name, or the only one whose name begins so."""
    exact = [n for n in nodes if n.id == name]
    matches = exact or [n for n in nodes if n.id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    names = [n.id for n in nodes]
    if matches:
        shown = ", ".join(printable(n.id) for n in matches)
        raise UsageError(f"{printable(name)} is the beginning of several nodes: {shown}")
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {printable(near[0])}?" if near else ""
    raise NotFound(f"there is no node {printable(name)}{hint}")
