"""In which form a trial's progress is written when it has to leave memory: as its framework's
checkpoint or as an image of its processes. The one that is exact is chosen, and of two exact ones
the one that takes less time.

The time that each took is kept in the trial's folder for the next host. Until a form has been
measured it is estimated: an image by the memory that it has to write, a checkpoint by the time that
the program took to begin, since it takes that time again before it can go on.
"""

from __future__ import annotations

import contextlib
import json
import os

CHECKPOINT, IMAGE = "checkpoint", "image"
_FILE = "forms.json"
_AWAY, _BACK, _BEGIN = "away", "back", "begin"
# What its author saves, the author wants to find.
AUTHOR = "author"
AS_GOOD = ("exact", AUTHOR)
# Of an image that was not made yet.
_IMAGE_SECONDS, _IMAGE_BYTES_PER_SECOND = 0.5, 300e6
# Of what an image saves, since it can be brought back in fewer places than a checkpoint.
_GAIN = 0.8


class Forms:
    """The forms of one trial, and what they cost; seconds."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, _FILE)
        self._seconds: dict[str, dict[str, float]] = {CHECKPOINT: {}, IMAGE: {}}
        with contextlib.suppress(OSError, ValueError), open(self._path) as file:
            self._seconds.update(json.load(file))

    def went(self, form: str, seconds: float) -> None:
        """Its progress was written down in this form."""
        self._note(form, _AWAY, seconds)

    def began(self, form: str | None, seconds: float) -> None:
        """It began to train, from this form or from the beginning."""
        self._note(form or CHECKPOINT, _BACK if form else _BEGIN, seconds)

    def _note(self, form: str, what: str, seconds: float) -> None:
        self._seconds[form][what] = seconds
        # What is lost is measured again, and a full disk costs no more than that.
        with contextlib.suppress(OSError):
            with open(f"{self._path}.new", "w") as file:
                json.dump(self._seconds, file)
            os.replace(f"{self._path}.new", self._path)

    def choose(self, level: str, memory_bytes: int) -> tuple[str, str]:
        """The form for a trial of which images work, whose checkpoint promises `level`; and why."""
        if level == AUTHOR:
            return CHECKPOINT, "its author saves it"
        if level not in AS_GOOD:
            return IMAGE, f"its framework's checkpoint is {level}"
        image, checkpoint = self._image(memory_bytes), self._checkpoint()
        form = IMAGE if checkpoint is not None and image < _GAIN * checkpoint else CHECKPOINT
        known = "not measured" if checkpoint is None else f"{checkpoint:.1f} s"
        return form, f"away and back take {known} by a checkpoint, {image:.1f} s by an image"

    def _image(self, memory_bytes: int) -> float:
        known = self._seconds[IMAGE]
        each = _IMAGE_SECONDS + memory_bytes / _IMAGE_BYTES_PER_SECOND
        return known.get(_AWAY, each) + known.get(_BACK, each)

    def _checkpoint(self) -> float | None:
        known = self._seconds[CHECKPOINT]
        back = known.get(_BACK, known.get(_BEGIN))
        return None if back is None else known.get(_AWAY, 0.0) + back
