"""What people see, as text: numbers, charts, event lines, tables and views."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from hermesctl import text
from hermesctl.commands.trial import trial_view
from hermesctl.render.charts import plot, progress_bar, sparkline
from hermesctl.render.event_lines import EventLines, event_line
from hermesctl.render.failure_views import unexplained
from hermesctl.render.tables import leaderboard, studies_table, trials_table
from hermesctl.render.top_keys import Keyboard
from hermesctl.render.views import (
    LiveView,
    explanation_view,
    final_view,
    live_view,
    progress_line,
    status_view,
    to_look_at,
    top_view,
)
from hermesctl.sdk.events import Event
from hermesctl.sdk.from_wire import record
from hermesctl.sdk.records import (
    Checkpoint,
    Curve,
    Device,
    Explanation,
    Node,
    Ranked,
    Study,
    StudyDetail,
    Submission,
    Trial,
    TrialDetail,
    TrialState,
    Usage,
)
from hermesctl.text import TerminalFilter, nearest
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import FakeHead, event, trial


def shown(view: RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(view)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in output.splitlines())


def detail(*trials: pb.Trial, **fields: object) -> StudyDetail:
    head = FakeHead()
    head.add_study("digits", *trials, **fields)
    message = pb.GetStudyResponse(
        study=head.studies["digits"], trials=trials, next_up=[t.id for t in trials]
    )
    return record(StudyDetail, message)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.0205, "20 ms"),
        (0.9996, "1.0 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7530, "2 h 5 min"),
        (3600 * 24 * 3 + 4 * 3600, "3 d 4 h"),
        (-5, "-5.0 s"),
        (math.inf, "?"),
        (math.nan, "?"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert text.duration(seconds) == words


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_can_be_said(value: float) -> None:
    assert text.duration(value)
    assert text.number(value)
    assert text.percent(value)
    if math.isfinite(value):
        assert text.size(value)


@given(st.text())
def test_printable_text_is_printable(hostile: str) -> None:
    assert text.printable(hostile).isprintable()


@given(st.lists(st.floats(), max_size=30), st.integers(1, 20))
def test_any_values_make_a_sparkline(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == min(width, len(values))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats()), max_size=30))
def test_any_curve_can_be_plotted(points: list[tuple[int, float]]) -> None:
    ordered = sorted(points, key=lambda point: point[0])
    lines = plot([s for s, _ in ordered], [v for _, v in ordered], 40, 8)
    assert len(lines) in (1, 9)


def test_a_curve() -> None:
    assert sparkline([8, 4, 2, 1, math.nan], 16) == "█▄▂▁!"
    assert progress_bar(0.5, 8) == "━━━━╌╌╌╌"
    assert plot([0, 5, 10], [3.0, 2.0, 1.0], 11, 3) == [
        "3 ┤•",
        "  ┤     •",
        "1 ┤          •",
        "   0        10",
    ]


def line(**fields: object) -> str:
    fields.setdefault("kind", pb.PUBLIC_EVENT_KIND_SUSPENDED)
    one: Event = record(Event, event(12, **fields))  # type: ignore[arg-type]
    return " ".join(event_line(one).plain.split())


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            120,
            ["     12 22:13:32Z digits/12#3          suspend asked    digits/3 goes first: its loss"
             " falls by 0.25 an iteration, that", " " * 56 + "of digits/12 by 0.125"],
        ),
        (
            80,
            ["22:13:32Z digits/12#3  suspend asked digits/3 goes first: its loss falls by 0.25",
             " " * 37 + "an iteration, that of digits/12 by 0.125"],
        ),
        (
            48,
            ["22:13:32Z digits/12#3  suspend asked",
             " " * 24 + "digits/3 goes first: its", " " * 24 + "loss falls by 0.25 an",
             " " * 24 + "iteration, that of", " " * 24 + "digits/12 by 0.125"],
        ),
    ],
)  # fmt: skip
def test_the_details_of_an_event_go_on_below_themselves(width: int, lines: list[str]) -> None:
    why = "digits/3 goes first: its loss falls by 0.25 an iteration, that of digits/12 by 0.125"
    one: Event = record(
        Event,
        event(12, kind=pb.PUBLIC_EVENT_KIND_SUSPEND_ASKED, trial="digits/12", attempt=3,
              successor="digits/3", reason=why),
    )  # fmt: skip
    assert [each.rstrip() for each in shown(EventLines(one), width).splitlines()] == lines


@pytest.mark.parametrize(
    ("word", "meant"), [("trian.py", "Train.py"), ("TRAIN.PY", "Train.py"), ("x", "")]
)
def test_the_nearest_of_some_names_is_given_as_it_is_written(word: str, meant: str) -> None:
    assert nearest(word, ["Train.py", "eval.py"]) == meant


def test_an_event_is_one_line() -> None:
    assert line(trial="digits/3", attempt=2, step=40, tier=types.TIER_PARK, seconds=0.012) == (
        "12 22:13:32Z digits/3#2 suspended step 40 · tier park · in 12 ms"
    )
    drained = pb.PUBLIC_EVENT_KIND_NODE_DRAINED
    assert line(kind=drained).endswith(" node draining"), "when it was asked for"
    kind = pb.PUBLIC_EVENT_KIND_MILESTONE_PASSED
    assert line(kind=kind, trial="digits/3", percent=25.0, loss=0.5).endswith(
        "digits/3 milestone passed loss 0.5 · 25 % down"
    )
    quantum = types.Quantum(seconds=20.0, loss=0.25)
    kind = pb.PUBLIC_EVENT_KIND_RENEWED
    assert line(kind=kind, trial="digits/3", quantum=quantum, reason="still best").endswith(
        "renewed quantum 20.0 s or until loss 0.25 · still best"
    )
    assert line(kind=pb.PUBLIC_EVENT_KIND_NODE_LOST, study="", device="box").endswith(
        "box node lost"
    )
    assert "\n" not in line(trial="digits/3", reason="two\nlines")
    started = {"kind": pb.PUBLIC_EVENT_KIND_STARTED, "trial": "digits/3", "seconds": 2.0}
    assert line(attempt=2, **started).endswith("started from the beginning · in 2.0 s")
    assert line(attempt=2, step=40, **started).endswith("started step 40 · in 2.0 s")
    assert line(attempt=1, **started).endswith("started in 2.0 s")


def test_tables_show_what_differs_between_trials() -> None:
    first = trial(1, state=types.TRIAL_STATE_RUNNING, device="box/cpu0", step=3, planned_steps=9)
    trials = detail(first, trial(2, kept_tier=types.TIER_PARK, metric=0.25)).trials
    assert shown(trials_table(trials, "val_loss", wide=False)) == (
        "trial     state           device    step  val_loss  signal  lr\n"
        "digits/1  running         box/cpu0   3/9         -       -  0.1\n"
        "digits/2  waiting (park)  -            0      0.25       -  0.05"
    )
    assert "optimizer" in shown(trials_table(trials[:1], "val_loss", wide=False))


def test_a_trial_without_a_rank_has_none_on_the_leaderboard() -> None:
    exact = types.FIDELITY_EXACT
    done = trial(2, state=types.TRIAL_STATE_COMPLETED, metric=0.25, rank=1, fidelity=exact)
    failed = trial(1, state=types.TRIAL_STATE_FAILED)
    trials = detail(failed, done).trials[::-1]
    assert shown(leaderboard(trials, "val_loss", wide=False)) == (
        "rank  trial     val_loss  step  state      lr    preempted  overhead  fidelity\n"
        "   1  digits/2      0.25     0  completed  0.05          0     0.0 %  exact\n"
        "   -  digits/1         -     0  failed     0.1           0     0.0 %  -"
    )


def test_the_metric_that_ranks_is_named_everywhere() -> None:
    best = trial(1, metric=0.25, rank=1)
    study = detail(best, best_trial="digits/1", best_metric=0.25, finished=True)
    unnamed = pb.Study(id="digits", best_trial="digits/1", best_metric=0.25)
    told = pb.Study(
        best_trial="digits/1", ranking=pb.Ranking(metric=types.Metric(name="acc"), reason="seen")
    )
    told.best_metric = 0.25
    assert "acc · seen" in shown(status_view(replace(study, study=record(Study, told)), {}))
    for one, name in (
        (study.study, "val_loss"),
        (record(Study, unnamed), "loss"),
        (record(Study, told), "acc"),
    ):
        same = replace(study, study=one)
        for view in (
            studies_table([one], wide=False),
            status_view(same, {}),
            live_view(LiveView(same), 120, 20),
            final_view(same, same.trials, {}),
        ):
            assert name in shown(view).split()


ANOTHER = "NoDivisionError: division by zero"
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    1 / 0
ZeroDivisionError: division by zero
"""


