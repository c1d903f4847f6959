"""`hermesctl completion`: the script that completes commands, flags and ids in a shell."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """A shell for which there is such a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[
        Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)
    ],
) -> None:
    """Print the script that completes commands, flags, studies and trials in a shell.

    `hermesctl --install-completion` installs it.

    Example: source <(hermesctl completion bash)
    """
    os.environ["_HERMESCTL_COMPLETE"] = f"source_{shell}"
    root = context.find_root().command
    root.main(args=[], prog_name="hermesctl")
