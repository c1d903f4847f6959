"""The place from which a program that has ended can train further, when it is asked for more.

Nobody knows for certain which iteration is the last before the program has ended. So a copy is made
wherever one may be, as long as all copies together take little of the program's time, and whatever
it takes where the steps that were planned are done; the newest becomes its last checkpoint. What
was trained after that one is trained again.
"""

from __future__ import annotations

import time
from typing import Callable

from trainer_shim.agent import CannotCapture, Capture

# All copies may take this much of the processor's time, and this share of what the program takes.
_ALLOWED_SECONDS = 0.25
_SHARE = 0.01


class TrainingEnd:
    """The newest copy, if there is one."""

    def __init__(self) -> None:
        self._kept: tuple[int, Capture] | None = None
        self._reason = "it has shown no place to go on from"
        self._began = time.process_time()
        self._spent = 0.0

    @property
    def is_due(self) -> bool:
        """Whether another copy costs little enough."""
        return self._spent < _ALLOWED_SECONDS + _SHARE * (time.process_time() - self._began)

    def keep(self, step: int, take: Callable[[], Capture]) -> None:
        """The program may end with `step`: have `take` copy what it has come to."""
        began = time.process_time()
        try:
            self._kept = step, take()
        except CannotCapture as error:
            self._reason = str(error)
        except Exception as error:  # no memory for a copy, say, costs the copy alone
            self._reason = f"{type(error).__name__}: {error}"
        self._spent += time.process_time() - began

    def is_of(self, step: int) -> bool:
        """Whether the newest copy is of this step."""
        return self._kept is not None and self._kept[0] == step

    def newest(self) -> tuple[int, Capture]:
        """The step and the copy. Raises CannotCapture if there is none."""
        if self._kept is None:
            raise CannotCapture(self._reason)
        return self._kept
