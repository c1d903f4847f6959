"""What is to be said of a node beside its devices. Rule: pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hermesctl.invocation import command
from hermesctl.node_records import Node
from hermesctl.tables import cell, grid, moment
from hermesctl.text import count, one_line

_SHOWN = 8


def drain_facts(node: Node) -> list[tuple[str, str]]:
    """What a draining node waits for, and what only its disk has; nothing of any other."""
    if not node.draining:
        return []
    facts = []
    if node.running:
        facts.append(("running", f"{_some(node.running)}, to the end of each quantum"))
    if node.parked:
        facts.append(("parked", _some(node.parked)))
    if node.stuck:
        ways = f"{command('trial stop TRIAL')}, or {command(f'node undrain {node.id}')}"
        facts.append(("cannot leave", f"{_some(node.stuck)}: no checkpoint brings it back; {ways}"))
    if node.only_copies:
        trials = count(node.only_copies, "unfinished trial")
        words = f"the checkpoints of {trials}: others fetch them from its daemon"
        facts.append(("only here", words))
    return facts


def quarantine_facts(node: Node) -> list[tuple[str, str]]:
    """Which of its devices, or whether all of it, is kept from trials: until when, why, and how
    that is ended."""
    places = [(node.id, node.quarantine), *((each.id, each.quarantine) for each in node.devices)]
    facts = []
    for place, kept in places:
        if kept is not None:
            ends = f"until {moment(kept.until_unix_seconds)}, or {command(f'node release {place}')}"
            facts.append(("quarantine", f"{place}: {one_line(kept.reason)}; {ends}"))
    for each in node.exclusions:
        ends = command(f"node release {node.id}")
        facts.append(("excluded", f"from {each.study}: {one_line(each.reason)}; {ends} ends it"))
    return facts


def strikes_table(node: Node) -> Table | None:
    """The failures that are held against its devices, the newest first; None if none is."""
    strikes = [(device.id, strike) for device in node.devices for strike in device.strikes]
    if not strikes:
        return None
    table = grid("failed on", "trial", "at", "error")
    for device, strike in sorted(strikes, key=lambda each: -each[1].at_unix_seconds):
        when = cell(moment(strike.at_unix_seconds))
        words = cell(one_line(strike.detail) or strike.kind)
        table.add_row(cell(device), cell(strike.trial), when, words)
    return table


def _some(trials: Sequence[str]) -> str:
    more = len(trials) - _SHOWN
    return ", ".join(trials[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
