"""Whether a program may ever show an iteration boundary, as far as its text tells.

Only a program whose files name nothing that the agent knows is called blind; a wrong guess
costs little: what shows boundaries after all is seen all the same.
"""

from __future__ import annotations

import os
import re

_KNOWN = re.compile(
    rb"\b(keras|tensorflow|tf_keras|torch|lightning|pytorch_lightning|transformers)\b"
    rb"|\btrainer_shim\b.*\battach\b",  # its `log` tells metrics, and no steps
    re.DOTALL,
)
_READ_BYTES = 4 << 20


def is_blind(script: str) -> bool:
    """Whether neither the script nor a Python file in its folder or below names a framework that
    there is an adapter for, or the explicit interface.

    A module, code on the command line and a script that is no .py file, as a package installs
    them, have all that they use elsewhere: of those nothing is known.
    """
    if not script.endswith(".py"):
        return False
    left = _READ_BYTES
    for path in [script, *_beside(script)]:
        try:
            with open(path, "rb") as file:
                text = file.read(left)
        except OSError:
            return False
        if _KNOWN.search(text):
            return False
        left -= len(text)
        if left <= 0:
            return False
    return True


def _beside(script: str) -> list[str]:
    found = []
    for folder, _, names in os.walk(os.path.dirname(os.path.realpath(script))):
        found += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    return found
