"""Keras' `fit` in a program that may also train by a PyTorch loop of its own: who looks after it.

While Keras trains, nothing here sees what it does, though it may read a `DataLoader`. A
program that does both is only parked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Callable

_BOTH = "the program trains by Keras' fit and by a loop of its own"


@contextmanager
def aside(obstacle: Callable[[str], None]) -> Iterator[None]:
    """While Keras trains; `obstacle` is told why it can then only be parked."""
    if "torch" not in sys.modules:
        yield
        return
    from trainer_shim.adapters.torch import loop

    own = loop.session()
    if own is None:
        yield
        return
    if own.steps:
        obstacle(_BOTH)
    before, own.in_fit = own.in_fit, obstacle
    try:
        yield
    finally:
        own.in_fit = before
        own.standing.other_trained(_BOTH)
