"""Programs that take turns on one core are suspended and go on, in every way that is compared."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks import switches
from benchmarks.goodput import DIGITS, PROGRAM
from benchmarks.turns import SLOT, Hosted, warm

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(300)]


@pytest.mark.in_depth
def test_two_fits_are_parked_and_saved_in_turns() -> None:
    rows = {row[0]: row[1] for row in switches.rows(parks=4, saves=2)}
    assert rows["park: whole switch"] == 4
    assert rows["checkpoint: suspend -> saved, device free"] == 2


def test_a_program_goes_on_where_it_left_its_core(tmp_path: Path) -> None:
    with ExitStack() as stack:
        program = Hosted(
            tmp_path / "fit", stack.enter_context(warm(tmp_path)), stack, PROGRAM, DIGITS
        )
        program.enter()
        for tier in ("park", "checkpoint"):
            program.leave(tier)
            before = program.steps
            program.enter()
            assert program.steps > before
        program.leave("checkpoint")
        program.prepare(SLOT)
        program.enter()
