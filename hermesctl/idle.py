"""Why nothing runs, or not everywhere: no machine, one in quarantine, or other studies on them.

Rule: each is one line, said beside what was asked for, with the command that changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hermesctl.async_client import AsyncClient
from hermesctl.errors import HermesError
from hermesctl.invocation import command
from hermesctl.node_records import Node
from hermesctl.node_views import quarantines
from hermesctl.records import Study
from hermesctl.text import count, one_line, printable

_NAMED = 4


async def hindrances(client: AsyncClient, study: Study | None = None) -> list[str]:
    """What to say of a head whose nodes are away or in quarantine, and of a study that waits."""
    try:
        nodes = await client.nodes()
    except HermesError:
        return []  # whatever is the matter, it is not this
    if reason := _without_nodes(client, nodes):
        return [reason]
    waits = waiting(study, nodes) if study is not None else ""
    return [*([waits] if waits else []), *map(printable, quarantines(nodes))]


def waiting(study: Study, nodes: Sequence[Node]) -> str:
    """Which other trials have the devices that an unfinished study could use, none of whose
    trials is on one; empty for any other study."""
    on_device = sum(amount for state, amount in study.counts.items() if state.on_device)
    if study.finished or study.paused or on_device:
        return ""
    taken = list(_taken(study, nodes))
    if not taken:
        return ""
    more = f" and {len(taken) - _NAMED} more are taken" if len(taken) > _NAMED else ""
    return f"{printable(study.id)} waits for a device: {', '.join(taken[:_NAMED])}{more}"


def _taken(study: Study, nodes: Sequence[Node]) -> Iterator[str]:
    resources = study.spec.get("resources")
    kind = resources.get("device_kind") if isinstance(resources, Mapping) else None
    for node in nodes:
        for device in node.devices:
            if device.trial and kind in (None, device.kind):
                yield printable(f"{device.id} has {device.trial}")


def _without_nodes(client: AsyncClient, nodes: Sequence[Node]) -> str:
    """What to say of a head to which no node is connected; empty where one is."""
    if any(node.connected and not node.draining for node in nodes):
        return ""
    address = client.connection.address
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
    elif address.origin.startswith("your own"):
        how = "hermesd node adds this machine"
    else:
        how = f"hermesd node --head {one_line(address.target)} adds the machine that it is run on"
    return f"nothing runs on the head at {address}: {what}; {how}"
