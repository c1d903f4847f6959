"""Which pattern is advised for which printed lines, and that it reads them."""

from __future__ import annotations

import re
import shlex

import pytest

from hermesctl.render.live import pattern_note
from tests.hermesctl.fake_head import FakeHead, trial
from tests.hermesctl.test_cli import hermesctl
from trainer_shim.metrics.lines import LineReader


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("epoch {n}: the loss is now {v}", "loss", 0.25),
        ("{n} Val_Accuracy -> {v} %", "val_accuracy", 0.25),
        ("[{n}] reward of -{v} so far", "reward", -0.25),
        ("it {n} has mse {v}e-05  lr 0.1", "mse", 0.25e-05),
    ],
)
def test_the_pattern_that_is_advised_reads_the_line(line: str, name: str, value: float) -> None:
    printed = "".join(f"{line.format(n=n, v='0.25')}\n" for n in range(1, 4))
    assert not any(name in found for found, _ in LineReader().read(printed)), "without one"
    note = pattern_note("s/1", printed)
    advised = shlex.split(note.partition("--set ")[2])[0]
    metric, _, pattern = advised.removeprefix("metrics.").partition("=")
    reader = LineReader({metric: pattern})
    assert [found for found, _ in reader.read(printed)] == [{name: value}] * 3
    assert re.compile(pattern).groups == 1


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {n}/10 - loss: {v} - acc: 0.9",
        "loss={v}",
        '{{"step": {n}, "loss": {v}}}',
        "step {n} took {v} s",
        "using a dropout of {v}",
    ],
)
def test_lines_that_are_read_anyway_or_name_no_metric_are_no_news(line: str) -> None:
    printed = "".join(f"{line.format(n=n, v='0.25')}\n" for n in range(1, 4))
    assert pattern_note("s/1", printed) == ""


def test_a_remark_is_no_metric() -> None:
    assert pattern_note("s/1", "stop at a loss of 0.01\n") == ""


def test_who_follows_a_study_is_told_of_lines_that_are_not_read(head: FakeHead) -> None:
    head.add_study("digits", trial(1), finished=True)
    head.output = b"".join(b"round %d: loss is 0.%d\n" % (n, n) for n in range(1, 4))
    for command in (["tail", "-f"], ["status"]):
        assert "`round …: loss is …`, which is not read" in hermesctl(*command).stderr
    head.studies["digits"].reported.append("acc")
    assert "not read" not in hermesctl("tail", "-f").stderr
