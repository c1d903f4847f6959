"""What a trial of PyTorch has come to is loaded by PyTorch alone, by the lines that are printed."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
from pathlib import Path

import pytest

from hermesctl.render.loading import loading_lines, step_for_people
from hermesd.node.storage import checkpoints
from tests.trainer_shim import torch_programs as programs
from tests.trainer_shim import trainer_programs
from tests.trainer_shim.suspending import Runs, suspend

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

# A buffer that is not saved, weights that two layers share, and two optimizers of two groups.
NETWORK = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.two = nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.last = nn.Linear(6, 2)
        self.register_buffer("scale", torch.ones(1), persistent=False)
    def forward(self, x):
        return self.last(torch.relu(self.two(self.norm(self.one(x))))) * self.scale

model = Net()
groups = [{"params": [model.last.weight], "lr": 0.1}, {"params": [model.last.bias]}]
optimizer = torch.optim.Adam(groups, lr=0.01)
others = [*model.one.parameters(), *model.norm.parameters()]
optimizer_2 = torch.optim.SGD(others, 0.1, momentum=0.9)
"""
TRAINED = """
for epoch in range(3):
    for data, target in DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        optimizer_2.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer_2.step()
        optimizer.step()
torch.save([model.state_dict(), optimizer.state_dict(), optimizer_2.state_dict()], "own.pt")
final()
"""
COMPARED = """
own = torch.load("own.pt")
torch.testing.assert_close(model.state_dict(), own[0], rtol=0, atol=0)
def alike(one, other):
    assert one.keys() == other.keys(), (one.keys(), other.keys())
    assert one["param_groups"] == other["param_groups"]
    torch.testing.assert_close(one["state"], other["state"], rtol=0, atol=0)
alike(optimizer.state_dict(), own[1])
alike(optimizer_2.state_dict(), own[2])
print("ALIKE")
"""

# In a program: copies of what it may end with have taken all the time that they may.
SPENT = """
from trainer_shim.adapters.torch import loop as ends
ends._ALLOWED_SECONDS = ends._SHARE = -1.0
"""


@pytest.mark.parametrize("is_suspended", [False, True])
def test_models_and_optimizers_are_plain_state_dicts(tmp_path: Path, is_suspended: bool) -> None:
    body = NETWORK + TRAINED.replace("in DataLoader(data, batch_size=8)", "in loader").replace(
        "for epoch", "loader = DataLoader(data, batch_size=8)\nfor epoch"
    )
    runs = Runs(None, tmp_path, programs.program(body, seeded=True))
    with runs.trial("trained") as trial:
        trial.start(limit=10 if is_suspended else None)
        if is_suspended:
            trial.until("parked")
            trial.start(restore=suspend(trial)["checkpoint"]["path"])
        saved = Path(trial.until("completed")["checkpoint"]["path"])
        work = trial.directory / "work"
    names = [str(path.relative_to(saved)) for path in saved.rglob("*")]
    assert {"model.pt", "optimizer.pt", "optimizer-2.pt"} <= set(names)
    lines = loading_lines(saved, names)
    assert len(lines) <= 5
    script = "import torch\nfrom torch import nn\n" + NETWORK + "\n".join(lines) + COMPARED
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=work, stdout=subprocess.PIPE, text=True, check=True
    )
    assert run.stdout == "ALIKE\n"


def test_the_last_weights_are_kept_whatever_copies_cost(tmp_path: Path) -> None:
    """Those of the passes before have taken all the time that they may."""
    body = NETWORK + TRAINED.replace("in DataLoader(data, batch_size=8)", "in loader").replace(
        "for epoch", "loader = DataLoader(data, batch_size=8)\nfor epoch"
    )
    evaluated = "with torch.no_grad():\n    for data, _ in loader:\n        model(data)\nfinal()"
    body = body.replace("final()", evaluated)
    runs = Runs(None, tmp_path, programs.program(SPENT + body, seeded=True))
    with runs.trial("trained") as trial:
        trial.start()
        ended = trial.until("completed")
    assert ended["checkpoint"]["step"] == ended["step"] > 0


