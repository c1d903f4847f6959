"""A stretch of work in which the garbage collector does not look for cycles.

A decision over very many trials makes very many values and hardly a cycle: the collector would
walk through all of the state again and again, for a third of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """No collection within; afterwards as it was before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
