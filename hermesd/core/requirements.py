"""Whether nodes have the paths, interpreters and environments that studies require.

A node is asked once after each of its starts, and reports changes by itself. Until it has answered,
it counts as lacking what it was asked for; it says when it has stopped looking at something. A node
is asked only for what unfinished studies of its pool require, since making an environment runs code
of its authors and takes disk space.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from hermesd.core.commands import Look
from hermesd.core.events import Looked
from hermesd.core.model import NodeId, PoolId, Study, Venv, conda_need
from hermesd.core.tables import Tables

if TYPE_CHECKING:
    from hermesd.core.commands import Issue

UNSEEN = "not looked at yet"
# Previews ask for paths, too: of more than so many those are forgotten that no study requires.
PATHS_LIMIT = 1_000


def lacking(state: Tables, study: Study, node: NodeId) -> str:
    """The first of what a study requires that a node lacks, and why; "" if it has it all."""
    seen = state.sights.get(node, {})
    for name in study.needs:
        if reason := seen.get(name, UNSEEN):
            return f"{name}: {reason}"
    return ""


def lacks(state: Tables, node: NodeId, of: Container[str] | None = None) -> list[str]:
    """What a node said that it lacks, and why; of all that it was asked for, or of these."""
    seen = state.sights.get(node, {}).items()
    return [f"{name}: {why}" for name, why in seen if why and (of is None or name in of)]


def look(state: Tables, issue: Issue) -> None:
    """Ask the nodes that are there for what they were not asked for yet."""
    going_on = (state.studies[study] for study, active in state.active.items() if active)
    pools = dict.fromkeys(study.pool for study in going_on if study.needs)
    required = {pool: _required(state, pool) for pool in pools}
    for node in state.nodes.values() if required else ():
        seen, wanted = state.sights.get(node.id, {}), required.get(node.pool, {})
        if node.connected and not wanted.keys() <= seen.keys():
            new = {name: made for name, made in wanted.items() if name not in seen}
            paths = tuple(name for name, made in new.items() if made is None)
            venvs = tuple(made for made in new.values() if isinstance(made, Venv))
            condas = tuple(made for made in new.values() if isinstance(made, str))
            issue(Look(node.id, paths, venvs, condas))


def _required(state: Tables, pool: PoolId) -> dict[str, Venv | str | None]:
    """What unfinished studies of a pool require, by what it is called: None for a path, what a
    virtual environment is made of, the name that conda has for one of its own."""
    going_on = (state.studies[study] for study, active in state.active.items() if active)
    needy = [study for study in going_on if study.needs and study.pool == pool]
    required: dict[str, Venv | str | None] = {}
    for study in needy:
        required.update(dict.fromkeys(study.paths))
        if name := study.program.environment_need:
            required[name] = study.program.conda or study.program.venv
    return required


def fold_look(state: Tables, entry: Look | Looked) -> None:
    """What was asked for, or seen."""
    node = state.node(entry.node).id
    before = state.sights.get(node, {})
    match entry:
        case Look(_, paths, venvs, condas):
            made = (*(venv.name for venv in venvs), *map(conda_need, condas))
            fresh = dict.fromkeys((*paths, *made), UNSEEN)
        case Looked(_, sights):
            fresh = dict(sights)
    gone = [name for name, why in fresh.items() if why == UNSEEN and isinstance(entry, Looked)]
    required = _required(state, state.nodes[node].pool)
    known = {path: reason for path, reason in before.items() if path in required}
    state.sights[node] = (known if len(before | fresh) > PATHS_LIMIT else before) | fresh
    for name in gone:
        del state.sights[node][name]
