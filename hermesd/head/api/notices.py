"""What the author of a study should know about it, a line each.

Pure. Each notice is made here only, and shown wherever the study is.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import PurePath

from hermesd.config.policy_line import label_of
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.decide.searches import proposing
from hermesd.core.failure_effects import STOPPED
from hermesd.core.failures import one_line
from hermesd.core.model import DeviceId, Goal, Phase, Plugin, Study, StudyId, Time, UserId
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.head.api.metric_names import reported_as, told_loss, validation_loss
from hermesd.head.api.ranking import (
    all_reported,
    measure,
    names_its_metric,
    reported,
    trials_of,
)
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.pieces import Pieces, any_of, whole
from hermesd.refusal import nearest

NAMED = 3
# A program that trains has said something by then.
SOON_SECONDS = 60.0
# What frameworks report at the end of an epoch: the metrics of a whole one are known by then.
OF_AN_EPOCH = ("epoch_", "val_")
# In the name of a metric that may come as seldom, whoever reports it.
SELDOM = ("epoch", "val", "test", "dev")


def notices(scheduler: Scheduler, study: Study, now: Time) -> list[str]:
    """All there is to say of a study as it is now, wherever it is shown."""
    idle = scheduler.left_idle(study.id, now)
    return whole(all_notices(scheduler.state, study, now, idle))


def all_notices(
    state: State, study: Study, now: Time, idle: Sequence[DeviceId]
) -> Pieces[list[str]]:
    """The same, piece by piece; `idle` are the devices that the scheduler has `left_idle`."""
    trials = yield from trials_of(state, study)
    names = yield from all_reported(trials)
    found = [_silent_signal(state, study, trials, names)]
    yield
    found.append((yield from _silent_metric(study, trials, names, now)))
    found.append(_silent_trials(trials, names))
    yield
    found.append((yield from _all_the_same(study, trials, names)))
    found += [_stopped(study, trials), _failed(state, study), _idle(state, study, idle)]
    found.append(_excluded(state, study))
    found += [_unsearched(state, study), proposing(state, study.id)]
    yield
    found.append(_stalled(trials, now))
    return [words for words in found if words]


def _stalled(trials: Sequence[Trial], now: Time) -> str:
    """Which trials run and come to no further step."""
    since = {
        trial.id: trial.run.stalled_since
        for trial in trials
        if trial.run is not None and trial.run.stalled_since is not None
    }
    if not since:
        return ""
    minutes = (now - min(since.values())) / 60
    named = ", ".join([*since][:NAMED]) + (" …" if len(since) > NAMED else "")
    have, upto = ("has", "") if len(since) == 1 else ("have", "up to ")
    return (
        f"{named} {have} made no further step for {upto}{minutes:.0f} min:"
        " `hermesctl trial show` shows the last output; with `retry.stalled: retry` in the study"
        " file it would be tried again"
    )


def unread(state: State, study: Study) -> list[str]:
    """That its policy reads another metric than the one to judge by, for who asks why it decides
    as it does. Nothing once all trials have ended: then no policy reads anything."""
    trials = [state.trials[trial] for trial in state.members[study.id]]
    words = _other_metric(study, trials) if state.active[study.id] else ""
    return [words] if words else []


def alike(state: State, study: Study, user: UserId) -> list[StudyId]:
    """The user's studies with the very same program as this one."""
    program = study.program_sha256
    return [
        other.id
        for other in state.studies.values()
        if program and other.owner == user and other.program_sha256 == program
    ]


def foretold(state: State, study: Study, alike: Sequence[StudyId]) -> Pieces[list[str]]:
    """What to say of a study to come, going by what trials of those `alike` that were trained to
    their ends have reported."""
    trials: list[Trial] = []
    before = []
    for other in alike:
        if other in state.studies:  # not removed just now
            known = yield from trials_of(state, state.studies[other])
            known = [trial for trial in known if trial.phase is Phase.COMPLETED]
            trials += known
            before += [other] if known else []
    names = yield from all_reported(trials)
    whom = f"{', '.join(before[:NAMED])}{' …' if before[NAMED:] else ''}"
    ranking = measure(study, names)
    wanted = ranking.metric
    if not names:
        is_mute = trials and not study.program.metrics  # what those find may be new
        return [_mute(wanted, whom)] if is_mute else _apart(study)
    found = []
    never = f"was never reported by this program ({whom})"
    unnamed = (
        f"the study names no signal, and this program has never reported {study.signal} ({whom})"
    )
    if study.signal in names:
        found += [_other_metric(study, trials, whom)]
    elif (chosen := meant(state, study, names)) is not None:
        soon = f"policies will read {chosen[0]} once a trial has had a quantum or ended"
        advice = f"{_advice(study, *chosen, is_to_come=True)} has them read it from the first step"
        found += [f"{unnamed}: {soon}; {advice}"]
    elif wanted in names and not chooses_its_signal(study):
        advice = (
            f"{_advice(study, wanted, ranking.goal, is_to_come=True)} has policies read {wanted}"
        )
        found += [f"{unnamed}: {advice}"]
    else:
        found += [f"signal {study.signal} {never}; {_instead(study.signal, names)}"]
    if wanted not in (study.signal, *names):
        found += [f"metric {wanted} {never}; {_instead(wanted, names)}"]
    return [words for words in found if words]


