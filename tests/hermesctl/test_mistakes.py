"""What people get wrong on the command line: one message that says what was meant, no traceback."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from hermesctl.cli import app
from hermesctl.errors import ExitCode
from hermesctl.sdk.versions import client_version
from hermesd.pb.hermes.v1 import control_pb2 as pb
from tests.hermesctl.fake_head import FakeHead, trial

USAGE = ExitCode.USAGE
FILES = ["", ".", "/", "study", "a.txt", "none.yaml", "loop.yaml", "d.yaml"]


def told(*args: str, code: ExitCode) -> str:
    """What a failing command says, in one line."""
    result = CliRunner().invoke(app, list(args), prog_name="hermesctl", catch_exceptions=False)
    assert result.exit_code == code, result.output
    assert "│" not in result.stderr
    return " ".join(result.stderr.split())


def shortened(value: object) -> str:
    return " ".join(value)[:30] if isinstance(value, list) else ""


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--grid", "lr="], "--grid lr=: expected values after `=`, for example lr=0.1,0.01"),
        (["--grid", "lr=,"], "expected values after `=`"),
        (["--grid", "lr= "], "expected values after `=`"),
        (["--grid", "lr=0.1, "], "--grid lr=0.1, : expected a value after the last comma"),
        (["--grid", "lr=0.1,,"], "expected a value after the last comma"),
        (["--grid", "=1"], "--grid =1: expected name=value,value"),
        (["--grid", "lr=1", "--grid", "lr=2"], "--grid lr=2: expected each name once"),
        (["--grid", "lr=1e999"], "1e999: expected a number below 1.8e308"),
        (["--grid", "lr=" + "[" * 100], "expected at most 64 levels"),
        (["--set", "method=bayesian"], "expected one of grid, random, tpe, gp, cmaes"),
        (["--set", "=1"], "--set =1: expected key=value"),
        (["--set", "retry.max_failures=1.7"], "max_failures: 1.7: expected a whole number"),
        (["--set", "parameters.x.values=[]"], "x.values: []: expected at least one value"),
        (["--set", "parameters=3"], "expected a mapping from names to their values"),
        (["--set", "program=nosuch.py"], "--set program=nosuch.py: program: nosuch.py: expected"),
        (
            ["--metric", "acc:max"],
            "--metric acc:max: expected NAME:GOAL; did you mean acc:maximize",
        ),
        (["--metric", "acc:Minimise"], "did you mean acc:minimize?"),
        (["--metric", ""], "expected text (leave the key out for the default)"),
        (["--name", "\udcff"], "\\udcff: expected text in UTF-8"),
        (["--env", "A=\udcff"], "\\udcff: expected text in UTF-8"),
        (["--save", "/"], "/: Is a directory"),
        (["--save", "none/x.yaml"], "none/x.yaml: No such file or directory"),
        (["--save", "pipe"], "pipe: Is a named pipe"),
    ],
    ids=shortened,
)
def test_a_submission_that_is_not_meant(
    head: FakeHead, project: Path, args: list[str], words: str
) -> None:
    os.mkfifo(project / "pipe")
    args = [str(project / arg) if arg == "pipe" else arg for arg in args]
    said = told("submit", str(project / "train.py"), *args, code=USAGE)
    assert words in said
    assert "did you mean 1.7" not in said
    assert not head.of(pb.SubmitStudyRequest)


def test_a_metric_may_have_a_colon_in_its_name(head: FakeHead, project: Path) -> None:
    flags = ["--metric", "val:loss"]
    CliRunner().invoke(app, ["submit", str(project / "train.py"), *flags], catch_exceptions=False)
    assert head.of(pb.SubmitStudyRequest)[0].spec.metric.name == "val:loss"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none(
    head: FakeHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "d.yaml").mkdir()
    assert "study file" in told("submit", name, code=USAGE)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("program: pipe", "program: pipe: expected a file below {}; there is a named pipe"),
        ("program: socket", "program: socket: expected a file below {}; there is a socket"),
        ("program: /dev/null", "program: /dev/null: expected a file below /dev; there is a device"),
        ("program: /etc", "program: /etc: expected a file below /; there is a directory"),
        ("program: .", "program: .: expected a file below {}; there is a directory"),
        ("program: nil.py", "program: nil.py: expected a file below {}; there is no such file"),
        ("requirements: pipe", "requirements: pipe: expected a requirements file in {}"),
        ("command: []", "command: []: expected a program to run (leave the key out for the"),
        ('command: ""', "command: nothing: expected a program to run (leave the key out"),
        ('command: [x, "a\\0b"]', "command[1]: a\\x00b: expected text without NUL"),
        ('parameters: {a: {value: "x\\0"}}', "parameters.a.value: x\\x00: expected text without"),
        ('parameters: {"a\\0": {value: 1}}', "parameters: a\\x00: expected text without NUL"),
        ('program: "t\\0.py"', "program: t\\x00.py: expected text without NUL"),
        ('requirements: "r\\0"', "requirements: r\\x00: expected text without NUL"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_sent(
    head: FakeHead, project: Path, line: str, words: str
) -> None:
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(project / "socket"))
    file = project / "bad.yaml"
    file.write_text(line if line.startswith("program") else f"program: train.py\n{line}")
    said = told("submit", str(file), code=USAGE)
    assert words.format(project) in said
    assert said.count("error:") == said.count(": expected") == 1
    assert not head.of(pb.SubmitStudyRequest)


@pytest.mark.parametrize("name", ["study.yaml", "train.py"])
def test_a_named_pipe_is_no_study(head: FakeHead, tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert "a named pipe" in told("submit", str(tmp_path / name), code=USAGE)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["best", "-n", "99999999999"], USAGE, "error: --count: 99999999999: expected "),
        (["best", "-n", "0"], USAGE, "error: --count: 0: expected 1 "),
        (["best", "-n0"], USAGE, "error: --count: 0: expected 1 "),
        (["study", "replay", "--devices=x"], USAGE, "--devices: x: expected a whole number"),
        (["study", "replay", "--devics", "3"], USAGE, "did you mean --devices?"),
        (["study", "replay", "--devices"], USAGE, "--devices: expected a value after it"),
        (["study", "show"], USAGE, "STUDY: expected a value: a study's id, or a unique prefix"),
        (["trial", "curve", "a/1", "val_loss"], USAGE, "did you mean --metric val_loss?"),
        (["audit", "--lines", "3"], USAGE, "did you mean --last?"),
        (["logs", "a/1", "--tail", "3"], USAGE, "did you mean --lines?"),
        (["logs", "a/1", "-n", "3", "--last", "4B"], USAGE, "--lines and --last: expected one"),
        (
            ["best", "digits", "--metric", "x", "--goal", "maximise"],
            USAGE,
            "did you mean maximize?",
        ),
        (["best", "digits", "--metric", "x", "--goal", "min"], USAGE, "did you mean minimize?"),
        (["study", "show", "a", "b"], USAGE, "b: expected nothing more after `hermesctl study s"),
        (["best", "-o", "yml"], USAGE, "--output: yml: expected one of table, wide, json, yaml,"),
        (["completion", "fsh"], USAGE, "SHELL: fsh: expected one of bash, zsh, fish; did you m"),
        (["submit", "x.py", "--local=3"], USAGE, "--local: 3: expected no value"),
        (["--hea", "x", "status"], USAGE, "did you mean --head?"),
        (["trial", "curve", "digits/1", "--points", "99999999999"], USAGE, "--points"),
        (["tail", "--after", "99999999999999999999"], USAGE, "--after"),
        (["tail", "-o", "yaml"], USAGE, "expected table or json"),
        (["login", "gpu1", "token"], USAGE, "gpu1: expected HOST:PORT, for example gpu1"),
        (["logs", "digits/1", "--last", "-5B"], USAGE, "expected a size such as 64KiB"),
        (["study", "extend", "digits"], USAGE, "expected --set KEY=VALUE, for example"),
        (
            ["study", "extend", "digits", "--set", "parameters.lr.values=1"],
            USAGE,
            "expected a parameter by its name: --set NAME=VALUE",
        ),
        (["study", "extend", "digits", "--set", "stop=3"], USAGE, "expected stop.KEY=VALUE"),
        (
            ["study", "add", "digits", "--set", "lr=1", "--grid", "lr=1,2"],
            USAGE,
            "lr: expected one of --set, --grid and --random of a name",
        ),
        (["study", "add", "digits", "--set", "lr"], USAGE, "expected NAME=VALUE, for example"),
        (["study", "add", "digits", "--trials", "0"], USAGE, "--trials"),
        (["trial", "tag", "digits/1"], USAGE, "expected trials and tags, for example digits/3 ba"),
        (["trial", "tag", "baseline"], USAGE, "expected trials and tags"),
        (["study", "pasue", "digits"], USAGE, "did you mean pause?"),
        (["study", "delete", "digits"], USAGE, "did you mean hermesctl study rm?"),
        (["delete", "digits"], USAGE, "did you mean hermesctl study rm?"),
        (["study", "watch", "digits"], USAGE, "study watch: expected one of ls, show, pause, "),
        (["study", "wait", "digits"], USAGE, "did you mean hermesctl status --wait?"),
        (["wait"], USAGE, "wait: expected a command; did you mean hermesctl status --wait?"),
        (["study", "wait"], ExitCode.NOT_FOUND, "wait; did you mean hermesctl status --wait?"),
        (["ls"], USAGE, "ls: expected a command; did you mean hermesctl study ls or trial ls or"),
        (["ps"], USAGE, "ps: expected a command; did you mean hermesctl status or local status?"),
        (["study", "\udcff"], USAGE, "expected text in UTF-8"),
        (
            ["stauts"],
            USAGE,
            "stauts: did you mean status? Expected one of the commands submit, preview, status, ",
        ),
        (["stauts"], USAGE, "did you mean status?"),
        (["pause", "digits"], USAGE, " study pause or trial pause?"),
        (["study", "fork", "digits/1"], USAGE, " trial fork?"),
        (["trial", "logs", "digits/1"], USAGE, " logs?"),
        (["trial", "stop", "digits"], USAGE, "digits: expected a trial, `study/17`"),
        (["checkpoint", "none"], ExitCode.NOT_FOUND, "no study none"),
        (["--head", "", "status"], USAGE, "expected HOST:PORT"),
        (["--head", "unix:/none", "status"], ExitCode.UNREACHABLE, "there is no such socket"),
    ],
    ids=shortened,
)
def test_a_command_that_is_not_meant(
    head: FakeHead, args: list[str], code: ExitCode, words: str
) -> None:
    head.add_study("digits", trial(1))
    assert words in told(*args, code=code)


def test_a_problem_without_a_line_names_the_file_at_least(head: FakeHead, project: Path) -> None:
    head.failures["SubmitStudy"] = [(grpc.StatusCode.INVALID_ARGUMENT, "1 error")] * 2
    head.field_errors = [pb.FieldError(field_path="run_cap", expected="a number of trials")]
    file = project / "study.yaml"
    words = f"error: {file}: run_cap: expected a number of trials"
    assert told("submit", str(file), code=USAGE) == words
    head.add_study("digits", trial(1))
    head.field_errors[0].field_path = "schedule.policy"
    flags = ["--set", "schedule.policy=x"]
    words = "error: --set schedule.policy=x: schedule.policy: expected"
    assert told("study", "clone", "digits", *flags, code=USAGE).startswith(words)


@pytest.mark.parametrize("place", ["/proc/none", __file__])
def test_a_state_directory_that_cannot_be(
    state: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("HERMES_STATE", place)
    assert "name a directory of your own in HERMES_STATE" in told("local", "start", code=USAGE)


def test_bytes_that_are_no_text_are_one_message(head: FakeHead, project: Path) -> None:
    command = [sys.executable, "-m", "hermesctl.cli", "submit", str(project / "train.py")]
    done = subprocess.run(
        [*map(os.fsencode, command), b"--name", b"\xff"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (USAGE, b"error: \\udcff: expected text in UTF-8\n")


def test_the_version_can_be_asked_for_as_everywhere(state: Path) -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout.strip() == client_version()


@pytest.mark.parametrize(
    "words",
    ["best", "study ls -o json", "logs digits/1", "--version", "version", "completion bash"],
)
def test_a_full_disk_is_one_message(head: FakeHead, words: str) -> None:
    head.add_study("digits", trial(1))
    head.output = b"hello\n"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hermesctl.cli", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.stderr == b"error: what was to be written: No space left on device\n"
    assert done.returncode == USAGE


@pytest.mark.parametrize("args", [["--set", "\x1b[31mx"], ["--grid", "\x1b[31mx"]], ids=shortened)
def test_a_flag_is_said_without_its_escape_sequences(
    head: FakeHead, project: Path, args: list[str]
) -> None:
    said = told("submit", str(project / "train.py"), *args, code=USAGE)
    assert "\x1b" not in said
    assert f"{args[0]} \\x1b[31mx: expected" in said


def test_a_stop_tells_what_is_lost_by_it(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    head.stop_notes = ["no checkpoint can be taken of digits/1 (2 steps)"]
    for args in (["trial", "stop", "digits/1"], ["study", "stop", "digits"]):
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 0
        assert "note: no checkpoint can be taken of digits/1 (2 steps)" in result.stderr


def test_a_method_that_lacks_its_library_is_named_as_it_was_written(
    head: FakeHead, project: Path
) -> None:
    file = project / "study.yaml"
    file.write_text(file.read_text().replace("method: grid", "method: bayes"))
    head.failures["SubmitStudy"].append((grpc.StatusCode.INVALID_ARGUMENT, "no"))
    head.field_errors = [pb.FieldError(field_path="method", value="tpe", expected="optuna")]
    assert "method: bayes: expected optuna" in told("submit", str(file), code=USAGE)


@pytest.mark.parametrize("started_as", ["hermesctl", "notebook"])
def test_a_command_that_is_interrupted_while_it_is_imported_has_done_nothing(
    started_as: str,
) -> None:
    code = f"""
import builtins, os, signal, sys
sys.argv[0] = "/usr/bin/{started_as}"
real = builtins.__import__
def hooked(name, *rest, **more):
    if name == "grpc":
        builtins.__import__ = real
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest, **more)
builtins.__import__ = hooked
import hermesctl.cli
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    quiet = (-signal.SIGINT, "\nnothing was done\n")
    assert ((done.returncode, done.stderr) == quiet) == (started_as == "hermesctl")


def test_an_interrupt_is_an_answer_to_a_question(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hermesctl.cli", "study", "rm", "digits"]
    with subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while not (asked := process.stderr.read(1)).endswith(b"]"):
            assert asked
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().endswith(b"nothing was done\n")
    assert process.returncode == ExitCode.INTERRUPTED
    assert "digits" in head.studies
    os.close(ours)
    os.close(theirs)
