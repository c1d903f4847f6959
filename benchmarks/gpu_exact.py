"""Whether programs of several frameworks compute on a GPU what they do undisturbed, in each tier.

`hermesctl verify-resume`, for the examples of PyTorch, Lightning and Hugging Face as they are,
and for small programs of JAX, Keras and a stage tree: once with images of processes off, when a
checkpoint is the framework's, and once with them on. All at once on one GPU, which takes a GB of
it for each, and a core. Frameworks that are not installed are left out.
`python -m benchmarks.gpu_exact [--criu PATH] [--programs LIST] [--seconds N]`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from benchmarks.report import publish, software

ROOT = Path(__file__).parents[1]

_SAVES = """
def final(arrays):
    import hashlib, numpy
    found = hashlib.sha256()
    for each in arrays:
        found.update(numpy.asarray(each).tobytes())
    print("weights", found.hexdigest(), flush=True)
"""
JAX = """
import jax, jax.numpy as jnp
def init(key, sizes):
    keys = jax.random.split(key, len(sizes))
    return [jax.random.normal(k, (a, b)) * a ** -0.5 for k, a, b in zip(keys, sizes, sizes[1:])]
def loss_of(weights, x, y):
    for w in weights[:-1]:
        x = jax.nn.relu(x @ w)
    return jnp.mean((x @ weights[-1] - y) ** 2)
@jax.jit
def step(weights, moments, key):
    key, one = jax.random.split(key)
    x = jax.random.normal(one, (256, 64))
    loss, grads = jax.value_and_grad(loss_of)(weights, x, jnp.sin(x.sum(1, keepdims=True)))
    moments = [0.9 * m + g for m, g in zip(moments, grads)]
    return [w - 0.01 * m for w, m in zip(weights, moments)], moments, key, loss
key = jax.random.key(0)
weights = init(key, [64, 512, 512, 1])
moments = [jnp.zeros_like(w) for w in weights]
print(jax.devices()[0], flush=True)
for epoch in range(8):
    for _ in range(5000):
        weights, moments, key, loss = step(weights, moments, key)
    print(f"epoch {epoch}: loss={float(loss)!r}", flush=True)
final(weights)
"""
KERAS = """
import os
os.environ["KERAS_BACKEND"] = "{backend}"
import keras, numpy as np
keras.utils.set_random_seed(3)
x = np.random.default_rng(1).normal(size=(2_000, 32)).astype("float32")
layers = [keras.layers.Input((32,)), keras.layers.Dense(128, "relu"), keras.layers.Dropout(0.2),
          keras.layers.Dense(1)]
model = keras.Sequential(layers)
model.compile("adam", "mse")
model.fit(x, x.sum(axis=1), batch_size=50, epochs=3, verbose=2, validation_split=0.2)
final(model.get_weights())
"""
TREE = """
import argparse, torch
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float)
args = parser.parse_args()
torch.manual_seed(4)
device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(400, 64)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                            torch.nn.Linear(256, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)
for epoch in range(6):
    for inputs, targets in DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 20, shuffle=True):
        loss = torch.nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
