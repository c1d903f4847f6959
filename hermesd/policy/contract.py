"""What every policy promises: its class, and each of its answers.

The checks of an answer are made of every answer that a policy from another package gives (see
`installed`), so that the scheduler, the journal and the wire are only ever handed what they can
take; `trying` makes them for its author.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from hermesd.core.model import Milestone, Quantum
from hermesd.core.policy import Adaptive, Claim, Score, View
from hermesd.core.trial import Trial

MIN_QUANTUM_SECONDS = 0.1
RANKING = ("score", "quantum", "words")
PLANNING = ("plan", "words")


class BrokenPromise(ValueError):
    """An answer that no policy may give; says which and why.

    Those of one `kind` break the same promise, by whatever value for whatever trial.
    """

    def __init__(self, words: str, kind: str = "") -> None:
        super().__init__(words)
        self.kind = kind or words


# --- one answer ----------------------------------------------------------------------------------


def checked_score(score: Any) -> Score:
    """The score, if it is a tuple of numbers without NaN; a bool is one, as everywhere in Python.

    Raises `BrokenPromise`.
    """
    fits = isinstance(score, tuple) and all(isinstance(each, int | float) for each in score)
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
        raise broken("quantum", quantum, "a Quantum")
    seconds, until = quantum.seconds, quantum.until_step
    enough = seconds is None or (_number(seconds) and MIN_QUANTUM_SECONDS <= seconds < math.inf)
    _promise(enough, "quantum.seconds", seconds, f"None or at least {MIN_QUANTUM_SECONDS}")
    ahead = until is None or (type(until) is int and until > asked.step)
    expected, where = "None or a step after the trial's own", f", which is {asked.step}"
    _promise(ahead, "quantum.until_step", until, expected, where)
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
            raise broken("plan", claim, "Claims")
        known = candidates.pop(claim.trial, None)
        if known is None:
            raise broken("plan", claim.trial, "candidates of the view, each once")
        checked_quantum(claim.quantum, known)
        checked_words(claim.reason)
    return plan


def _promise(kept: bool, what: str, value: object, expected: str, where: str = "") -> None:
    if not kept:
        raise broken(what, value, expected, where)


def broken(what: str, value: object, expected: str, where: str = "") -> BrokenPromise:
    """The error that an answer is which will not do; `where` is no part of its kind."""
    words = f"{what} is {value!r:.80}: expected {expected}{where}"
    return BrokenPromise(words, f"{what}: expected {expected}")


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
