"""What a node does with the head's orders; each is answered by an event, now or later."""

from __future__ import annotations

from typing import assert_never

from hermesd.core.commands import Kill, Release, Renew, Stop, Suspend, WriteDown
from hermesd.core.events import (
    NotCopied,
    ParkLost,
    QuantumEnded,
    RunFailed,
    RunSuspended,
)
from hermesd.core.model import RunId, Tier, Time
from hermesd.core.node.actions import DeleteCheckpoints, FetchCheckpoint, TellHead
from hermesd.core.node.messages import Assignment, DropCopies, EvacuateNode, Fetch
from hermesd.core.node.stay import Condition, Stay
from hermesd.core.node.table import NodeTable, end_of


def launch(node: NodeTable, order: Assignment, now: Time) -> None:
    """Accept an attempt; an old or doubled one only gets the answer again.

    What is here of another study of that name has no future: its head is no more.
    """
    run, parked = order.run, order.launch.parked
    if run.attempt <= node.newest(order):
        return _say_again(node, run)
    if _is_rebuilt(node, order):
        node.accept(order)
        return node.wait_for_device(node.stays[run.trial], order, now)
    stay = node.asked_for(run.trial)
    node.accept(order)
    foreign = stay is not None and stay.assignment.identity != order.identity
    if stay is None or stay.condition is Condition.ENDED or (foreign and stay.process is None):
        fresh = node.wait(order, now)
        if parked is not None:
            lost = ParkLost(parked, "no parked process of it is here")
            known = stay.outcome if stay is not None and not foreign else None
            node.end(fresh, end_of(parked, known) or lost, now)
    elif foreign:
        stay.next, stay.forget = order, False
        node.kill_process(stay, now)
    elif stay.condition is Condition.PARKED and parked == stay.run and stay.ending is None:
        node.wait_for_device(stay, order, now)
    else:
        stay.next = order
        if parked != stay.run or stay.condition.on_device:
            node.kill_process(stay, now)


def _is_rebuilt(node: NodeTable, order: Assignment) -> bool:
    """Whether the trial has been rebuilt from the very checkpoint that it is to go on from, for as
    many devices as it is to have."""
    stay = node.stays.get(order.run.trial)
    if stay is None or stay.condition is not Condition.PROMOTED or stay.rebuilt is None:
        return False
    made_for, is_for = stay.assignment.launch, order.launch
    same_study = stay.assignment.identity == order.identity
    same_width = len(made_for.devices) == len(is_for.devices)
    return same_study and same_width and is_for.checkpoint == stay.rebuilt.id


def _say_again(node: NodeTable, run: RunId) -> None:
    """What became of an attempt that was accepted before. Where nobody remembers, the head has
    forgotten what came of it, too: its state is an older copy, and it gives numbers twice."""
    stay = node.stays.get(run.trial)
    if stay is not None and stay.next is not None and stay.next.run == run:
        return
    if stay is None or stay.run != run:
        newest = node.attempts[run.trial]
        why = f"the head has forgotten attempts of it, up to number {newest}"
        return node.tell(RunFailed(run, "lost", why, "", 0, newest))
    if stay.outcome is not None:
        node.tell(stay.outcome)
    elif stay.condition is Condition.RUNNING:
        node.tell(stay.start)


def renew(node: NodeTable, order: Renew, now: Time) -> None:
    """Take over a newer grant; an answer that was lost is given again."""
    stay = node.current(order.run)
    if stay is None:
        return
    if order.grant > stay.grant:
        began = stay.granted if order.extends else now
        running = stay.condition is Condition.RUNNING
        stay.grants(order.grant, order.quantum, began if running else None)
        if running or stay.condition is Condition.STARTING:
            node.mark(stay)
    elif stay.over and order.grant == stay.grant:
        node.tell(QuantumEnded(stay.run, stay.grant, stay.step))


def suspend(node: NodeTable, order: Suspend | Stop, now: Time) -> None:
    """Give the device back, for now or for good."""
    stay = node.current(order.run)
    if stay is None:
        return
    if stay.outcome is not None:
        _answer(node, stay, order.reason)
    elif stay.condition is Condition.WAITING:
        stay.asked = now
        _end_waiting(node, stay, order.reason, now)
    elif stay.condition in (Condition.STARTING, Condition.RUNNING):
        stay.final = isinstance(order, Stop)
        wanted = Tier.CHECKPOINT if isinstance(order, Stop) else order.tier
        node.halt(stay, _tier(node, stay, wanted), order.deadline_seconds, now)


def _answer(node: NodeTable, stay: Stay, reason: str) -> None:
    """The outcome again. One that speaks of an older attempt ends nothing that is asked now."""
    assert stay.outcome is not None
    if stay.outcome.run == stay.run:
        node.tell(stay.outcome)
    else:
        node.tell(RunSuspended(stay.run, Tier.KILL, 0, None, 0.0, reason))


def _end_waiting(node: NodeTable, stay: Stay, reason: str, now: Time) -> None:
    if stay.process is None:
        node.end(stay, stay.left(Tier.KILL, stay.step, None, reason, now), now)
    else:
        node.kill_process(stay, now)


