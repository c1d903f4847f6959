"""Why a trial runs or waits, in words for people: its policy's, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from hermesd.core.decide.gangs import has_room, widest
from hermesd.core.decide.queue import PolicyStanding, Queues, Unanswered
from hermesd.core.decide.relocation import arriving, stuck
from hermesd.core.decide.resizing import WORTH
from hermesd.core.failures import one_line
from hermesd.core.model import (
    DEFAULT_POOL,
    Device,
    DeviceId,
    Node,
    NodeId,
    Phase,
    Place,
    Slot,
    Study,
    StudyId,
    Tier,
    Time,
    TrialId,
    UserId,
    is_own,
)
from hermesd.core.placement import (
    asked_for,
    avoided,
    can_go_on,
    image_obstacle,
    narrowest,
    needs_more_memory,
    out_of_memory_failures,
    why_no_wider,
)
from hermesd.core.quotas import DeviceQuotas
from hermesd.core.requirements import lacking
from hermesd.core.resume_points import goes_on_from_image, has_own_beginning
from hermesd.core.speeds import rate
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.core.widths import is_of_any_width, resize_seconds

# What keeps a trial from going on although its policy would have it: machines, in words.
#
# Each is empty where nothing is the matter, and else begins with a semicolon.

_GIB = 1 << 30


def no_devices(state: State, trial: Trial) -> str:
    """What to say if the pool of a waiting trial has no device for it at all."""
    study = state.studies[trial.spec.study]
    pool = study.pool
    if trial.phase is not Phase.WAITING:
        return ""
    if pool != DEFAULT_POOL and not is_own(pool) and pool not in state.pools:
        there = ", ".join(sorted({DEFAULT_POOL, *state.pools}))
        return f"; its pool {pool} is no longer in the head's configuration (there: {there})"
    nodes = [node for node in state.nodes.values() if node.pool == pool and not node.left]
    slots = [slot for slot in state.slots.values() if state.nodes[slot.device.node] in nodes]
    fitting = [slot for slot in slots if asked_for(study, slot.device)]
    if slots and not fitting:
        return f"; {unfit(study, [slot.device for slot in slots])} in its pool {pool}"
    if fitting and (narrow := too_narrow(study, [slot.device for slot in fitting])):
        return f"; {narrow}"
    if any(slot.sound and state.nodes[slot.device.node].open for slot in fitting):
        return ""
    away = [f"{node.id} {_away(node)}" for node in nodes if not node.open and _has(node, fitting)]
    away += [f"{slot.device.id}: {slot.yielded}" for slot in fitting if slot.yielded]
    which = "" if len(fitting) == len(slots) else "suitable "
    why = ", ".join(away) or "it has none"
    return f"; no {which}device of its pool {pool} can be used now ({why})"


def unfit(study: Study, devices: Sequence[Device]) -> str:
    """What a study asks for that none of these devices has, and what there is."""
    kind, kinds = study.device_kind, sorted({device.kind for device in devices})
    if kind and kind not in kinds:
        return f"there is no device of kind {kind} (there: {', '.join(kinds)})"
    alike = [device.memory_bytes for device in devices if kind in ("", device.kind)]
    which = f" of kind {kind}" if kind else ""
    asked, most = study.memory_bytes / _GIB, max(alike) / _GIB
    return (
        f"there is no device{which} with {asked:.1f} GiB of memory (the largest has {most:.1f} GiB)"
    )


def too_narrow(study: Study, devices: Sequence[Device]) -> str:
    """What to say if no node has as many of these devices as a trial needs; "" if one has."""
    most, node, kind = widest([device for device in devices if asked_for(study, device)])
    if most >= study.devices:
        return ""
    return (
        f"each trial needs {study.devices} devices of one kind on one node, and no node has more"
        f" than {most} ({node}: {kind})"
    )


def silence(state: State, trial: Trial, losses: Mapping[NodeId, Time], now: Time) -> str:
    """What to say of a trial that runs, or is parked, on a node of which nothing is heard."""
    parked = state.parked_on(trial)
    place = parked or (state.node_of(trial) if trial.run else None)
    node = state.nodes[place] if place else None
    if node is None or node.silent_since is None or node.lost:
        return ""
    which = f"it is parked on {node.id}, which" if parked else f"node {node.id}"
    told = f"; {which} has not been heard from for {_lasting(now - node.silent_since)}"
    if node.id in losses:
        told += f" and counts as lost in {_lasting(losses[node.id] - now)}: then it goes on"
        told += " elsewhere" if trial.fidelity.restorable else " elsewhere, from the beginning"
    else:
        told += "; no node is heard from, which may be the head's own fault, so none counts as lost"
        told += f" until one is back (if it is off: `hermesctl node lost {node.id}`)"
    return told


def stalled(trial: Trial, now: Time) -> str:
    """What to say of a trial whose program comes to no further step."""
    if trial.run is None or (since := trial.run.stalled_since) is None:
        return ""
    typical = trial.seconds_per_step
    before = f" (a step usually took {typical:.2g} s)" if typical else ""
    return f"; it has stalled: no step after {trial.step} for {_lasting(now - since)}{before}"


def rides(state: State, trial: Trial, carrier: TrialId) -> str:
    """What to say of a trial that another trains for."""
    parts = state.riding.riders[carrier][trial.id]
    until = "to the end" if parts is None else f"until step {parts}"
    at = state.trials[carrier]
    return (
        f"{trial.id} rides on {carrier}, which does the same {until} and trains for both;"
        f" {carrier} is {at.phase} at step {at.step}"
    )


def crowded(state: State, trial: Trial) -> str:
    """What to say of a trial that is one of those which hold more memory, parked on their node,
    than parked trials are to have there: nothing but their processes has what they have learned."""
    place = state.parked_on(trial)
    if place is None or trial.fidelity.restorable:
        return ""
    there = [each for each in state.trials_on((place,)) if state.parked_on(each) == place]
    bound = [each.kept for each in there if not each.fidelity.restorable]
    held = sum(kept.memory_bytes for kept in bound if kept is not None)
    budget = state.nodes[place].parked_memory_bytes
    if not 0 < budget < held:
        return ""
    return (
        f"trials on {place} that can only be parked, this one among them, hold"
        f" {held / _GIB:.1f} GiB of its memory; parked trials may hold"
        f" {budget / _GIB:.1f} GiB there"
    )


def _lasting(seconds: float) -> str:
    seconds = max(0.0, seconds)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _has(node: Node, slots: Sequence[Slot]) -> bool:
    """Whether one of these devices is the node's, or it has none at all."""
    return not node.devices or any(slot.device.node == node.id for slot in slots)


