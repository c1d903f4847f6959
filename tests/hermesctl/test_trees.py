"""What flags make of a study's tree."""

from __future__ import annotations

import pytest

from hermesctl.errors import Place, StudyFileError, UsageError
from hermesctl.study_file.load import Table, parse
from hermesctl.study_file.schema import build_spec
from hermesctl.study_file.trees import (
    named_values,
    parse_assignments,
    spanning_decades,
    tree_of,
    with_flags,
)
from hermesctl.study_file.write import study_data
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.study import Submission, draft
from hermesd.study.spec import parameters_of
from tests.study_specs import plugin


def changed(text: str, *settings: str) -> pb.StudySpec:
    """The study file `text`, with `--set` for each of the settings."""
    root = parse(text.encode(), "study.yaml").root
    assert isinstance(root, Table)
    spec, problems, _ = build_spec(with_flags(root, settings=settings))
    if problems:
        raise StudyFileError(problems)
    return spec


@pytest.mark.parametrize("metric", ["acc", "{name: acc}"])
def test_a_setting_beside_a_metrics_bare_name_leaves_the_name(metric: str) -> None:
    spec = changed(f"metric: {metric}", "metric.goal=maximize")
    assert spec.metric == pb.Metric(name="acc", goal=pb.GOAL_MAXIMIZE)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("schedule: {policy: hermes}", ["schedule.policy.quantum_seconds=3"]),
        ("name: a", ["schedule.policy=hermes", "schedule.policy.quantum_seconds=3"]),
        ("schedule:", ["schedule.policy=hermes", "schedule.policy.quantum_seconds=3"]),
    ],
)
def test_a_setting_of_a_policy_that_was_named_alone_is_that_policys(
    text: str, settings: list[str]
) -> None:
    spec = changed(text, *settings)
    assert spec.schedule.policy == plugin("hermes", quantum_seconds=3)


@pytest.mark.parametrize("text", ["{}", "parameters: {lr: {values: [1, 2]}, epochs: {value: 3}}"])
@pytest.mark.parametrize("name", ["lr", "epochs", "opt.beta"])
def test_a_parameter_may_be_set_by_its_name_alone(text: str, name: str) -> None:
    found = {each.name: each for each in changed(text, f"{name}=5").parameters}
    assert study_data(pb.StudySpec(parameters=[found[name]]))["parameters"] == {name: {"value": 5}}


def test_a_key_of_a_study_file_is_no_parameter_nor_is_a_misspelled_one() -> None:
    assert changed("{}", "seed=5").seed == 5
    for wrong in ("shedule.policy=fifo", "polcy=fifo", "max_stepps=5"):
        with pytest.raises(StudyFileError, match="unknown key"):
            changed("{}", wrong)
    with pytest.raises(StudyFileError, match=r"mean metric\.mode\?.* parameters\.model\.value"):
        changed("{}", "model=a")
    named = changed("parameters: {polcy: {values: [1, 2]}}", "polcy=1")
    assert [each.name for each in named.parameters] == ["polcy"], "the study has it"


def test_values_are_set_as_in_a_study_file_too() -> None:
    (entry,) = named_values("--set", ["parameters.opt.beta.value=0.5"]).entries
    assert entry.key == "opt.beta"
    given = parse_assignments(["parameters.epochs.value=20", "parameters.lr.max=0.1"])
    assert given.values is not None
    assert [each.key for each in given.values.entries] == ["epochs"]
    assert given.axes is not None
    for flag in ("parameters.lr=1", "parameters.lr.max=1"):
        with pytest.raises(UsageError, match="expected a parameter by its name: --new NAME=VALUE"):
            named_values("--new", [flag])


NESTED = "parameters: {opt: {parameters: {beta: {value: 1}, a.b: {value: 1}}}}"


@pytest.mark.parametrize(
    ("text", "name"),
    [("{}", "opt.beta"), (NESTED, "opt.beta"), (NESTED, "opt.a.b"), (NESTED, "opt.other")],
)
def test_a_flag_names_a_nested_parameter_by_its_dotted_name(text: str, name: str) -> None:
    """Whether the file has it by that name, below another, or not at all."""
    by_set = parameters_of(changed(text, f"parameters.{name}.values=[2, 3]"))
    root = parse(text.encode(), "study.yaml").root
    assert isinstance(root, Table)
    spec, problems, _ = build_spec(with_flags(root, grid=[f"{name}=2,3"]))
    assert not problems
    for found in (by_set, parameters_of(spec)):
        assert found[name]["values"] == [2, 3]


def test_a_setting_of_a_parameter_that_is_none_is_told_with_what_was_meant() -> None:
    with pytest.raises(StudyFileError, match=r"parameters.lr.vaule: unknown key: .*mean value\?"):
        changed("{}", "parameters.lr.vaule=3")


