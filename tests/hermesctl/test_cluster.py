"""`hermesctl cluster launch`: the script that Slurm gets, and what is said when it takes none.

The sbatch is a small program on PATH; a real one is met in tests/slurm.
"""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermesctl.commands import cluster
from hermesctl.errors import ExitCode
from hermesctl.sdk.records import Invited
from hermesd.security.identity import SECRET_BYTES, Invitation
from tests.hermesctl.fake_head import FakeHead
from tests.hermesctl.test_cli import hermesctl

ASK = ("cluster", "launch", "--slurm", "--nodes", "2", "--cpus-per-node", "3", "--time", "1d12h")
SECRET = "c2VjcmV0"


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put an sbatch with this body before all others on PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def put(body: str) -> None:
        program = tmp_path / "bin" / "sbatch"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)

    return put


@pytest.fixture
def invited(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What was asked of the head, which invites everybody."""
    asked: list[tuple[object, ...]] = []

    async def invite(connection: object, *words: object, own: bool) -> Invited:
        asked.append(words)
        return Invited(SECRET, "10.0.0.1:7411")

    monkeypatch.setattr(cluster, "invite", invite)
    return asked


def lines(*words: str) -> list[str]:
    done = hermesctl(*words, "--dry-run")
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def test_the_script_asks_slurm_for_what_was_asked_for() -> None:
    asked = lines(*ASK, "--own", "--notice", "5m", "-p", "gpu", "-A", "lab", "--sbatch=--qos=high")
    options = [line.removeprefix("#SBATCH ") for line in asked if line.startswith("#SBATCH")]
    assert {
        "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=3", "--time=1-12:00:00",
        "--signal=USR1@300", "--requeue", "--partition=gpu", "--account=lab", "--qos=high",
    } <= set(options)  # fmt: skip
    assert not any("gpus" in option for option in options)


def test_gpus_are_those_of_the_allocation_and_then_there_are_no_slots() -> None:
    text = "\n".join(lines("cluster", "launch", "--slurm", "--gpus-per-node", "2"))
    assert "#SBATCH --gpus-per-node=2" in text
    assert 'HERMES_NODE_VISIBLE_GPUS="$CUDA_VISIBLE_DEVICES"' in text
    assert "--slots 0" in text
    assert "--slots 3" in "\n".join(lines(*ASK))


def test_bash_can_read_the_script_whatever_the_directory_is_called(tmp_path: Path) -> None:
    odd = tmp_path / "a 'b' $c"
    text = "\n".join(lines(*ASK, "--share", str(odd)))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    told = subprocess.run(
        ["bash", "-c", text.split("export -f")[0] + 'printf %s "$LAUNCH"'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout == str(odd / "LAUNCH")


@pytest.mark.parametrize(
    ("own", "during", "signal", "is_kept"),
    [
        ((), False, "", False),
        ((), False, "kill -TERM $PPID", False),
        (("--own",), True, "", False),
        (("--own",), True, "kill -TERM $PPID", True),
    ],
)
def test_a_token_for_everybodys_nodes_is_gone_before_they_start_and_ones_own_may_stay(
    tmp_path: Path, own: tuple[str, ...], during: bool, signal: str, is_kept: bool
) -> None:
    """One's own stays with a job that may be requeued."""
    (tmp_path / "LAUNCH").mkdir()
    token = tmp_path / "LAUNCH" / "token"
    token.write_text(SECRET)
    srun = tmp_path / "srun"
    there = f"{'!' if during else ''} test -e {token}"
    told = f'test "$(cat)" = {SECRET} || exit 1'
    srun.write_text(f"#!/bin/sh\n{told}\n{there} && exit 2\n{signal}\nexit 7\n")
    srun.chmod(0o755)
    text = "\n".join(lines(*ASK, *own, "--share", str(tmp_path)))
    done = subprocess.run(
        ["bash"], input=text, text=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    assert (done.returncode, token.exists()) == (7, is_kept)


def test_the_token_is_in_a_file_of_the_user_alone_and_nowhere_else(
    head: FakeHead,
    sbatch: Callable[[str], None],
    invited: list[tuple[object, ...]],
    tmp_path: Path,
) -> None:
    sbatch(
        f'echo "$@" >{tmp_path}/words; cat "$2" >{tmp_path}/script; env >{tmp_path}/env; echo 17'
    )
    done = hermesctl(*ASK, "--share", str(tmp_path / "s"), "-o", "json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["version"], told["job"], told["nodes"]) == (1, "17", 2)
    [folder] = (tmp_path / "s").iterdir()
    assert (folder / "token").read_text() == SECRET
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert told["script"] == str(folder / "job.sh")
    assert told["log"] == str(folder / "17.log")
    for name in ("words", "script", "env"):
        assert SECRET not in (tmp_path / name).read_text()
    [(role, name, seconds, uses)] = invited
    assert (str(role), name, seconds) == ("node", "", 30 * 86_400)
    assert uses == 2, "once they have joined, it opens nothing"


def test_nodes_of_ones_own_may_join_again_when_the_job_is_requeued(
    head: FakeHead,
    sbatch: Callable[[str], None],
    invited: list[tuple[object, ...]],
    tmp_path: Path,
) -> None:
    sbatch("echo 17")
    done = hermesctl(*ASK, "--own", "--share", str(tmp_path / "s"))
    assert done.exit_code == 0, done.stderr
    assert invited[0][-1] == 2 * (1 + cluster.REQUEUES)
    assert "--no-requeue" in "\n".join(lines(*ASK))


def test_nodes_for_everybody_need_no_admin_but_what_one_printed(
    sbatch: Callable[[str], None], tmp_path: Path
) -> None:
    """No head is asked: the token opens the pool that it was made for, and nothing else."""
    sbatch("echo 17")
    token = Invitation(b"s" * SECRET_BYTES, 7412, b"authority").token()
    given = tmp_path / "given"
    for words in (f"hermesd node join 10.0.0.1:7411 {token} --name n\n", f"10.0.0.1:7411 {token}"):
        given.write_text(words)
        share = tmp_path / str(len(words))
        done = hermesctl(*ASK, "--share", str(share), "--token-file", str(given))
        assert done.exit_code == 0, done.stderr
        [folder] = share.iterdir()
        assert (folder / "token").read_text() == token
        assert (folder / "head").read_text() == "10.0.0.1:7411"
    for words in ("", "nothing", f"hermesd node join {token}", f"10.0.0.1:7411 {token[:-9]}"):
        given.write_text(words)
        done = hermesctl(*ASK, "--share", str(tmp_path / "s"), "--token-file", str(given))
        assert done.exit_code == ExitCode.USAGE
        assert done.stderr.startswith("error: --token-file: ")
    done = hermesctl(*ASK, "--own", "--token-file", str(given))
    assert "the token in --token-file decides whose trials" in done.stderr


def test_what_sbatch_refuses_is_said_and_nothing_stays(
    head: FakeHead,
    sbatch: Callable[[str], None],
    invited: list[tuple[object, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken_back = []

    async def take_back(connection: object, unused: Invited) -> None:
        taken_back.append(unused.token)

    monkeypatch.setattr(cluster, "take_back", take_back)
    sbatch("echo 'sbatch: error: invalid partition specified: gpux' >&2; exit 1")
    done = hermesctl(*ASK, "--share", str(tmp_path / "s"))
    assert done.exit_code == ExitCode.REFUSED
    assert "Slurm took no job: error: invalid partition specified: gpux" in done.stderr
    assert list((tmp_path / "s").iterdir()) == []
    assert taken_back == [SECRET]


def test_without_sbatch_it_says_where_to_go(
    head: FakeHead,
    invited: list[tuple[object, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = hermesctl(*ASK, "--share", str(tmp_path / "s"))
    assert done.exit_code == ExitCode.REFUSED
    assert "run this on a machine from which jobs are submitted" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--nodes", "2"), "expected --slurm"),
        (("--slurm",), "nodes without devices"),
        ((*ASK[2:], "--time", "soon"), "--time: soon: expected a duration such as 8h"),
        ((*ASK[2:], "--time", "11m"), "--time: 660 s: expected at least 720 s"),
        ((*ASK[2:], "--notice", "1d"), "--notice: 86400 s: expected up to 65535 s"),
        ((*ASK[2:], "-p", "a b"), "--partition: a b: expected a name that Slurm accepts"),
        ((*ASK[2:], "--sbatch", "qos"), "--sbatch: qos: expected an option such as --qos=high"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anybody_is_asked(
    words: tuple[str, ...], told: str
) -> None:
    done = hermesctl("cluster", "launch", *words, "--dry-run")
    assert done.exit_code == ExitCode.USAGE
    assert told in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("8h", 28_800),
        ("1d12h", 129_600),
        ("90m", 5_400),
        ("1:30:00", 5_400),
        ("2-0:00:30", 172_830),
    ],
)
def test_durations_are_ours_or_slurms(text: str, seconds: int) -> None:
    assert cluster.seconds_of(text, "--time") == seconds
