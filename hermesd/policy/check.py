"""Checks for its author whether a policy keeps what every policy must promise, by trying it out.

Each kind of fault is reported once, however many trials show it, with its place in the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, TypeVar

from hermesd.core.losses import Chunk, QuantumLosses, chunked, extend
from hermesd.core.model import Phase, Plugin, Quantum, RunId, Stage, Tier, Time, TrialId, TrialSpec
from hermesd.core.policy import (
    Adapted,
    Adaptive,
    Facts,
    Field,
    Planning,
    Policy,
    Ranking,
    Score,
    View,
    build,
    raised,
)
from hermesd.core.trial import Ending, Run, SwitchCost, Trial, Use
from hermesd.policy.plugin import (
    BrokenPromise,
    broken,
    checked_level,
    checked_plan,
    checked_quantum,
    checked_score,
    checked_suited,
    checked_words,
)

# What policies are tried on: trials in every condition, and a small study from start to end.
#
# No clock, no processes: trials are made by hand and trained by arithmetic.

STUDY_TRIALS, STUDY_STEPS, STEP_SECONDS = 6, 120, 0.25
# A study that takes more decisions than this will not end: its shortest quanta are 0.1 s.
MOST_DECISIONS = 5_000


def trial(number: int = 0, **known: Any) -> Trial:
    """A waiting trial that never ran, but for what is `known` of it."""
    spec = TrialSpec(f"s/{number}", "s", number, (_stage(number),), (), 0)
    return replace(Trial(spec, 0.0, 0.0), **known)


def _stage(number: int) -> Stage:
    optimizer = ("sgd", "adam", "momentum")[number % 3]
    return Stage(None, (("lr", 10.0 ** -(number % 4)), ("optimizer", optimizer)))


def losses(*values: float) -> QuantumLosses:
    """The losses of one quantum."""
    return QuantumLosses(len(values), min(values), max(values))


def curve(values: Sequence[float]) -> tuple[Chunk, ...]:
    """One chunk an iteration, from step 1 on."""
    return extend((), [Chunk(i, i, 1, v, v, v) for i, v in enumerate(values, 1)])


def trained(number: int, values: Sequence[float], **known: Any) -> Trial:
    """A trial that was seen for one quantum, in which it showed these losses."""
    seen = losses(*values)
    shown = {"quanta": 1, "first": seen, "latest": seen, "step": len(values)}
    return trial(number, curve=curve(values), **{**shown, **known})


def on_device(each: Trial, expired: bool = True) -> Trial:
    """The trial running, by default with its quantum over."""
    run = Run(RunId(each.id, 1), ("n/0",), Quantum(1.0), 0.0, expired=expired)
    return replace(each, phase=Phase.RUNNING, run=run, attempt=1)


def finished(each: Trial) -> Trial:
    """The trial, completed."""
    return replace(each, phase=Phase.COMPLETED, finished=9.0)


def view(*trials: Trial, devices: int = 1, now: Time = 100.0, facts: Facts | None = None) -> View:
    """A study of these trials."""
    return View(
        now,
        [each for each in trials if not each.phase.final],
        [each for each in trials if each.phase.final],
        devices,
        facts or Facts(),
    )


def costing(suspend: float, resume: float) -> dict[Tier, SwitchCost]:
    """Measured costs of a switch in the park tier."""
    return {Tier.PARK: SwitchCost(suspend, resume)}


def mixed_bag() -> list[Trial]:
    """Trials in every condition that a policy may meet."""
    nan = float("nan")
    falling = [3.0 - i / 20 for i in range(40)]
    return [
        trial(0),
        trial(1, planned_steps=1000),
        trained(2, falling, planned_steps=100, use=Use(busy_seconds=4.0)),
        trained(3, [1.0] * 30, costs=costing(0.5, 1.5), served_seconds=50.0),
        trained(4, [nan, nan, nan], not_finite=True),
        trained(5, [-0.1, -0.2, -0.3], milestone_percent=50.0, milestones_passed=2),
        trial(6, quanta=2, served_seconds=20.0),
        on_device(trained(7, falling[:10], planned_steps=200)),
        on_device(trained(8, falling), expired=False),
        replace(on_device(trial(9), expired=False), phase=Phase.STARTING),
        replace(
            on_device(trained(10, falling)),
            phase=Phase.SUSPENDING,
            ending=Ending(Phase.CANCELLED, ""),
        ),
        trained(11, [float("inf")] * 5),
        trained(12, [0.0] * 25, preemptions=4, rested=70.0),
        finished(trained(13, falling, planned_steps=40)),
        finished(trial(14)),
        replace(trained(15, falling[:20], planned_steps=40), phase=Phase.FAILED, finished=8.0),
        trained(16, falling, planned_steps=40, use=Use(busy_seconds=9.0), submitted=50.0),
        trained(17, [5e-324, 1e300, 5.0], step_seconds={"cpu": 0.5}, planned_steps=3),
        trained(18, [2.0], planned_steps=100_000, use=Use(busy_seconds=0.1, cpu_seconds=0.3)),
    ]


def rehearse(policy: Policy) -> dict[TrialId, Time]:
    """When each trial of a small study on one device ended under the policy.

    Raises:
        TimeoutError: some trial does not end, because the policy never claims it a device, or
            grants so little that the study does not get on.
    """
    trials = {each.id: each for each in (trial(n) for n in range(STUDY_TRIALS))}
    now, ends = 0.0, dict[TrialId, Time]()
    for _ in range(MOST_DECISIONS):
        chosen = _first(policy, view(*trials.values(), now=now, facts=Facts(0.1, 0.2)))
        if chosen is None:
            break
        winner, quantum = chosen
        for each in trials.values():
            if each.run is not None and each.id != winner:
                trials[each.id] = _suspended(each, now)
        ran = _ran(trials[winner], quantum, now)
        now += (ran.step - trials[winner].step) * STEP_SECONDS
        if ran.step >= STUDY_STEPS:
            ran, ends[winner] = replace(finished(ran), run=None), now
        trials[winner] = ran
    if len(ends) < STUDY_TRIALS:
        left = sorted(trials.keys() - ends.keys())
        raise TimeoutError(f"{', '.join(left)} did not end: the policy claims them no device")
    return ends


def _first(policy: Policy, study: View) -> tuple[TrialId, Quantum] | None:
    """Who gets the device, and for how long."""
    if isinstance(policy, Planning):
        return next(((claim.trial, claim.quantum) for claim in policy.plan(study)), None)
    order = sorted(study.trials, key=policy.score)
    return next(((each.id, policy.quantum(each, study.facts)) for each in order), None)


def _ran(each: Trial, quantum: Quantum, now: Time) -> Trial:
    """The trial after its quantum: 1 / k to a floor of its own."""
    until = STUDY_STEPS if quantum.until_step is None else min(quantum.until_step, STUDY_STEPS)
    steps = until - each.step
    if quantum.seconds is not None:
        steps = min(steps, math.ceil(quantum.seconds / STEP_SECONDS))
    begin, floor = each.step + 1, each.spec.number / 10
    values = [floor + 1 / step for step in range(begin, begin + steps)]
    chunks = chunked(begin, values)
    seen = QuantumLosses().with_chunks(chunks)
    busy = each.use.busy_seconds + steps * STEP_SECONDS
    return replace(
        on_device(each),
        planned_steps=STUDY_STEPS,
        step=each.step + steps,
        curve=extend(each.curve, chunks),
        quanta=each.quanta + 1,
        first=each.first or seen,
        before=each.latest,
        latest=seen,
        use=Use(busy_seconds=busy),
        step_seconds={"cpu": STEP_SECONDS},
    )


def _suspended(each: Trial, now: Time) -> Trial:
    return replace(
        each,
        phase=Phase.WAITING,
        run=None,
        rested=now,
        served_seconds=each.use.busy_seconds,
        preemptions=each.preemptions + 1,
        costs=costing(0.1, 0.2),
    )


Answer = TypeVar("Answer")
MEASURED = Facts(0.2, 0.3, 0.01)


@dataclass(slots=True)
class Fault:
    """Something that a policy does wrong: how it was first seen, and for which trials in all."""

    words: str
    trials: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        others = len(self.trials) - 1
        return self.words + (f" (likewise for {others} other trials)" if others > 0 else "")


@dataclass(frozen=True, slots=True)
class Trying:
    """The policy on trial, and what it broke so far, each kind of fault once."""

    policy: Policy
    found: dict[str, Fault] = field(default_factory=dict)

    def attempt(self, what: str, question: Callable[[], Answer], trial: str = "") -> Answer | None:
        """The answer to a question, about a trial or none; None, and a note, if it raises."""
        try:
            return question()
        except (Exception, SystemExit) as error:  # whatever a plug-in raises: it is noted
            about = f"{what} of {trial}" if trial else what
            if isinstance(error, BrokenPromise):
                fault = self.note(f"{about}: {error}", f"{what}: {error.kind}")
            else:
                line = _line(error)
                words = f"{about}: {raised(error)}"
                fault = self.note(words + f" ({line})" * bool(line), f"{what}: {line}")
            fault.trials.add(trial)
            return None

    def note(self, words: str, kind: str = "") -> Fault:
        """Keep a fault, unless one of its kind is known; the one that is kept."""
        return self.found.setdefault(kind or words, Fault(words))

    def each(
        self, what: str, question: Callable[[Trial], Answer], trials: Iterable[Trial]
    ) -> list[Answer | None]:
        """The answers to a question about each trial."""
        return [
            self.attempt(what, lambda trial=trial: question(trial), _told(trial))  # type: ignore[misc]
            for trial in trials
        ]


def _line(error: BaseException) -> str:
    """The file and line that raised, for a policy's author."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"


