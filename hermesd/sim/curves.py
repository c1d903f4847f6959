"""Recorded trainings as jobs: the losses that policies see and how long an iteration takes."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from hermesd.core.losses import Chunk, chunked, chunked_points
from hermesd.core.model import Setting

Floats: TypeAlias = NDArray[np.float64]
Loss: TypeAlias = Literal["base", "total"]

# No loss is further from 0 than this: sums and differences of any stay finite.
FURTHEST_LOSS = 1e100
# No iteration or switch takes more seconds than this: the clock still tells milliseconds then.
MOST_SECONDS = 1e9
# Of the seconds of a switch, what is paid when a trial is suspended, and at every start.
LEAVING, STARTING = 0.36, 0.64


class Passes(NamedTuple):
    """What a program does after each pass over its data, such as validation."""

    #: In a pass.
    steps: int
    #: So much longer the last step of a pass takes.
    seconds: float


NO_PASSES = Passes(1, 0.0)


@dataclass(frozen=True)
class Job:
    """One recorded training."""

    #: `losses[i]` is what iteration i + 1 reported, all finite.
    losses: tuple[float, ...]
    step_seconds: float
    #: The length that the program tells when it starts; None if it tells none. Policies know no
    #: other.
    announced: int | None
    #: Over so many iterations goes the trailing mean that figures are read off; policies see the
    #: losses themselves.
    smoothing: int
    parameters: tuple[tuple[str, Setting], ...] = ()
    #: The first iteration takes so much more than the others: what a framework traces or compiles.
    opening_seconds: float = 0.0
    #: It reports a loss that is no number after its last finite one, and is stopped.
    diverges: bool = False
    #: The steps at which a loss was reported; None: at each. A step between two has the loss of the
    #: first of them, since nobody knows the other then; before the first there is none, whatever
    #: `losses` has there.
    points: tuple[int, ...] | None = None
    passes: Passes = NO_PASSES

    @property
    def steps(self) -> int:
        return len(self.losses)

    def at(self, speed: float) -> Job:
        """The job on a device that is so many times as fast as the one it was recorded on."""
        if speed == 1.0:
            return self
        return replace(
            self,
            step_seconds=self.step_seconds / speed,
            opening_seconds=self.opening_seconds / speed,
            passes=self.passes._replace(seconds=self.passes.seconds / speed),
        )

    @overload
    def seconds(self, first: int, step: int) -> float: ...
    @overload
    def seconds(self, first: int, step: Floats) -> Floats: ...
    def seconds(self, first: int, step: int | Floats) -> float | Floats:
        """See `elapsed`; without the first iteration's own."""
        return elapsed(first, step, self.step_seconds, self.passes)

    def told(self, before: int, step: int) -> tuple[Chunk, ...]:
        """What a report at `step` tells of the losses, the last one having been at `before`."""
        if self.points is None:
            return chunked(before + 1, self.losses[before:step])
        first, end = (bisect_right(self.points, each) for each in (before, step))
        return chunked_points(
            before + 1, [(each, self.losses[each - 1]) for each in self.points[first:end]]
        )

    @cached_property
    def smoothed(self) -> Floats:
        """The losses that figures are read off; infinite before the first."""
        silent = self.points[0] - 1 if self.points else 0
        means = smoothed(np.array(self.losses[silent:]), self.smoothing)
        return np.concatenate((np.full(silent, np.inf), means)) if silent else means


@overload
def elapsed(first: int, step: int, step_seconds: float, passes: Passes) -> float: ...
@overload
def elapsed(first: int, step: Floats, step_seconds: float, passes: Passes) -> Floats: ...
def elapsed(first: int, step: int | Floats, step_seconds: float, passes: Passes) -> float | Floats:
    """Seconds of the steps after `first` up to `step`, or up to each of several."""
    ended = step // passes.steps - first // passes.steps
    return (step - first) * step_seconds + ended * passes.seconds


@dataclass(frozen=True, slots=True)
class Switch:
    """Seconds to suspend a trial, to resume it, and to start it for the first time."""

    leaving: float
    resuming: float
    starting: float
    #: How long a trial keeps its device after its last iteration.
    ending: float = 0.0

    @classmethod
    def split(cls, seconds: float) -> Switch:
        """A suspend and a resume in so many seconds; a first start takes what a resume does."""
        return cls(LEAVING * seconds, STARTING * seconds, STARTING * seconds)


@dataclass(frozen=True, slots=True)
class Curves:
    """A file of recorded trainings, and what it takes to switch between them."""

    name: str
    jobs: tuple[Job, ...]
    switch: Switch
    #: They are one study's own, to be run again as they are, not a stock to draw from.
    whole: bool = False


def smoothed(losses: Floats, window: int) -> Floats:
    """The mean of the last `window` losses at each iteration; of all so far before that many."""
    count = len(losses)
    blocks = np.zeros((-(-count // window), window))
    blocks.flat[:count] = losses
    # A window is the end of one block and the beginning of the next: sums of its own losses alone,
    # since in a difference of longer sums the rounding of a spike would outlast its window.
    sums = np.cumsum(blocks, axis=1)
    sums[1:, :-1] += np.cumsum(blocks[:-1, :0:-1], axis=1)[:, ::-1]
    means: Floats = sums.flat[:count] / np.minimum(np.arange(1, count + 1), window)
    return means


def until_broken(losses: Floats) -> tuple[float, ...]:
    """The losses before the first that is no finite number, none beyond `FURTHEST_LOSS`."""
    broken = np.flatnonzero(~np.isfinite(losses))
    known = losses[: broken[0] if len(broken) else len(losses)]
    return tuple(np.clip(known, -FURTHEST_LOSS, FURTHEST_LOSS).tolist())
