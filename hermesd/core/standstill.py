"""Whether a study stands still by its policy's own will, which is seldom what its author meant.

Rule: only a policy that plans can leave trials out, and one that has something running may well
wait for that: it is told of when nothing of its study is on a device.
"""

from __future__ import annotations

from itertools import islice

from hermesd.core.model import DeviceId, Phase, StudyId, Time
from hermesd.core.queues import Queues, Unanswered
from hermesd.core.quotas import Quotas
from hermesd.core.state import State

# So many trials are tried on each free device: those of a study want much the same.
TRIED = 8


def left_idle(state: State, queues: Queues, study: StudyId, now: Time) -> tuple[DeviceId, ...]:
    """The free devices that trials of the study wait for in vain, as its plan claims none of them.

    Of a state that was decided about; empty where something else keeps the trials waiting.
    """
    trials = [state.trials[trial] for trial in state.active[study]]
    if not state.free or any(trial.run is not None for trial in trials):
        return ()
    try:
        if not queues.peek(study, lambda queue: queue.plans):
            return ()
    except Unanswered:
        return ()
    quotas = Quotas(state)
    ready = (
        trial
        for trial in trials
        if trial.phase is Phase.WAITING
        and trial.candidate
        and trial.not_before <= now
        and trial.id not in state.reserved
        and not quotas.full(trial)
    )
    tried = list(islice(ready, TRIED))
    return tuple(
        device
        for device in sorted(state.free)
        if state.slots[device].reserved is None
        and any(queues.fits(trial, device) for trial in tried)
    )