def test_a_text_of_several_lines_comes_down_to_one() -> None:
    for words, line in (
        ("", ""),
        ("out of memory", "out of memory"),
        ("first\nsecond\n", "first …"),
        (TRACEBACK, "ZeroDivisionError: division by zero"),
        (
            f"a/1 is failed: {TRACEBACK} (twice)",
            "a/1 is failed: ZeroDivisionError: division by zero (twice)",
        ),
        (f"{TRACEBACK}\nDuring:\n\n{TRACEBACK.replace('Zero', 'No')}", ANOTHER),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        (f"{TRACEBACK.splitlines()[0]}\n  File", "File"),
        # The first frames of a deep one are not told.
        (TRACEBACK.partition("\n")[2], "ZeroDivisionError: division by zero"),
    ):
        assert text.one_line(words) == line


@given(st.text("\n \t(TraceE:") | st.lists(st.sampled_from(TRACEBACK.splitlines())).map("\n".join))
def test_any_text_comes_down_to_one_line(words: str) -> None:
    assert len(text.one_line(words).splitlines()) <= 1


@pytest.mark.parametrize(
    ("said", "is_outside"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '../data/x.csv'", True),
        ("FileNotFoundError: ../data/x.npy not found.", True),
        ("fopen: ../data/x: No such file or directory", True),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'", False),
        ('  File "../x.py"\nNameError: name', False),
    ],
)
def test_who_looks_outside_of_a_trials_copy_is_told_that_it_is_one(
    said: str, is_outside: bool
) -> None:
    one = trial(1, state=types.TRIAL_STATE_FAILED)
    one.failures.add(error_kind="exception", detail=said)
    view = shown(trial_view(record(TrialDetail, pb.GetTrialResponse(trial=one))))
    assert ("runs in a copy" in view) is is_outside


