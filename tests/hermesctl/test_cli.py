"""The command line against a real gRPC server: output, exit codes, what is asked and said."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from typer.testing import CliRunner, Result

from hermesctl.cli import app
from hermesctl.errors import ExitCode, StudyFileError, UsageError
from hermesctl.render import live
from hermesctl.render.documents import best_columns
from hermesctl.render.output import csv_text, json_line, json_text
from hermesctl.sdk.client import Client
from hermesctl.sdk.from_wire import record
from hermesctl.sdk.records import Leaderboard, Trial
from hermesctl.study_file import submission
from hermesctl.yaml_text import Data, to_yaml
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.study import Submission, draft
from tests.hermesctl.fake_head import FakeHead, event, trial

BOTH = {"study": "digits", "trials": ["digits/1", "digits/2"]}
COMPLETED, FAILED = types.TRIAL_STATE_COMPLETED, types.TRIAL_STATE_FAILED
RUNNING = types.TRIAL_STATE_RUNNING


def hermesctl(*args: str, input: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(args), input=input, catch_exceptions=False)
    assert "Traceback" not in result.output
    return result


def finish(head: FakeHead, *trials: pb.Trial) -> None:
    head.add_study("digits", *trials, finished=True, preemptions=7, busy_seconds=99.0)
    head.studies["digits"].overhead_seconds = 1.0
    head.studies["digits"].best_trial = "digits/1"
    head.studies["digits"].best_metric = 0.25


# Submit.


def test_submit_says_what_was_begun_and_where_to_look(head: FakeHead, project: Path) -> None:
    result = hermesctl("submit", str(project / "study.yaml"))
    assert result.exit_code == 0
    assert "digits: 2 trials" in result.stdout
    assert "hermesctl tail -f digits" in result.stdout
    assert "note: a note" in result.stderr


def test_a_grid_from_the_command_line_and_the_file_it_stands_for(
    head: FakeHead, project: Path
) -> None:
    saved = project / "saved.yaml"
    flags = ["--grid", "lr=1e-3,5e-4", "--grid", "optimizer=sgd,adam", "--save", str(saved)]
    result = hermesctl(
        "submit", str(project / "train.py"), *flags, "--metric", "acc:maximize", "--name", "mine"
    )
    assert result.exit_code == 0
    (request,) = head.of(pb.SubmitStudyRequest)
    assert yaml.safe_load(saved.read_text()) == {
        "name": "mine",
        "program": "train.py",
        "method": "grid",
        "metric": {"name": "acc", "goal": "maximize"},
        "parameters": {
            "lr": {"values": [0.001, 0.0005]},
            "optimizer": {"values": ["sgd", "adam"]},
        },
    }
    again = hermesctl("submit", str(saved))
    assert again.exit_code == 0
    assert head.of(pb.SubmitStudyRequest)[1].spec == request.spec


def test_a_saved_file_is_not_overwritten_unasked(head: FakeHead, project: Path) -> None:
    (project / "mine.yaml").write_text("precious")
    save = ["submit", str(project / "train.py"), "--dry-run", "--save", str(project / "mine.yaml")]
    refused = hermesctl(*save)
    assert refused.exit_code == ExitCode.USAGE
    assert "add --yes" in refused.stderr
    assert (project / "mine.yaml").read_text() == "precious"
    assert hermesctl(*save, "--yes").exit_code == 0


def test_set_reaches_any_key(head: FakeHead, project: Path) -> None:
    flags = ["--set", "schedule.policy.name=hermes", "--set", "schedule.policy.quantum_seconds=90s"]
    flags += ["--set", "parameters.lr.values=[1, 2]", "--set", "run_cap=3"]
    assert hermesctl("submit", str(project / "study.yaml"), *flags).exit_code == 0
    spec = head.of(pb.SubmitStudyRequest)[0].spec
    assert spec.schedule.policy.name == "hermes"
    assert spec.schedule.policy.settings[0].value.double_value == 90
    assert [v.int_value for v in spec.parameters[0].values] == [1, 2]
    assert spec.run_cap == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--set", "run_cap=ten"], "--set run_cap=ten: run_cap: ten: expected a whole number"),
        (["--set", "run_cap"], "--set run_cap: expected key=value"),
        (["--set", "a..b=1"], "--set a..b=1: expected key=value"),
        (["--set", "schedule.polcy=fifo"], "did you mean policy?"),
        (["--grid", "lr"], "--grid lr: expected name=value,value"),
        (["--grid", "lr=[1"], "--grid lr=[1: expected valid YAML"),
        (["--env", "X"], "--env X: expected NAME=VALUE"),
        (["--head", "somewhere"], "expected HOST:PORT"),
        (["--head", "example.org:7411"], "the connection is not encrypted"),
        (["--head", "127.0.0.1:7411", "--local"], "expected one of them"),
        (["-o", "xml"], "xml"),
    ],
)
def test_a_flag_that_is_wrong_is_named(
    head: FakeHead, project: Path, args: list[str], words: str
) -> None:
    result = hermesctl("submit", str(project / "study.yaml"), *args)
    assert result.exit_code == ExitCode.USAGE
    assert words in " ".join(result.stderr.split())
    assert not head.of(pb.SubmitStudyRequest)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("study.yaml", "metirc: loss\nprogram: train.py", "did you mean metric?"),
        ("study.yaml", "program: trian.py", "did you mean train.py?"),
        ("study.yaml", "program: train.py\ndata: [gone]", "data[0]: gone: expected something"),
        ("study.yaml", "program: train.py\npython: no/such/python", "expected an interpreter"),
        ("study.toml", "", "expected a study file"),
        ("none.py", None, "expected a study file or a program; there is no such file"),
        ("study.yml", None, "study.yaml?"),
        ("tarin.py", None, "train.py?"),
        ("study.yaml", "program: train.py\nmax_step: 5", "did you mean stop.max_steps?"),
        ("study.yaml", "program: train.py\npolcy: asha", "did you mean schedule.policy?"),
        ("study.yaml", "program: train.py\nlr: 1", "goes below parameters: parameters.lr.value"),
        ("study.yaml", "program: train.py\nmetric: {goal: max}", "did you mean maximize?"),
    ],
)
def test_a_file_that_is_wrong_is_named(
    head: FakeHead, project: Path, name: str, text: str | None, words: str
) -> None:
    if text is not None:
        (project / name).write_text(text)
    result = hermesctl("submit", str(project / name))
    assert result.exit_code == ExitCode.USAGE
    assert words in result.stderr
    assert not head.of(pb.SubmitStudyRequest)


def test_what_the_head_finds_wrong_in_a_study_has_its_line_and_the_same_exit_code(
    head: FakeHead, project: Path
) -> None:
    head.failures["SubmitStudy"] = [(grpc.StatusCode.INVALID_ARGUMENT, "1 error")]
    head.field_errors = [
        pb.FieldError(
            field_path="schedule.policy", value="hermse", expected="a policy", nearest="hermes"
        )
    ]
    flags = ["--set", "schedule.policy=hermse"]
    result = hermesctl("submit", str(project / "study.yaml"), *flags)
    assert result.exit_code == ExitCode.USAGE
    assert (
        "--set schedule.policy=hermse: schedule.policy: hermse: expected a policy; "
        "did you mean hermes?" in result.stderr
    )


def test_an_identical_study_is_not_run_twice(head: FakeHead, project: Path) -> None:
    head.identical_to = "digits"
    head.add_study("digits", trial(1))
    result = hermesctl("submit", str(project / "study.yaml"))
    assert result.exit_code == 0
    assert "digits is this very study" in result.stdout
    assert "--again" in result.stdout
    assert "retry" not in result.output
    head.add_study("digits", trial(1, state=types.TRIAL_STATE_FAILED))
    failed = hermesctl("submit", str(project / "study.yaml"))
    assert "1 trial of it failed: hermesctl study retry digits runs" in failed.stderr
    assert hermesctl("submit", str(project / "study.yaml"), "--again").exit_code == 0
    assert "digits: 2 trials" in hermesctl("submit", str(project / "study.yaml"), "--again").stdout


def test_a_preview_needs_no_head(state: Path, project: Path) -> None:
    file = str(project / "study.yaml")
    told = hermesctl("preview", file)
    assert told.exit_code == 0, told.output
    assert "2 trials, policy best_first" in told.stdout
    assert "no forecast: it needs a head" in told.stdout
    assert "no head answers" in told.stderr
    assert "checked without one" in told.stderr
    document = json.loads(hermesctl("preview", file, "-o", "json").stdout)
    assert [t["params"] for t in document["trials"]] == [{"lr": 0.1}, {"lr": 0.05}]
    assert document["study"] == "digits"
    wrong = hermesctl("preview", file, "--set", "method=random", "--set", "schedule.policy=fifi")
    assert wrong.exit_code == ExitCode.USAGE
    assert "run_cap: expected how many trials to draw" in wrong.stderr
    assert "schedule.policy: fifi: did you mean fifo? Expected one of" in wrong.stderr
    assert "did you mean fifo?" in wrong.stderr


def test_what_a_head_would_refuse_is_said_with_what_is_wrong_anyhow(
    head: FakeHead, project: Path
) -> None:
    file = project / "wrong.yaml"
    wrong = (
        "program: train.py\nmethod: random\nparameters: {lr: {min: 0.1, max: 0.2}}\n"
        "metric: {name: acc, goal: min}\nschedule: {policy: best-first}\n"
    )
    file.write_text(wrong)
    lines = [
        f"{file}:4:27: metric.goal: min: expected one of minimize, maximize",
        f"{file}:5:12: schedule.policy: best-first: did you mean best_first?",
    ]
    for command in (["submit"], ["submit", "--dry-run"], ["preview"]):
        said = hermesctl(*command, str(file)).stderr
        assert "run_cap: expected how many trials" in said
        assert all(line in said for line in lines)
    with Client() as client, pytest.raises(StudyFileError) as raised:
        client.submit(file)
    assert [each.field_path for each in raised.value.problems] == [
        *("run_cap", "metric.goal", "schedule.policy")
    ]
    assert not head.requests


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run_capp: 20", "did you mean run_cap?"),
        ("run_cap: many", "run_cap: many"),
        ("run_cap: 20\nschedule: {policy: of_our_own}\npriority: high", "priority: high"),
        ("command: ['${envvar:HERE}', '${args}']\nrun_cap: 2\npriority: high", "priority: high"),
    ],
)
def test_what_follows_from_a_mistake_and_what_a_head_may_know_is_no_further_mistake(
    state: Path, project: Path, line: str, says: str
) -> None:
    file = project / "wrong.yaml"
    file.write_text(
        f"program: train.py\nmethod: random\nparameters: {{lr: {{min: 0.1, max: 1}}}}\n{line}\n"
    )
    (said,) = hermesctl("submit", str(file)).stderr.splitlines()
    assert says in said


def test_a_preview_imports_nothing_of_the_current_folder(
    state: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "hermesd.py").write_text("raise SystemExit('imported')\n")
    told = hermesctl("preview", "study.yaml")
    assert told.exit_code == 0, told.output


def test_a_dry_run_needs_no_head(state: Path, project: Path) -> None:
    file = str(project / "study.yaml")
    told = hermesctl("submit", file, "--dry-run", "--follow")
    assert told.exit_code == 0, told.output
    assert "2 trials, policy best_first" in told.stdout
    assert "no head answers" in told.stderr
    assert "not whether a node or pool can take its trials" in told.stderr
    document = json.loads(hermesctl("submit", file, "--dry-run", "-o", "json").stdout)
    assert [t["params"] for t in document["trials"]] == [{"lr": 0.1}, {"lr": 0.05}]
    saved = project / "mine.yaml"
    script = ["submit", str(project / "train.py"), "--grid", "lr=1,2,3", "--save", str(saved)]
    assert "3 trials" in hermesctl(*script, "--dry-run").stdout
    assert "lr" in saved.read_text()
    wrong = hermesctl("submit", file, "--set", "schedule.policy=fifi", "--dry-run")
    assert wrong.exit_code == ExitCode.USAGE
    assert "did you mean fifo?" in wrong.stderr
    (project / "away").symlink_to("/etc")
    unsendable = hermesctl("submit", file, "--dry-run")
    assert unsendable.exit_code == ExitCode.USAGE
    assert "away" in unsendable.stderr
    (project / "away").unlink()
    assert hermesctl("submit", file).exit_code == ExitCode.UNREACHABLE


def test_preview_shows_the_trials_and_stores_nothing(head: FakeHead, project: Path) -> None:
    for args in (["preview"], ["submit", "--dry-run"]):
        result = hermesctl(*args, str(project / "study.yaml"))
        assert result.exit_code == 0
        assert "lr" in result.stdout
        assert "2 trials, policy best_first" in result.stdout
        assert "the same in all: optimizer=adam" in result.stdout
    file = project / "study.yaml"
    sequence = "  optimizer:\n    sequence: {values: [adam, sgd], after: [5]}\n"
    file.write_text(file.read_text() + sequence)
    changing = hermesctl("preview", str(file)).stdout
    assert "changing while a trial trains, from: optimizer=adam" in changing
    assert "the same in all" not in changing
    assert all(r.validate_only for r in head.of(pb.SubmitStudyRequest))
    document = json.loads(hermesctl("preview", str(project / "study.yaml"), "-o", "json").stdout)
    assert document["version"] == 1
    assert document["trials"][1] == {"number": 2, "params": {"lr": 0.05, "optimizer": "adam"}}


@pytest.mark.parametrize("early", [{}, {"early_terminate": {"type": "hyperband"}}])
def test_the_policy_of_a_preview_is_the_one_that_the_head_takes(
    head: FakeHead, project: Path, early: dict[str, Any]
) -> None:
    spec = {"program": "train.py", "method": "grid", "parameters": {"lr": {"value": 1}}, **early}
    (project / "study.json").write_text(json.dumps(spec))
    said = json.loads(hermesctl("preview", str(project / "study.json"), "-o", "json").stdout)
    (request,) = head.of(pb.SubmitStudyRequest)
    assert said["policy"] == draft(Submission(request.spec)).study.policy.name


def test_what_a_node_found_out_has_one_label(head: FakeHead) -> None:
    head.nodes = [pb.Node(id="box", connected=True, facts=["2 CPU slots", "0 GPUs"])]
    lines = hermesctl("node", "show", "box").stdout.splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines[:6]] == [
        *("node", "state", "pool", "version", "devices", "machine")
    ]
    assert lines[6].split() == ["0", "GPUs"]


def test_a_name_that_can_be_no_id_is_said_to_be_another(head: FakeHead, project: Path) -> None:
    submit = ["submit", str(project / "study.yaml"), "--name"]
    said = hermesctl(*submit, "dig/its").stderr
    assert "note: name dig/its: the study's id is digits" in said
    assert "the study's id" not in hermesctl(*submit, "digits").stderr


@pytest.mark.parametrize("command", [["submit"], ["submit", "--dry-run"], ["preview"]])
def test_a_name_that_is_taken_is_said_to_be(
    head: FakeHead, project: Path, command: list[str]
) -> None:
    head.free_id = "digits-2"
    file = str(project / "study.yaml")
    taken = "note: name digits: it is taken, so the study's id is digits-2"
    assert taken in hermesctl(*command, file).stderr
    assert taken in hermesctl(*command, file, "-o", "json").stderr
    head.identical_to = "digits-2"
    assert "taken" not in hermesctl("submit", file).stderr, "nothing new was begun"


def test_follow_without_a_terminal_prints_lines_then_the_end(head: FakeHead, project: Path) -> None:
    completed, finished = pb.PUBLIC_EVENT_KIND_COMPLETED, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_NODE_JOINED, device="long-before")]
    head.then = [event(2, completed, trial="digits/1", step=9), event(3, finished)]
    head.submitted = {"finished": True, "preemptions": 7, "busy_seconds": 99.0}
    head.submitted["overhead_seconds"] = 1.0
    result = hermesctl("submit", str(project / "study.yaml"), "--follow")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [one.split()[0] for one in lines[1:3]] == ["2", "3"]
    assert "long-before" not in result.stdout
    assert "switch overhead  1.0 %" in result.stdout
    assert "preemptions      7" in result.stdout
    assert "hermesctl trial show digits/1" in result.stdout
    assert "hermesctl trial curve" not in result.stdout  # it has no points


def test_follow_without_a_terminal_says_now_and_then_how_far_it_is(
    head: FakeHead, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PROGRESS_SECONDS", 0.0)
    head.then = [
        event(1, pb.PUBLIC_EVENT_KIND_RENEWED, trial="digits/1"),
        event(2, pb.PUBLIC_EVENT_KIND_QUANTUM_ENDED, trial="digits/1"),
        event(3, pb.PUBLIC_EVENT_KIND_CHECKPOINTED, trial="digits/1"),
        event(4, pb.PUBLIC_EVENT_KIND_MILESTONE_PASSED, trial="digits/1"),
        event(5, pb.PUBLIC_EVENT_KIND_SUSPEND_ASKED, trial="digits/1"),
        event(6, pb.PUBLIC_EVENT_KIND_SUSPENDED, trial="digits/1"),
        event(7, pb.PUBLIC_EVENT_KIND_LAUNCHED, trial="digits/2"),
        event(8, pb.PUBLIC_EVENT_KIND_STARTED, trial="digits/2"),
        event(9, pb.PUBLIC_EVENT_KIND_COMPLETED, trial="digits/2"),
    ]
    head.asked_before = 4
    head.at_last = [event(10, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)]
    result = hermesctl("submit", str(project / "study.yaml"), "--follow")
    assert result.exit_code == 0
    (far, *_) = [line for line in result.stdout.splitlines() if "progress  " in line]
    assert far.split() == [
        *("digits", "progress", "-", "·", "2:", "2", "waiting", "·", "best", "no", "metric"),
        *("seen", "yet", "·", "ends", "-"),
    ]
    numbers = [line.split()[0] for line in result.stdout.splitlines() if "22:13" in line]
    assert numbers == ["9", "10"], "how devices are shared is for `tail`"


def test_trials_that_end_together_for_one_reason_are_one_line(
    head: FakeHead, project: Path
) -> None:
    stopped = pb.PUBLIC_EVENT_KIND_STOPPED
    head.then = [event(4, stopped, trial=f"digits/{n}", reason="all alike") for n in (4, 5, 6)]
    head.then += [event(5, stopped, trial="digits/7", reason="too long")]
    head.then += [event(6, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)]
    head.submitted = {"finished": True}
    said = hermesctl("submit", str(project / "study.yaml"), "--follow").stdout
    assert said.count("all alike") == said.count("too long") == 1
    assert "\n                 … and 2 more trials stopped for the same reason\n" in said
    assert "digits/5" not in said


def test_waiting_tells_whether_trials_failed(head: FakeHead, project: Path) -> None:
    finish(head, trial(1, state=COMPLETED), trial(2, state=FAILED))
    head.identical_to = "digits"
    head.trials["digits"][1].failures.add(detail="out of memory")
    waited = hermesctl("submit", str(project / "study.yaml"), "--wait")
    assert waited.exit_code == ExitCode.TRIALS_FAILED
    assert "switch overhead  1.0 %" in waited.stdout
    assert "digits/2  out of memory  hermesctl trial show digits/2" in waited.stdout
    for flag in ("--wait", "--follow"):
        told = hermesctl("submit", str(project / "study.yaml"), flag, "-o", "json")
        assert told.exit_code == ExitCode.TRIALS_FAILED
        document = json.loads(told.stdout)
        assert document["identical_to"] == "digits"
        assert document["ended"]["finished"]
        assert [one["id"] for one in document["failed"]] == ["digits/2"]
        assert document["best"][0]["id"] == "digits/1"
    assert hermesctl("status", "--wait").exit_code == ExitCode.TRIALS_FAILED
    assert hermesctl("status").exit_code == 0


def test_an_ending_tells_the_last_words_of_a_program_that_only_exited(
    head: FakeHead, project: Path
) -> None:
    finish(head, trial(1, state=COMPLETED), trial(2, state=FAILED))
    head.identical_to = "digits"
    head.trials["digits"][1].failures.add(
        error_kind="exit", detail="the program called sys.exit(2)"
    )
    head.output = b"usage: train.py\ntrain.py: error: unrecognized arguments: --wrong=1\n\n"
    words = "the program called sys.exit(2): train.py: error: unrecognized arguments: --wrong=1"
    row = f"digits/2  {words}  hermesctl trial show"
    assert row in hermesctl("submit", str(project / "study.yaml"), "--wait").stdout
    assert row in hermesctl("status").stdout
    head.output = b""
    assert "digits/2  the program called sys.exit(2)" in hermesctl("status").stdout


# Looking.


def test_best_tells_what_its_trials_have_in_common_once(head: FakeHead) -> None:
    head.add_study("digits", *(trial(number, state=COMPLETED) for number in range(1, 13)))
    (few,) = [line for line in hermesctl("best").stdout.splitlines() if "adam" in line]
    assert few == "the same in all of these: optimizer=adam"
    everything = hermesctl("best", "-n", "12").stdout.splitlines()
    assert "the same in all: optimizer=adam" in everything
    # A single trial has a column for each.
    assert "the same in all" not in (alone := hermesctl("best", "-n", "1").stdout)
    assert "adam" in alone


def test_best_as_json_is_what_others_build_on(head: FakeHead) -> None:
    checkpoint = types.Checkpoint(id="c1", step=40)
    finish(
        head,
        trial(
            1,
            state=COMPLETED,
            metric=0.25,
            rank=1,
            step=40,
            preemptions=3,
            busy_seconds=9.0,
            overhead_seconds=1.0,
            fidelity=types.FIDELITY_EXACT_IF_DETERMINISTIC,
            checkpoint=checkpoint,
        ),
        trial(2, state=FAILED, metric=float("nan")),
    )
    document = json.loads(hermesctl("best", "dig", "-o", "json").stdout)
    assert document["version"] == 1
    assert (document["study"], document["metric"]) == ("digits", "val_loss")
    assert document["trials"][0] == {
        "id": "digits/1",
        "rank": 1,
        "metric": 0.25,
        "step": 40,
        "params": {"lr": 0.1, "optimizer": "adam"},
        "state": "completed",
        "fidelity": "exact-if-deterministic",
        "preemptions": 3,
        "overhead_share": 0.1,
        "checkpoint": "c1",
    }
    assert document["trials"][1]["metric"] is None
    assert document["trials"][1]["rank"] is None
    rows = list(csv.DictReader(io.StringIO(hermesctl("best", "-o", "csv").stdout)))
    assert [r["id"] for r in rows] == ["digits/1", "digits/2"]
    assert (rows[0]["lr"], rows[0]["optimizer"], rows[0]["val_loss"]) == ("0.1", "adam", "0.25")
    assert len(json.loads(hermesctl("best", "-n", "1", "-o", "json").stdout)["trials"]) == 1


@pytest.mark.parametrize(
    "args",
    [
        ["study", "ls"],
        ["study", "show", "digits"],
        ["trial", "ls"],
        ["trial", "show", "digits/1"],
        ["trial", "curve", "digits/1"],
        ["node", "ls"],
        ["status"],
        ["best"],
        ["why", "digits/1"],
        ["why", "digits"],
        ["version"],
        ["doctor", "--python", "/no/such/python"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "csv"])
def test_every_form_of_every_result(head: FakeHead, args: list[str], form: str) -> None:
    head.add_study("digits", trial(1, state=RUNNING, signal=float("nan")), trial(2))
    head.output = b"last words\n"
    result = hermesctl(*args, "-o", form)
    assert result.exit_code == (ExitCode.REFUSED if args[0] == "doctor" else 0), result.output
    match form:
        case "json":
            assert json.loads(result.stdout)["version"] == 1
        case "yaml":
            assert yaml.safe_load(result.stdout)["version"] == 1
        case "csv":
            rows = list(csv.reader(io.StringIO(result.stdout)))
            assert len({len(row) for row in rows}) == (1 if rows else 0)
            assert not [cell for row in rows for cell in row if cell[:1] in ("{", "[")]
        case _:
            assert result.stdout.strip()


def test_the_leaderboard_of_several_objectives_tells_the_front_as_csv() -> None:
    values = {1: (0.5, 9.0), 2: (0.25, 12.0)}
    one, two = [
        trial(n, metric=loss, rank=n, metrics=[
            pb.MetricValue(name="val_loss", last=loss), pb.MetricValue(name="ms", last=ms),
        ])
        for n, (loss, ms) in values.items()
    ]  # fmt: skip
    trials = [record(Trial, each) for each in (one, two)]
    goals = {"val_loss": "minimize", "ms": "minimize"}
    board = Leaderboard(trials, "val_loss", "minimize", "last", goals, ["digits/1"])
    rows = [best_columns(each, board) for each in board]
    assert [(row["val_loss"], row["ms"], row["front"]) for row in rows] == [
        (0.5, 9.0, True),
        (0.25, 12.0, False),
    ]
    goals = {"val_loss": "minimize", "front": "minimize", "step": "minimize"}
    for values in (each.metrics for each in (one, two)):
        del values[1:]
        values.add(name="front", last=7.0)
        values.add(name="step", last=8.0)
    named = [record(Trial, each) for each in (one, two)]
    row = best_columns(
        named[0], Leaderboard(named, "val_loss", "minimize", "last", goals, ["digits/1"])
    )
    assert (row["front"], row["pareto_front"]) == (7.0, True)
    assert (row["step"], row["metrics.step"]) == (0, 8.0)
    alone = best_columns(trials[0], Leaderboard(trials, "val_loss", "minimize", "last"))
    assert "front" not in alone
    assert "ms" not in alone


def test_csv_has_a_column_for_each_value_and_no_json(head: FakeHead) -> None:
    one = trial(1, state=RUNNING, argv=["python", "train.py"])
    one.metrics.add(name="val_loss", last=0.5, best=0.25)
    one.checkpoint.id, one.checkpoint.step = "c9", 40
    head.add_study("digits", one, trial(2))
    told = hermesctl("trial", "ls", "digits", "-o", "csv").stdout
    first, second = csv.DictReader(io.StringIO(told))
    assert (first["metrics.val_loss.last"], first["metrics.val_loss.best"]) == ("0.5", "0.25")
    assert (first["checkpoint.id"], first["checkpoint.step"]) == ("c9", "40")
    assert (second["checkpoint.id"], second["lr"]) == ("", "0.05")
    assert first["argv"] == "python; train.py"
    assert "checkpoint" not in first
    document = {"a": {"b": [{"id": "x", "c": 1}, {"id": "y", "c": 2}], "d": []}}
    params: dict[str, Data] = {"a": 1, "lr": [0.1, True]}
    rows = [{**document, "params": params}, {"a": None, "e": [{"seconds": 3, "loss": None}]}]
    assert csv_text(rows).splitlines() == [
        "a.b,a.d,params.a,lr,e",
        "x; y,,1,0.1; true,",
        ",,,,seconds=3 loss=",
    ]
    assert csv_text([]) == ""


def test_what_is_printed_for_programs_harms_no_terminal() -> None:
    """The audit has words of whoever was refused, a stranger's as well."""
    said = "\x1b]0;owned\x07\x9b2J \u2028é\nline"
    rows: list[dict[str, Data]] = [{"subject": said, said: [said], "params": {said: said}}]
    harmful = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
    document = {"entries": rows}
    for text in (csv_text(rows), json_text(document), json_line(rows[0]), to_yaml(document)):
        assert not harmful.search(text)
    assert json.loads(json_line(rows[0])) == rows[0]
    told = next(csv.DictReader(io.StringIO(csv_text(rows))))
    assert told["subject"] == "\\u001b]0;owned\\u0007\\u009b2J \u2028é\nline"


