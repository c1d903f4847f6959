"""Batches that a program takes by `next` beside its loop, and data that it changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_shim import torch_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity, outcome, warm_zygote

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A process that has imported PyTorch, and run nothing."""
    with warm_zygote(tmp_path_factory.mktemp("zygote"), "torch") as warm:
        yield warm


# What a program may read besides, in lines that are not run again.
OTHERWISE = """
import itertools, functools
def endless(loader):
    while True:
        yield from loader
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader, other = DataLoader(data, batch_size=10), DataLoader(TensorDataset(x), batch_size=10)
{made}
for epoch in range(1):
    for inputs, target in loader:
        (extra,) = {taken}
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), target) + model(extra).mean()
        loss.backward()
        optimizer.step()
final(digest(model))
"""


@pytest.mark.parametrize("taken", ["[one for one in other][0]", "next(iter(other))"])
def test_what_is_read_and_dropped_within_a_step_is_in_nobodys_way(
    zygote: Zygote, tmp_path: Path, taken: str
) -> None:
    body = OTHERWISE.replace("{made}", "").replace("{taken}", taken)
    runs = Runs(zygote, tmp_path, programs.program(body))
    with runs.trial("dropped") as trial:
        trial.start(limit=2)
        trial.until("parked")
        assert fidelity(trial)[0] == "parameters-exact"
        trial.suspend("checkpoint")
        trial.until("suspended")


@pytest.mark.parametrize(
    ("made", "taken", "word"),
    [
        ("more = itertools.cycle(other)", "next(more)", "cycle()"),
        ("more = endless(other)", "next(more)", "the generator endless"),
        ("more = map(tuple, other)", "next(more)", "map()"),
        ("more = iter(other)", "next(more)", "not taken by a for statement"),
        ("take = functools.partial(next, iter(other))", "take(None) or (x,)", "for statement"),
    ],
    ids=["cycle", "generator", "map", "next", "partial"],
)
def test_a_program_whose_passes_read_others_only_parks(
    zygote: Zygote, tmp_path: Path, made: str, taken: str, word: str
) -> None:
    body = OTHERWISE.replace("{made}", made).replace("{taken}", taken)
    runs = Runs(zygote, tmp_path, programs.program(body))
    with runs.trial("only") as trial:
        trial.start(limit=2)
        trial.until("parked")
        assert fidelity(trial)[0] == "park-only"
        trial.suspend("checkpoint")
        trial.until("checkpoint_failed")
        trial.resume()
        trial.until("completed")
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert word in reason
        assert outcome(trial)[1] == runs.plain()


# Weights of a sampler and an order of the data that the program changes within its loop, by way of
# no variable of its functions.
CURRICULUM = """
from torch.utils.data import Subset, WeightedRandomSampler, SubsetRandomSampler

class Hard(Dataset):
    def __init__(self):
        self.shift, self.order = torch.zeros(50, 6), list(range(300))
    def __len__(self):
        return 50
    def __getitem__(self, index):
        return (x + self.shift)[index], y[index], self.order[index]

def loader_of():
    sampler = WeightedRandomSampler(torch.ones(50, dtype=torch.double), 20)
    return DataLoader(Hard(), batch_size=5, sampler=sampler, {settings})

def order_of():
    return DataLoader(TensorDataset(x, y), batch_size=9, sampler=SubsetRandomSampler(range(27)))

class Held:
    loaders = [loader_of(), order_of()]

model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
seen, drawn = [], []
def train(inputs, target):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), target)
    loss.backward()
    optimizer.step()
    seen.append(loss.item())

for epoch in range(3):
    for index, (inputs, target, order) in enumerate(Held.loaders[0]):
        drawn.append(order.tolist())
        train(inputs, target)
        Held.loaders[0].sampler.weights[index::7] *= 3
        Held.loaders[0].dataset.shift += 0.01
        Held.loaders[0].dataset.order.insert(0, Held.loaders[0].dataset.order.pop())
    for inputs, target in Held.loaders[1]:
        train(inputs, target)
        shifted = [(one + 1) % 50 for one in Held.loaders[1].sampler.indices]
        Held.loaders[1].sampler.indices = shifted
final(seen, drawn, digest(model))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_what_decides_about_data_and_changes_in_the_loop_goes_on(
    zygote: Zygote, tmp_path: Path, workers: int
) -> None:
    body = CURRICULUM.replace("{settings}", f"num_workers={workers}")
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=False))
    undisturbed = runs.undisturbed()
    assert runs.suspended(2, 4, 6, 8, 13, 17) == undisturbed


# The same in the step of a framework's loop, where the iterator is made when it is needed.
DRIVEN = """
import lightning.pytorch as pl
class Step(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.batches, self.seen = nn.Linear(6, 2), None, []
        self.unlabeled = DataLoader(TensorDataset(x[:23]), batch_size=4, shuffle=True)
    def take(self):
        if self.batches is None:
            self.batches = {made}
        more = next(self.batches, None)
        if more is None:
            self.batches = None
            return self.take()
        return more[0]
    def training_step(self, batch, index):
        more = self.take()
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.seen.append([loss.item(), more.sum().item()])
        return loss + self.net(more).softmax(1).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

model = Step()
quiet = dict(accelerator="cpu", logger=False, enable_checkpointing=False)
quiet.update(enable_progress_bar=False, enable_model_summary=False)
pl.Trainer(max_epochs=2, **quiet).fit(model, DataLoader(data, batch_size=8, shuffle=True))
final(digest(model), model.seen)
"""


@pytest.mark.lightning
def test_so_does_one_whose_step_reads_others_in_a_frameworks_loop(
    zygote: Zygote, tmp_path: Path
) -> None:
    body = DRIVEN.replace("{made}", "iter(self.unlabeled)")
    runs = Runs(zygote, tmp_path, programs.program(body))
    with runs.trial("only") as trial:
        trial.start(limit=2)
        trial.until("parked")
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert "not taken by a for statement" in reason