def test_a_traceback_is_shown_once_and_as_lines() -> None:
    one = trial(1, state=types.TRIAL_STATE_FAILED, reason=f"{TRACEBACK} (the same error twice)")
    for attempt in (1, 2, 3):
        failure = pb.Failure(
            error_kind="exception", detail=TRACEBACK, device="box/cpu0", step=3, attempt=attempt
        )
        one.failures.append(failure)
    output = f"begin\n{TRACEBACK}begin\n{TRACEBACK}end\n"
    answer = pb.GetTrialResponse(trial=one, output_tail=output)
    view = shown(trial_view(record(TrialDetail, answer)))
    assert "\\n" not in view
    assert view.count("Traceback") == 1
    assert '\n    File "train.py", line 3, in <module>\n      1 / 0\n' in view
    assert "attempt 1 on box/cpu0, step 3, -): ZeroDivisionError: division by zero\n" in view
    assert view.count("begin") == 2
    why, output, rest = (view.index(each) for each in ("failed: exc", "last output", "command"))
    assert view.index("state") < why < output < view.index("see above]\n  end\n\n") < rest
    assert "fidelity" not in view, "it is not resumed"


def test_of_a_long_output_the_last_lines_are_shown_and_how_to_see_the_others() -> None:
    output = "".join(f"line {number}\n" for number in range(40))
    view = shown(
        trial_view(record(TrialDetail, pb.GetTrialResponse(trial=trial(1), output_tail=output)))
    )
    assert "line 39" in view
    assert "line 20" not in view
    assert "logs digits/1" in view


def test_a_trial_that_is_parked_beyond_the_memory_for_it_says_so() -> None:
    words = "trials on box that can only be parked, this one among them, hold 2.0 GiB of its memory"
    answer = pb.GetTrialResponse(trial=trial(1, attempt=1), parked_memory=words)
    assert f"\nparked       {words}\n" in shown(trial_view(record(TrialDetail, answer))) + "\n"


def test_the_processes_of_a_trial_are_shown() -> None:
    answer = pb.GetTrialResponse(trial=trial(1, attempt=1), pids=[4711, 4712])
    assert "\npid          4711, 4712\n" in shown(trial_view(record(TrialDetail, answer)))