@pytest.mark.parametrize("words", [[], ["local"], ["cluster"]], ids=str)
def test_without_words_there_is_help_and_no_error(state: Path, words: list[str]) -> None:
    result = hermesctl(*words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage: " in result.stdout
    assert result.stdout.strip() == hermesctl(*words, "--help").stdout.strip()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["node", "ls"], "there is no node yet; hermesd node adds this machine"),
        (["study"], "there is no study yet; submit one: hermesctl submit study.yaml"),
        (["checkpoint", "ls"], "no trial of digits has a checkpoint"),
        (["context"], "you are not logged in to any head; hermesctl login HOST:PORT TOKEN logs in"),
    ],
)
def test_an_empty_list_says_what_fills_it(
    head: FakeHead, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], hint: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    head.nodes = []
    if words == ["checkpoint", "ls"]:
        head.add_study("digits", trial(1))
    assert f"note: {hint}" in (said := hermesctl(*words)).stderr
    assert said.stdout == ""
    quiet = hermesctl(*words, "-o", "json")
    assert (quiet.exit_code, quiet.stderr) == (0, "")


def test_a_noun_without_a_verb_lists_and_an_id_shows(head: FakeHead) -> None:
    head.add_study("old", trial(1, "old"))
    head.add_study("digits", trial(1), trial(2))
    head.nodes = [pb.Node(id="box", connected=True)]
    assert len({hermesctl("study", *verb).stdout for verb in ((), ("ls",), ("list",))}) == 1
    assert hermesctl("study", "digits").stdout == hermesctl("study", "show", "digits").stdout
    assert hermesctl("trial").stdout == hermesctl("trial", "ls", "digits").stdout
    assert hermesctl("trial", "old").stdout == hermesctl("trial", "ls", "old").stdout
    assert hermesctl("trial", "old/1").stdout == hermesctl("trial", "show", "old/1").stdout
    assert hermesctl("node", "box").stdout == hermesctl("node", "show", "box").stdout
    assert "box" in hermesctl("node").stdout
    misspelled = hermesctl("trial", "pasue", "digits/1")
    assert misspelled.exit_code == ExitCode.USAGE
    assert "did you mean pause?" in misspelled.stderr


