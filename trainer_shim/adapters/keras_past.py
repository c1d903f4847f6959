"""The fits of before a checkpoint: which had ended, which one goes on, and from where.

Rule: a fit that had ended is not run again, and what was asked of it must be what is asked now.
The last one may be asked for more epochs than then: it goes on from its last batch, as if it
had been asked for them at once. A fit that its callbacks had stopped would stop there again.
"""

from __future__ import annotations

from typing import Any

from trainer_shim.adapters.keras_state import OtherProgram, State

_ONLY_THE_LAST = "; it cannot be trained further, since a later fit began from where it had ended"
NOTHING: State = {"records": [], "fit": None, "end": None}


class Past:
    """What a checkpoint holds: the `records` of the fits that had ended, the position of the one
    that had not, and where the last batch of the last one was."""

    def __init__(self, state: State) -> None:
        self._records: list[State] = state["records"]
        self._fit: State | None = state["fit"]
        self._end: State | None = state["end"]

    def of(self, number: int, epochs: int) -> tuple[State | None, State | None]:
        """(record, None) of a fit that had ended, (None, position) of one that goes on, and
        (None, None) of a new one. Raises OtherProgram when it is asked for other epochs."""
        if number > len(self._records):
            return None, None
        if number == len(self._records):
            return None, self._going_on(self._fit, number, epochs)
        record = self._records[number]
        was_stopped = record["stop_training"] and record["epoch"] < epochs
        if record["epochs"] == epochs or was_stopped:
            return record, None
        is_last = number == len(self._records) - 1 and self._fit is None
        if is_last and record["epochs"] < epochs and self._end is not None:
            return None, self._end
        if not is_last and record["epochs"] < epochs:
            raise _other_epochs(number, record, epochs, _ONLY_THE_LAST)
        raise _other_epochs(number, record, epochs)

    def _going_on(self, position: State | None, number: int, epochs: int) -> State | None:
        if position is not None and epochs <= position["epoch"]:
            raise _other_epochs(number, position, epochs)
        return position

    def is_over_after(self, records: list[Any]) -> bool:
        """Whether every fit had ended, and all of them are behind the program again."""
        return self._fit is None and len(records) == len(self._records)


def _other_epochs(number: int, past: State, epochs: int, why: str = "") -> OtherProgram:
    asked = f"fit {number + 1} is asked for {epochs} epochs"
    return OtherProgram(f"{asked}, at the checkpoint it was for {past['epochs']}{why}")