# Modules that put more into a state_dict than tensors; one of it what only a pickle can hold.
EXTRA = """
class Counting(nn.Linear):
    seen = 0
    def forward(self, x):
        self.seen += len(x)
        return super().forward(x)
    def get_extra_state(self):
        return {"seen": self.seen, "shown": {shown}, "scale": torch.full((2,), self.seen)}
    def set_extra_state(self, state):
        self.seen = state["seen"]

model = nn.Sequential(Counting(6, 4), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
EXTRA_TRAINED = """
loader = DataLoader(data, batch_size=8)
for epoch in range(3):
    for one, target in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(one), target).backward()
        optimizer.step()
torch.save(model.state_dict(), "own.pt")
final()
"""
EXTRA_COMPARED = """
own = torch.load("own.pt", weights_only=False)
torch.testing.assert_close(model[0].weight, own["0.weight"], rtol=0, atol=0)
print(model[0].seen, own["0._extra_state"]["seen"])
"""


@pytest.mark.parametrize("is_copied", [True, False], ids=["checkpoint", "result"])
@pytest.mark.parametrize("shown", ["'text'", "object"])
def test_what_a_module_adds_to_its_state_dict_is_loaded_or_said_to_be_missing(
    tmp_path: Path, is_copied: bool, shown: str
) -> None:
    made, trained = EXTRA.replace("{shown}", shown), EXTRA_TRAINED
    if not is_copied:
        trained = trained.replace("for epoch in range(3):", "epoch = 0\nwhile True:").replace(
            "    for one", "    epoch += 1\n    if epoch > 3: break\n    for one"
        )
    program = ("" if is_copied else SPENT) + made + trained
    runs = Runs(None, tmp_path, programs.program(program, seeded=True))
    with runs.trial("extra") as trial:
        trial.start()
        saved = Path(trial.until("completed")["checkpoint"]["path"])
        work = trial.directory / "work"
    assert checkpoints.verified(saved).is_result is not is_copied
    names = {path.name for path in saved.iterdir()}
    lines = loading_lines(saved, names)
    is_whole = shown == "'text'"
    assert ("strict=False)  # 0._extra_state: it could not be saved" in lines[1]) is not is_whole
    script = "import torch\nfrom torch import nn\n" + made + "\n".join(lines) + EXTRA_COMPARED
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=work, stdout=subprocess.PIPE, text=True, check=True
    )
    loaded, own = run.stdout.split()
    assert int(own) > 0
    assert loaded == (own if is_whole else "0")


def test_the_extra_state_of_a_model_that_is_gone_is_missing(tmp_path: Path) -> None:
    """Its weights are not: what it counted when it was first trained would be another's state."""
    torch = pytest.importorskip("torch")
    from trainer_shim.adapters.torch.loadable import Trained
    from trainer_shim.adapters.torch.objects import Objects

    class Counting(torch.nn.Linear):  # type: ignore[misc, name-defined, unused-ignore]
        def get_extra_state(self) -> int:
            return 1

    model, objects = Counting(2, 2), Objects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    objects.add("module", model)
    objects.add("optimizer", optimizer)
    trained = Trained(objects)
    trained.stepped(optimizer)
    assert [name for name, _ in trained.files()] == ["model.pt", "optimizer.pt"]
    del model
    gc.collect()
    files = {name: bytes(content) for name, content in trained.files()}
    assert set(torch.load(io.BytesIO(files["model.pt"]))) == {"weight", "bias"}
    assert files["model.missing.json"] == b'["_extra_state"]'


# In functions that are left, with a model before it that is not kept.
LEFT = """
def trained(width, epochs):
    model = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    {loop}
        optimizer.zero_grad()
        nn.functional.cross_entropy(model({batch}), {target}).backward()
        optimizer.step()
    return [model.state_dict(), optimizer.state_dict()]

trained(4, 2)
torch.save(trained(7, 3), "own.pt")
final()
"""
BY_EPOCHS = """loader, epoch = DataLoader(data, batch_size=8), 0
    while True:
      epoch += 1
      if epoch > epochs: break
      for one, other in loader:"""