def test_a_metric_that_is_not_there_is_said_with_those_that_are(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    missing = hermesctl("trial", "curve", "digits/1", "--metric", "acuracy")
    assert missing.exit_code == ExitCode.NOT_FOUND
    assert missing.stderr.strip() == (
        "error: digits/1 has no metric acuracy: it has loss, accuracy; did you mean accuracy?"
    )
    assert hermesctl("trial", "curve", "digits/1", "--metric", "accuracy").exit_code == 0


def test_what_is_not_there_is_said(head: FakeHead) -> None:
    for args in (["best"], ["study", "show", "x"], ["trial", "show", "x/1"], ["node", "show", "x"]):
        assert hermesctl(*args).exit_code == ExitCode.NOT_FOUND
    assert "submit one" in hermesctl("status").stderr


def test_a_pause_is_seen_everywhere(head: FakeHead) -> None:
    head.add_study("digits", trial(1, paused=True), paused=True)
    assert "1: 1 paused" in hermesctl("study", "ls").stdout
    status = hermesctl("status").stdout
    assert "1: 1 paused" in status
    assert "ends         paused; hermesctl study resume digits" in status
    assert "1: 1 paused" in hermesctl("top").stdout
    assert json.loads(hermesctl("status", "-o", "json").stdout)["paused"]
    head.add_study("half", trial(1, "half", paused=True), trial(2, "half"))
    assert "2: 2 waiting; 1 paused" in hermesctl("status", "half").stdout


def test_who_was_replaced_is_not_called_paused(head: FakeHead) -> None:
    loser = trial(1, "pop", paused=True, replaced_by="pop/3")
    begin = {"forked_from": "pop/2", "forked_at_step": 40}
    head.add_study("pop", loser, trial(2, "pop"), trial(3, "pop", **begin))
    assert "3: 3 waiting; 1 replaced" in hermesctl("status", "pop").stdout
    assert "replaced by" in hermesctl("trial", "show", "pop/1").stdout
    shown = " ".join(hermesctl("trial", "show", "pop/3").stdout.split())
    assert "forked from pop/2 at step 40" in shown
    assert "lineage pop/2 to step 40: " in shown


def test_status_mentions_the_other_unfinished_studies(head: FakeHead) -> None:
    head.add_study("running", trial(1, "running", state=RUNNING))
    head.add_study("over", trial(1, "over", state=COMPLETED), finished=True)
    head.add_study("newest", trial(1, "newest"))
    told = hermesctl("status").stdout
    assert "running          1: 1 running  hermesctl status running" in told
    assert "over " not in told
    assert "also unfinished" not in hermesctl("status", "newest").stdout


def test_tail_prints_events_as_lines_and_as_json(head: FakeHead) -> None:
    head.add_study("digits", trial(1), finished=True)
    quantum = types.Quantum(seconds=10.0, until_step=40)
    head.events = [
        event(1, pb.PUBLIC_EVENT_KIND_LAUNCHED, trial="digits/1", attempt=2, quantum=quantum),
        event(2, pb.PUBLIC_EVENT_KIND_REPORTED, trial="digits/1", step=3, loss=0.5),
        event(3, 99, trial="digits/1"),
    ]
    lines = hermesctl("tail").stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].split() == [
        *("1", "22:13:21Z", "digits/1#2", "launched", "quantum", "10.0", "s", "or", "until"),
        *("step", "40"),
    ]
    assert "other" in lines[1]
    assert "loss 0.5" in hermesctl("tail", "--reports").stdout
    assert hermesctl("tail", "--after", "1", "-f").stdout.splitlines() == lines[1:]
    head.events.append(event(4, pb.PUBLIC_EVENT_KIND_RENEWED, trial="digits/1"))
    for flags in ([], ["-f"]):
        assert hermesctl("tail", "-n", "1", *flags).stdout.splitlines() == lines[1:]
        assert hermesctl("tail", "-n", "0", *flags).stdout == ""
    assert hermesctl("tail").stdout.splitlines() == lines
    assert "renewed" in hermesctl("tail", "--routine").stdout
    (first, *_) = hermesctl("tail", "-o", "json").stdout.splitlines()
    assert json.loads(first)["kind"] == "launched"
    assert hermesctl("tail", "-o", "csv").exit_code == ExitCode.USAGE