def _other_metric(study: Study, trials: Sequence[Trial], before: str = "") -> str:
    """That the metric that the study names, or else a validation loss, is reported, or was by the
    studies `before` it, while policies read the loss that a study without a signal of its own has;
    else empty. Why they do: decision D39."""
    names = reported(trials)
    if study.signal not in names or chooses_its_signal(study):
        return ""
    wanted = measure(study, names)
    # Only a metric that the study names has no reason.
    chosen = not wanted.reason and _varies(wanted.metric, trials)
    other = wanted.metric if chosen else validation_loss(names)
    if other in ("", study.signal):
        return ""
    goal = wanted.goal if chosen else Goal.MINIMIZE
    how = f"was reported by this program too ({before})" if before else "is reported too"
    reads = f"policies read {study.signal}, as the study names no signal"
    return f"{reads}; {other} {how}: {_advice(study, other, goal, bool(before))} makes them read it"


def _mute(wanted: str, before: str) -> str:
    """That the studies `before` have reported nothing at all, and how to report what ranks."""
    nothing = "nothing will rank its trials or tell policies which to train"
    return f"this program has never reported a metric ({before}): {nothing}; {_how(wanted)}"


def _apart(study: Study) -> list[str]:
    """That the metric which a study names ranks its trials, and policies read another; nothing
    where it has said what they read, or has no policy. Why they do: decision D39."""
    ranking = measure(study, ())
    if not names_its_metric(study) or study.outside or chooses_its_signal(study):
        return []
    if ranking.metric == study.signal:
        return []
    advice = _advice(study, ranking.metric, ranking.goal, is_to_come=True)
    return [
        f"{ranking.metric} ranks the trials; policies read {study.signal}, the training loss, where"
        f" it is reported: {advice} has them read {ranking.metric}"
    ]


def _advice(study: Study, metric: str, goal: Goal, is_to_come: bool = False) -> str:
    """What has policies read this metric in a study, or in one that `is_to_come`."""
    maximized = goal is Goal.MAXIMIZE
    if is_to_come:
        return f"`--set signal.name={metric}{' --set signal.goal=maximize' if maximized else ''}`"
    return f"`hermesctl study signal {study.id} {metric}{' --goal maximize' if maximized else ''}`"


def meant(state: State, study: Study, names: Collection[str]) -> tuple[str, Goal] | None:
    """The metric that policies are to read, and its goal, where trials report these and nobody has
    said which: the one that the study names, or the loss that its name tells.

    None if they report what policies read anyway, if nothing can be told, and where the study or
    its policy has a target, which means nothing for another metric."""
    pool = state.pools.get(study.pool)
    policy = (pool.policy if pool else None) or study.policy
    has_target = study.stop.target is not None or "target" in dict(policy.settings)
    if study.signal in names or chooses_its_signal(study) or has_target:
        return None
    if names_its_metric(study):
        named = reported_as(study.metric, names)
        return (named, study.goal) if named in names else None
    loss = told_loss(names)
    return (loss, Goal.MINIMIZE) if loss else None


def chooses_its_signal(study: Study) -> bool:
    """Whether its file names what policies read, or it was chosen since."""
    return study.signal_chosen or _names_a_signal(study.source)


def _varies(metric: str, trials: Iterable[Trial]) -> bool:
    """Whether it has had more than one value: one that has not tells no trial from another."""
    seen = [t.metrics[metric] for t in trials if metric in t.metrics]
    measured = [each for each in seen if each.measured]
    return bool(measured) and min(m.low for m in measured) < max(m.high for m in measured)


@lru_cache(maxsize=64)
def _names_a_signal(source: bytes) -> bool:
    return bool(types.StudySpec.FromString(source).signal.name)


