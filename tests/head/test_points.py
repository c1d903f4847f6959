"""Curves out of the pieces that a trial's runs left."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hermesd.head.journal.points import Piece, StoredCurve, counting, curve, pack, unpack


def piece(attempt: int, steps: list[int], values: list[float]) -> Piece:
    packed = pack(StoredCurve(steps, values))
    return Piece("d/1", attempt, "loss", *packed)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))))
def test_what_is_packed_is_unpacked_bit_for_bit(pairs: list[tuple[int, float]]) -> None:
    steps, values = [s for s, _ in pairs], [v for _, v in pairs]
    packed = piece(1, steps, values)
    assert len(packed.steps) == len(packed.values) == 8 * len(pairs)
    assert unpack(packed) == StoredCurve(steps, values)


def test_the_bytes_are_little_endian_whatever_the_machine() -> None:
    packed = piece(1, [1], [1.0])
    assert packed.steps == b"\x01" + b"\0" * 7
    assert packed.values == b"\0" * 6 + b"\xf0\x3f"


def test_steps_that_were_trained_again_are_the_later_attempts() -> None:
    pieces = [
        piece(2, [3, 4], [0.3, 0.4]),
        piece(1, [1, 2, 3, 4, 5, 6], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ]
    assert curve(pieces) == StoredCurve([1, 2, 3, 4], [1.0, 2.0, 0.3, 0.4])


def test_what_an_attempt_went_on_from_is_there_though_one_between_began_anew() -> None:
    older = piece(1, [1, 2, 3, 4, 5, 6], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    anew, newest = piece(2, [1, 2], [0.1, 0.2]), piece(3, [5, 6], [0.5, 0.6])
    assert curve([older, anew]) == StoredCurve([1, 2], [0.1, 0.2])
    assert curve([older, anew, newest]).values == [0.1, 0.2, 3.0, 4.0, 0.5, 0.6]


def test_a_report_that_came_twice_counts_once() -> None:
    pieces = [piece(1, [1, 2], [1.0, 2.0]), piece(1, [1, 2], [1.0, 2.0])]
    assert curve(pieces) == StoredCurve([1, 2], [1.0, 2.0])


def test_a_thinned_curve_keeps_its_ends_and_its_limit() -> None:
    whole = [piece(1, list(range(1000)), [float(n) for n in range(1000)])]
    for limit in (1, 2, 3, 10, 999, 1000, 5000):
        thin = curve(whole, limit)
        assert len(thin.steps) <= limit
        assert thin.steps[0] == 0
        assert thin.steps == sorted(set(thin.steps))
        if limit > 1:
            assert thin.steps[-1] == 999
    assert len(curve(whole, 0).steps) == 1000


def test_nan_is_a_value_like_others() -> None:
    assert math.isnan(curve([piece(1, [1], [math.nan])]).values[0])
    assert curve([]) == StoredCurve([], [])


def test_of_points_that_count_each_step_is_there_once_and_says_its_attempt() -> None:
    pieces = [
        piece(1, [1, 2, 3, 4, 5], [1.0, 2.0, 3.0, 4.0, 5.0]),
        piece(1, [5, 6], [5.5, 6.0]),
        piece(2, [3, 4], [0.3, 0.4]),
        piece(2, [4], [0.44]),
    ]
    found = counting(pieces)
    assert found == {1: StoredCurve([1, 2], [1.0, 2.0]), 2: StoredCurve([3, 4], [0.3, 0.44])}
    assert curve(pieces) == StoredCurve([1, 2, 3, 4], [1.0, 2.0, 0.3, 0.44])
    # A trial that began anew: nothing of before counts.
    assert counting([*pieces, piece(3, [1], [9.0])]) == {3: StoredCurve([1], [9.0])}
