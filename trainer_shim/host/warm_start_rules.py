"""Why a program must have an interpreter of its own instead of one that has imported a framework.

A framework reads its variables when it is imported. A program that names one of them may set it
before that; so may any of its own files that it imports. These are found as Python finds them,
without executing any.
"""

from __future__ import annotations

import importlib.machinery
import io
import os
import sys
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from modulefinder import ModuleFinder
from typing import Any

from trainer_shim.program.source_files import packages_of

# Read when the framework is imported, which in a zygote has happened already.
FRAMEWORK = (
    *("TF_", "KERAS_", "XLA_", "JAX_", "TORCH", "PYTORCH_", "NCCL_"),
    *("CUDA_", "NVIDIA_", "OMP_", "MKL_"),
)
# Read when some other libraries are imported. A program that sets one gets no zygote with these.
LIBRARIES = (
    *("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "USE_", "XDG_", "PL_", "LIGHTNING_"),
    *("PANDAS_", "SCIPY_", "SKLEARN_", "JOBLIB_", "NUMEXPR_", "KMP_", "MPL", "MATPLOTLIB"),
)
# They say which lines a framework logs, and nothing of what it computes.
_LOG_LEVELS = ("TF_CPP_",)
# They set variables from a file.
_FROM_FILES = ("dotenv", "environs", "decouple")
_MOST_FILES = 500


def cold_program(program: Sequence[str], folder: str, environment: Mapping[str, str]) -> str | None:
    """Why what is run in `folder` (a script, or -m and a module, and its arguments) may not be
    forked from a zygote; None when it may."""
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    is_module = program[0] == "-m"
    first = folder if is_module else os.path.join(folder, program[0])
    module, script = (program[1], None) if is_module else (None, first)
    start = folder if is_module else os.path.dirname(os.path.realpath(first))
    within = [start, *(os.path.join(folder, path) for path in paths if path)]
    finder = _ImportsOfProgram(within, packages_of(module, script))
    try:
        if is_module:
            finder.run(program[1])
        else:
            finder.run_script(first)
    except _TooMany:
        return f"the program consists of more than {_MOST_FILES} files"
    except Exception as error:  # whatever a file holds, an interpreter of its own can cope with it
        return f"cannot read the program: {type(error).__name__}: {error}"
    return finder.named()


class _TooMany(Exception):
    pass


class _ImportsOfProgram(ModuleFinder):
    """Finds what a program imports below `path`, and of the installed `packages`."""

    def __init__(self, path: list[str], packages: Collection[str]) -> None:
        super().__init__(path)
        self._packages = packages

    def run(self, module: str) -> None:
        """As `run_script`, of a module that is run with -m."""
        for name in (module, f"{module}.__main__"):
            try:
                self.import_hook(name)
            except ImportError:
                continue

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        if path is None and name in self._packages:
            path = [*self.path, *sys.path]
        where = self.path if path is None else path
        if name == "__init__" and not any(os.path.exists(f"{one}/__init__.py") for one in where):
            return io.BytesIO(), name, (".py", "rb", 1)  # of a folder without one, which is below
        spec = importlib.machinery.PathFinder.find_spec(name, where)
        if spec is not None and spec.loader is None and spec.submodule_search_locations:
            return None, next(iter(spec.submodule_search_locations)), ("", "", 5)
        return super().find_module(name, path, parent)

    def add_module(self, fqname: str) -> Any:
        if len(self.modules) >= _MOST_FILES:
            raise _TooMany
        return super().add_module(fqname)

    def named(self) -> str | None:
        """The first variable of a framework that is named, and where."""
        for name, module in sorted(self.modules.items()):
            code = getattr(module, "__code__", None)
            for text in _texts(code):
                variable = text.partition("=")[0]
                if not variable.startswith(FRAMEWORK) or variable.startswith(_LOG_LEVELS):
                    continue
                if variable.isidentifier():
                    file = os.path.basename(getattr(module, "__file__", None) or name)
                    return f"{file} names the variable {variable}"
        for name in _FROM_FILES:
            if name in self.badmodules:
                return f"the program imports {name}, which sets variables from a file"
        return None


def _texts(constant: Any) -> Iterator[str]:
    """All words that a compiled program holds: its names for arguments, too."""
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, types.CodeType):
        yield from _texts(constant.co_consts)
    elif isinstance(constant, (tuple, frozenset)):
        for item in constant:
            yield from _texts(item)