final(each.detach().cpu() for each in model.parameters())
"""
TREE_PARAMETERS = {
    "lr0": {"values": [0.01]}, "factor": {"values": [0.5, 0.1]}, "first": {"values": [2, 4]},
    "learning_rate": {
        "sequence": {"start": "lr0", "times": "factor", "after": ["first"], "steps_per_epoch": 20}
    },
}  # fmt: skip
DETERMINISTIC = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "XLA_FLAGS": "--xla_gpu_deterministic_ops=true",
}
LITTLE = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclass(frozen=True)
class Program:
    """What is verified, and by which words."""

    modules: Sequence[str]
    #: A folder of examples, or the text of a program.
    example: str = ""
    text: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"unused": {"values": [1]}})
    environment: Mapping[str, str] = field(default_factory=dict)
    words: Sequence[str] = ()
    is_imaged: bool = True


PROGRAMS = {
    "pytorch": Program(["torch", "sklearn"], "pytorch"),
    "lightning": Program(["lightning", "sklearn"], "lightning"),
    "transformers": Program(["transformers"], "transformers"),
    "keras on torch": Program(["keras", "torch"], text=KERAS.replace("{backend}", "torch")),
    "keras on jax": Program(
        ["keras", "jax"], text=KERAS.replace("{backend}", "jax"), environment=LITTLE
    ),
    "jax": Program(["jax"], text=JAX, environment=LITTLE, words=["--suspend-at", "3"]),
    "jax, preallocated": Program(
        ["jax"], text=JAX, environment={"XLA_PYTHON_CLIENT_MEM_FRACTION": ".4"},
        words=["--suspend-at", "3"], is_imaged=False,
    ),
    "pytorch, tree": Program(
        ["torch"], text=TREE, parameters=TREE_PARAMETERS, words=["--tree", "4"], is_imaged=False
    ),
}  # fmt: skip


def laid_out(program: Program, folder: Path) -> Path:
    """The study file of a program, in a folder of its own."""
    if program.example:
        shutil.copytree(ROOT / "examples" / program.example, folder)
        study = yaml.safe_load((folder / "study.yaml").read_text())
    else:
        folder.mkdir(parents=True)
        (folder / "train.py").write_text(_SAVES + program.text)
        study = {"program": "train.py", "method": "grid", "parameters": program.parameters}
        if "--tree" in program.words:
            study["share"] = "tree"
    path = folder / "study.yaml"
    path.write_text(json.dumps(study))
    return path


def verified(name: str, criu: str, folder: Path, seconds: float) -> list[dict[str, Any]]:
    """A row for each tier, or branch of a tree."""
    program = PROGRAMS[name]
    study = laid_out(program, folder)
    # An image takes gigabytes of the disk.
    few = ("--suspend-at", "40") if criu != "off" else ()
    words = ("verify-resume", str(study), "-o", "json", *(program.words or few))
    began = time.monotonic()
    about = {"program": name, "images": "on" if criu != "off" else "off"}
    try:
        run = subprocess.run(
            [sys.executable, "-m", "hermesctl.cli", *words],
            env={**os.environ, **DETERMINISTIC, **program.environment, "HERMES_NODE_CRIU": criu},
            capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip
        found = json.loads(run.stdout)
    except subprocess.TimeoutExpired:
        return [{**about, "verdict": f"not done in {seconds:g} s", "seconds": seconds}]
    except ValueError:
        return [{**about, "verdict": "failed", "why": (run.stdout + run.stderr)[-2000:]}]
    took = time.monotonic() - began
    rows = found.get("tiers") or [
        {**each, "tier": f"from trial {each['carrier']}" if each["carrier"] else "carrier"}
        for each in found["trials"]
    ]
    return [
        {
            **about,
            "tier": each["tier"],
            "verdict": each["verdict"],
            "suspends": len(each.get("boundaries", ())),
            "values": each["values"],
            "files": each["files"],
            "fidelity": found.get("fidelity", ""),
            "seconds": took,
            "why": f"{each['why']} {each['first_difference'] or ''}"[:600],
        }
        for each in rows
    ]


COLUMNS = (
    "program", "images", "tier", "verdict", "suspends", "values", "files", "fidelity", "seconds",
    "why", "software",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--criu", default="criu", help="where CRIU is, for images")
    parser.add_argument("--programs", default=";".join(PROGRAMS), help="separated by ;")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each at most (600)")
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    criu = shutil.which(options.criu)
    ways = ("off", criu) if criu else ("off",)
    jobs = [
        (name, way)
        for name in options.programs.split(";")
        if all(find_spec(module) for module in PROGRAMS[name].modules)
        for way in ways
        if way == "off" or PROGRAMS[name].is_imaged
    ]
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as root, ThreadPoolExecutor(options.at_once) as pool:
        begun = [
            pool.submit(verified, name, way, Path(root, str(number)), options.seconds)
            for number, (name, way) in enumerate(jobs)
        ]
        for each, (name, _) in zip(begun, jobs, strict=True):
            versions = software(*PROGRAMS[name].modules)
            told = " ".join(f"{module} {version}" for module, version in versions.items())
            rows += [{**row, "software": told} for row in each.result()]
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    table = [[row.get(column, "") for column in COLUMNS] for row in rows]
    publish("gpu_exact", COLUMNS, table, options.out)


if __name__ == "__main__":
    main()