def test_a_trial_that_has_not_reported_what_ranks_it_says_so() -> None:
    for state, ending in (
        (types.TRIAL_STATE_RUNNING, " so far"),
        (types.TRIAL_STATE_COMPLETED, ""),
    ):
        one = trial(1, state=state, metrics=[pb.MetricValue(name="acc", last=0.5)])
        answer = record(TrialDetail, pb.GetTrialResponse(trial=one))
        said = shown(trial_view(answer, wanted="accuracy"))
        assert f"\naccuracy    not reported{ending}; it ranks the trials\n" in said


def test_nothing_is_said_of_what_a_trial_took_that_never_ran() -> None:
    view = shown(trial_view(record(TrialDetail, pb.GetTrialResponse(trial=trial(1)))))
    for word in ("attempts", "device time", "speed", "memory", "CPU"):
        assert f"\n{word} " not in view
    ran = trial(1, attempt=1, steps_per_second=12.5)
    view = shown(trial_view(record(TrialDetail, pb.GetTrialResponse(trial=ran))))
    assert "\nspeed        12.5 steps/s\n" in view


def test_the_metrics_of_a_trial_have_their_range_and_the_one_that_ranks_its_name() -> None:
    one = trial(1, metric=0.25, last_run_reason="digits/2 went first", attempt=1)
    one.metrics.add(name="val_loss", last=0.5, best=0.25, low=0.25, high=2.0)
    one.metrics.add(name="accuracy", last=0.9)
    view = shown(trial_view(record(TrialDetail, pb.GetTrialResponse(trial=one))))
    assert "\nval_loss     0.25\n" in view
    assert "val_loss 0.5 (0.25 … 2), accuracy 0.9\n" in view
    assert "last run     digits/2 went first" in view


def test_a_study_tells_which_trials_failed() -> None:
    failed = [trial(n, state=types.TRIAL_STATE_FAILED) for n in range(1, 8)]
    failed[0].failures.add(detail=TRACEBACK)
    failed[1].reason = "lost"
    study = detail(*failed, trial(8), finished=True)
    for view in (status_view(study, {}), final_view(study, study.trials, {})):
        lines = shown(view).splitlines()
        assert (
            "digits/1  ZeroDivisionError: division by zero  hermesctl trial show digits/1" in lines
        )
        assert any(line.startswith("digits/2  lost") for line in lines)
        assert "… and 2 trials more" in lines
    assert "failed" not in shown(status_view(detail(trial(1)), {}))


def test_a_study_tells_which_trials_were_not_extended() -> None:
    why = "fit.py: error: unrecognized arguments: --nosuch=10"
    kept = [trial(n, state=types.TRIAL_STATE_COMPLETED, not_extended=why) for n in range(1, 8)]
    study = detail(*kept, finished=True)
    for view in (status_view(study, {}), final_view(study, study.trials, {})):
        lines = shown(view).splitlines()
        assert f"digits/1  {why}  hermesctl trial show digits/1" in [
            re.sub("   +", "  ", line) for line in lines
        ]
        assert any(line.startswith("not extended") for line in lines)
        assert "… and 2 trials more" in lines


def test_a_trial_whose_extension_only_exited_is_told_by_its_last_words() -> None:
    why, last = "the program called sys.exit(2)", "fit.py: error: unrecognized"
    kept = trial(1, state=types.TRIAL_STATE_COMPLETED, not_extended=why, attempt=1)
    kept.failures.add(error_kind="exit", detail=why)
    study = detail(kept, finished=True)
    assert unexplained(study.trials) == list(study.trials)
    drawn = " ".join(shown(final_view(study, study.trials, {"digits/1": last})).split())
    assert f"{why}: {last} " in drawn
    answer = pb.GetTrialResponse(trial=kept, output_tail=f"usage: train.py\n{last}\n")
    assert f"it said      {last}" in shown(trial_view(record(TrialDetail, answer)))
    kept.not_extended = "its program had nothing more to do"
    assert unexplained(detail(kept).trials) == [], "that failure is another, older one"


def test_a_trial_that_only_exited_is_told_by_its_last_words() -> None:
    why = "the program called sys.exit(2)"
    failed = trial(1, state=types.TRIAL_STATE_FAILED, reason=why, attempt=1)
    failed.failures.add(error_kind="exit", detail="the program called sys.exit(2)")
    output = "usage: train.py\r\n\x1b[31mtrain.py: error: unrecognized arguments: --wrong=1\r\n\n"
    answer = pb.GetTrialResponse(trial=failed, output_tail=output)
    words = "it said     train.py: error: unrecognized arguments: --wrong=1\n"
    assert words in shown(trial_view(record(TrialDetail, answer)))
    assert "it said" not in shown(
        trial_view(record(TrialDetail, pb.GetTrialResponse(trial=failed)))
    )
    failed.failures[0].error_kind = "exception"
    answer = pb.GetTrialResponse(trial=failed, output_tail=output)
    assert "it said" not in shown(trial_view(record(TrialDetail, answer)))


