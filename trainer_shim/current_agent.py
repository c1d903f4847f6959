"""The agent of this process, and not of the processes that it forks."""

from __future__ import annotations

import os

from trainer_shim.agent import Agent

_current: Agent | None = None


def install(agent: Agent) -> None:
    """Make `agent` the one of this process."""
    global _current
    if _current is None:
        os.register_at_fork(before=_forks, after_in_parent=_has_forked, after_in_child=_forked)
    _current = agent


def _forks() -> None:
    if _current is not None:
        _current.forks()


def _has_forked() -> None:
    if _current is not None:
        _current.goes_on()


def current() -> Agent | None:
    """The agent of this process; None without Hermes."""
    return _current


def _forked() -> None:
    if _current is not None:
        _current.step_aside()
