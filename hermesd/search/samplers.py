"""Optuna's samplers, asked for a proposal from what is known about a study's trials.

What a sampler notes in a trial's attributes, such as its generation or the state of an optimizer,
is kept as the trial's `note`. With these notes, a sampler that is made again for each question is
in the state that it was in.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from hermesd.core.model import Goal, Setting
from hermesd.search.ask import Ask, Known, Proposal, Standing
from hermesd.study.coordinates import Coordinates, place
from hermesd.study.space import Axis, Space, drawn

# So often a sampler is asked for a point that meets the conditions of a study.
TRIES = 50
_SAID = re.compile("relative_params|constraints")

optuna.logging.set_verbosity(optuna.logging.ERROR)


def proposals(
    ask: Ask, axes: Space, method: str, startup: int, population: int, seed: int
) -> Iterator[Proposal]:
    """Points for so many trials, each knowing of those before it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is experimental or will be deprecated
        lies = {name: Coordinates(axis) for name, axis in axes.items()}
        directions = [str(goal) for goal in ask.goals]
        constrained = any(known.breaches for known in ask.known)
        sampler = _sampler(method, startup, population, seed, constrained)
        study = optuna.create_study(directions=directions, sampler=sampler)
        _tell(study, ask, axes, lies)
        for number in range(ask.number, ask.number + ask.count):
            for _ in range(TRIES if axes.where else 1):
                trial = study.ask()
                point: dict[str, Setting] = {}
                for name, axis in axes.items():
                    if axis.is_in(point):
                        point[name] = lies[name].value(_suggested(trial, name, lies[name]))
                if axes.allows(tuple(point.items())):
                    break
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                yield Proposal(drawn(axes, seed, number))
                continue
            noted = study.get_trials(deepcopy=False)[-1].system_attrs
            # Those with the point say again what the point does, and constraints what is measured.
            note = {key: value for key, value in noted.items() if not _SAID.search(key)}
            yield Proposal(tuple(point.items()), json.dumps(note) if note else "")


def _sampler(method: str, startup: int, population: int, seed: int, constrained: bool) -> Any:
    samplers = optuna.samplers
    # Each trial has its breaches already; that there is a function says that they count.
    bounds = {"constraints_func": _breaches} if constrained else {}
    match method:
        case "tpe":
            return samplers.TPESampler(
                n_startup_trials=startup, constant_liar=True, seed=seed, **bounds
            )
        case "gp":
            return samplers.GPSampler(n_startup_trials=startup, seed=seed, **bounds)
        case "cmaes":
            return samplers.CmaEsSampler(
                n_startup_trials=startup, seed=seed, warn_independent_sampling=False
            )
        case "nsgaii":
            return samplers.NSGAIISampler(population_size=population, seed=seed, **bounds)
        case _:
            raise ValueError(f"no sampler {method}")


def _breaches(trial: Any) -> list[float]:
    found: list[float] = trial.system_attrs["constraints"]
    return found


def _tell(
    study: optuna.Study, ask: Ask, axes: Mapping[str, Axis], lies: Mapping[str, Coordinates]
) -> None:
    """What is known of the trials whose points lie in the space."""
    distributions = {name: _distribution(lie) for name, lie in lies.items() if lie.size != 1}
    valued = [known.values for known in ask.known if known.standing is Standing.VALUED]
    worst = [
        (max if goal is Goal.MINIMIZE else min)((each[i] for each in valued), default=0.0)
        for i, goal in enumerate(ask.goals)
    ]
    for known in ask.known:
        at = place(axes, lies, known.point)
        if at is None:
            continue
        told = {name: distributions[name] for name in at if name in distributions}
        study.add_trial(
            optuna.trial.create_trial(
                params={name: _as(each, at[name]) for name, each in told.items()},
                distributions=told,
                system_attrs=_attributes(known),
                **_outcome(known, worst),
            )
        )


def _attributes(known: Known) -> dict[str, Any]:
    bounds = {"constraints": list(known.breaches)} if known.breaches else {}
    return {**json.loads(known.note or "{}"), **bounds}


def _outcome(known: Known, worst: Sequence[float]) -> dict[str, Any]:
    states = optuna.trial.TrialState
    match known.standing:
        case Standing.VALUED:
            return {"state": states.COMPLETE, "values": known.values}
        case Standing.DIVERGED:
            return {"state": states.COMPLETE, "values": worst}
        case Standing.OPEN:
            return {"state": states.RUNNING}
        case Standing.NOTHING:
            return {"state": states.FAIL}


def _distribution(lie: Coordinates) -> BaseDistribution:
    if lie.size is None:
        return FloatDistribution(0.0, 1.0)
    if lie.ordered:
        return IntDistribution(0, lie.size - 1)
    return CategoricalDistribution(range(lie.size))


def _as(distribution: BaseDistribution, at: float) -> float:
    return at if isinstance(distribution, FloatDistribution) else int(at)


def _suggested(trial: optuna.Trial, name: str, lie: Coordinates) -> float:
    if lie.size == 1:
        return 0
    if lie.size is None:
        return float(trial.suggest_float(name, 0.0, 1.0))
    if lie.ordered:
        return int(trial.suggest_int(name, 0, lie.size - 1))
    return int(trial.suggest_categorical(name, range(lie.size)))