def test_records_have_short_reprs() -> None:
    one = trial(1, state=types.TRIAL_STATE_RUNNING, step=5, planned_steps=9, metric=0.25)
    study = detail(one, trial(2), best_trial="digits/1")
    assert repr(study.trials[0]) == "<Trial digits/1: running, step 5/9, metric 0.25>"
    assert repr(study) == ("<StudyDetail of <Study digits: 1 running, 1 waiting; best digits/1>>")
    curve = pb.GetCurveResponse(metric="loss", steps=[1, 2], values=[2.0, 1.0])
    assert repr(record(Curve, curve)) == "<Curve loss: 2 points from step 1 to 2>"
    assert repr(Submission("digits", study.trials, "", ())) == "<Submission digits: 2 trials>"
    node = record(Node, pb.Node(id="box", devices=[pb.DeviceStatus()]))
    assert repr(node) == "<Node box: silent, 1 device>"
    assert repr(record(TrialDetail, pb.GetTrialResponse(trial=one))).startswith("<TrialDetail")
    assert len(repr(record(Event, event(1, pb.PUBLIC_EVENT_KIND_STARTED, trial="a/1")))) < 80


def test_a_paused_trial_is_called_so() -> None:
    trials = detail(trial(1, paused=True)).trials
    assert "paused" in shown(trials_table(trials, "", wide=False))


def test_progress_counts_ended_trials_as_whole() -> None:
    half = trial(1, step=5, planned_steps=10)
    ended = trial(2, state=types.TRIAL_STATE_STOPPED, step=1, planned_steps=10)
    assert detail(half, ended, trial(3)).progress == 0.5
    assert detail(trial(3)).progress is None
    assert "progress     -" in shown(status_view(detail(trial(3)), {}))


def test_progress_is_drawn_and_may_be_learned_from_other_trials() -> None:
    running = types.TRIAL_STATE_RUNNING
    one = trial(1, state=running, step=25, expected_steps=50, remaining_seconds=90.0)
    assert detail(one).progress == 0.5
    assert f"progress     {'━' * 15}{'╌' * 15} 50.0 %" in shown(status_view(detail(one), {}))
    assert f"{'━' * 5}{'╌' * 5} 50.0 %" in progress_line(detail(one)).plain
    assert "25/~50" in shown(trials_table(detail(one).trials, "loss", wide=True))
    for width in (80, 200):
        drawn = shown(live_view(LiveView(detail(one)), width, 24), width)
        assert "25/~50" in drawn
        assert "1 min 30 s" in drawn


def test_a_trial_that_will_end_before_its_plan_shows_when() -> None:
    running = types.TRIAL_STATE_RUNNING
    for expected, words in ((80, "20/~80"), (20_000, "20/20000"), (0, "20/20000")):
        one = trial(1, state=running, step=20, planned_steps=20_000, expected_steps=expected)
        assert words in shown(trials_table(detail(one).trials, "loss", wide=True))


def test_the_status_says_what_is_known() -> None:
    study = detail(
        trial(1, metric=0.25),
        trial(2),
        best_trial="digits/1",
        best_metric=0.25,
        busy_seconds=95.0,
        overhead_seconds=5.0,
        preemptions=4,
        remaining_seconds=100.0,
    )
    view = shown(status_view(study, {}))
    assert "digits/1  val_loss 0.25  lr=0.1" in view
    assert "5.0 % (4 preemptions)" in view
    assert "in about 1 min 40 s" in view
    assert shown(status_view(detail(trial(1)), {})).splitlines()[-1] == "ends         -"


