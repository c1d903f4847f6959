"""Calls a hook in place of a method."""

from __future__ import annotations

import functools
from typing import Any, Callable


def around(owner: Any, name: str, hook: Callable[..., Any]) -> None:
    """Have `hook(original, self, ...)` called in place of a method."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return hook(original, self, *args, **kwargs)

    setattr(owner, name, method)
