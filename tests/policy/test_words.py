"""What policies say of a trial: of a maximized signal its values, not the losses within."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.model import Plugin
from hermesd.policy import make_policy
from tests.policy.trials import trained

WORDS = {
    "asha": "rung 0 (step 7), {}",
    "best_first": "{}",
    "guided": "{}",
    "hyperband": "bracket 1 of 4: rung 0 (step 4), {}",
    "median": "{} by step 10",
    "pasha": "rung 0 (step 7), {}",
    "slaq": "{}",
    "successive_halving": "rung 0 (step 4), {}",
}


@pytest.mark.parametrize("policy", sorted(WORDS))
def test_a_maximized_signal_has_its_own_sign(policy: str) -> None:
    words = make_policy(Plugin(policy)).words
    losses = [-0.5] * 11
    minimized = replace(trained(0, losses), planned_steps=100)
    maximized = replace(minimized, maximized=True)
    lowest, highest = ("lowest ", "highest ") if policy == "median" else ("", "")
    assert words(minimized) == WORDS[policy].format(f"{lowest}loss -0.5")
    assert words(maximized) == WORDS[policy].format(f"{highest}signal 0.5")
