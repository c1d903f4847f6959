"""What a program will import, as far as its text tells: a zygote imports it ahead, once for all
trials of such programs, where each would take seconds for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hermesd.node import deep_trees
from hermesd.node.machine import accounts

# What the text of a program must hold for it to be worth a warm interpreter with the framework.
_FRAMEWORKS = {
    "keras": re.compile(rb"\bkeras\b"),
    "tensorflow": re.compile(rb"\btensorflow\b"),
    # Its frameworks' names are words of English, too.
    "torch": re.compile(
        rb"\b(?:torch|(?:import|from) (?:lightning|pytorch_lightning|transformers))\b"
    ),
}
# What takes long to import besides, and starts nothing. Some draw random numbers meanwhile: so it
# counts only where a file names it at the beginning of a line, before it says anything of a seed;
# and nowhere, if the program imports a file that sets one.
_LIBRARIES = re.compile(
    rb"^(?:from|import)[ \t]+"
    rb"((lightning|pandas|pytorch_lightning|scipy|sklearn|torchmetrics|torchvision|transformers)"
    rb"(?:\.\w+)*)\b(?:[ \t]+import[ \t]+(\([^)]*\)|[^\n]*))?",
    re.MULTILINE,
)
# Variables that these libraries read when they are imported, and that a program may set before: see
# `trainer_shim.host.warm_start_rules.LIBRARIES`.
_VARIABLES = re.compile(
    rb"\b(?:HF_|HUGGINGFACE_|TRANSFORMERS_|USE_|XDG_|PL_|LIGHTNING_|PANDAS_|SCIPY_|SKLEARN_|JOBLIB_"
    rb"|NUMEXPR_|OPENBLAS_|KMP_|MPL|MATPLOTLIB)[A-Z]"
)
_SCAN_LIMIT_BYTES = 4 << 20
_MOST = 50
_SETS_SEED = re.compile(rb"^(?!def\b|async\b|class\b)[^\s#].*seed\w*[ \t]*\(", re.MULTILINE)
_IMPORTS = rb"^[ \t]*(?:from|import)\b.*\b%s\b"


def imports_ahead(folder: Path) -> str | None:
    """What the Python files of a program import that is worth a warm interpreter: a framework,
    `keras` first, and what it needs of some libraries; by their names, with commas between."""
    text = before_seeds = b""
    own: set[str] = set()
    seeding: set[str] = set()
    for path in sorted(
        entry.path for entry in deep_trees.walk(folder) if entry.name.endswith(".py")
    ):
        if len(text) > _SCAN_LIMIT_BYTES:
            break
        own.update(Path(path).relative_to(folder).with_suffix("").parts)
        with suppress(OSError), accounts.regular(path) as file:
            content = file.read(_SCAN_LIMIT_BYTES) + b"\n"
            text += content
            before_seeds += content.partition(b"seed")[0]
            if _SETS_SEED.search(content):
                seeding.add(Path(path).stem)
    found = [name for name, word in _FRAMEWORKS.items() if word.search(text)][:1]
    if not _VARIABLES.search(text) and not any(_is_imported(each, text) for each in seeding):
        found += dict.fromkeys(_libraries(before_seeds, own))
    return ",".join(found[:_MOST]) or None


def _is_imported(module: str, text: bytes) -> bool:
    return re.search(_IMPORTS % re.escape(os.fsencode(module)), text, re.MULTILINE) is not None


def _libraries(text: bytes, own: set[str]) -> Iterator[str]:
    """What is imported of the libraries, unless the program has a module of that name itself."""
    for module, library, names in _LIBRARIES.findall(text):
        if library.decode() in own:
            continue
        yield module.decode()
        for part in re.sub(rb"#.*", b"", names).strip(b"() \t\r\n").split(b","):
            word = part.decode(errors="replace").split()[:1]
            if word and word[0].isidentifier():
                yield f"{module.decode()}.{word[0]}"
