"""What no public interface promises: looked up by name, and refused by version.

Rule: each framework's list stands beside its adapter; how a list is checked stands here.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any


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
    """Why this `framework` cannot be hooked: the first function, of a module and a path, that does
    not have the attribute or variable it is relied on for; None if all have theirs."""
    for module, path, name in uses:
        code = inspect.unwrap(find(module, path)).__code__
        if name not in (*code.co_names, *code.co_varnames, *code.co_cellvars):
            return f"{framework} has no {name} in {module}.{path}"
    return None


def first_untested(
    tested: Mapping[str, tuple[str, ...]], versions: Mapping[str, str]
) -> str | None:
    """The version that resuming was never tested with; None if all were."""
    for package, series in tested.items():
        version = versions[package]
        if ".".join(version.split(".")[:2]) not in series:
            return f"resuming is tested with {package} {', '.join(series)}, this is {version}"
    return None
