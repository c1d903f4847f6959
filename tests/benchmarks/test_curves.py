"""The curves that benchmarks make for themselves: true gradients, readable, always the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.research import curves
from benchmarks.research.stacked import OPTIMIZERS, Task, gradients, train
from hermesd.sim.compare import read
from hermesd.sim.orders import draw, goal_of, good_jobs


def small_task(classes: bool) -> Task:
    chance = np.random.default_rng(1)
    inputs = chance.normal(size=(20, 3))
    wanted = np.eye(2)[(inputs[:, 0] > 0).astype(int)] if classes else chance.normal(size=(20, 2))
    return Task(inputs, wanted, (3, 4, 2), classes)


@pytest.mark.parametrize("classes", [True, False])
def test_gradients_are_the_slopes_of_the_loss(classes: bool) -> None:
    task = small_task(classes)
    weights = [each[None].repeat(2, axis=0) for each in task.weights(np.random.default_rng(2))]
    drawn = np.array([[1, 2, 3], [4, 5, 6]])
    _, slopes = gradients(task, weights, drawn)
    for weight, slope in zip(weights, slopes, strict=True):
        for place in [(0, 0, 1), (1, 0, 0)]:
            kept = weight[place]
            weight[place] = kept + 1e-6
            above = gradients(task, weights, drawn)[0][place[0]]
            weight[place] = kept - 1e-6
            below = gradients(task, weights, drawn)[0][place[0]]
            weight[place] = kept
            assert slope[place] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("optimizer", range(len(OPTIMIZERS)))
def test_every_optimizer_learns_and_the_penalty_is_on_top(optimizer: int) -> None:
    task, chance = small_task(classes=True), np.random.default_rng(3)
    first = task.weights(chance)
    done = train(task, first, optimizer, 10, [(0.05, 0.0), (0.05, 0.1)], 200, chance)
    assert (done.base[:, -20:].mean(axis=1) < 0.8 * done.base[:, :5].mean(axis=1)).all()
    assert (done.total[0] == done.base[0]).all()
    assert (done.total[1] > done.base[1]).all()


def test_made_up_runs_are_the_same_each_time_and_end_where_they_say() -> None:
    one, again, other = (curves.long("decayed", seed) for seed in (0, 0, 1))
    assert all(np.array_equal(one[name], again[name], equal_nan=name == "loss") for name in one)
    assert not np.array_equal(one["loss"], other["loss"], equal_nan=True)
    known = np.isfinite(one["loss"]).sum(axis=1)
    assert (known == one["length"]).all()
    assert (known < curves.POINTS).any()


@pytest.mark.parametrize("name", ["spirals", "plateaus"])
def test_simulations_read_what_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "ITERATIONS", 60)
    monkeypatch.setattr("sys.argv", ["curves", str(tmp_path), name, "--seed", "4"])
    curves.main()
    found = read(tmp_path / f"{name}.npz")
    order = draw(found, goal_of(found), 1, 16, 0, 0)
    assert len(order.jobs) == 16
    assert len(order.good) == 4
    with np.load(tmp_path / f"{name}.npz") as archive:
        assert json.loads(str(archive["meta"]))["seed"] == 4
        if name == "spirals":
            assert archive["base"].shape == (192, 60)
            assert len(np.unique(archive["cfg"], axis=0)) == 192


def test_an_unknown_name_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["curves", str(tmp_path), "spiral"])
    with pytest.raises(SystemExit):
        curves.main()
    assert "'spiral': expected one of spirals, regression" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(curves.HARD))
def test_curves_that_mislead_are_read_and_some_trials_of_each_are_good(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / f"{name}.npz"
    np.savez(path, **curves.long(name, 0))
    stock = read(path)
    good = good_jobs(stock, goal_of(stock))
    assert 16 <= len(good) < len(stock.jobs) / 2
    lengths = {job.steps for job in stock.jobs}
    assert (len(lengths) == 4) == (name == "lengths")
