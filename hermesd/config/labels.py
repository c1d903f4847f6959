"""A policy with its settings and its placement as one line, in the form that `policy_line` reads.

It uses nothing but plain words and values, so the client can share it.
"""

from __future__ import annotations

from collections.abc import Iterable


def label(policy: str, settings: Iterable[tuple[str, object]], placement: str = "") -> str:
    """`hermes:quantum_seconds=20,placement=homes`; without a placement that is to be named, and
    without settings, the policy's name alone."""
    words = [f"{name}={_worded(value)}" for name, value in settings]
    words += [f"placement={placement}"] * bool(placement)
    return ":".join([policy, ",".join(words)]) if words else policy


def _worded(value: object) -> str:
    if isinstance(value, list | tuple):
        # A list of one item is told from the item by a colon at its end.
        return ":".join(map(_worded, value)) + ":" * (len(value) < 2)
    return str(value).lower() if isinstance(value, bool) else str(value)
