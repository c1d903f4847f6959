"""Whatever of a framework no public interface promises is in a list; a name that is gone is told.

The first tests read the sources, and import no framework.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.trainer_shim.driving import ROOT, environment
from tests.trainer_shim.suspending import Runs, fidelity, outcome, warm_zygote, with_keras
from trainer_shim.adapters import private_names, seeds_private
from trainer_shim.program.source_files import syntax_tree

SHIM = ROOT / "trainer_shim"
LISTS = sorted(path for path in SHIM.rglob("*.py") if re.search("private(_names)?$", path.stem))
SOURCES = sorted(path for path in SHIM.rglob("*.py") if path not in LISTS)
PRIVATE = re.compile(r"_(?!_|hermes_)\w*[a-z0-9]")
INTERNAL = re.compile(r"(keras\.src|tensorflow\.python|(torch|jax|numpy)\._[a-z]\w*)(\.\w+)*")
# Documented, though they look as if they were not.
DOCUMENTED = {"_exit", "_getframe", "_replace", "_fields"}
# Only looked for: where a leaf of OmegaConf's has it no more, a loop's length is not known.
LOOKED_FOR = {"_val"}
# Ends of names: of numbers that the Hugging Face Trainer logs, and of Python's own iterators.
ENDS = {"_runtime", "_per_second", "_time", "_time_seconds", "_iterator"}


@cache
def tree(path: Path) -> ast.Module:
    return syntax_tree(path.read_text(encoding="utf-8"))


def listed() -> Iterator[tuple[str, ...]]:
    """Each entry of each list: a module, what is in it, and perhaps an attribute."""
    for path in LISTS:
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        waiting = [value for name, value in vars(module).items() if re.search("NAMES|USES", name)]
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                waiting += value.values()
            elif value and all(isinstance(one, str) for one in value):
                yield value
            else:
                waiting += value


def is_self(node: ast.expr) -> bool:
    is_super = isinstance(node, ast.Call) and ast.unparse(node.func) == "super"
    return is_super or (isinstance(node, ast.Name) and node.id == "self")


@cache
def own(path: Path) -> set[str]:
    """The names that the classes in a file of ours give to methods and attributes."""
    found = set()
    for kind in ast.walk(tree(path)):
        for node in ast.walk(kind) if isinstance(kind, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif isinstance(getattr(node, "ctx", None), ast.Store):
                if isinstance(node, ast.Name):
                    found.add(node.id)
                elif isinstance(node, ast.Attribute) and is_self(node.value):
                    found.add(node.attr)
    return found


@cache
def everywhere_own() -> set[str]:
    return set().union(*map(own, SOURCES))


def foreign(path: Path) -> Iterator[tuple[str, int]]:
    """The names of others that a file uses, as attributes or in strings, and the lines."""
    whole = list(ast.walk(tree(path)))
    formats = {
        id(part) for node in whole if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in whole:
        match node:
            case ast.Attribute(value=value, attr=name):
                if name not in (everywhere_own() if is_self(value) else own(path)):
                    yield name, node.lineno
            case ast.Constant(value=str(text)):
                if id(node) not in formats and text not in own(path) | ENDS:
                    yield text, node.lineno


def test_a_private_name_that_is_used_is_in_a_list() -> None:
    known = {part for _, *names in listed() for name in names for part in name.split(".")}
    known |= {module for module, *_ in listed()} | DOCUMENTED | LOOKED_FOR
    unlisted = [f"{path.name}:{line} uses {name}" for path in SOURCES
                for name, line in foreign(path)
                if PRIVATE.fullmatch(name) and name not in known]  # fmt: skip
    assert not unlisted


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{one.name}" for one in node.names]
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_an_internal_module_that_is_used_is_in_a_list() -> None:
    known = {name for module, path, *_ in listed() for name in (module, f"{module}.{path}")}
    used = {name: path.name for path in SOURCES
            for node in ast.walk(tree(path)) for name in imported(node)}  # fmt: skip
    unlisted = [one for one in used.items() if INTERNAL.fullmatch(one[0]) and one[0] not in known]
    assert not unlisted


def test_what_is_looked_up_in_a_module_is_in_a_list() -> None:
    known = {part for _, *names in listed() for name in names for part in name.split(".")}
    unlisted = [f"{path.name}:{node.lineno} looks up {name.value}" for path in SOURCES
                for node in ast.walk(tree(path))
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "private.find"
                for name in node.args[1:]
                if isinstance(name, ast.Constant) and name.value not in known]  # fmt: skip
    assert not unlisted


def test_what_is_relied_on_of_python_is_there() -> None:
    assert private_names.first_missing(private_names.PYTHON_NAMES, "python") is None
    assert private_names.first_unused(private_names.PYTHON_USES, "python") is None


@pytest.mark.parametrize(
    "path",
    ["NoClass.__init__", "JSONDecoder.no_method", "JSONDecoder.__eq__", "JSONDecoder.decode"],
)
def test_a_function_that_is_gone_or_keeps_nothing_by_that_name_is_named(path: str) -> None:
    """Whatever has become of it, such as a class that has no `__init__` of its own any more."""
    reason = private_names.first_unused([("json.decoder", path, "_gone")], "json 2")
    assert reason is not None
    assert reason.startswith("json 2 has no ")
    assert reason.endswith(f"json.decoder.{path}")


def test_the_documented_versions_are_those_that_are_taken() -> None:
    page = (ROOT / "docs" / "exactness.md").read_text(encoding="utf-8")
    table = page.partition("## Versions of frameworks")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"\n\| (\w+)[^|]*\| (\d[^|]+) \|", table))
    titles = {"torch": "PyTorch", "pytorch_lightning": "Lightning"}
    for package, (first, last) in private_names.TESTED.items():
        title = next(name for name in rows if name.lower() == titles.get(package, package).lower())
        assert rows[title] == (first if first == last else f"{first} to {last}")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.6.0", None),
        ("2.10.1+cu128", None),
        ("2.15.0a0+git1", None),
        ("2.15rc1", None),
        ("2.5.1", "this is 2.5.1: the nearest tested version is 2.6"),
        ("2.16.0", "this is 2.16.0: the nearest tested version is 2.15"),
        ("3.0", "this is 3.0: the nearest tested version is 2.15"),
        ("unknown", "this is unknown: the nearest tested version is 2.6"),
    ],
)
def test_versions_from_the_first_tested_to_the_last_are_taken(
    version: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(private_names.TESTED, "torch", ("2.6", "2.15"))
    told = private_names.first_untested({"torch": version})
    assert told == (words and f"resuming is tested with torch 2.6 to 2.15, {words}")


# Where there is Hermes, NumPy lacks a name before it is imported.
LACKING = """
try:
    from trainer_shim.adapters import seeds_private
    seeds_private.NAMES["numpy"] += (("numpy.random.mtrand", "no_such_name"),)
