"""What is packed comes back the same, into what is there, and nothing that could run code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer_shim.driving import ROOT, environment

pytestmark = pytest.mark.torch

# In a process of its own: an import of PyTorch warns, and would stay. A program's own file, so
# that its classes are known as its own.
_HEAD = """
import os, random, sys
from collections import Counter, OrderedDict, defaultdict, deque
import numpy as np
import torch
from trainer_shim.adapters.torch.loaders import copy_loader, put_back_loader
from trainer_shim.adapters.torch.pack import Packer
from trainer_shim.adapters.torch.tensor_bytes import Unplain
from trainer_shim.adapters.torch.random import copy_random, set_random
from trainer_shim.adapters.torch.state import OtherProgram, TorchSnapshot, load
from trainer_shim.adapters.torch.pack import Unpacker
from trainer_shim.checkpoint_dir import Builder

def through_a_file(tree):
    builder = Builder(sys.argv[1], "one")
    TorchSnapshot({"tree": tree}).write(builder)
    builder.finish({"step": 0})
    return load(builder.path)["tree"]

def again(value, current=None, known=()):
    tree = through_a_file(Packer({id(one): i for i, one in enumerate(known)}).pack(value))
    return Unpacker(list(known)).unpack(tree, current)

def refused(value, **limits):
    try:
        Packer({}, **limits).pack(value)
    except Unplain:
        return True
    return False
"""

SAME = """
for value in (None, True, 3, -1.5, float("inf"), "a", b"b", [1, [2]], (1, (2,)), {1: "x", "y": {}},
              {1, 2}, frozenset({3}), Counter("aab"), OrderedDict(z=1, a=2), torch.Size([1, 2]),
              torch.float16, torch.device("cpu"), np.float32(0.1), 10**30):
    got = again(value)
    assert got == value and type(got) is type(value), value
assert str(again(float("nan"))) == "nan"
for tensor in (torch.randn(3, 4), torch.randn(3, 4).T, torch.tensor(7), torch.zeros(0, 2),
               torch.ones(2, 3).bfloat16(), torch.tensor([True, False]),
               torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
               torch.randn(2, dtype=torch.complex64), torch.randn(1).expand(4)):
    got = again(tensor)
    assert got.dtype == tensor.dtype and torch.equal(got, tensor), tensor
    assert got.stride() == tensor.stride() or tensor.stride() == (0,)
array = np.arange(6, dtype=">i2").reshape(2, 3)
assert np.array_equal(again(array), array) and again(np.zeros((0, 3))).shape == (0, 3)
"""

IN_PLACE = """
class Meter:
    def __init__(self):
        self.sum, self.parts, self.made = 0.0, [], torch.Generator()

there, held = [0], {"a": [1]}
inner = held["a"]
assert again([1, 2], there) is there and there == [1, 2]
assert again({"a": [5], "b": 6}, held) is held and held["a"] is inner and inner == [5]
for kind in (Counter, OrderedDict):
    counts = kind(a=1, b=2)
    assert again(kind(b=5, a=3), counts) is counts
    assert list(counts.items()) == [("b", 5), ("a", 3)] and type(counts) is kind
meter, other = Meter(), Meter()
meter.sum, meter.parts = 2.5, [1]
meter.made.manual_seed(4)
expected = torch.rand(1, generator=meter.made.clone_state())
assert again(meter, other) is other and (other.sum, other.parts) == (2.5, [1])
assert torch.equal(torch.rand(1, generator=other.made), expected)
for one, two in ((np.random.default_rng(1), np.random.default_rng(2)),
                 (np.random.RandomState(1), np.random.RandomState(2)),
                 (random.Random(1), random.Random(2))):
    again(one, two)
    assert one.normal(0, 1) == two.normal(0, 1) if hasattr(one, "normal") else (
        one.random() == two.random())
weight = torch.nn.Parameter(torch.ones(2))
assert again([weight], known=[weight])[0] is weight
leaf = torch.zeros(2, requires_grad=True)
assert again(weight, leaf) is leaf and torch.equal(leaf, weight)
assert again(torch.ones(2), weight, known=[weight]) is not weight
queue = deque([1], maxlen=3)
assert again(deque([4, 5]), queue) is queue and list(queue) == [4, 5]
"""

OWN_CLASSES = """
import enum
from dataclasses import dataclass
from typing import NamedTuple
class Mode(enum.Enum):
    WARM, HOT = 1, 2
class Best(NamedTuple):
    loss: float
    weights: list
class Slim:
    __slots__ = ("sum", "parts")
class Slimmer(Slim):
    __slots__ = "count"
