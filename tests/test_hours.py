"""Hours of the week: what people write, and which minutes it means."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.config.values import DAYS, BadHours, parse

MONDAY = datetime(2024, 1, 1)


def moment(words: str) -> datetime:
    """`Tue 07:00` of some week."""
    day, clock = words.split()
    hour, minute = map(int, clock.split(":"))
    return MONDAY + timedelta(days=DAYS.index(day), hours=hour, minutes=minute)


NIGHTS = ["Mon-Fri 19:00-07:00", "Sat-Sun"]


@pytest.mark.parametrize(
    ("entries", "inside", "outside"),
    [
        (
            NIGHTS,
            ["Mon 19:00", "Tue 06:59", "Fri 23:59", "Sat 06:59", "Sat 12:00", "Sun 23:59"],
            ["Mon 00:00", "Mon 06:59", "Mon 18:59", "Tue 07:00", "Fri 18:59"],
        ),
        (["22:00-6:00"], ["Sun 22:00", "Mon 05:59", "Wed 00:00"], ["Mon 06:00", "Mon 21:59"]),
        (["Sun 20:00-08:00"], ["Sun 20:00", "Mon 07:59"], ["Mon 08:00", "Sat 21:00"]),
        (["Fri-Mon"], ["Fri 00:00", "Sun 12:00", "Mon 23:59"], ["Tue 00:00", "Thu 23:59"]),
        (["wed 09:00-17:00"], ["Wed 09:00"], ["Wed 08:59", "Wed 17:00", "Thu 09:00"]),
        (["Sat 00:00-00:00"], ["Sat 00:00", "Sat 23:59"], ["Sun 00:00", "Fri 23:59"]),
        (["Sat 12:00-24:00"], ["Sat 12:00", "Sat 23:59"], ["Sun 00:00"]),
    ],
)
def test_minutes_within_and_without(
    entries: list[str], inside: list[str], outside: list[str]
) -> None:
    hours = parse(entries)
    assert [words for words in inside if not hours.hold(moment(words))] == []
    assert [words for words in outside if hours.hold(moment(words))] == []


def test_it_says_when_it_begins_again() -> None:
    nights = parse(NIGHTS)
    assert nights.again(moment("Tue 08:13")) == "Tue 19:00"
    assert nights.again(moment("Fri 18:59")) == "Fri 19:00"
    assert parse(["Sat-Sun"]).again(moment("Mon 00:00")) == "Sat 00:00"
    assert str(nights) == "Mon-Fri 19:00-07:00, Sat-Sun"


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([], "at least one entry"),
        ([""], "not ''"),
        (["Mo-Fr"], "days, hours or both, such as Mon-Fri 19:00-07:00 or Sat-Sun, not 'Mo-Fr'"),
        (["Mon-Fry"], "days out of Mon, Tue, .*, not Fry in 'Mon-Fry'"),
        (["Mon 9-17"], "not 'Mon 9-17'"),
        (["25:00-26:00"], "a time from 0:00 to 24:00, not 25:00 in '25:00-26:00'"),
        (["9:60-10:00"], "not 9:60"),
    ],
)
def test_what_says_no_hours_is_named(entries: list[str], why: str) -> None:
    with pytest.raises(BadHours, match=why):
        parse(entries)


@given(
    day=st.integers(0, 6),
    begin=st.integers(0, 24 * 60 - 1),
    length=st.integers(1, 24 * 60),
    minute=st.integers(0, 7 * 24 * 60 - 1),
)
def test_a_span_is_as_long_as_it_says(day: int, begin: int, length: int, minute: int) -> None:
    end = (begin + length) % (24 * 60)
    hours = parse([f"{DAYS[day]} {begin // 60}:{begin % 60:02}-{end // 60}:{end % 60:02}"])
    since = (minute - day * 24 * 60 - begin) % (7 * 24 * 60)
    assert hours.hold(MONDAY + timedelta(minutes=minute)) == (since < length)