def test_tail_of_a_trial_is_what_happened_to_it_and_ends_with_it(head: FakeHead) -> None:
    head.add_study("digits", trial(1, state=RUNNING), trial(2))
    head.events = [
        event(1, pb.PUBLIC_EVENT_KIND_LAUNCHED, trial="digits/1", attempt=1),
        event(2, pb.PUBLIC_EVENT_KIND_LAUNCHED, trial="digits/2", attempt=1),
        event(3, pb.PUBLIC_EVENT_KIND_COMPLETED, trial="digits/2"),
        event(4, pb.PUBLIC_EVENT_KIND_FAILED, trial="digits/1"),
    ]
    (launched, failed) = hermesctl("tail", "digits/1").stdout.splitlines()
    assert ("launched" in launched, "failed" in failed) == (True, True)
    assert hermesctl("tail", "digits/1", "-n", "1").stdout.splitlines() == [failed]

    def end() -> None:
        head.watching.wait()
        head.trials["digits"][0].state = types.TRIAL_STATE_COMPLETED
        head.events.append(event(5, pb.PUBLIC_EVENT_KIND_COMPLETED, trial="digits/1"))

    head.watching.clear()
    ending = threading.Thread(target=end)
    ending.start()
    followed = hermesctl("tail", "-f", "digits/1").stdout.splitlines()
    ending.join()
    assert followed[:2] == [launched, failed]
    assert "completed" in followed[2]
    assert hermesctl("tail", "-f", "digits/1").stdout.splitlines() == followed
    assert hermesctl("tail", "digits/9").exit_code == ExitCode.NOT_FOUND