@pytest.mark.parametrize(
    ("loop", "batch", "target"),
    [
        pytest.param("for epoch in range(epochs):", "x", "y", id="whole"),
        pytest.param(BY_EPOCHS, "one", "other", id="unknown-length"),
    ],
)
def test_what_was_trained_last_is_kept_where_nothing_goes_on_from_the_end(
    tmp_path: Path, loop: str, batch: str, target: str
) -> None:
    body = SPENT + LEFT.format(loop=loop, batch=batch, target=target)
    runs = Runs(None, tmp_path, programs.program(body, seeded=True))
    with runs.trial("left") as trial:
        trial.start()
        ended = trial.until("completed")
        saved, work = Path(ended["checkpoint"]["path"]), trial.directory / "work"
    assert ended["checkpoint"]["step"] == ended["step"] > 0
    assert checkpoints.verified(saved).is_result
    names = {path.name for path in saved.iterdir() if path.name.partition(".")[0]}
    assert names == {"manifest.json", "model.pt", "optimizer.pt"}
    torch = pytest.importorskip("torch")
    own = torch.load(work / "own.pt")
    model, optimizer = (torch.load(saved / f"{name}.pt") for name in ("model", "optimizer"))
    torch.testing.assert_close(model, own[0], rtol=0, atol=0)
    torch.testing.assert_close(optimizer, own[1], rtol=0, atol=0)


def test_an_end_that_is_of_an_earlier_step_has_the_last_weights_beside_it(tmp_path: Path) -> None:
    """Only the first pass may be copied."""
    body = """
from trainer_shim.adapters.torch import loop as ends
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader, epoch = DataLoader(data, batch_size=8), 0
while True:
    for one, target in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(one), target).backward()
        optimizer.step()
    ends._ALLOWED_SECONDS = ends._SHARE = -1.0
    epoch += 1
    if epoch == 3:
        break
torch.save(model.state_dict(), "own.pt")
final()
"""
    runs = Runs(None, tmp_path, programs.program(body, seeded=True))
    with runs.trial("early") as trial:
        trial.start()
        ended = trial.until("completed")
        saved, work = Path(ended["checkpoint"]["path"]), trial.directory / "work"
    assert (ended["checkpoint"]["step"], ended["step"]) == (7, 21)
    assert step_for_people(saved) == 21
    torch = pytest.importorskip("torch")
    model, own = torch.load(saved / "model.pt"), torch.load(work / "own.pt")
    torch.testing.assert_close(model, own, rtol=0, atol=0)


LIGHTNING = """
class Model(Base):
    def __init__(self, width):
        super().__init__()
        self.save_hyperparameters()
        self.net = Net(width)
"""
LIGHTNING_TRAINED = """
model = Model(width=5)
trainer = pl.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, **quiet)
trainer.fit(model, DataLoader(data, 8))
torch.save(model.state_dict(), "own.pt")
final()
"""
BERT = """
from transformers import BertConfig, BertForSequenceClassification
"""
BERT_TRAINED = """
class Words(Dataset):
    def __len__(self):
        return 30
    def __getitem__(self, index):
        return dict(input_ids=[index % 9 + 1] * 5, attention_mask=[1] * 5, labels=index % 2)

config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                    intermediate_size=8)
model = BertForSequenceClassification(config)
args = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=8,
                         save_strategy="no", learning_rate=0.01, **quiet)
Trainer(model, args, train_dataset=Words()).train()
torch.save(model.state_dict(), "own.pt")
final()
"""
WEIGHTS = """
torch.testing.assert_close(model.state_dict(), torch.load("own.pt"), rtol=0, atol=0)
print("ALIKE")
"""


@pytest.mark.parametrize(
    ("made", "trained", "file"),
    [
        pytest.param(
            trainer_programs.lightning(LIGHTNING),
            LIGHTNING_TRAINED,
            "model.ckpt",
            marks=pytest.mark.lightning,
        ),
        pytest.param(
            trainer_programs.transformers(BERT),
            BERT_TRAINED,
            "pretrained/config.json",
            marks=pytest.mark.transformers,
        ),
    ],
    ids=["lightning", "transformers"],
)
def test_a_framework_loads_what_its_loop_has_trained(
    tmp_path: Path, made: str, trained: str, file: str
) -> None:
    runs = Runs(None, tmp_path, made + trained)
    with runs.trial("trained") as trial:
        trial.start(limit=5)
        trial.until("parked")
        trial.start(restore=suspend(trial)["checkpoint"]["path"])
        saved = Path(trial.until("completed")["checkpoint"]["path"])
        work = trial.directory / "work"
    names = {str(path.relative_to(saved)) for path in saved.rglob("*")}
    assert {file, "model.pt"} <= names
    script = made + "\n".join(loading_lines(saved, names)) + WEIGHTS
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=work, stdout=subprocess.PIPE, text=True, check=True
    )
    assert run.stdout == "ALIKE\n"
