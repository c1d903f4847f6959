"""What is read from numpy archives, and what is refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hermesd.refusal import Refused
from hermesd.sim.compare import read
from hermesd.sim.curves import Switch, smoothed
from tests.simulate.small import trainings


def archive(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def recorded(tmp_path: Path, name: str = "any.npz", **changes: Any) -> Path:
    """Six trainings of 1,200 iterations: SGD and Adam at batch 16 and 50, two with one setting."""
    base = np.linspace(3, 1, 1_200) + np.arange(6)[:, None]
    settings = [(0, 16), (0, 16), (0, 50), (3, 16), (3, 50), (0, 16)]
    arrays: dict[str, Any] = {
        "base": base,
        "total": base + 10,
        "step_s": np.array([1.0, 2.0, 0.5, 3.0, 8.0, 9.0]),
        "cfg": np.array([(*each, 0.001, 0.1) for each in settings]),
        "meta": json.dumps({"name": "any", "opts": ["sgd", "momentum", "rmsprop", "adam"]}),
    }
    arrays.update(changes)
    return archive(tmp_path / name, **{k: v for k, v in arrays.items() if v is not None})


def test_a_job_is_a_training_s_first_thousand_iterations(tmp_path: Path) -> None:
    curves = read(recorded(tmp_path))
    assert curves.name == "any"
    assert [job.steps for job in curves.jobs] == [1_000] * 6
    assert curves.jobs[1].losses[0] == 4.0
    assert dict(curves.jobs[4].parameters) == {
        "optimizer": "adam",
        "batch_size": 50,
        "learning_rate": 0.001,
        "weight_decay": 0.1,
    }


def test_seconds_follow_the_median_of_each_setting_but_not_below_seven_tenths(
    tmp_path: Path,
) -> None:
    """SGD at batch 16 took 1, 2 and 9: its median 2 stands for 60 s in 1,000 iterations."""
    seconds = [job.step_seconds for job in read(recorded(tmp_path)).jobs]
    assert seconds == pytest.approx([0.06, 0.06, 0.7 * 0.06, 1.5 * 0.06, 4 * 0.06, 0.06])


@pytest.mark.parametrize(
    ("name", "thousand", "switch"),
    [
        ("digits_incep", 30.12, 0.67),
        ("m1d_mlp", 94.26, 1.40),
        ("digits_vgg", 110.49, 1.57),
        ("m1d_res", 66.88, 0.95),
        ("unheard_of", 60.0, 1.0),
    ],
)
def test_each_recording_stands_for_a_model(
    name: str, thousand: float, switch: float, tmp_path: Path
) -> None:
    curves = read(recorded(tmp_path, f"{name}.npz", meta=json.dumps({"name": name})))
    assert curves.jobs[0].step_seconds * 1_000 == pytest.approx(thousand)
    assert curves.switch == Switch(0.36 * switch, 0.64 * switch, 0.64 * switch)


def test_the_total_loss_is_read_when_asked_for(tmp_path: Path) -> None:
    assert read(recorded(tmp_path), "total").jobs[0].losses[0] == 13.0


def test_a_training_ends_where_its_loss_breaks(tmp_path: Path) -> None:
    base = np.ones((6, 30))
    base[2, 7:] = np.inf
    base[3, 0] = np.nan
    jobs = read(recorded(tmp_path, base=base)).jobs
    assert len(jobs) == 5, "one that never had a loss is left out"
    assert (jobs[2].steps, jobs[2].announced, jobs[2].diverges) == (7, 30, True)
    assert not jobs[1].diverges


def test_smoothing_is_the_mean_of_the_last_iterations() -> None:
    assert smoothed(np.array([4.0, 2.0, 0.0, 7.0]), 2).tolist() == [4.0, 3.0, 1.0, 3.5]


def logged(tmp_path: Path, **changes: Any) -> Path:
    """Three runs on a grid of 40 points, of which 40, 30 and 24 count."""
    loss = np.tile(np.arange(40.0, 0, -1), (3, 1))
    lengths = np.array([40, 30, 24])
    for row, length in zip(loss, lengths, strict=True):
        row[length:] = np.nan
    arrays: dict[str, Any] = {
        "loss": loss.astype(np.float32),
        "length": lengths,
        "sec_per_step": np.array([1.0, 4.0, 1.0]),
        "meta": json.dumps({"runs": [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]}),
    }
    arrays.update(changes)
    return archive(tmp_path / "logged.npz", **arrays)


def test_logged_runs_are_read_at_half_steps(tmp_path: Path) -> None:
    curves = read(logged(tmp_path))
    first, second = curves.jobs
    assert (first.steps, second.steps) == (80, 60)
    assert first.losses[:4] == (40.0, 39.5, 39.0, 38.5)
    assert first.losses[-2:] == (1.0, 1.0)
    assert (first.smoothing, curves.switch) == (8, Switch.split(1.0))
    assert first.step_seconds == pytest.approx(0.5 * 80 / 512), "of the median 2.5, clipped"
    assert second.step_seconds == pytest.approx(1.6 * 80 / 512)
    assert second.parameters == (("lr", 0.2),)


def test_logged_runs_with_a_loss_that_is_no_number_are_left_out(tmp_path: Path) -> None:
    loss = np.ones((3, 40))
    loss[0, 5] = np.inf
    assert len(read(logged(tmp_path, loss=loss)).jobs) == 1


def test_lengths_in_steps_leave_it_to_the_end_of_the_points(tmp_path: Path) -> None:
    steps = logged(tmp_path, length=np.array([4_000, 3_000, 2_400]))
    assert [job.steps for job in read(steps).jobs] == [80, 60]


def test_a_run_whose_speed_was_not_measured_has_the_usual_one(tmp_path: Path) -> None:
    curves = read(logged(tmp_path, sec_per_step=np.array([np.nan, 4.0, 1.0])))
    assert [job.step_seconds for job in curves.jobs] == pytest.approx([80 / 512, 80 / 512])


@pytest.mark.parametrize(
    "meta",
    [
        [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}],
        {"origin": "logged", "hyper_parameters": [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]},
        {"origin": "logged", "lr": [0.1, 0.2, 0.3]},
    ],
)
def test_the_hyper_parameters_of_logged_runs_are_found(meta: Any, tmp_path: Path) -> None:
    curves = read(logged(tmp_path, meta=json.dumps(meta)))
    assert [job.parameters for job in curves.jobs] == [(("lr", 0.1),), (("lr", 0.2),)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"step_s": None}, "expected an array step_s beside base, cfg, meta, total"),
        ({"base": None}, "expected an array base"),
        ({"base": np.ones(6)}, r"base to be numbers in 2 dimensions, not float64 \(6,\)"),
        ({"step_s": np.ones(5)}, "base 6, step_s 5, cfg 6"),
        ({"cfg": np.ones((6, 3))}, "cfg to have 4 columns, not 3"),
        ({"cfg": np.full((6, 4), np.nan)}, "cfg to be finite numbers"),
        (
            {
                "base": np.ones((0, 9)),
                "total": np.ones((0, 9)),
                "step_s": np.ones(0),
                "cfg": np.ones((0, 4)),
            },
            "at least one training with losses",
        ),
        ({"base": np.ones((6, 0))}, "base to have an iteration or more"),
        ({"step_s": np.zeros(6)}, "step_s to be seconds above 0"),
        ({"step_s": np.array([1, 1, 1, 1, 1, np.nan])}, "step_s to be seconds above 0"),
        ({"step_s": np.array([1, 1, 1, 1, 1, -1.0])}, "step_s to be seconds above 0"),
        ({"step_s": np.geomspace(1e-300, 1e300, 6)}, "no step_s above 1e[+]06 times the usual"),
        ({"step_s": None, "cfg": None}, "expected the arrays base, total, step_s and cfg, or loss"),
    ],
)
def test_a_wrong_layout_is_named(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    path = recorded(tmp_path, **changes)
    with pytest.raises(Refused, match=why) as refused:
        read(path)
    assert str(refused.value).startswith(f"curves = {path}: expected ")
    assert "\n" not in str(refused.value)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    text, empty = tmp_path / "text.npz", tmp_path / "empty.npz"
    text.write_text("step,loss\n")
    empty.touch()
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(trainings(tmp_path / "whole.npz").read_bytes()[:500])
    cases = {
        damaged: "it is no numpy archive",
        text: r"an \.npz archive of recorded curves \(it is no numpy archive",
        empty: "it is empty",
        tmp_path / "missing.npz": "No such file",
        tmp_path: "a folder's are named one by one",
    }
    for path, why in cases.items():
        with pytest.raises(Refused, match=why):
            read(path)


def test_a_damaged_compressed_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    np.savez_compressed(path, base=np.random.default_rng(0).integers(0, 4, (8, 500)).astype(float))
    data = bytearray(path.read_bytes())
    begin = len(data) // 10
    data[begin : begin + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(Refused, match="it is no numpy archive"):
        read(path)


def test_an_archive_without_a_usable_training_is_refused(tmp_path: Path) -> None:
    for path in (
        logged(tmp_path, length=np.array([9, 9, 9])),
        recorded(tmp_path, base=np.full((6, 9), np.nan)),
    ):
        with pytest.raises(Refused, match="at least one training with losses"):
            read(path)


@pytest.mark.parametrize("opts", [5, {"sgd": 0}, "sgd", None, []])
def test_optimizers_without_names_keep_their_numbers(opts: Any, tmp_path: Path) -> None:
    path = recorded(tmp_path, meta=json.dumps({"name": "some", "opts": opts}))
    assert dict(read(path).jobs[0].parameters)["optimizer"] == 0


def test_losses_without_measure_are_as_far_as_sums_can_go(tmp_path: Path) -> None:
    path = recorded(tmp_path, base=np.full((6, 30), 1e308))
    assert read(path).jobs[0].smoothed.tolist() == pytest.approx([1e100] * 30)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = archive(tmp_path / "objects.npz", base=np.array([{}]), step_s=np.ones(1))
    with pytest.raises(Refused, match="no numpy archive"):
        read(path)


def test_logged_runs_have_one_loss(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="metric_loss = total: expected base"):
        read(logged(tmp_path), "total")


def test_one_spike_is_in_no_mean_but_those_of_its_window() -> None:
    losses = np.full(100, 2.3)
    losses[30] = 1e17
    means = smoothed(losses, 20)
    assert means[50:].tolist() == pytest.approx([2.3] * 50)
    assert means.min() == pytest.approx(2.3), "it is the worst trial, not the best"
