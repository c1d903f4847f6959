"""How many steps a program's own loops will take, from where they are in them."""

from __future__ import annotations

from typing import Callable

from trainer_shim.program.enclosing_loops import Turn


class PlannedSteps:
    """`tell` is called with the number of all steps as soon as it is known, and again when it turns
    out to be another."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._told = 0
        self._place: object = None
        self._first = (0, 0)

    def are_done(self, steps: int) -> bool:
        """Whether these are all the steps that the loops take, as far as is known."""
        return 0 < self._told <= steps

    def at(self, place: object, turn: Turn, before: int, each: float) -> None:
        """So many steps were done `before` the program came to this place once more, in this turn
        of the loops around it.

        Each turn takes `each` steps, as far as the first one shows; what the others took is known
        better. Of several places in the same loops the first one counts.
        """
        if place != self._place:
            if before < self._told:
                return
            self._place, self._first = place, (turn.done, before)
        done, steps = self._first
        if turn.done > done:
            each = (before - steps) / (turn.done - done)
        elif turn.done < done:  # the loops have begun anew
            self._first = turn.done, before
        planned = round(before + each * (turn.times - turn.done))
        if planned != self._told:
            self._told = planned
            self._tell(planned)