def test_a_policys_list_of_one_item_needs_no_quotes_in_a_flag() -> None:
    line = "hermes:quantum_seconds=2,milestones=50:"
    assert changed("program: a.py", f"schedule.policy={line}").schedule.policy.name == line


def test_a_setting_below_what_has_no_name_is_refused_instead_of_replacing_it() -> None:
    with pytest.raises(StudyFileError, match=r"study\.yaml:1:1: stop\.name: unknown key"):
        changed("stop: 3", "stop.max_steps=5")


@pytest.mark.parametrize("flag", ["grid", "settings"])
def test_a_flag_that_is_none_reaches_no_terminal_raw(flag: str) -> None:
    with pytest.raises(UsageError, match=r"\\x1b\[31mx: expected") as caught:
        with_flags(Table((), Place("")), **{flag: ["\x1b[31mx"]})  # type: ignore[arg-type]
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("flag", "axis"),
    [
        ("lr=1e-5..1e-1:log", {"distribution": "log_uniform_values", "min": 1e-5, "max": 0.1}),
        ("drop=0.1..0.5", {"distribution": "uniform", "min": 0.1, "max": 0.5}),
        ("drop=0..0.5", {"distribution": "uniform", "min": 0, "max": 0.5}),
        ("shift=-3..3", {"distribution": "int_uniform", "min": -3, "max": 3}),
        ("units=16..512:log", {"distribution": "q_log_uniform_values", "min": 16, "max": 512}),
        ("units=16..512:16", {"distribution": "q_uniform", "min": 16, "max": 512, "q": 16}),
        ("opt.lr=0.5..1.0:0.25", {"distribution": "q_uniform", "min": 0.5, "max": 1.0, "q": 0.25}),
    ],
)
def test_an_axis_is_drawn_between_two_bounds(flag: str, axis: dict[str, object]) -> None:
    table = with_flags(tree_of({"program": "train.py"}, "here"), random=[flag], trials=7)
    spec, problems, _ = build_spec(table)
    assert not problems
    name = flag.partition("=")[0]
    assert study_data(spec) == {
        "program": "train.py",
        "method": "random",
        "parameters": {name: axis},
        "run_cap": 7,
    }
    drawn = draft(Submission(spec))
    values = [dict(stage.values)[name] for (stage,) in drawn.stages]
    assert all(axis["min"] <= value <= axis["max"] for value in values)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["lr=1e-5"], "--random lr=1e-5: expected NAME=LOW..HIGH, for example lr=1e-5..1e-1:log"),
        (["lr"], "--random lr: expected NAME=LOW..HIGH"),
        (["lr=0.1:0.2"], "or drop=0.1..0.5; did you mean lr=0.1..0.2?"),
        (["lr=1e-5,0.1:log"], "or drop=0.1..0.5; did you mean lr=1e-5..0.1:log?"),
        (["lr=1e-5,0.1,log"], "or drop=0.1..0.5; did you mean lr=1e-5..0.1:log?"),
        (["lr=a..b"], "expected NAME=LOW..HIGH"),
        (["lr=1..true"], "expected NAME=LOW..HIGH"),
        (["lr=1..inf"], "expected NAME=LOW..HIGH"),
        (["lr=1..2:lgo"], "expected `log` after the colon, or a step such as 0.1"),
        (["lr=1..2", "lr=1..3"], "--random lr=1..3: expected each name once"),
    ],
)
def test_a_range_that_is_none_is_refused(flags: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        with_flags(tree_of({}, "here"), random=flags)
    assert words in str(caught.value)


@pytest.mark.parametrize("flags", [{"random": ["lr=1,2,3"]}, {"grid": ["lr=1..2,3"]}], ids=str)
def test_nothing_is_suggested_that_leaves_out_some_of_the_values(
    flags: dict[str, list[str]],
) -> None:
    with pytest.raises(UsageError) as refused:
        with_flags(tree_of({}, "study"), **flags)
    assert "expected" in str(refused.value)
    assert "did you mean" not in str(refused.value)


def test_bounds_among_the_values_of_a_grid_are_refused_with_what_may_be_meant() -> None:
    with pytest.raises(UsageError) as refused:
        with_flags(tree_of({}, "study"), grid=["lr=0.1..0.2"])
    assert str(refused.value).endswith("did you mean lr=0.1,0.2, or --random lr=0.1..0.2?")
    with_flags(tree_of({}, "study"), grid=["data=../train,a..b", "version=1.2"])


@pytest.mark.parametrize(
    ("flag", "is_told"),
    [
        ("lr=1e-4..0.1", True),
        ("units=1..100", True),
        ("lr=1e-4..0.1:log", False),
        ("lr=0.01..0.1", False),
        ("shift=0..100", False),
        ("shift=-1..100", False),
    ],
)
def test_even_draws_over_decades_are_told(flag: str, is_told: bool) -> None:
    notes = spanning_decades([flag])
    assert [each.endswith(f"{flag}:log draws as often from each decade") for each in notes] == (
        [True] if is_told else []
    )