def test_the_end_says_how_little_is_known_of_it() -> None:
    def end(measured: int, **left: float) -> str:
        trials = [trial(n, steps_per_second=float(n <= measured)) for n in range(1, 9)]
        return shown(status_view(detail(*trials, **left), {})).splitlines()[-1].split(maxsplit=1)[1]

    assert end(0) == "-"
    close = {"remaining_least_seconds": 50.0, "remaining_most_seconds": 70.0}
    assert end(1, remaining_seconds=60.0) == "in about 1 min, going by 1 of 8 trials"
    assert end(4, remaining_seconds=60.0, **close) == "in about 1 min"
    far = {"remaining_least_seconds": 50.0, "remaining_most_seconds": 7200.0}
    assert end(3, remaining_seconds=60.0, **far) == "in 50.0 s to 2 h, going by 3 of 8 trials"


def test_the_live_view_fits_its_room_and_puts_those_on_devices_first() -> None:
    trials = [trial(n) for n in range(1, 100)]
    trials[57].state = types.TRIAL_STATE_RUNNING
    live = LiveView(detail(*trials), notice="reconnecting" * 30)
    live.reported("digits/58", 3.0)
    live.reported("digits/58", 1.0)
    lines = shown(live_view(live, 100, 20), width=100).splitlines()
    assert len(lines) <= 20
    assert all(len(one) <= 100 for one in lines)
    first = next(one for one in lines if one.startswith("digits/"))
    assert "digits/58" in first
    assert "█▁" in first
    assert "… and 87 more" in "\n".join(lines).replace(" trials", "")


def searched() -> LiveView:
    """A study of four parameters, as one would search."""
    trials = []
    for number in (1, 2, 16):
        state = types.TRIAL_STATE_RUNNING if number < 16 else types.TRIAL_STATE_WAITING
        one = trial(number, state=state, step=700, planned_steps=1800, signal=0.1, metric=0.54321)
        one.device = "worker1/cpu0" if number < 16 else ""
        one.kept_tier = types.TIER_PARK if number == 16 else types.TIER_UNSPECIFIED
        for name in ("learning_rate", "weight_decay", "batch_size"):
            one.parameters.add(name=name).value.double_value = 0.0001 * number
        one.parameters.add(name="epochs").value.int_value = 12
        trials.append(one)
    live = LiveView(detail(*trials))
    for value in range(16):
        live.reported("digits/1", float(value))
    return live


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_the_live_view_never_shortens_what_a_trial_is_and_how_far_it_is(width: int) -> None:
    lines = shown(live_view(searched(), width, 40), width=width).splitlines()
    assert all(len(one) <= width for one in lines)
    header, first, _, last = lines[2:6]
    for name in ("trial", "state", "step", "val_loss"):
        assert name in header.split()
    names = ["parameters"] if width > 100 else ["lr", "learni", "weight", "batch_"]
    assert header.split()[-len(names) :] == names
    assert first.split()[:2] == ["digits/1", "running"]
    assert last.split()[:3] == ["digits/16", "waiting", "(park)"]
    assert "700/1800" in first
    assert "0.5432" in first
    wide = [name for name in ("device", "signal", "█") if name in f"{header} {first}"]
    assert len(wide) == {80: 0, 100: 1, 140: 3, 200: 3}[width]
    assert "adam" not in first  # the same in all
    assert "epochs" not in first
    assert ("lr=0.1 " if width > 100 else "  0.1     0.0001 0.0001 0.0001") in first
    assert ("batch_size=0.0001" in first) == (width > 140)


@pytest.mark.parametrize(("width", "pressed"), [(80, "?"), (80, "/"), (200, "?")])
def test_top_keeps_its_room_and_the_chosen_trial_in_it(width: int, pressed: str) -> None:
    many = [trial(n, state=types.TRIAL_STATE_WAITING, rank=n) for n in range(1, 100)]
    live = LiveView(detail(*many))
    keyboard = Keyboard(live)
    for key in ("page down",) * 4 + ("j", "up", pressed):
        keyboard.press(key)
    lines = shown(top_view(live, width, 40), width).splitlines()
    assert len(lines) <= 40
    assert all(len(line) <= width for line in lines)
    (row,) = [line for line in lines if line.startswith("digits/41 ")]
    assert "waiting" in row
    assert "… and" in "\n".join(lines)
    chosen = live.look.on(live.detail.trials)
    assert chosen is not None
    assert chosen.id == "digits/41"
    keyboard.press("escape")
    for key in ("/", *"digits/7", "enter"):
        keyboard.press(key)
    found = [one.id for one in live.look.chosen(live.detail.trials)]
    assert found == ["digits/7", *(f"digits/{n}" for n in range(70, 80))]


