"""`hermesctl verify-resume --tree`: trials that go on from each other, compared with each alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.study.submission import Submission, draft
from hermesd.verify.branches import Branch, branches
from tests.study_specs import spec
from tests.test_verify import NOISE, certificate, hermesctl

# Its rate changes after `first` steps. What `{saved}` lacks is lost where another goes on.
PROGRAM = """
import json, os, pathlib
import trainer_shim
trial = trainer_shim.attach()
state, momentum, step = 1.0, 0.0, 0
if trial.resume:
    saved = json.loads((pathlib.Path(trial.resume.path) / "state").read_text())
    state, step = saved[0], saved[-1]
    momentum = saved[1] if len(saved) == 3 else 0.0
def save(folder):
    (pathlib.Path(folder) / "state").write_text(json.dumps({saved}))
while step < 9:
    momentum = 0.5 * momentum + trial.params["rate"] * state
    state, step = state - momentum + {noise}, step + 1
    trial.report(step, loss=state, save=save)
"""
STUDY = """
program: train.py
share: SHARE
parameters:
  later: {values: [0.2, 0.3]}
  first: {values: [4, 6]}
  rate: {sequence: {values: [0.1, later], at: [first]}}
"""
SPACE = {
    "later": {"values": [0.2, 0.3]},
    "first": {"values": [4, 6]},
    "rate": {"sequence": {"values": [0.1, "later"], "at": ["first"]}},
}
CARRIERS = [(1, None, 0), (2, 1, 4), (3, 1, 4), (4, 2, 6)]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study" / "study.yaml"
    path.parent.mkdir()
    path.write_text(STUDY.replace("SHARE", "tree"))
    return path


def program(study: Path, saved: str = "[state, momentum, step]", noise: str = "0.0") -> None:
    text = PROGRAM.replace("{saved}", saved).replace("{noise}", noise)
    (study.parent / "train.py").write_text(text)


def test_each_trial_goes_on_from_who_it_has_most_in_common_with() -> None:
    _, specs = draft(Submission(spec(SPACE, share="SHARE_TREE"))).accepted("s", "ann", 0.0)
    assert branches(specs) == [Branch(1), Branch(2, 1, 4), Branch(3, 1, 4), Branch(4, 2, 6)]
    _, same = draft(Submission(spec(SPACE, share="SHARE_TREE"))).accepted("s", "ann", 0.0)
    assert branches([specs[0], same[0]])[1].is_same
    _, apart = draft(Submission(spec(SPACE))).accepted("s", "ann", 0.0)
    assert branches(apart) == [Branch(n) for n in (1, 2, 3, 4)]


def test_a_tree_is_certified_trial_by_trial(study: Path) -> None:
    program(study)
    found = certificate(study, "--tree", "4")
    assert found["identical"]
    carriers = [(each["trial"], each["carrier"], each["from_step"]) for each in found["trials"]]
    assert carriers == CARRIERS
    assert [each["verdict"] for each in found["trials"]] == ["equal"] * 4
    assert [each["values"] for each in found["trials"]] == [9, 5, 5, 3], "what each trains itself"
    assert [each["files"] for each in found["trials"]] == [1] * 4
    table = hermesctl(study, "--tree", "2", "--steps", "3").stdout
    assert "trial 1 at step 4  equal    2 values, 1 file of state" in table


def test_where_a_trial_of_the_tree_parts_from_itself_is_shown(study: Path) -> None:
    program(study, saved="[state, step]")
    found = certificate(study, "--tree", "2", code=1)
    first, second = found["trials"]
    assert (first["verdict"], second["verdict"]) == ("equal", "differs")
    assert (second["first_difference"]["step"], second["first_difference"]["name"]) == (5, "loss")


def test_a_program_that_cannot_repeat_itself_is_said_to(study: Path) -> None:
    program(study, noise=NOISE)
    found = certificate(study, "--tree", "2", code=1)
    assert {each["verdict"] for each in found["trials"]} == {"cannot repeat itself"}


def test_a_tree_that_is_none_and_one_that_parts_too_late_are_told(study: Path) -> None:
    program(study)
    late = certificate(study, "--tree", "2", "--steps", "1")
    assert [each["verdict"] for each in late["trials"]] == ["equal", "not run"]
    assert "past what was run" in late["trials"][1]["why"]
    study.write_text(STUDY.replace("SHARE", "no"))
    refused = hermesctl(study, "--tree", "2")
    assert refused.returncode == 2
    assert "trials of a study with `share: tree` that begin alike" in refused.stderr
