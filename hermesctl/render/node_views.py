"""Nodes and their devices, for people. As in tables.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from hermesctl.errors import HermesError
from hermesctl.invocation import command
from hermesctl.render.grid import Grid
from hermesctl.render.tables import cell, grid, moment
from hermesctl.sdk.address import Address
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import Device, Node, Quarantine, Study
from hermesctl.text import count, duration, one_line, percent, printable, size

_SHOWN = 8


def nodes_table(nodes: Sequence[Node], wide: bool) -> Grid:
    """Nodes."""
    extra = ("~facts",) if wide else ()
    headers = ("node", "state", "pool", "devices", ">busy", "version", *extra)
    table = grid(*headers, spared=("version", "pool"), wide=wide)
    for node in nodes:
        cells = [
            cell(node.id),
            node_state_cell(node),
            cell(node.pool),
            cell(devices_text(node.devices)),
            cell(f"{sum(1 for d in node.devices if d.trial or d.others)}/{len(node.devices)}"),
            cell(node.version or "-"),
        ]
        if wide:
            cells.append(cell("; ".join(node.facts)))
        table.add_row(*cells)
    return table


def node_state_cell(node: Node) -> Text:
    """Its state, and for how long nothing was heard of one that is silent or lost."""
    if node.connected:
        kept = sum(device.quarantine is not None for device in node.devices)
        words = f"{node.state}, {kept} in quarantine" if kept else node.state
        return cell(words, "green" if node.state == "connected" and not kept else "yellow")
    words = f"silent for {duration(node.silent_seconds)}"
    if node.lost:
        words = f"lost, {words}"
    return cell(f"{words}, {node.state}" if node.draining else words, "red")


def nodes_remarks(nodes: Sequence[Node]) -> Iterator[str]:
    """A line for whatever the states of nodes leave open: until when they rest or are in
    quarantine, and what is wrong with their daemons."""
    for node in nodes:
        if node.resting and node.connected:
            yield f"{node.id} rests: {one_line(node.resting)}"
    yield from quarantines(nodes)
    for node in nodes:
        yield from (f"{node.id}: {one_line(words)}" for words in node.warnings)


def devices_text(devices: Sequence[Device]) -> str:
    """`2 cpu, 1 NVIDIA H200`."""
    kinds: dict[str, int] = {}
    for device in devices:
        kinds[device.kind] = kinds.get(device.kind, 0) + 1
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "0"


def devices_table(devices: Sequence[Device], *, live: bool = False) -> Grid:
    """Devices, and who is on them, with their speeds beside their kind's once they were compared;
    `live`, each is one line, however narrow the terminal."""
    columns = {
        "device": [cell(device.id) for device in devices],
        "kind": [cell(device.kind) for device in devices],
        "trial": [
            cell(device.trial or ("of another user" if device.others else "-"))
            for device in devices
        ],
        "reserved for": [cell(device.reserved_for or "-") for device in devices],
        ">use": [cell(percent(device.usage.utilization)) for device in devices],
        ">memory": [cell(f"{_used(device)} of {size(device.memory_bytes)}") for device in devices],
        "health": [health_cell(device) for device in devices],
    }
    if any(device.comparisons for device in devices):
        columns[">speed"] = [
            cell(percent(device.speed) if device.comparisons else "-") for device in devices
        ]
    spared = ("reserved for", "kind", "memory", "use", "health", "speed")
    headers = [f"|{name}" if live and name[0] != ">" else name for name in columns]
    table = grid(*headers, spared=spared, silently=live)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def _used(device: Device) -> str:
    """The memory in use; a dash where nobody has measured it yet: no program uses none."""
    used = device.usage.memory_bytes
    return size(used) if used or not device.trial else "-"


def health_cell(device: Device) -> Text:
    """Whether it works, and whether it is trusted."""
    if not device.healthy:
        return cell(device.reason or "failed", "red")
    if device.yielded:
        return cell(f"yielded: {device.yielded}", "yellow")
    if device.quarantine is not None:
        return cell(f"quarantine until {moment(device.quarantine.until_unix_seconds)}", "red")
    return cell("ok", "green")


def drain_facts(node: Node) -> list[tuple[str, str]]:
    """What a node waits for that gives up what it has, and what only its disk has; nothing of any
    other."""
    if not node.draining and not node.resting:
        return []
    facts = [("resting", one_line(node.resting))] if node.resting else []
    if node.running:
        until = ", to the end of each quantum" if not node.resting else ""
        facts.append(("running", _some(node.running) + until))
    if node.parked:
        facts.append(("parked", _some(node.parked)))
    if node.stuck:
        ways = command("trial stop TRIAL")
        ways += f", or {command(f'node undrain {node.id}')}" if node.draining else ""
        facts.append(("cannot leave", f"{_some(node.stuck)}: no checkpoint can restore it; {ways}"))
    if node.only_copies:
        trials = count(node.only_copies, "unfinished trial")
        words = f"the checkpoints of {trials}: others fetch them from its daemon"
        facts.append(("only here", words))
    return facts


def quarantined(node: Node) -> Iterator[tuple[str, Quarantine]]:
    """The node, if all of it is kept from trials, then its devices that are."""
    places = [(node.id, node.quarantine), *((each.id, each.quarantine) for each in node.devices)]
    yield from ((place, kept) for place, kept in places if kept is not None)


def quarantines(nodes: Sequence[Node]) -> Iterator[str]:
    """A line for each place in quarantine: until when, why, and how that is ended."""
    for node in nodes:
        for place, kept in quarantined(node):
            until, ends = moment(kept.until_unix_seconds), command(f"node release {place}")
            yield f"{place} is in quarantine until {until}: {one_line(kept.reason)}; {ends} ends it"


def quarantine_facts(node: Node) -> list[tuple[str, str]]:
    """Which of its devices, or whether all of it, is kept from trials: until when, why, and how
    that is ended."""
    facts = []
    for place, kept in quarantined(node):
        ends = f"until {moment(kept.until_unix_seconds)}, or {command(f'node release {place}')}"
        facts.append(("quarantine", f"{place}: {one_line(kept.reason)}; {ends}"))
    for each in node.exclusions:
        ends = command(f"node release {node.id}")
        facts.append(("excluded", f"from {each.study}: {one_line(each.reason)}; {ends} ends it"))
    return facts


def lacking_facts(node: Node) -> list[tuple[str, str]]:
    """What studies require and the node has not."""
    return [("lacks", one_line(words)) for words in node.lacking]


def strikes_table(node: Node) -> Grid | None:
    """The failures that are held against its devices, the newest first; None if none is."""
    strikes = [(device.id, strike) for device in node.devices for strike in device.strikes]
    if not strikes:
        return None
    table = grid("failed on", "trial", "at", "~error")
    for device, strike in sorted(strikes, key=lambda each: -each[1].at_unix_seconds):
        when = cell(moment(strike.at_unix_seconds))
        words = cell(one_line(strike.detail) or strike.kind)
        table.add_row(cell(device), cell(strike.trial), when, words)
    return table


def _some(trials: Sequence[str]) -> str:
    more = len(trials) - _SHOWN
    return ", ".join(trials[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


# Why nothing runs, or not everywhere: no machine, one that is silent or in quarantine, or
# other studies on them.
#
# Each is one line, said beside what was asked for, with the command that changes it.


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
                f"{node.id} is silent: its trials go on elsewhere once it counts as lost; if its"
                f" machine is off, {how} makes that happen at once"
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
        how = f"{command('local stop')} and {command('local start')} start it again"
    elif nodes:
        how = "they attach by themselves once their daemons run and can reach it: see their logs"
    else:
        how = more_machines(address)
    return f"nothing runs on the head at {address}: {what}; {how}"


def more_machines(address: Address) -> str:
    """How a machine becomes a node of the head at this address."""
    if address.origin.startswith("your own"):
        return "hermesd node adds this machine"
    if address.membership is not None:
        return f"{command('node token')} prints the command by which another machine joins it"
    return f"hermesd node --head {one_line(address.target)} adds the machine that it is run on"
