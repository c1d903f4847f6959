"""A policy of a package that breaks its promises is named when a study is to be scheduled by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hermesctl.cli import app
from hermesctl.sdk import forecast
from tests.hermesctl.fake_head import FakeHead, trial
from tests.installed_policies import lucky_policies


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with lucky_policies(folder):
        yield


def hermesctl(*words: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


def scheduled_by(policy: str) -> list[str]:
    return ["--set", f"schedule.policy={policy}"]


@pytest.mark.parametrize("verb", [["submit"], ["preview"]])
def test_a_policy_that_fails_its_check_is_named(
    head: FakeHead, project: Path, verb: list[str]
) -> None:
    said = hermesctl(*verb, project / "study.yaml", *scheduled_by("unlucky"))
    assert said.exit_code == 0
    words = " ".join(said.stderr.split())
    assert "note: policy unlucky fails its check: score of trial" in words
    assert "ZeroDivisionError" in words
    assert "`hermesd policy check unlucky` shows everything" in words


def test_programs_are_told_as_well(head: FakeHead, project: Path) -> None:
    said = hermesctl("submit", project / "study.yaml", *scheduled_by("idle"), "-o", "json")
    note = json.loads(said.stdout)["notes"][-1]
    assert note.startswith("policy idle fails its check: plan: it is empty")


@pytest.mark.parametrize("policy", ["lucky", "best_first", "somewhere_else"])
def test_nothing_is_said_of_others(head: FakeHead, project: Path, policy: str) -> None:
    said = hermesctl("submit", project / "study.yaml", *scheduled_by(policy))
    assert "fails its check" not in said.stderr


def test_a_study_that_runs_already_is_not_judged_again(head: FakeHead, project: Path) -> None:
    head.add_study("digits", trial(1))
    head.identical_to = "digits"
    said = hermesctl("submit", project / "study.yaml", *scheduled_by("unlucky"))
    assert "fails its check" not in said.stderr


def test_a_policy_that_never_answers_is_not_waited_for(
    head: FakeHead, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "COMMAND", ("sh", "-c", "exec sleep 600"))
    monkeypatch.setattr(forecast, "PATIENCE_SECONDS", 0.1)
    said = hermesctl("submit", project / "study.yaml", *scheduled_by("lucky"))
    assert "fails its check: no answer within 0 s" in " ".join(said.stderr.split())