@pytest.mark.parametrize("last_before_it", [pb.WatchJournalRequest, pb.GetTrialRequest])
def test_tail_of_a_trial_that_ends_while_its_past_is_printed_ends_too(
    head: FakeHead, monkeypatch: pytest.MonkeyPatch, last_before_it: type[Any]
) -> None:
    head.add_study("digits", trial(1, state=RUNNING))
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_LAUNCHED, trial="digits/1", attempt=1)]
    begin = head._begin

    async def begin_once_it_has_ended(request: Any, context: Any) -> None:
        assert getattr(request, "once", True), "nothing more comes of it"
        past_is_read = head.of(pb.WatchJournalRequest) or last_before_it is pb.WatchJournalRequest
        if isinstance(request, last_before_it) and past_is_read and len(head.events) == 1:
            head.trials["digits"][0].state = COMPLETED
            head.events.append(event(2, pb.PUBLIC_EVENT_KIND_COMPLETED, trial="digits/1"))
        await begin(request, context)

    monkeypatch.setattr(head, "_begin", begin_once_it_has_ended)
    followed = hermesctl("tail", "-f", "-n", "5", "digits/1")
    assert followed.exit_code == 0, followed.output
    assert ["launched" in followed.stdout, "completed" in followed.stdout] == [True, True]
    assert len(followed.stdout.splitlines()) == 2


def test_status_of_a_trial_is_what_trial_show_shows(head: FakeHead) -> None:
    head.add_study("digits", trial(1, state=RUNNING))
    shown = hermesctl("status", "digits/1")
    assert (shown.exit_code, shown.stdout) == (0, hermesctl("trial", "show", "digits/1").stdout)
    refused = hermesctl("status", "digits/1", "--wait")
    assert refused.exit_code == ExitCode.USAGE
    assert "expected a study, not one of its trials: digits/1" in refused.stderr


def test_why_of_a_study_tells_why_trials_failed(head: FakeHead) -> None:
    failed = trial(1, state=types.TRIAL_STATE_FAILED, reason="ValueError: no data")
    head.add_study("digits", failed, trial(2, state=types.TRIAL_STATE_COMPLETED))
    assert "ValueError: no data" in hermesctl("why", "digits").stdout


def test_a_submit_that_is_interrupted_before_anything_is_sent_says_so(
    head: FakeHead, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hermesctl.commands.submit.prepare", interrupted)
    done = hermesctl("submit", str(project / "study.yaml"))
    assert done.exit_code == ExitCode.INTERRUPTED
    assert "nothing was submitted" in done.stderr


def test_logs_are_passed_on_byte_by_byte(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    head.output = b"\x1b[32mgreen\x1b[0m \xff\n" * 10
    assert hermesctl("logs", "digits/1").stdout_bytes == head.output
    assert hermesctl("logs", "digits/1", "--last", "4B").stdout_bytes == head.output[-4:]
    assert hermesctl("logs", "digits/1", "--last", "4 lines").exit_code == ExitCode.USAGE
    head.output_bytes = 1 << 16
    head.output = b"\n".join(b"%d" % number for number in range(40_000))
    for lines, expected in ((0, b""), (1, b"39999"), (3, b"39997\n39998\n39999")):
        for ending in (b"", b"\n"):
            head.output = head.output.rstrip(b"\n") + ending
            shown = hermesctl("logs", "digits/1", "-n", str(lines)).stdout_bytes
            assert shown == (expected + ending if lines else b"")
    for lines in (30_000, 40_000, 50_000):  # more than is looked at first
        shown = hermesctl("logs", "digits/1", "-n", str(lines)).stdout_bytes
        assert shown == b"".join(head.output.splitlines(True)[-lines:])


def test_hostile_names_do_not_reach_the_terminal(head: FakeHead) -> None:
    evil = "\x1b[2J\u202e[red]x"
    one = trial(1, state=FAILED, reason=evil, device=evil)
    one.failures.append(pb.Failure(error_kind=evil, detail=evil, device=evil))
    one.parameters.add(name=evil, value=types.Value(string_value=evil))
    head.add_study("digits", one, owner=evil, best_trial=evil)
    head.studies["digits"].spec.metric.name = evil
    head.nodes = [pb.Node(id="box", facts=[evil], version=evil)]
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_FAILED, trial=evil, reason=evil, device=evil)]
    head.output = evil.encode()
    for args in (
        ["study", "ls", "-o", "wide"],
        ["study", "show", "digits", "-o", "wide"],
        ["trial", "show", "digits/1"],
        ["best"],
        ["tail"],
        ["node", "show", "box"],
        ["top"],
    ):
        result = hermesctl(*args)
        assert result.exit_code == 0
        assert not {"\x1b", "\u202e"} & set(result.output), args
        assert "[red]" in result.output or args[0] == "top"


# Changing.


def test_stopping_several_trials_is_asked_about(head: FakeHead) -> None:
    head.add_study("digits", trial(1), trial(2))
    for args in (["study", "stop", "digits"], ["trial", "stop", "digits/1", "digits/2"]):
        refused = hermesctl(*args)
        assert refused.exit_code == ExitCode.USAGE
        assert "add --yes" in refused.stderr
        assert not head.of(pb.StopTrialsRequest)
    assert hermesctl("study", "stop", "digits", "--yes").exit_code == 0
    assert hermesctl("trial", "stop", "digits/1").exit_code == 0
    assert hermesctl("trial", "stop", "digits").exit_code == ExitCode.USAGE