def test_at_80_columns_the_parameters_of_top_keep_their_values() -> None:
    trials = [
        trial(
            *(n, "a-study-with-quite-a-long-name"),
            **{"state": types.TRIAL_STATE_RUNNING, "step": 70, "planned_steps": 1800},
            **{"metric": 0.54321, "device": "worker1/cpu0", "signal": 0.5},
        )
        for n in (1, 2, 16)
    ]
    for one in trials:
        one.parameters.add(name="learning_rate").value.double_value = 0.0001 * one.number
        one.parameters.add(name="batch_size").value.int_value = 2**one.number
    lines = shown(live_view(LiveView(detail(*trials)), 80, 40), width=80).splitlines()
    assert all(len(one) <= 80 for one in lines)
    last = lines[5].split()
    assert last[:2] == ["/16", "running"]
    assert [word.partition("=")[2] for word in last if "=" in word][-2:] == ["0.0016", "65536"]


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_the_devices_of_top_are_a_line_each(width: int) -> None:
    live = searched()
    boxes = [
        Device(
            id=f"box/cpu{n}",
            node="box",
            cores=(n,),
            busy_seconds=0.0,
            kind="cpu",
            memory_bytes=1 << 34,
            healthy=True,
            trial="digits/1",
            reserved_for="digits/16",
            usage=Usage(0.5, 1 << 30),
            reason="",
        )
        for n in range(3)
    ]
    live.nodes = [Node("box", True, tuple(boxes), (), "0.1.0", 0.0)]
    lines = shown(top_view(live, width, 40), width=width).splitlines()
    assert [line.split()[:1] for line in lines[:5]] == [
        *(["device"], ["box/cpu0"], ["box/cpu1"], ["box/cpu2"], [])
    ]
    # What there is no room for is left out whole; the trial stays to the last.
    assert ("health" in lines[0], "memory" in lines[0]) == (width > 20, width > 40)
    assert "trial" in lines[0]


def test_a_live_view_of_very_little_room_keeps_the_trials() -> None:
    first = shown(live_view(searched(), 60, 40), width=60).splitlines()[3]
    assert first.split() == ["digits/1", "running", "700/1800", "0.1", "0.5432"]


def test_of_a_study_without_a_result_a_trial_that_was_started_is_suggested() -> None:
    study = detail(trial(1), trial(2, attempt=1), finished=True)
    assert "hermesctl trial show digits/2 " in shown(final_view(study, study.trials, {}))
    assert to_look_at([], ()) is None


def test_the_end_names_the_best_parameters_only_if_there_are_any() -> None:
    best: Trial = detail(trial(1, metric=0.25, rank=1)).trials[0]
    study = detail(trial(1), finished=True, preemptions=3)
    view = shown(final_view(study, [best], {}))
    assert "\nbest parameters  lr=0.1 optimizer=adam\npreemptions      3\n" in view
    failed = replace(best, rank=None)
    assert "best parameters" not in shown(final_view(study, [failed], {}))
    assert "checkpoint download" not in shown(final_view(study, [best], {}))
    assert "trial curve" not in shown(final_view(study, [best], {}))
    drawn = shown(final_view(study, [replace(best, signal=0.5)], {}))
    assert "hermesctl trial curve digits/1 " in drawn
    assert "hermesctl study export digits --to digits.jsonl " in drawn
    saved = Checkpoint("c1", 40, "abc", 2048, ("box",))
    view = shown(final_view(study, [replace(best, checkpoint=saved)], {}))
    assert "hermesctl checkpoint download digits/1  " in view
    assert "study extend" not in view


def test_the_end_tells_the_first_value_of_a_sequence_as_that() -> None:
    study = detail(trial(1, metric=0.25, rank=1))
    axes = {"lr": {"sequence": {"values": [0.1, 0.01], "after": [5]}}}
    study = replace(study, study=replace(study.study, spec={"parameters": axes}))
    drawn = shown(final_view(study, study.trials, {}))
    assert "best parameters  lr=0.1 (then by its sequence) optimizer=adam\n" in drawn


def test_the_end_writes_a_value_as_the_leaderboard_does() -> None:
    best: Trial = detail(trial(1, metric=0.25, rank=1)).trials[0]
    drawn = shown(final_view(detail(trial(1)), [replace(best, params={"momentum": 0.0})], {}))
    assert "best parameters  momentum=0\n" in drawn


