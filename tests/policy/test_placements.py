"""Every placement keeps the contract, and the page on policies says what the code says of it."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from hermesd.core.model import Checkpoint, Device, Plugin, Stage, TrialSpec
from hermesd.core.placement import PLACEMENTS, make_placement
from hermesd.core.policy import BadSetting, Facts
from hermesd.core.speeds import Speed, Speeds
from hermesd.core.trial import Trial

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
FRESH = Trial(TrialSpec("s/0", "s", 0, (Stage(None, ()),), (), 0), 0.0, 0.0)
TRAINED = replace(
    FRESH,
    step=100,
    planned_steps=90,
    step_seconds={"slow": 0.5},
    checkpoint=Checkpoint("c", "s/0", 1, 100, "5ha", 1, ("n",)),
    home="n/slow",
)
KINDS = {"slow": Speed("s/0", 2.0, 2.0), "fast": Speed("s/1", 8.0, 8.0)}
FACTS = Facts(1.0, 2.0, 0.5)
NONE, UNEQUAL = Speeds({}, {}), Speeds(KINDS, {"n/slow": 0.5, "m/fast": 1.2})
DEVICES = [
    Device(f"{node}/{kind}", node, kind, 1) for node in "nm" for kind in ("slow", "fast", "new")
]
names = pytest.mark.parametrize("name", PLACEMENTS)


@names
def test_costs_are_never_below_0_and_the_same_when_asked_again(name: str) -> None:
    placement = make_placement(Plugin(name))
    for speeds in (NONE, UNEQUAL):
        for trial in (FRESH, TRAINED):
            costs = [placement.cost(trial, device, FACTS, speeds) for device in DEVICES]
            assert all(number >= 0 for cost in costs for number in cost)
            assert len({len(cost) for cost in costs}) == 1
            assert costs == [placement.cost(trial, device, FACTS, speeds) for device in DEVICES]


@names
def test_nobody_gains_by_staying_or_while_all_devices_are_of_one_kind(name: str) -> None:
    placement = make_placement(Plugin(name))
    for device in DEVICES:
        for wanted in (False, True):
            assert placement.gain(TRAINED, device, device, FACTS, UNEQUAL, wanted) <= 0
            assert placement.gain(TRAINED, DEVICES[0], device, FACTS, NONE, wanted) <= 0


@names
def test_who_binds_gives_homes_that_have_room_and_others_give_none(name: str) -> None:
    placement = make_placement(Plugin(name))
    home = placement.home({"n/1": 3, "n/0": 4, "n/2": 2})
    assert home == ("n/2" if placement.binds else None)
    assert placement.home({"n/1": 4}) is None


@names
def test_a_setting_that_none_has_is_refused(name: str) -> None:
    with pytest.raises(BadSetting, match="one of"):
        make_placement(Plugin(name, (("sped", 1),)))


@pytest.mark.parametrize("name", ["homes", "swap"])
@pytest.mark.parametrize("room", [0, -3])
def test_homes_without_room_are_refused(name: str, room: int) -> None:
    with pytest.raises(BadSetting, match=f"G_thres: {room}: expected 1 or more"):
        make_placement(Plugin(name, (("G_thres", room),)))


@names
def test_the_page_has_its_settings_and_defaults(name: str) -> None:
    table = PAGE[PAGE.index("## Placements") : PAGE.index("## Write your own")]
    (row,) = re.findall(rf"^\| `{name}` \|.*$", table, re.MULTILINE)
    shown = dict(re.findall(r"`(\w+) = (\w+)`", row))
    assert shown == {each.name: str(each.default) for each in fields(PLACEMENTS[name])}
