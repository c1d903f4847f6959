"""What was printed once is not shown again when a trial is set back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer_shim.conftest import MakeTrial
from trainer_shim.host.output import DIVIDER, Output

PRINTING = """
import os, sys
import trainer_shim
trial = trainer_shim.attach()
step = trial.resume.step if trial.resume else 0
while step < 10:
    step += 1
    print("step", step, os.getpid() if step == {odd} else "")
    trial.report(step, save=lambda folder: None)
"""


def printed(first: int, last: int) -> list[str]:
    return [f"step {step}" for step in range(first, last + 1)]


def lines(output: str) -> list[str]:
    return [" ".join(line.split()[:2]) for line in output.splitlines()]


@pytest.mark.parametrize("odd", [0, 6])
@pytest.mark.parametrize("back_to", [4, 0])
def test_lines_of_before_are_not_shown_twice(make_trial: MakeTrial, back_to: int, odd: int) -> None:
    """Step 6 prints another line in each process if it is the odd one."""
    trial = make_trial(PRINTING.replace("{odd}", str(odd))).launch()
    trial.start(limit=4)
    trial.until("parked")
    trial.send("checkpoint", id="four")
    path = trial.until("checkpointed")["path"]
    trial.resume(limit=8)
    trial.until("parked")
    trial.send("kill")
    trial.until("suspended")
    trial.start(restore=path if back_to else None)
    trial.until("completed")
    if odd:
        divider = lines(DIVIDER.decode())
        assert lines(trial.output) == [*printed(1, 8), *divider, *printed(6, 10)]
    else:
        assert lines(trial.output) == printed(1, 10)


def shown(path: Path, *pieces: bytes, limit: int = 1 << 20) -> Output:
    """A log that was given these pieces, each through a pipe, by a host of its own."""
    output = Output(str(path), limit)
    ours, theirs = output.pipe()
    with open(ours, "rb"), open(theirs, "wb", buffering=0) as end:
        for piece in pieces:
            if piece.startswith(b"@"):
                output.mark(piece.decode(), ours)
            elif piece.startswith(b"<"):
                output.go_on_from(piece[1:].decode() or None)
            else:
                end.write(piece)
                output.pump(ours)
    output.close()
    return output


def test_another_host_knows_what_was_shown(tmp_path: Path) -> None:
    path = tmp_path / "log"
    shown(path, b"one\ntw", b"@a", b"o\nthree\n")
    shown(path, b"<@a", b"o\nth", b"ree\nfo", b"ur\n")
    assert path.read_bytes() == b"one\ntwo\nthree\nfour\n"
    shown(path, b"<@a", b"o\nthr", b"ow\n")
    assert path.read_bytes() == b"one\ntwo\nthree\nfour\n" + DIVIDER + b"throw\n"
    shown(path, b"@b")
    shown(path, b"<@b", b"on\n")
    assert path.read_bytes().endswith(b"throw\non\n"), "nothing came after that checkpoint"


def test_what_has_left_the_log_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "log"
    pieces = [b"%03d" % number * 5 + b"\n" for number in range(12)]
    shown(path, b"@a", *pieces, limit=100)
    shown(path, b"<@a", pieces[0], limit=10_000)
    assert path.read_bytes().endswith(DIVIDER + pieces[0])
    shown(path, b"@b", pieces[1], limit=10_000)
    shown(path, b"<@b", pieces[1], pieces[2], limit=10_000)
    assert path.read_bytes().endswith(pieces[0] + pieces[1] + pieces[2])
