"""Studies side by side: pure, then by the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hermesctl.render.comparison_views import comparison_view
from hermesctl.sdk.comparison import StudyTrace, compared, traced
from hermesctl.sdk.events import Event
from hermesctl.sdk.from_wire import record
from hermesctl.sdk.records import Curve, Leaderboard, Study, Trial
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import FakeHead, event, trial
from tests.hermesctl.test_cli import hermesctl
from tests.study_specs import spec

BEGIN = 1_700_000_000.0


def trace(
    name: str,
    curve: Mapping[int, float],
    reports: Sequence[tuple[int, float]] = (),
    goal: str = "minimize",
    message: types.StudySpec | None = None,
    **fields: Any,
) -> StudyTrace:
    """A study with a best trial of this curve, and what its trials reported after how many
    seconds."""
    study = record(
        Study, pb.Study(id=name, spec=message or spec(), submitted_unix_seconds=BEGIN, **fields)
    )
    best = record(Trial, trial(1, name, metric=min(curve.values(), default=0.0)))
    told = [
        record(
            Event,
            event(
                at, pb.PUBLIC_EVENT_KIND_REPORTED, metrics=[pb.MetricValue(name="acc", last=value)]
            ),
        )
        for at, value in reports
    ]
    board = Leaderboard([best], "acc", goal, "last")
    return traced(study, board, Curve("acc", tuple(curve), tuple(curve.values()), ()), told)


def test_curves_are_read_at_the_same_steps_and_times() -> None:
    long = trace("a", {step: 1 / step for step in range(1, 161)}, [(10, 5.0), (20, 7.0), (80, 2.0)])
    short = trace("b", {20: 0.5, 80: 0.25}, [(40, 4.0)])
    found = compared([long, short])
    assert found.steps == (10, 20, 30, 40, 50, 60, 70, 80)
    first, second = found.studies
    assert first.by_step == tuple(1 / step for step in found.steps)
    assert second.by_step == (None, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25)
    assert found.seconds == (10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0)
    assert first.by_time == (5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 2.0)
    assert second.by_time == (None, None, None, 4.0, 4.0, 4.0, 4.0, 4.0)
    up = trace("c", {}, [(10, 5.0), (20, 7.0), (80, 2.0)], goal="maximize")
    assert compared([up, up]).studies[0].by_time[-1] == 7.0


@given(
    reports=st.lists(st.tuples(st.integers(1, 99), st.floats(allow_infinity=True)), max_size=9),
    others=st.lists(st.tuples(st.integers(1, 99), st.floats(-5, 5)), max_size=9),
)
def test_the_best_so_far_only_gets_better(
    reports: list[tuple[int, float]], others: list[tuple[int, float]]
) -> None:
    found = compared([trace("a", {}, sorted(reports, key=lambda each: each[0])),
                      trace("b", {}, sorted(others))])  # fmt: skip
    for side in found.studies:
        known = [value for value in side.by_time if value is not None]
        assert known == sorted(known, reverse=True)
        assert all(map(math.isfinite, known))


def test_what_differs_is_named_by_its_key() -> None:
    other = spec({"lr": {"values": [0.5]}, "batch": {"values": [16, 32]}}, run_cap=2)
    found = compared(
        [trace("a", {}, code_sha256="c0de"), trace("b", {}, message=other, code_sha256="c0de")]
    )
    assert found.differences == {
        "parameters.lr.values": ([0.1, 0.01], [0.5]),
        "run_cap": (None, 2),
    }


def differences(one: types.StudySpec, other: types.StudySpec) -> Mapping[str, object]:
    return compared([trace("a", {}, message=one), trace("b", {}, message=other)]).differences


def test_what_was_chosen_later_is_no_other_choice_than_the_same_one_at_submission() -> None:
    by_name = spec(metric=types.Metric(name="acc"), signal=types.Signal(name="val_loss"))
    low = {"goal": types.GOAL_MINIMIZE}
    metric = types.Metric(name="acc", mode=types.METRIC_MODE_LAST, **low)
    chosen = spec(metric=metric, signal=types.Signal(name="val_loss", **low))
    assert differences(by_name, chosen) == {}
    silent, loss = spec(), spec(signal=types.Signal(name="loss", **low))
    assert differences(silent, loss) == {}
    up = spec(signal=types.Signal(name="acc", goal=types.GOAL_MAXIMIZE))
    assert differences(silent, up) == {
        "signal.name": ("loss", "acc"),
        "signal.goal": ("minimize", "maximize"),
    }


def test_a_comparison_is_shown_whatever_is_known() -> None:
    text = StringIO()
    nothing = StudyTrace(
        record(Study, pb.Study(id="new", spec=spec())),
        Leaderboard([], "acc", "maximize", "last"),
        Curve("", (), (), ()),
        (),
    )
    Console(file=text, width=100).print(comparison_view(compared([trace("a", {4: 0.5}), nothing])))
    said = text.getvalue()
    assert "acc, the lowest first" in said
    assert "a/1" in said
    assert "best so far" not in said


def test_the_command_shows_and_writes_it(head: FakeHead) -> None:
    loss = types.Metric(name="loss", goal=types.GOAL_MINIMIZE)
    for name, value in (("digits", 0.25), ("other", 0.5)):
        one = trial(1, name, metric=value, step=3)
        head.add_study(name, one, ranking=pb.Ranking(metric=loss), reported=["loss"])
    head.events = [event(5, pb.PUBLIC_EVENT_KIND_REPORTED, loss=0.75)]
    document = json.loads(hermesctl("study", "compare", "digits", "other", "-o", "json").stdout)
    assert document["metric"] == "loss"
    assert [each["best"] for each in document["studies"]] == [0.25, 0.5]
    assert document["studies"][1]["by_time"][-1] == 0.75
    said = hermesctl("study", "compare", "digits", "other").stdout
    for words in ("digits/1", "other/1", "best report until", "best trial's report at step"):
        assert words in said
    bad = hermesctl("study", "compare", "digits")
    assert "expected two studies or more" in bad.stderr


def test_the_signal_of_one_study_is_compared_by_its_last_value(head: FakeHead) -> None:
    """Of the other it is not smoothed, so the two values would not be of one kind."""
    smoothed = types.Metric(name="loss", goal=types.GOAL_MINIMIZE, mode=types.METRIC_MODE_SMOOTHED)
    for name in ("digits", "other", "third"):
        ranking = pb.Ranking(metric=smoothed)
        head.add_study(name, trial(1, name, metric=0.5), ranking=ranking, reported=["loss"])
    modes = []
    for name in ("other", "third"):
        shown = hermesctl("study", "compare", "digits", name, "-o", "json")
        modes.append(json.loads(shown.stdout)["mode"])
        head.studies["third"].spec.signal.name = "val_loss"
    assert modes == ["smoothed", "last"]
