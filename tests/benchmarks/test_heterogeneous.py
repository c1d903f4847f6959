"""The figures of Hermes-v2's experiment, from runs that are made up here."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.research.hermes2021 import BATCHES
from benchmarks.research.heterogeneous import (
    DEFAULT,
    HERMES,
    PAPER,
    SHARES,
    SWAP,
    Lived,
    Measured,
    Taken,
    beside_hermes,
    kinds,
    measured,
    ordered,
    policies,
    rows,
    spec_of,
    values,
)
from hermesd.core.model import Plugin
from hermesd.core.speeds import batch
from hermesd.sim.contenders import FIFO
from hermesd.sim.curves import Curves, Switch
from hermesd.sim.drive import Drive
from tests.simulate.small import job

OTHER = [job([9.0, 8.0, 7.0], 0.5)]


def recorded(jobs: list[Any], trials: list[Any] | None = None) -> Lived:
    """A run of these jobs on whole cores."""
    curves = Curves("made up", tuple(jobs), Switch.split(0.1), whole=True)
    past = SimpleNamespace(curves=curves, trials=trials or [])
    outcome = SimpleNamespace(switches=3)
    return cast(
        Lived,
        SimpleNamespace(
            export=Path("x.jsonl"), exported=past, outcome=outcome, load=0.5, overhead=0.01
        ),
    )


def trainings() -> list[Any]:
    named = [(("point", point), ("batch_size", batch)) for point, batch in product(*values(0))]
    return [
        replace(job([10.0, 6.0 + n / 10, 1.0 + n / 10], 0.5), parameters=parameters)
        for n, parameters in enumerate(named)
    ]


def test_turns_are_thirty_seconds_scaled_and_ours_has_its_defaults() -> None:
    found = policies(1.0)
    for name in (HERMES, SWAP):
        assert dict(found[name].policy.settings)["quantum_seconds"] == 3.0
    assert found[SWAP].placement == Plugin("swap")
    assert found[DEFAULT].policy == Plugin("best_first")
    assert found[DEFAULT].placement == Plugin("free")


def test_a_real_run_is_read_as_the_simulated_one() -> None:
    order = ordered(recorded(trainings()), 0)
    speeds = [share / 100 for share in SHARES]
    real = Drive(order, 3, FIFO.policy, FIFO.placement, speeds).run()
    run = recorded(list(order.jobs))
    cast(Any, run).outcome = real
    found = measured(order, FIFO, run)
    assert found.real == found.simulated
    assert 0 < found.real.near_best <= found.real.to_lowest <= found.real.makespan
    # The lowest loss of all is the first trial's last, which runs alone on the fastest.
    assert found.real.to_lowest == pytest.approx(3 * 0.5 / 0.8, rel=0.2)


def test_orders_are_of_the_same_trainings() -> None:
    record = recorded(trainings())
    first, second = ordered(record, 0), ordered(record, 1)
    assert list(first.jobs) == trainings_of(record)
    assert second.jobs != first.jobs
    assert {id(job) for job in second.jobs} == {id(job) for job in first.jobs}
    given = [tuple(dict(job.parameters).values()) for job in second.jobs]
    assert given == list(product(*values(1))), "as the grid of the study has them"


def test_trainings_differ_in_what_equation_two_compares() -> None:
    parameters = cast(Any, spec_of("vgg", 800, 1)["parameters"])
    assert sorted(parameters["batch_size"]["values"]) == sorted(BATCHES)
    found = {batch(cast(Any, SimpleNamespace(spec=each))) for each in trainings()}
    assert found == set(BATCHES)


def trainings_of(record: Lived) -> list[Any]:
    return list(record.exported.curves.jobs)


def test_a_training_that_went_another_way_is_refused() -> None:
    order = ordered(recorded(trainings()), 0)
    with pytest.raises(ValueError, match="trained otherwise than recorded"):
        measured(order, FIFO, recorded([*OTHER, *order.jobs[1:]]))


def trial(number: int, **step_seconds: float) -> Any:
    seconds = {name.replace("_", "-") + "%": each for name, each in step_seconds.items()}
    parameters = (("point", str(number)),)
    return SimpleNamespace(spec=SimpleNamespace(parameters=parameters), step_seconds=seconds)


def test_kinds_are_as_fast_as_trials_were_there_beside_a_whole_core() -> None:
    alone = [trial(0), trial(1)]
    for each, seconds in zip(alone, (0.1, 0.2), strict=True):
        each.step_seconds = {"cpu": seconds}
    shared = recorded([], [trial(0, cpu_80=0.125, cpu_40=0.2), trial(1, cpu_40=0.5)])
    found = kinds("res", recorded([], alone), [shared])
    assert found == [
        ["res, cpu-80%", 0.8, pytest.approx(0.8), pytest.approx(0.8), pytest.approx(0.8)],
        ["res, cpu-40%", 0.4, pytest.approx(0.45), pytest.approx(0.4), pytest.approx(0.5)],
    ]


def test_policies_stand_beside_hermes_and_the_paper() -> None:
    def one(real: float, simulated: float) -> Measured:
        return Measured(Taken(real, 1, 1, 1), Taken(simulated, 1, 1, 1), recorded([]))

    group = {HERMES: {0: one(10, 20), 1: one(10, 20)}, SWAP: {0: one(5, 30), 1: one(10, 30)}}
    hermes, swap = rows({"res": group})
    assert hermes == ["res, hermes, homes", 2, 10, 1, 1, 1, 3, 0.01, 0.5]
    assert swap[2] == 7.5
    first, second, third, _ = beside_hermes({"res": group})
    name, paper = "res, hermes, swap", PAPER["to_lowest"]
    assert first == [f"{name}, to_lowest", pytest.approx(-25), pytest.approx(50), paper]
    assert second == [f"{name}, near_best", 0, 0, ""]
    assert third == [f"{name}, mean_end", 0, 0, PAPER["mean_end"]]
    assert beside_hermes({"res": {SWAP: group[SWAP]}}) == []
    # An order is paired with itself.
    alone = {HERMES: group[HERMES], SWAP: {1: one(10, 20)}}
    assert beside_hermes({"res": alone})[0][1:3] == [0, 0]
    assert beside_hermes({"res": {**alone, SWAP: {2: one(10, 20)}}}) == []
