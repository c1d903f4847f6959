"""Which nodes lack what a study requires, for whoever is about to submit it.

Rule: nodes are asked then and there, and waited for no longer than people like to wait. Nothing is
made for a study that is not submitted: of its environment only what is known is told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace

from hermesd import wire
from hermesd.core.commands import Look
from hermesd.core.model import NodeId, Study
from hermesd.core.program import conda_need
from hermesd.core.sights import UNSEEN, lacking
from hermesd.core.state import State
from hermesd.head.loop import Head
from hermesd.head.sessions import Sessions

ANSWER_SECONDS = 3.0
NAMED = 5


async def wanting(
    head: Head, sessions: Sessions, study: Study, *, briefly: bool = False
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
    more = [f"and {len(lacks) - NAMED} nodes more"] if len(lacks) > NAMED else []
    if not nodes or len(lacks) < len(nodes):
        return [*lacks[:NAMED], *more]
    none = "no node has all that the study requires: its trials wait"
    return [*lacks[:NAMED], *more, *_own_interpreter(reasons.values(), study), none]


def _own_interpreter(reasons: Iterable[str], study: Study) -> list[str]:
    """Where one is missed, it is the submitter's more often than not."""
    paths = tuple(f"{path}: " for path in study.program.interpreter)
    missed = any(each.startswith(paths) for each in reasons)
    return ["nodes run their own interpreters: name theirs with `python:`"] if missed else []
