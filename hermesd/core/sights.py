"""Whether nodes have the paths that studies require.

Rule: nodes are asked once for each life of theirs, and say by themselves when something changes;
until a node has answered it lacks the path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermesd.core.commands import Look
from hermesd.core.file_events import Looked
from hermesd.core.model import NodeId, Study
from hermesd.core.tables import Tables

if TYPE_CHECKING:
    from hermesd.core.assignment import Issue

UNSEEN = "not looked at yet"
# Previews ask for paths, too: of more than so many those are forgotten that no study requires.
PATHS_LIMIT = 1_000


def lacking(state: Tables, study: Study, node: NodeId) -> str:
    """The first required path that a node lacks, and why; "" if it has them all."""
    seen = state.sights.get(node, {})
    for path in study.required_paths:
        if reason := seen.get(path, UNSEEN):
            return f"{path}: {reason}"
    return ""


def look(state: Tables, issue: Issue) -> None:
    """Ask the nodes that are there for what they were not asked for yet."""
    wanted = _required(state)
    for node in state.nodes.values() if wanted else ():
        seen = state.sights.get(node.id, {})
        if node.connected and not wanted.keys() <= seen.keys():
            issue(Look(node.id, tuple(path for path in wanted if path not in seen)))


def _required(state: Tables) -> dict[str, None]:
    required = (s.required_paths for s in state.studies.values() if s.required_paths)
    return dict.fromkeys(path for paths in required for path in paths)


def fold_look(state: Tables, entry: Look | Looked) -> None:
    """What was asked for, or seen."""
    node = state.node(entry.node).id
    before = state.sights.get(node, {})
    match entry:
        case Look(_, paths):
            fresh = dict.fromkeys(paths, UNSEEN)
        case Looked(_, sights):
            fresh = dict(sights)
    required = _required(state)
    known = {path: reason for path, reason in before.items() if path in required}
    state.sights[node] = (known if len(before | fresh) > PATHS_LIMIT else before) | fresh
    changed = {path for path, reason in fresh.items() if before.get(path) != reason}
    for study_id, active in state.active.items():
        if not changed.isdisjoint(state.studies[study_id].required_paths):
            state.touch_all(list(active))