def _away(node: Node) -> str:
    """Why a node is not open."""
    if node.resting:
        return f"rests: {node.resting}"
    return "is draining" if node.draining else "is silent"


def why_paused(trial: Trial, study: Study) -> str:
    """Why a trial is held back from its policy."""
    if study.outside:
        return "in the hands of its author's own loop" if trial.asked else "not asked for yet"
    if trial.replaced_by:
        return f"held back: {trial.replaced_by} goes on in its place"
    return "paused by a person"


class Explanation(NamedTuple):
    """Why a trial runs or waits."""

    summary: str
    ranking: tuple[tuple[TrialId, str, Phase], ...]
    last_decision: str
    policy: str
    left_out: tuple[LeftOut, ...] = ()
    earlier_studies: str = ""


class LeftOut(NamedTuple):
    """A place that a trial does not get as long as it could run elsewhere."""

    place: Place
    reason: str
    #: When it may get the place again, if known.
    until: Time | None = None


class Question(NamedTuple):
    """What is asked of a trial: by whom, and what is known of it outside of the core."""

    trial: TrialId
    asker: UserId
    #: What was last decided of the trial.
    last_decision: str
    #: Whether it waits for its machine.
    waits: bool
    now: Time
    #: When silent nodes count as lost, if nothing is heard of them.
    losses: Mapping[NodeId, Time]
    #: When it continues on fewer devices than its checkpoint, if no node has as many by then.
    narrower_at: Time | None
    #: When it goes on without its image, if that fits no node by then.
    without_image_at: Time | None


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
        summary = f"{trial.id} is {why_paused(trial, state.studies[study_id])}"
    elif trial.carrier is not None:
        summary = rides(state, trial, trial.carrier)
    elif trial.awaits_fork and trial.forked is not None:
        nodes = ", ".join(trial.forked.nodes)
        summary = (
            f"{trial.id} waits for the checkpoint of {trial.forked.trial} at step"
            f" {trial.forked.step}, from which it begins: it lies on {nodes}"
        )
    elif asked.waits:
        wait, times = max(0.0, trial.not_before - asked.now), trial.misfortunes
        summary = (
            f"{trial.id} is tried again in {wait:.0f} s: machines have failed it {times} times in"
            f" a row ({trial.reason})"
        )
    elif (held := stuck(state, trial)) is not None:
        node, why = held
        summary = (
            f"{trial.id} waits for node {node}, which {why}: it is parked there, and has no"
            " checkpoint from which it could go on elsewhere"
        )
    else:
        where = f" on {', '.join(trial.run.devices)}" if trial.run else ""
        summary = f"{trial.id} is {trial.phase}{where}"
        if place is not None and ranking[place - 1].left_out:
            summary += f"; {policy} leaves it out of its plan: {ranking[place - 1].words}"
        elif place is not None:
            words = ranking[place - 1].words
            summary += f"; {policy} ranks it {place} of {len(ranking)}: {words}"
        elif not trouble:
            summary += f"; {policy} does not rank it"
        summary += _speed(state, trial) + _widths(state, trial, asked)
        if trial.phase is Phase.WAITING and (kept := state.gathering.get(trial.id)):
            several = "are kept for it until all of them are free"
            one = "is kept for it until the trial there has left"
            summary += f"; {', '.join(kept)} {several if len(kept) > 1 else one}"
        elif trial.phase is Phase.WAITING and _over_quota(state, trial):
            summary += f"; it waits: {_quota(state, trial, asked.asker)}"
        elif trial.phase is Phase.WAITING:
            summary += _turns(state, trial, asked) + _where_parked(state, queues, trial)
            summary += _form(trial, asked)
        summary += trouble + no_devices(state, trial)
        summary += stalled(trial, asked.now) + silence(state, trial, asked.losses, asked.now)
    if not trial.phase.final and (crowd := crowded(state, trial)):
        summary += f"; {crowd}"
    rows = tuple(
        (each.trial.id, f"{'left out: ' * each.left_out}{each.words}", each.trial.phase)
        for each in ranking
    )
    left_out = () if trial.phase.final else tuple(_left_out(state, trial))
    earlier = _earlier_studies(state, queues, study_id)
    return Explanation(summary, rows, asked.last_decision, policy, left_out, earlier)


