"""The loss of a step is told, and asking for it changes and breaks nothing of the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer_shim.driving import ROOT, environment

pytestmark = pytest.mark.torch

_HEAD = """
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from trainer_shim.adapters.torch.loop import Iteration

iteration = Iteration()
original = torch.autograd.backward

def backward(tensors, *args, **kwargs):
    original(tensors, *args, **kwargs)
    iteration.backward(tensors)

torch.autograd.backward = backward

def told():
    iteration.stepped(None)
    loss, iteration.loss = iteration.loss, None
    return loss if loss is None else float(loss)

class Seen(TorchDispatchMode):
    # What is computed, by name.
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **kwargs or {})

weight = torch.tensor([2.0], requires_grad=True)
"""

NUMBERS = """
for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    losses = [(weight * one).sum().to(kind) for one in (0.1, 0.7, 1e-3)]
    for loss in losses:
        loss.backward()
    assert told() == float(losses[0].detach() + losses[1].detach() + losses[2].detach()), kind
(weight * 3).backward()
assert told() == 6.0
torch.nn.Parameter(torch.tensor(2.0)).backward()
(weight * 3).sum().backward()
assert told() == 8.0, "one that is kept as a tensor, and one that is a number"
(weight * 3).backward(torch.ones(1))
assert told() == 6.0
torch.autograd.backward([weight.sum(), weight.sum()])
assert told() is None, "two at once are no loss"
"""

SEEN = """
with Seen() as seen:
    (weight * 3).sum().backward()
assert told() == 6.0
assert not [name for name in seen.names if "local_scalar" in name], seen.names

def step(x):
    loss = (weight * x).sum()
    loss.backward()
    return loss

make_fx(step, tracing_mode="real")(torch.ones(1))
told()
"""

LAYOUTS = """
empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(0), (1,))
for _ in range(2):
    loss = empty.clone().requires_grad_()
    loss.backward(torch.ones(1).to_sparse())
assert told() == 0.0
loss = torch.ones(1, 1).to_sparse_csr().requires_grad_()
loss.backward(torch.ones(1, 1).to_sparse_csr())
iteration.stepped(None)
"""

COMPILED = """
import torch._dynamo as dynamo

def step(x):
    loss = (weight * x).sum()
    loss.backward()
    return loss

torch.compile(step, backend="eager")(torch.ones(1))
assert told() == 2.0
breaks = " ".join(dynamo.utils.counters["graph_break"])
assert "item" not in breaks, breaks
"""

# A loader of the program's own class may give any iterator.
PASSES = """
from trainer_shim.adapters.torch.side_iterators import SideIterators

class Slots:
    __slots__ = ("__weakref__",)

beside = SideIterators(next, print)
iterators = [(n for n in range(3)), Slots()]
for iterator in iterators:
    beside.add(iterator, "first")
    beside.add(iterator, "again")
    assert beside.passes[id(iterator)] == "again"
del iterator
iterators.pop()
assert len(beside.passes) == 1
iterators.pop()
assert not beside.passes
"""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(NUMBERS, id="NUMBERS"),
        pytest.param(SEEN, id="SEEN"),
        pytest.param(LAYOUTS, id="LAYOUTS"),
        pytest.param(COMPILED, id="COMPILED"),
        pytest.param(PASSES, id="PASSES"),
    ],
)
def test_in_a_process_of_its_own(body: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(_HEAD + body)
    done = subprocess.run(
        [sys.executable, str(script)], env=environment(PYTHONPATH=str(ROOT)),
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
