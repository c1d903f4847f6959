"""The samplers of Optuna, asked by what is known of a study's trials.

What a sampler notes in a trial's attributes, such as its generation or the state of an optimizer,
is the trial's `note`: with it a sampler that is made anew for each question is the one that it was.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
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
from hermesd.search.coordinates import Coordinates, place
from hermesd.study.space import Axis

optuna.logging.set_verbosity(optuna.logging.ERROR)


def proposals(
    ask: Ask, axes: Mapping[str, Axis], method: str, startup: int, population: int, seed: int
) -> Iterator[Proposal]:
    """Points for so many trials, each knowing of those before it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is experimental or will be deprecated
        lies = {name: Coordinates(axis) for name, axis in axes.items()}
        direction = "minimize" if ask.goal is Goal.MINIMIZE else "maximize"
        sampler = _sampler(method, startup, population, seed)
        study = optuna.create_study(direction=direction, sampler=sampler)
        _tell(study, ask, axes, lies)
        for _ in range(ask.count):
            trial = study.ask()
            point: dict[str, Setting] = {}
            for name, axis in axes.items():
                if axis.is_in(point):
                    point[name] = lies[name].value(_suggested(trial, name, lies[name]))
            noted = study.get_trials(deepcopy=False)[-1].system_attrs
            # Those with the point say again what the point does.
            note = {key: value for key, value in noted.items() if "relative_params" not in key}
            yield Proposal(tuple(point.items()), json.dumps(note) if note else "")


def _sampler(method: str, startup: int, population: int, seed: int) -> Any:
    samplers = optuna.samplers
    match method:
        case "tpe":
            return samplers.TPESampler(n_startup_trials=startup, constant_liar=True, seed=seed)
        case "gp":
            return samplers.GPSampler(n_startup_trials=startup, seed=seed)
        case "cmaes":
            return samplers.CmaEsSampler(
                n_startup_trials=startup, seed=seed, warn_independent_sampling=False
            )
        case "nsgaii":
            return samplers.NSGAIISampler(population_size=population, seed=seed)
        case _:
            raise ValueError(f"no sampler {method}")


def _tell(
    study: optuna.Study, ask: Ask, axes: Mapping[str, Axis], lies: Mapping[str, Coordinates]
) -> None:
    """What is known of the trials whose points lie in the space."""
    distributions = {name: _distribution(lie) for name, lie in lies.items() if lie.size != 1}
    valued = [known.value for known in ask.known if known.standing is Standing.VALUED]
    worst = (max if ask.goal is Goal.MINIMIZE else min)(valued, default=0.0)
    for known in ask.known:
        at = place(axes, lies, known.point)
        if at is None:
            continue
        told = {name: distributions[name] for name in at if name in distributions}
        study.add_trial(
            optuna.trial.create_trial(
                params={name: _as(each, at[name]) for name, each in told.items()},
                distributions=told,
                system_attrs=json.loads(known.note or "{}"),
                **_outcome(known, worst),
            )
        )


def _outcome(known: Known, worst: float) -> dict[str, Any]:
    states = optuna.trial.TrialState
    match known.standing:
        case Standing.VALUED:
            return {"state": states.COMPLETE, "value": known.value}
        case Standing.DIVERGED:
            return {"state": states.COMPLETE, "value": worst}
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
