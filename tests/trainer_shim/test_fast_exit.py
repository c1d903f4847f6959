"""The end of a process leaves what its program made to go as it would without Hermes."""

from __future__ import annotations

import gc
import weakref

from trainer_shim.program import fast_exit


class Made:
    """Something of a program's."""


def test_flushing_keeps_nothing_that_the_program_lets_go_of() -> None:
    made = Made()
    seen = weakref.ref(made)
    gc.disable()
    try:
        fast_exit._flush()
        del made
        assert seen() is None
    finally:
        gc.enable()
