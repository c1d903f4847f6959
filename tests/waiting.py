"""Waiting for what nothing tells of, while others have the core that it needs to come about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")
LOOK_SECONDS = 0.005
#: Between questions that are answered by another process, which has to be given the time for it.
ASK_SECONDS = 0.1


def until(holds: Callable[[], Answer], seconds: float = LOOK_SECONDS) -> Answer:
    """What this answers once that is true; the test's own time limit is the bound."""
    while not (answer := holds()):
        time.sleep(seconds)
    return answer