def test_removing_is_asked_about(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    assert hermesctl("study", "rm", "digits").exit_code == ExitCode.USAGE
    assert hermesctl("study", "rm", "digits", "-y").exit_code == 0
    assert head.of(pb.RemoveStudyRequest)[0].study == "digits"


def test_only_a_study_that_is_named_in_full_is_removed_without_asking(head: FakeHead) -> None:
    head.add_study("digits-2", trial(1))
    refused = hermesctl("study", "rm", "digits", "-y")
    assert refused.exit_code == ExitCode.USAGE
    assert "study: digits: expected its whole id, such as digits-2" in refused.stderr
    assert not head.of(pb.RemoveStudyRequest)


def test_the_signal_of_a_study_is_changed(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    said = hermesctl("study", "signal", "dig", "acc", "--goal", "maximize").stderr
    assert "policies of digits read acc now (higher is better)" in said
    (request,) = head.of(pb.SetSignalRequest)
    assert (request.signal.name, request.signal.goal) == ("acc", types.GOAL_MAXIMIZE)


def test_the_metric_of_a_study_is_looked_at_and_changed(head: FakeHead) -> None:
    head.add_study("digits", trial(1, metric=0.5, rank=1))
    flags = ["--goal", "maximize", "--by", "best"]
    looked = json.loads(hermesctl("best", "--metric", "acc", *flags, "-o", "json").stdout)
    assert (looked["metric"], looked["goal"], looked["mode"]) == ("acc", "maximize", "best")
    smoothed = hermesctl("best", "digits", "--metric", "loss", "--by", "smoothed", "-o", "csv")
    assert next(csv.DictReader(io.StringIO(smoothed.stdout)))["mode"] == "smoothed"
    drawn = hermesctl("best", "--metric", "acc", *flags).stdout
    assert "ranked by acc, the highest first, by the best value of each trial" in drawn
    assert not head.of(pb.SetMetricRequest), "nothing is changed by a look"
    said = hermesctl("study", "metric", "dig", "acc", "--goal", "maximize").stderr
    assert "digits is ranked by acc, the highest first" in said
    assert "note: policies read loss" in said
    (request,) = head.of(pb.SetMetricRequest)
    assert request.metric == types.Metric(name="acc", goal=types.GOAL_MAXIMIZE)
    assert json.loads(hermesctl("best", "-o", "json").stdout)["metric"] == "acc"
    bad = hermesctl("study", "metric", "digits", "acc", "--goal", "maximise")
    assert bad.exit_code == ExitCode.USAGE
    assert "expected one of minimize, maximize" in bad.stderr
    bad = hermesctl("best", "--by", "mean")
    assert bad.exit_code == ExitCode.USAGE
    assert "expected one of last, best, smoothed" in bad.stderr


def test_trials_that_are_added_are_shown_as_their_study_ranks_them(head: FakeHead) -> None:
    acc = pb.Ranking(metric=types.Metric(name="acc"))
    head.add_study("digits", trial(1), trial(2), ranking=acc)
    added = hermesctl("study", "add", "digits", "--grid", "lr=0.1,0.2", "--trials", "2")
    assert added.stderr == "note: 1 more is there\n2 trials added: digits/1 to digits/2\n"
    assert "acc" in added.stdout
    (request,) = head.of(pb.AddTrialsRequest)
    assert (request.parameters[0].name, request.count) == ("lr", 2)


def test_trials_are_tagged_noted_and_listed_by_their_tags(head: FakeHead) -> None:
    head.add_study("digits", trial(1), trial(2), trial(3))
    said = hermesctl("trial", "tag", "digits/1", "digits/3", "good", "warm").stderr
    assert said == "2 trials: good, warm added\n"
    hermesctl("trial", "tag", "digits/3", "good", "--remove")
    first, second = head.of(pb.MarkTrialsRequest)
    assert list(first.selection.trials) == ["digits/1", "digits/3"]
    assert (list(first.add_tags), list(first.remove_tags)) == (["good", "warm"], [])
    assert (list(second.add_tags), list(second.remove_tags)) == ([], ["good"])
    listed = json.loads(hermesctl("trial", "ls", "digits", "--tag", "warm", "-o", "json").stdout)
    assert [each["id"] for each in listed["trials"]] == ["digits/1", "digits/3"]
    both = hermesctl("trial", "ls", "digits", "--tag", "warm", "--tag", "cold")
    assert "no trial of digits matches: its trials have the tags good, warm" in both.stderr
    assert both.stdout == ""
    assert "good warm" in hermesctl("trial", "ls", "digits").stdout

    assert hermesctl("trial", "note", "digits/1").stdout == "no note\n"
    assert hermesctl("trial", "note", "digits/1", "see\nfig. 3").stderr == "noted\n"
    assert hermesctl("trial", "note", "digits/1").stdout == "see\nfig. 3\n"
    shown = hermesctl("trial", "show", "digits/1").stdout
    assert "good, warm" in shown
    assert "fig. 3" in shown
    hermesctl("trial", "note", "digits/1", "")
    assert head.of(pb.MarkTrialsRequest)[-1].HasField("note")


def test_pause_resume_retry_extend(head: FakeHead) -> None:
    head.add_study("digits", trial(1), trial(2))
    assert "2 trials paused" in hermesctl("study", "pause", "digits").stderr
    assert "1 trial resumed" in hermesctl("trial", "resume", "digits/2").stderr
    assert "2 trials will run again, with the code" in hermesctl("study", "retry", "digits").stderr
    flags = ["--set", "epochs=20", "--set", "stop.max_steps=100"]
    assert "2 trials extended" in hermesctl("study", "extend", "digits", *flags).stderr
    (request,) = head.of(pb.ExtendStudyRequest)
    assert request.stop.max_steps == 100
    assert request.parameters[0].name == "epochs"
    hermesctl("study", "extend", "digits", "--new", "trainer.max_epochs=9")
    (argument,) = head.of(pb.ExtendStudyRequest)[-1].new_parameters
    assert (argument.name, argument.value.int_value) == ("trainer.max_epochs", 9)
    bad = hermesctl("study", "extend", "digits", "--set", "stop.max_stpes=1")
    assert bad.exit_code == ExitCode.USAGE
    assert "did you mean max_steps?" in bad.stderr


def test_what_changed_is_counted_and_what_did_not_is_said(head: FakeHead) -> None:
    head.add_study("digits", trial(1), trial(2), trial(3))
    head.unchanged = {"digits/2", "digits/3"}
    for args, words in (
        (["study", "pause", "digits"], "1 trial paused; 2 were paused or over already"),
        (["study", "resume", "digits"], "1 trial resumed; 2 were not paused, or over"),
        (["study", "stop", "digits", "-y"], "1 trial cancelled; 2 were over already"),
        (["trial", "pause", "digits/2"], "0 trials paused; 1 was paused or over already"),
        (["trial", "resume", "digits/1", "digits/2"], "1 trial resumed; 1 was not paused, or over"),
        (["trial", "stop", "digits/1"], "1 trial cancelled"),
    ):
        result = hermesctl(*args)
        assert (result.exit_code, result.stderr.strip()) == (0, words)


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("study pause digits", BOTH),
        ("study resume dig", BOTH),
        ("study stop digits --yes", BOTH),
        ("study retry dig", BOTH),
        (
            "study extend dig --set epochs=9",
            BOTH,
        ),
        (
            "study metric digits acc --goal maximize --by last",
            {"study": "digits", "metric": "acc", "goal": "maximize", "mode": "last"},
        ),
        (
            "study signal digits acc --goal maximize",
            {"study": "digits", "signal": "acc", "goal": "maximize"},
        ),
        ("study rm digits --yes", {"study": "digits"}),
        ("trial pause digits/1", {"trials": ["digits/1"]}),
        ("trial resume digits/1", {"trials": ["digits/1"]}),
        ("trial stop digits/1", {"trials": ["digits/1"]}),
        ("trial retry digits/1", {"trials": ["digits/1"]}),
        ("trial tag digits/1 good", {"trials": ["digits/1"], "tags_added": ["good"]}),
        ("trial tag digits/1 good --remove", {"trials": ["digits/1"], "tags_removed": ["good"]}),
        ("trial note digits/1 odd", {"trials": ["digits/1"], "note": "odd"}),
        ("trial note digits/1", {"trials": ["digits/1"], "note": ""}),
    ],
)
def test_a_program_reads_what_a_command_has_changed(
    head: FakeHead, words: str, changed: dict[str, object]
) -> None:
    head.add_study("digits", trial(1), trial(2))
    head.stop_notes = ["it was being saved"]
    told = hermesctl(*words.split(), "-o", "json")
    notes = {"study stop": head.stop_notes, "trial stop": head.stop_notes}
    notes["study metric"] = ["policies read loss"]
    expected = notes.get(" ".join(words.split()[:2]), [])
    assert json.loads(told.stdout) == {"version": 1, **changed, "notes": expected}
    assert told.stderr == ""


def test_a_clone_runs_the_same_code_with_changes(head: FakeHead) -> None:
    head.add_study("digits", trial(1), code_sha256="abc", submit_directory="/somewhere")
    flags = ["--set", "schedule.policy=fifo", "--name", "other"]
    assert hermesctl("study", "clone", "digits", *flags).exit_code == 0
    (request,) = head.of(pb.SubmitStudyRequest)
    assert (request.code_sha256, request.submit_directory) == ("abc", "/somewhere")
    assert request.spec.schedule.policy.name == "fifo"
    assert request.spec.name == "other"
    assert request.spec.program == "train.py"
    assert (request.again, request.environment_of) == (True, "digits")


def test_the_files_of_the_best_trial_are_fetched(head: FakeHead, tmp_path: Path) -> None:
    head.add_study("digits", trial(2, metric=0.5, rank=1), trial(1))
    written = 1_700_000_000.5
    head.files = [
        pb.GetFilesResponse(
            name="best.pt", data=b"weights", size_bytes=7, modified_unix_seconds=written
        )
    ]
    there = tmp_path / "out"
    fetched = hermesctl("best", "digits", "--files", "--to", str(there))
    assert fetched.stdout.strip() == str(there / "best.pt")
    assert (there / "best.pt").read_bytes() == b"weights"
    assert (there / "best.pt").stat().st_mtime == written
    again = hermesctl("best", "--files", "--to", str(there), "--force", "-o", "json").stdout
    files = [str(there / "best.pt")]
    assert json.loads(again) == {"version": 1, "trial": "digits/2", "files": files, "notes": []}
    assert {each.trial for each in head.of(pb.GetFilesRequest)} == {"digits/2"}
    for flags in (["--to", "out"], ["--files", "-n", "2"]):
        assert hermesctl("best", "digits", *flags).exit_code == ExitCode.USAGE
    head.add_study("unranked", trial(1, "unranked"))
    assert "no trial of unranked has a rank" in hermesctl("best", "unranked", "--files").stderr


