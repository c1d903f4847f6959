"""The paper's figures, from runs that are made up here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.research.hermes2021 import (
    Cell,
    Lived,
    Measured,
    beside_the_paper,
    measured,
    order_of,
    points,
    policies,
    ratio,
    rows,
)
from hermesd.core.model import Plugin
from hermesd.sim.contenders import FIFO
from hermesd.sim.curves import Curves, Switch
from hermesd.sim.drive import Drive, SimulatedOutcome
from hermesd.sim.figures import Figures
from tests.simulate.small import job


def figures(to_good: float, top4: float) -> Figures:
    return Figures(to_good, 10.0, top4, 1.0, 1.0, 10.0, 5.0)


def one(to_good: float, top4: float, simulated: float) -> Measured:
    outcome = SimulatedOutcome((), (), 3, 0.0, 0, 0.0)
    run = SimpleNamespace(outcome=outcome, overhead=0.01, load=0.5)
    return Measured(figures(to_good, top4), figures(simulated, top4), cast(Lived, run))


def recorded(exported: list[Any], busy: float = 1.0) -> Lived:
    """A run of these jobs, with what a study's export tells of them."""
    curves = Curves("made up", tuple(exported), Switch.split(0.1), whole=True)
    trials = [SimpleNamespace(use=SimpleNamespace(busy_seconds=busy)) for _ in exported]
    past = SimpleNamespace(curves=curves, trials=trials)
    outcome = SimulatedOutcome((), (), 0, 0.0, 0, 0.0)
    return Lived(Path("made-up.jsonl"), cast(Any, past), outcome, 0.0, 0.0)


def trainings() -> list[Any]:
    """48 trainings of which every third falls far, none like another."""
    floors = [(0.1 if n % 3 == 0 else 5.0) + n * 0.001 for n in range(48)]
    return [job([10.0, 5.0 + floor / 2, floor], 0.5) for floor in floors]


RESULTS = {
    ("vgg", 2, 2): {
        "fifo": {0: one(4.0, 8.0, 6.0)},
        "round_robin": {0: one(8.0, 8.0, 6.0)},
        "slaq": {0: one(12.0, 8.0, 6.0)},
        "hermes": {0: one(4.0, 2.0, 3.0)},
    }
}


def test_a_fixed_choice_of_different_points_is_recorded() -> None:
    assert len(set(points())) == 48
    assert points() == points()


def test_quanta_are_the_papers_scaled_to_the_trainings() -> None:
    """Trainings of 7.5 s stand for the paper's 75 s: 1 s for 10 s, 3 s for 30 s."""
    by_name = {each.policy.name: each for each in policies(recorded(trainings(), 7.5))}
    assert dict(by_name["round_robin"].policy.settings)["quantum_seconds"] == 3.0
    assert dict(by_name["hermes"].policy.settings)["quantum_seconds"] == 1.0
    assert by_name["hermes"].placement == Plugin("homes", (("G_thres", 4),))
    assert by_name["best_first"].policy.settings == ()


def test_bins_have_four_and_twelve_good_trials() -> None:
    record = recorded(trainings())
    for bin_type, good in ((1, 4), (2, 12)):
        order = order_of(record, Cell("vgg", 2, bin_type, 0))
        assert (len(order.jobs), len(order.good)) == (16, good)


def test_a_real_run_is_read_with_the_recorded_curves() -> None:
    order = order_of(recorded(trainings()), Cell("vgg", 2, 1, 0))
    run = recorded(list(order.jobs))
    real = Drive(order, 1, FIFO.policy, FIFO.placement).run()
    run = Lived(run.export, run.exported, real, 0.0, 0.0)
    found = measured(order, Cell("vgg", 1, 1, 0), FIFO, run)
    assert found.real == found.simulated


def test_a_training_that_went_another_way_is_refused() -> None:
    order = order_of(recorded(trainings()), Cell("vgg", 2, 1, 0))
    other = [job([9.0, 8.0, 7.0], 0.5), *order.jobs[1:]]
    with pytest.raises(ValueError, match="trained otherwise than recorded"):
        measured(order, Cell("vgg", 2, 1, 0), FIFO, recorded(other))


def test_a_ratio_is_of_the_means_over_the_orders_of_both() -> None:
    ours = {0: one(1.0, 1.0, 1.0), 1: one(3.0, 1.0, 1.0)}
    assert ratio("time_to_good", ours, {0: one(4.0, 1.0, 1.0)}, "real") == 4.0
    # An order is paired with itself, whichever runs there are of others.
    assert ratio("time_to_good", ours, {1: one(6.0, 1.0, 1.0)}, "real") == 2.0
    theirs = {0: one(4.0, 1.0, 1.0), 1: one(8.0, 1.0, 1.0)}
    assert ratio("time_to_good", ours, theirs, "real") == 3.0


def test_policies_stand_beside_fifo() -> None:
    hermes = rows(RESULTS)[3]
    assert hermes[:8] == ["vgg, bin 2, hermes", 2, 1, 4.0, 1.0, 2.0, 4.0, 4.0]


def test_hermes_stands_beside_the_paper() -> None:
    good, top = beside_the_paper(RESULTS)
    assert good[:4] == ["Figure 5: vgg, bin 2, hermes", 2, 2.0, 2.0]
    assert good[4] == pytest.approx(1.92)
    assert top == ["Figure 6: vgg, bin 2, hermes", 2, 4.0, 4.0, 2.68]


def test_a_policy_without_an_order_of_fifos_has_no_row() -> None:
    group = {**RESULTS["vgg", 2, 2], "asha": {1: one(1.0, 1.0, 1.0)}}
    assert rows({("vgg", 2, 2): group}) == rows(RESULTS)
    assert beside_the_paper({("vgg", 2, 2): group}) == beside_the_paper(RESULTS)


def test_without_all_baselines_there_is_no_average_over_them() -> None:
    group = {name: runs for name, runs in RESULTS["vgg", 2, 2].items() if name != "slaq"}
    assert beside_the_paper({("vgg", 2, 2): group}) == []
