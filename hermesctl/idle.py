"""Why nothing runs, where the reason is that there is no machine for it.

Rule: it is said once, beside what was asked for, and with the command that changes it.
"""

from __future__ import annotations

from hermesctl.async_client import AsyncClient
from hermesctl.errors import HermesError
from hermesctl.invocation import command
from hermesctl.text import count, one_line, printable


async def without_nodes(client: AsyncClient) -> str:
    """What to say of a head to which no node is connected; empty where one is."""
    try:
        nodes = await client.nodes()
    except HermesError:
        return ""  # whatever is the matter, it is not this
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
