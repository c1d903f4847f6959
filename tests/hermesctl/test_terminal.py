"""`hermesctl` as a process: pipes, terminals, locales, Ctrl-C."""

from __future__ import annotations

import hashlib
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hermesctl.errors import ExitCode
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.forked import Forked
from tests.hermesctl.fake_head import FakeHead, HeadThread, event, trial

HERMESCTL = (sys.executable, "-m", "hermesctl.cli")


def run(
    *args: str, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    forked = Forked("hermesctl", *args, environment=environment)
    return subprocess.CompletedProcess(args, *forked.communicate())


def many(head: FakeHead) -> None:
    head.add_study("digits", *[trial(n) for n in range(1, 3000)])


def test_a_reader_who_leaves_ends_it_quietly(head: FakeHead) -> None:
    many(head)
    for form in ("table", "json"):
        process = subprocess.Popen(
            [*HERMESCTL, "trial", "ls", "-o", form], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 0


def test_a_closed_stdout_is_no_error(head: FakeHead) -> None:
    many(head)
    command = f"exec {' '.join(HERMESCTL)} study ls >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"TERM": "dumb"},
        {"NO_COLOR": "1"},
        {"COLUMNS": "1"},
    ],
    ids=str,
)
def test_any_terminal_will_do(head: FakeHead, environment: dict[str, str]) -> None:
    head.add_study("digits", trial(1, signal=0.5, reason="naïve…"))
    done = subprocess.run(
        [*HERMESCTL, "trial", "show", "digits/1"],
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("no_color", ["", "1"])
def test_whoever_wants_no_color_gets_no_style_at_all(
    head: FakeHead, terminal: Terminal, no_color: str
) -> None:
    head.add_study("digits", trial(1, reason="as it was"))
    terminal.start("study", "retry", "digits", NO_COLOR=no_color)
    assert ("\x1b[" in terminal.until("the words of no output")) == (not no_color)


def test_a_grid_of_very_many_trials_is_asked_about(
    head: FakeHead, terminal: Terminal, project: Path
) -> None:
    values = ",".join(map(str, range(40)))
    flags = ["--grid", f"a={values}", "--grid", f"b={values}"]
    head.add_study(
        "before",
        trial(1, "before", state=types.TRIAL_STATE_COMPLETED, busy_seconds=9.0),
        trial(2, "before", state=types.TRIAL_STATE_CANCELLED, busy_seconds=100.0),
        busy_seconds=109.0,
    )
    head.nodes = [pb.Node(id="box", connected=True, devices=[pb.DeviceStatus()] * 5)]
    with (project / "study.yaml").open("a") as study:
        study.write("resources:\n  devices: 2\n")
    before = head.studies["before"]
    script = (project / "train.py").read_bytes()
    before.program_sha256 = hashlib.sha256(script).hexdigest()
    process = terminal.start("submit", str(project / "study.yaml"), *flags)
    asked = " ".join(terminal.until("[y/N]").split())
    assert "Submit 3,200 trials? Of 9.0 s each, as in before, they take 4 h on 5 devices." in asked
    os.write(terminal.ours, b"n\n")
    assert "nothing was done" in terminal.until("nothing was done")
    assert process.wait() == 0
    assert head.of(pb.SubmitStudyRequest) == []
    assert run("submit", str(project / "train.py"), *flags).returncode == 0, "nobody to ask"


def test_no_head_is_one_message(state: Path) -> None:
    done = run("status")
    assert done.returncode == ExitCode.UNREACHABLE
    assert done.stdout == ""
    words = f"error: no head answers at unix:{state}/head.sock (your own local head)"
    assert done.stderr.startswith(words)


class Terminal:
    """A pseudo terminal with one program on it."""

    def __init__(self) -> None:
        self.ours, self._theirs = pty.openpty()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *args: str, **variables: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "110", "LINES": "30"}
        environment.pop("NO_COLOR", None)
        environment |= variables
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), self._theirs)
        self.process = subprocess.Popen(
            [*HERMESCTL, *args], env=environment, start_new_session=True, **ends
        )
        os.close(self._theirs)
        return self.process

    def until(self, words: str) -> str:
        """What comes until these words (or the end)."""
        text = ""
        while words not in text:
            select.select([self.ours], [], [])
            try:
                text += os.read(self.ours, 65536).decode(errors="replace")
            except OSError:  # the program has closed its end
                break
        return text

    def close(self) -> None:
        os.close(self.ours)
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal of 110 columns and 30 lines."""
    opened = Terminal()
    yield opened
    opened.close()


def test_the_live_view_shows_who_runs_and_ends_with_the_leaderboard(
    head: FakeHead, terminal: Terminal
) -> None:
    running = types.TRIAL_STATE_RUNNING
    head.add_study(
        "digits",
        trial(1, state=running, device="box/cpu0", step=5, planned_steps=10, signal=0.5),
        trial(2),
        best_trial="digits/1",
        best_metric=0.5,
    )
    head.nodes = [pb.Node(id="box", connected=True)]
    process = terminal.start("top", "digits")
    picture = terminal.until("switching")
    for words in ("digits/1", "running", "box/cpu0", "5/10", "next up", "25.0 %", "lr="):
        assert words in picture, words
    process.send_signal(signal.SIGINT)
    rest = terminal.until("the study goes on")
    assert process.wait() == ExitCode.INTERRUPTED, rest
    assert "the study goes on" in rest


def test_keys_change_what_top_shows_and_leave_the_terminal_as_it_was(
    head: FakeHead, terminal: Terminal
) -> None:
    running = types.TRIAL_STATE_RUNNING
    head.add_study("digits", trial(1), trial(2, state=running, device="box/cpu0", rank=2))
    before = termios.tcgetattr(terminal.ours)
    process = terminal.start("top", "digits")
    assert "digits/1" in terminal.until("s sort: running first  f running only")
    for key, words in {
        "?": "pause the display, or let it go on",
        "s": "sort: rank",
        "\x1b[C": "sort: number",
        "\x1b[D": "sort: rank",
        "p": "p go on (held)",
    }.items():
        os.write(terminal.ours, key.encode())
        assert "digits/1" in terminal.until(words), key
    os.write(terminal.ours, b"f")
    table = terminal.until("f all trials").rpartition("trial ")[2].partition("next up")[0]
    assert "digits/2" in table
    assert "digits/1" not in table
    os.write(terminal.ours, b"pxq")
    assert "the study goes on" in terminal.until("goes on\r")
    assert process.wait() == 0
    assert termios.tcgetattr(terminal.ours) == before


def test_top_has_a_screen_of_its_own_until_it_is_left_or_stopped(
    head: FakeHead, terminal: Terminal
) -> None:
    """With the wheel as arrows; a shell that comes up meanwhile has its own screen."""
    head.add_study("digits", trial(1))
    process = terminal.start("top", "digits")
    for _ in range(2):
        begun = terminal.until("? help")
        assert begun.index("\x1b[?1049h") < begun.index("\x1b[?1007h") < begun.index("digits/1")
        process.send_signal(signal.SIGTSTP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        away = terminal.until("\x1b[?1049l")
        assert "\x1b[?1007l" in away
        process.send_signal(signal.SIGCONT)
    terminal.until("? help")
    os.write(terminal.ours, b"q")
    left = terminal.until("goes on\r")
    assert left.index("\x1b[?1007l") < left.index("\x1b[?1049l") < left.index("the study goes on")
    assert process.wait() == 0


def test_a_click_chooses_a_trial_of_top_and_another_opens_it(
    head: FakeHead, terminal: Terminal
) -> None:
    """Once a key has asked for it: else the mouse is the terminal's, which marks text by it."""
    head.add_study("digits", *(trial(n) for n in range(1, 4)))
    head.output = b"the last line\n"
    process = terminal.start("top", "digits")
    terminal.until("? help")
    os.write(terminal.ours, b"pm")
    begun = terminal.until("m mouse off")
    assert "\x1b[?1000h\x1b[?1006h" in begun
    # The next one may have come in part.
    drawn = next(each for each in begun.split("\x1b[H") if "m mouse off" in each)
    picture = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).splitlines()
    row = 1 + next(at for at, line in enumerate(picture) if line.startswith("digits/3"))
    press = f"\x1b[<0;5;{row}M\x1b[<0;5;{row}m".encode()
    os.write(terminal.ours, b"\x1b[<0;5;1M" + press + press)
    assert "the end of the output of digits/3" in terminal.until("the last line")
    os.write(terminal.ours, press)
    terminal.until("next up")
    os.write(terminal.ours, b"\x1b[<64;5;1Ml")
    terminal.until("the output of digits/2")
    os.write(terminal.ours, b"qq")
    assert "\x1b[?1006l\x1b[?1000l" in terminal.until("goes on\r")
    assert process.wait() == 0


