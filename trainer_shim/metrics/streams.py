"""Reads metrics from what a program prints, as it prints, at the trial's current step.

The program's own streams stay, and are written to first. What others write to the same place (a
program that it starts, a library in C) is not read.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import threading
from typing import Any, Callable

from trainer_shim.agent import Agent
from trainer_shim.metrics.lines import LineReader

NOT_READ = "metrics in what it prints"


def watch(agent: Agent) -> None:
    """Read stdout and stderr of this process, which `agent` is of, from here on."""
    try:
        readers = [LineReader(agent.patterns, agent.parameters) for _ in range(2)]
    except re.error as error:  # of a newer Python than the program's
        agent.lacks(NOT_READ, f"a pattern is none to Python {sys.version.split()[0]}: {error}")
        readers = [LineReader(left_out=agent.parameters) for _ in range(2)]
    for stream, reader in zip((sys.stdout, sys.stderr), readers):
        with contextlib.suppress(Exception):  # none, or something of the program's own
            original = stream.write
            setattr(stream, "write", _reading(original, reader, agent))  # noqa: B010


def _reading(
    original: Callable[[str], int], reader: LineReader, agent: Agent
) -> Callable[[str], int]:
    lock = threading.RLock()

    @functools.wraps(original)
    def write(text: Any, /) -> int:
        written = original(text)
        # A child that was forked while another thread printed would wait for that for ever.
        if not agent.is_aside:
            with contextlib.suppress(Exception), lock:  # training does not end for its metrics
                for values, source in reader.read(text):
                    agent.note(values, source, reader.counter)
        return written

    return write
