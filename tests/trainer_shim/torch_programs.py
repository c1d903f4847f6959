"""PyTorch scripts as users write them; none of them knows of Hermes.

Each prints one line that starts with FINAL, with everything that must come out the same,
the loss of each iteration as the script sees it among it.
"""

from __future__ import annotations

_HEAD = """
import hashlib, json, os, random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
torch.set_num_threads(1)
{seed}
x = torch.randn(50, 6)
y = (x.sum(dim=1) > 0).long()
data = TensorDataset(x, y)

def digest(*models):
    parts = [tensor.numpy().tobytes() for m in models for tensor in m.state_dict().values()]
    return hashlib.sha256(b"".join(parts)).hexdigest()

def final(*values):
    print("FINAL", json.dumps(values))
"""

_SEEDED = "torch.manual_seed(11)"

# The usual example script: 3 epochs of 7 batches, an evaluation after each.
USUAL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Linear(6, 16), nn.BatchNorm1d(16)
        self.drop, self.two = nn.Dropout(0.3), nn.Linear(16, 2)
    def forward(self, x):
        return self.two(self.drop(torch.relu(self.norm(self.one(x)))))

seen = []

def train(model, loader, optimizer, epoch):
    model.train()
    running = 0.0
    for index, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        running += loss.item() * (index + 1)
        seen.append(loss.item())
    print(f"epoch {epoch}: {running / (index + 1)}, last {loss.item()}")
    return running

def test(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for data, target in loader:
            correct += (model(data).argmax(dim=1) == target).sum().item()
            total += len(target)
    return correct / total

model = Net()
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
train_loader = DataLoader(data, batch_size=8, shuffle=True)
test_loader = DataLoader(data, batch_size=20)
best, history = 0.0, []
for epoch in range(1, 4):
    running = train(model, train_loader, optimizer, epoch)
    accuracy = test(model, test_loader)
    if accuracy > best:
        best = accuracy
        torch.save(model.state_dict(), "best.pt")
    scheduler.step()
    history.append([running, accuracy])
saved = Net()
saved.load_state_dict(torch.load("best.pt"))
final(seen, digest(model), history, best, digest(saved), optimizer.param_groups[0]["lr"])
"""

# Workers that draw random numbers of their own, two optimizers, a scheduler stepped by each
# batch, average meters, gradients accumulated over two batches, a break.
WORKERS = """
class Noisy(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return x[index] + 0.1 * torch.randn(6) + random.random(), y[index]

class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0
    def update(self, value):
        self.sum, self.count = self.sum + value, self.count + 1

body, head = nn.Linear(6, 8), nn.Linear(8, 2)
slow = torch.optim.SGD(body.parameters(), lr=0.05, momentum=0.9)
fast = torch.optim.Adam(head.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(slow, max_lr=0.1, total_steps=30)
loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2)
meters, steps, seen = [], 0, []
for epoch in range(2):
    meters.append(Meter())
    halves = []
    for index, (data, target) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(head(body(data).tanh()), target) / 2
        loss.backward()
        halves = [*([] if index % 2 else halves), loss.detach()]
        meters[-1].update(loss.item())
        if index % 2:
            continue
        for optimizer in (slow, fast):
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
        seen.append(sum(halves).item())
        steps += 1
        if index == 8:
            break
    print("mean", meters[-1].sum / meters[-1].count)
final(seen, digest(body, head), steps, [[m.sum, m.count] for m in meters])
"""

# A generator of the loader's own, a plateau scheduler, a copy of the weights on the side, a
# scaler and automatic mixed precision, data drawn from NumPy, tensors that no module holds.
MIXED = """
import copy
import numpy as np
rng = np.random.default_rng(5)
source = torch.Generator().manual_seed(3)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
average = copy.deepcopy(model)
scale = torch.ones(2, requires_grad=True)
optimizer = torch.optim.AdamW([{"params": model.parameters()}, {"params": [scale], "lr": 0.1}])
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=3)
loader = DataLoader(data, batch_size=10, shuffle=True, generator=source)
seen = []
for epoch in range(3):
    model.train()
    total = torch.zeros(())
    for data, target in loader:
        noise = torch.from_numpy(rng.normal(size=data.shape)).float() * 0.1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = 8 * nn.functional.cross_entropy(model(data + noise) * scale, target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters()):
                old.lerp_(new, 0.1)
        total += loss.detach()
        seen.append(loss.item())
    plateau.step(total)
rate = optimizer.param_groups[0]["lr"]
drawn = [int(rng.integers(1 << 30)), torch.randn(1).item()]
final(seen, digest(model, average), scale.tolist(), scaler.get_scale(), total.item(), rate, drawn)
"""

# An adversarial pair: two optimizers in turn, neither forgets the other's gradients.
PAIR = """
maker, judge = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
first = torch.optim.Adam(judge.parameters(), lr=0.01)
second = torch.optim.RMSprop(maker.parameters(), lr=0.01)
seen = []
for epoch in range(2):
    for batch, _ in DataLoader(data, batch_size=10, shuffle=True, drop_last=True):
        first.zero_grad()
        made = maker(torch.randn(len(batch), 3))
        loss = judge(made.detach()).mean() - judge(batch).mean()
        loss.backward()
        first.step()
        loss = -judge(made).mean()
        loss.backward()
        second.step()
        second.zero_grad(set_to_none=False)
        seen.append(loss.item())
final(seen, digest(maker, judge))
"""

# What is drawn between the passes decides what the next one reads, and how much is drawn depends
# on the parameters; gradients fade instead of being forgotten; the first weights are saved.
REDRAWN = """
from torch.utils.data import Subset
model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.2), nn.Linear(6, 2))
optimizer = torch.optim.NAdam(model.parameters())
source = torch.Generator()
seen = []
for epoch in range(3):
    chosen = Subset(data, torch.randperm(50)[:20].tolist())
    moved = (lambda by: lambda batch: batch + by)(torch.randn(6))
    weight = int(model[0].weight.abs().sum() * 50)
    torch.rand(weight), torch.rand(weight, generator=source), random.getrandbits(8)
    for number, (batch, target) in enumerate(DataLoader(chosen, 5, True, generator=source)):
        loss = nn.functional.cross_entropy(model(moved(batch)), target) * random.random()
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad *= 0.5
        seen.append(loss.item())
    if epoch == 0:
        torch.save(model.state_dict(), "first.pt")
