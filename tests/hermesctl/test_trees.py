"""What flags make of a study's tree."""

from __future__ import annotations

import pytest

from hermesctl.errors import Place, StudyFileError, UsageError
from hermesctl.study_file.load import Table, parse
from hermesctl.study_file.schema import build_spec
from hermesctl.study_file.trees import with_flags
from hermesd.pb.hermes.v1 import types_pb2 as pb
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
