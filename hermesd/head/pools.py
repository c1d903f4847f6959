"""What the pool that a study names means for it: refused, noted, or ruled by it."""

from __future__ import annotations

from collections.abc import Iterator

from hermesd.core.model import DEFAULT_POOL, Plugin, Study
from hermesd.core.obstacles import unfit
from hermesd.core.placement import asked_for
from hermesd.core.state import State
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.refusal import FieldError, Refused, nearest, one_of, shown
from hermesd.study import spec_of
from hermesd.wire.nouns import plugin_to_proto


def check(state: State, study: Study) -> None:
    """See that there is such a pool. Raises Refused, with the nearest."""
    known = {DEFAULT_POOL, *state.pools}
    if study.pool not in known:
        near = nearest(study.pool, known)
        raise Refused(FieldError("pool", shown(study.pool), one_of(known), near))


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
    """What is not as the study has it, and which devices its pool lacks."""
    yield from _overruled(state, study)
    slots = [slot for slot in state.slots.values() if state.serves(slot.device, study)]
    where = "" if study.pool == DEFAULT_POOL else f" in the pool {study.pool}"
    if not slots and (where or study.device_kind):
        yield f"no device is attached now{where}"
    elif slots and not any(asked_for(study, slot.device) for slot in slots):
        yield f"{unfit(study, [slot.device for slot in slots])}{where}: its trials wait"


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
