"""How a machine becomes a node of a head: for good, or as a guest that leaves nothing behind.

A token never has to be on a command line, which everybody on a machine can read.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermesd.config.schema import NodeConfig
from hermesd.security.enrollment import enroll
from hermesd.security.identity import NotEnrolled, said_token

__all__ = ["NotEnrolled", "guest_folder", "join"]


@contextmanager
def guest_folder(state: Path | None, serve: bool) -> Iterator[Path]:
    """A directory of its own below TMPDIR for a guest's state, removed at the end.

    Raises NotEnrolled for options that a guest has no use for.
    """
    if state is not None or not serve:
        option = "--enroll-only" if state is None else "--state"
        raise NotEnrolled(f"{option} and --guest: a guest serves at once, and keeps nothing")
    folder = Path(tempfile.mkdtemp(prefix="hermes-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def join(head: str, token: str | None, token_file: Path | None, settings: NodeConfig) -> str:
    """Enroll the node of these settings, by a token that is said or in a file; what was done.

    Raises NotEnrolled.
    """
    word = said_token(token, token_file)
    enroll(head, word, settings.name, settings.state_dir / "membership", machine=True)
    return f"{settings.name} has joined {head}; its key is in {settings.state_dir}"
