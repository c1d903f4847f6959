"""Whether a policy keeps what every policy promises: tried out, for its author.

Rule: a kind of fault is told once, however many trials show it, with the place in the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from hermesd.core.model import Plugin, Quantum
from hermesd.core.plugins import build, raised
from hermesd.core.policy import Adaptive, Facts, Field, Planning, Policy, Ranking, Score, View
from hermesd.core.trial import Trial
from hermesd.policy.contract import (
    BrokenPromise,
    broken,
    checked_level,
    checked_plan,
    checked_quantum,
    checked_score,
    checked_suited,
    checked_words,
)
from hermesd.policy.rehearsal import mixed_bag, rehearse, trial, view

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
        except (Exception, SystemExit) as error:
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
