"""Which earlier study tells most of one that is to come, and what is said of the two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hermesctl.sdk.from_wire import record
from hermesctl.sdk.likeness import NONE_EARLIER, Wanted, nearest, overlap, program, signal_of
from hermesctl.sdk.records import Study, TrialState
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.study_specs import spec

HERE, SCRIPT, OTHER = "/home/ann/work", "a" * 64, "b" * 64
WANTED = Wanted({"program": "code/train.py", "parameters": {"lr": {}, "batch": {}}}, HERE, SCRIPT)
ACCURACY = types.Signal(name="acc", goal=types.GOAL_MAXIMIZE)


def earlier(
    name: str,
    trained: int = 5,
    at: float = 1.0,
    sha256: str = SCRIPT,
    reported: tuple[str, ...] = ("loss", "acc"),
    **fields: Any,
) -> Study:
    """A study of `code/train.py` in the same folder, unless told otherwise."""
    where = fields.pop("folder", HERE)
    one = pb.Study(
        id=name,
        spec=spec(**{"program": "code/train.py", **fields}),
        submitted_unix_seconds=at,
        submit_directory=where,
        program_sha256=sha256,
        reported=reported,
    )
    return replace(record(Study, one), counts={TrialState.COMPLETED: trained})


def said(*studies: Study, **changes: Any) -> tuple[str, str]:
    """The study that tells most, and the words."""
    found = nearest(studies, replace(WANTED, **changes))
    return found.study.id if found.study else "", found.words


def test_what_is_in_the_script_counts_before_where_it_lies_and_what_it_is_called() -> None:
    stranger = earlier("stranger", 50, 9.0, OTHER, folder="/elsewhere")
    version = earlier("version", 40, 8.0, OTHER)
    copied = earlier("copied", 3, 1.0, folder="/elsewhere", program="fit.py")
    unlike = earlier("unlike", 60, 9.0, OTHER, program="other.py")
    everyone = [unlike, stranger, version, copied]
    assert said(*everyone) == ("copied", "the same script as fit.py, the same parameters")
    assert said(*everyone[:3]) == (
        "version",
        "another version of train.py, the same parameters",
    )
    assert said(*everyone[:2]) == (
        "stranger",
        "a program of the same name in another folder, the same parameters",
    )
    assert said(unlike) == ("unlike", "another program, the same parameters")


def test_what_cannot_be_compared_is_not_called_the_same() -> None:
    here, there = earlier("here", sha256=""), earlier("there", sha256="", folder="/elsewhere")
    assert said(here)[1].startswith("train.py of the same folder, ")
    assert said(there)[1].startswith("a program of the same name in another folder, ")
    assert said(earlier("unread"), program_sha256="")[1].startswith("train.py of the same folder, ")


def test_the_same_script_by_another_command_is_said_to_be_so() -> None:
    plain, quick = earlier("plain", 3), earlier("quick", 9, command=["python", "${program}", "-q"])
    assert said(quick, plain)[0] == "plain"
    assert said(quick) == ("quick", "the same script, the same parameters, another command")


def test_a_study_without_a_program_is_known_by_its_command() -> None:
    command = {"command": ["python", "-m", "fit"], "program": "", "sha256": ""}
    wanted = {"command": ["python", "-m", "fit"], "parameters": {"lr": {}, "batch": {}}}
    here, there = earlier("here", **command), earlier("there", folder="/elsewhere", **command)
    changes = {"spec": wanted, "program_sha256": ""}
    assert said(here, there, **changes)[1] == "the same command, the same parameters"
    assert said(there, **changes)[1] == "the same command in another folder, the same parameters"
    assert program({"command": ["python", "x.py"]}) == "python x.py"


def test_the_parameters_count_before_the_number_of_trials() -> None:
    fewer = earlier("fewer", 9, parameters={"lr": {"value": 1}, "momentum": {"value": 1}})
    assert said(fewer, earlier("same", 4))[0] == "same"
    assert said(fewer) == ("fewer", "the same script, 33 % of the parameters' names")
    assert overlap({"parameters": {"a": 1, "b": 1}}, {"parameters": {"b": 1, "c": 1}}) == 1 / 3
    assert overlap({}, {}) == 1.0


def test_of_two_alike_the_newer_counts_and_hardly_trained_ones_do_not() -> None:
    assert said(earlier("old", at=1.0), earlier("new", at=2.0), earlier("barely", 2, 3.0))[0] == (
        "new"
    )
    assert said(earlier("barely", 2)) == ("", NONE_EARLIER)


def test_a_program_of_the_same_name_needs_as_many_parameters_in_common_as_another() -> None:
    few = {"parameters": {"lr": {"value": 1}, "momentum": {"value": 1}, "depth": {"value": 1}}}
    assert said(earlier("version", sha256=OTHER, **few))[0] == "version"
    assert said(earlier("namesake", sha256=OTHER, folder="/elsewhere", **few))[0] == ""
    none = earlier("none", parameters={"momentum": {"value": 0.9}})
    assert said(none)[0] == ""


def test_a_study_of_another_signal_is_not_gone_by_and_that_is_said() -> None:
    loss = earlier("boom", 10)
    accuracy = earlier("acc", 3, folder="/elsewhere", sha256=OTHER, signal=ACCURACY)
    wanted = {**WANTED.spec, "signal": {"name": "acc", "goal": "maximize"}}
    assert said(loss, accuracy, spec=wanted)[0] == "acc"
    assert said(loss, spec=wanted) == (
        "",
        "no forecast: the signal is acc (maximize), and that of 1 study otherwise alike is another"
        " one (boom: loss)",
    )
    minimized = {**WANTED.spec, "signal": "acc"}
    assert said(accuracy, spec=minimized)[0] == ""
    assert signal_of({}) == signal_of({"signal": "loss"}) == signal_of({"signal": {"name": "loss"}})


def test_a_study_that_never_reported_the_signal_has_no_curve_of_it() -> None:
    silent = earlier("silent", 10, reported=("acc",))
    none = earlier("none", 10, reported=())
    words = "no forecast: no trial of silent, none has reported loss"
    assert said(silent, none) == ("", words)
    assert said(silent, none, earlier("told", 3, reported=("acc", "loss")))[0] == "told"


def test_constants_that_differ_are_said_and_count_before_the_number_of_trials() -> None:
    def steps(value: int, **others: Any) -> dict[str, Any]:
        return {"lr": {"values": [0.1, 0.2]}, "steps": {"values": [value]}, **others}

    wanted = {**WANTED.spec, "parameters": {"lr": {"value": 0.1}, "steps": {"value": 500}}}
    short, long = (
        earlier("short", 9, parameters=steps(300)),
        earlier("long", 3, parameters=steps(500)),
    )
    assert said(short, long, spec=wanted) == ("long", "the same script, the same parameters")
    assert said(short, spec=wanted)[1].endswith(", the same parameters, steps 300 instead of 500")
    many = {name: {"value": 1} for name in "abcde"}
    wanted = {**WANTED.spec, "parameters": steps(500, **{name: {"value": 2} for name in "abcde"})}
    assert said(earlier("other", parameters=steps(300, **many)), spec=wanted)[1].endswith(
        ", steps 300 instead of 500, a 1 instead of 2, b 1 instead of 2, 3 more constants differ"
    )


def test_where_trials_stop_is_said_where_it_differs() -> None:
    stopped = earlier("stopped", 9, stop=types.Stop(target=0.5))
    assert said(stopped, earlier("whole", 3))[0] == "whole"
    assert said(stopped)[1].endswith(", stop.target 0.5")
    wanted = {**WANTED.spec, "stop": {"target": 0.5}}
    assert said(stopped, spec=wanted)[1].endswith("the same parameters")
    assert said(earlier("whole"), spec=wanted)[1].endswith(", no stop.target")
