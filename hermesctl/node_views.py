"""What is to be said of a node beside its devices. Rule: pure."""

from __future__ import annotations

from collections.abc import Sequence

from hermesctl.invocation import command
from hermesctl.node_records import Node
from hermesctl.text import count

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


def _some(trials: Sequence[str]) -> str:
    more = len(trials) - _SHOWN
    return ", ".join(trials[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
