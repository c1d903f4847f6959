"""`hermesctl node`: the nodes and their devices."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from hermesctl.commands.options import (
    HeadOption,
    NodeArgument,
    OutputOption,
    OwnNodesOption,
    YesOption,
    complete_node,
)
from hermesctl.commands.running import NounGroup, confirm, run, show_change
from hermesctl.commands.user import DAY_SECONDS, ValidOption, show_invited
from hermesctl.errors import NotFound, Refused, UsageError
from hermesctl.render.node_views import (
    devices_table,
    devices_text,
    drain_facts,
    lacking_facts,
    more_machines,
    node_state_cell,
    nodes_remarks,
    nodes_table,
    quarantine_facts,
    strikes_table,
)
from hermesctl.render.output import Format, emit, row
from hermesctl.render.tables import facts_table
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.people import invite, revoke
from hermesctl.sdk.records import Node
from hermesctl.terminal import say, stdout
from hermesctl.text import nearest, one_line, printable
from hermesctl.waiting import progress
from hermesd.security.identity import Role

app = typer.Typer(cls=NounGroup, help="List and show nodes. Without a verb: the list, or one node.")


@app.command("ls")
def list_nodes(head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the nodes, how long some rest or stay in quarantine, and what is wrong with them.

    Example: hermesctl node ls -o wide
    """

    async def body(client: AsyncClient) -> None:
        nodes = await client.nodes()
        rows = [row(node) for node in nodes]
        remarks = [Text(printable(words)) for words in nodes_remarks(nodes)]
        below = [Text(), *remarks] if remarks else []
        if not nodes and output.for_people:
            say(f"note: there is no node yet; {more_machines(client.connection.address)}")
            return
        emit(
            stdout(),
            output,
            {"nodes": rows},
            rows,
            lambda wide: Group(nodes_table(nodes, wide), *below),
        )

    run(body, head=head)


@app.command()
def show(node: NodeArgument, head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """Show a node: its devices, which trials have them, and what it found on its machine.

    Example: hermesctl node show local
    """

    async def body(client: AsyncClient) -> None:
        found = _named(await client.nodes(), node)
        rows = [row(device) for device in found.devices]
        facts = [
            ("node", found.id),
            ("state", node_state_cell(found).plain),
            ("pool", found.pool),
            ("version", found.version or "-"),
            ("devices", devices_text(found.devices)),
            *drain_facts(found),
            *quarantine_facts(found),
            *lacking_facts(found),
            *(("wrong", one_line(words)) for words in found.warnings),
            *(("" if i else "machine", fact) for i, fact in enumerate(found.facts)),
        ]
        strikes = strikes_table(found)
        evidence = () if strikes is None else (Text(), strikes)
        view = Group(facts_table(facts), Text(), devices_table(found.devices), *evidence)
        emit(stdout(), output, {"node": row(found)}, rows, lambda _: view)

    run(body, head=head)


@app.command()
def drain(
    node: NodeArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Return once it is empty.")] = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Empty a node before maintenance: nothing new starts there, nothing is cut short.

    Its runs go on to the end of their quanta and then write checkpoints, as do the trials that are
    parked there. The node stays drained, even if it or the head restarts, until `node undrain`.

    Example: hermesctl node drain gpu2 --wait
    """

    async def body(client: AsyncClient) -> None:
        drained = await client.drain(node)
        if wait:
            if not drained.drained:
                say("\n".join(f"{name}: {words}" for name, words in drain_facts(drained)))
            with progress(f"waiting until {printable(drained.id)} is empty"):
                drained = await client.wait_drained(drained.id)
            if not drained.draining:
                raise Refused(f"somebody undrained node {printable(drained.id)} meanwhile")
        _emit_state(drained, output)

    run(body, head=head)


@app.command()
def undrain(
    node: NodeArgument, head: HeadOption = None, output: OutputOption = Format.TABLE
) -> None:
    """Use a drained or draining node again.

    Example: hermesctl node undrain gpu2
    """

    async def body(client: AsyncClient) -> None:
        _emit_state(await client.undrain(node), output)

    run(body, head=head)


@app.command()
def lost(
    node: NodeArgument,
    for_good: Annotated[
        bool,
        typer.Option(
            "--for-good",
            help="The node and its files will never come back: remove it from the list.",
        ),
    ] = False,
    yes: YesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Declare that a silent node's machine is off: its trials go on elsewhere at once.

    Otherwise they wait until its lease and a margin have run out. If the machine is not off after
    all, its trials run twice until then, and only what is trained elsewhere counts. With
    `--for-good`, its certificate ends, and training that only its disk had is repeated.

    Example: hermesctl node lost gpu2
    """
    asked = "gone for good, with its disk" if for_good else "off, with everything that ran on it"
    confirm(f"Is the machine of node {printable(node)} {asked}?", yes=yes)

    async def body(client: AsyncClient) -> None:
        _emit_state(await client.lose(node, for_good), output)

    run(body, head=head)


@app.command()
def release(
    place: Annotated[
        str,
        typer.Argument(
            metavar="NODE[/DEVICE]", help="As `node show` prints it.", autocompletion=complete_node
        ),
    ],
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """End the quarantine of a device, or of a node and all its devices, at once.

    The failures there no longer count. Otherwise a quarantine ends by itself after a while.

    Example: hermesctl node release gpu2/cpu0
    """

    async def body(client: AsyncClient) -> None:
        _emit_state(await client.release(place), output)

    run(body, head=head)


def _emit_state(node: Node, output: Format) -> None:
    facts = [("node", node.id), ("state", node_state_cell(node).plain), *drain_facts(node)]
    emit(stdout(), output, {"node": row(node)}, [row(node)], lambda _: facts_table(facts))


@app.command()
def token(
    name: Annotated[
        str, typer.Option(help="The node's name. Default: the node's own choice.")
    ] = "",
    days: ValidOption = 1.0,
    uses: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many machines may join with it.")
    ] = 1,
    pool: Annotated[
        str,
        typer.Option(
            help="The pool that the machines join, with names that fit it. Only this, or --name,"
            " lets a node into a private pool."
        ),
    ] = "",
    devices: Annotated[
        int, typer.Option(min=0, help="How many devices each may have at most. 0: any number.")
    ] = 0,
    own: OwnNodesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Print the command that makes another machine join this head as a node.

    Nodes that a user adds run only that user's trials, in the pool `own`.

    Example: hermesctl node token --uses 8
    """

    async def body(client: AsyncClient) -> None:
        valid_seconds = days * DAY_SECONDS
        invited = await invite(
            client.connection, Role.NODE, name, valid_seconds, uses, pool, devices, own
        )
        named = f" --name {name}" if name else ""
        joins = f"hermesd node join {invited.address} {invited.token}{named}"
        show_invited(output, invited, joins)

    run(body, head=head)


@app.command("revoke")
def node_revoke(
    node: NodeArgument,
    yes: YesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Revoke a node's certificate: it cannot attach until it joins again.

    Example: hermesctl node revoke gpu2
    """
    confirm(f"Revoke the certificate of {printable(node)}?", yes=yes)

    async def body(client: AsyncClient) -> None:
        await revoke(client.connection, [Role.NODE], node)
        words = f"{printable(node)} cannot attach any more"
        show_change(output, words, {"name": node, "roles": [str(Role.NODE)]})

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
    near = nearest(name, names)
    hint = f" (did you mean {printable(near)}?)" if near else ""
    raise NotFound(f"no node {printable(name)}{hint}")
