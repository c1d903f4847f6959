"""Curves in bounded space: what is kept, joined, replaced and cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.losses import (
    CURVE_CHUNKS,
    Chunk,
    QuantumLosses,
    chunked,
    chunked_points,
    extend,
    join,
    recent,
    truncate,
)

values = st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=400)


def one(step: int, loss: float) -> Chunk:
    return Chunk(step, step, 1, loss, loss, loss)


def test_joining_keeps_the_sum_and_the_extremes() -> None:
    assert join(one(1, 5.0), one(2, 3.0)) == Chunk(1, 2, 2, 8.0, 3.0, 5.0)
    assert join(one(1, 5.0), one(2, 3.0)).mean == 4.0


@given(values, st.integers(1, 20), st.integers(0, 1000))
def test_a_report_is_cut_into_few_even_chunks_that_lose_nothing(
    losses: list[float], limit: int, first: int
) -> None:
    chunks = chunked(first, losses, limit)
    assert len(chunks) == min(limit, len(losses))
    assert sum(chunk.size for chunk in chunks) == len(losses)
    assert sum(chunk.total for chunk in chunks) == sum(losses)
    assert min(chunk.low for chunk in chunks) == min(losses)
    assert max(chunk.high for chunk in chunks) == max(losses)
    assert (chunks[0].first_step, chunks[-1].last_step) == (first, first + len(losses) - 1)
    for before, after in pairwise(chunks):
        assert after.first_step == before.last_step + 1
    counts = [chunk.size for chunk in chunks]
    assert max(counts) - min(counts) <= 1


def test_nothing_reported_is_no_chunk() -> None:
    assert chunked(1, []) == ()


@given(values, st.integers(0, 1000))
def test_losses_at_every_iteration_are_cut_as_if_their_steps_were_not_told(
    losses: list[float], first: int
) -> None:
    assert chunked_points(first, list(enumerate(losses, first))) == chunked(first, losses)


def test_a_loss_counts_for_the_iterations_without_one_before_it() -> None:
    assert chunked_points(1, [(10, 2.0), (30, 4.0)]) == (
        Chunk(1, 10, 10, 20.0, 2.0, 2.0),
        Chunk(11, 30, 20, 80.0, 4.0, 4.0),
    )
    assert chunked_points(5, [(6, 2.0), (7, float("nan")), (9, 4.0)]) == (
        Chunk(5, 6, 2, 4.0, 2.0, 2.0),
        Chunk(8, 9, 2, 8.0, 4.0, 4.0),
    )
    assert chunked_points(1, []) == ()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=400))
def test_a_curve_stays_bounded_and_counts_every_iteration(reports: list[int]) -> None:
    curve: tuple[Chunk, ...] = ()
    step = 1
    for length in reports:
        curve = extend(curve, chunked(step, [float(step)] * length))
        step += length
        assert len(curve) <= 2 * CURVE_CHUNKS
    assert sum(chunk.size for chunk in curve) == step - 1
    assert curve[0].first_step == 1
    assert curve[-1].last_step == step - 1
    for before, after in pairwise(curve):
        assert before.last_step < after.first_step


def test_joining_is_finer_where_the_curve_is_young() -> None:
    curve = extend((), [one(step, 1.0) for step in range(1, 3000)])
    assert len(curve) <= 2 * CURVE_CHUNKS
    assert all(chunk.size <= max(1, chunk.last_step / 7) for chunk in curve)


def test_steps_trained_again_replace_what_was_there() -> None:
    curve = extend((), [one(1, 9.0), one(2, 8.0), one(3, 7.0)])
    again = extend(curve, [one(2, 5.0)])
    assert again == (one(1, 9.0), one(2, 5.0))


@given(values, st.integers(0, 400))
def test_cutting_keeps_what_was_done_by_a_step(losses: list[float], step: int) -> None:
    curve = extend((), [one(i, v) for i, v in enumerate(losses, 1)])
    cut = truncate(curve, step)
    assert all(chunk.last_step <= step for chunk in cut)
    assert cut == curve[: len(cut)]


def test_the_recent_loss_is_of_the_last_tenth_or_three() -> None:
    curve = extend((), [one(i, float(i)) for i in range(1, 51)])
    assert recent(curve, 50) == (46 + 47 + 48 + 49 + 50) / 5
    assert recent(curve, 10) == (48 + 49 + 50) / 3
    assert recent(curve, 50, share=1.0) == sum(range(1, 51)) / 50


def test_a_recent_loss_takes_part_of_a_chunk() -> None:
    curve = (Chunk(1, 10, 10, 100.0, 0.0, 20.0), one(11, 4.0))
    assert recent(curve, 11) == pytest.approx((4.0 + 2 * 10.0) / 3)


def test_there_is_no_recent_loss_before_the_first() -> None:
    assert recent((), 0) is None
    assert recent((one(1, 2.0),), 1) == 2.0


def test_the_losses_of_a_quantum_are_counted_with_their_range() -> None:
    seen = QuantumLosses().with_chunks([one(1, 5.0), Chunk(2, 4, 3, 6.0, 1.0, 3.0)])
    assert seen == QuantumLosses(4, 1.0, 5.0)
    assert seen.middle == 3.0
