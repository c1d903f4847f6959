"""Paces: the present loss, the leader's track, and what lies ahead of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.losses import chunked, extend, recent
from hermesd.policy.pace import Track, settled, track, window
from tests.policy.trials import curve


def test_the_window_is_half_then_twenty_then_a_tenth() -> None:
    assert [window(n) for n in (1, 10, 30, 100, 1000)] == [3.0, 5.0, 15.0, 20.0, 100.0]


def test_no_loss_and_no_number_are_infinite() -> None:
    assert settled(()) == math.inf
    assert settled(curve([1.0, math.nan, 1.0])) == math.inf


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=300), st.integers(1, 40))
def test_a_track_says_the_lowest_present_loss_so_far(values: list[float], quantum: int) -> None:
    chunks, lowest = (), math.inf
    for begin in range(0, len(values), quantum):
        chunks = extend(chunks, chunked(begin + 1, values[begin : begin + quantum]))
    path = track(chunks)
    for count, chunk in enumerate(chunks, 1):
        present = settled(chunks[:count])
        share = window(chunk.last_step) / chunk.last_step
        assert present == pytest.approx(recent(chunks[:count], chunk.last_step, share), abs=1e-9)
        lowest = min(lowest, present)
        assert path.loss_at(chunk.last_step) == pytest.approx(lowest, abs=1e-9)


def test_one_spike_does_not_blur_what_comes_after_its_window() -> None:
    chunks = tuple(chunk for step in range(1, 61) for chunk in chunked(step, [2.3]))
    spiked = (*chunked(1, [1e17]), *chunks[1:])
    assert track(spiked).losses[-1] == pytest.approx(2.3)
    assert min(track(spiked).losses) == pytest.approx(2.3), "none was lower"


def test_a_track_is_read_both_ways() -> None:
    path = Track([10.0, 20.0, 40.0], [4.0, 2.0, 1.0])
    assert [path.loss_at(step) for step in (5, 10, 15, 30, 99)] == [4.0, 4.0, 3.0, 1.5, 1.0]
    assert [path.step_of(loss) for loss in (9, 4, 3, 1.5, 0)] == [10.0, 10.0, 15.0, 30.0, 40.0]


def test_falls_go_on_at_the_ratio_of_the_last_two() -> None:
    # 9, 5, 3 at 1, 2, 4: falls of 4, 2, then 1, 1/2; the part of a doubling counts in part
    path = Track([1.0, 2.0, 4.0], [9.0, 5.0, 3.0])
    assert [path.loss_by(step) for step in (1, 3, 4, 8, 16)] == [9.0, 4.0, 3.0, 2.0, 1.5]
    assert path.loss_by(4 * math.sqrt(2)) == pytest.approx(2.5)
    # a fall that grows is not taken to grow on
    assert Track([1.0, 2.0, 4.0], [9.0, 8.0, 6.0]).loss_by(8) == 4.0
