"""The node's token: read anew for each stream, since a head makes it at its own first start.

Rule: a token that cannot be read keeps nobody from asking, as an embedded head wants none; what
was looked for is said when the head refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Token:
    """`word` is what to send, None for nothing; `origin` says where it is from, or why not."""

    word: str | None
    origin: str


def read_token(path: Path | None) -> Token:
    """The token in a file."""
    if path is None:
        return Token(None, "none was sent: node.token_file is not set")
    try:
        word = path.read_text(encoding="ascii").strip()
    except OSError as error:
        return Token(None, f"none was sent: {path}: {error.strerror}")
    except UnicodeDecodeError:
        word = ""
    if not word.isprintable() or not word or " " in word:
        return Token(None, f"none was sent: {path}: it does not hold one token")
    return Token(word, f"what was sent is from {path}")
