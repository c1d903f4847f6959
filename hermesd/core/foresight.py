"""Who runs next, as things are: what nodes prepare for while others train.

Nothing depends on it being right. Studies take turns here, which is how devices come to be shared
among them; the trials of one come in its policy's order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain, zip_longest

from hermesd.core.model import NodeId, Phase, StudyId, Time, TrialId
from hermesd.core.node_messages import Upcoming
from hermesd.core.pools import PoolId
from hermesd.core.queues import Queues
from hermesd.core.state import State
from hermesd.core.trial import Trial

# How many more than there are devices are looked at: the others will wait long.
AHEAD = 64


def upcoming(state: State, queues: Queues, now: Time) -> dict[NodeId, Upcoming]:
    """For each node, the waiting trials that it keeps, the one that will run soonest first.

    A trial has the next turn if it is among the first of its pool, one for each device, or the
    first of those that wait for its home.
    """
    leaving = {node.id for node in state.nodes.values() if node.leaving}
    sound = [s.device.node for s in state.slots.values() if s.sound]
    devices = Counter(state.nodes[node].pool for node in sound if node not in leaving)
    seen: Counter[PoolId] = Counter()
    orders = [
        _order(queues, study.id, devices[study.pool] + AHEAD, now)
        for study in state.studies.values()
    ]
    first: dict[NodeId, list[TrialId]] = defaultdict(list)
    later: dict[NodeId, list[TrialId]] = defaultdict(list)
    homes = set()
    for trial_id in chain.from_iterable(zip_longest(*orders)):
        trial = state.trials.get(trial_id) if trial_id is not None else None
        if trial is None or trial.phase is not Phase.WAITING:
            continue
        pool = state.studies[trial.spec.study].pool
        if queues.placement(trial.spec.study).binds:
            has_turn = trial.home not in homes
            homes.add(trial.home)
        else:
            has_turn = seen[pool] < devices[pool]
        seen[pool] += 1
        if (node := _keeper(state, trial)) is not None and node not in leaving:
            (first if has_turn else later)[node].append(trial.id)
    return {node: Upcoming((*first[node], *later[node]), len(first[node])) for node in state.nodes}


def _order(queues: Queues, study: StudyId, count: int, now: Time) -> list[TrialId]:
    def ready(trial: Trial) -> bool:
        return trial.candidate and trial.not_before <= now

    return queues.peek(study, lambda queue: queue.order(count, (), ready, now)) or []


def _keeper(state: State, trial: Trial) -> NodeId | None:
    """The node that has the trial in memory or, as far as is known, its files."""
    slot = state.slots.get(trial.kept.device) if trial.kept is not None else None
    return slot.device.node if slot is not None else None
