"""Which devices could take the trials of a study that is about to be submitted.

Pure, with the scheduler's own rules: devices of the study's pool, by their kind, their memory and
what the study requires. A node that is only away for now (drained, resting or silent) is no misfit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

from hermesd import wire
from hermesd.core.commands import Look
from hermesd.core.decide.explanation import too_narrow, unfit
from hermesd.core.decide.gangs import widest
from hermesd.core.model import (
    DEFAULT_POOL,
    OWN_POOL,
    Node,
    NodeId,
    Plugin,
    Study,
    conda_need,
    own_pool,
)
from hermesd.core.placement import asked_for
from hermesd.core.requirements import UNSEEN, lacking
from hermesd.core.state import State
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.loop import Head
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.refusal import FieldError, Refused, nearest, one_of, shown
from hermesd.study import spec_of
from hermesd.study.searchers import METHODS
from hermesd.wire import plugin_to_proto

NAMED = 5
WAITS = "its trials wait"


class Fitting(NamedTuple):
    """Where a trial of a study could run."""

    #: So many could be given one now.
    devices: int
    #: Of each node whose devices cannot take any, what is the matter.
    misfits: tuple[str, ...]
    #: There is no other node in the study's pool.
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
    return "; ".join(misfits[:NAMED]) + (f"; and {more} more nodes" if more > 0 else "")


def _misfit(state: State, study: Study, node: Node) -> str:
    """Why no device of a node can take a trial; empty if one can. What is not known of a silent
    node is nothing against it, nor is an environment that is made once the study is there."""
    devices = [state.slots[device].device for device in node.devices]
    if not any(asked_for(study, device) for device in devices):
        return f"cannot take it: {unfit(study, devices)}"
    if narrow := too_narrow(study, devices):
        return f"cannot take it: {narrow}"
    seen = state.sights.get(node.id, {})
    lacks = ((name, seen.get(name, UNSEEN)) for name in study.needs)
    found = (f"lacks {name}: {why}" for name, why in lacks if why not in ("", UNSEEN))
    return next(found, "") if node.connected else ""


# Which nodes lack what a study requires, for whoever is about to submit it.
#
# Nodes are asked then and there, and waited for no longer than people like to wait. Nothing
# is made for a study that is not submitted: of its environment only what is known is told.

ANSWER_SECONDS = 3.0


async def wanting(
    head: Head, sessions: NodeSessions, study: Study, *, briefly: bool = False
) -> list[str]:
    """Words on the nodes that cannot run the study's trials; `briefly` if it is not submitted."""
    if not study.needs:
        return []
    for session in sessions.all():
        if session.node not in _serving(head.state, study):
            continue
        seen = head.state.sights.get(session.node, {})
        paths = tuple(path for path in study.paths if path not in seen)
        conda = study.program.conda
        condas = (conda,) if conda and conda_need(conda) not in seen else ()
        if paths or condas:
            session.send(
                wire.command_to_proto(Look(session.node, paths, condas=condas, briefly=briefly))
            )
    sequence = head.committed
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            while _awaited(head.state, study):
                sequence = await head.beyond(sequence)
    return _words(head.state, study)


def _serving(state: State, study: Study) -> list[NodeId]:
    """The nodes of the study's pool that are there: others are not asked."""
    known = state.nodes.values()
    return [node.id for node in known if node.connected and node.pool == study.pool]


def _awaited(state: State, study: Study) -> bool:
    """Whether a node that is there has not answered yet."""
    seen = [state.sights.get(node, {}) for node in _serving(state, study)]
    made = () if study.program.venv is None else (study.program.venv.name,)
    return any(
        each.get(name, UNSEEN) == UNSEEN
        for each in seen
        for name in study.needs
        if name not in made
    )


def _words(state: State, study: Study) -> list[str]:
    venv = study.program.venv
    if venv is not None and not any(venv.name in seen for seen in state.sights.values()):
        study = replace(study, program=replace(study.program, requirements=""))
        return [f"{venv.name} is made on each node once the study is there", *_words(state, study)]
    nodes = _serving(state, study)
    if not study.needs:
        return []
    reasons = {node: lacking(state, study, node) for node in sorted(nodes)}
    lacks = [f"node {node} lacks {reason}" for node, reason in reasons.items() if reason]
    more = [f"and {len(lacks) - NAMED} more nodes"] if len(lacks) > NAMED else []
    if not nodes or len(lacks) < len(nodes):
        return [*lacks[:NAMED], *more]
    none = "no node has all that the study requires: its trials wait"
    return [*lacks[:NAMED], *more, *_own_interpreter(reasons.values(), study), none]