def faults(policy: Policy) -> list[str]:
    """Every promise that the policy breaks, each in a line; none for a policy to trust.

    It is asked twice about trials in every condition, about studies that are empty, new or over,
    and led through a small study in which each trial must come to its end.
    """
    trying = Trying(policy)
    trying.attempt("settings", lambda: _settings(policy))
    bag, kept = mixed_bag(), mixed_bag()
    whole = view(*bag, devices=3, facts=MEASURED)
    for study in (whole, replace(whole, facts=Facts(), now=0.0), *_plain_views()):
        first, again = _answers(trying, study), _answers(trying, study)
        if first != again:
            trying.note("the same view gave two answers: a policy keeps no memory")
    if repr(bag) != repr(kept):
        trying.note("it changed the trials that it was shown")
    if not trying.found:
        trying.attempt("a study of six trials", lambda: rehearse(policy))
    return list(map(str, trying.found.values()))


def _plain_views() -> Iterable[View]:
    fresh = [trial(n) for n in range(5)]
    over = [each for each in mixed_bag() if each.phase.final]
    return view(), view(*over), view(*fresh, now=0.0), view(fresh[0], *over, devices=0)


def _answers(trying: Trying, study: View) -> object:
    """All that the policy says about a study, checked."""
    policy = trying.policy

    def words(each: Trial) -> str:
        return checked_words(policy.words(each))

    said = trying.each("words", words, (*study.trials, *study.finished))
    if isinstance(policy, Planning):
        plan = trying.attempt("plan", lambda: checked_plan(policy.plan(study), study))
        waits = any(each.candidate for each in study.trials)
        busy = any(each.phase.on_device for each in study.trials)
        if plan == [] and waits and not busy:
            trying.note("plan: it is empty though trials wait and nothing runs")
        return said, plan
    if not isinstance(policy, Adaptive):
        return said, _judgments(trying, policy, study)
    trials = (*study.trials, *study.finished)
    sample = [each for each in trials if each.curve]
    levels = trying.each("level", lambda each: checked_level(policy.level(each)), sample)
    suited = trying.attempt("suited", lambda: checked_suited(policy.suited(sample), policy))
    rankings = _rankings(trying, suited or policy, study, sample)
    return said, levels, suited, [_judgments(trying, each, study) for each in rankings]


