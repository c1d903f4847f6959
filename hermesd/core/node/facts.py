"""What a node concludes from the facts that hosts report; facts of an older attempt are ignored."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from hermesd.core.events import (
    Checkpointed,
    FidelityKnown,
    RunCompleted,
    RunFailed,
    RunStalled,
    RunSuspended,
)
from hermesd.core.model import OnStall, Tier, Time
from hermesd.core.node.actions import ContinueRun
from hermesd.core.node.messages import (
    Assignment,
    Ended,
    HostFact,
    HostLost,
    LeftDevice,
    Parked,
    Planned,
    ProcessStarted,
    Progress,
    RunFound,
    Started,
)
from hermesd.core.node.stay import Condition, Stay
from hermesd.core.node.table import NodeTable
from hermesd.core.trial import STALLED

_FOUND = {
    "starting": Condition.STARTING,
    "running": Condition.RUNNING,
    "parked": Condition.PARKED,
    "ended": Condition.HALTING,
}


def found(node: NodeTable, fact: RunFound, now: Time) -> None:
    """Take over a run that a daemon before this one started."""
    order, run = fact.assignment, fact.assignment.run
    stay = Stay(order, _FOUND[fact.condition], now, now, process=run, step=fact.step)
    if stay.condition is not Condition.STARTING:
        # Nobody knows when its last checkpoint was taken: one is due as soon as it trains.
        stay.trained = order.terms.durability_seconds
    stay.saved = now - stay.trained
    running = stay.condition is Condition.RUNNING
    stay.grants(0, order.launch.quantum, now if running else None)
    stay.memory_bytes, stay.begun = fact.memory_bytes, True
    node.stays[run.trial] = stay
    node.accept(order)
    if stay.condition.on_device:
        node.holders.update(dict.fromkeys(order.launch.devices, run))


def attached(node: NodeTable, now: Time) -> None:
    """Say again what is parked: a head whose state was restored from an older copy may have it as
    running, and would wait for ever. To any other head it is nothing new."""
    for stay in node.stays.values():
        if stay.condition is Condition.PARKED and stay.ending is None:
            node.tell(stay.outcome or stay.left(Tier.PARK, stay.step, None, "", now))


def fact(node: NodeTable, fact: HostFact, now: Time) -> None:
    """Fold one fact in and say what the head must know."""
    run = fact.report.run if isinstance(fact, Progress) else fact.run
    stay = node.stays.get(run.trial)
    if stay is None:
        return
    if stay.condition is Condition.STARTING and run == stay.assignment.launch.parked:
        _ended_on_resume(node, stay, fact, now)
    if run == stay.rebuilding and stay.condition is not Condition.RUNNING:
        return _rebuilt(node, stay, fact, now)
    if stay.process != run:
        return
    match fact:
        case ProcessStarted():
            _begun(stay, now)
        case Started(_, step, awaits_step):
            stay.awaits_step = stay.awaits_step or awaits_step
            _started(node, stay, step, now)
        case Planned(_, steps):
            stay.planned = steps
        case Progress():
            _progress(node, stay, fact, now)
        case FidelityKnown():
            fact = stay.judges(fact)
            if stay.judged != fact:
                stay.judged = fact
                node.tell(fact)
        case Parked():
            _parked(node, stay, fact, now)
        case Checkpointed():
            stay.saved, stay.trained, stay.saving = now, 0.0, None
            node.tell(fact)
        case LeftDevice() | RunCompleted() | RunFailed() | HostLost():
            _ended(node, stay, fact, now)
        case _:
            assert_never(fact)


def _ended_on_resume(node: NodeTable, stay: Stay, fact: HostFact, now: Time) -> None:
    """The parked process ended before it was told to go on: as the run that it was parked as."""
    if isinstance(fact, Ended):
        stay.process = fact.run
        stay.enter(Condition.PARKED, now)
        _ended(node, stay, fact, now)


def _rebuilt(node: NodeTable, stay: Stay, fact: HostFact, now: Time) -> None:
    """What was rebuilt ahead of its turn says something before it is told to go on."""
    match fact:
        case FidelityKnown():
            stay.judged = stay.judges(fact)
        case Parked():
            stay.held, stay.memory_bytes = True, fact.memory_bytes or stay.memory_bytes
        case LeftDevice() | RunCompleted() | RunFailed() | HostLost() if (
            stay.condition is Condition.PROMOTED
        ):
            node.discard(stay, again=False)
        case LeftDevice() | RunCompleted() | RunFailed() | HostLost():
            _not_rebuilt(node, stay, now)
        case _:
            return  # it is no run: what it says of itself was said by the one before


def _not_rebuilt(node: NodeTable, stay: Stay, now: Time) -> None:
    """The process ended while its run waits or is about to begin: the checkpoint is still there."""
    fresh = stay.condition is Condition.WAITING and stay.ending is None
    if fresh:
        stay.process, stay.rebuilding, stay.rebuilt = None, None, None
    else:
        assert stay.rebuilt is not None
        cause = "the process that was rebuilt for it ended"
        node.end(stay, RunSuspended(stay.run, Tier.KILL, stay.step, stay.rebuilt, 0.0, cause), now)


def _begun(stay: Stay, now: Time) -> None:
    stay.begun = True
    if stay.condition is Condition.STARTING:
        stay.enter(Condition.STARTING, now)


def _started(node: NodeTable, stay: Stay, step: int, now: Time) -> None:
    if stay.condition is Condition.RUNNING:  # found so, and the head may not have heard of it
        node.tell(stay.start)
    if stay.condition not in (Condition.STARTING, Condition.HALTING):
        return
    stay.step, stay.start_seconds = step, now - stay.received
    stay.saved, stay.saving = now - stay.trained, None
    stay.rebuilding, stay.rebuilt = None, None
    if stay.condition is Condition.STARTING:
        stay.enter(Condition.RUNNING, now)
        stay.granted = now
    node.tell(stay.start)


def _progress(node: NodeTable, stay: Stay, fact: Progress, now: Time) -> None:
    stay.memory_bytes = fact.report.memory_bytes or stay.memory_bytes
    stay.device_memory_bytes = fact.report.device_memory_bytes or stay.device_memory_bytes
    if stay.condition is Condition.STARTING:
        _started(node, stay, fact.report.step, now)
    stay.steps_on(fact, now)
    node.tell(stay.planned_report(fact.report), fact.points)
    if stay.condition is Condition.RUNNING:
        if (stalled := stay.stalls()) is not None:
            _stalled(node, stay, stalled, now)
        for event in stay.passes(fact.report, now):
            node.tell(event)


def _stalled(node: NodeTable, stay: Stay, stalled: RunStalled, now: Time) -> None:
    node.tell(stalled)
    if stay.assignment.terms.stalled is not OnStall.TELL:
        word = stay.assignment.terms.stalled
        lasting = f"no step after {stay.step} for {stalled.seconds:.0f} s"
        stay.failing = STALLED, f"{lasting} (retry.stalled: {word})"
        node.kill_process(stay, now)


def _parked(node: NodeTable, stay: Stay, fact: Parked, now: Time) -> None:
    if stay.ending is not None or stay.condition is Condition.WAITING:
        return
    stay.step = fact.step
    if stay.condition is Condition.RUNNING and fact.cause == "limit" and stay.may_go_on:
        # The limit was moved while the program ran toward it, and a host moves none.
        node.out.append(ContinueRun(stay.run, stay.limit_step))
        return
    stay.memory_bytes = fact.memory_bytes or stay.memory_bytes
    if stay.asked is not None:
        # The iteration that was under way is training, not a cost of the switch.
        stay.asked = min(now, stay.asked + fact.boundary_seconds)
    if stay.final and stay.condition is not Condition.DEMOTING and not fact.demoting:
        node.kill_process(stay, now)
    elif node.cheapest(stay) is not Tier.PARK:
        if stay.condition is not Condition.HALTING:
            stay.asked = now
            stay.enter(Condition.HALTING, now)
        if not fact.demoting:
            node.demote(stay, now)
    elif stay.condition is Condition.DEMOTING:
        _not_demoted(node, stay, now)
    else:
        if stay.condition is not Condition.PARKED:
            stay.trained = now - stay.saved
            stay.limit, stay.midway = None, fact.midway
            stay.enter(Condition.PARKED, now)
            node.free(stay)
        stay.outcome = stay.left(Tier.PARK, fact.step, None, fact.cause, now)
        node.tell(stay.outcome)
        if fact.demoting:
            stay.unwritable = False
            stay.limit = now + stay.assignment.terms.suspend_deadline_seconds
            stay.enter(Condition.DEMOTING, now)


def _not_demoted(node: NodeTable, stay: Stay, now: Time) -> None:
    """No checkpoint could be written (a full disk): what is parked is kept, whatever it takes,
    unless the trial is over."""
    stay.unwritable, stay.limit = True, None
    stay.enter(Condition.PARKED, now)
    if stay.next is not None and stay.next.launch.parked == stay.run:
        node.wait_for_device(stay, stay.next, now)
    elif stay.final:
        node.kill_process(stay, now)
    else:
        node.tell(stay.unwritten())


def _ended(node: NodeTable, stay: Stay, fact: Ended, now: Time) -> None:
    run = fact.run
    match fact:
        case LeftDevice(_, tier, step, checkpoint, cause):
            # A daemon before this one may have asked for it, or nobody.
            by_itself = stay.condition is Condition.PARKED and tier is Tier.CHECKPOINT
            if (stay.condition is Condition.DEMOTING or by_itself) and checkpoint is not None:
                demoted = RunSuspended(run, Tier.CHECKPOINT, step, checkpoint, 0.0, "demoted")
                node.shelve(stay, checkpoint)
                if stay.next is not None and stay.next.launch.parked == run:
                    stay.next = _from(stay.next, demoted)
                node.end(stay, demoted, now)
            else:
                left = stay.left(tier, step, checkpoint, cause, now)
                if isinstance(left, RunSuspended) and left.tier is Tier.CHECKPOINT and checkpoint:
                    node.shelve(stay, checkpoint)
                node.process_gone(stay, left, cause or "it was ended", now)
        case RunCompleted():
            node.process_gone(stay, fact, "it ended", now)
        case RunFailed():
            if stay.failing is not None:
                kind, detail = stay.failing
                fact = replace(fact, error_kind=kind, detail=detail)
            node.process_gone(stay, fact, fact.detail, now)
        case HostLost(_, reason):
            if stay.ending is not None:
                node.process_gone(
                    stay, stay.left(Tier.KILL, stay.step, None, reason, now), reason, now
                )
            else:
                lost = RunFailed(run, "lost", reason, "", stay.step)
                node.process_gone(stay, lost, reason, now)
        case _:
            assert_never(fact)


def _from(order: Assignment, demoted: RunSuspended) -> Assignment:
    """The order to let a parked process go on, as one to restore what it was written to."""
    assert demoted.checkpoint is not None
    launch = replace(order.launch, parked=None, checkpoint=demoted.checkpoint.id)
    return replace(order, launch=launch, checkpoint=demoted.checkpoint)