def _earlier_studies(state: State, queues: Queues, study_id: StudyId) -> str:
    """Which earlier studies its policy goes by, or why by none; empty for one that never goes by
    any, and once all trials have ended."""
    try:
        return queues.remembered(study_id) if state.active[study_id] else ""
    except Unanswered:
        return ""  # its ranking is told in these words


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
    who = f"{ahead} of {len(owners)} have used less for their weight than {whose}"
    return f"; users take turns, and {who}"


def _speed(state: State, trial: Trial) -> str:
    """How fast it is on its device, and on the fastest, where it matters on which it is."""
    study = state.studies[trial.spec.study]
    speeds = state.speeds(study.id)
    if trial.run is None or not speeds.unequal:
        return ""
    here = state.place(trial.run)
    others = (slot.device for slot in state.slots.values() if slot.sound)
    others = (each for each in others if state.serves(each, study) and asked_for(study, each))
    rates = {each.id: known for each in others if (known := rate(speeds, trial, each))}
    if here.id not in rates:
        return ""
    words = f"; {here.id} does {rates[here.id]:.3g} of its steps a second"
    if (correction := speeds.correction(here.id)) != 1.0:
        words += f", {correction:.0%} of what is usual for its kind"
    fastest = min(rates, key=lambda device: (-rates[device], device))
    if rates[fastest] <= rates[here.id]:
        return words
    return f"{words}; {fastest}, the fastest, does {rates[fastest]:.3g}"


