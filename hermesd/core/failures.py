"""Who is to blame for the failure of a run, and when it ends the trial: pure functions of a
trial."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from hermesd.core.events import RunCompleted, RunEvent, RunFailed
from hermesd.core.fast_replace import replace
from hermesd.core.model import (
    OUT_OF_DEVICE_MEMORY,
    DeviceId,
    FailureRule,
    OnStall,
    Phase,
    Place,
    RetryAction,
    Study,
    StudyId,
    Time,
    TrialId,
    ruled,
)
from hermesd.core.tables import Tables
from hermesd.core.trial import (
    KILLED,
    LOST,
    MACHINES_FAULT,
    NOT_FETCHED,
    RESTORE,
    STALLED,
    TAKEN_AWAY,
    UNFIT,
    UNMET,
    WRONG_EVERYWHERE,
    Ending,
    Failure,
    Run,
    Strike,
    Trial,
)
from hermesd.core.widths import as_told

# The ledger of failures by place, and how much they weigh: pure functions of it and of a
# time.
#
# A trial's failure is a strike against its device; its second one, on another device of the same
# node, is one against the node. A place with strikes of several trials is suspect, each weighing
# half as much after every half-life. What the same study met with elsewhere in the same way tells
# nothing of a place, and a trial or a study whose failures proved to be its own takes its strikes
# back. All that the trials of a study met with counts once, until one of them has trained past it
# elsewhere: so far it may be the study's own. Runs of several devices that are gone at once went
# with their node.

# What two trials' failures weigh if the second comes within a half-life of the first.
SUSPECT = 1.5
# The newest of a device: many more than it takes, however often something fails there.
STRIKES_KEPT = 32
DETAIL_LETTERS = 200
# What the same error says differently each time: steps, losses, addresses.
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d[\d.]*(?:e[+-]?\d+)?")
_ABOUT_THE_TRIAL = (RetryAction.NOT_HERE, RetryAction.MORE_MEMORY, RetryAction.NO_RETRY)
HALF_LIFE_SECONDS = 3600.0
# A node whose runs are all gone says so of one after the other.
TOGETHER_SECONDS = 60.0


def note(state: Tables, trial: Trial) -> None:
    """Write the failure that ended the trial's last run into the ledger, or clear the places.

    Those of a trial that has failed for good on two devices were its own fault, and so were those
    of its program where no other device was to be had. Of one that ends for another reason nothing
    can be told, nor of an error for which its study has a rule that is about the trial, nor of a
    checkpoint that could not be had from elsewhere: which of two machines broke the way between
    them is not known. Nor of what its study, or its image, needs of a node and does not find there,
    nor of code or arguments that are wrong everywhere, nor of a SIGKILL: no device sends one.
    """
    failure = trial.failures[-1]
    if failure.ruled in _ABOUT_THE_TRIAL or failure.restores:
        return
    if failure.error_kind in {KILLED, NOT_FETCHED, UNFIT, UNMET, *WRONG_EVERYWHERE}:
        return
    if trial.phase.final and trial.phase is not Phase.FAILED:
        return
    places = dict.fromkeys(old.device for old in trial.failures if not old.restores)
    repeated = sum(old.programs for old in trial.failures) > 1
    if trial.phase is Phase.FAILED and (len(places) > 1 or repeated):
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
    mark = _NUMBER.sub("#", failure.signature[:DETAIL_LETTERS] or detail)
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


def take_back(state: Tables, study: StudyId) -> None:
    """Clear the places of what the programs of a study failed of, which proved to be its own."""

    def is_own(strike: Strike) -> bool:
        return strike.study == study and strike.error_kind not in MACHINES_FAULT

    left = {
        place: tuple(strike for strike in strikes if not is_own(strike))
        for place, strikes in state.strikes.items()
    }
    state.strikes = {place: strikes for place, strikes in left.items() if strikes}


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
    """The strikes that count against a place: the latest of each trial that has trained past its
    failure elsewhere, or failed as one that has; of a study without such a trial, its latest."""
    if place in state.slots:
        slot = state.slots[place].device
        struck_here = state.strikes.get(place, ())
        # A process that has vanished from some cores tells of a machine at most.
        here = [(place, s) for s in struck_here if slot.owns_memory or s.error_kind != LOST]
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
    enough = [strike for trial, strike in latest.items() if len(where[trial]) >= fewest]
    counted = {strike.trial: strike for strike in enough if _error(strike) in proven}
    told = {strike.study for strike in counted.values()}
    untold = sorted((strike for strike in enough if strike.study not in told), key=_time)
    newest = {strike.study: strike for strike in untold}
    return {strike.trial: strike for strike in (*counted.values(), *newest.values())}


def _time(strike: Strike) -> Time:
    return strike.at


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


# The program can be what brings its machine down: the machine's faults count a little, until a
# checkpoint shows that the trial gets on.
MISFORTUNES_PER_FAILURE = 10
# A node keeps two checkpoints, tries each twice and begins anew without: so much, and what it then
# trained was lost in the same way once more. The same error twice is not tried that often.
MOST_RESTORES = 12
_KEPT_PARKED = "kept parked rather than checkpointed: it failed to restore twice in the same way"


def set_back(trial: Trial, run: Run, step: int, now: Time) -> Trial:
    """The run began at an earlier step than its checkpoint's, which is none then; the node tells
    which one it used."""
    how = f"it went on from step {step}" if step else "it began anew"
    detail = f"{how}: its checkpoint of step {run.restored_step} could not be used"
    failure = Failure(run.id.attempt, run.devices[0], RESTORE, detail, "", step, now)
    trial = replace(trial, failures=(*trial.failures, failure), reason=detail)
    if trial.checkpoint is not None and trial.checkpoint.step == run.restored_step:
        trial = replace(trial, checkpoint=None)
    if trial.copied is not None and trial.copied.step > step:
        trial = replace(trial, copied=None)  # it did not do either, or is of a later past
    if trial.before_image is not None and trial.before_image.step > step:
        trial = replace(trial, before_image=None)
    if trial.result is not None and step < trial.result.step:
        return _ended_if(trial, True, detail)
    return _ended_if(trial, _restores(trial) >= MOST_RESTORES, detail, "too often")


def is_own_end(outcome: RunEvent) -> bool:
    """Whether a program has ended by itself, well or badly."""
    if isinstance(outcome, RunFailed):
        return not outcome.newest_attempt and outcome.error_kind not in TAKEN_AWAY
    return isinstance(outcome, RunCompleted)


def kept_parked(trial: Trial) -> str:
    """Why what a trial has learned stays parked rather than checkpointed; empty if it need not.

    Two of its restores failed with the same error of its own: run again, it does not come to where
    it was. Those from later checkpoints, which it would then lose time with, would fail as well. On
    another number of devices than before that says nothing of restores on as many.
    """
    seen: set[str] = set()
    for failure in (old for old in trial.failures if old.restores and not old.resized):
        if failure.signature in seen:
            return f"{_KEPT_PARKED}: {one_line(failure.detail)}"
        if failure.signature:
            seen.add(failure.signature)
    return ""


class Prospects(NamedTuple):
    """What is left to be tried: a place where another failure would tell more of whose fault it is,
    any device but the present one, and more memory, on one of more or on more devices; and whether
    the present one's memory is its own, and so a reason why it was too little."""

    untried: bool
    elsewhere: bool
    roomier: bool
    owns_memory: bool
    #: On how many devices it failed; 0: its node does not say so yet.
    devices: int = 0
    #: What to add if there is no more memory: why it gets no more devices.
    no_wider: str = ""
    #: As many devices as its checkpoint was made on, should it continue on no other number.
    as_wide: bool = True


