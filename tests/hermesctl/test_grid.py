"""Tables on terminals of any width: each row is a line, and what is missing is named."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from hermesctl.render.failure_views import failed_trials
from hermesctl.render.node_views import devices_table, nodes_table
from hermesctl.render.replay_views import forecast_view
from hermesctl.render.tables import grid, leaderboard, studies_table, trials_table
from hermesctl.sdk.forecast import Forecast
from hermesctl.sdk.records import Device, Node, StudyDetail, Usage
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import trial
from tests.hermesctl.test_render import detail, shown

SPAN = {"median": 80.0, "least": 58.0, "most": 125.0}


def named(name: str, value: float) -> types.NamedValue:
    return types.NamedValue(name=name, value=types.Value(double_value=value))


def digits(name: str = "digits") -> StudyDetail:
    """A study of many hyper-parameters, of which one trial failed."""
    trials = []
    for number in range(1, 7):
        names = ("learning_rate", "weight_decay", "batch_size", "warmup_steps", "dropout")
        one = trial(number, name, step=540, planned_steps=1080)
        del one.parameters[:]
        one.parameters.extend(named(name, number / 8) for name in names)
        trials.append(one)
    trials[0].state = types.TRIAL_STATE_FAILED
    trials[0].failures.add(detail="ValueError: shapes (3,4) and (5,6) do not fit")
    return detail(*trials)


def forecast() -> Forecast:
    spans = dict.fromkeys(("first_good", "near_best", "best", "all_done"), SPAN)
    policies = [{"policy": name, **spans} for name in ("best_first:good=0", "fifo")]
    said = {"devices": 2, "study": "digits", "trained": 16, "policies": policies}
    return Forecast({**said, "good": 4, "trials": 16}, "the same program", attached=2)


def test_a_trial_whose_memory_nobody_has_measured_is_not_said_to_use_none() -> None:
    use = Usage(utilization=1.0, memory_bytes=0)
    there = Device("b/cpu0", "b", "cpu", 12 << 30, (0,), "digits/2", "", True, "", use, 0.0)
    assert "  - of 12.0 GiB  " in shown(devices_table([there]), 120)
    assert "  0 B of 12.0 GiB  " in shown(devices_table([replace(there, trial="")]), 120)


def test_a_header_is_broken_before_it_is_cut() -> None:
    """The beginning of a name may be another metric's."""
    table = leaderboard(digits().trials, "val_accuracy", wide=False)
    for width in (80, 70, 60):
        lines = shown(table, width).splitlines()
        assert "val_acc…" not in "".join(lines)
        assert "_accuracy" in "".join(lines[:2])


@pytest.mark.parametrize("width", [120, 80, 60])
def test_each_row_is_one_line(width: int) -> None:
    study = digits("imagenet-resnet50-augmentation-sweep-nov")
    use = Usage(utilization=1.0, memory_bytes=1 << 30)
    device = Device(
        "box1/cpu0", "box1", "cpu", 12 << 30, (0,), "digits/2", "digits/3", True, "", use, 0.0
    )
    tables = {
        leaderboard(study.trials, "validation_loss", wide=False): len(study.trials),
        trials_table(study.trials, "validation_loss", wide=False): len(study.trials),
        studies_table([study.study] * 3, wide=False): 3,
        nodes_table([Node("box1", True, (device,), ("cgroup v2",), "0.1.0", 0.0)], wide=False): 1,
        devices_table([device]): 1,
    }
    for table, rows in tables.items():
        lines = shown(table, width).partition("left out")[0].rstrip().splitlines()
        headers = 2 if any(line.split()[0] in ("rank", "trial") for line in lines[1:2]) else 1
        assert len(lines) == headers + rows, lines
        assert max(map(len, lines)) <= width


def test_a_shortened_trial_keeps_its_number_and_a_number_is_never_shortened() -> None:
    table = leaderboard(digits("imagenet-resnet50-augmentation-sweep-nov").trials, "loss", False)
    for number, line in enumerate(shown(table, 60).splitlines()[1:7], start=1):
        value = f"{number / 8:g}"
        assert re.search(rf"  imagenet-r\S*…/{number}  .*  {value} +{value}$", line), line


