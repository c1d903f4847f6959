"""How far trials are, measured along the curve of the trial that leads their study.

Losses of one study's trials fall alike, but not equally fast: a trial that took twice as many
iterations as the leader to reach its loss will also need about twice as many for the rest. Nothing
is fitted, and shifting or scaling all losses does not change the result.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import itemgetter

from hermesd.core.losses import Chunk, truncate

# The loss at a step is the mean over a half of the steps so far, then over these, then a tenth.
SETTLING = 20
_LAST, _SIZE, _TOTAL = map(itemgetter, map(Chunk._fields.index, ("last_step", "size", "total")))


def window(count: float) -> float:
    """Over how many of `count` losses a trial's present loss is averaged."""
    if count <= 2 * SETTLING:
        return max(3.0, 0.5 * count)
    return max(float(SETTLING), 0.1 * count)


def settled(curve: tuple[Chunk, ...], until: int | None = None) -> float:
    """The present loss, or that at a step before: a mean long enough for few noisy losses to be
    compared; inf without any."""
    known = _known.get((id(curve), until))
    if known is not None and known[0] is curve:
        return known[1]
    shown = curve if until is None else truncate(curve, until)
    # A decision over a whole study spends a third of its time here.
    left = wanted = window(sum(map(_SIZE, shown)))
    total = 0.0
    for chunk in reversed(shown):
        size = chunk[2]
        if size >= left:
            total += chunk[3] * (left / size)
            left = 0.0
            break
        total += chunk[3]
        left -= size
    loss = total / (wanted - left) if wanted > left else math.inf
    loss = loss if math.isfinite(loss) else math.inf
    if len(_known) == REMEMBERED:
        _known.clear()
    _known[id(curve), until] = curve, loss
    return loss


# The curves that were asked about lately, by identity: a trial that changed is asked about several
# times in a row, those of a study's sample at each decision.
REMEMBERED = 1024
_known: dict[tuple[int, int | None], tuple[tuple[Chunk, ...], float]] = {}


@dataclass(frozen=True)
class Track:
    """A trial's lowest settled loss by step."""

    steps: Sequence[float]
    losses: Sequence[float]

    def loss_at(self, step: float) -> float:
        """The loss on the way, between known steps in proportion; flat beyond both ends."""
        place = bisect_left(self.steps, step)
        if place == 0 or place == len(self.steps):
            return self.losses[min(place, len(self.steps) - 1)]
        share = (step - self.steps[place - 1]) / (self.steps[place] - self.steps[place - 1])
        return self.losses[place - 1] + share * (self.losses[place] - self.losses[place - 1])

    def step_of(self, loss: float) -> float:
        """The step at which a loss was reached; the last one where it was not."""
        place = bisect_left(self.losses, -loss, key=lambda known: -known)
        if place == 0 or place == len(self.steps):
            return self.steps[min(place, len(self.steps) - 1)]
        above, below = self.losses[place - 1], self.losses[place]
        share = (above - loss) / (above - below)
        return self.steps[place - 1] + share * (self.steps[place] - self.steps[place - 1])

    @cached_property
    def _end(self) -> tuple[float, float, float]:
        """The last loss, the fall over the last doubling of the steps, and its ratio to the one
        before, at most 1."""
        now, half, quarter = (self.loss_at(self.steps[-1] / part) for part in (1, 2, 4))
        fall, before = half - now, quarter - half
        return now, fall, min(fall / before, 1.0) if before > 0 else 1.0

    def loss_by(self, step: float) -> float:
        """What the loss comes to by a step, if beyond the last one its falls go on.

        Each doubling of the steps brings the fall of the one before it times the ratio of the last
        two falls, at most 1.
        """
        last = self.steps[-1]
        if step <= last:
            return self.loss_at(step)
        now, fall, ratio = self._end
        doublings = math.log2(step / last)
        while doublings > 0:
            fall *= ratio
            now -= fall * min(1.0, doublings)
            doublings -= 1
        return now


def track(curve: Sequence[Chunk]) -> Track:
    """The track of a curve of one chunk or more, all of whose losses are finite."""
    known = _tracks.get(id(curve))
    if known is not None and known[0] is curve:
        return known[1]
    found = _track(curve)
    if isinstance(curve, tuple):
        if len(_tracks) == TRACKED:
            _tracks.clear()
        _tracks[id(curve)] = curve, found
    return found


# Those of late, by identity: who leads is asked after whenever another trial changes.
TRACKED = 16
_tracks: dict[int, tuple[Sequence[Chunk], Track]] = {}


def _track(curve: Sequence[Chunk]) -> Track:
    totals, sizes = list(map(_TOTAL, curve)), list(map(_SIZE, curve))
    losses = []
    behind = reached = 0
    for end, count in enumerate(accumulate(sizes), 1):
        # How much of the window is in the chunk where it begins, then in those after it. Few chunks
        # are in a window; a difference of sums from the beginning on would carry the rounding of
        # the largest loss ever seen into each that follows.
        wanted = min(window(count), count)
        begin = count - wanted
        while reached + sizes[behind] <= begin:
            reached += sizes[behind]
            behind += 1
        share = (reached + sizes[behind] - begin) / sizes[behind]
        losses.append(sum(totals[behind + 1 : end], share * totals[behind]) / wanted)
    return Track(list(map(float, map(_LAST, curve))), list(accumulate(losses, min)))
