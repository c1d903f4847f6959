"""A plain loop in one process that runs the script of the GPU's study for each trial, to its end.

`python -m benchmarks.peers.script DIARY MODEL ORDER EPOCHS`.
"""

from __future__ import annotations

import contextlib
import gc
import io
import re
import sys
from pathlib import Path

from benchmarks.peers.training import Diary, points, run

_EPOCH = re.compile(r"epoch (\d+): val_loss=(\S+)")


class Noting(io.TextIOBase):
    """A standard output of which a diary is kept."""

    def __init__(self, diary: Diary, trial: int) -> None:
        self._diary, self._trial = diary, trial

    def write(self, text: str) -> int:
        if found := _EPOCH.match(text):
            self._diary.note(self._trial, int(found[1]) + 1, float(found[2]))
        return len(text)


def main() -> None:
    diary, model, epochs = Diary(Path(sys.argv[1])), sys.argv[2], int(sys.argv[4])
    for number, point in enumerate(points(model, int(sys.argv[3]))):
        with contextlib.redirect_stdout(Noting(diary, number)):
            run(model, point, epochs)
        gc.collect()


if __name__ == "__main__":
    main()
