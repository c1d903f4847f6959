"""Whose a source file is: the program's, or another's.

Rule: what Python has brought, what is installed as a package, and what is ours is another's; so is
what a compiler has made of the program's own. A program may be installed itself: then it is the
package that is run with -m, or that a console script begins with.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
import sysconfig
from collections.abc import Collection

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
    path = os.path.realpath(file)
    parts = path.split(os.sep)
    standard = os.path.realpath(sysconfig.get_path("stdlib")) + os.sep
    at = next((at for at, part in enumerate(parts) if part in _INSTALLED), None)
    if path.startswith(_OURS) or any(part.startswith(_COMPILED) for part in parts):
        return None
    if at is not None:
        return parts[at + 1].partition(".")[0] if at + 1 < len(parts) else None
    return None if path.startswith(standard) else ""


def _is_console_script(script: str) -> bool:
    """Whether it lies where an environment has what its packages put on the PATH."""
    folder = os.path.dirname(os.path.abspath(script))
    is_environments = os.path.exists(os.path.join(folder, "python"))
    return is_environments or folder == sysconfig.get_path("scripts", "posix_user")


def _imported(script: str) -> set[str]:
    """The top names of what a script imports."""
    try:
        with open(script, "rb") as file:
            nodes = list(ast.walk(ast.parse(file.read())))
    except (OSError, SyntaxError, ValueError):
        return set()
    froms = [one.module or "" for one in nodes if isinstance(one, ast.ImportFrom)]
    plain = [name.name for one in nodes if isinstance(one, ast.Import) for name in one.names]
    return {name.partition(".")[0] for name in (*froms, *plain)}