def test_export_goes_to_a_file_or_to_stdout(head: FakeHead, tmp_path: Path) -> None:
    head.add_study("digits", trial(1))
    assert hermesctl("study", "export", "digits").stdout == '{"study": 1}\n{"trial": 1}\n'
    target = tmp_path / "digits.jsonl"
    assert hermesctl("study", "export", "digits", "--to", str(target)).exit_code == 0
    assert target.read_text() == '{"study": 1}\n{"trial": 1}\n'
    for nowhere in (tmp_path / "no" / "x", target / "x", tmp_path, target):
        refused = hermesctl("study", "export", "digits", "--to", str(nowhere))
        assert refused.exit_code == ExitCode.USAGE
    assert "add --force" in refused.stderr
    assert hermesctl("study", "export", "digits", "--to", str(target), "--force").exit_code == 0
    assert list(tmp_path.iterdir()) == [target]


def test_the_points_of_an_export_as_csv(head: FakeHead, tmp_path: Path) -> None:
    head.add_study("digits", trial(1))
    points = {"type": "points", "trial": "digits/1", "attempt": 2, "metric": "a,b"}
    line = json.dumps({**points, "steps": [1, 2], "values": [0.5, "inf"]}).encode()
    head.exported = [b'{"type":"study"}\n' + line[:30], line[30:] + b"\n"]
    rows = (
        "trial,attempt,metric,step,value,trained_by\n"
        'digits/1,2,"a,b",1,0.5,digits/1\n'
        'digits/1,2,"a,b",2,inf,digits/1\n'
    )
    assert hermesctl("study", "export", "digits", "-o", "csv").stdout == rows
    target = tmp_path / "digits.csv"
    assert hermesctl("study", "export", "digits", "--to", str(target)).exit_code == 0
    assert target.read_text() == rows
    refused = hermesctl("study", "export", "digits", "-o", "digits.csv")
    assert refused.exit_code == ExitCode.USAGE
    assert "expected json (JSON Lines) or csv; for a file: --to digits.csv" in refused.stderr
    head.exported = [b"<html>\n"]
    assert hermesctl("study", "export", "digits", "-o", "csv").exit_code == ExitCode.INTERNAL


@pytest.mark.parametrize(
    "args",
    [["study", "extend", "digits"], ["study", "add", "digits"], ["trial", "fork", "digits/1"]],
)
def test_a_new_argument_that_the_program_has_no_option_for_is_refused(
    head: FakeHead, project: Path, args: list[str]
) -> None:
    script = project / "train.py"
    script.write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser(allow_abbrev=False)\n"
        "parser.add_argument('--epochs', type=int)\n"
        "parser.add_argument('--lr', type=float)\n"
        "print(parser.parse_args())\n"
    )
    head.add_study("digits", trial(1))
    study = head.studies["digits"]
    study.spec.CopyFrom(types.StudySpec(program="train.py"))
    study.submit_directory = str(project)
    study.program_sha256 = hashlib.sha256(script.read_bytes()).hexdigest()
    refused = hermesctl(*args, "--new", "epoch=9")
    assert refused.exit_code == ExitCode.USAGE
    words = "--new epoch: expected an option of train.py; did you mean epochs?"
    assert words in refused.stderr
    assert hermesctl(*args, "--new", "epochs=9").exit_code != ExitCode.USAGE
    study.program_sha256 = "f" * 64  # what is here now is another program
    assert hermesctl(*args, "--new", "epoch=9").exit_code != ExitCode.USAGE


@pytest.mark.parametrize("args", [["study", "add", "digits"], ["trial", "fork", "digits/1"]])
def test_a_new_argument_is_for_the_head_to_judge_where_the_study_cannot_be_read_here(
    head: FakeHead, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("unheard_of: expected a key of a study file")

    head.add_study("digits", trial(1))
    monkeypatch.setattr(submission, "from_changed_spec", refuse)
    assert "unheard_of" not in hermesctl(*args, "--new", "epoch=9").output
    assert head.of(pb.GetStudyRequest)


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        (["study", "add", "digits"], pb.AddTrialsRequest),
        (["trial", "fork", "digits/1"], pb.ForkTrialRequest),
    ],
    ids=str,
)
def test_nothing_is_asked_before_where_no_argument_is_new(
    head: FakeHead, args: list[str], kind: type[Any]
) -> None:
    head.add_study("digits", trial(1))
    hermesctl(*args, "--set", "lr=0.5")
    asked = [type(each) for each in head.requests]
    assert pb.GetStudyRequest not in asked[: asked.index(kind)]


def test_each_point_of_an_export_as_csv_has_the_parameters_in_force_at_its_step(
    head: FakeHead,
) -> None:
    head.add_study("s", trial(1))
    stages = {
        "s/1": [[2, [["lr", 0.1], ["step", "a,b"]]], [None, [["lr", 0.01]]]],
        "s/2": [[None, [["layers", [16, 8]], ["nesterov", True]]]],
    }
    lines: list[dict[str, object]] = [
        {"type": "trial", "trial": {"spec": {"id": name, "stages": each}}}
        for name, each in stages.items()
    ]
    for name in stages:
        points = {"attempt": 1, "metric": "loss", "steps": [2, 3], "values": [0.5, 0.4]}
        lines.append({"type": "points", "trial": name, **points})
    head.exported = [json.dumps(line).encode() + b"\n" for line in lines]
    assert hermesctl("study", "export", "s", "-o", "csv").stdout == (
        "trial,attempt,metric,step,value,trained_by,lr,params.step,layers,nesterov\n"
        's/1,1,loss,2,0.5,s/1,0.1,"a,b",,\n'
        's/1,1,loss,3,0.4,s/1,0.01,"a,b",,\n'
        "s/2,1,loss,2,0.5,s/2,,,16; 8,true\n"
        "s/2,1,loss,3,0.4,s/2,,,16; 8,true\n"
    )
    head.exported = head.exported[:2]
    assert hermesctl("study", "export", "s", "-o", "csv").stdout.count("\n") == 1


def test_a_point_that_was_trained_for_several_trials_is_a_row_of_each(head: FakeHead) -> None:
    head.add_study("s", trial(1))
    begins = [
        {},
        {"carrier": "s/1", "step": 3},
        {"forked": {"trial": "s/1", "step": 2}},
        {"forked": {"trial": "s/3", "step": 4}},
        {"forked": {"trial": "other/1", "step": 9}},
    ]
    trials = [{"spec": {"id": f"s/{n}"}, **begin} for n, begin in enumerate(begins, 1)]
    lines: list[dict[str, object]] = [{"type": "trial", "trial": each} for each in trials]
    for name, first in (("s/1", 1), ("s/3", 3), ("s/4", 5), ("s/5", 10)):
        steps = [first, first + 1, first + 2]
        points = {"attempt": 1, "metric": "loss", "steps": steps, "values": steps}
        lines.append({"type": "points", "trial": name, **points})
    head.exported = [json.dumps(line).encode() + b"\n" for line in lines]
    told = csv.DictReader(io.StringIO(hermesctl("study", "export", "s", "-o", "csv").stdout))
    found: dict[str, dict[int, str]] = {}
    for row in told:
        found.setdefault(row["trial"], {})[int(row["step"])] = row["trained_by"]
    assert found == {
        "s/1": dict.fromkeys([1, 2, 3], "s/1"),
        "s/2": dict.fromkeys([1, 2, 3], "s/1"),
        "s/3": {**dict.fromkeys([1, 2], "s/1"), **dict.fromkeys([3, 4, 5], "s/3")},
        "s/4": {
            **dict.fromkeys([1, 2], "s/1"),
            **dict.fromkeys([3, 4], "s/3"),
            **dict.fromkeys([5, 6, 7], "s/4"),
        },
        "s/5": dict.fromkeys([10, 11, 12], "s/5"),
    }


def test_a_fork_has_its_parent_s_parameters_until_it_begins(head: FakeHead) -> None:
    """And what rides on another has its own, which are the same by then."""
    head.add_study("s", trial(1))
    begins = [
        {},
        {"forked": {"trial": "s/1", "step": 2}},
        {"carrier": "s/2", "step": 3},
        {"forked": {"trial": "s/3", "step": 3}},
    ]
    trials = [
        {"spec": {"id": f"s/{n}", "stages": [[None, [["lr", n]]]]}, **begin}
        for n, begin in enumerate(begins, 1)
    ]
    lines: list[dict[str, object]] = [{"type": "trial", "trial": each} for each in trials]
    for name, step in (("s/1", 2), ("s/2", 3), ("s/4", 4)):
        points = {"attempt": 1, "metric": "loss", "steps": [step], "values": [0.5]}
        lines.append({"type": "points", "trial": name, **points})
    head.exported = [json.dumps(line).encode() + b"\n" for line in lines]
    told = csv.DictReader(io.StringIO(hermesctl("study", "export", "s", "-o", "csv").stdout))
    found = {(row["trial"], int(row["step"])): row["lr"] for row in told}
    assert {step: lr for (trial, step), lr in found.items() if trial == "s/2"} == {2: "1", 3: "2"}
    assert {step: lr for (trial, step), lr in found.items() if trial == "s/3"} == {2: "1", 3: "3"}
    assert {step: lr for (trial, step), lr in found.items() if trial == "s/4"} == {
        2: "1",
        3: "3",
        4: "4",
    }