final(seen, digest(model), float(torch.load("first.pt")["0.weight"].sum()))
"""

# A loop inside of a loop; the outer one's batch is needed until the inner one ends.
NESTED = """
model = nn.Linear(6, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
seen, counts = [], []
for number, task in enumerate(DataLoader(torch.arange(1.0, 4.0), shuffle=True)):
    with torch.no_grad():
        spread = [model(batch).std().item() for batch, _ in DataLoader(data, batch_size=25)]
    for batch, target in DataLoader(data, batch_size=20, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch * task), target) * spread[-1]
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    counts.append([number, task.item(), len(seen)])
final(seen, digest(model), counts)
"""

# How long it trains is on the command line, and the loop looks at it again and again; what is
# left in the model at the end are the best weights, not the last.
ASKED_FOR_EPOCHS = """
import argparse

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs", type=int)
    args = parser.parse_args()
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    seen, history, best, epoch, half = [], [], -1, 0, None
    while epoch < args.epochs:
        model.train()
        for batch, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), target)
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        model.eval()
        right = 0
        with torch.no_grad():
            for batch, target in DataLoader(data, batch_size=20):
                right += int((model(batch).argmax(dim=1) == target).sum())
        if right > best:
            best = right
            torch.save(model.state_dict(), "best.pt")
        scheduler.step()
        epoch += 1
        history.append([right, epoch, torch.rand(()).item()])
    last = digest(model)
    model.load_state_dict(torch.load("best.pt"))
    final(seen, last, digest(model), history, scheduler.get_last_lr())

main()
"""

_SMALL = """
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(data, target):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()
    return loss.item()
"""

# Tensors of 18 MB and a list of 30,000 numbers that change, and others that are only read.
KEPT_ASIDE = (
    _SMALL
    + """
import copy
wide, names = torch.randn(50, 90_000), [str(number) for number in range(30_000)]
average, seen, best = {"all": torch.zeros(4_500_000)}, [0.0] * 30_000, None
for epoch in range(3):
    for batch, target in DataLoader(data, batch_size=25):
        seen.append(step(batch, target))
        average["all"].data.lerp_(torch.full((4_500_000,), seen[-1]), 0.5)
    if epoch == 1:
        best = copy.deepcopy({"average": average, "seen": seen})
