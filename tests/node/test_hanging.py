"""A real program that hangs in a step."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hermesd.core.events import Reported, RunCompleted, RunFailed, RunStalled
from hermesd.core.model import OnStall, RunId
from hermesd.core.node import stay
from tests.node.conftest import PROGRAM, Head, Node

ARGV = ("python", "train.py", "150", "0.01")
HANGS_AT = 100


@pytest.fixture
def hanging(
    head: Head,
    node: Node,
    launch: Callable[..., RunId],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[OnStall], RunId]:
    """Launch a program that hangs in a step until the file `go` is there."""
    monkeypatch.setattr(stay, "STALL_SECONDS", 8.0)
    monkeypatch.setattr(stay, "STALL_TIMES", 2.0)
    hang = (
        f"    while step == {HANGS_AT} and not os.path.exists({str(tmp_path / 'go')!r}):\n"
        "        time.sleep(0.5)\n"
    )
    program = PROGRAM.replace("    time.sleep(pace)\n", f"{hang}    time.sleep(pace)\n")
    return lambda stalled: launch(program=program, argv=ARGV, stalled=stalled)


async def test_a_program_that_hangs_in_a_step_is_told_and_may_go_on(
    head: Head, hanging: Callable[[OnStall], RunId], tmp_path: Path
) -> None:
    run = hanging(OnStall.TELL)
    stalled = await head.hears(RunStalled, run)
    assert 0 < stalled.step <= HANGS_AT, "as far as it was reported"
    assert stalled.seconds >= 8.0
    (tmp_path / "go").touch()
    assert (await head.hears(RunCompleted, run)).step == 150
    assert sum(isinstance(event, RunStalled) for event in head.events) == 1
    assert max(e.step for e in head.events if isinstance(e, Reported)) == 150


async def test_a_program_that_hangs_in_a_step_is_ended_if_its_study_wants_that(
    head: Head, hanging: Callable[[OnStall], RunId]
) -> None:
    failed = await head.hears(RunFailed, hanging(OnStall.RETRY))
    assert failed.error_kind == "stalled"
    assert re.fullmatch(r"no step after \d+ for \d+ s \(retry.stalled: retry\)", failed.detail)
