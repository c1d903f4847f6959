"""Whether a program may ever show an iteration boundary, as far as its text tells.

Only a program whose files name nothing that the agent knows is called blind. A wrong guess costs
little, since boundaries that appear after all are still seen.
"""

from __future__ import annotations

import os
import re

_KNOWN = re.compile(
    rb"\b(keras|tensorflow|tf_keras|torch|lightning|pytorch_lightning|transformers)\b"
    rb"|\btrainer_shim\b.*\battach\b",  # its `log` tells metrics, and no steps
    re.DOTALL,
)
_WORD = re.compile(rb"\w+")
_READ_BYTES = 4 << 20


def is_blind(script: str) -> bool:
    """Whether neither the script nor what it names of the Python files in its folder and below
    names a framework that there is an adapter for, or the explicit interface.

    A module, code on the command line and a script that is no .py file, as a package installs
    them, have all that they use elsewhere: of those nothing is known.
    """
    if not script.endswith(".py"):
        return False
    beside, unread = _beside(script), [script]
    left = _READ_BYTES
    while unread:
        try:
            with open(unread.pop(), "rb") as file:
                text = file.read(left)
        except OSError:
            return False
        if _KNOWN.search(text):
            return False
        left -= len(text)
        if left <= 0:
            return False
        for name in beside.keys() & set(_WORD.findall(text)):
            unread += beside.pop(name)
    return True


def _beside(script: str) -> dict[bytes, list[str]]:
    """The Python files in its folder, by the names that a program imports them, or the folders
    that they are in, by."""
    found: dict[bytes, list[str]] = {}
    top = os.path.dirname(os.path.realpath(script))
    for folder, _, names in os.walk(top):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                first = os.path.relpath(path, top).split(os.sep)[0]
                found.setdefault(os.fsencode(first.removesuffix(".py")), []).append(path)
    return found
