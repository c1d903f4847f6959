"""The methods that propose a study's trials while others train, and how they begin.

The first trials are drawn at random, the same ones as with `method: random` and the same seed. A
searcher proposes the others, once there are results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hermesd.core.model import Searcher
from hermesd.refusal import FieldError
from hermesd.study.spec import StudySection

#: Trials of a study that does not say how many.
RUN_CAP = 50
POPULATION = 20
# A model of the space needs so many points to begin with.
_FOR_A_MODEL = 10


@dataclass(frozen=True, slots=True)
class Method:
    """A way to propose trials."""

    #: The modules that it needs, by which its environment is known to have it.
    needs: tuple[str, ...] = ()
    #: How many random trials come first; None: a whole population.
    startup: int | None = _FOR_A_MODEL


METHODS: Mapping[str, Method] = {
    "tpe": Method(("optuna",)),
    "gp": Method(("optuna", "scipy", "torch")),
    "cmaes": Method(("optuna", "cmaes"), startup=1),
    "nsgaii": Method(("optuna",), startup=1),
    "qmc": Method(("scipy",), startup=1),
    "genetic": Method(startup=None),
    "random_walk": Method(startup=1),
}


def searcher(section: StudySection) -> Searcher | None:
    """What proposes the study's trials; None if it has them all from the start."""
    if section.method not in METHODS:
        return None
    trials = section.run_cap or RUN_CAP
    return Searcher(section.method, trials, section.search.ahead, section.warm_start)


def population(section: StudySection) -> int:
    """How many trials a genetic search breeds from: a quarter of all, within bounds."""
    trials = section.run_cap or RUN_CAP
    return section.search.population or max(4, min(POPULATION, trials // 4))


def startup(section: StudySection) -> int:
    """How many of the study's trials are drawn at random, before it searches: one, if it knows of
    others."""
    usual = 1 if section.warm_start else METHODS[section.method].startup
    chosen = section.search.startup or (population(section) if usual is None else usual)
    return min(chosen, section.run_cap or RUN_CAP)


def errors(section: StudySection) -> Iterable[FieldError]:
    """What is set that the method does not have."""
    if section.method == "cmaes" and section.objectives:
        expected = "tpe, gp, nsgaii or genetic for several objectives: cmaes has one"
        yield FieldError("method", section.method, expected, "nsgaii")
    if section.method in METHODS:
        return
    if section.warm_start:
        expected = f"none with method {section.method}, which proposes nothing"
        yield FieldError("warm_start", ", ".join(section.warm_start), expected)
    given = section.search.model_fields_set
    for name in ("ahead", "startup", "population"):
        if name in given:
            expected = f"no `search` with method {section.method}, which proposes nothing"
            yield FieldError(f"search.{name}", str(getattr(section.search, name)), expected)


def notes(section: StudySection) -> Iterable[str]:
    """What will happen, for who submits it."""
    if section.method not in METHODS:
        return
    if section.run_cap is None:
        yield (
            f"run_cap is not given: {RUN_CAP} trials are proposed, and more by `study add --trials`"
        )
    first, trials = startup(section), section.run_cap or RUN_CAP
    drawn = "1 trial is drawn" if first == 1 else f"{first} trials are drawn"
    more = trials - first
    yield f"{drawn} at random, {more} more proposed by {section.method} as results come in"
