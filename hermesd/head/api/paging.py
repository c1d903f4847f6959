"""Long lists in pages; a token says where the next page begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hermesd.refusal import FieldError, Refused, shown

T = TypeVar("T")

DEFAULT_SIZE = 100
LARGEST_SIZE = 1_000


def page(items: Sequence[T], size: int, token: str) -> tuple[Sequence[T], str]:
    """One page and the token of the next, empty at the end. Raises Refused."""
    start = place(token)
    end = start + entries(size)
    return items[start:end], str(end) if end < len(items) else ""


def entries(size: int) -> int:
    """How many a page has whose `size` was asked for; 0 is left to us. Raises Refused."""
    if size < 0:
        raise Refused(FieldError("page_size", str(size), f"1 to {LARGEST_SIZE}, or 0"))
    return min(size or DEFAULT_SIZE, LARGEST_SIZE)


def place(token: str) -> int:
    """The place that a token stands for; 0 where a list begins. Raises Refused."""
    if token and not (token.isascii() and token.isdigit() and len(token) < 12):
        raise Refused(FieldError("page_token", shown(token), "a token from the page before"))
    return int(token or 0)
