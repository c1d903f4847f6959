"""What every policy promises, and whether one keeps it.

`faults` tries a policy out, for its author; the checks that it makes of an answer are made of
every answer that a policy from another package gives (see `installed`), so that the scheduler,
the journal and the wire are only ever handed what they can take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from hermesd.core.model import Milestone, Plugin, Quantum
from hermesd.core.plugins import build
from hermesd.core.policy import (
    Adaptive,
    Claim,
    Facts,
    Field,
    Planning,
    Policy,
    Ranking,
    Score,
    View,
)
from hermesd.core.trial import Trial
from hermesd.policy.rehearsal import mixed_bag, rehearse, trial, view

Answer = TypeVar("Answer")
MIN_QUANTUM_SECONDS = 0.1
MEASURED = Facts(0.2, 0.3, 0.01)
RANKING = ("score", "quantum", "words")
PLANNING = ("plan", "words")


class BrokenPromise(ValueError):
    """An answer that no policy may give; says which and why."""


# --- one answer ----------------------------------------------------------------------------------


def checked_score(score: Any) -> Score:
    """The score, if it is a tuple of numbers without NaN. Raises `BrokenPromise`."""
    fits = isinstance(score, tuple) and all(map(_number, score))
    _promise(fits, "score", score, "a tuple of numbers")
    _promise(not any(map(math.isnan, score)), "score", score, "no NaN: it has no place in an order")
    return tuple(map(float, score))


def checked_level(level: Any) -> float:
    """The level, if it is a number. Raises `BrokenPromise`."""
    _promise(_number(level) and not math.isnan(level), "level", level, "a number, not NaN")
    return float(level)


def checked_words(words: Any) -> str:
    """The words, if people can read them. Raises `BrokenPromise`."""
    _promise(isinstance(words, str) and bool(words.strip()), "words", words, "some text")
    return str(words)


def checked_suited(suited: Any, policy: Adaptive) -> Adaptive:
    """The policy with other settings, if it is of the same class. Raises `BrokenPromise`."""
    same = isinstance(suited, type(policy))
    _promise(same, "suited", suited, f"a {type(policy).__name__}, with settings of its own")
    return policy if not isinstance(suited, type(policy)) else suited


def checked_quantum(quantum: Any, asked: Trial) -> Quantum:
    """The quantum, if it can be granted to the trial. Raises `BrokenPromise`."""
    if not isinstance(quantum, Quantum):
        raise BrokenPromise(_said("quantum", quantum, "a Quantum"))
    seconds, until = quantum.seconds, quantum.until_step
    enough = seconds is None or (_number(seconds) and MIN_QUANTUM_SECONDS <= seconds < math.inf)
    _promise(enough, "quantum.seconds", seconds, f"None or at least {MIN_QUANTUM_SECONDS}")
    ahead = until is None or (type(until) is int and until > asked.step)
    expected = f"None or a step after {asked.step}, where the trial is"
    _promise(ahead, "quantum.until_step", until, expected)
    reachable = quantum.loss is None or (_number(quantum.loss) and math.isfinite(quantum.loss))
    _promise(reachable, "quantum.loss", quantum.loss, "None or a finite number")
    _promise(type(quantum.exact) is bool, "quantum.exact", quantum.exact, "true or false")
    milestones: Any = quantum.milestones
    real = isinstance(milestones, tuple) and all(
        isinstance(each, Milestone) and math.isfinite(each.loss) and math.isfinite(each.percent)
        for each in milestones
    )
    _promise(real, "quantum.milestones", milestones, "a tuple of finite Milestones")
    return quantum


def checked_plan(claims: Iterable[Any], study: View) -> list[Claim]:
    """The claims, if each is of another candidate of the study. Raises `BrokenPromise`."""
    candidates = {each.id: each for each in study.trials if each.candidate}
    plan = list(claims)
    for claim in plan:
        if not isinstance(claim, Claim):
            raise BrokenPromise(_said("plan", claim, "Claims"))
        known = candidates.pop(claim.trial, None)
        if known is None:
            expected = "candidates of the view, each once"
            raise BrokenPromise(_said("plan", claim.trial, expected))
        checked_quantum(claim.quantum, known)
        checked_words(claim.reason)
    return plan


def _promise(kept: bool, what: str, value: object, expected: str) -> None:
    if not kept:
        raise BrokenPromise(_said(what, value, expected))


def _said(what: str, value: object, expected: str) -> str:
    return f"{what} is {value!r:.80}: expected {expected}"


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- the class -----------------------------------------------------------------------------------


def misshapen(kind: Any, name: str) -> str:
    """Why a class cannot be the policy of this name, "" if it can."""
    if not isinstance(kind, type):
        return f"it is {type(kind).__name__}, not a class"
    if not is_dataclass(kind) or not getattr(kind, "__dataclass_params__").frozen:  # noqa: B009
        return "it is not a frozen dataclass"
    if getattr(kind, "name", None) != name:
        return f"its `name` is {getattr(kind, 'name', None)!r}, not {name!r}"
    if name in {field.name for field in fields(kind)}:
        return "its `name` must be a ClassVar, not a setting"
    forms = [f for f in (RANKING, PLANNING) if all(callable(getattr(kind, m, None)) for m in f)]
    if len(forms) != 1:
        return "it must have either score, quantum and words, or plan and words"
    return ""


# --- the whole policy ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trying:
    """The policy on trial, and what it broke so far."""

    policy: Policy
    found: list[str]

    def attempt(self, what: str, question: Callable[[], Answer]) -> Answer | None:
        """The answer to a question; None, and a note, if it raises."""
        try:
            return question()
        except (Exception, SystemExit) as error:
            kind = "" if isinstance(error, BrokenPromise) else f"{type(error).__name__}: "
            note = f"{what}: {kind}{error}"
            if note not in self.found:
                self.found.append(note)
            return None

    def each(
        self, what: str, question: Callable[[Trial], Answer], trials: Iterable[Trial]
    ) -> list[Answer | None]:
        """The answers to a question about each trial."""
        return [
            self.attempt(f"{what} of {_told(trial)}", lambda trial=trial: question(trial))  # type: ignore[misc]
            for trial in trials
        ]


def faults(policy: Policy) -> list[str]:
    """Every promise that the policy breaks, in words; none for a policy to trust.

    It is asked twice about trials in every condition, about studies that are empty, new or over,
    and led through a small study in which each trial must come to its end.
    """
    trying = Trying(policy, [])
    trying.attempt("settings", lambda: _settings(policy))
    bag, kept = mixed_bag(), mixed_bag()
    whole = view(*bag, devices=3, facts=MEASURED)
    for study in (whole, replace(whole, facts=Facts(), now=0.0), *_plain_views()):
        first, again = _answers(trying, study), _answers(trying, study)
        if first != again:
            trying.found.append("the same view gave two answers: a policy keeps no memory")
    if repr(bag) != repr(kept):
        trying.found.append("it changed the trials that it was shown")
    if not trying.found:
        trying.attempt("a study of six trials", lambda: rehearse(policy))
    return list(dict.fromkeys(trying.found))


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
            trying.found.append("plan: it is empty though trials wait and nothing runs")
        return said, plan
    if not isinstance(policy, Adaptive):
        return said, _judgements(trying, policy, study)
    trials = (*study.trials, *study.finished)
    sample = [each for each in trials if each.curve]
    levels = trying.each("level", lambda each: checked_level(policy.level(each)), sample)
    suited = trying.attempt("suited", lambda: checked_suited(policy.suited(sample), policy))
    rankings = _rankings(trying, suited or policy, study, sample)
    return said, levels, suited, [_judgements(trying, each, study) for each in rankings]


def _rankings(trying: Trying, policy: Adaptive, study: View, sample: list[Trial]) -> list[Ranking]:
    """The policy's own ranking, and what it adapts to each trial in the lead."""
    candidates = [each for each in study.trials if each.candidate]
    found: list[Ranking] = [policy]
    if not candidates:
        return found
    first = min(candidates, key=policy.score)
    for leader in sample:
        field = Field(leader, sample)
        adapted = trying.attempt("adapted", lambda field=field: policy.adapted(field))  # type: ignore[misc]
        if adapted is None:
            continue
        trying.attempt("front", lambda each=adapted: each.front and checked_score(each.front))  # type: ignore[misc]
        facing = trying.attempt("facing", lambda each=adapted: each.facing(first))  # type: ignore[misc]
        found += [] if facing is None else [facing]
    return found


def _judgements(trying: Trying, ranking: Ranking, study: View) -> object:
    """All that a ranking says about the trials that are not finished, checked."""

    def score(each: Trial) -> Score:
        return checked_score(ranking.score(each))

    def quantum(each: Trial) -> Quantum:
        return checked_quantum(ranking.quantum(each, study.facts), each)

    def words(each: Trial) -> str:
        return checked_words(ranking.words(each))

    scores = trying.each("score", score, study.trials)
    if len({len(score) for score in scores if score is not None}) > 1:
        trying.found.append("score: tuples of different lengths")
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
    _promise(read == policy, "settings", read, repr(policy))
