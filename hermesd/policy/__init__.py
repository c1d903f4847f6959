"""The policies that ship, by name. Each is one file that knows none of the others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hermesd.core.model import Plugin
from hermesd.core.plugins import build
from hermesd.core.policy import Policy
from hermesd.policy.asha import Asha
from hermesd.policy.best_first import BestFirst
from hermesd.policy.fifo import Fifo
from hermesd.policy.hermes import Hermes
from hermesd.policy.round_robin import RoundRobin
from hermesd.policy.slaq import Slaq

POLICIES: Mapping[str, type[Policy]] = MappingProxyType(
    {policy.name: policy for policy in (Asha, BestFirst, Fifo, Hermes, RoundRobin, Slaq)}
)


def make_policy(plugin: Plugin) -> Policy:
    """The policy that a study asked for; raises `BadSetting` for what none of ours knows."""
    return build("policy", POLICIES, plugin)
