"""A node's token comes from a file, and what is wrong with the file is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hermesd.core.events import RunCompleted
from hermesd.core.model import RunId
from hermesd.node.head_link import read_token
from hermesd.security.token import Token

from .conftest import Head, Node

LOOKS = """
import os
for line in [*map("=".join, os.environ.items()), *map(str, range(3, 1000))]:
    try:
        print(os.readlink(f"/proc/self/fd/{line}") if line.isdigit() else line)
    except OSError:
        pass
"""


def test_what_the_file_holds_is_sent_or_the_reason_told(tmp_path: Path) -> None:
    path = tmp_path / "node-token"
    assert read_token(None).origin == "none was sent: node.token_file is not set"
    assert read_token(path).origin == f"none was sent: {path}: No such file or directory"
    for nothing in ("", "two words", "é", "a\x1bb"):
        path.write_text(nothing)
        assert read_token(path).token is None
        assert "does not hold one token" in read_token(path).origin
    path.write_text("hermes_abc\n")
    assert read_token(path).token == Token("hermes_abc")


async def test_a_trial_is_told_nothing_of_it(
    head: Head, node: Node, launch: Callable[..., RunId], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what it is nor where; what it can find out by itself is its account's."""
    monkeypatch.setenv("HERMES_NODE_TOKEN_FILE", "/somewhere/node-token")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/somewhere")
    await head.hears(RunCompleted, launch(program=LOOKS))
    folder = node.config.state_dir / "trials" / "digits" / "1"
    said = (folder / "output.log").read_text()
    assert "HERMES_OWNER=" in said
    for told in (said, (folder / "spec.json").read_text()):
        assert "somewhere" not in told
        assert "token" not in told.lower()