def test_a_trial_is_chosen_and_looked_at_in_top(head: FakeHead, terminal: Terminal) -> None:
    running = types.TRIAL_STATE_RUNNING
    head.add_study("digits", trial(1, state=running, device="box/cpu0"), trial(2), trial(3))
    head.output = b"first line\nthe last line\n"
    process = terminal.start("top", "digits")
    terminal.until("? help")
    # Held still, a key that asks for more is answered all the same.
    os.write(terminal.ours, b"pjl")
    assert "the end of the output of digits/2" in terminal.until("the last line")
    os.write(terminal.ours, b"w")
    terminal.until("policy: ")
    assert {request.trial for request in head.of(pb.ExplainTrialRequest)} == {"digits/2"}
    os.write(terminal.ours, b"\x1b[B")
    terminal.until("why digits/3")
    os.write(terminal.ours, b"\x1b")
    terminal.until("next up")
    os.write(terminal.ours, b"/q3\x7f")
    terminal.until("filter: q▏")
    os.write(terminal.ours, b"\x7fCPU0\n")
    # Of the next picture a part may be there as well.
    picture = terminal.until("/ filter: CPU0").partition("/ filter: CPU0")[0]
    picture = picture.rpartition("trial ")[2].partition("next up")[0]
    assert "digits/1" in picture
    assert "digits/2" not in picture
    os.write(terminal.ours, b"q")
    terminal.until("goes on\r")
    assert process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(
    head: FakeHead, terminal: Terminal, number: signal.Signals
) -> None:
    head.add_study("digits", trial(1))
    before = termios.tcgetattr(terminal.ours)
    process = terminal.start("top", "digits")
    terminal.until("q leave")
    assert termios.tcgetattr(terminal.ours) != before
    process.send_signal(number)
    terminal.until("goes on\r")
    process.wait()
    assert termios.tcgetattr(terminal.ours) == before


