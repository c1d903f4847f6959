"""`hermesctl node`: the nodes and their devices."""

from __future__ import annotations

import difflib

import typer
from rich.console import Group
from rich.text import Text

from hermesctl.async_client import AsyncClient
from hermesctl.errors import NotFound, UsageError
from hermesctl.node_records import Node
from hermesctl.options import HeadOption, NodeArgument, OutputOption
from hermesctl.output import Format, emit, row
from hermesctl.running import NounGroup, run
from hermesctl.tables import devices_table, devices_text, facts_table, nodes_table
from hermesctl.terminal import stdout
from hermesctl.text import duration, printable

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
        emit(stdout(), output, row(found), rows, lambda _: view)

    run(body, head=head)


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