ends = [one["all"][-1].item() for one in (average, best["average"])]
final(seen[30_000:], digest(model), ends, best["seen"][-1], float(wide.sum()), len(names))
"""
)

# Compiled for the shape of its batches, and once more for that of the last of each epoch.
COMPILED = """
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
model = torch.compile(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
seen = []
for epoch in range(3):
    for batch, target in DataLoader(data, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
final(seen, digest(net))
"""

# A layer that begins to train in the body of the loop, another one that is given to the optimizer.
UNFROZEN = """
body, head = nn.Linear(6, 6), nn.Linear(6, 2)
model = nn.Sequential(body, nn.Linear(6, 6), head)
model[:2].requires_grad_(False)
optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
seen = []
for epoch in range(2):
    for batch, target in DataLoader(data, batch_size=10, shuffle=True):
        if len(seen) == 2:
            model[1].requires_grad_(True)
            optimizer.add_param_group({"params": model[1].parameters(), "lr": 0.01})
        if len(seen) == 4:
            model[1].bias.requires_grad_(False)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
final(seen, digest(model), [one.requires_grad for one in model.parameters()])
"""

# What a pass collects is used after it: long lists, predictions, the last batch's output. The
# model is tried on a tensor between the passes, and when that gets worse the training stops.
COLLECTED = (
    _SMALL
    + """
seen, history, best = [], [], float("inf")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

def predicted():
    predictions = []
    with torch.no_grad():
        for batch in DataLoader(x.repeat(20, 1), batch_size=500):
            predictions.append(model(batch))
    return float(torch.cat(predictions).var())

for epoch in range(5):
    losses = []
    for batch, target in DataLoader(data, batch_size=10, shuffle=True):
        losses += [step(batch, target)] * 60
        seen.append(losses[-1])
        out = model(batch).repeat(50, 10)
    history.append([sum(losses) / len(losses), predicted(), out.sum().item(), target.tolist()])
    with torch.no_grad():
        tried = nn.functional.cross_entropy(model(x), y).item()
    if tried >= best or history[-1][1] < (history[-2][1] if epoch else 0) / 2:
        break
    best = tried
final(seen, digest(model), history, best, epoch)
"""
)

# Folds, each by an object in a cycle, with the loader that is in it.
FOLDS = """
class Fold:
    def __init__(self, rows):
        self.loader = DataLoader(TensorDataset(x[rows], y[rows]), batch_size=10, shuffle=True)
        self.loader.dataset.owner = self
        self.model = nn.Linear(6, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
    def run(self):
        for epoch in range(2):
            for batch, target in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(batch), target)
                loss.backward()
                self.optimizer.step()
                seen.append(loss.item())
        waste = [[number] for number in range(3000)]
        return digest(self.model)

seen, digests = [], []
for number in range(3):
    digests.append(Fold([row for row in range(50) if row % 3 != number]).run())
final(seen, digests)
"""

# Generators of random numbers that no variable of the script holds: of another module, in a
# closure, of a class; the data, and the lines between passes, use them.
SCATTERED = (
    _SMALL
    + """
import sys, types
import numpy as np

other = types.ModuleType("other")
sys.modules["other"] = other
code = (
    "import numpy as np, torch\\nrng = np.random.default_rng(0)\\n"
    "source = torch.Generator().manual_seed(3)\\n"
    "def noise(): return float(rng.normal()) + torch.rand((), generator=source).item()"
)
exec(compile(code, "other.py", "exec"), vars(other))

def closed():
    old, own = np.random.RandomState(4), random.Random(5)
    return lambda: old.normal() + own.random()

class Noisy(Dataset):
    shared, drawn = np.random.default_rng([1, 2]), staticmethod(closed())
    def __len__(self):
        return 40
    def __getitem__(self, index):
        fresh = np.random.default_rng(index).normal()
        added = other.noise() + self.drawn() + float(self.shared.normal()) + fresh
        return x[index] + 0.1 * added, y[index]

seen, between = [], []
for epoch in range(3):
    for batch, target in DataLoader(Noisy(), batch_size=10, shuffle=True):
        seen.append(step(batch, target))
    between.append(other.noise() + Noisy.drawn())
final(seen, digest(model), between)
"""
)

# What cannot be brought back.
NO_LOADER = (
    _SMALL
    + """
for _ in range(6):
    step(x, y)
final(digest(model))
"""
)

BY_HAND = (
    _SMALL
    + """
batches = iter(DataLoader(data, batch_size=8))
for _ in range(6):
    step(*next(batches))
final(digest(model))
"""
)

ITERABLE = (
    _SMALL
    + """
class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(48):
            yield torch.randn(6), torch.randint(2, ())
for batch in DataLoader(Stream(), batch_size=8):
    step(*batch)
final(digest(model))
"""
)

ZIPPED = (
    _SMALL
    + """
for _, batch in zip(range(6), DataLoader(data, batch_size=8)):
    step(*batch)
final(digest(model))
"""
)

LOOKING_AHEAD = (
    _SMALL
    + """
def ahead(loader):
    waiting = None
    for batch in loader:
        if waiting is not None:
            yield waiting
        waiting = batch
    yield waiting
for batch in ahead(DataLoader(data, batch_size=9)):
    step(*batch)
final(digest(model))
"""
)


RETURNED = (
    _SMALL
    + """
def some(loader, count):
    for number, batch in enumerate(loader, 1):
        step(*batch)
        if number == count:
            return number
    return 0
total = sum(some(DataLoader(data, batch_size=8), 3) for _ in range(2))
final(digest(model), total)
"""
)

MADE_INSIDE = (
    _SMALL
    + """
for epoch in range(2):
    for batch in DataLoader(data, batch_size=17):
        if epoch == 0:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        step(*batch)
final(digest(model))
"""
)

GENERATOR_INSIDE = (
    _SMALL
    + """
import numpy as np
class Late(Dataset):
    rng = None
    def __len__(self):
        return 48
    def __getitem__(self, index):
        if self.rng is None:
            self.rng = np.random.default_rng(0)
        return x[index] + float(self.rng.normal()), y[index]
for batch in DataLoader(Late(), batch_size=8):
    step(*batch)
final(digest(model))
"""
)

# Objects of a library, in a list that was there before.
GATHERED = (
    _SMALL
    + """
from decimal import Decimal
def run():
    gathered, functions = [], [step]
    for epoch in range(2):
        for batch in DataLoader(data, batch_size=17 - 7 * (epoch == 0)):
            gathered.append(Decimal(functions[0](*batch)))
    final(str(sum(gathered)), digest(model))
run()
"""
)

TAKEN_INSIDE = (
    _SMALL
    + """
import itertools
rates = itertools.cycle([0.1, 0.2, 0.3])
for epoch in range(2):
    for batch in DataLoader(data, batch_size=10):
        optimizer.param_groups[0]["lr"] = next(rates)
        step(*batch)
final(digest(model))
"""
)

NESTED_DEEP = (
    _SMALL
    + """
class Chain:
    def __init__(self, loss, before):
        self.loss, self.before = loss, before
chain = None
for epoch in range(2):
    for batch in DataLoader(data, batch_size=2 + 15 * epoch):
        chain = Chain(step(*batch), chain)
        if epoch == 0 and chain.before is not None:
            break
    for turn in range(20):
        chain = Chain(turn, chain)
final(chain.loss, digest(model))
"""
)

# The explicit interface, which saves what the adapter cannot know of.
EXPLICIT = (
    _SMALL
    + """
import trainer_shim
trial = trainer_shim.attach()
done, loader = 0, DataLoader(data, batch_size=10)
if trial.resume is not None:
    done = trial.resume.step
    model.load_state_dict(torch.load(trial.resume.path + "/model.pt"))
def save(folder):
    torch.save(model.state_dict(), folder + "/model.pt")
for index, batch in enumerate(loader, 1):
    if index > done:
        trial.report(index, step(*batch), save)
final(digest(model))
"""
)


# Bars of tqdm, one of them not shown, which say how far they are.
BARS = """
from tqdm import tqdm
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8, shuffle=True)
seen, counts = [], []
for epoch in range(3):
    bar = tqdm(loader, disable=epoch == 1)
    for index, (inputs, target) in enumerate(bar):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), target)
        loss.backward()
        optimizer.step()
        seen.append([index, loss.item()])
    counts.append(bar.n)