def _rankings(trying: Trying, policy: Adaptive, study: View, sample: list[Trial]) -> list[Ranking]:
    """The policy's own ranking, and what it adapts to each trial in the lead."""
    candidates = [each for each in study.trials if each.candidate]
    found: list[Ranking] = [policy]
    if not candidates:
        return found
    first = min(candidates, key=policy.score)
    for leader, enough in product(sample, (False, True)):
        field = Field(leader, sample, enough)
        adapted = trying.attempt("adapted", lambda field=field: policy.adapted(field))  # type: ignore[misc]
        if adapted is None:
            continue
        trying.attempt("fronts", lambda each=adapted: _checked_fronts(each))  # type: ignore[misc]
        facing = trying.attempt("facing", lambda each=adapted: each.facing(first))  # type: ignore[misc]
        found += [] if facing is None else [facing]
    return found


def _checked_fronts(adapted: Adapted) -> list[Score | None]:
    return [None if each is None else checked_score(each) for each in adapted.fronts]


def _judgments(trying: Trying, ranking: Ranking, study: View) -> object:
    """All that a ranking says about the trials that are not finished, checked."""

    def score(each: Trial) -> Score:
        return checked_score(ranking.score(each))

    def quantum(each: Trial) -> Quantum:
        return checked_quantum(ranking.quantum(each, study.facts), each)

    def words(each: Trial) -> str:
        return checked_words(ranking.words(each))

    scores = trying.each("score", score, study.trials)
    if len({len(score) for score in scores if score is not None}) > 1:
        trying.note("score: tuples of different lengths")
    quanta = trying.each("quantum", quantum, study.trials)
    return scores, quanta, trying.each("words", words, study.trials)


def _told(each: Trial) -> str:
    """A trial of a rehearsal, for its policy's author."""
    state = f"{each.phase} at step {each.step} of {each.planned_steps or 'an unknown length'}"
    loss = "no loss" if each.loss is None else f"loss {each.loss:.3g}"
    return f"trial {each.spec.number}: {state}, {loss}"


def _settings(policy: Policy) -> None:
    """The settings come back from a study file as they were."""
    names = [field.name for field in fields(policy)]  # type: ignore[arg-type]
    written = Plugin(policy.name, tuple((name, getattr(policy, name)) for name in names))
    known: dict[str, type[Policy]] = {policy.name: type(policy)}
    read = build("policy", known, written)
    if read != policy:
        raise broken("settings", read, repr(policy))
