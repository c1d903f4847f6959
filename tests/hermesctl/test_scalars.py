"""Plain scalars, durations and sizes: read strictly, never coerced."""

from __future__ import annotations

import pytest

from hermesctl.study_file import load


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100_000.0),
        ("-.5", -0.5),
        ("3.", 3.0),
        ("0", 0),
        ("-0", 0),
        ("+12", 12),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("010", "010"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("1e", "1e"),
        (".", "."),
        ("2020-01-01", "2020-01-01"),
        ("nan", "nan"),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_plain_scalars_follow_yaml_1_2_and_never_surprise(text: str, value: object) -> None:
    resolved = load.resolve(text)
    assert resolved == value
    assert type(resolved) is type(value)


@pytest.mark.parametrize(
    "text",
    [".inf", "-.INF", ".nan", "1e400", "9223372036854775808", "9" * 5000, "0x" + "f" * 17],
)
def test_numbers_that_cannot_be_carried_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        load.resolve(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("500ms", 0.5), ("1.5h", 5400.0)],
)
def test_durations(text: str, value: float) -> None:
    assert load.seconds(text) == value


@pytest.mark.parametrize("text", ["", "90", "s", "m10", "-5s", "10 m", "1y", "12:30"])
def test_what_is_no_duration(text: str) -> None:
    assert load.seconds(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("8GiB", 8 << 30), ("500 MB", 500_000_000), ("1.5KiB", 1536), ("7B", 7), ("2kB", 2000)],
)
def test_sizes(text: str, value: int) -> None:
    assert load.size_bytes(text) == value


@pytest.mark.parametrize("text", ["", "8", "GiB", "8 gib", "-1GB", "1e9B", "99999999999TiB"])
def test_what_is_no_size(text: str) -> None:
    assert load.size_bytes(text) is None