@dataclass(frozen=True)
class Frozen:
    value: int
assert again(Mode.HOT, Mode.WARM) is Mode.HOT and Mode.WARM.name == "WARM"
assert again([Mode.HOT], None) == [Mode.HOT]
best = again(Best(0.5, [1, 2]), None)
assert type(best) is Best and best == Best(0.5, [1, 2])
slim, other = Slimmer(), Slimmer()
slim.sum, slim.parts, slim.count = 2.5, [3], 4
other.sum, other.parts = 0.0, []
held = other.parts
assert again(slim, other) is other and (other.sum, other.parts, other.count) == (2.5, [3], 4)
assert other.parts is held
class History(list):
    def __init__(self, name):
        self.name = name
class Table(dict):
    pass
class Open:
    def __init__(self):
        self.file = sys.stdout
history, there = History("a"), History("b")
history += [1, 2]
assert again(history, there) is there and (list(there), there.name) == ([1, 2], "a")
made = again(history, None)
assert type(made) is History and (list(made), made.name) == ([1, 2], "a")
assert again(Table(a=1), Table(b=2)) == {"a": 1}
made = again(slim, None)
assert type(made) is Slimmer and (made.sum, made.parts, made.count) == (2.5, [3], 4)
assert again(Frozen(3), None) == Frozen(3)
try:
    again(Open(), None)
    raise SystemExit("an open file was made anew")
except Unplain:
    pass
frozen = Frozen(1)
assert again(Frozen(2), frozen) is frozen and frozen.value == 2
"""

REFUSED = """
loop = []
loop.append(loop)
class Model(torch.nn.Linear):
    pass
for value in (loop, print, lambda: 0, sys, sys.stdout, torch.nn.Linear(1, 1), Model(1, 1),
              np.array([object()]), torch.ones(2).to_sparse(), torch.empty(2, device="meta"),
              torch.nn.parameter.UninitializedParameter()):
    assert refused(value), value
assert refused(torch.ones(3), largest=8) and not refused(torch.ones(2), largest=8)
assert refused([1, 2, 3], longest=2) and refused([[1, 2, 3]], longest=2)
assert refused([[0, 1]] * 70, longest=70) is False and refused([[0] * 70] * 70, longest=70)
"""

LARGE = """
from trainer_shim.adapters.torch import pack as torch_pack
from trainer_shim.adapters.torch.unchanged_values import UnchangedValues

def packer(large):
    return Packer({}, largest=8000, longest=3, large=large)

large, data = UnchangedValues(), torch.arange(3000.0)
array, names, grows = np.arange(3000), list("abcd"), [0] * 4
made = {"data": data, "array": array, "names": names, "grows": grows, "late": 0}
functions, gathered, chain = {"print": print}, [], ["deep"]
for _ in range(15):
    chain = [chain]
class Log:
    def __init__(self, lines):
        self.lines = lines
log = Log(Log(Log(Log(gathered))))
made.update(functions=functions, gathered=gathered, chain=chain, self=log)
packer(large).pack_some(made.items())
large.noting = False
assert packer(large).pack_some([("chain", [chain]), *made.items()]).keys() >= {"chain"}
gathered.append(print)
try:
    packer(large).pack_some([("functions", functions), ("other", [print]), ("gathered", gathered)])
    raise SystemExit("what cannot be copied was dropped without a word")
except torch_pack.TooLargeToPack as error:
    assert "gathered, which has changed and holds a builtin_function" in str(error), error
try:
    packer(large).pack_some([("self", log)])
    raise SystemExit("what cannot be copied was dropped without a word")
except torch_pack.TooLargeToPack as error:
    assert str(error).startswith("self.lines.….lines, which has changed and"), error
gathered.clear()
try:
    packer(large).pack_some([("chain", [[chain]])])
    raise SystemExit("what is nested deep was dropped without a word")
except torch_pack.TooLargeToPack as error:
    assert "chain, a list that is nested deeper than 16" in str(error), error
data.data[:2] = data.data[[1, 0]]
grows.append(1)
made["late"] = torch.zeros(3000)
tree = packer(large).pack_some(made.items())
assert [name for name in tree if "made" in str(tree[name])] == ["array", "names"]
assert torch.equal(Unpacker([]).unpack(tree["data"]), data) and tree["grows"] == grows
now = {"array": np.arange(3000), "names": list("efgh")}
Unpacker([]).put_some({name: tree[name] for name in now}, now)
try:
    Unpacker([]).put_some(tree, {"array": np.arange(3000)[::-1]})
    raise SystemExit("another array was taken for the one it was")
