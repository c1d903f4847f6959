"""Which devices could take the trials of a study that is about to be submitted.

Rule: pure, and as the scheduler sees it: of the study's pool, by kind, memory and what the study
requires. What is only away for now (a node that drains, rests or is silent) is no misfit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hermesd.core.model import Study
from hermesd.core.nodes import Node
from hermesd.core.obstacles import unfit
from hermesd.core.placement import asked_for
from hermesd.core.sights import UNSEEN
from hermesd.core.state import State

NAMED = 5
WAITS = "its trials wait"


class Fitting(NamedTuple):
    """So many devices could be given a trial now. `misfits` says of each node whose devices cannot
    take any what is the matter; `only_misfits` that there is no other in the study's pool."""

    devices: int
    misfits: tuple[str, ...]
    only_misfits: bool


def fitting(state: State, study: Study) -> Fitting:
    """Look at the nodes of the study's pool that have devices."""
    misfits, devices, others = [], 0, 0
    for name, node in sorted(state.nodes.items()):
        if node.pool != study.pool or node.left or not node.devices:
            continue
        if why := _misfit(state, study, node):
            misfits.append(f"node {name} {why}")
            continue
        others += 1
        slots = [state.slots[device] for device in node.devices]
        fit = (slot for slot in slots if asked_for(study, slot.device))
        devices += sum(slot.sound and node.open for slot in fit)
    return Fitting(devices, tuple(misfits), bool(misfits) and not others)


def note(found: Fitting, said: Sequence[str]) -> list[str]:
    """What to say of a study that no node can take, unless that is said."""
    if not found.only_misfits or any(words.endswith(WAITS) for words in said):
        return []
    return [f"{in_words(found.misfits)}: {WAITS}"]


def in_words(misfits: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(misfits) - NAMED
    return "; ".join(misfits[:NAMED]) + (f"; and {more} nodes more" if more > 0 else "")


def _misfit(state: State, study: Study, node: Node) -> str:
    """Why no device of a node can take a trial; empty if one can. What is not known of a silent
    node is nothing against it, nor is an environment that is made once the study is there."""
    devices = [state.slots[device].device for device in node.devices]
    if not any(asked_for(study, device) for device in devices):
        return f"cannot take it: {unfit(study, devices)}"
    seen = state.sights.get(node.id, {})
    lacks = ((name, seen.get(name, UNSEEN)) for name in study.needs)
    found = (f"lacks {name}: {why}" for name, why in lacks if why not in ("", UNSEEN))
    return next(found, "") if node.connected else ""