def _tier(node: NodeTable, stay: Stay, wanted: Tier | None) -> Tier:
    """The tier asked for, unless it does not free the device or would lose the trial."""
    rebuilt = stay.judged is None or stay.restorable
    if stay.final:
        return Tier.CHECKPOINT if rebuilt else Tier.KILL
    cheapest = node.cheapest(stay)
    if wanted is None or (wanted is Tier.PARK and cheapest is not Tier.PARK):
        return Tier.CHECKPOINT if stay.restorable and node.overflows(stay) else cheapest
    return wanted if rebuilt or cheapest is not Tier.PARK else Tier.PARK


def kill(node: NodeTable, order: Kill, now: Time) -> None:
    """End whatever this attempt and older ones have here."""
    stay = node.asked_for(order.run.trial)
    if stay is None or stay.run.attempt > order.run.attempt:
        node.current(order.run)
        return
    if stay.next is not None and stay.next.run.attempt <= order.run.attempt:
        node.tell(RunSuspended(stay.next.run, Tier.KILL, 0, None, 0.0, order.reason))
        stay.next = None
    if stay.outcome is not None and stay.process is None:
        _answer(node, stay, order.reason)
    else:
        stay.asked = now if stay.asked is None else stay.asked
        _end_waiting(node, stay, order.reason, now)


def write_down(node: NodeTable, order: WriteDown, now: Time) -> None:
    """Write down what is parked and end it; what could not be written before is tried again.

    A run that is over here, or has gone on since, needs nothing: the head has heard, or will.
    """
    run = order.run
    stay = node.stays.get(run.trial)
    if stay is None or stay.run.attempt < run.attempt:
        if run.attempt > node.attempts.get(run.trial, 0):
            node.tell(ParkLost(run, "no parked process of it is here"))
    elif stay.run != run or stay.ending is not None:
        return
    elif stay.condition is Condition.PARKED and stay.restorable:
        stay.leaving = True
        demote(node, stay, now)
    elif stay.condition is Condition.PARKED:
        node.tell(stay.unwritten())
    elif stay.condition is Condition.ENDED and stay.outcome is not None:
        node.tell(stay.outcome)


def save(node: NodeTable, run: RunId, now: Time) -> None:
    """Write a checkpoint of a run as it is now, if it has come to rest or runs, and one can be."""
    stay = node.stays.get(run.trial)
    if stay is None or stay.run != run or stay.ending is not None or not stay.restorable:
        return
    if stay.condition is Condition.RUNNING or (
        stay.condition is Condition.PARKED and not stay.midway
    ):
        node.save(stay, now, is_asked=True)


def demote(node: NodeTable, stay: Stay, now: Time) -> None:
    """Write down what is parked, though that may have failed before."""
    stay.unwritable = False
    stay.enter(Condition.DEMOTING, now)
    node.demote(stay, now)


def release(node: NodeTable, order: Release, now: Time) -> None:
    """No process of this trial is to be kept, nor its files, if they are to be forgotten. What is
    being written down is ended by that."""
    stay = node.asked_for(order.trial)
    node.shelved.pop(order.trial, None)
    if stay is not None and stay.process is not None:
        stay.forget = stay.forget or order.forget
        if stay.condition is Condition.DEMOTING and not stay.forget:
            stay.final = True
        else:
            node.kill_process(stay, now)
    elif order.forget:
        node.forget(order.trial)


def leave(node: NodeTable, order: EvacuateNode, now: Time) -> None:
    """Bring every process to an end, with its progress written down where that can be done."""
    node.leaving = True
    for stay in list(node.stays.values()):
        stay.unwritable = False
        if stay.condition is Condition.PROMOTED:
            node.discard(stay)
        elif stay.condition in (Condition.STARTING, Condition.RUNNING):
            node.halt(stay, Tier.CHECKPOINT, order.deadline_seconds, now)
        else:
            go(node, stay, now)


def go(node: NodeTable, stay: Stay, now: Time) -> None:
    """Bring to an end what is on no device of a node that is leaving: it has no turn there any
    more. It may have come since: a launch was on its way, or a run that had been asked to park."""
    if stay.ending is not None:
        return
    if stay.condition is Condition.PARKED and stay.restorable and not stay.unwritable:
        demote(node, stay, now)
    elif stay.condition in (Condition.PARKED, Condition.WAITING):
        stay.asked = now
        _end_waiting(node, stay, "the node daemon stops", now)


def copies(node: NodeTable, order: Fetch | DropCopies) -> None:
    """Keep what is wanted of the checkpoints of a trial that is elsewhere, and nothing else.

    What is here of another study of that name is not to be touched before a launch says so.
    """
    trial = order.trial
    stay = node.stays.get(trial)
    match order:
        case Fetch(checkpoint, _, _, name, identity):
            if stay is None or stay.assignment.identity == identity:
                node.out.append(FetchCheckpoint(order))
            else:
                reason = "a trial of another study of that name is here"
                node.out.append(TellHead(NotCopied(name, trial, checkpoint.id, reason, way=True)))
        case DropCopies(_, identity):
            if stay is None:
                node.out.append(DeleteCheckpoints(trial, identity))
        case _:
            assert_never(order)
