"""What `share: tree` saves: counted, in the simulator, and by real trainings.

`python -m benchmarks.stage_tree [--live | --paper]`. The study is that of the paper (arXiv
1911.10504): 108 step decays of a learning rate, 2 x 2 values and three times 40, 60 or 80 epochs,
of 200. *Counted* are epochs, with each stage once, against all trials by themselves; for successive
halving (a third goes on at epochs 16 and 64) over 300 draws of the scores, equal trials in their
order; and those of the paper's other study, of 8 growing batches. *Simulated* is the production
scheduler under each policy, to the end of all trials; for `successive_halving` also to the end of
those that it has not held back; the other study under `fifo` and `asha`, as in the paper. `of
bound` is what the tree makes of the fewer epochs: the ratio of device-seconds over the ratio of
epochs. `--live` trains 8 trials of a small network on real digits instead, with and without the
tree, and compares their last weights bit by bit; `--paper` does so with the 108 and a residual
network in PyTorch, in half as many epochs, by a grid and by successive halving.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.orphans import scratch
from benchmarks.report import publish
from hermesd.core.model import Plugin, Stage, TrialSpec
from hermesd.core.tree import StageTree, path_of, until
from hermesd.pb.hermes.v1 import types_pb2
from hermesd.sim.curves import Job, Switch
from hermesd.sim.drive import STUDY, Drive, SimulatedOutcome
from hermesd.sim.orders import LossGoal, SubmissionOrder
from hermesd.verify.comparison import state_of
from tests.e2e.cluster import running

EPOCHS = 200
DAYS = (40, 60, 80)
RUNGS, ETA, DRAWS = (16, 64), 3, 300
# An epoch takes a minute; a switch of a network of this size about a second.
EPOCH_SECONDS, SWITCH = 60.0, Switch(0.1, 0.4, 0.6)
POLICIES = (
    "fifo",
    "successive_halving",
    "asha",
    "hyperband",
    "median",
    "round_robin",
    "best_first",
)
COUNTED = ("what", "trials", "distinct", "stages", "epochs", "unique", "times fewer")
SIMULATED = (
    "policy", "devices", "device-h alone", "device-h tree", "times fewer", "of bound %",
    "end-to-end alone h", "end-to-end tree h", "times sooner",
)  # fmt: skip
LIVE_EPOCHS = 16
PAPER_EPOCHS = 100
LIVE = (
    "study", "trials", "device-s", "end-to-end s", "steps trained", "times fewer device-s",
    "times fewer steps", "times sooner", "weights equal in all bits",
)  # fmt: skip
RESIDUAL_BATCHES = 12
# Unchanged for Hermes, with what the paper has: a residual network, batches of 128, SGD with
# momentum and weight decay. One thread, since a slot is one core.
RESIDUAL = """
import argparse

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--epochs", type=int)
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        inner = torch.relu(self.norm_one(self.one(x)))
        return torch.relu(x + self.norm_two(self.two(inner)))