except OtherProgram:
    pass
shared = packer(large).pack([data, data.view(-1)])
assert shared[0]["tensor"] is shared[1]["tensor"]
torch_pack._MOST_BYTES = 30_000
try:
    packer(large).pack_some([("one", data), ("two", {"three": torch.zeros(9000)})])
    raise SystemExit("there was memory for more than all")
except torch_pack.TooLargeToPack as error:
    assert "two, a tensor of shape (9000,)" in str(error), error
"""

LEFT = """
from trainer_shim.adapters.torch import pass_variables as torch_left
from trainer_shim.adapters.torch.pass_variables import PassVariables

def passes(left, *values):
    records = []
    for value in values:
        variables = [{"frame": "run", "values": left.packer().pack_some(value.items())}]
        left.keep("here", variables)
        records.append({"kind": "ended", "site": "here", "left": {"variables": variables}})
    return records

def found(left, record):
    (copy,) = left.of("here", record["left"]["variables"])
    return Unpacker([]).unpack(copy["values"]["a"])[-1]

large = UnchangedValues()
large.noting = False
torch_left._MOST = 5000
left, one = PassVariables(large), list(range(100))
records = passes(left, {"a": one}, {"a": one + [1]}, {"a": one + [1]}, {"a": [2], "b": 3})
dumped = left.dump(records)
assert len(dumped["kept"]) == 3
assert [found(left, record) for record in records] == [99, 1, 1, 2]
records += passes(left, {"a": one * 2 + [4]})
assert [found(left, record) for record in records] == [4, 1, 1, 2, 4]
again_left = PassVariables(large)
loaded = again_left.load(through_a_file(left.dump(records)))["records"]
assert [found(again_left, record) for record in loaded] == [4, 1, 1, 2, 4]
assert loaded[3]["left"]["variables"][0]["values"]["b"] == 3
"""

SHARED = """
data = torch.arange(1000.0)
tree = Packer({}).pack({"loader": [data, data], "sampler": data, "other": data + 1})
sizes = set()  # a checkpoint of what came from a checkpoint is no larger
for turn in range(2):
    builder = Builder(sys.argv[1], f"turn{turn}")
    TorchSnapshot({"tree": tree}).write(builder)
    builder.finish({"step": 0})
    tree = load(builder.path)["tree"]
    sizes.add(os.path.getsize(os.path.join(builder.path, "torch.arrays")))
assert len(sizes) == 1, sizes
"""

ALIKE = """
import io
def made(name, zero, *words):
    one, two = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
    groups = [{"params": list(one.parameters())}, {"params": list(two.parameters()), "lr": 0.5}]
    optimizer = torch.optim.Adam(groups, betas=(0.8, 0.99))
    optimizer.param_groups[1].update(name=name, zero=zero)
    return one, two, optimizer, {"train": list(words), "said": "one of two"}

def file_of(optimizer, history):
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "history": history}, file)
    return file.getvalue()

one, two, optimizer, history = made("train", -0.0, "train", "train", "said")
two(one(torch.ones(4, 3))).sum().backward()
optimizer.step()
parameters = [each for group in optimizer.param_groups for each in group["params"]]
groups = [{**group, "params": None} for group in optimizer.param_groups]
slots = [dict(optimizer.state[each]) for each in parameters]
_, _, second, there = made("", 0.0)
for group, values in zip(second.param_groups, again(groups)):
    trees = Packer({}).pack_some((name, values[name]) for name in values if name != "params")
    Unpacker([]).put_some(trees, group)
parameters = [each for group in second.param_groups for each in group["params"]]
for each, slot in zip(parameters, again(slots)):
    second.state[each] = slot
assert file_of(second, again(history, there)) == file_of(optimizer, history)
assert [type(one) for one in again((1, -0.0), (True, 0.0))] == [int, float]
"""

RANDOM = """
random.seed(1), np.random.seed(2), torch.manual_seed(3)
state = through_a_file(copy_random())
def drawn():
    return random.random(), random.gauss(0, 1), np.random.normal(), torch.randn(2).tolist()
first = drawn()
set_random(state)
assert drawn() == first
set_random(state)
assert drawn() == first
"""

WIDTHS = """
from trainer_shim.adapters.torch.other_width import FirstValues
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

class Job:
    def __init__(self, world):
        self.world, self.best = world, 9.0

def packed(values, large):
    packer = Packer({}, 8000, large=large)
    return [{"frame": "<module>", "values": packer.pack_some(values.items())}]

