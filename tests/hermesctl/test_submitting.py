"""What `submit` saves, sends and compares: a study is the same wherever it is submitted from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner, Result

from hermesctl.cli import app
from hermesctl.errors import ExitCode, StudyFileError, UsageError
from hermesctl.sdk import local
from hermesctl.sdk.async_client import AsyncClient
from hermesd.pb.hermes.v1 import control_pb2 as pb
from tests.hermesctl.fake_head import FakeHead, trial


def submit(*args: str | Path) -> Result:
    return CliRunner().invoke(app, ["submit", *map(str, args)], catch_exceptions=False)


def test_a_file_saved_elsewhere_is_the_same_study(
    head: FakeHead, project: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved.yaml"
    flags = ["--grid", "lr=1e-3,5e-4", "--save", saved]
    assert submit(project / "train.py", *flags).exit_code == 0
    assert submit(saved).exit_code == 0
    first, second = head.of(pb.SubmitStudyRequest)
    assert first.spec == second.spec
    assert first.submit_directory == second.submit_directory == str(project)


@pytest.mark.parametrize("way", ["script", "study file beside it", "study file elsewhere"])
def test_an_option_of_the_script_that_is_almost_a_key_is_a_parameter(
    head: FakeHead, project: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = project / "train.py"
    takes = "p.add_argument('--model')\np.parse_args()\n"
    script.write_text(f"import argparse\np = argparse.ArgumentParser()\n{takes}")
    monkeypatch.chdir(project)
    file = (tmp_path if "elsewhere" in way else project) / "study.yaml"
    file.write_text("program: train.py\nmethod: grid\n")
    given = script if way == "script" else file
    assert submit(given, "--set", "model=vgg").exit_code == 0
    (sent,) = head.of(pb.SubmitStudyRequest)
    assert [each.name for each in sent.spec.parameters] == ["model"]
    refused = submit(given, "--set", "mode=best")
    assert "did you mean metric.mode?" in refused.stderr, "no such option, though --model begins so"


def test_what_the_script_does_not_take_is_refused_unless_one_insists(
    head: FakeHead, project: Path
) -> None:
    script = project / "train.py"
    takes = "p.add_argument('--lr')\np.add_argument('--data', required=True)\np.parse_args()\n"
    script.write_text(f"import argparse\np = argparse.ArgumentParser()\n{takes}")
    flags = ["--grid", "lrr=1e-3,5e-4"]
    wrong = "--grid lrr=1e-3,5e-4: parameters.lrr: expected an option of train.py; did you mean lr?"
    lacks = "parameters: expected --data, which train.py requires (`--set parameters.data.value="
    refused = submit(script, *flags)
    assert refused.exit_code == 2
    assert f"error: {wrong}\n" in refused.stderr
    assert refused.stderr.endswith("add --yes\n")
    assert not head.requests
    shown = submit(script, *flags, "--dry-run")
    assert shown.exit_code == 0
    assert f"note: {wrong}\n" in shown.stderr
    assert lacks in shown.stderr
    insisted = submit(script, *flags, "--yes")
    assert insisted.exit_code == 0
    assert f"note: {wrong}\n" in insisted.stderr
    taken = submit(script, "--grid", "lr=1e-3,5e-4", "--set", "parameters.data.value=here")
    assert taken.exit_code == 0
    assert "expected" not in taken.stderr
    # In no other case: it may read its options elsewhere, or not at all.
    assert submit(script, "--grid", "momentum=0.1,0.2").exit_code == 0
    study = project / "by_variable.yaml"
    study.write_text(
        "program: train.py\nmetric: {name: loss}\ncommand: ['${interpreter}', '${program}']\n"
        "parameters: {lrr: {values: [1, 2]}}\n"
    )
    assert submit(study).exit_code == 0
    script.write_text("import sys\nprint(sys.argv)\n")
    assert submit(script, *flags).exit_code == 0, "it may take more than its source shows"


def test_a_value_that_the_script_cannot_read_is_refused_unless_one_insists(
    head: FakeHead, project: Path
) -> None:
    script = project / "train.py"
    takes = "p.add_argument('--lr', type=float)\np.add_argument('--on')\np.parse_args()\n"
    script.write_text(f"import argparse\np = argparse.ArgumentParser()\n{takes}")
    flags = ["--grid", "lr=0.1,abc", "--grid", "on=true,words"]
    wrong = (
        "--grid lr=0.1,abc: parameters.lr.values[1]: abc: expected a number, as train.py reads"
        " --lr by float"
    )
    refused = submit(script, *flags)
    assert refused.exit_code == ExitCode.USAGE
    assert f"error: {wrong}\nNothing was submitted" in refused.stderr
    assert not head.requests
    shown = submit(script, *flags, "--dry-run")
    assert (shown.exit_code, shown.stderr.count(f"note: {wrong}\n")) == (0, 1)
    assert submit(script, *flags, "--yes").exit_code == 0
    study = project / "study.yaml"
    study.write_text("program: train.py\nparameters: {lr: {value: fast}}\n")
    assert f"{study}:2:" in submit(study).stderr
    study.write_text("program: train.py\nparameters: {lr: {values: [1, 2e-3, '3']}}\n")
    assert submit(study).exit_code == 0


@pytest.mark.parametrize(
    ("what", "hashed"),
    [
        ("program: train.py", "train.py"),
        ("command: [python, train.py]", "train.py"),
        ("command: [python, -m, http.server]", ""),
    ],
)
def test_what_the_trials_run_goes_along_as_a_hash(
    head: FakeHead, project: Path, what: str, hashed: str
) -> None:
    file = project / "study.yaml"
    file.write_text(f"{what}\nmethod: grid\nparameters:\n  lr: {{values: [0.1, 0.2]}}\n")
    assert submit(file).exit_code == 0
    expected = hashlib.sha256((project / hashed).read_bytes()).hexdigest() if hashed else ""
    assert head.of(pb.SubmitStudyRequest)[0].program_sha256 == expected


def test_a_clone_runs_the_same_script_unless_it_names_another(head: FakeHead) -> None:
    head.add_study("digits", trial(1), program_sha256="a" * 64)
    for changes in ([], ["--set", "program=other.py"]):
        clone = CliRunner().invoke(app, ["study", "clone", "digits", *changes])
        assert clone.exit_code == 0, clone.output
    hashes = [request.program_sha256 for request in head.of(pb.SubmitStudyRequest)]
    assert hashes == ["a" * 64, ""]


def test_a_study_whose_paths_begin_in_its_directory_is_saved_only_there(
    head: FakeHead, project: Path, tmp_path: Path
) -> None:
    (project / "src").mkdir()
    (project / "train.py").rename(project / "src" / "train.py")
    below = ["--set", "program=src/train.py"]
    refused = submit(project / "study.yaml", *below, "--save", tmp_path / "saved.yaml")
    assert refused.exit_code == ExitCode.USAGE
    assert f"expected a file in {project}" in " ".join(refused.stderr.split())
    assert not head.of(pb.SubmitStudyRequest)
    assert not (tmp_path / "saved.yaml").exists()
    assert submit(project / "study.yaml", *below, "--save", project / "saved.yaml").exit_code == 0
    assert submit(project / "saved.yaml").exit_code == 0


def test_nothing_is_saved_of_a_study_that_is_refused(head: FakeHead, project: Path) -> None:
    head.failures["SubmitStudy"] = [(grpc.StatusCode.INVALID_ARGUMENT, "1 error")]
    head.field_errors = [pb.FieldError(field_path="run_cap", expected="a number of trials")]
    refused = submit(project / "train.py", "--save", project / "saved.yaml")
    assert refused.exit_code == ExitCode.USAGE
    assert "saved as" not in refused.stderr
    assert not (project / "saved.yaml").exists()


@pytest.mark.parametrize("there", [b"precious", b"\xff\xfe"])
def test_a_file_that_is_there_is_kept_whatever_it_holds(
    head: FakeHead, project: Path, there: bytes
) -> None:
    (project / "mine.yaml").write_bytes(there)
    refused = submit(project / "train.py", "--save", project / "mine.yaml")
    assert refused.exit_code == ExitCode.USAGE
    assert "add --yes" in refused.stderr
    assert (project / "mine.yaml").read_bytes() == there
    assert not head.of(pb.SubmitStudyRequest)


def test_an_empty_head_before_the_command_is_refused_like_one_after_it(
    head: FakeHead, project: Path
) -> None:
    head.add_study("digits")
    for words in (["--head", "", "study", "rm", "digits"], ["study", "rm", "digits", "--head", ""]):
        refused = CliRunner().invoke(app, words, catch_exceptions=False)
        assert refused.exit_code == ExitCode.USAGE
        assert "expected HOST:PORT" in " ".join(refused.stderr.split())
    assert "digits" in head.studies


def test_a_head_before_the_command_and_local_are_two_heads(head: FakeHead, project: Path) -> None:
    words = ["--head", "unix:/x", "submit", str(project / "study.yaml"), "--local"]
    refused = CliRunner().invoke(app, words, catch_exceptions=False)
    assert refused.exit_code == ExitCode.USAGE
    assert "--head and --local: expected one of them" in refused.stderr


async def test_the_directory_of_a_dict_is_the_one_that_was_named(
    head: FakeHead, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    other = tmp_path / "other"
    async with AsyncClient() as client:
        with pytest.raises(UsageError, match=r"directory: .*other: expected a directory"):
            await client.submit({"program": "train.py"}, directory=other)
        other.mkdir()
        with pytest.raises(StudyFileError, match="expected a file below"):
            await client.submit({"program": "train.py"}, directory=other)
        assert not head.of(pb.SubmitStudyRequest)
        await client.submit({"program": "train.py"})
    assert head.of(pb.SubmitStudyRequest)[0].submit_directory == str(project)


def test_printed_commands_name_the_head_where_another_would_be_found(
    head: FakeHead, project: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*flags: str) -> str:
        return " ".join(submit(project / "study.yaml", *flags).stdout.split())

    own = f"unix:{state / 'head.sock'}"
    assert "hermesctl best digits" in look()
    assert f"hermesctl --head {own} best digits" in look("--head", own)
    monkeypatch.setattr(local, "start", started)
    assert "hermesctl best digits" in look("--local")
    monkeypatch.setenv("HERMES_HEAD", "unix:/elsewhere")
    assert f"hermesctl --head {own} best digits" in look("--local")


async def started(environment: Mapping[str, str], say: object = None) -> None:
    """The fake head runs already."""


def identities(head: FakeHead) -> list[str]:
    """What each submit so far said of its code."""
    return [request.code_identity_sha256 for request in head.of(pb.SubmitStudyRequest)]


def test_what_a_study_was_saved_as_makes_no_other_study(head: FakeHead, project: Path) -> None:
    script = [project / "train.py", "--grid", "lr=1e-3,5e-4"]
    (project / "study.yaml").unlink()
    saved = project / "saved.yaml"
    assert submit(*script, "--save", saved).exit_code == 0
    assert submit(*script).exit_code == 0
    assert submit(*script, "--save", saved, "--yes").exit_code == 0
    assert submit(saved).exit_code == 0
    saved.write_text("# a word\n" + saved.read_text())
    assert submit(saved).exit_code == 0
    assert submit(*script).exit_code == 0
    assert len(set(identities(head))) == 1
    assert submit(*script, "--grid", "layers=1,2").exit_code == 0
    assert len(set(identities(head))) == 2, "for that study the file is one like any other"
    (project / "train.py").write_text("print('changed')\n")
    assert submit(saved).exit_code == 0
    assert len(set(identities(head))) == 3


def test_studies_that_share_a_tree_and_lie_side_by_side_are_of_the_same_code(
    head: FakeHead, project: Path
) -> None:
    """Else no two of them could share what they have in common."""

    def write(name: str, text: str) -> Path:
        path = project / name
        path.write_text(f"method: grid\n{text}\nparameters: {{lr: {{values: [{len(name)}, 1]}}}}\n")
        return path

    mine = [write(f"{name}.yaml", "program: train.py\nshare: tree") for name in ("one", "three")]
    for file in mine:
        assert submit(file).exit_code == 0
    assert len(set(identities(head))) == 1
    alone = write("alone.yaml", "program: train.py")
    assert submit(mine[0]).exit_code == 0
    assert len(set(identities(head))) == 2, "a program may read a file of one that shares nothing"
    assert submit(alone).exit_code == 0
    assert len(set(identities(head))) == 3
    (project / "other.py").write_text("print('loss=1')\n")
    assert submit(mine[0]).exit_code == 0
    write("others.yaml", "program: other.py\nshare: tree")
    assert submit(mine[0]).exit_code == 0
    assert len(set(identities(head))) == 5


def test_files_that_are_no_study_are_a_part_of_the_code(head: FakeHead, project: Path) -> None:
    assert submit(project / "study.yaml").exit_code == 0
    for text in ("a: [1", "learning_rate: 1\n"):
        (project / "settings.yaml").write_text(text)
        assert submit(project / "study.yaml").exit_code == 0
    assert len(set(identities(head))) == 3