final(seen, digest(model), counts)
"""

# What only the lines before the passes and between them take from, they take again.
ITERATED = """
import itertools
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8, shuffle=True)
first, _ = next(before := iter(loader))
probes = iter(DataLoader(TensorDataset(x), batch_size=4, shuffle=True))
rates, weights = itertools.cycle([0.1, 0.2]), iter([n / 30 for n in range(1, 30)])
tops, seen = (top / 10 for top in range(9, 0, -1)), []
for epoch in range(3):
    optimizer.param_groups[0]["lr"] = next(rates) * next(weights) * next(tops)
    (probe,) = next(probes)
    for inputs, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), target)
        loss.backward()
        optimizer.step()
        seen.append([loss.item(), probe.sum().item()])
final(seen, digest(model), first.sum().item())
"""


def program(body: str, seeded: bool = True) -> str:
    """The whole script."""
    return _HEAD.format(seed=_SEEDED if seeded else "") + body


_COUNTED = """
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

{counter}

def main():
    rate = 0.1
    def halve():
        nonlocal rate
        rate /= 2
    for epoch in range(2):
        for data, target in DataLoader(globals()["data"], batch_size=20, shuffle=True):
            optimizer.param_groups[0]["lr"] = {rate}
            loss = nn.functional.cross_entropy(model(data), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        halve()
    final(rate, digest(model))

main()
"""

# The rate comes from a counter in a closure, on a class, or in a function that is being executed.
CLOSURE = _COUNTED.format(
    counter="""
def make():
    count = 0
    def warm():
        nonlocal count
        count += 1
        return 0.1 / count
    return warm
warm = make()
""",
    rate="warm()",
)
ON_A_CLASS = _COUNTED.format(
    counter="""
class Counter:
    count = 0
    @classmethod
    def warm(cls):
        cls.count += 1
        return 0.1 / cls.count
""",
    rate="Counter.warm()",
)
EXECUTED = _COUNTED.format(
    counter="""
best = 0
def note(value):
    global best
    best = max(best, value)
class Config:
    pass
Config.rate = 0.1
""",
    rate="note(epoch) or rate",
)
