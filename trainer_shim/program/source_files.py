"""Whether a source file belongs to the program or to somebody else.

What came with Python, what is installed as a package, and what is Hermes' own belongs to somebody
else; so does what a compiler has made of the program's own files. A package is installed wherever
an installer has left its record, since packages may be in any folder that Python imports from. A
framework never belongs to the program, even without a record, as in a checkout. The program may be
installed itself: then it is the package that is run with -m, or that a console script begins with.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import glob
import os
import sys
import sysconfig
from collections.abc import Collection
from typing import Any

_INSTALLED = ("site-packages", "dist-packages")
_COMPILED = "torchinductor_"
# A node has its hosts import it through a link.
_OURS = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
# They run programs, and are none, whoever starts them.
_LIBRARIES = {
    *("accelerate", "deepspeed", "jax", "keras", "lightning", "lightning_fabric"),
    *("pytorch_lightning", "ray", "tensorflow", "tf_keras", "torch", "transformers"),
    *("hermesctl", "hermesd", "trainer_shim"),
}


def is_programs_own(file: str | None) -> bool:
    """Whether a source file is neither Python's, nor another installed package's, nor ours."""
    package = _package_of(file)
    if not package:
        return package is not None
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    module, script = getattr(spec, "name", None), getattr(main, "__file__", None)
    return package in packages_of(module, script)


@functools.cache
def packages_of(module: str | None, script: str | None) -> Collection[str]:
    """The installed packages that a program itself consists of: that of the module that is run
    with -m, else that of the script, or what a console script imports."""
    if module is not None:
        found = {module.partition(".")[0]}
    elif script is None or (package := _package_of(script)) is None:
        found = set()
    elif package:
        found = {package}
    else:
        found = _imported(script) if _is_console_script(script) else set()
    return found - _LIBRARIES


@functools.cache
def _package_of(file: str | None) -> str | None:
    """The installed package that a file is of, empty for one that is not installed; None for what
    is no program's."""
    if file is None or file.startswith("<"):
        return None
    path = _resolved(file)
    parts = path.split(os.sep)
    at = next((at for at, part in enumerate(parts) if part in _INSTALLED), None)
    if path.startswith(_OURS) or any(part.startswith(_COMPILED) for part in parts):
        return None
    if at is not None:
        return parts[at + 1].partition(".")[0] if at + 1 < len(parts) else None
    if path.startswith(_standard()):
        return None
    return _recorded_package(path) or _library(path) or ""


def _recorded_package(path: str) -> str | None:
    """The package of a file that lies where an installer has put it, in a folder of any name."""
    entries: list[Any] = list(sys.path)  # programs add what Python passes over, such as a Path
    for folder in (_folder(one) for one in entries if isinstance(one, str)):
        if path.startswith(folder):
            package = path[len(folder) :].partition(os.sep)[0].partition(".")[0]
            if package in _installed_in(folder):
                return package
    return None


def _resolved(file: str) -> str:
    """A file's real path. Of the thousands that a program imports, most are in the same folders."""
    folder, name = os.path.split(os.path.abspath(file))
    path = _real(folder) + name
    return os.path.realpath(path) if os.path.islink(path) else path


@functools.cache
def _standard() -> str:
    return _real(sysconfig.get_path("stdlib"))


def _folder(path: str) -> str:
    return _real(os.path.abspath(path))


@functools.cache
def _real(path: str) -> str:
    return os.path.join(os.path.realpath(path), "")


@functools.cache
def _installed_in(folder: str) -> Collection[str]:
    """The top names that installers have recorded in a folder: `pip install --target`, say."""
    found: set[str] = set()
    for record in glob.iglob(os.path.join(glob.escape(folder), "*.dist-info", "RECORD")):
        with contextlib.suppress(OSError), open(record, encoding="utf-8", errors="replace") as file:
            found.update(line.lstrip('"').partition("/")[0].partition(".")[0] for line in file)
    return found - {""}


def _library(path: str) -> str | None:
    """The framework that a file is of. What bears its name beside the script is the program's."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is not None and path.startswith(_folder(os.path.dirname(script))):
        return None
    for name in _LIBRARIES:
        folders = getattr(sys.modules.get(name), "__path__", ())
        if any(path.startswith(_folder(folder)) for folder in folders):
            return name
    return None


def _is_console_script(script: str) -> bool:
    """Whether it lies where an environment has what its packages put on the PATH."""
    folder = os.path.dirname(os.path.abspath(script))
    is_environments = os.path.exists(os.path.join(folder, "python"))
    return is_environments or folder == sysconfig.get_path("scripts", "posix_user")


def syntax_tree(source: str | bytes) -> ast.Module:
    """A file's syntax tree. Raises SyntaxError or ValueError.

    In Python 3.11.7 and 3.12.1, and before, the garbage collector may run finalizers or another
    thread amid this; if one of these parses something too, this ends in a SystemError.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if collects:
            gc.enable()


def _imported(script: str) -> set[str]:
    """The top names of what a script imports."""
    try:
        with open(script, "rb") as file:
            nodes = list(ast.walk(syntax_tree(file.read())))
    except (OSError, SyntaxError, ValueError):
        return set()
    froms = [one.module or "" for one in nodes if isinstance(one, ast.ImportFrom)]
    plain = [name.name for one in nodes if isinstance(one, ast.Import) for name in one.names]
    return {name.partition(".")[0] for name in (*froms, *plain)}
