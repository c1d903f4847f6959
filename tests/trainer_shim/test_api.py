"""The explicit interface without Hermes: the same program, never suspended."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import trainer_shim
from tests.trainer_shim.driving import ROOT
from trainer_shim.api import Trial

PROGRAM = """
import trainer_shim
trial = trainer_shim.attach()
def save(folder):
    raise AssertionError("without Hermes nothing is saved")
for step in range(3):
    trial.report(step + 1, loss=1.0, save=save, accuracy=0.5)
print(trial.params, trial.resume)
"""


@pytest.mark.parametrize(
    ("variables", "printed"),
    [({}, "{} None"), ({"HERMES_PARAMETERS": '{"a": 1}'}, "{'a': 1} None")],
)
def test_a_program_runs_alone(variables: dict[str, str], printed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == printed


def test_what_cannot_be_reported_is_left_out_and_said_once() -> None:
    """As under Hermes, which test_host has."""
    program = """
import trainer_shim
report = trainer_shim.attach().report
for value in (10**400, 10**5000):
    report(1, loss=value)
report(2, accuracy=None, **{chr(0xd800): 1.0})
report(2, accuracy=float("nan"))
report(1, accuracy=0.5)
report("three")
print("over")
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (0, "over\n")
    said = run.stderr.splitlines()
    assert len(said) == 4
    assert said[0].startswith("hermes: trial.report: value of 'loss': 1000")
    assert said[1].startswith(
        "hermes: trial.report: value of 'accuracy': None: expected one number"
    )
    assert "printable characters" in said[2]
    assert "step: 1: expected 2 or more" in said[3]


class Odd:
    """A value of a program's own: whatever is asked of it raises, or answers nonsense."""

    def __init__(self, answers: dict[str, object]) -> None:
        self._answers = answers

    def __getattribute__(self, name: str) -> object:
        answers = object.__getattribute__(self, "_answers")
        if name in answers:
            answer = answers[name]
            if isinstance(answer, type) and issubclass(answer, Exception):
                raise answer(name)
            return answer
        raise AttributeError(name)

    def __float__(self) -> float:
        raise RuntimeError("not now")

    def __index__(self) -> int:
        raise RuntimeError("not now")


ASKED = ["detach", "numel", "size", "dtype", "is_complex", "shape", "__class__"]
ANSWERS = st.one_of(
    st.just(RuntimeError), st.none(), st.integers(), st.just(lambda *_: 1), st.just(1), st.text()
)
VALUES = st.one_of(
    st.builds(Odd, st.dictionaries(st.sampled_from(ASKED), ANSWERS)),
    st.none(),
    st.text(),
    st.complex_numbers(),
    st.floats(),
    st.integers(),
    st.lists(st.integers()),
    st.just(np.array(["x"])),
    st.just(np.array([1j])),
    st.just(np.array([object()])),
    st.just(np.datetime64("2020-01-01")),
)
REPORTS = st.lists(
    st.tuples(
        st.one_of(VALUES, st.integers(-2, 9)),
        VALUES,
        st.one_of(st.none(), VALUES, st.just(print)),
        st.dictionaries(st.text(st.characters(), max_size=4), VALUES, max_size=3),
    ),
    max_size=6,
)


@given(REPORTS)
@example([(1, Odd({"size": 1, "detach": RuntimeError}), None, {})])
def test_nothing_that_report_is_told_ends_a_program(
    reports: list[tuple[Any, Any, Any, dict[str, Any]]],
) -> None:
    trial = Trial(None, {})
    with contextlib.redirect_stderr(io.StringIO()):
        for step, loss, save, metrics in reports:
            for name in ("step", "loss", "save", "self"):
                metrics.pop(name, None)
            trial.report(step, loss, save, **metrics)


@pytest.mark.parametrize(
    "value", [np.array(["x"]), np.array([1j]), np.complex128(1), np.array("x"), Odd({})]
)
def test_a_value_that_is_no_number_is_said_by_its_name(
    value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial(None, {})
    trial.report(1, accuracy=value)
    trial.report(2, accuracy=value)
    assert capsys.readouterr().err.count("value of 'accuracy'") == 1


class Sized:
    """A library's own number, with a size as arrays have, and no kind of numbers."""

    size = 1

    def __float__(self) -> float:
        return 2.0


@pytest.mark.parametrize(
    "value", [np.float16(2), np.array([2]), np.array([[2.0]]), np.array(["2"]), True, "2", Sized()]
)
def test_what_float_takes_is_reported(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    Trial(None, {}).report(1, accuracy=value)
    assert not capsys.readouterr().err


def test_a_number_with_a_size_that_cannot_be_converted_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Hollow(Sized):
        def __float__(self) -> float:
            raise TypeError("no number")

    Trial(None, {}).report(1, accuracy=Hollow())
    assert "value of 'accuracy'" in capsys.readouterr().err


class Name(str):
    """A name that raises whatever is asked of it."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        raise RuntimeError("not now")

    __len__ = isprintable = encode  # type: ignore[assignment]


@pytest.mark.parametrize(
    "name",
    ["", "a\nb", "x" * 201, "\ud800", Name("\x1b[2J")],
    ids=["none", "line", "long", "surrogate", "escape"],
)
def test_a_name_that_no_table_can_show_is_left_out(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Trial(None, {}).report(1, **{name: 1.0, "accuracy": 1.0})
    said = capsys.readouterr().err
    assert said.count("left out") == 1
    assert "expected 1 to 200 printable characters" in said


def test_a_name_of_a_programs_own_kind_is_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    Trial(None, {}).report(1, **{Name("accuracy"): 1.0})
    assert not capsys.readouterr().err


def test_the_package_offers_five_names() -> None:
    assert sorted(trainer_shim.__all__) == ["Resume", "Trial", "attach", "log", "on_change"]
