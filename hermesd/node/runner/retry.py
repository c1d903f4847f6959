"""Tries again what the system refuses for now, for example for lack of descriptors or memory.

Such an error says nothing about the file or process in question. Nothing counts as damaged, gone or
ended because it could not be looked at.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hermesd.logs import get_logger

AGAIN_SECONDS = (0.2, 30.0)

T = TypeVar("T")
log = get_logger()


async def until_done(
    deed: Callable[[], Awaitable[T]], what: str, *, seconds: float = math.inf, **about: object
) -> T:
    """What `deed` comes to, as often as it has to be tried.

    `what` and `about` are what the log says of each failure. Raises OSError as the last try does
    once `seconds` are over.
    """
    clock = asyncio.get_running_loop().time
    give_up, pause = clock() + seconds, AGAIN_SECONDS[0]
    while True:
        try:
            return await deed()
        except OSError as error:
            if clock() + pause > give_up:
                raise
            log.error(f"{what}; tried again", error=str(error), **about)
        await asyncio.sleep(pause)
        pause = min(2 * pause, AGAIN_SECONDS[1])
