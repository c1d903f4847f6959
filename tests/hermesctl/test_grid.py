"""Tables on terminals of any width: no word is broken, and what is missing is named."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import RenderableType
from rich.text import Text

from hermesctl.render.failure_views import failed_trials
from hermesctl.render.grid import PARAMETERS, Grid
from hermesctl.render.node_views import devices_table, nodes_table
from hermesctl.render.replay_views import forecast_view
from hermesctl.render.tables import leaderboard, studies_table, trials_table
from hermesctl.render.views import final_view, status_view
from hermesctl.sdk.forecast import Forecast
from hermesctl.sdk.records import Device, Node, StudyDetail, Trial, Usage
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import trial
from tests.hermesctl.test_render import detail, shown

NOTE = "left out: parameters; a wider terminal has them, or -o json"
SPAN = {"median": 80.0, "least": 58.0, "most": 125.0}


def named(name: str, value: float) -> types.NamedValue:
    return types.NamedValue(name=name, value=types.Value(double_value=value))


def words_of(told: str) -> set[str]:
    return {word.rstrip(",;") for word in told.replace("=", " ").split()}


def digits() -> StudyDetail:
    """A study of many hyper-parameters, of which one trial failed."""
    trials = []
    for number in range(1, 7):
        names = ("learning_rate", "weight_decay", "batch_size", "warmup_steps", "dropout")
        one = trial(number, step=540, planned_steps=1080)
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


def views(wide: bool) -> list[RenderableType]:
    study = digits()
    trials: list[Trial] = list(study.trials)
    use = Usage(utilization=1.0, memory_bytes=1 << 30)
    device = Device(
        "box1/cpu0", "box1", "cpu", 12 << 30, (0,), "digits/2", "digits/3", True, "", use, 0.0
    )
    node = Node("box1", True, (device,), ("cgroup v2",), "0.1.0", 0.0)
    return [
        leaderboard(trials, "validation_loss", wide),
        trials_table(trials, "validation_loss", wide),
        studies_table([study.study], wide),
        nodes_table([node], wide),
        devices_table([device]),
        *failed_trials(trials, {}),
        forecast_view(forecast()),
        final_view(study, trials, {}),
        status_view(study, {}),
    ]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("width", [100, 80, 60, 48])
def test_no_word_of_a_table_is_broken(width: int, wide: bool) -> None:
    for view in views(wide):
        whole = words_of(shown(view, 1_000)) | words_of(NOTE)
        narrow = shown(view, width)
        assert max(map(len, narrow.splitlines()), default=0) <= width
        assert words_of(narrow) <= whole, narrow


def test_what_a_narrow_terminal_does_without_is_named() -> None:
    table = leaderboard(digits().trials, "val_loss", wide=False)
    assert "left out" not in shown(table, 200)
    narrow = shown(table, 80)
    assert (
        "left out: fidelity, overhead, preempted; a wider terminal has them, or -o json" in narrow
    )
    assert "learning_rate=0.125" in narrow
    assert narrow.splitlines()[0].split() == [
        "rank",
        "trial",
        "val_loss",
        "step",
        "state",
        PARAMETERS,
    ]


def test_a_wide_table_leaves_nothing_out() -> None:
    table = trials_table(digits().trials, "val_loss", wide=True)
    narrow = shown(table, 60)
    assert "left out" not in narrow
    assert "learning_rate  0.125" in narrow.splitlines()
    assert narrow.count("validation_loss") == 0
    assert narrow.count("overhead") == len(digits().trials)


def test_a_parameter_named_like_a_column_is_no_column_that_may_go() -> None:
    table = Grid([">step", "=step", "note"], ("step",), silently=False)
    table.add_row(Text("120"), Text("7"), Text("x" * 12))
    narrow = shown(table, 20)
    assert narrow.splitlines()[:2] == ["step  note", "7     xxxxxxxxxxxx"]


@example(cells=[" aaaaaaa", "", "aaaaaa"], width=20)
@given(
    cells=st.lists(st.text("ab ", max_size=30), min_size=3, max_size=3),
    width=st.integers(20, 100),
)
def test_any_row_is_told_whole_at_any_width(cells: list[str], width: int) -> None:
    table = Grid(["one", ">two", "|three"], (), silently=False)
    table.add_row(*map(Text, cells))
    if max((len(word) for text in cells for word in text.split()), default=0) > width - 7:
        return
    told = shown(table, width).split()
    assert all(word in told for word in " ".join(cells).split())