def test_top_of_a_study_that_has_finished_shows_how_it_ended(
    head: FakeHead, terminal: Terminal
) -> None:
    head.add_study("digits", trial(1, state=types.TRIAL_STATE_COMPLETED), finished=True)
    process = terminal.start("top", "digits")
    shown = terminal.until("never said")
    assert process.wait() == 0
    assert shown.count("rank") == 1
    assert "switch overhead" in shown
    assert "next up" not in shown


def test_ctrl_c_while_following_says_that_the_study_goes_on(
    head: FakeHead, terminal: Terminal, project: Path
) -> None:
    process = terminal.start("submit", str(project / "study.yaml"), "--follow")
    terminal.until("switching")
    process.send_signal(signal.SIGINT)
    said = terminal.until("end it\r")
    assert process.wait() == ExitCode.INTERRUPTED
    assert "digits goes on" in said
    assert "hermesctl study stop digits" in said


def test_the_live_view_outlives_a_head_that_is_away(
    serving: HeadThread, terminal: Terminal
) -> None:
    head = serving.head
    head.add_study("digits", trial(1, state=types.TRIAL_STATE_RUNNING))
    process = terminal.start("top", "digits")
    terminal.until("switching")
    serving.down()
    assert "reconnecting, the trials go on" in terminal.until("the trials go on")
    head.events = [event(1, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)]
    head.studies["digits"].finished = True
    serving.up()
    terminal.until("never said")
    assert process.wait() == 0


def test_a_question_is_asked_on_a_terminal(head: FakeHead, terminal: Terminal) -> None:
    head.add_study("digits", trial(1), trial(2))
    process = terminal.start("study", "stop", "digits")
    assert "Stop 2 trials of digits?" in terminal.until("[y/N]")
    os.write(terminal.ours, b"n\n")
    assert "nothing was done" in terminal.until("nothing was done")
    assert process.wait() == 0
    assert not head.of(pb.StopTrialsRequest)


def test_output_on_a_terminal_has_no_escape_sequences_of_the_trial(
    head: FakeHead, terminal: Terminal
) -> None:
    head.add_study("digits", trial(1))
    head.output = b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jend \xc3\xa9\n"
    process = terminal.start("logs", "digits/1")
    shown = terminal.until("é")
    assert process.wait() == 0
    assert "red end é" in shown
    assert "\x1b" not in shown


def test_what_takes_its_time_says_what_it_does(
    head: FakeHead, terminal: Terminal, tmp_path: Path
) -> None:
    pipe, python = tmp_path / "pipe", tmp_path / "python"
    os.mkfifo(pipe)
    python.write_text(f"#!/bin/sh\ncat {pipe}\n")
    python.chmod(0o755)
    process = terminal.start("doctor", "--python", str(python))
    assert "what it has" in terminal.until("what it has")
    pipe.write_text('[["torch", "2.13.0", ""]]\n')
    shown = terminal.until("completion")
    assert process.wait() in (0, ExitCode.REFUSED)
    assert "with torch 2.13.0" in " ".join(shown.split())


def test_a_head_that_does_not_answer_is_waited_for_visibly(state: Path, terminal: Terminal) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(state / "head.sock"))
        deaf.listen()
        process = terminal.start("study", "ls")
        assert "waiting for the head" in terminal.until("waiting for the head")
        process.send_signal(signal.SIGINT)
        assert process.wait() == ExitCode.INTERRUPTED


def test_ids_are_completed(head: FakeHead) -> None:
    head.add_study("digits", trial(1), trial(2))
    head.add_study("other")

    def complete(words: str) -> list[str]:
        environment = {
            **os.environ,
            "_HERMESCTL_COMPLETE": "complete_bash",
            "COMP_WORDS": f"hermesctl {words}",
            "COMP_CWORD": str(len(words.split(" "))),
        }
        return run(environment=environment).stdout.split()

    assert complete("study show di") == ["digits"]
    assert complete("trial show digits/") == ["digits/1", "digits/2"]
    assert complete("study replay digits --policy best") == ["best_first"]
    assert complete("study replay digits --policy asha,best") == ["asha,best_first"]
    assert "status" in complete("st")


def test_completion_without_a_head_is_silent(state: Path) -> None:
    environment = {
        **os.environ,
        "_HERMESCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": "hermesctl study show ",
        "COMP_CWORD": "3",
    }
    done = run(environment=environment)
    assert (done.stdout.strip(), done.stderr) == ("", "")
