"""Plain loops: each worker trains the next trial that nobody has taken, to its end.

`python -m benchmarks.peers.plain DIARY EPOCHS WORKERS`; one worker is a sequential loop.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.peers.training import Diary, points, train


def work(diary: Diary, epochs: int, taken: Path) -> None:
    """Train trials until all are taken; how many are is what the file `taken` holds."""
    trials = points()
    while True:
        with taken.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = int(file.read() or 0)
            file.seek(0)
            file.write(str(number + 1))
        if number >= len(trials):
            return
        train(trials[number], epochs, partial(diary.note, number))


def main() -> None:
    diary, epochs, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if len(sys.argv) > 4:
        work(Diary(diary), epochs, Path(sys.argv[4]))
        return
    with tempfile.NamedTemporaryFile() as taken:
        words = [sys.executable, "-m", "benchmarks.peers.plain", *sys.argv[1:4], taken.name]
        loops = [subprocess.Popen(words) for _ in range(workers)]
        assert [loop.wait() for loop in loops] == [0] * workers


if __name__ == "__main__":
    main()