# The rule of Hops: the first failure of a trial speaks against its device, the second
# against its node, and the third against the study.
STRICT_TRIES = 3
STRICT_RULE = "retry.rule: hops"


def strict_failures(trial: Trial) -> int:
    """How often a trial has failed, but for checkpoints that could not be used."""
    return sum(not failure.restores for failure in trial.failures)


def blamed(trial: Trial, event: RunFailed, study: Study, left: Prospects, now: Time) -> Trial:
    """The trial with a failure of its present run noted, and its end if that was the last try.

    It is the last at the study's `max_failures`, and at once when the same error comes at the
    same step a second time: the program's own fault then. What is the machine's fault counts
    apart, up to ten times as often, and anew whenever a checkpoint has moved on; a checkpoint that
    cannot be restored is set aside, and counts apart as well. A trial that is allowed more than one
    failure does not end while a place is untried: no single device ends it, and no single node.
    The study's rules come before all that, and one of ours after them: what found a device's own
    memory full is tried again where there is more, as long as there is such a device, or on more
    devices where its study allows for that. Arguments
    that the program refused, and code that can't be unpacked, are wrong on every device, and end
    the trial at once. But the same
    error again, on another node than one that a rule has excluded for it, is the program's own. A
    trial that has its result, and was only to go on from there, ends at the first failure that is
    not the machine's.
    """
    run = trial.run
    assert run is not None
    failure = Failure(
        run.id.attempt,
        run.devices[event.rank] if event.rank < len(run.devices) else run.devices[0],
        event.error_kind,
        event.detail,
        event.signature,
        event.step,
        now,
        ruled(
            (*study.retry_rules, *(OUT_OF_DEVICE_MEMORY if left.owns_memory else ())), event.detail
        ),
        event.error_kind == RESTORE and _is_resized(trial, run, study),
        left.devices,
    )
    repeated = bool(event.signature) and any(
        (old.signature, old.step) == (event.signature, event.step) for old in trial.failures
    )
    trial = replace(trial, failures=(*trial.failures, failure), reason=event.detail)
    if failure.resized and not left.as_wide and trial.has_outgrown:
        words = "and on as many devices as its checkpoint was made on, it ran out of memory"
        return _ended_if(trial, True, event.detail, words)
    if study.failure_rule is FailureRule.HOPS and not failure.restores:
        return _ended_if(trial, strict_failures(trial) >= STRICT_TRIES, event.detail, STRICT_RULE)
    if trial.extending and not failure.machines:
        return _ended_if(trial, True, event.detail)
    if failure.error_kind == STALLED and study.stalled is OnStall.FAIL:
        return _ended_if(trial, True, event.detail)
    if failure.ruled is RetryAction.NO_RETRY:
        return _ended_if(trial, True, event.detail, "retry.rules: no_retry")
    if failure.error_kind in WRONG_EVERYWHERE and failure.ruled is None:
        return _ended_if(trial, True, event.detail)
    if failure.ruled is RetryAction.NOT_HERE and not left.elsewhere:
        words = "retry.rules: not_here, and there is no other device for it"
        return _ended_if(trial, True, event.detail, words)
    if failure.ruled is RetryAction.MORE_MEMORY:
        last = not left.roomier or study.max_failures == 1
        words = f"no other device has more memory for it{left.no_wider}"
        return _ended_if(trial, last, event.detail, "no tries left" if left.roomier else words)
    if failure.machines and not repeated:
        trial = replace(trial, misfortunes=trial.misfortunes + 1)
        last = trial.misfortunes >= MISFORTUNES_PER_FAILURE * study.max_failures
        words = f"{trial.misfortunes} times without progress"
    elif failure.restores:
        return _ended_if(trial, _restores(trial) >= MOST_RESTORES, event.detail, "too often")
    else:
        tries = sum(old.programs for old in trial.failures)
        last = repeated or tries >= study.max_failures
        words = "the same error at the same step twice" if repeated else "no tries left"
    sure = not left.untried or study.max_failures == 1
    return _ended_if(trial, last and sure, event.detail, words)


def _is_resized(trial: Trial, run: Run, study: Study) -> bool:
    """Whether the run was to go on from a checkpoint of another number of devices than it has."""
    saved = as_told(trial, study)
    return saved is not None and saved.is_of_other(len(run.devices))


def _restores(trial: Trial) -> int:
    return sum(old.restores for old in trial.failures)


def _ended_if(trial: Trial, last: bool, detail: str, words: str = "") -> Trial:
    """The trial, failed for good if that was the last try."""
    if not last or trial.ending:
        return trial
    return replace(trial, ending=Ending(Phase.FAILED, f"{detail} ({words})" if words else detail))