def _own_interpreter(reasons: Iterable[str], study: Study) -> list[str]:
    """Where one is missed, it is the submitter's more often than not."""
    paths = tuple(f"{path}: " for path in study.program.interpreter)
    missed = any(each.startswith(paths) for each in reasons)
    return ["nodes run their own interpreters: name theirs with `python:`"] if missed else []


# What the pool that a study names means for it: refused, noted, or ruled by it.


def of_owner(user: str, study: Study) -> Study:
    """The study as this user's, who may have asked for their own nodes."""
    pool = own_pool(user) if study.pool == OWN_POOL else study.pool
    return replace(study, owner=user, pool=pool)


def check(state: State, study: Study, user: str) -> None:
    """See that there is such a pool for the user, and if it has nodes, one with as many devices as
    a trial needs. Raises Refused, with the nearest."""
    known = {DEFAULT_POOL, OWN_POOL, *state.pools}
    if study.pool not in {*known, own_pool(user)}:
        near = nearest(study.pool, known)
        raise Refused(FieldError("pool", shown(study.pool), one_of(known), near))
    slots = (slot for slot in state.slots.values() if state.serves(slot.device, study))
    there = [slot.device for slot in slots if not state.nodes[slot.device.node].left]
    fitting = [device for device in there if asked_for(study, device)]
    if fitting and too_narrow(study, fitting):
        most, node, kind = widest(fitting)
        expected = f"at most {most}, which {node} has of kind {kind}: a trial has devices of one"
        raise Refused(
            FieldError("resources.devices", str(study.devices), f"{expected} node", str(most))
        )


def policy(state: State, study: Study) -> types.Plugin:
    """What the study is run by."""
    pool = state.pools.get(study.pool)
    return plugin_to_proto((pool.policy if pool else None) or study.policy)


def placement(state: State, study: Study) -> types.Plugin | None:
    """Where its trials are put; None for the plain `free`."""
    pool = state.pools.get(study.pool)
    chosen = (pool.placement if pool else None) or study.placement
    return None if chosen == Plugin("free") else plugin_to_proto(chosen)


def notes(state: State, study: Study) -> Iterator[str]:
    """What is not as the study has it, who may read it, and which devices its pool lacks."""
    yield from _overruled(state, study)
    yield from _unguarded(state, study)
    slots = [slot for slot in state.slots.values() if state.serves(slot.device, study)]
    where = "" if study.pool == DEFAULT_POOL else f" in the pool {study.pool}"
    if not slots and (where or study.device_kind):
        yield f"no device is attached now{where}"
    elif slots and not any(asked_for(study, slot.device) for slot in slots):
        yield f"{unfit(study, [slot.device for slot in slots])}{where}: its trials wait"


def _unguarded(state: State, study: Study) -> Iterator[str]:
    """On which nodes programs of other users run as the same account as the study's."""
    if all(other.owner == study.owner for other in state.studies.values()):
        return
    nodes = [state.nodes[name] for name in _serving(state, study)]
    alike = sorted(node.id for node in nodes if node.runs_as_itself and not node.owner)
    if alike:
        named = ", ".join(alike[:NAMED]) + (" …" if len(alike) > NAMED else "")
        yield f"on {named} other users' programs run as the same account, and can read its files"


def _overruled(state: State, study: Study) -> Iterator[str]:
    """What the study asks for and its pool has decided otherwise."""
    asked, pool = spec_of(study).schedule, state.pools.get(study.pool)
    if pool is None:
        return
    for noun, own, rules in (
        ("policy", asked.policy, pool.policy),
        ("placement", asked.placement, pool.placement),
    ):
        if own.name and rules is not None and plugin_to_proto(rules) != own:
            yield f"schedule.{noun} was not used: the pool {pool.name} has the {noun} {rules.name}"


def see_that_it_is_installed(method: str) -> None:
    """See that what a method needs is in the head's environment. Raises Refused."""
    needs = METHODS[method].needs if method in METHODS else ()
    missing = [name for name in needs if find_spec(name) is None]
    if missing:
        have = [name for name, each in METHODS.items() if all(map(find_spec, each.needs))]
        expected = (
            f"{' and '.join(missing)} to be installed where the head runs (pip install"
            f" {' '.join(missing)}), or one of {', '.join(['grid', 'random', *have])}"
        )
        raise Refused(FieldError("method", method, expected))