except ImportError:
    pass
import numpy as np
import torch
torch.manual_seed(3)
np.random.seed(4)
data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for inputs, targets in torch.utils.data.DataLoader(data, 10, shuffle=True):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
print("FINAL", model.weight.tolist(), np.random.random(), np.random.default_rng(5).random())
"""


@pytest.mark.torch
def test_with_another_numpy_a_program_trains_on_and_only_parks(tmp_path: Path) -> None:
    with warm_zygote(tmp_path, "") as zygote:
        runs = Runs(zygote, tmp_path, LACKING)
        with runs.trial("parked") as trial:
            trial.start(limit=2)
            assert trial.until("parked")["step"] == 2
            level, reason = fidelity(trial)
            assert level == "park-only"
            assert "has no numpy.random.mtrand.no_such_name" in reason
            trial.resume()
            trial.until("completed")
            losses, line = outcome(trial)
        assert sorted(losses) == [1, 2, 3, 4]
        assert line == runs.plain()


# In a process of its own: what is taken out there, and imported, would stay so.
CHECK = """
import importlib
from trainer_shim.adapters import private_names, seeds, seeds_private
package = "{package}"
importlib.import_module(package)
print(seeds_private.missing())
for module, path in seeds_private.NAMES[package]:
    owner, _, name = path.rpartition(".")
    found = private_names.find(module, owner) if owner else importlib.import_module(module)
    try:
        value = getattr(found, name)
        delattr(found, name)
    except TypeError:
        continue  # of a class that cannot be changed
    reason = seeds_private.missing()
    setattr(found, name, value)
    assert reason and reason.startswith(package) and reason.endswith(f"no {module}.{path}"), reason
seeds_private.USES[package] += (("json.decoder", "JSONDecoder.decode", "no_such_attribute"),)
print(seeds_private.missing())
"""


@pytest.mark.parametrize(
    "package", ["numpy", pytest.param("tensorflow", marks=pytest.mark.tensorflow)]
)
def test_what_seeds_rely_on_is_there_and_each_that_is_gone_is_named(
    package: str, tmp_path: Path
) -> None:
    check = CHECK.replace("{package}", package)
    if package == "tensorflow":
        said = with_keras(tmp_path, check)
    else:
        env = environment(PYTHONPATH=str(ROOT))
        said = subprocess.check_output([sys.executable, "-c", check], env=env, text=True)
    here, unused = said.splitlines()
    assert here == "None"
    assert unused.endswith("has no no_such_attribute in json.decoder.JSONDecoder.decode")


@pytest.mark.parametrize("module", [None, ModuleType("tensorflow")], ids=["barred", "half"])
def test_a_package_that_is_kept_from_being_imported_is_none(
    module: ModuleType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As programs do that want nothing of it; a module without a version is on its way at most."""
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    assert seeds_private.missing() is None
