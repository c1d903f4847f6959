"""A node's token comes from a file, and what is wrong with the file is said."""

from __future__ import annotations

from pathlib import Path

from hermesd.node.token import read_token


def test_what_the_file_holds_is_sent_or_the_reason_told(tmp_path: Path) -> None:
    path = tmp_path / "node-token"
    assert read_token(None).origin == "none was sent: node.token_file is not set"
    assert read_token(path).origin == f"none was sent: {path}: No such file or directory"
    for nothing in ("", "two words", "é", "a\x1bb"):
        path.write_text(nothing)
        assert read_token(path).word is None
        assert "does not hold one token" in read_token(path).origin
    path.write_text("hermes_abc\n")
    assert read_token(path).word == "hermes_abc"