digits = torch.tensor(numpy.loadtxt("digits.csv", delimiter=",", max_rows=1500))
images = digits[:, :64].float().reshape(-1, 1, 8, 8) / 16
train = TensorDataset(images, digits[:, 64].long())
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), Block(8), nn.MaxPool2d(2), Block(8), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(8, 10),
)
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
for epoch in range(args.epochs):
    for x, y in DataLoader(train, batch_size=128, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@dataclass(frozen=True)
class LiveStudy:
    """A study that is really trained, until so many of its trials are complete."""

    name: str
    files: dict[str, str]
    axes: dict[str, dict[str, Any]]
    needed: int
    steps: int
    policy: str
    settings: tuple[types_pb2.NamedValue, ...] = ()


def specs(root: str = "root") -> list[TrialSpec]:
    """The paper's trials, in the order of a grid."""
    found = []
    points = product((0.5, 0.2), (0.2, 0.1), DAYS, DAYS, DAYS)
    for number, (first, times, *lengths) in enumerate(points):
        values = [float(f"{first * times**index:.12g}") for index in range(4)]
        ends = (*accumulate(map(int, lengths)), None)
        stages = tuple(
            Stage(end, (("learning_rate", value),)) for end, value in zip(ends, values, strict=True)
        )
        trial = TrialSpec(f"{STUDY}/{number}", STUDY, number, stages, (), 0)
        found.append(replace(trial, root=f"{root}-{first}" if root else ""))
    return found


def batch_sizes(root: str = "root") -> list[TrialSpec]:
    """The paper's other study: a batch of 128 that grows five times at three epochs."""
    found = []
    for number, lengths in enumerate(product((30, 60), repeat=3)):
        ends = (*accumulate(lengths), None)
        stages = tuple(Stage(end, (("batch", 128 * 5**i),)) for i, end in enumerate(ends))
        found.append(TrialSpec(f"{STUDY}/{number}", STUDY, number, stages, (), 0, root=root))
    return found


def unique(trials: Sequence[TrialSpec], epochs: Callable[[TrialSpec], int]) -> tuple[int, int, int]:
    """Distinct trials, stages and epochs, where each trial trains so many of them."""
    tree, paths = StageTree(), set()
    for trial in trials:
        path = until(path_of(trial), epochs(trial))
        paths.add((trial.root, path))
        tree.insert(trial.root, path, trial.id)
    nodes = list(tree.nodes)
    return len(paths), len(nodes), sum(node.steps for node in nodes)


def survivors(
    trials: Sequence[TrialSpec], score: Callable[[TrialSpec, int], float]
) -> dict[str, int]:
    """How far each trial trains in successive halving: the best third at each rung goes on; of
    equal ones those that were better at the rung before, then the earlier."""
    reached = {trial.id: RUNGS[0] for trial in trials}
    best = list(trials)
    for index, further in enumerate((*RUNGS[1:], EPOCHS)):
        rungs = RUNGS[index::-1]
        best.sort(key=lambda trial: (*(score(trial, rung) for rung in rungs), trial.number))
        best = best[: len(best) // ETA]
        reached.update((trial.id, further) for trial in best)
    return reached


def drawn(trials: Sequence[TrialSpec], chance: random.Random) -> Callable[[TrialSpec, int], float]:
    """A score for each stage and epoch: the same for trials that are the same until then."""
    known: dict[object, float] = {}

    def score(trial: TrialSpec, epoch: int) -> float:
        return known.setdefault((trial.root, until(path_of(trial), epoch)), chance.random())

    return score


def counted() -> list[list[str | float]]:
    trials = specs()
    rows: list[list[str | float]] = []
    for name, theirs in (("step decays", trials), ("batch sizes", batch_sizes())):
        distinct, stages, fewer = unique(theirs, lambda trial: EPOCHS)
        epochs = EPOCHS * len(theirs)
        rows.append([name, len(theirs), distinct, stages, epochs, fewer, epochs / fewer])
    ratios: list[float] = []
    for seed in range(DRAWS):
        reached = survivors(trials, drawn(trials, random.Random(seed)))
        epochs = sum(reached.values())
        *_, fewer = unique(trials, lambda trial, reached=reached: reached[trial.id])  # type: ignore[misc]
        ratios.append(epochs / fewer)
    for name, of in (("least", min), ("median", statistics.median), ("most", max)):
        ratio = of(ratios)
        what = f"halving at 16 and 64, {name}"
        rows.append([what, len(trials), "", "", epochs, epochs / ratio, ratio])
    return rows


def losses(trial: TrialSpec, epochs: int) -> tuple[float, ...]:
    """A loss that falls and wanders, the same for trials that are the same until then."""
    found: list[float] = []
    begin, wandered = 0, 0.0
    for stage in until(path_of(trial), epochs):
        end = stage.until_step or epochs
        chance = random.Random(f"{trial.root} {found[-1:]} {stage.values}")
        for epoch in range(begin, end):
            wandered += chance.gauss(0.0, 0.004)
            found.append(2.0 / (1 + epoch / 20) + wandered)
        begin = end
    return tuple(found)


def simulated(
    devices: int,
    study: Callable[[str], list[TrialSpec]] = specs,
    policies: Sequence[str] = POLICIES,
) -> Iterator[list[str | float]]:
    """A row for each policy."""
    trials = study("root")
    jobs = [Job(losses(trial, EPOCHS), EPOCH_SECONDS, EPOCHS, 1) for trial in trials]
    order = SubmissionOrder(tuple(jobs), (), LossGoal(0.0, 1.0, 0.0), SWITCH)
    bound = EPOCHS * len(trials) / unique(trials, lambda trial: EPOCHS)[2]
    began = time.monotonic()
    for name in policies:
        _tell(began, f"{devices} devices: {name}")
        halves = name == "successive_halving"
        settings = (("min_rung", 16.0), ("max_rung", 64.0)) if halves else ()
        plugin = Plugin(name, settings)
        alone, tree = (
            Drive(order, devices, plugin, Plugin("free"), specs=of).run()
            for of in (study(""), trials)
        )
        what = name if study is specs else f"{name}, batch sizes"
        yield _row(what, devices, alone, tree, bound)
        if halves:
            yield _to_the_last_of(order, devices, alone, tree)


def _row(
    name: str, devices: int, alone: SimulatedOutcome, tree: SimulatedOutcome, bound: float
) -> list[str | float]:
    hours = [sum(stay.freed - stay.taken for stay in each.stays) / 3600 for each in (alone, tree)]
    ends = [max(each.finished) / 3600 for each in (alone, tree)]
    fewer = hours[0] / hours[1]
    return [name, devices, *hours, fewer, 100 * fewer / bound, *ends, ends[0] / ends[1]]


def _seen(job: Job, epoch: int) -> float:
    """What a policy sees of a job at an epoch."""
    return statistics.fmean(job.losses[:epoch][-max(3, epoch // 10) :])


def _to_the_last_of(
    order: SubmissionOrder, devices: int, alone: SimulatedOutcome, tree: SimulatedOutcome
) -> list[str | float]:
    """Until those have ended that halving lets train to their end; what others were given on
    devices that would have stood idle is not counted."""
    trials = specs()
    rungs = [16, 48]
    best = list(trials)
    reached = {trial.id: rungs[0] for trial in trials}
    for index, further in enumerate((rungs[1], EPOCHS)):
        at = rungs[index::-1]
        best.sort(key=lambda t: (*(_seen(order.jobs[t.number], rung) for rung in at), t.number))
        best = best[: len(best) // ETA]
        reached.update((trial.id, further) for trial in best)
    epochs, (*_, fewer) = sum(reached.values()), unique(trials, lambda trial: reached[trial.id])
    hours, ends = [], []
    for outcome in (alone, tree):
        end = max(outcome.finished[trial.number] for trial in best)
        ends.append(end / 3600)
        seconds = 0.0
        for stay in outcome.stays:
            further = stay.last - min(stay.last, reached[f"{STUDY}/{stay.trial}"])
            if further < stay.last - stay.first:
                seconds += stay.freed - stay.taken - further * EPOCH_SECONDS
        hours.append(seconds / 3600)
    times, bound = hours[0] / hours[1], epochs / fewer
    name = "successive_halving, those not held back"
    return [name, devices, *hours, times, 100 * times / bound, *ends, ends[0] / ends[1]]


async def lived(
    live: LiveStudy, share: types_pb2.Share, folder: Path
) -> tuple[float, float, int, dict[str, dict[str, str]]]:
    """Device-seconds, seconds and steps trained of a study until enough trials are complete, and
    what tells the last weights of these and the states of their optimizers from others."""
    async with running(folder, slots=2) as cluster:
        policy = types_pb2.Plugin(name=live.policy, settings=live.settings)
        schedule = types_pb2.Schedule(policy=policy)
        name = "tree" if share == types_pb2.SHARE_TREE else "by themselves"
        began = time.monotonic()
        await cluster.submit("s", live.files, live.axes, share=share, schedule=schedule)
        last = -1

        async def is_over() -> bool:
            nonlocal last
            await asyncio.sleep(1.0)
            states = Counter(each.state for each in (await cluster.study("s")).trials)
            assert not states[types_pb2.TRIAL_STATE_FAILED]
            complete = states[types_pb2.TRIAL_STATE_COMPLETED]
            if complete != last:
                _tell(began, f"{live.name}, {name}: {complete} of {live.needed} complete")
                last = complete
            return complete >= live.needed

        await cluster.until(is_over)
        seconds = time.monotonic() - began
        answer = await cluster.study("s")
        study, ends = answer.study, {}
        for trial in answer.trials:
            if trial.state != types_pb2.TRIAL_STATE_COMPLETED:
                continue
            assert trial.step == live.steps, f"{trial.id}: {trial.reason}"
            there = folder.glob(f"node/trials/{trial.id}/checkpoints/*/manifest.json")
            final = [each for each in map(_read, there) if each["step"] == trial.step]
            if final:  # one that is the same as another has its end
                ends[trial.id] = state_of(final[0]["files"])
        return study.busy_seconds + study.overhead_seconds, seconds, study.trained_steps, ends


def _tell(began: float, words: str) -> None:
    """How far it is, to who waits for it."""
    print(f"{time.monotonic() - began:6.0f} s  {words}", file=sys.stderr, flush=True)


def _read(manifest: Path) -> Any:
    return json.loads(manifest.read_text())


async def compared(live: LiveStudy) -> list[list[str | float]]:
    """A study on two slots, its trials by themselves and as a tree."""
    found = {}
    for share in (types_pb2.SHARE_NO, types_pb2.SHARE_TREE):
        with scratch() as folder:
            # Below it, since the cluster ends whatever names its own folder.
            (state := folder / "state").mkdir()
            found[share] = await lived(live, share, state)
    alone, tree = found[types_pb2.SHARE_NO], found[types_pb2.SHARE_TREE]
    both = alone[3].keys() & tree[3].keys()
    equal = sum(tree[3][name] == alone[3][name] for name in both)
    return [
        [live.name, "by themselves", *alone[:3], 1.0, 1.0, 1.0, ""],
        [
            live.name, "tree", *tree[:3], alone[0] / tree[0], alone[2] / tree[2],
            alone[1] / tree[1], f"{equal} of {len(both)}",
        ],
    ]  # fmt: skip


def small() -> LiveStudy:
    """8 trials of `examples/digits/train.py`."""
    decay = {"start": "lr0", "times": 0.2, "after": ["first", "second"]}
    axes: dict[str, dict[str, Any]] = {
        "lr0": {"values": [0.05, 0.02]},
        "first": {"values": [8, 10]},
        "second": {"values": [4, 6]},
        "learning_rate": {"sequence": {**decay, "steps_per_epoch": 45}},
        "optimizer": {"value": "momentum"},
        "epochs": {"value": LIVE_EPOCHS},
    }
    program = Path(__file__).parents[1] / "examples" / "digits" / "train.py"
    files = {"train.py": program.read_text()}
    return LiveStudy("8 trials", files, axes, 8, 45 * LIVE_EPOCHS, "fifo")


def paper(epochs: int) -> Iterator[LiveStudy]:
    """The paper's 108 step decays of a residual network, with all epochs made fewer alike; all of
    them, and by successive halving until those of the last rung are complete."""
    scaled = {"values": [day * epochs // EPOCHS for day in DAYS]}
    decay = {"start": "lr0", "times": "gamma", "after": ["first", "second", "third"]}
    axes: dict[str, dict[str, Any]] = {
        "lr0": {"values": [0.5, 0.2]},
        "gamma": {"values": [0.2, 0.1]},
        **dict.fromkeys(decay["after"], scaled),
        "lr": {"sequence": {**decay, "steps_per_epoch": RESIDUAL_BATCHES}},
        "epochs": {"value": epochs},
    }
    steps = epochs * RESIDUAL_BATCHES
    rungs = [types_pb2.NamedValue(name=name) for name in ("min_rung", "max_rung")]
    for rung, epoch in zip(rungs, RUNGS, strict=True):
        rung.value.double_value = epoch * steps / EPOCHS
    # Read from there, as the package that has them takes as long to import as an epoch to train.
    images, labels = load_digits(return_X_y=True)
    text = io.StringIO()
    np.savetxt(text, np.column_stack((images, labels)), fmt="%d", delimiter=",")
    files = {"train.py": RESIDUAL, "digits.csv": text.getvalue()}
    count = len(specs())
    yield LiveStudy(f"{count} trials, grid", files, axes, count, steps, "fifo")
    name = f"{count} trials, successive halving"
    last = count // ETA ** len(RUNGS)
    yield LiveStudy(name, files, axes, last, steps, "successive_halving", tuple(rungs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stage_tree", description=__doc__)
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 4, 20])
    parser.add_argument("--live", action="store_true", help="train a small network instead")
    parser.add_argument("--paper", action="store_true", help="train the paper's trials instead")
    parser.add_argument("--epochs", type=int, default=PAPER_EPOCHS, help="of these, by 20")
    chosen = parser.parse_args()
    if chosen.live:
        publish("stage_tree_live", LIVE, asyncio.run(compared(small())))
        return
    if chosen.paper:
        rows = [row for live in paper(chosen.epochs) for row in asyncio.run(compared(live))]
        publish("stage_tree_paper", LIVE, rows)
        return
    publish("stage_tree_counted", COUNTED, counted())
    rows = [row for devices in chosen.devices for row in simulated(devices)]
    for devices in chosen.devices:
        rows += simulated(devices, batch_sizes, ("fifo", "asha"))  # those of the paper
    publish("stage_tree_simulated", SIMULATED, rows)


if __name__ == "__main__":
    main()