def test_the_end_offers_to_train_on_where_that_can_work() -> None:
    study = detail(trial(1), finished=True)
    saved = Checkpoint("c1", 40, "abc", 2048, ("box",))
    one: Trial = detail(trial(1, metric=0.25, rank=1, framework="keras 3.15.0")).trials[0]
    keras = replace(one, checkpoint=saved, argv=("train.py",))

    def offered(**changes: Any) -> str:
        drawn = shown(final_view(study, [replace(keras, **changes)], {}))
        return next((line for line in drawn.splitlines() if "study extend" in line), "")

    assert "hermesctl study extend digits --set epochs=24 " in offered(params={"epochs": 12})
    assert "--set epochs=N " in offered(argv=("train.py", "--epochs=3"))
    assert offered() == "", "nothing is known of epochs that it takes"
    assert offered(params={"epochs": 12}, checkpoint=None) == "", "it was only parked"


def test_escape_sequences_cut_by_a_chunk_are_dropped_too() -> None:
    stream = b"a\x1b[3" + b"1mb\x1b]0;ti" + b"tle\x1b\\c\xc3" + b"\xa9\x1b"
    for width in range(1, len(stream) + 1):
        filtered = TerminalFilter()
        chunks = [stream[i : i + width] for i in range(0, len(stream), width)]
        assert "".join(map(filtered.feed, chunks)) == "abcé", width


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_no_output_brings_an_escape_character_through(chunks: list[bytes]) -> None:
    filtered = TerminalFilter()
    out = "".join(filtered.feed(chunk) for chunk in chunks)
    assert text.printable(out, keep="\n\r\t") == out


def test_the_first_of_a_long_ranking_are_shown_and_the_trial_asked_about() -> None:
    ranked = tuple(Ranked(f"s/{n}", f"loss {n}", TrialState.WAITING) for n in range(1, 31))
    explanation = Explanation("s/20", "s/20 is waiting", ranked, "", "best_first")
    few = shown(explanation_view(explanation, wide=False))
    places = [line.split()[1] for line in few.splitlines() if " loss " in line]
    assert places == [*(f"s/{n}" for n in range(1, 11)), "s/20"]
    assert "… and 19 more (-o wide shows all)" in few
    whole = shown(explanation_view(explanation, wide=True))
    assert "s/30" in whole
    assert "more" not in whole


def test_the_devices_of_a_study_are_in_their_order() -> None:
    on = {1: "box/cpu10", 2: "box/cpu9", 3: "box/cpu0"}
    trials = [trial(n, device=d, state=types.TRIAL_STATE_RUNNING) for n, d in on.items()]
    words = "box/cpu0: digits/3, box/cpu9: digits/2, box/cpu10: digits/1"
    assert words in shown(status_view(detail(*trials), {}))


def test_a_value_is_smoothed_where_it_stands() -> None:
    smoothed = types.Metric(name="loss", goal=types.GOAL_MINIMIZE, mode=types.METRIC_MODE_SMOOTHED)
    one = trial(1, state=types.TRIAL_STATE_COMPLETED, metric=0.25, rank=1)
    ranking = pb.Ranking(metric=smoothed, reason="the study names no metric")
    seen = detail(one, ranking=ranking, best_trial=one.id, best_metric=0.25)
    assert (seen.study.metric, seen.study.metric_mode) == ("loss", "smoothed")
    assert "loss (smoothed)" in shown(final_view(seen, list(seen.trials), {}))
    drawn = shown(status_view(seen, {}))
    assert "loss (smoothed) · the study names no metric" in drawn
    assert "loss (smoothed) 0.25" in drawn


def test_a_parameter_that_only_extended_trials_have_is_a_dash_for_the_others() -> None:
    extended, other = trial(1, metric=0.1, rank=1), trial(2, metric=0.2, rank=2)
    epochs = types.NamedValue(name="epochs", value=types.Value(int_value=20))
    extended.parameters.append(epochs)
    trials = [record(Trial, each) for each in (extended, other)]
    for table in (leaderboard(trials, "loss", True), trials_table(trials, "loss", True)):
        drawn = shown(table, 200)
        assert "None" not in drawn
        (row,) = [line for line in drawn.splitlines() if "digits/2" in line]
        assert re.search(r"0\.05\s+-", row), drawn
