"""The journal of a trial's runs, and what its host wrote down."""

import json
from pathlib import Path

import pytest

from hermesd.core.commands import Launch
from hermesd.core.model import Goal, Program, Quantum, RunId, RunTerms
from hermesd.core.node.messages import Assignment, Work
from hermesd.node.storage.trial_folder import BadTrial, TrialFolder, TrialFolders


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    return TrialFolder(tmp_path / "trials", tmp_path / "run", "digits/17")


def order(attempt: int) -> Assignment:
    program = Program(("python", "x.py"), "/usr/bin/python3", "", "/", (("A", "b"),))
    work = Work(program, (("lr", 0.1), ("deep", True)), "loss", Goal.MAXIMIZE, 7)
    launch = Launch(RunId("digits/17", attempt), ("n1/cpu0",), Quantum(seconds=5), "best")
    return Assignment(launch, None, work, RunTerms())


def test_a_run_is_journaled_until_it_is_settled(folder: TrialFolder) -> None:
    assert folder.last() is None
    folder.begin(order(1))
    folder.begin(order(2))
    assert folder.journaled() == order(2)
    trials, sockets = folder.path.parents[1], folder.socket.parent
    assert [found.trial for found in TrialFolders(trials, sockets).journaled()] == ["digits/17"]
    folder.settle()
    assert folder.journaled() is None
    assert folder.last() == order(2), "the attempt is remembered"
    assert list(TrialFolders(trials, sockets).journaled()) == []
    folder.settle()


def test_the_newest_outcome_of_an_attempt_counts(folder: TrialFolder) -> None:
    assert folder.outcome(2) is None
    folder.path.mkdir(parents=True)
    lines = [
        {"kind": "completed", "attempt": 1, "seq": 9},
        {"kind": "reported", "attempt": 2, "seq": 1},
        {"kind": "suspended", "attempt": 2, "seq": 2},
    ]
    text = "\n".join(map(json.dumps, lines)) + '\n{"kind": "failed", "att'
    (folder.path / "events.jsonl").write_text(text)
    assert folder.outcome(2) == lines[2]
    assert folder.outcome(3) is None


def test_what_is_left_of_an_attempt_is_its_reports_and_its_newest_outcome(
    folder: TrialFolder,
) -> None:
    assert not folder.reports(2)
    folder.path.mkdir(parents=True)
    lines = [
        {"kind": "reported", "attempt": 1, "seq": 3},
        {"kind": "reported", "attempt": 2, "seq": 5},
        {"kind": "of a newer host", "attempt": 2, "seq": 6},
        {"kind": "suspended", "attempt": 2, "seq": 8},
        {"kind": "failed", "attempt": 2, "seq": 9},
        ["reported"],
    ]
    (folder.path / "events.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert list(map(json.loads, folder.reports(2))) == [lines[1]]
    assert folder.outcome(2) == lines[4]
    assert list(map(json.loads, folder.reports(1))) == lines[:1]
    assert folder.outcome(1) is None, "a report is none"


def test_whether_it_was_parked_is_remembered(folder: TrialFolder) -> None:
    folder.begin(order(1))
    for is_parked in (True, True, False, False):
        folder.parked = is_parked
        assert folder.parked is is_parked


def test_forgetting_leaves_nothing(folder: TrialFolder) -> None:
    folder.begin(order(1))
    folder.write_spec({"trial": "digits/17"})
    assert folder.spec.stat().st_mode & 0o777 == 0o600, "its environment may hold secrets"
    other = TrialFolder(folder.path.parents[1], folder.socket.parent, "digits/18")
    other.belong_to("the study")
    folder.forget()
    assert not folder.path.exists()
    assert other.path.exists()
    other.forget()
    assert not other.path.parent.exists(), "nothing is left of the study"
    assert not other.journal.parent.exists()


def test_the_sockets_path_is_short_whatever_the_study_is_called(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "trials", Path("/run/hermes-node"), "x" * 200 + "/1")
    assert len(str(folder.socket)) < 60


@pytest.mark.parametrize(
    "trial", ["", "a", "../1", "a/../1", "/1", "a/b", ".a/1", "a b/1", "a/1/2"]
)
def test_an_id_that_is_no_path_of_ours_is_refused(tmp_path: Path, trial: str) -> None:
    with pytest.raises(BadTrial):
        TrialFolder(tmp_path, tmp_path, trial)
