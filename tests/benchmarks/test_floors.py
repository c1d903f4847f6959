"""What is asked of policies, and that what they reach is what `hermesd simulate` says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.research import floors
from benchmarks.research.floors import COLUMNS, HERMES, Asked
from hermesd.cli import app
from tests.simulate.small import trainings

ORDERS = 2


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("curves")
    return [trainings(folder / f"{seed}.npz", trials=40, steps=40, seed=seed) for seed in (5, 6)]


@pytest.fixture(scope="module")
def told(files: list[Path]) -> list[dict[str, Any]]:
    found = floors.table(files, ORDERS, 1)
    return [dict(zip(COLUMNS, row, strict=True)) for row in found]


def one(told: list[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    """The only row of this kind."""
    (found,) = (row for row in told if wanted.items() <= row.items())
    return found


def simulated(files: list[Path], *words: object) -> dict[str, Any]:
    """What the command answers, its rows and summaries."""
    given = ["simulate", *files, *words, "--processes", 1, "-o", "json"]
    result = CliRunner().invoke(app, [str(each) for each in given])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("devices", [1, 4])
def test_figures_are_those_of_the_command(
    told: list[dict[str, Any]], files: list[Path], devices: int
) -> None:
    policies = f"fifo,asha,{HERMES},best_first"
    words = ("--policy", policies, "--devices", devices, "--bin", 1, "--orders", ORDERS)
    answer = simulated(files, *words)
    policy = {each["policy"]: each for each in answer["summary"]}
    mine = [row for row in told if (row["bin"], row["devices"]) == ("1", devices)]
    to_good = [row for row in mine if row["figure"] == "time_to_good" and row["files"] == "2"]
    best = policy["best_first"]["time_to_good"]
    for over in ("fifo", "asha", HERMES):
        found = one(to_good, policy="best_first", over=over)
        assert found["reached"] == pytest.approx(best / policy[over]["time_to_good"])
        assert found["of_bound"] == pytest.approx(policy["best_first"]["bound_share"])
    asha = one(to_good, policy="asha")
    assert asha["reached"] == pytest.approx(policy["asha"]["time_to_good"])
    ratios = [row["time_to_good"] for row in answer["rows"] if row["policy"] == "asha"]
    assert asha["median"] == pytest.approx(np.prod([each["median"] for each in ratios]) ** 0.5)
    to_best = one(mine, figure="time_to_best")
    assert to_best["reached"] == pytest.approx(policy["best_first"]["time_to_best"])
    overhead, makespan = one(mine, figure="overhead"), one(mine, figure="makespan")
    assert overhead["reached"] == pytest.approx(policy["best_first"]["overhead"])
    assert makespan["reached"] == pytest.approx(1 / policy["best_first"]["makespan"])


def test_guided_has_every_trial_in_a_tenth_of_the_orders(
    told: list[dict[str, Any]], files: list[Path]
) -> None:
    words = ("--policy", "guided", "--devices", 4, "--bin", "all", "--orders", 1)
    (policy,) = simulated(files, *words)["summary"]
    found = [row for row in told if row["policy"] == "guided" and row["devices"] == 4]
    top4 = one(found, figure="top4")
    assert (top4["bin"], top4["orders"]) == ("all", 1)
    assert top4["reached"] == pytest.approx(policy["top4"])
    overhead = one(found, figure="overhead")
    assert overhead["reached"] == pytest.approx(policy["overhead"])
    assert (overhead["floor"], overhead["goal"], overhead["met"]) == ("-", "-", "-")


@pytest.mark.parametrize("bin_type", [1, 2])
def test_the_worst_file_is_told_by_name_and_asked_after_with_one_device(
    told: list[dict[str, Any]], files: list[Path], bin_type: int
) -> None:
    words = ("--policy", "best_first", "--devices", 1, "--bin", bin_type, "--orders", ORDERS)
    rows = simulated(files, *words)["rows"]
    worst = min(rows, key=lambda row: row["time_to_good"]["ratio"])
    names = {path.stem for path in files}
    found = one([row for row in told if row["files"] in names], bin=str(bin_type))
    assert (found["files"], found["devices"]) == (worst["file"], 1)
    for name, there in {"reached": "ratio", "median": "median", "of_bound": "bound_share"}.items():
        assert found[name] == pytest.approx(worst["time_to_good"][there])


def test_what_is_met_is_the_most_of_it() -> None:
    fast = Asked("time_to_good", "1", (2.0, 1.5), (3.0, 2.5))
    assert [fast.met(reached, 1) for reached in (1.99, 2.0, 2.99, 3.0)] == [
        "no", "floor", "floor", "goal",
    ]  # fmt: skip
    assert fast.met(2.5, 4) == "goal"
    long = Asked("makespan", "1", (1.02, 1.02))
    assert [long.met(reached, 1) for reached in (0.9, 1.02, 1.021)] == ["floor", "floor", "no"]
    less = Asked("overhead", "1", (0.02, 0.02), (0.01, 0.01))
    assert [less.met(reached, 4) for reached in (0.01, 0.011, 0.021)] == ["goal", "floor", "no"]
    assert Asked("makespan", "all").met(1.5, 1) == "-"


def test_figures_are_kept_where_they_are_wanted(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "kept.json"
    words = ["--curves", str(files[0]), "--orders", "1", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["floors", *words])
    floors.main()
    rows = json.loads(out.read_text())["rows"]
    assert {row["files"] for row in rows} == {"1", "5"}
    assert list(rows[0]) == COLUMNS


def test_a_file_that_is_no_curves_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["floors", "--curves", str(tmp_path / "missing.npz")])
    with pytest.raises(SystemExit, match="a file of recorded curves"):
        floors.main()