@pytest.mark.parametrize("width", [100, 80, 60])
def test_a_hyper_parameter_keeps_its_exponent_or_goes(width: int) -> None:
    name = "imagenet-resnet-sweep"
    trials = [trial(n, name, step=12000, planned_steps=20000, tags=["best-so-far"]) for n in (1, 2)]
    for number, one in enumerate(trials):
        del one.parameters[:]
        values = {"learning_rate": 1.23456789e-6, "weight_decay": 3.1622776e-8}
        one.parameters.extend(named(name, values[name] * 10**-number) for name in values)
    table, _, left_out = shown(
        trials_table(detail(*trials).trials, "validation_loss", wide=False), width
    ).partition("left out")
    for name, values in (
        ("learning_rate", ("1.23457e-06", "1.23457e-07")),
        ("weight_decay", ("3.16228e-08", "3.16228e-09")),
    ):
        shows = all(value in table for value in values)
        assert shows != (name in left_out), table + left_out


@pytest.mark.parametrize(
    "view", [*failed_trials(digits().trials, {})[:1], forecast_view(forecast())]
)
def test_what_is_prose_is_told_whole(view: RenderableType) -> None:
    def words(width: int) -> set[str]:
        return set(shown(view, width).replace("─", " ").split())

    assert words(1_000) - words(60) <= {"see", "it", "hermesctl", "trial", "show"}
    assert max(map(len, shown(view, 60).splitlines())) <= 60


def test_what_a_narrow_terminal_does_without_is_named() -> None:
    table = leaderboard(digits().trials, "val_loss", wide=False)
    assert "left out" not in shown(table, 200)
    header, _, note = shown(table, 90).partition("left out: ")
    assert note == "fidelity, overhead, preempted, state; a wider terminal has them, or -o json"
    above, below = header.splitlines()[:2]
    assert above.split() == ["learning", "weight", "batch", "warmup"]
    assert below.split() == [
        *("rank", "trial", "val_loss", "step"),
        *("_rate", "_decay", "_size", "_steps", "dropout"),
    ]


def test_of_the_nested_name_of_a_hyperparameter_the_end_is_kept() -> None:
    table = grid("trial", "=optimizer.learning_rate", "=optimizer.weight_decay")
    table.add_row(Text("digits/1"), Text("0.1"), Text("0.2"))
    assert shown(table, 32).splitlines()[0].split() == ["trial", "…ning_rate", "…ght_decay"]
    above, below = shown(table, 40).splitlines()[:2]
    assert (above.split(), below.split()) == (
        ["optimizer", "optimizer"],
        ["trial", ".learning_rate", ".weight_decay"],
    )


def test_of_many_hyperparameters_the_last_go_before_the_first() -> None:
    told = shown(leaderboard(digits().trials, "val_loss", wide=False), 60)
    assert "left out: fidelity, overhead, preempted, state, dropout" in told
    assert "learn" in "".join(told.splitlines()[:2])


def test_a_wide_table_leaves_nothing_out() -> None:
    table = trials_table(digits().trials, "val_loss", wide=True)
    narrow = shown(table, 60)
    assert "left out" not in narrow
    assert "…" not in narrow
    assert "learning_rate  0.125" in narrow.splitlines()
    assert narrow.count("overhead") == len(digits().trials)


def test_a_parameter_named_like_a_column_is_no_column_that_may_go() -> None:
    table = grid(">step", "=step", "|note", spared=("step",))
    table.add_row(Text("120"), Text("7"), Text("x" * 12))
    narrow = shown(table, 20)
    assert narrow.splitlines()[:2] == ["step  note", "7     xxxxxxxxxxxx"]


@example(cells=[" aaaaaaa", "", "aaaaaa"], width=20)
@given(
    cells=st.lists(st.text("ab ", max_size=30), min_size=3, max_size=3),
    width=st.integers(20, 100),
)
def test_prose_is_told_whole_at_any_width(cells: list[str], width: int) -> None:
    table = grid("~one", ">two", "~three")
    table.add_row(*map(Text, cells))
    if max((len(word) for text in cells for word in text.split()), default=0) > width - 7:
        return
    told = shown(table, width).split()
    assert all(word in told for word in " ".join(cells).split())


@given(
    cells=st.lists(st.text("ab/日 ", max_size=60), min_size=3, max_size=3),
    width=st.integers(3, 100),
)
def test_no_row_is_wider_than_its_terminal(cells: list[str], width: int) -> None:
    table = grid("one", "=two", "~three")
    table.add_row(*map(Text, cells))
    assert all(cell_len(line) <= width for line in shown(table, width).splitlines())
