"""The daemons' command line: refusals have reasons and exit codes that do not change."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import sqlite3
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path

import grpc.aio
import pytest
import structlog
from typer.testing import CliRunner

from hermesd import cli
from hermesd.cli import IN_THE_WAY, REFUSED, app
from hermesd.head.journal import schema
from hermesd.head.journal.store import opened
from hermesd.head.statedir import owned
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc
from tests.head.heads import world
from tests.study_specs import spec

RUNNER = CliRunner()
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """A command sets logging up for its own process; this one goes on."""
    yield
    structlog.reset_defaults()


def run(*arguments: str) -> tuple[int, str]:
    result = RUNNER.invoke(app, list(arguments), catch_exceptions=False)
    return result.exit_code, result.output


def test_a_python_that_cannot_unpack_code_safely_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={'.'.join(map(str, cli.OLDEST_PYTHON))}"
    monkeypatch.setattr(sys, "version_info", (3, 11, 2, "final", 0))
    monkeypatch.setattr("platform.python_version", lambda: "3.11.2")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == REFUSED
    said = "is Python 3.11.2: expected 3.11.4 or later\n"
    assert capsys.readouterr().err == f"hermesd: {sys.executable} {said}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("head", "--listen", "x"), "--listen: head.listen = x: expected host:port"),
        (("head", "--config", "/nowhere"), "/nowhere: cannot be read"),
        (("node", "--name", "A B"), "--name: node.name = A B: expected 1 to 63"),
        (("node", "--slots", "-1"), "node.cpu_slots = -1: expected from 0 to 4096 slots"),
        (("node", "--head", "x"), "node.head = x: expected host:port"),
    ],
)
def test_bad_settings_are_named_and_exit_2(arguments: tuple[str, ...], words: str) -> None:
    code, output = run(*arguments)
    assert code == REFUSED
    assert words in output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("simulate --processes 0", "--processes = 0: expected 1 or more"),
        ("simulate --orders=many", "--orders = many: expected a whole number"),
        ("forecast --trials 0 x", "--trials = 0: expected 1 or more"),
        ("forecast x", "--trials: expected a value: number of trials in the planned study"),
        ("forecast", "EXPORT: expected a value: what `hermesctl study export` wrote"),
        ("head extra", "extra: expected nothing more after `hermesd head`"),
        (
            "head --repiar",
            "--repiar: expected one of the options --config, --state, --socket, --listen,"
            " --embedded, --repair, --help (did you mean --repair?)",
        ),
        ("policy chek x", "chek: expected one of the commands check (did you mean check?)"),
        ("node joi", "joi: expected one of the commands join (did you mean join?)"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_one_line(words: str, said: str) -> None:
    result = RUNNER.invoke(app, words.split(), prog_name="hermesd", catch_exceptions=False)
    assert (result.exit_code, result.output) == (REFUSED, f"hermesd: {said}\n")


def test_a_head_that_was_never_joined_is_refused_with_the_way_in(tmp_path: Path) -> None:
    code, output = run("node", "--state", str(tmp_path), "--head", "10.1.2.3:7411")
    assert code == REFUSED
    assert "or a node that has joined it (`hermesd node join`)" in output
    code, output = run("node", "join", "10.1.2.3:7411", "no-token", "--state", str(tmp_path))
    assert code == REFUSED
    assert "the token is incomplete" in output
    assert not (tmp_path / "membership").exists()
    join = ("node", "join", "10.1.2.3:7411", "--state", str(tmp_path))
    assert "either as TOKEN or in --token-file" in run(*join)[1]
    assert "the token is incomplete" in run(*join, "--token-file", "-")[1]


@pytest.mark.root
@pytest.mark.parametrize(
    "words",
    [
        "node --state {}",
        "node --state {} --head unix:/nowhere",
        "node join --enroll-only --state {} 10.1.2.3:7411 x",
        "head --state {} --embedded",
        "head --state {} --repair",
        "backup --state {} {}/b.tar",
    ],
)
def test_whose_the_state_is_is_told_to_another_account(words: str) -> None:
    """A newcomer forgets `sudo -u`."""
    for late in (
        "head.journal.backup",
        "head.journal.repair",
        "head.server",
        "commands.join",
        "node.daemon",
    ):
        import_module(f"hermesd.{late}")  # the other account may not read this interpreter's files
    with tempfile.TemporaryDirectory() as state:  # where other accounts may enter
        (Path(state) / "membership").mkdir()
        os.chown(state, pwd.getpwnam("daemon").pw_uid, -1)
        os.seteuid(65534)
        try:
            code, output = run(*words.format(state, state).split())
        finally:
            os.seteuid(0)
    assert code != 0
    (line,) = output.splitlines()
    assert line.startswith(f"hermesd: {state}")
    whose = f"{state} belongs to daemon: run this as that user (sudo -u daemon)"
    assert line.endswith(f": Permission denied for nobody; {whose}")


def test_a_second_head_is_in_the_way_for_a_while(tmp_path: Path) -> None:
    with owned(tmp_path):
        code, output = run("head", "--state", str(tmp_path), "--embedded")
    assert code == IN_THE_WAY
    assert "another head (pid " in output


def test_a_damaged_journal_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / schema.NAME).write_bytes(b"no database, to be sure" * 100)
    code, output = run("head", "--state", str(tmp_path), "--embedded")
    assert code == REFUSED
    assert "`hermesd head --repair` sets aside what cannot be read" in output


def test_there_is_help_without_arguments() -> None:
    code, output = run()
    assert code == 0
    for command in ("head", "node", "local"):
        assert command in output


async def test_a_daemon_hears_a_signal_that_its_starter_has_blocked(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        head = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hermesd.cli", "head", "--embedded", "--state", str(tmp_path)),
            stderr=asyncio.subprocess.PIPE,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert head.stderr is not None
    while b"head ready" not in await head.stderr.readline():
        pass
    head.terminate()
    assert await head.wait() == 0


async def test_a_disk_that_is_full_ends_the_head_with_a_line_and_no_traceback(
    tmp_path: Path,
) -> None:
    command = ["hermesd.cli", "head", "--embedded", "--state", str(tmp_path)]
    head = await asyncio.create_subprocess_exec(
        # No file may grow beyond this: to a program much the same as a disk without room.
        *("prlimit", "--fsize=200000", sys.executable, "-m", *command),
        stderr=asyncio.subprocess.PIPE,
    )
    assert head.stderr is not None
    while b"head ready" not in await head.stderr.readline():
        pass
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/head.sock") as channel:
        study = spec({"lr": {"values": [n / 7 for n in range(5_000)]}})
        request = pb.SubmitStudyRequest(request_id="r" * 16, spec=study)
        call = control_pb2_grpc.ControlServiceStub(channel).SubmitStudy(request)
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
    said = (await head.stderr.read()).decode()
    assert await head.wait() == 1
    assert "hermesd: a commit failed: " in said
    assert "Traceback" not in said


async def test_a_backup_says_what_is_in_it(tmp_path: Path) -> None:
    state, file = tmp_path / "head", tmp_path / "saved.tar"
    words = ("backup", str(file), "--state", str(state))
    assert run(*words) == (REFUSED, f"hermesd: {state}: there is no journal here\n")
    async with world(state) as head:
        await head.submit(spec({"lr": {"value": 1.0}}))
        code, output = await asyncio.to_thread(run, *words)
    assert (code, output) == (0, f"{file}: {file.stat().st_size} bytes, 1 entries of the journal\n")
    assert run(*words) == (REFUSED, f"hermesd: {file} exists\n")


async def test_repair_tells_what_it_sets_aside(tmp_path: Path) -> None:
    code, output = run("head", "--state", str(tmp_path), "--repair")
    assert (code, "there is no journal to repair" in output) == (REFUSED, True)
    async with world(tmp_path) as head:
        await head.submit()
        await head.submit(spec(name="other"))
    code, output = run("head", "--state", str(tmp_path), "--repair")
    assert (code, "nothing is wrong; nothing was changed" in output) == (0, True)
    with closing(sqlite3.connect(tmp_path / schema.NAME)) as connection:
        connection.execute("UPDATE journal SET kind = 'Teleported' WHERE seq = 1")
        connection.commit()
    code, output = run("head", "--state", str(tmp_path), "--repair")
    assert code == 0
    assert "set aside: 1: entry 1: its checksum does not agree: Teleported" in output
    assert f"the damaged files are in {tmp_path}/set-aside-" in output
    async with opened(tmp_path) as journal:
        assert journal.last == 1