def _silent_signal(
    state: State, study: Study, trials: Sequence[Trial], names: Sequence[str]
) -> str:
    """That no trial has reported the signal, though other metrics were; else empty."""
    if not names or study.signal in names or any(trial.curve for trial in trials):
        return ""
    ended = any(trial.phase is Phase.COMPLETED for trial in trials)
    when = "was never reported" if ended else "has not been reported so far"
    chosen, wanted = meant(state, study, names), measure(study, names)
    said = f"signal {study.signal} {when}"
    instead = _instead(study.signal, names, chosen[0] if chosen else "")
    if wanted.metric == study.signal:  # nothing has a rank, then
        return f"{said}; {instead}: {_choice(study, study.signal, names)}"
    is_over = all(trial.phase.final for trial in trials)
    if is_over or wanted.metric not in names or chooses_its_signal(study):
        return f"{said}; {instead}"
    advice = _advice(study, *(chosen or (wanted.metric, wanted.goal)))
    return f"{said}: {advice} has policies read that metric; {instead}"


def _silent_metric(
    study: Study, trials: Sequence[Trial], names: Sequence[str], now: Time
) -> Pieces[str]:
    """That neither a whole program nor an epoch nor a minute of training has brought what the study
    ranks, and what has it rank something else; empty otherwise. A first quantum is enough where it
    has brought other metrics than the signal, and the one that ranks sounds like none of an
    epoch."""
    wanted = measure(study, names).metric
    if wanted in names or (names and wanted == study.signal):
        return ""
    trained = yield from any_of(trials, lambda trial: _trained_seconds(trial, now) >= SOON_SECONDS)
    ended = yield from any_of(trials, lambda trial: trial.phase is Phase.COMPLETED)
    over = ended or not (yield from any_of(trials, lambda trial: not trial.phase.final))
    epoch = any(name.startswith(OF_AN_EPOCH) for name in names)
    epoch = epoch or (yield from any_of(trials, lambda trial: bool(trial.passes)))
    soon = bool({*names} - {study.signal}) and not any(word in wanted for word in SELDOM)
    soon = soon and (yield from any_of(trials, lambda trial: trial.explored))
    if not (trained or epoch or ended or soon or (over and names)):
        return ""
    when = "was never reported" if over else "has not been reported so far"
    others = f"; {_instead(wanted, names)}: {_choice(study, wanted, names)}" if names else ""
    said = f"metric {wanted} {when}{others}"
    if set(names) - {study.signal}:
        return said  # it knows how to report
    return f"{said}; {_how(wanted)}"


def _how(wanted: str) -> str:
    """How a program reports a metric."""
    given = f"{wanted}=..." if wanted.isidentifier() else f"{{{wanted!r}: ...}}"
    found = "or by `metrics:` in the study file, from what it prints"
    return f"a program reports it by trainer_shim.log({given}), {found}"


def _silent_trials(trials: Sequence[Trial], names: Sequence[str]) -> str:
    """Which trials have completed and reported nothing, though others have; else empty."""
    silent = [
        trial.id
        for trial in trials
        if trial.phase is Phase.COMPLETED and not trial.metrics and not trial.curve
    ]
    if not silent or not names:
        return ""
    named = ", ".join(silent[:NAMED]) + (" …" if silent[NAMED:] else "")
    completed = sum(trial.phase is Phase.COMPLETED for trial in trials)
    return (
        f"{len(silent)} of {completed} completed trials reported nothing ({named}):"
        " `hermesctl logs` has what they printed"
    )


def _all_the_same(study: Study, trials: Sequence[Trial], names: Sequence[str]) -> Pieces[str]:
    """That all trials that have completed came to the very same values, though their parameters
    differ; else empty. A result that has only one value, as an accuracy at the end, may well be the
    same, and so is any count of epochs."""

    def came_to(trial: Trial) -> list[tuple[str, float | None, float, float]]:
        found = trial.metrics.items()
        return sorted((name, each.last, each.low, each.high) for name, each in found)

    def differs(trial: Trial) -> bool:
        return trial.step != first.step or came_to(trial) != came_to(first)

    ended = [trial for trial in trials if trial.phase is Phase.COMPLETED]
    if not ended:
        return ""
    first = ended[0]
    results = {measure(study, names).metric, study.signal} & first.metrics.keys()
    if not any(first.metrics[name].low < first.metrics[name].high for name in results):
        return ""
    if (yield from any_of(ended, differs)):
        return ""
    if not (yield from any_of(ended, lambda trial: trial.spec.stages != first.spec.stages)):
        return ""
    named = ", ".join(trial.id for trial in ended[:NAMED]) + (" …" if ended[NAMED:] else "")
    line = shlex.join([PurePath(first.spec.argv[0]).name, *first.spec.argv[1:]])
    same = "came to the very same values with different parameters: does the program use them?"
    return f"{named} {same} It gets them by `{line}`, and as JSON in HERMES_PARAMETERS"


