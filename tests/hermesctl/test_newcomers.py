"""What is said to somebody who does not know Hermes yet: what is left out, and what to do next."""

from __future__ import annotations

import csv
import inspect
import io
import json
from pathlib import Path

import pytest

from hermesctl.errors import ExitCode
from hermesctl.render import live
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.client import Client
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import FakeHead, event, trial
from tests.hermesctl.test_cli import COMPLETED, FAILED, RUNNING, finish, hermesctl

CANCELLED, STOPPED = types.TRIAL_STATE_CANCELLED, types.TRIAL_STATE_STOPPED
SIXTEEN = "… 6 more: hermesctl best digits -n 16"


def sixteen(head: FakeHead) -> None:
    finish(head, *(trial(n, state=COMPLETED, metric=n / 16, rank=n) for n in range(1, 17)))
    head.identical_to = "digits"


def test_a_leaderboard_says_what_it_leaves_out_and_programs_get_all(head: FakeHead) -> None:
    sixteen(head)
    assert SIXTEEN in hermesctl("best", "digits").stdout.splitlines()
    for words in (["best", "digits", "-n", "16"], ["best", "digits", "-o", "wide"]):
        told = hermesctl(*words).stdout
        assert "digits/16" in told
        assert "more" not in told
    assert "… 15 more" in hermesctl("best", "digits", "-n", "1", "-o", "wide").stdout
    assert len(json.loads(hermesctl("best", "digits", "-o", "json").stdout)["trials"]) == 16
    rows = list(csv.DictReader(io.StringIO(hermesctl("best", "digits", "-o", "csv").stdout)))
    assert len(rows) == 16


def test_the_end_of_a_study_says_what_it_leaves_out(head: FakeHead, project: Path) -> None:
    sixteen(head)
    file = str(project / "study.yaml")
    assert SIXTEEN in hermesctl("submit", file, "--wait").stdout
    document = json.loads(hermesctl("submit", file, "--wait", "-o", "json").stdout)
    assert len(document["best"]) == 16


def ending(head: FakeHead, project: Path) -> str:
    head.identical_to = "digits"
    return hermesctl("submit", str(project / "study.yaml"), "--wait").stdout


def test_an_end_without_a_metric_says_what_to_do(head: FakeHead, project: Path) -> None:
    finish(head, trial(1, state=COMPLETED), trial(2, state=FAILED))
    told = ending(head, project)
    assert "no metric was seen" in told
    assert "trainer_shim.log(loss=...)" in told
    assert "study replay" not in told, "there is nothing to replay"
    accuracy = pb.MetricValue(name="accuracy", last=0.5)
    finish(head, trial(1, state=COMPLETED, metrics=[accuracy], signal=0.5))
    told = ending(head, project)
    assert "no metric was seen" not in told, "another was, of which the head has a notice"
    assert "study replay digits" in told
    for one in (trial(1, state=COMPLETED, metric=0.5), trial(1, state=FAILED)):
        finish(head, one)
        assert "no metric was seen" not in ending(head, project)


def test_an_ended_trial_is_not_said_to_get_anything_yet(head: FakeHead) -> None:
    head.curve = {}
    head.add_study("digits", trial(1, state=COMPLETED), trial(2, state=RUNNING))
    assert "no points: it ended and none was seen" in hermesctl("trial", "curve", "digits/1").stdout
    assert "no points yet" in hermesctl("trial", "curve", "digits/2").stdout
    assert "none yet" not in hermesctl("trial", "show", "digits/1").stdout
    assert "none yet" in hermesctl("trial", "show", "digits/2").stdout


def test_the_signal_of_a_trial_is_explained(head: FakeHead) -> None:
    head.add_study("digits", trial(1, state=RUNNING, signal=0.00856), trial(2))
    told = " ".join(hermesctl("trial", "show", "digits/1").stdout.split())
    what = "signal 0.00856, what policies read: {}, the mean of the last tenth so far"
    assert what.format("loss without penalties") in told
    assert "signal" not in hermesctl("trial", "show", "digits/2").stdout
    head.signal = "accuracy"
    told = " ".join(hermesctl("trial", "show", "digits/1").stdout.split())
    assert what.format("accuracy") in told


def test_a_study_that_was_over_is_not_offered_to_be_ended(head: FakeHead, project: Path) -> None:
    sixteen(head)
    file = str(project / "study.yaml")
    told = hermesctl("submit", file).stdout
    assert "study stop" not in told
    assert "tail -f" not in told
    assert "study export digits --to digits.jsonl" in told
    head.studies["digits"].finished = False
    assert "study stop digits" in hermesctl("submit", file).stdout


def test_going_back_to_a_study_says_first_how_far_it_is(
    head: FakeHead, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEED_SECONDS", 0.0)
    head.add_study("digits", trial(1, state=RUNNING, step=20, planned_steps=40))
    head.identical_to = "digits"
    head.asked_before = 4
    head.at_last = [event(5, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)]
    lines = hermesctl("submit", str(project / "study.yaml"), "--follow").stdout.splitlines()
    assert "━━━━━╌╌╌╌╌ 50.0 % · 1: 1 running" in lines[2]


def test_the_blocking_client_has_every_method_and_its_help() -> None:
    for name, method in inspect.getmembers(AsyncClient, inspect.isfunction):
        if not name.startswith("_") and name != "close":
            assert inspect.getdoc(method)
            assert inspect.getdoc(getattr(Client, name)) == inspect.getdoc(method)


def test_a_state_is_called_the_same_for_a_study_and_its_trials(head: FakeHead) -> None:
    one = trial(1, paused=True, kept_tier=types.TIER_PARK)
    head.add_study("digits", one, trial(2, state=COMPLETED), paused=True)
    assert "2: 1 paused, 1 completed" in hermesctl("status", "digits").stdout
    assert "paused (park)" in hermesctl("trial", "ls", "digits").stdout


def test_a_clone_says_what_was_begun_where_submit_does(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    told = hermesctl("study", "clone", "digits")
    assert told.stdout.startswith("digits: 2 trials\n")
    assert json.loads(hermesctl("study", "clone", "digits", "-o", "json").stdout)["trials"]


def test_waiting_tells_that_a_person_has_stopped_it(head: FakeHead) -> None:
    for state, code in ((CANCELLED, ExitCode.TRIALS_FAILED), (STOPPED, ExitCode.OK)):
        finish(head, trial(1, state=COMPLETED), trial(2, state=state))
        assert hermesctl("status", "--wait").exit_code == code
