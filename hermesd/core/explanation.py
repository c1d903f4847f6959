"""Why a trial runs or waits, in words for people: its policy's, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hermesd.core.draining import stuck
from hermesd.core.model import Device, NodeId, Phase, Place, StudyId, Time, TrialId, UserId
from hermesd.core.obstacles import crowded, no_devices, silence, stalled
from hermesd.core.placement import asked_for, avoided, cramped, starved
from hermesd.core.queue import Standing
from hermesd.core.queues import Queues, Unanswered
from hermesd.core.quotas import Quotas
from hermesd.core.relocation import arriving
from hermesd.core.sights import lacking
from hermesd.core.speeds import rate
from hermesd.core.state import State
from hermesd.core.strikes import one_line
from hermesd.core.trial import Trial

PAUSED = "paused by a person"


class Explanation(NamedTuple):
    """Why a trial runs or waits."""

    summary: str
    ranking: tuple[tuple[TrialId, str, Phase], ...]
    last_decision: str
    policy: str
    left_out: tuple[LeftOut, ...] = ()


class LeftOut(NamedTuple):
    """A place that a trial does not get as long as it could run elsewhere; `until` if known."""

    place: Place
    reason: str
    until: Time | None = None


class Question(NamedTuple):
    """Which trial, who asks, what was last decided of it, and whether it waits for its machine.

    `losses` says of silent nodes when they count as lost, if nothing is heard of them.
    """

    trial: TrialId
    asker: UserId
    last_decision: str
    waits: bool
    now: Time
    losses: Mapping[NodeId, Time]


def explain(state: State, queues: Queues, asked: Question) -> Explanation:
    """The answer, as things are."""
    trial = state.trials[asked.trial]
    study_id = trial.spec.study
    policy = state.policy_of(study_id).name
    ranking, trouble = _ranking(state, queues, study_id, asked.now)
    place = next((i for i, each in enumerate(ranking, 1) if each.trial.id == trial.id), None)
    if trial.phase.final:
        summary = f"{trial.id} is {trial.phase}: {trial.reason or 'the program ended well'}"
    elif trial.paused:
        summary = f"{trial.id} is {PAUSED}"
    elif asked.waits:
        wait, times = max(0.0, trial.not_before - asked.now), trial.misfortunes
        summary = (
            f"{trial.id} is tried again in {wait:.0f} s: {times} times in a row it was its"
            f" machine's fault ({trial.reason})"
        )
    elif (held := stuck(state, trial)) is not None:
        node, why = held
        summary = (
            f"{trial.id} waits for node {node}, which {why}: it is parked there, and no"
            " checkpoint would bring it back elsewhere"
        )
    else:
        where = f" on {trial.run.devices[0]}" if trial.run else ""
        summary = f"{trial.id} is {trial.phase}{where}"
        if place is not None and ranking[place - 1].left_out:
            summary += f"; {policy} leaves it out of its plan: {ranking[place - 1].words}"
        elif place is not None:
            words = ranking[place - 1].words
            summary += f"; {policy} ranks it {place} of {len(ranking)}: {words}"
        elif not trouble:
            summary += f"; {policy} does not rank it"
        summary += _speed(state, trial)
        if trial.phase is Phase.WAITING and Quotas(state).full(trial):
            summary += f"; it waits: {_quota(state, trial, asked.asker)} is in use"
        elif trial.phase is Phase.WAITING:
            summary += _turns(state, trial, asked) + _where_parked(state, queues, trial)
        summary += trouble + no_devices(state, trial)
        summary += stalled(trial, asked.now) + silence(state, trial, asked.losses, asked.now)
    if not trial.phase.final and (crowd := crowded(state, trial)):
        summary += f"; {crowd}"
    rows = tuple(
        (each.trial.id, f"{'left out: ' * each.left_out}{each.words}", each.trial.phase)
        for each in ranking
    )
    left_out = () if trial.phase.final else tuple(_left_out(state, trial))
    return Explanation(summary, rows, asked.last_decision, policy, left_out)


def _turns(state: State, trial: Trial, asked: Question) -> str:
    """How its user stands beside others who want devices; nothing where there are none."""
    owners = {study.owner for study in state.studies.values() if state.active[study.id]}
    if len(owners) < 2:
        return ""
    owner = state.owner_of(trial)
    used = {each: state.used_by(each, asked.now) / state.terms_of(each).weight for each in owners}
    ahead = sum(use < used[owner] for use in used.values())
    if not ahead:
        return ""  # it is their turn
    whose = "you" if asked.asker == owner else owner
    return f"; users take turns: {ahead} of {len(owners)} used less for their weight than {whose}"


def _speed(state: State, trial: Trial) -> str:
    """How fast it is on its device, and on the fastest, where it matters on which it is."""
    study = state.studies[trial.spec.study]
    speeds = state.speeds(study.id)
    if trial.run is None or not speeds.unequal:
        return ""
    here = state.slots[trial.run.devices[0]].device
    others = (slot.device for slot in state.slots.values() if slot.sound)
    others = (each for each in others if state.serves(each, study) and asked_for(study, each))
    rates = {each.id: known for each in others if (known := rate(speeds, trial, each))}
    if here.id not in rates:
        return ""
    words = f"; {here.id} does {rates[here.id]:.3g} of its steps a second"
    if (correction := speeds.correction(here.id)) != 1.0:
        words += f", {correction:.0%} of what its kind does"
    fastest = min(rates, key=lambda device: (-rates[device], device))
    if rates[fastest] <= rates[here.id]:
        return words
    return f"{words}, and {fastest}, the fastest, {rates[fastest]:.3g}"


def _where_parked(state: State, queues: Queues, trial: Trial) -> str:
    """Why the trial does not go on on a free device, if its process is on another node."""
    node, kept = state.parked_on(trial), trial.kept
    if node is None or kept is None:
        return ""
    if arriving(state, trial):
        return f"; it is being written down on {node}, to go on elsewhere"
    others = (each for each in state.free if state.slots[each].device.node != node)
    if not any(queues.could_take(trial, device) for device in others):
        return ""
    if not trial.fidelity.restorable:
        return f"; it is parked on {node}, and no checkpoint would bring it back elsewhere"
    return f"; it is parked on {node}, which could not write it down" if kept.unwritable else ""


def _quota(state: State, trial: Trial, asker: UserId) -> str:
    owner = state.owner_of(trial)
    most = state.terms_of(owner).max_devices
    devices = "device" if most == 1 else "devices"
    whose = "your" if asker == owner else f"{owner}'s"
    return f"{whose} quota of {most} {devices}"


def _left_out(state: State, trial: Trial) -> Iterator[LeftOut]:
    """The places that are kept from the trial, each once, and what it did there itself."""
    told: set[Place] = set()
    study = state.studies[trial.spec.study]
    for device, slot in sorted(state.slots.items()):
        if not avoided(state, trial, device) or state.nodes[slot.device.node].left:
            continue
        lack = lacking(state, study, slot.device.node)
        if lack and not state.serves(slot.device, study):
            continue  # its node was not asked
        if lack and slot.device.node not in told:
            told.add(slot.device.node)
            yield LeftOut(slot.device.node, f"it lacks what the study requires: {lack}")
        for place in (slot.device.node, device):
            kept = state.quarantined.get(place)
            if kept is not None and place not in told:
                told.add(place)
                yield LeftOut(place, kept.reason, kept.until)
        why = state.excluded.get((trial.spec.study, slot.device.node))
        if why is not None and slot.device.node not in told:
            told.add(slot.device.node)
            yield LeftOut(slot.device.node, why.reason)
        if failed := [old for old in trial.failures if old.device == device and not old.restores]:
            yield LeftOut(device, f"it failed there: {one_line(failed[-1].detail)}")
        elif why_small := _too_small(state, trial, slot.device):
            yield LeftOut(device, why_small)
        elif slot.device.node not in told and device not in told:
            told.add(slot.device.node)
            yield LeftOut(slot.device.node, "it failed on several of its devices")


def _too_small(state: State, trial: Trial, device: Device) -> str:
    """Why the trial wants a device of more memory, if it does."""
    if cramped(trial, device):
        return "it was seen to take more memory than there is"
    if any(starved(state, trial, device)):
        return "it ran out of memory where there was as much"
    return ""


def _ranking(
    state: State, queues: Queues, study_id: StudyId, now: Time
) -> tuple[list[Standing], str]:
    """The study's trials in the order of its policy, and what to say if that raises."""
    try:
        return queues.peek(study_id, lambda queue: list(queue.ranking(now))), ""
    except Unanswered as error:
        name = state.policy_of(study_id).name
        return [], f"; {name} raised when it was asked for its ranking: {error}"
