"""What a tool's diary comes to: how soon good trials were found, and what was given up wrongly.

Which trials are good is read off the loop that trains all to their end: the best quarter, by
the lowest validation loss of any epoch. Times are seconds since the tool was started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import NamedTuple

GOOD_SHARE = 0.25


class Note(NamedTuple):
    """A trial finished an epoch."""

    trial: int
    epoch: int
    val_loss: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Truth:
    """The trials trained to their end: their losses, and which one ends lowest."""

    losses: dict[int, tuple[float, ...]]
    #: A trial is good once its loss is as low as this.
    theta: float
    good: tuple[int, ...]
    best: int


@dataclass(frozen=True, slots=True)
class Race:
    """A tool's figures; None for what it never came to."""

    #: When the first of the good trials was good, in seconds.
    first_good: float | None
    #: When the good trials were good, in the mean.
    mean_good: float | None
    #: How many of the good trials came to be good.
    found: int
    #: When the best trial was trained to its end.
    best: float | None
    total: float
    #: How much higher the lowest final loss of the fully trained trials is than that of all.
    regret: float | None
    trained: int
    #: How many good trials were not trained to their end.
    killed_good: int
    epochs: int
    #: The largest difference of a loss from that of the same epoch in the loop.
    differs: float


def read_diary(path: Path, begun: float) -> list[Note]:
    """The notes of a diary, as seconds since `begun`."""
    entries = map(json.loads, path.read_text().splitlines())
    return [Note(e["trial"], e["epoch"], e["val_loss"], e["at"] - begun) for e in entries]


def truth_of(notes: Iterable[Note]) -> Truth:
    """What is true of the trials, by a loop that trained all of them to their end."""
    losses: dict[int, list[float]] = {}
    for note in sorted(notes, key=lambda note: note.epoch):
        losses.setdefault(note.trial, []).append(note.val_loss)
    lows = {trial: min(theirs) for trial, theirs in losses.items()}
    theta = sorted(lows.values())[max(1, round(GOOD_SHARE * len(lows))) - 1]
    good = tuple(sorted(trial for trial, low in lows.items() if low <= theta))
    best = min(losses, key=lambda trial: (losses[trial][-1], trial))
    return Truth({trial: tuple(theirs) for trial, theirs in losses.items()}, theta, good, best)


def race_of(notes: Sequence[Note], truth: Truth, total: float) -> Race:
    """The figures of a tool."""
    ends = {note.trial: note for note in notes if note.epoch == len(truth.losses[note.trial])}
    reached: dict[int, float] = {}
    for note in sorted(notes, key=lambda note: note.seconds):
        if note.trial in truth.good and truth.losses[note.trial][note.epoch - 1] <= truth.theta:
            reached.setdefault(note.trial, note.seconds)
    lowest = truth.losses[truth.best][-1]
    finals = [truth.losses[trial][-1] for trial in ends]
    return Race(
        first_good=min(reached.values(), default=None),
        mean_good=mean(reached.values()) if reached else None,
        found=len(reached),
        best=ends[truth.best].seconds if truth.best in ends else None,
        total=total,
        regret=min(finals) - lowest if finals else None,
        trained=len(ends),
        killed_good=len(set(truth.good) - set(ends)),
        epochs=len(notes),
        differs=max(
            abs(note.val_loss - truth.losses[note.trial][note.epoch - 1]) for note in notes
        ),
    )