def _widths(state: State, trial: Trial, asked: Question) -> str:
    """How fast it is on how many devices, and what it costs to change that, where it may."""
    study = state.studies[trial.spec.study]
    if not study.elastic:
        return ""
    words = f"; it may have {study.devices} to {study.widest} devices"
    full = [old.devices for old in trial.failures if old.outgrew]
    if full:
        words += f", and ran out of memory on {max(full)}"
        if trial.run is None:
            words += "; it waits for more, or for those of more memory"
        if not can_go_on(state, trial):
            words += why_no_wider(state, trial, max(full))
    if trial.keeps_width:
        words += ", and keeps its number, as its checkpoint could not be used on another"
    elif trial.framework and not full:
        words += _why_not_resized(trial)
    if trial.run is None and (width := state.made_for(trial)):
        noun = "image" if goes_on_from_image(trial) else "checkpoint"
        noun = "process" if trial.kept is not None and trial.kept.tier.in_process else noun
        words += f"; its {noun} is of {width} device{'' if width == 1 else 's'}"
        if asked.narrower_at is not None:
            words += _until_narrower(trial, asked.narrower_at - asked.now)
    speeds = sorted(trial.width_seconds.items())
    told = [f"on {width} it does {1.0 / seconds:.3g} steps a second" for width, seconds in speeds]
    words += f"; {', '.join(told)}" if told else ""
    cost = resize_seconds(trial, state.facts[study.id])
    if trial.resizes:
        times = "once, for" if trial.resizes == 1 else f"{trial.resizes} times, each for"
        words += f"; it was resized {times} {cost:.2g} s"
    elif told and not _why_not_resized(trial):
        words += f"; a resize would take {cost:.2g} s, and must save {WORTH:g} times as much"
    return words


def _why_not_resized(trial: Trial) -> str:
    """What keeps a trial that has begun on as few devices as it may."""
    if not trial.fidelity.restorable:
        return ", and keeps to the fewest, as it cannot be resumed from a checkpoint"
    if not is_of_any_width(trial):
        return ", and keeps to the fewest, as its checkpoints are of one number of devices"
    return ""


def _until_narrower(trial: Trial, seconds: float) -> str:
    """How long it waits for as many devices as its checkpoint is of, and what then."""
    words = ": if within"
    words += f" {max(0.0, seconds):.0f} s no node has that many that its user may have, it "
    if goes_on_from_image(trial) and trial.before_image is not None:
        return f"{words}goes on from its checkpoint of step {trial.before_image.step}"
    if trial.keeps_width:
        words += "continues on as few as it may, if need be from an earlier checkpoint or from the"
        return f"{words} beginning"
    if not has_own_beginning(trial):
        return f"{words}ends with what it came to before" if trial.result else f"{words}fails"
    return f"{words}goes on from the beginning"


def _where_parked(state: State, queues: Queues, trial: Trial) -> str:
    """Why the trial does not continue on a free device, if its process is on another node."""
    node, kept = state.parked_on(trial), trial.kept
    if node is None or kept is None:
        return ""
    if arriving(state, trial):
        return f"; it is being saved on {node}, to go on elsewhere"
    if kept.width > 1 and not has_room(state, queues, trial, kept.width):
        return (
            f"; it is parked on {node}, where the {kept.width} devices that it needs can't be used"
        )
    others = (each for each in state.free if state.slots[each].device.node != node)
    if not any(queues.could_take(trial, device) for device in others):
        return ""
    if not trial.fidelity.restorable:
        return (
            f"; it is parked on {node}, and has no checkpoint from which it could go on elsewhere"
        )
    return f"; it is parked on {node}, which could not save it" if kept.unwritable else ""


