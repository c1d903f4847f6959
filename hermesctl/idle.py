"""Why nothing runs, or not everywhere: no machine, one that is silent or in quarantine, or other
studies on them.

Rule: each is one line, said beside what was asked for, with the command that changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hermesctl.address import Address
from hermesctl.async_client import AsyncClient
from hermesctl.errors import HermesError
from hermesctl.invocation import command
from hermesctl.node_records import Node
from hermesctl.node_views import quarantines
from hermesctl.records import Study
from hermesctl.text import count, one_line, printable


async def hindrances(client: AsyncClient, study: Study | None = None) -> list[str]:
    """What to say of a head whose nodes are away, silent or in quarantine, and of a study that
    waits."""
    try:
        nodes = await client.nodes()
    except HermesError:
        return []  # whatever is the matter, it is not this
    if reason := _without_nodes(client, nodes):
        return [reason]
    waits = waiting(study) if study is not None else ""
    told = [*_silences(nodes), *quarantines(nodes)]
    return [*([waits] if waits else []), *map(printable, told)]


def waiting(study: Study) -> str:
    """Which other trials have the devices that a study without any could use; empty for others."""
    if not study.waits_for:
        return ""
    return printable(f"{study.id} waits for a device: {study.waits_for}")


def _silences(nodes: Sequence[Node]) -> Iterator[str]:
    """The nodes that are not heard, as long as there are trials on them; the same words each time,
    as `follow` says what is new."""
    for node in nodes:
        waited_for = not node.connected and not node.lost
        if waited_for and any(device.trial or device.others for device in node.devices):
            how = command(f"node lost {node.id}")
            yield (
                f"{node.id} is silent: what is there goes on elsewhere once it counts as lost; if"
                f" its machine is off, {how} has it do so at once"
            )


def _without_nodes(client: AsyncClient, nodes: Sequence[Node]) -> str:
    """What to say of a head to which no node is connected; empty where one is."""
    if any(node.connected and not node.draining and not node.resting for node in nodes):
        return ""
    address = client.connection.address
    if resting := next((node for node in nodes if node.connected and node.resting), None):
        why = f"node {printable(resting.id)} rests: {one_line(resting.resting)}"
        return f"nothing new runs on the head at {address} for now: {why}"
    if draining := next((node for node in nodes if node.connected), None):
        how = command(f"node undrain {draining.id}")
        return f"nothing new runs on the head at {address}: its nodes are draining; {how} ends that"
    if nodes:
        silent = ", ".join(printable(node.id) for node in nodes[:3])
        what = f"none of its {count(len(nodes), 'node')} is connected ({silent})"
    else:
        what = "it has no node"
    if client.local:
        how = f"{command('local stop')} and {command('local start')} begin it anew"
    elif nodes:
        how = "they attach by themselves once their daemons run and reach it: their logs say more"
    else:
        how = more_machines(address)
    return f"nothing runs on the head at {address}: {what}; {how}"


def more_machines(address: Address) -> str:
    """How a machine becomes a node of the head at this address."""
    if address.origin.startswith("your own"):
        return "hermesd node adds this machine"
    if address.membership is not None:
        return f"{command('node token')} prints what has another machine join it"
    return f"hermesd node --head {one_line(address.target)} adds the machine that it is run on"
