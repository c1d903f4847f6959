"""The CPU slots of a node, as its settings give them: whole cores, or a share of one.

A share is held whatever else runs, or it is refused: where there are shares, no core is promised
for more than 100 %. A bare number that may be meant as a percentage is refused.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_SHARE = re.compile(r"\s*(\d{1,3})\s*%\s*")
_SLOTS = re.compile(r"\s*(\d{1,4})\s*slots?\s*")
_MOST = 4096
# Two digits may be meant as a share: above the number of cores, write `12 slots` or `12%`.
_FIRST_DOUBTFUL = 10
_EXPECTED = "a number of slots, lists of cores such as [[0], [1]], or shares such as 70%"


@dataclass(frozen=True, slots=True)
class SlotSetting:
    """Its cores, and how much of their time it may use together: percent of one core each."""

    cores: tuple[int, ...]
    percent: int = 100


def usable_cores() -> list[int]:
    """The cores that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def one_for_each_core() -> tuple[SlotSetting, ...]:
    """What is offered where nothing is said."""
    return tuple(SlotSetting((core,)) for core in usable_cores())


def _slots(value: object) -> tuple[SlotSetting, ...]:
    """`3` is three slots on the first usable cores; text comes from flags and the environment."""
    if isinstance(value, str) and (spelt_out := _SLOTS.fullmatch(value)):
        return _of_one_core(int(spelt_out[1]))
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, int) and not isinstance(value, bool):
        cores = len(usable_cores())
        if max(_FIRST_DOUBTFUL - 1, cores) < value <= _MOST:
            share = f'"{value}%" for a slot of {value} % of a core, or ' if value <= 100 else ""
            raise ValueError(f'at most one slot for each of {cores} cores; {share}"{value} slots"')
        return _of_one_core(value)
    if not isinstance(value, list | tuple):
        raise ValueError(_EXPECTED)
    if all(isinstance(each, SlotSetting) for each in value):
        return tuple(value)
    whole = {i: _whole(each) for i, each in enumerate(value) if not isinstance(each, str)}
    shares = {i: _percent(each) for i, each in enumerate(value) if isinstance(each, str)}
    slots = {**whole, **_placed(shares, whole)}
    return tuple(slots[i] for i in range(len(value)))


def _of_one_core(count: int) -> tuple[SlotSetting, ...]:
    if not 0 <= count <= _MOST:
        raise ValueError(f"from 0 to {_MOST} slots")
    cores = usable_cores()
    return tuple(SlotSetting((cores[slot % len(cores)],)) for slot in range(count))


def _parsed(text: str) -> object:
    if "%" in text and "[" not in text:
        return text.split(",")
    try:
        return tomllib.loads(f"slots = {text}")["slots"]
    except tomllib.TOMLDecodeError:
        raise ValueError(_EXPECTED) from None


def _whole(cores: object) -> SlotSetting:
    known = usable_cores()
    if not isinstance(cores, list | tuple) or not cores or not set(known).issuperset(cores):
        raise ValueError(f"lists of cores out of {known}, none of them empty, or shares like 70%")
    return SlotSetting(tuple(cores))


def _percent(text: str) -> int:
    match = _SHARE.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= 100:
        raise ValueError(f"shares of a core from 1% to 100%, not {text.strip()}")
    return int(match[1])


def _placed(
    shares: Mapping[int, int], whole: Mapping[int, SlotSetting]
) -> Mapping[int, SlotSetting]:
    """Each share on a core of its own or beside others: the largest first, where most is free."""
    taken = [core for slot in whole.values() for core in slot.cores]
    placed = _fitted(shares, taken)
    if placed is None:
        scaled = (
            {i: share * scale // 100 for i, share in shares.items()} for scale in range(99, 0, -1)
        )
        fitting = next((s for s in scaled if min(s.values()) > 0 and _fitted(s, taken)), None)
        words = ", ".join(f"{share}%" for share in fitting.values()) if fitting else ""
        example = f", for example {words}" if words else ""
        raise ValueError(
            f"shares that fit on the cores {usable_cores()}, each at most 100 % in all{example}"
        )
    return placed


def _fitted(shares: Mapping[int, int], taken: Sequence[int]) -> Mapping[int, SlotSetting] | None:
    free = {core: 0 if core in taken else 100 for core in usable_cores()}
    placed = {}
    for i in sorted(shares, key=lambda i: -shares[i]):
        core = max(free, key=lambda core: (free[core], -core))
        free[core] -= shares[i]
        if free[core] < 0:
            return None
        placed[i] = SlotSetting((core,), shares[i])
    return placed


def _as_written(slots: Sequence[SlotSetting]) -> list[object]:
    return [list(slot.cores) if slot.percent == 100 else f"{slot.percent}%" for slot in slots]


Slots = Annotated[
    tuple[SlotSetting, ...], BeforeValidator(_slots), PlainSerializer(_as_written, when_used="json")
]