def _trained_seconds(trial: Trial, now: Time) -> float:
    """Less a slow start, in which nothing can be reported."""
    present = now - trial.run.since if trial.run is not None and trial.run.started else 0.0
    return max(0.0, trial.served_seconds + present - trial.longest_start_seconds)


def policy_words(state: State, study_id: StudyId, deciding: str) -> str:
    """A study's policy with its settings: `fifo (asha:eta=2 failed)` if `fifo` is now deciding."""
    words = label_of(state.own_policy(study_id), state.placement_of(study_id))
    return f"{deciding} ({words} failed)" if study_id in state.fallen else words


def _failed(state: State, study: Study) -> str:
    """That the policy failed, how, and what decides in its place; empty if it did not."""
    if (detail := state.fallen.get(study.id)) is None:
        return ""
    own, other = state.own_policy(study.id).name, state.policy_of(study.id).name
    written = label_of(state.own_policy(study.id), Plugin("free"))
    advice = f"try `hermesd policy check {written}`"
    return f"policy {own} failed, and {other} decides instead: {detail}; {advice}"


def _unsearched(state: State, study: Study) -> str:
    """That the searcher failed, how, and what proposes in its place; empty if it did not."""
    if (detail := state.unsearched.get(study.id)) is None or study.searcher is None:
        return ""
    name = study.searcher.name
    return f"{name} failed, and further trials are drawn at random: {detail}"


def _stopped(study: Study, trials: Sequence[Trial]) -> str:
    """That its first trials failed alike, which has stopped it, and how to go on; else empty."""
    failed = [trial for trial in trials if trial.failures and trial.phase is Phase.FAILED]
    if not any(trial.reason.endswith(f"({STOPPED})") for trial in trials) or not failed:
        return ""
    error = one_line(failed[0].failures[-1].detail)
    named = ", ".join(trial.id for trial in failed[:NAMED]) + (" …" if failed[NAMED:] else "")
    alike = f"the first {len(failed)} trials failed alike before their first step ({named})"
    retry = f"`hermesctl study retry {study.id}`"
    on = f"fix that and submit again, or {retry} if the program was not at fault"
    off = "submitting with `--set retry.on_same_failure=go_on` tries all trials"
    return f"stopped, as {alike}: {error}; {on}; {off}"


def _idle(state: State, study: Study, devices: Sequence[DeviceId]) -> str:
    """That the policy claims nothing though it could have these devices; empty without any."""
    if not devices:
        return ""
    waiting = sum(state.trials[t].phase is Phase.WAITING for t in state.active[study.id])
    named = ", ".join(devices[:NAMED]) + (" …" if len(devices) > NAMED else "")
    claims = f"policy {state.policy_of(study.id).name} claims none of the {waiting} waiting trials"
    return f"{claims}, though {named} could take them"


def _excluded(state: State, study: Study) -> str:
    """That its rules keep the study from all devices, and how to go on; empty if one is left."""
    places = {place: why for (its, place), why in state.excluded.items() if its == study.id}
    if not places or not state.active[study.id]:
        return ""
    devices = [slot.device for slot in state.slots.values() if state.serves(slot.device, study)]
    if any(each.id not in places and each.node not in places for each in devices):
        return ""
    place, why = next(iter(places.items()))
    on = f"`hermesctl node release {place.partition('/')[0]}` gives it back"
    return f"no device is left that the study may have: on {place}, {why.reason}; {on}"


def _choice(study: Study, wanted: str, names: Sequence[str]) -> str:
    """How to rank by one of the metrics that were reported; the goal is that of one that may be
    meant, and another's is not known."""
    meant = nearest(wanted, names)
    goal = f" --goal {study.goal}" if meant and study.goal is not Goal.MINIMIZE else ""
    near = meant or (names[0] if len(names) == 1 else "NAME")
    return f"`hermesctl study metric {study.id} {near}{goal}` ranks by that one"


def _instead(word: str, names: Sequence[str], meant: str = "") -> str:
    """What was reported, and which of it is, or may be, meant."""
    near = meant or nearest(word, names)
    return f"reported: {', '.join(names)}{f' (did you mean {near}?)' if near else ''}"
