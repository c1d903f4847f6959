"""`hermesctl verify-resume --tree`: trials that go on from each other, compared with each alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.study.submission import Submission, draft
from hermesd.verify.branches import Branch, branches
from tests import test_verify
from tests.study_specs import spec
from tests.test_verify import FORGETFUL, NOISE, WHOLE, certificate, hermesctl
from tests.trainer_shim.rank_programs import ALL_REDUCE, DDP

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


def program(study: Path, saved: str = WHOLE, noise: str = "0.0") -> None:
    """One whose rate changes after `first` steps."""
    test_verify.program(study, saved=saved, noise=noise, steps=9, rate='trial.params["rate"]')


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
    program(study, saved=FORGETFUL)
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


# Both with a Dropout, an optimizer that has a state, and an order of the data that is drawn.
KERAS = """
import argparse, keras, numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float)
args = parser.parse_args()
keras.utils.set_random_seed(4)
x = np.random.default_rng(4).normal(size=(40, 6)).astype("float32")
dense = keras.layers.Dense
model = keras.Sequential([dense(8, "tanh"), keras.layers.Dropout(0.2), dense(1)])
model.compile(keras.optimizers.SGD(args.learning_rate, momentum=0.9), "mse")
model.fit(x, x.sum(1), batch_size=20, epochs=5, validation_split=0.5, verbose=0)
"""
# All that Hermes sets of Keras but the learning rate, in a program that leaves the seed to it.
SETTINGS = """
import argparse, keras, numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--momentum", type=float)
parser.add_argument("--dropout", type=float)
parser.add_argument("--batch_size", type=int)
args = parser.parse_args()
x = np.random.default_rng(4).normal(size=(40, 6)).astype("float32")
dense = keras.layers.Dense
model = keras.Sequential([dense(8, "tanh"), keras.layers.Dropout(args.dropout), dense(1)])
model.compile(keras.optimizers.SGD(0.02, momentum=args.momentum), "mse")
model.fit(x, x.sum(1), batch_size=args.batch_size, epochs=4, validation_split=0.5, verbose=0)
"""
TORCH = """
import argparse, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float)
args = parser.parse_args()
torch.manual_seed(4)
x = torch.randn(20, 6)
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)
for epoch in range(5):
    for inputs, in DataLoader(TensorDataset(x), batch_size=10, shuffle=True):
        loss = (model(inputs)[:, 0] - inputs.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
CHANGING = """
program: train.py
share: tree
parameters:
  later: {{values: [0.3, 0.4]}}
  larger: {{value: 20}}
  momentum: {{sequence: {{values: [0.9, later], at: [2], steps_per_epoch: {steps}}}}}
  dropout: {{sequence: {{values: [0.2, later], at: [2], steps_per_epoch: {steps}}}}}
  batch_size: {{sequence: {{values: [10, larger], at: [2], steps_per_epoch: {steps}}}}}
"""
REAL = """
program: train.py
share: tree
parameters:
  later: {{values: [0.02, 0.03]}}
  learning_rate: {{sequence: {{values: [0.1, later], at: [2], steps_per_epoch: {steps}}}}}
"""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("text", "given", "steps"),
    [
        # Where the epoch ends at which two trials part, both tell what was validated.
        pytest.param(KERAS, REAL, 1, marks=pytest.mark.tensorflow, id="keras"),
        pytest.param(SETTINGS, CHANGING, 2, marks=pytest.mark.tensorflow, id="settings"),
        pytest.param(TORCH, REAL, 2, marks=pytest.mark.torch, id="torch"),
    ],
)
def test_an_unchanged_program_trains_in_a_tree_what_it_trains_alone(
    study: Path, text: str, given: str, steps: int
) -> None:
    (study.parent / "train.py").write_text(text)
    study.write_text(given.format(steps=steps))
    found = certificate(study, "--tree", "2")
    assert [each["from_step"] for each in found["trials"]] == [0, 2 * steps]
    assert [each["verdict"] for each in found["trials"]] == ["equal"] * 2
    assert [each["files"] for each in found["trials"]] == [1, 1]


OF_TWO = """
program: train.py
share: tree
resources: {devices: 2}
parameters:
  later: {values: [0.02, 0.03]}
  lr: {sequence: {values: [0.1, later], at: [2], steps_per_epoch: 6}}
"""


@pytest.mark.torch
def test_a_program_of_two_processes_trains_in_a_tree_what_it_trains_alone(study: Path) -> None:
    """Each of them has random numbers of its own, and its place in its share of the data."""
    text = DDP.replace("int(sys.argv[1])", "4")
    assert text != DDP
    (study.parent / "train.py").write_text(text)
    study.write_text(OF_TWO)
    found = certificate(study, "--tree", "2", "--steps", "8")
    assert [each["from_step"] for each in found["trials"]] == [0, 12]
    assert [each["verdict"] for each in found["trials"]] == ["equal"] * 2
    assert [each["files"] for each in found["trials"]] == [2, 2], "each process's"


def test_of_several_processes_each_goes_on_from_what_it_has_saved_itself(study: Path) -> None:
    text = ALL_REDUCE.replace("1e-3 * all", "trial.params['lr'] * all")
    (study.parent / "train.py").write_text(text.replace("int(sys.argv[1])", "24"))
    study.write_text(OF_TWO)
    found = certificate(study, "--tree", "2", "--steps", "8")
    assert [each["from_step"] for each in found["trials"]] == [0, 12]
    assert [each["verdict"] for each in found["trials"]] == ["equal"] * 2
    assert [each["files"] for each in found["trials"]] == [2, 2], "each process's"
