"""Plain loops: each worker trains the next trial that nobody has taken, to its end.

`python -m benchmarks.peers.plain DIARY MODEL ORDER EPOCHS WORKERS`; one worker is a sequential
loop.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.peers.training import Diary, points, train


def work(diary: Diary, model: str, order: int, epochs: int, taken: Path) -> None:
    """Train trials until all are taken; how many are is what the file `taken` holds."""
    trials = points(model, order)
    while True:
        with taken.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = int(file.read() or 0)
            file.seek(0)
            file.write(str(number + 1))
        if number >= len(trials):
            return
        train(model, trials[number], epochs, partial(diary.note, number))


def main() -> None:
    diary, model, order, epochs, workers, *taken = sys.argv[1:]
    if taken:
        work(Diary(Path(diary)), model, int(order), int(epochs), Path(taken[0]))
        return
    with tempfile.NamedTemporaryFile() as file:
        words = [sys.executable, "-m", "benchmarks.peers.plain", *sys.argv[1:], file.name]
        loops = [subprocess.Popen(words) for _ in range(int(workers))]
        assert [loop.wait() for loop in loops] == [0] * int(workers)


if __name__ == "__main__":
    main()
