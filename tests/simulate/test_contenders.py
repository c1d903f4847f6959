"""Policies with settings, as a command line has them."""

from __future__ import annotations

import pytest

from hermesd.config.policy_line import label_of
from hermesd.core.model import Plugin
from hermesd.refusal import Refused
from hermesd.sim.contenders import FIFO, contenders


def test_policies_and_settings_share_the_comma() -> None:
    first, second, third = contenders("best_first,hermes:placement=homes,g_thres=2,fifo")
    assert (first.policy, first.placement) == (Plugin("best_first"), Plugin("free"))
    assert second.label == "hermes:placement=homes,g_thres=2"
    assert (second.policy, second.placement) == (
        Plugin("hermes"),
        Plugin("homes", (("G_thres", 2),)),
    )
    assert third == FIFO


def test_values_are_numbers_fractions_truths_words_and_lists() -> None:
    (hermes,) = contenders("hermes:winner_may_stay=false,milestones=25:50,growth_on=preemptions")
    assert hermes.policy.settings == (
        ("winner_may_stay", False),
        ("milestones", (25, 50)),
        ("growth_on", "preemptions"),
    )
    (asha,) = contenders("asha:eta=3,min_rung=1/27")
    assert dict(asha.policy.settings) == {"eta": 3, "min_rung": 1 / 27}


def test_the_same_policy_with_other_settings_is_another() -> None:
    listed = contenders("asha,asha:eta=2,asha,asha:eta=4")
    assert [each.label for each in listed] == ["asha", "asha:eta=2", "asha:eta=4"]


@pytest.mark.parametrize(
    "label",
    [
        "fifo",
        "asha:eta=2,min_rung=0.25",
        "hermes:winner_may_stay=false,milestones=50:,G_thres=2,placement=homes",
        "best_first:target=-0.8,scale=auto",
    ],
)
def test_a_label_is_read_as_what_it_stands_for(label: str) -> None:
    (chosen,) = contenders(label)
    assert label_of(chosen.policy, chosen.placement) == label


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("best_frist", r"policy = best_frist: .*did you mean best_first\?"),
        ("hermes:placment=homes", r"policy\.hermes = placment: .*did you mean placement\?"),
        ("hermes:placement=homs", r"placement = homs: .*did you mean homes\?"),
        ("hermes:g_thres=4", r"policy\.hermes = g_thres: expected one of"),
        ("fifo:g_thres=3", r"placement, speeds \(did you mean placement=homes,G_thres=3\?\)"),
        (
            "hermes:milestones=25:120",
            r"milestones = .*: expected rising percentages above 0, up to",
        ),
        ("homes:placement=homes,g_thres=x", r"policy = homes: "),
        ("fifo:placement=homes,g_thres=x", r"placement\.homes\.G_thres = x: expected a whole"),
        ("asha:eta=1", r"policy\.asha\.eta = 1: expected 2 or more"),
        ("asha:eta=many", "eta = many: expected a whole number"),
        ("asha:eta", "policy.asha:eta = eta: expected setting=value"),
        ("eta=2", "expected the name of a policy before its settings"),
        ("", "expected one of"),
    ],
)
def test_what_will_not_do_is_named_in_one_line(text: str, why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        contenders(text)
    assert "\n" not in str(refused.value)