def _form(trial: Trial, asked: Question) -> str:
    """In which form it is kept if it is not in memory, and why."""
    kept, saved, older = trial.kept, trial.checkpoint, trial.before_image
    words = ""
    if kept is not None and kept.tier is Tier.CHECKPOINT and saved is not None and saved.why:
        form = "an image of its processes" if saved.image_of else "a checkpoint"
        words = f"; it is kept as {form}: {saved.why}"
    if asked.without_image_at is not None:
        left = max(0.0, asked.without_image_at - asked.now)
        place = f"its checkpoint of step {older.step}" if older is not None else "the beginning"
        words += f"; if its image fits no node in {left:.0f} s, it goes on from {place}"
    return words


def _over_quota(state: State, trial: Trial) -> bool:
    """Whether its user may not have as many more devices as the trial needs."""
    return DeviceQuotas(state).left(trial) < narrowest(state, trial)


def _quota(state: State, trial: Trial, asker: UserId) -> str:
    owner = state.owner_of(trial)
    most = state.terms_of(owner).max_devices
    devices = "device" if most == 1 else "devices"
    whose = "your" if asker == owner else f"{owner}'s"
    needed = narrowest(state, trial)
    too_few = most is not None and most < needed
    why = f"less than the {needed} that it needs" if too_few else "in use"
    return f"{whose} quota of {most} {devices} is {why}"


def _left_out(state: State, trial: Trial) -> Iterator[LeftOut]:
    """The places that are kept from the trial, each once, and what it did there itself."""
    told: set[Place] = set()
    study = state.studies[trial.spec.study]
    for device, slot in sorted(state.slots.items()):
        if not avoided(state, trial, device) or state.nodes[slot.device.node].left:
            continue
        if useless := image_obstacle(state, trial, device):
            node, saved = slot.device.node, trial.checkpoint
            is_there = saved is not None and saved.image_device in state.nodes[node].devices
            place = device if is_there else node
            if place not in told:
                yield LeftOut(place, useless)
            told.add(place)
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
        for place in (slot.device.node, device):
            why = state.excluded.get((trial.spec.study, place))
            if why is not None and place not in told:
                told.add(place)
                yield LeftOut(place, why.reason)
        if failed := [old for old in trial.failures if old.device == device and not old.restores]:
            yield LeftOut(device, f"it failed there: {one_line(failed[-1].detail)}")
        elif why_small := _too_small(state, trial, slot.device):
            yield LeftOut(device, why_small)
        elif slot.device.node not in told and device not in told:
            told.add(slot.device.node)
            yield LeftOut(slot.device.node, "it failed on several of its devices")


def _too_small(state: State, trial: Trial, device: Device) -> str:
    """Why the trial wants a device of more memory, if it does."""
    if needs_more_memory(trial, state.studies[trial.spec.study], device):
        return "it has used more memory than the device has"
    if any(out_of_memory_failures(state, trial, device)):
        return "it ran out of memory on a device with as much"
    return ""


def _ranking(
    state: State, queues: Queues, study_id: StudyId, now: Time
) -> tuple[list[PolicyStanding], str]:
    """The study's trials in the order of its policy, and what to say if that raises."""
    try:
        return queues.peek(study_id, lambda queue: list(queue.ranking(now))), ""
    except Unanswered as error:
        name = state.policy_of(study_id).name
        return [], f"; {name} raised when it was asked for its ranking: {error}"


# Whether a study stands still by its policy's own will, which is seldom what its author
# meant.
#
# Only a policy that plans can leave trials out, and one that has something running may well
# wait for that: it is told of when nothing of its study is on a device.

# So many trials are tried on each free device: those of a study want much the same.
TRIED = 8


def left_idle(state: State, queues: Queues, study: StudyId, now: Time) -> tuple[DeviceId, ...]:
    """The free devices that trials of the study wait for in vain, as its plan claims none of them.

    Of a state that was decided about; empty where something else keeps the trials waiting.
    """
    # What is asked for each study of a list: the cheapest first.
    if not state.free:
        return ()
    try:
        if not queues.peek(study, lambda queue: queue.plans):
            return ()
    except Unanswered:
        return ()
    trials = [state.trials[trial] for trial in state.active[study]]
    if any(trial.run is not None for trial in trials):
        return ()
    quotas = DeviceQuotas(state)
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
