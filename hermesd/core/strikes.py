"""The ledger of failures by place, and how much they weigh: pure functions of it and of a time.

A trial's failure is a strike against its device; its second one, on another device of the same
node, is one against the node. A place with strikes of several trials is suspect, each weighing
half as much after every half-life. What the same study met with elsewhere in the same way tells
nothing of a place, and a trial whose failures proved to be its own takes its strikes back. The same
error of several trials of a study counts once, until one of them has trained past it elsewhere: so
far it may be the study's own. Runs of several devices that are gone at once went with their node.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TypeAlias

from hermesd.core.history import LOST, NOT_FETCHED, UNMET, WRONG_EVERYWHERE, Failure, Strike
from hermesd.core.model import DeviceId, Phase, Place, StudyId, Time, TrialId
from hermesd.core.retrying import RetryAction
from hermesd.core.tables import Tables
from hermesd.core.trial import Trial

# What two trials' failures weigh if the second comes within a half-life of the first.
SUSPECT = 1.5
# The newest of a device: many more than it takes, however often something fails there.
STRIKES_KEPT = 32
DETAIL_LETTERS = 200
_ABOUT_THE_TRIAL = (RetryAction.NOT_HERE, RetryAction.MORE_MEMORY, RetryAction.NO_RETRY)
HALF_LIFE_SECONDS = 3600.0
# A node whose runs are all gone says so of one after the other.
TOGETHER_SECONDS = 60.0


def note(state: Tables, trial: Trial) -> None:
    """Write the failure that ended the trial's last run into the ledger, or clear the places.

    Those of a trial that has failed for good on two devices were its own fault. Of one that ends
    for another reason nothing can be told, nor of an error for which its study has a rule that is
    about the trial, nor of a checkpoint that could not be had from elsewhere: which of two machines
    broke the way between them is not known. Nor of what its study needs of a node and does not find
    there, nor of code or arguments that are wrong everywhere.
    """
    failure = trial.failures[-1]
    if failure.ruled in _ABOUT_THE_TRIAL or failure.restores:
        return
    if failure.error_kind in {NOT_FETCHED, UNMET, *WRONG_EVERYWHERE}:
        return
    if trial.phase.final and trial.phase is not Phase.FAILED:
        return
    places = dict.fromkeys(old.device for old in trial.failures if not old.restores)
    if trial.phase is Phase.FAILED and len(places) > 1:
        kept = {place: _without(state, place, trial.id) for place in places}
    else:
        strike = _strike(trial, failure)
        kept = _with_it(state, failure.device, strike) if strike.error_kind == LOST else {}
        strike = strike._replace(together=bool(kept))
        strikes = (*state.strikes.get(failure.device, ()), strike)
        kept[failure.device] = strikes[-STRIKES_KEPT:]
    state.strikes = {place: each for place, each in {**state.strikes, **kept}.items() if each}


def _without(state: Tables, device: DeviceId, trial: TrialId) -> tuple[Strike, ...]:
    return tuple(strike for strike in state.strikes.get(device, ()) if strike.trial != trial)


def _with_it(state: Tables, device: DeviceId, strike: Strike) -> dict[DeviceId, tuple[Strike, ...]]:
    """The other devices of its node that lost another trial at that time, with what that is now
    known to be: the death of a machine, or of all that ran on it, and of no device."""
    node = state.nodes[state.slots[device].device.node]

    def alike(old: Strike) -> bool:
        at_once = strike.at - old.at <= TOGETHER_SECONDS
        return old.error_kind == LOST and old.trial != strike.trial and at_once

    found = {other: state.strikes.get(other, ()) for other in node.devices if other != device}
    return {
        other: tuple(old._replace(together=True) if alike(old) else old for old in strikes)
        for other, strikes in found.items()
        if any(map(alike, strikes))
    }


def _strike(trial: Trial, failure: Failure) -> Strike:
    detail = one_line(failure.detail)
    mark = failure.signature[:DETAIL_LETTERS] or detail
    return Strike(
        trial.id, trial.spec.study, failure.error_kind, detail, mark, failure.at, failure.step
    )


def one_line(detail: str) -> str:
    """The last line of an error, which says what it was, cut short."""
    return last_line(detail)[:DETAIL_LETTERS]


def last_line(detail: str) -> str:
    """The last line of an error, whole."""
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def got_further(state: Tables, trial: Trial, here: DeviceId, step: float) -> None:
    """Note of a trial that is at `step` on a device, or has ended well there, that it has trained
    past its failures on others."""
    changed = {}
    for place in dict.fromkeys(old.device for old in trial.failures):
        before = state.strikes.get(place, ())
        past = tuple(
            strike._replace(further=here)
            if (strike.trial, strike.further) == (trial.id, "") and strike.step < step
            else strike
            for strike in before
        )
        if place != here and past != before:
            changed[place] = past
    if changed:
        state.strikes = {**state.strikes, **changed}


def struck(state: Tables) -> list[Place]:
    """The devices with strikes, and their nodes."""
    nodes = dict.fromkeys(state.slots[device].device.node for device in state.strikes)
    return [*state.strikes, *nodes]


Met: TypeAlias = Mapping[tuple[StudyId, str], Collection[DeviceId]]


def met(state: Tables) -> Met:
    """The devices on which each study met with each error, by its mark. Who asks about many places
    makes it once: to compare each strike with all others would take a large cluster minutes."""
    found: dict[tuple[StudyId, str], dict[DeviceId, None]] = {}
    for device, strikes in state.strikes.items():
        for strike in strikes:
            if not strike.together:
                found.setdefault((strike.study, strike.mark), {})[device] = None
    return found


def against(state: Tables, place: Place, where_met: Met) -> dict[TrialId, Strike]:
    """The strikes that count against a place: the latest of each trial, or of several for one."""
    if place in state.slots:
        here = [(place, strike) for strike in state.strikes.get(place, ())]
    else:
        devices = (d for d in state.strikes if state.slots[d].device.node == place)
        here = [(device, strike) for device in devices for strike in state.strikes[device]]
    here = [(device, strike) for device, strike in here if not strike.together]
    latest: dict[TrialId, Strike] = {}
    where: dict[TrialId, set[DeviceId]] = {}
    for device, strike in here:
        if _elsewhere(state, place, where_met[strike.study, strike.mark]):
            continue
        where.setdefault(strike.trial, set()).add(device)
        known = latest.get(strike.trial)
        if known is None or known.at <= strike.at:
            latest[strike.trial] = strike
    fewest = 1 if place in state.slots else 2
    proven = {_error(strike) for _, strike in here if _left_behind(state, place, strike)}
    counted: dict[object, Strike] = {}
    for trial, strike in latest.items():
        if len(where[trial]) >= fewest:
            one = trial if _error(strike) in proven else _error(strike)
            if one not in counted or counted[one].at <= strike.at:
                counted[one] = strike
    return {strike.trial: strike for strike in counted.values()}


def _error(strike: Strike) -> tuple[str, str, str]:
    """What makes strikes the same error: of one study, of one kind, with one mark."""
    return (strike.study, strike.error_kind, strike.mark)


def _left_behind(state: Tables, place: Place, strike: Strike) -> bool:
    """Whether the trial has trained past its failure away from the place."""
    if not strike.further:
        return False
    return place in state.slots or state.slots[strike.further].device.node != place


def _elsewhere(state: Tables, place: Place, met_on: Collection[DeviceId]) -> bool:
    """Whether the study met with the same on another node; on the only one, on another device."""
    if len(state.nodes) == 1 and place in state.slots:
        return any(device != place for device in met_on)
    node = state.slots[place].device.node if place in state.slots else place
    return any(state.slots[device].device.node != node for device in met_on)


def weight(strikes: dict[TrialId, Strike], now: Time, half_life_seconds: float) -> float:
    """How much strikes weigh by now: a fresh one of each trial counts 1."""
    return math.fsum(2.0 ** (-(now - each.at) / half_life_seconds) for each in strikes.values())


def lasting(weight: float, half_life_seconds: float) -> float:
    """Seconds until strikes of this weight weigh no more than a single fresh one."""
    return half_life_seconds * math.log2(weight) if weight > 1.0 else 0.0
