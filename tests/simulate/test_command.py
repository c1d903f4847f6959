"""`hermesd simulate` from its words to its figures."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner, Result

from hermesd.cli import app
from hermesd.sim.compare import Recorded, Scene, cases_of, compare
from hermesd.sim.contenders import contenders
from tests.simulate.small import trainings
from tests.waiting import until

COMPARED = {"mean", "ratio", "median", "p10", "p90", "won", "bound_share"}


def hermesd(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["simulate", *map(str, words)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return trainings(tmp_path / "small.npz")


def rows(*words: str | Path, processes: int = 1) -> list[dict[str, Any]]:
    result = hermesd(*words, "--processes", str(processes), "-o", "json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return found


def test_a_row_for_each_file_number_of_devices_bin_and_policy(file: Path, tmp_path: Path) -> None:
    other = trainings(tmp_path / "other.npz", seed=6)
    policies = "best_first,round_robin:quantum_seconds=1"
    found = rows("--curves", file, other, "--policy", policies, "--orders", "2")
    keys = [(row["file"], row["devices"], row["bin"], row["policy"]) for row in found]
    assert sorted(keys) == sorted(
        (name, devices, bin_type, policy)
        for name in ("small", "other")
        for devices in (1, 4)
        for bin_type in (1, 2)
        for policy in ("best_first", "round_robin:quantum_seconds=1")
    )
    row = found[0]
    for name in ("time_to_good", "time_to_best", "top4", "auc", "near_best", "makespan", "jct"):
        assert set(row[name]) == COMPARED
    assert row["makespan_ratio"] == row["makespan"]["ratio"]
    assert row["jct_ratio"] == row["jct"]["ratio"]
    assert row["orders"] == 2
    assert {"switches", "overhead", "decision_us"} <= set(row)
    drawn = {"trials": 16, "seed": 0, "metric_loss": "base", "switch_cost": "paper"}
    assert drawn.items() <= row.items()


def test_a_summary_for_each_number_of_devices_bin_and_policy(file: Path, tmp_path: Path) -> None:
    words = ("--policy", "asha,fifo", "--orders", "2", "--processes", "1")
    (mine,) = (json.loads(hermesd(file, *words, "-o", "json").stdout),)
    keys = [(each["devices"], each["bin"], each["policy"]) for each in mine["summary"]]
    assert keys == [(row["devices"], row["bin"], row["policy"]) for row in mine["rows"]]
    for each, row in zip(mine["summary"], mine["rows"], strict=True):
        assert each["files"] == 1
        assert each["time_to_good"] == pytest.approx(row["time_to_good"]["ratio"])
    assert "all files" not in hermesd(file, *words).stdout
    other = trainings(tmp_path / "other.npz", seed=6)
    assert "all files, 2 orders: geometric means" in hermesd(file, other, *words).stdout


def test_fifo_is_its_own_measure(file: Path) -> None:
    (row,) = rows(file, "--policy", "fifo", "--orders", "3", "--devices", "2", "--bin", "1")
    for name in ("time_to_good", "time_to_best", "top4", "auc", "near_best", "makespan", "jct"):
        one = row[name]
        assert (one["ratio"], one["median"], one["p10"], one["p90"]) == (1, 1, 1, 1)
        assert one["won"] == 0
        assert 0 < one["bound_share"] <= 1
    assert (row["switches"], row["overhead"]) == (0, 0)


def test_figures_follow_the_orders_of_fifo(file: Path) -> None:
    """Ratio of the means, not mean of the ratios; the same orders for both."""
    scene = Scene(Recorded(file, "base", None), 1, 1, 16, 5, 0)
    results = compare(cases_of([scene], contenders("asha")), 1, lambda done: None)
    fifo, asha = ([one.figures.time_to_good for one in each] for each in results.values())
    (row,) = rows(file, "--policy", "asha", "--orders", "5", "--devices", "1", "--bin", "1")
    one = row["time_to_good"]
    assert one["mean"] == pytest.approx(sum(asha) / 5)
    assert one["ratio"] == pytest.approx(sum(fifo) / sum(asha))
    assert one["median"] == pytest.approx(sorted(a / b for a, b in zip(fifo, asha, strict=True))[2])
    assert one["won"] == sum(b < a for a, b in zip(fifo, asha, strict=True)) / 5


def steady(row: dict[str, Any]) -> dict[str, Any]:
    """What a rerun must repeat to the last digit: all but the measured time of decisions."""
    return {key: value for key, value in row.items() if key != "decision_us"}


def test_the_same_words_give_the_same_figures_whatever_the_processes(file: Path) -> None:
    words = ("--policy", "best_first,asha", "--orders", "12", "--devices", "2", "--bin", "2")
    once = [steady(row) for row in rows(file, *words)]
    assert [steady(row) for row in rows(file, *words)] == once
    assert [steady(row) for row in rows(file, *words, processes=2)] == once
    assert [steady(row) for row in rows(file, *words, "--seed", "1")] != once


def test_an_interrupt_ends_it_quietly_with_all_its_processes(file: Path) -> None:
    words = [sys.executable, "-m", "hermesd.cli", "simulate", str(file), "--orders", "2000"]
    words += ["--processes", "2"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True) as command:
        process = psutil.Process(command.pid)

        def begun() -> bool:
            assert command.poll() is None
            children = [" ".join(child.cmdline()) for child in process.children()]
            return sum("spawn_main" in words for words in children) == 2

        until(begun)
        workers = process.children()
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does it
        assert command.wait() == 130
        assert command.stderr is not None
        assert command.stderr.read() == b""
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


def test_the_switch_cost_and_the_loss_can_be_chosen(file: Path) -> None:
    words = (file, "--policy", "round_robin:quantum_seconds=1", "--orders", "2", "--devices", "1")
    paper, free = rows(*words), rows(*words, "--switch-cost", "0")
    assert paper[0]["overhead"] > 0
    assert free[0]["overhead"] == 0
    assert free[0]["switches"] == paper[0]["switches"]
    assert free[0]["makespan_ratio"] == pytest.approx(1.0)
    assert rows(*words, "--metric-loss", "total")


def test_what_is_good_can_be_chosen(tmp_path: Path) -> None:
    """Losses from 4 down to 3: good is what is below 3.3, or below about 3.1."""
    lows = np.concatenate((np.full(16, 2.0), np.full(8, 2.2), np.full(36, 2.9)))
    file = trainings(tmp_path / "small.npz", trials=60, lows=lows)
    words = (file, "--policy", "fifo", "--orders", "3", "--devices", "1", "--bin", "1")
    total = (*words, "--metric-loss", "total")
    usual, literal = rows(*total)[0], rows(*total, "--good", "optimum")[0]
    assert (usual["good"], literal["good"]) == ("way", "optimum")
    assert literal["time_to_good"]["mean"] < usual["time_to_good"]["mean"]


def test_the_table_is_whole_wherever_it_goes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest's own workers have it
    settings = "hermes:placement=homes,g_thres=4,quantum_seconds=1"
    result = hermesd(file, "--policy", settings, "--orders", "2", "--processes", "1")
    assert result.exit_code == 0
    assert "small, bin 1, 4 devices, 2 orders: times as fast as FIFO" in result.stdout
    assert settings in result.stdout
    assert "us/decision" in result.stdout
    assert "left out" not in result.stdout
    assert "…" not in result.stdout
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


@pytest.mark.parametrize(("columns", "has"), [("80", {"P10..P90", "of bound"}), ("40", set())])
def test_a_narrow_table_leaves_out_what_matters_least_and_says_so(
    columns: str, has: set[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    words = ("--orders", "2", "--processes", "1", "--devices", "1", "--bin", "1")
    shown = hermesd(file, "--policy", "hermes:g_thres=4,placement=homes", *words).stdout
    title, _, rest = shown.partition("\n\n")
    table, _, below = rest.partition("\n\n")
    assert " ".join(title.split()) == "small, bin 1, 1 device, 2 orders: times as fast as FIFO"
    assert max(map(len, shown.splitlines())) <= max(int(columns), 50)
    assert {"to good", *has} <= set(re.split(r"  +", table.splitlines()[0]))
    assert "hermes:g_thres=4,placement=homes " in table
    left_out = " ".join(below.split()).partition("left out: ")[2].partition(";")[0].split(", ")
    assert "us/decision" in left_out
    assert not has & set(left_out)
    assert not any(name in table for name in left_out)
    assert "-o json" in below


def test_one_order_has_no_spread(file: Path) -> None:
    words = ("--policy", "best_first", "--processes", "1", "--devices", "1", "--bin", "1")
    several = hermesd(file, *words, "--orders", "2").stdout
    single = hermesd(file, *words, "--orders", "1").stdout
    assert "1 device, 1 order: times as fast as FIFO" in single
    for name in ("P10..P90", "won"):
        assert several.count(name) == 2
        assert name not in single
    assert "(of bound is of that)" in single


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--policy", "bestfirst"], "--policy = bestfirst: expected one of"),
        (["--devices", "0"], "--devices = 0: expected whole numbers above 0"),
        (["--devices", "1,x"], "--devices = x: expected whole numbers above 0"),
        (["--devices", "1,,2"], "--devices = 1,,2: expected whole numbers above 0"),
        (["--bin", "1,"], "--bin = 1,: expected one of 1, 2, all"),
        (["--bin", ""], "--bin: expected one of 1, 2, all"),
        (["--devices", "9" * 5_000], f"--devices = {'9' * 60}"),
        (["--bin", "3"], "--bin = 3: expected one of 1, 2, all"),
        (["--orders", "0"], "--orders = 0: expected 1 or more"),
        (["--trials", "0"], "--trials = 0: expected 1 or more"),
        (["--trials", "90"], "--curves = small: expected 90 trials for bin 1, 22 good and 68 not;"),
        (["--devices", "1,1025"], "--devices = 1025: expected at most 1,024: more devices than"),
        (
            ["--policy", "best_first:prob_share=0.1"],
            "--policy best_first = prob_share: expected one of",
        ),
        (
            ["--policy", "best_first:probe_share=-1.0"],
            "--policy best_first.probe_share = -1.0: expected",
        ),
        (
            ["--policy", "fifo:placement=homes,g_thres=x"],
            "--policy placement.homes.G_thres = x: expected",
        ),
        (["--policy", "fifo:placement=homs"], "--policy placement = homs: expected"),
        (["--seed", "-1"], "--seed = -1: expected 0 or more"),
        (["--switch-cost", "papre"], "--switch-cost = papre: expected paper, or seconds"),
        (["--switch-cost", "-1"], "--switch-cost = -1: expected paper, or seconds"),
        (["--switch-cost", "1e308"], "--switch-cost = 1e308: expected paper, or seconds"),
        (
            ["--metric-loss", "totl"],
            "--metric-loss = totl: expected one of base, total (did you mean",
        ),
        (["--good", "best"], "--good = best: expected one of optimum, way"),
        (["--metric-loss", "val"], "--metric-loss = val: expected one of base, total\n"),
        (["-o", "yaml"], "--output = yaml: expected one of json, table"),
    ],
)
def test_words_that_will_not_do_are_refused_in_one_line(
    words: list[str], why: str, file: Path
) -> None:
    result = hermesd(file, *words, "--processes", "1")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"hermesd: {why}")
    assert result.stderr.count("\n") == 1


def test_without_curves_there_is_nothing_to_do() -> None:
    result = hermesd()
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "at least one file of recorded curves" in result.stderr


def test_charts_are_drawn_the_same_each_time(file: Path, tmp_path: Path) -> None:
    words = (file, "--policy", "best_first,fifo", "--orders", "2", "--devices", "2", "--bin", "2")
    for folder in ("one", "two"):
        done = hermesd(*words, "--processes", "1", "--charts", tmp_path / folder)
        assert done.exit_code == 0, done.output
        assert f"6 charts are in {tmp_path / folder}" in done.stderr
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(
        f"{stem}.{kind}"
        for stem in ("speedup-bin2-2dev", "incumbent-small-bin2-2dev", "devices-small-bin2-2dev")
        for kind in ("png", "svg")
    )
    for name in names:
        drawn = (tmp_path / "one" / name).read_bytes()
        assert drawn == (tmp_path / "two" / name).read_bytes(), name
        assert drawn[:4] == (b"\x89PNG" if name.endswith("png") else b"<?xm")
    shown = (tmp_path / "one" / "devices-small-bin2-2dev.svg").read_text()
    assert "best_first" in shown
    assert "fifo" in shown
    assert "2 orders<" in (tmp_path / "one" / "incumbent-small-bin2-2dev.svg").read_text()


def test_files_of_one_name_have_charts_of_their_own(file: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    other = trainings(tmp_path / "more" / file.name, seed=6)
    words = ("--policy", "fifo", "--orders", "1", "--devices", "1", "--bin", "2")
    pictures = tmp_path / "pictures"
    done = hermesd("--curves", file, other, *words, "--processes", "1", "--charts", pictures)
    assert done.exit_code == 0, done.output
    drawn = list(pictures.iterdir())
    assert f"{len(drawn)} charts are in {pictures}" in done.stderr
    assert len(drawn) == 2 + 4 * 2


def test_charts_are_called_by_stems_and_by_paths_where_these_agree() -> None:
    from hermesd.sim.charts import stems

    assert stems(["a.b", "spirals.npz", "../d2/spirals.npz", "d2-spirals", "d2/spirals.npz"]) == {
        "a.b": "a.b",
        "spirals.npz": "spirals",
        "../d2/spirals.npz": "d2-spirals",
        "d2-spirals": "d2-spirals-2",
        "d2/spirals.npz": "d2-spirals-3",
    }


def test_charts_name_what_looks_the_same(file: Path, tmp_path: Path) -> None:
    words = (file, "--policy", "fifo,fifo:speeds=equal", "--orders", "1", "--bin", "1")
    unequal = ("--devices", "100:50", "--processes", "1", "--charts", tmp_path)
    assert hermesd(*words, *unequal).exit_code == 0
    slug = "small-bin1-2dev-100-50.svg"
    assert ">fifo = fifo:speeds=equal<" in (tmp_path / f"incumbent-{slug}").read_text()
    devices = (tmp_path / f"devices-{slug}").read_text()
    assert all(f">{device}<" in devices for device in ("0: 100", "1: 50"))


def test_charts_need_a_folder_that_can_be_written_to(file: Path) -> None:
    words = (file, "--policy", "fifo", "--orders", "1", "--devices", "1", "--processes", "1")
    for folder in (file, file / "below"):
        refused = hermesd(*words, "--charts", folder)
        assert refused.exit_code == 2
        assert f"--charts = {folder}: expected a folder that can be written to" in refused.stderr


def test_the_folder_of_charts_is_tried_before_the_simulation(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermesd.sim.comparison.compare", None)  # would raise TypeError
    assert hermesd(file, "--policy", "fifo", "--charts", file).exit_code == 2


def test_charts_name_the_package_that_is_missing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused = hermesd(file, "--charts", tmp_path)
    assert refused.exit_code == 2
    assert "pip install matplotlib" in refused.stderr


def by_learning_rate(path: Path, chance: int) -> Path:
    """Trainings whose losses fall the faster the higher their learning rate is."""
    steps, rates = np.arange(400), np.random.default_rng(chance).permutation(40)
    base = 2 * np.exp(-np.outer(rates / 10, steps / 400))
    cfg = np.stack([0 * rates, 16 + 0 * rates, 1e-4 * (1 + rates), 0 * rates], axis=1)
    np.savez(path, base=base, total=base, step_s=np.full(40, 0.06), cfg=cfg, meta="{}")
    return path


def test_a_file_of_history_moves_what_remembers_and_none_is_its_own(tmp_path: Path) -> None:
    file, other = (by_learning_rate(tmp_path / f"{seed}.npz", seed) for seed in (1, 2))
    words = ("--curves", file, "--bin", "1", "--devices", "1", "--orders", "2", "--policy")

    def times(policies: str, *history: str | Path) -> list[float]:
        return [row["time_to_good"]["mean"] for row in rows(*words, policies, *history)]

    fifo, plain = times("fifo,best_first")
    known = times("fifo,best_first", "--history", other, "--history", file)
    assert known[0] == fifo
    assert known[1] < plain
    assert times("best_first", "--history", file) == [plain]
    assert times("best_first:history=off", "--history", other) == [plain]