def begun(world, batch_size):
    os.environ["WORLD_SIZE"] = str(world)
    first, large, job = FirstValues(True), UnchangedValues(), Job(world)
    shard, long = torch.arange(48)[::world], torch.arange(6000.0)[::world].clone()
    values = {"job": job, "shard": shard, "long": long, "seen": [0, world], "of": {"w": world}}
    first.note(sys._getframe(1), packed(values, large), {})
    large.noting = False
    sampler = DistributedSampler(range(48), world, 0)
    loader = DataLoader(range(48), batch_size, sampler=sampler)
    first.note_loader(0, loader)
    return first, large, values, loader

first, large, values, loader = begun(2, 12)
values["job"].best, values["seen"][0] = 1.0, 5
loader.sampler.set_epoch(3)
past = through_a_file(
    {**first.dump(), "variables": packed(values, large), "loader": copy_loader(loader)}
)
for world, batch_size in ((1, 24), (3, 8), (3, 12)):
    first, large, values, loader = begun(world, batch_size)
    first.load(past)
    (copy,) = first.variables(sys._getframe(), past["variables"])
    Unpacker([]).put_some(copy["values"], values)
    assert (values["job"].world, values["job"].best) == (world, 1.0)
    assert (len(values["shard"]), len(values["long"])) == (48 // world, 6000 // world)
    assert (values["seen"], values["of"]) == ([5, world], {"w": world})
    put_back_loader(loader, first.loader(0, past["loader"]), Unpacker([]))
    assert (loader.sampler.num_replicas, loader.sampler.epoch) == (world, 3)
    assert loader.batch_sampler.batch_size == batch_size
    try:
        first.check_batch(0)
        assert batch_size != 12
    except OtherProgram as error:
        assert batch_size == 12 and "divide the loader's batch_size by WORLD_SIZE" in str(error)
"""


def test_values(tmp_path: Path) -> None:
    """All in one process: importing PyTorch takes longer than any of them."""
    script = tmp_path / "values.py"
    script.write_text(
        _HEAD
        + SAME
        + IN_PLACE
        + OWN_CLASSES
        + REFUSED
        + LARGE
        + LEFT
        + SHARED
        + ALIKE
        + RANDOM
        + WIDTHS
        + "print('right')\n"
    )
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=environment(PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert run.stdout == "right\n"


CHECK = """
from trainer_shim.adapters import private_names
from trainer_shim.adapters.torch import private
print(private.missing(), "/", private.untested())
names, uses = private.OPTIONAL_NAMES + private.BUCKET_NAMES, private.BUCKET_USES
print(private.first_missing(names, "torch") or private.first_unused(uses, "torch"))
private.USES += (("torch.optim", "Optimizer.__init__", "no_such_attribute"),)
print(private.missing())
private.NAMES += (("torch.optim", "Optimizer.no_such_method"),)
print(private.missing())
for package in ("torch", "python"):
    private_names.TESTED[package] = ("2.0", "2.0")
    print(private.untested())
    private_names.TESTED[package] = ("2.0", "9.9")
"""


def test_a_name_that_is_gone_and_a_version_untested_are_named() -> None:
    env = environment(PYTHONPATH=str(ROOT))
    run = subprocess.run(
        [sys.executable, "-c", CHECK], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    here, optional, unused, gone, torch, python = run.stdout.splitlines()
    assert here == "None / None"
    assert optional == "None"
    assert unused.endswith("has no no_such_attribute in torch.optim.Optimizer.__init__")
    assert "torch.optim.Optimizer.no_such_method" in gone
    assert torch.startswith("resuming is tested with torch 2.0, this is ")
    assert python.startswith("resuming is tested with python 2.0, this is 3.")


def test_a_checkpoint_holds_no_pickle(tmp_path: Path) -> None:
    script = tmp_path / "values.py"
    script.write_text(_HEAD + "through_a_file(Packer({}).pack({'a': torch.arange(3)}))\n")
    subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=environment(PYTHONPATH=str(ROOT)),
        check=True,
    )
    saved = tmp_path / "one"
    assert sorted(path.name for path in saved.iterdir()) == [
        "manifest.json",
        "torch.arrays",
        "torch.beside",
        "torch.json",
    ]
    content = (saved / "torch.json").read_bytes()
    length = int.from_bytes(content[:8], "big")
    assert json.loads(content[8 : 8 + length]) == [24]
    assert json.loads(content[8 + length :])["state"]["tree"]["dict"][0][0] == "a"
    assert (saved / "torch.arrays").read_bytes() == b"", "no module has a value in it"
    assert (saved / "torch.beside").read_bytes()[:24] == bytes.fromhex(
        "000000000000000001000000000000000200000000000000"
    )
