"""Checks what no public interface promises: looked up by name, and refused by version.

Each framework's list is beside its adapter, and the check of a list is here. NAMES are modules and
what is in them; USES are the attributes that objects get in a function, by that function; what is
OPTIONAL only changes what is said there. `tests/trainer_shim/test_private_names.py` finds names
that are used and in no list.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

# The first and the last minor version that resuming is tested with, as is each between them.
# Python's counts for loops of PyTorch alone.
TESTED = {
    "torch": ("2.6", "2.15"),
    "python": ("3.11", "3.13"),
    "lightning": ("2.5", "2.6"),
    "pytorch_lightning": ("2.5", "2.6"),
    "transformers": ("5.23", "5.24"),
    "accelerate": ("1.15", "1.15"),
    "keras": ("3.11", "3.15"),
    "tensorflow": ("2.18", "2.21"),
    "jax": ("0.7", "0.10"),
}

# Python's own. Only the first is in every Python there is; of the others each does without.
PYTHON_NAMES = (
    ("random", "_inst"),
    ("tempfile", "_Random"),  # or names of temporary files are drawn from the trial's seed
    ("tempfile", "_get_candidate_names"),  # or temporary files get other names when run again
    ("threading", "_shutdown"),  # or Python takes a process apart itself at its end
    ("atexit", "_run_exitfuncs"),  # the same
    ("_posixshmem", "shm_open"),  # or segments of shared memory are left behind by a kill
)
PYTHON_USES = (
    # Or all processes that a program makes draw the same numbers.
    ("multiprocessing.process", "BaseProcess.__init__", "_identity"),
)


def find(module: str, path: str) -> Any:
    """The object called `path` in `module`. Raises ImportError or AttributeError."""
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def first_missing(names: Iterable[tuple[str, str]], framework: str) -> str | None:
    """Why this `framework` cannot be hooked: the first name it lacks; None if it has all."""
    for module, path in names:
        try:
            find(module, path)
        except (ImportError, AttributeError):
            return f"{framework} has no {module}.{path}"
    return None


def first_unused(uses: Iterable[tuple[str, str, str]], framework: str) -> str | None:
    """Why this `framework` cannot be hooked: the first function, of a module and a path, that is
    not there or does not have the attribute or variable it is relied on for; None if all have
    theirs."""
    for module, path, name in uses:
        try:
            code = inspect.unwrap(find(module, path)).__code__
        except (ImportError, AttributeError):
            return f"{framework} has no {module}.{path}"
        if name not in (*code.co_names, *code.co_varnames, *code.co_cellvars):
            return f"{framework} has no {name} in {module}.{path}"
    return None


def first_untested(versions: Mapping[str, str]) -> str | None:
    """The version that resuming was never tested with; None if all are among those `TESTED`."""
    for package, version in versions.items():
        first, last = TESTED[package]
        here = _minor(version)
        if not _minor(first) <= here <= _minor(last):
            tested = first if first == last else f"{first} to {last}"
            nearest = first if here < _minor(first) else last
            return (
                f"resuming is tested with {package} {tested}, this is {version}: "
                f"the nearest tested version is {nearest}"
            )
    return None


def installed() -> list[tuple[str, str, str]]:
    """Each framework that is installed here with its version, and why it is untested or an empty
    text; nothing is imported."""
    import importlib.metadata  # and much more, which no start of a trial needs

    found = {}
    for package in TESTED:
        for name in (package, f"{package}-cpu"):
            # What an installer has left behind half may have no version.
            with contextlib.suppress(importlib.metadata.PackageNotFoundError, KeyError):
                if version := importlib.metadata.version(name):
                    found[package] = version
    if "torch" in found:
        found["python"] = platform.python_version()
    return [
        (name, version, first_untested({name: version}) or "") for name, version in found.items()
    ]


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
