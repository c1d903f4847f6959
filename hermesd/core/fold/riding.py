"""Trials that ride on another one, which trains for all that are alike so far and do the same next.

One of them, the carrier, is a candidate for devices. The others get what it has reached at the end
of each quantum. Where a rider's path parts from its carrier's, the carrier writes a checkpoint in
passing (see `Work.forks`). The rider goes on from there, or rides on another trial that parts at
the same place. If that checkpoint is gone, the rider trains what it lacks, from the furthest
checkpoint of any trial like it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from hermesd.core import progress
from hermesd.core.fast_replace import replace
from hermesd.core.model import FORK_IN_NAME, Checkpoint, Fidelity, Phase, Time, TrialId, TrialSpec
from hermesd.core.tables import Tables
from hermesd.core.tree import parting, path_of, turns
from hermesd.core.trial import Ending, Trial, remembered

# What trials that are alike so far have in common.
_SHARED = (
    "step", "planned_steps", "likely_steps", "passes", "curve", "metrics", "quanta", "first",
    "before", "latest", "current", "milestone_percent", "milestones_passed", "not_finite",
    "fidelity", "fidelity_reason", "framework", "step_seconds", "paces", "costs",
)  # fmt: skip


def settle(state: Tables, now: Time) -> None:
    """Bring all in line with the trials that have changed."""
    moved = state.riding.moved
    while moved:
        trial_id = next(iter(moved))
        del moved[trial_id]
        trial = state.trials.get(trial_id)
        if trial is None or not trial.spec.root:
            continue
        if not _is_steady(state, trial):
            for rider in _riders(state, trial):
                _carry(state, trial, rider, now)
        if trial.carrier is not None:
            _carry(state, state.trials[trial.carrier], trial, now)
        elif trial.phase is Phase.WAITING and not trial.paused:
            _stand(state, trial, seeks=not trial.step)
            if state.trials[trial_id].carrier is None:
                _call(state, state.trials[trial_id])


def _is_steady(state: Tables, trial: Trial) -> bool:
    """Whether a trial trains amid a quantum, and has not come to where a rider parts from it."""
    if not trial.phase.on_device or trial.candidate or not _carries(trial, trial.step):
        return False
    parts = state.riding.riders.get(trial.id, {}).values()
    return all(each is None or each >= trial.step for each in parts)


def leave_at(state: Tables, carrier: Trial, checkpoint: Checkpoint) -> None:
    """A carrier has written a checkpoint: the riders that part there go on from it."""
    for rider in _riders(state, carrier):
        parts = state.riding.riders[carrier.id][rider.id]
        if parts == checkpoint.step and _serves(state, checkpoint, rider):
            _place(state, _begun(rider, carrier, checkpoint))


def furthest(state: Tables, rider: Trial) -> Checkpoint | None:
    """The checkpoint of another from which a rider would go on by itself now; None if none has come
    further than its own."""
    found = _furthest(state, progress.rewound(replace(rider, carrier=None)))
    return found[1] if found else None


def redrawn(state: Tables, trial: Trial, spec: TrialSpec) -> None:
    """A trial that has not begun is another one: what others have trained for it is of no use."""
    for rider in _riders(state, trial):
        state.put(progress.rewound(replace(rider, carrier=None)))
    fresh = Trial(spec, trial.submitted, trial.rested, paused=trial.paused)
    fresh = replace(fresh, maximized=trial.maximized, tags=trial.tags, note=trial.note)
    state.put(fresh)


def _riders(state: Tables, carrier: Trial) -> list[Trial]:
    riders = [state.trials[each] for each in state.riding.riders.get(carrier.id, ())]
    return sorted(riders, key=_rank)


def _rank(trial: Trial) -> tuple[Any, ...]:
    """Who is to carry those that are alike: the least of them."""
    on_device = trial.phase.on_device
    return not on_device, -trial.step, trial.submitted, trial.spec.number, trial.id


def _carry(state: Tables, carrier: Trial, rider: Trial, now: Time) -> None:
    """What has become of a rider by what has become of its carrier."""
    parts = state.riding.riders[carrier.id][rider.id]
    limit = math.inf if parts is None else parts
    begin = (carrier.forked,) if carrier.awaits_fork and carrier.forked else ()
    known = (each for each in (*remembered(carrier), *begin) if _serves(state, each, rider))
    there = next((each for each in known if each.step == parts), None)
    if there is not None and carrier.step < limit and not _is_there(state, there):
        there = (
            None  # its carrier fell back behind it: it would come back to ride, and be sent again
        )
    if carrier.carrier is not None:
        _dismount(state, rider)
    elif carrier.phase is Phase.COMPLETED and limit >= carrier.step:
        _end_alike(state, carrier, rider, Ending(Phase.COMPLETED, _same(carrier)), now)
    elif there is not None:
        _place(state, _begun(rider, carrier, there))
    elif carrier.phase is Phase.STOPPED and limit >= carrier.step:
        study = state.studies[rider.spec.study]
        if reason := progress.stop_reason(_as(rider, carrier), study):
            _end_alike(state, carrier, rider, Ending(Phase.STOPPED, reason), now)
        else:
            _dismount(state, rider)
    elif carrier.phase is Phase.FAILED and (other := _failed_alike(state, carrier, rider)):
        reason = f"as {other.id} and {carrier.id} before it: {carrier.reason}"
        state.put(progress.ended(replace(rider, carrier=None), now, Ending(Phase.FAILED, reason)))
    elif carrier.phase.final or carrier.step > limit or not _carries(carrier, parts):
        _dismount(state, rider)
    elif (carrier.phase is Phase.WAITING or carrier.candidate) and (
        same := _as(rider, carrier)
    ) != rider:
        state.put(same)


def _serves(state: Tables, checkpoint: Checkpoint, trial: Trial) -> bool:
    """Whether a trial may go on from a checkpoint of another. An image has all that its user gave
    the program, so it is for trials of that user alone, and only if it was taken for them: another
    may be of a program amid an iteration, where nothing can be set."""
    if not checkpoint.image_of:
        return True
    its = state.trials.get(checkpoint.trial)
    is_own = its is not None and state.owner_of(its) == state.owner_of(trial)
    return is_own and (checkpoint.is_fork or FORK_IN_NAME in checkpoint.id.rpartition("@")[2])


def _same(carrier: Trial) -> str:
    return f"{carrier.id} is the same, and was trained for both"


def _carries(trial: Trial, parts: int | None) -> bool:
    """Whether one that parts there may ride on a trial, as far as the trial is concerned."""
    if trial.paused and not trial.phase.on_device:
        return False
    return parts is None or trial.fidelity is Fidelity.UNKNOWN or trial.fidelity.restorable


def _as(trial: Trial, other: Trial) -> Trial:
    """The trial with what another has come to, which has done all the same."""
    return replace(trial, **{name: getattr(other, name) for name in _SHARED})


def _warned(trial: Trial, other: Trial, until: float) -> Trial:
    """The trial with what another, which has done the same until some step, has learned there of
    the memory that this takes."""
    new = [old for old in other.warnings if old.starved and old.step < until]
    return replace(trial, lent=tuple(dict.fromkeys((*trial.lent, *new)))) if new else trial


def _begun(trial: Trial, parent: Trial, checkpoint: Checkpoint) -> Trial:
    """The trial where it is to go on from a checkpoint of another."""
    trial = progress.back_at(_as(trial, parent), checkpoint.step)
    trial = _warned(trial, parent, checkpoint.step)
    fresh: dict[str, Any] = {
        "carrier": None, "forked": checkpoint, "checkpoint": None, "copied": None, "copying": None,
        "copy_after": 0.0, "carried_steps": checkpoint.step,
    }  # fmt: skip
    return replace(trial, **fresh)


def _end_alike(state: Tables, carrier: Trial, rider: Trial, ending: Ending, now: Time) -> None:
    """A rider has come to its end with its carrier. Asked to go on, it goes on from there."""
    same = replace(_as(rider, carrier), carrier=None, carried_steps=carrier.step)
    last = carrier.checkpoint
    begin = last if last is not None and _serves(state, last, rider) else None
    state.put(progress.ended(replace(same, forked=begin), now, ending))


def _failed_alike(state: Tables, carrier: Trial, rider: Trial) -> Trial | None:
    """Another that had failed for good as its carrier has, at the same step of what it does: all
    of one user, as nobody is to fail by what programs of others say."""
    last = carrier.failures[-1] if carrier.failures else None
    if not last or not last.programs or state.owner_of(carrier) != state.owner_of(rider):
        return None
    for each in sorted(state.riding.failed.get(rider.spec.root, ())):
        other = state.trials[each]
        if each == carrier.id or state.owner_of(other) != state.owner_of(rider):
            continue
        before = other.failures[-1]
        if (before.signature, before.step) != (last.signature, last.step):
            continue
        parts = parting(path_of(other.spec), path_of(rider.spec))
        if parts is None or parts >= last.step:
            return other
    return None


def _call(state: Tables, trial: Trial) -> None:
    """Others that wait by themselves may ride on this one from now on."""
    mine = path_of(trial.spec)
    for each in sorted(_leading(state, trial)):
        other = state.trials[each]
        if each == trial.id or other.phase is not Phase.WAITING or other.paused:
            continue
        parts = parting(mine, path_of(other.spec))
        if parts is None or parts > max(trial.step, other.step):
            _place(state, other)


def _dismount(state: Tables, rider: Trial) -> None:
    """A rider is by itself again, with what it has of its own."""
    carrier = state.trials.get(rider.carrier) if rider.carrier is not None else None
    if carrier is not None and carrier.phase is not Phase.FAILED:  # one more is to try that
        parts = state.riding.riders.get(carrier.id, {}).get(rider.id)
        rider = _warned(rider, carrier, math.inf if parts is None else parts)
    _stand(state, progress.rewound(replace(rider, carrier=None)), seeks=True)


def _stand(state: Tables, trial: Trial, seeks: bool) -> None:
    """See to one that waits and rides on nobody; if it `seeks` what others have done of what it is
    to do, it goes on from the furthest checkpoint of that."""
    if trial.awaits_fork and trial.forked is not None:
        parent = state.trials.get(trial.forked.trial)
        if _is_there(state, trial.forked):
            if trial.step != trial.forked.step and parent is not None:  # what it had is lost
                _place(state, _begun(trial, parent, trial.forked))
            return
        trial, seeks = progress.rewound(replace(trial, forked=None, copying=None)), True
    found = _furthest(state, trial) if seeks and trial.kept is None else None
    _place(state, _begun(trial, *found) if found else trial)


def _furthest(state: Tables, trial: Trial) -> tuple[Trial, Checkpoint] | None:
    """The furthest checkpoint of what a trial is to do, and whose it is; the same in whatever order
    the trials are looked at."""
    path = path_of(trial.spec)
    limit = math.inf
    # What was written behind a turn comes before all that was written up to it.
    for step, mark in (*reversed(turns(path)), (0, 0)):
        saved = state.riding.saved.get((trial.spec.root, mark), ())
        for place in range(bisect_left(saved, (-limit,)), len(saved)):
            back, name, whose = saved[place]
            if -back <= trial.step:
                return None
            other = state.trials[whose]
            if whose == trial.id or not other.fidelity.restorable or name in trial.refused:
                continue
            parts = parting(path_of(other.spec), path)
            if parts is not None and parts < -back:
                continue
            # What it began from may be there still, where it parted from others.
            for known in (*remembered(other), *([other.forked] if other.forked else [])):
                useful = (-known.step, known.id) == (back, name) and known.trial != trial.id
                if useful and _serves(state, known, trial) and _is_there(state, known):
                    return other, known
        limit = step
    return None


def _is_there(state: Tables, checkpoint: Checkpoint) -> bool:
    known = (state.nodes.get(node) for node in checkpoint.nodes)
    return any(node is not None and not node.lost for node in known)


def _place(state: Tables, trial: Trial) -> None:
    """Have one that waits ride on the one that does the same, if there is one."""
    carrier: Trial | None = None
    for each in _leading(state, trial):
        other = state.trials[each]
        if each == trial.id or other.ending is not None or _rank(other) > _rank(carrier or trial):
            continue
        parts = parting(path_of(other.spec), path_of(trial.spec))
        if (parts is None or parts > max(other.step, trial.step)) and _carries(other, parts):
            carrier = other
    if carrier is not None:
        trial = _boarded(state, trial, carrier)
    if trial != state.trials.get(trial.id):
        state.put(trial)


def _leading(state: Tables, trial: Trial) -> Iterator[TrialId]:
    """Those that ride on nobody, but for most that cannot be alike with a trial so far."""
    for mark in (0, *(mark for _, mark in turns(path_of(trial.spec)))):
        yield from state.riding.leading.get((trial.spec.root, mark), ())


def _boarded(state: Tables, trial: Trial, carrier: Trial) -> Trial:
    """The trial as a rider: it needs no process of its own, nor a device."""
    if trial.kept is not None and (node := state.parked_on(trial)) is not None:
        state.strays[node, trial.kept.run] = None
    if (device := state.reserved.get(trial.id)) is not None:
        state.put_slot(replace(state.slots[device], reserved=None))
    afoot: dict[str, Any] = {"forked": None, "kept": None, "copying": None, "home": None}
    return replace(_as(trial, carrier), carrier=carrier.id, **afoot)
