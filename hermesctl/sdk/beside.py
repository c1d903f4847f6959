"""Something endless, run while something else is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from hermesctl.errors import HermesError


@asynccontextmanager
async def beside(endless: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run a coroutine beside the body, until that ends; the first error of either is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(endless)
            yield
            task.cancel()
    except* HermesError as errors:
        raise errors.exceptions[0] from None
