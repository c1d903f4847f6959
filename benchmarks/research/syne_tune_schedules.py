"""What a scheduler of Syne Tune decides about recorded trainings, one at a time on one device.

Syne Tune is where PASHA was published, and has ASHA, Hyper-Tune and DyHPO of its own making: its
DyHPO scores by a Gaussian process instead of the paper's network, and a quarter of its decisions
are those of successive halving. They hear a loss after each epoch, and nothing of time, so what a
switch costs changes no decision of theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import loguniform, uniform
from syne_tune.optimizer.baselines import ASHA, PASHA, DyHPO, HyperTune
from syne_tune.optimizer.scheduler import SchedulerDecision, TrialScheduler
from syne_tune.optimizer.schedulers.searchers.bayesopt.tuning_algorithms.bo_algorithm_components import (  # noqa: E501
    RandomFromSetCandidateGenerator,
)

from benchmarks.research.epochs import EPOCHS, ends_of_epochs, ranges_of
from hermesd.sim.curves import Job

logging.getLogger("syne_tune").setLevel(logging.ERROR)


def _space_of(jobs: Sequence[Job]) -> dict[str, Any]:
    """The space that the jobs' parameters, all of them numbers, were drawn from."""
    return {
        name: (loguniform if each.by_logarithm else uniform)(each.low, each.high)
        for name, each in ranges_of(jobs).items()
    }


_drawn = RandomFromSetCandidateGenerator.generate_candidates_en_bulk


def _drawn_or_none(self: Any, num_cands: int, exclusion_list: Any = None) -> list[dict[str, Any]]:
    tried = exclusion_list is not None and all(map(exclusion_list.contains, self.base_set))
    return [] if tried else _drawn(self, num_cands, exclusion_list)


# Version 0.13 raises where the whole set has been tried, though paused trials could go on.
RandomFromSetCandidateGenerator.generate_candidates_en_bulk = _drawn_or_none

# Each with the settings that the package gives it; Hyper-Tune has brackets to choose from.
METHODS: Mapping[str, Callable[..., TrialScheduler]] = {
    "asha": lambda space, **words: ASHA(space, type="promotion", **words),
    "pasha": PASHA,
    "hyper_tune": lambda space, **words: HyperTune(space, type="promotion", brackets=4, **words),
    "dyhpo": DyHPO,
}
# These choose by themselves which configuration is next; the others take them as they come.
CHOOSING = ("hyper_tune", "dyhpo")


def turns(
    method: str, pool: Sequence[Job], jobs: Sequence[Job], seed: int
) -> Iterator[tuple[int, int, int]]:
    """Which of the jobs trains, after which step and up to which, until the scheduler has nothing
    more to run; the jobs were drawn from the pool."""
    space = _space_of(pool)
    configurations = [dict(job.parameters) for job in jobs]
    place_of = {_key(each): place for place, each in enumerate(configurations)}
    scheduler = METHODS[method](
        space,
        metric="loss",
        mode="min",
        resource_attr="epoch",
        max_t=EPOCHS,
        random_seed=seed,
        points_to_evaluate=[] if method in CHOOSING else configurations,
        search_options={
            "debug_log": False,
            "restrict_configurations": configurations,
            "allow_duplicates": False,
        },
    )
    trials: list[Trial] = []
    places: list[int] = []
    epochs: list[int] = []
    while (suggestion := scheduler.suggest(len(trials))) is not None:
        number = suggestion.checkpoint_trial_id
        if suggestion.spawn_new_trial_id:
            number = len(trials)
            places.append(place_of[_key({name: suggestion.config[name] for name in space})])
            epochs.append(0)
            trials.append(Trial(number, suggestion.config, datetime.now(UTC)))
            scheduler.on_trial_add(trials[number])
        first, job = epochs[number], jobs[places[number]]
        ends = ends_of_epochs(job)
        epochs[number] = _train(scheduler, trials[number], job, first)
        yield places[number], ends[first], ends[epochs[number]]


def _train(scheduler: TrialScheduler, trial: Trial, job: Job, epoch: int) -> int:
    """Train on until the scheduler has enough; the epochs done then."""
    ends = ends_of_epochs(job)
    while True:
        epoch += 1
        result = {"loss": job.losses[ends[epoch] - 1], "epoch": epoch}
        decision = scheduler.on_trial_result(trial, result)
        if epoch == EPOCHS:
            scheduler.on_trial_complete(trial, result)
        if epoch == EPOCHS or decision != SchedulerDecision.CONTINUE:
            return epoch


def _key(configuration: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(configuration.items()))