def test_checkpoints_are_listed_and_fetched(
    head: FakeHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = types.Checkpoint(id="c1", step=40, size_bytes=2048, nodes=["box"])
    head.add_study("digits", trial(1, checkpoint=saved, step=100), trial(2))
    model = pb.DownloadCheckpointResponse(name="model.keras", data=b"x" * 2048)
    manifest = pb.DownloadCheckpointResponse(name="manifest.json", data=b'{"step": 40}')
    head.checkpoint = [manifest, model]
    listed = hermesctl("checkpoint", "ls").stdout.splitlines()
    assert [line.split() for line in listed[1:]] == [["digits/1", "c1", "40", "2.0", "KiB", "box"]]
    monkeypatch.chdir(tmp_path)
    fetched = hermesctl("checkpoint", "download", "digits/1")
    assert fetched.exit_code == 0
    assert "2 files (2.0 KiB) in digits-1" in fetched.stderr
    assert "note: this is the trial at step 40, and it came to step 100" in fetched.stderr
    written = [str(tmp_path / "digits-1" / name) for name in ("model.keras", "manifest.json")]
    assert fetched.stdout.splitlines() == written
    assert "it loads without Hermes:\n  import keras\n" in fetched.stderr
    assert "what Hermes resumes the trial from:\n" in fetched.stderr
    assert "  model = keras.models.load_model('digits-1/model.keras')" in fetched.stderr
    refused = hermesctl("checkpoint", "download", "digits/1")
    assert refused.exit_code == ExitCode.USAGE
    assert hermesctl("checkpoint", "download", "digits/1", "--force").exit_code == 0
    manifest.data = b'{"step": 30}'
    older = ("checkpoint", "download", "digits/1", "--id", "c0", "--to", "old")
    fetched = hermesctl(*older)
    assert "note: this is the trial at step 30, and it came to step 100" in fetched.stderr
    assert json.loads(hermesctl(*older, "--force", "-o", "json").stdout)["step"] == 30
    assert head.of(pb.DownloadCheckpointRequest)[-1].checkpoint == "c0"
    long = "a folder with a long name " * 8
    fetched = hermesctl("checkpoint", "download", "digits/1", "--to", long)
    assert f"\n  model = keras.models.load_model('{long}/model.keras')\n" in fetched.stderr


def test_a_checkpoint_of_a_trial_that_was_stopped_is_said_to_have_no_model(
    head: FakeHead, tmp_path: Path
) -> None:
    saved = types.Checkpoint(id="c1", step=40, size_bytes=14, nodes=["box"])
    stopped = types.TRIAL_STATE_STOPPED
    head.add_study("digits", trial(1, state=stopped, checkpoint=saved, step=40))
    head.checkpoint = [pb.DownloadCheckpointResponse(name="manifest.json", data=b'{"step": 40}')]
    fetched = hermesctl("checkpoint", "download", "digits/1", "--to", str(tmp_path / "c"))
    assert "written when its program has ended, and digits/1 is stopped" in fetched.stderr
    assert "it loads without Hermes" not in fetched.stderr


def test_the_study_file_of_a_study_can_be_had_back(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    text = hermesctl("study", "show", "digits", "--file").stdout
    assert yaml.safe_load(text)["schedule"] == {"policy": "best_first"}


def test_the_help_says_every_exit_code(state: Path) -> None:
    for noun in ("study", "trial", "checkpoint", "node", "local"):
        assert "Usage:" in hermesctl(noun, "--help").stdout
    lines = [line.split(maxsplit=1) for line in hermesctl("--help").stdout.splitlines()]
    told = {line[0]: line[1].strip() for line in lines if len(line) == 2}
    assert all(told[str(int(code))] == code.meaning for code in ExitCode)


def test_completion_scripts_are_printed(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for shell in ("bash", "zsh", "fish"):
        monkeypatch.setenv("_HERMESCTL_COMPLETE", "")  # put back what the command leaves
        script = hermesctl("completion", shell)
        assert script.exit_code == 0
        assert f"_HERMESCTL_COMPLETE=complete_{shell}" in script.stdout
    monkeypatch.setenv("_HERMESCTL_COMPLETE", "")
    assert hermesctl("completion", "powershell").exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["st"], ["status", "study"]),
        (["study", "sh"], ["show"]),
        (["study", "show", ""], ["digits", "mnist"]),
        (["trial", "show", ""], ["digits/", "mnist/"]),
        (["trial", "pause", "dig"], ["digits/1", "digits/2"]),
        (["trial", "digits/2", "-o", "j"], ["json"]),
        (["node", "drain", ""], ["box"]),
        (["node", "release", "b"], ["box"]),
        (["submit", "--pool", ""], ["default"]),
        (["best", "digits", "--metric", "val_l"], ["val_loss"]),
        (["trial", "curve", "digits/1", "--metric", ""], ["val_loss", "val_acc"]),
        (["study", "metric", "digits", "l"], []),
        (["trial", "fork", "digits/1", "--set", "l"], ["lr=0.1"]),
        (["study", "extend", "digits", "--set", "opt"], ["optimizer=adam"]),
        (["study", "extend", "nothing", "--set", ""], []),
        (["submit", "train.py", "--grid", ""], ["epochs=", "lr="]),
        (["submit", "--local", "train.py", "--grid", "lr=1,2", "--random", "e"], ["epochs="]),
        (
            ["submit", "train.py", "--set", "schedule.p"],
            ["schedule.policy=", "schedule.placement="],
        ),
        (["verify-resume", "train.py", "--set", "ep"], ["epochs="]),
        (["preview", "none.py", "--grid", ""], []),
        (["submit", "--set", "stop.max_s"], ["stop.max_steps=", "stop.max_seconds="]),
        (["study", "add", "digits", "--grid", ""], ["lr=", "optimizer="]),
        (
            ["study", "clone", "digits", "--set", "resources.dev"],
            ["resources.device_kind=", "resources.devices="],
        ),
        (["--head", "unix:/nobody", "study", "show", ""], []),
        (["study", "show", "--head", "unix:/nobody", ""], []),
    ],
)
def test_a_shell_completes_words_and_names(
    head: FakeHead,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    offered: list[str],
) -> None:
    monkeypatch.chdir(project)
    takes = "p.add_argument('--lr')\np.add_argument('--epochs', '-e')\np.parse_args()\n"
    Path("train.py").write_text(f"import argparse\np = argparse.ArgumentParser()\n{takes}")
    metrics = [pb.MetricValue(name=name, last=0.5) for name in ("val_loss", "val_acc")]
    head.add_study("digits", trial(1, metrics=metrics), trial(2))
    head.add_study("mnist")
    head.nodes[0].pool = "default"
    monkeypatch.setenv("_HERMESCTL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["hermesctl", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    told = CliRunner().invoke(app, [], prog_name="hermesctl")
    assert told.stdout.split() == offered


def test_why_says_which_earlier_studies_count(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    for name in ("digits", "digits/1"):
        lines = hermesctl("why", name).stdout.splitlines()
        assert "earlier studies: monday, whose order says what is probed while it holds" in lines


def test_why_of_a_study_names_a_trial_once(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    head.why = "digits/1 is waiting"
    assert "digits/1: digits/1" not in (said := hermesctl("why", "digits").stdout)
    assert "digits/1 is waiting" in said.splitlines()


def test_why_of_a_study_is_who_is_on_a_device_and_who_is_next(head: FakeHead) -> None:
    head.add_study("digits", trial(1), trial(2, state=RUNNING))
    head.studies["digits"].notices.append("signal loss has not been reported so far")
    for args in (["why", "digits"], ["why"]):
        lines = hermesctl(*args).stdout.splitlines()
        assert lines[1:3] == ["on devices: digits/2", "digits/1: it waits for cpu/0"]
        assert "note: signal loss has not been reported so far" in lines
    head.add_study("done", trial(1, state=COMPLETED), finished=True)
    assert "waits for" not in hermesctl("why", "done").stdout
    assert hermesctl("why", "none").exit_code == ExitCode.NOT_FOUND
