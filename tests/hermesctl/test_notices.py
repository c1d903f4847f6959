"""What the author of a study should know is said wherever the study is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hermesctl.cli import app
from hermesctl.render import live
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import FakeHead, event, trial
from tests.study_specs import plugin

SILENT = "signal losss was never reported; reported: acc, loss (did you mean loss?)"
FINISHED = event(9, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)


def hermesctl(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def flat(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.fixture
def digits(head: FakeHead) -> FakeHead:
    """A head with a study whose signal nobody reports, and which goes on."""
    running = trial(1, state=types.TRIAL_STATE_RUNNING)
    head.add_study("digits", running, notices=[SILENT], reported=["acc", "loss"])
    return head


@pytest.mark.parametrize(
    "words", [["status", "digits"], ["study", "show", "digits"], ["why", "digits/1"], ["tail"]]
)
def test_it_is_said_once(digits: FakeHead, words: list[str]) -> None:
    assert flat(hermesctl(*words)).count(f"note: {SILENT}") == 1
    digits.studies["digits"].finished = True
    assert flat(hermesctl(*words)).count(f"note: {SILENT}") == 1, "it is as true afterward"


@pytest.mark.parametrize("words", [["status", "digits"], ["best", "digits"]])
def test_what_policies_read_is_said_if_it_is_not_what_ranks_them(
    digits: FakeHead, words: list[str]
) -> None:
    study, ranking = digits.studies["digits"], types.Metric(name="acc", goal=types.GOAL_MAXIMIZE)
    study.ranking.metric.CopyFrom(ranking)
    study.signal = "loss"
    read = "policies read loss (the training loss)"
    how = "; hermesctl study signal digits acc --goal maximize has them read acc"
    assert read + how in flat(hermesctl(*words))
    study.spec.stop.target = 0.1
    said = flat(hermesctl(*words))
    assert read in said
    assert how not in said, "the target is a value of the loss"
    study.signal = "acc"
    assert "policies read" not in flat(hermesctl(*words))
    study.signal, study.finished = "loss", True
    assert "policies read" not in flat(hermesctl(*words)), "they decide nothing any more"


def test_a_leaderboard_without_a_rank_has_it(digits: FakeHead) -> None:
    assert flat(hermesctl("best", "digits")).count(f"note: {SILENT}") == 1
    digits.studies["digits"].best_trial = "digits/1"
    assert "note:" not in flat(hermesctl("best", "digits"))


def test_a_leaderboard_by_another_metric_that_ranks_is_without_it(digits: FakeHead) -> None:
    digits.trials["digits"][0].rank = 1
    assert "note:" not in flat(hermesctl("best", "digits", "--metric", "acc"))


def test_programs_get_it_as_well(digits: FakeHead) -> None:
    found = json.loads(hermesctl("status", "digits", "-o", "json").stdout)
    assert (found["notices"], found["reported"]) == ([SILENT], ["acc", "loss"])
    assert json.loads(hermesctl("why", "digits/1", "-o", "json").stdout)["notices"] == [SILENT]


def test_who_follows_is_told_at_once_and_whatever_is_new(
    digits: FakeHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEED_SECONDS", 0.0)
    digits.asked_before, digits.at_last = 5, [FINISHED]
    assert hermesctl("tail", "-f", "digits").stderr.count(SILENT) == 1


def test_who_submitted_and_follows_is_told(
    head: FakeHead, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEED_SECONDS", 0.0)
    head.submitted = {"notices": [SILENT]}
    head.asked_before, head.at_last = 5, [FINISHED]
    said = hermesctl("submit", str(project / "study.yaml"), "--follow")
    assert said.stderr.count(SILENT) == 1
    assert " ".join(said.stdout.split()).count(SILENT) == 1, "how it ended has it as well"


def test_doctor_tells_it_of_studies_that_go_on_and_of_the_newest(digits: FakeHead) -> None:
    assert SILENT in flat(hermesctl("doctor", "--python", "false"))
    digits.studies["digits"].finished = True
    assert SILENT in flat(hermesctl("doctor", "--python", "false"))
    digits.add_study("newer", trial(1, "newer"))
    assert SILENT not in flat(hermesctl("doctor", "--python", "false"))


def test_what_decides_is_told_beside_the_policy_that_failed(head: FakeHead) -> None:
    policy = plugin("best_first", target=-0.8)
    head.add_study("digits", trial(1), policy=policy, placement=plugin("free"))
    assert "policy best_first:target=-0.8 " in flat(hermesctl("status", "digits"))
    listed = hermesctl("study", "ls").stdout.splitlines()[1]
    assert listed.endswith(" best_first:target=-0.8")
    head.studies["digits"].deciding.name = "fifo"
    for words in (["status", "digits"], ["study", "show", "digits"]):
        assert "policy fifo (best_first:target=-0.8 failed) " in flat(hermesctl(*words))
    listed = hermesctl("study", "ls").stdout.splitlines()[1]
    assert listed.endswith(" fifo (best_first:target=-0.8 failed)")
    found = json.loads(hermesctl("status", "digits", "-o", "json").stdout)
    assert (found["policy"], found["deciding"]) == ("best_first", "fifo")
    assert found["policy_label"] == "best_first:target=-0.8"


def test_doctor_mends_a_policy_that_failed_by_checking_it(digits: FakeHead) -> None:
    digits.studies["digits"].policy.name = "lucky"
    check = "hermesd policy check lucky"
    digits.studies["digits"].notices[:] = [SILENT, f"policy lucky failed: Oops: 1; try `{check}`"]
    told = json.loads(hermesctl("doctor", "--python", "false", "-o", "json").stdout)
    mended = [each["remedy"] for each in told["checks"] if each["name"] == "study digits"]
    assert mended == ["hermesctl why digits/1", check]
