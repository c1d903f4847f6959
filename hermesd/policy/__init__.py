"""Scheduling policies by name, one file each; `guided` is `best_first` with a model.

Policies are pure: no I/O, clock or randomness, and only the core may be imported. They may not
import each other, except that `guided` builds on `best_first`; they share `curve` and `pace`, what
is `good_soon`, the `process` over hyper-parameters, and the `memory` of earlier studies with its
`reliability`.
"""

from __future__ import annotations

from hermesd.core.model import Plugin
from hermesd.core.policy import BadSetting, Policy, build, raised
from hermesd.policy.best_first import BestFirst
from hermesd.policy.fifo import Fifo
from hermesd.policy.guided import Guided
from hermesd.policy.plugin import Registry
from hermesd.policy.published.asha import Asha, Pasha
from hermesd.policy.published.flowcon import FlowCon
from hermesd.policy.published.hermes import Hermes
from hermesd.policy.published.hyperband import Hyperband
from hermesd.policy.published.median import Median
from hermesd.policy.published.optimus import Optimus, OptimusWidth1
from hermesd.policy.published.pbt import Pbt
from hermesd.policy.published.slaq import Slaq
from hermesd.policy.published.successive_halving import SuccessiveHalving
from hermesd.policy.published.themis import Themis
from hermesd.policy.published.tiresias import Tiresias
from hermesd.policy.round_robin import RoundRobin

SHIPPED: tuple[type[Policy], ...] = (
    Asha,
    BestFirst,
    Fifo,
    FlowCon,
    Guided,
    Hermes,
    Hyperband,
    Median,
    Optimus,
    OptimusWidth1,
    Pasha,
    Pbt,
    RoundRobin,
    Slaq,
    SuccessiveHalving,
    Themis,
    Tiresias,
)
POLICIES = Registry(SHIPPED)


def make_policy(plugin: Plugin, known: Registry = POLICIES) -> Policy:
    """The policy that a study asked for, one that ships or one that a package brings.

    Raises `BadSetting` for a name, a setting or a value that will not do, and for a policy of a
    package that cannot be used.
    """
    if plugin.name not in known:
        raise known.unknown(plugin.name)
    try:
        return build("policy", known, plugin)
    except BadSetting:
        raise
    except (Exception, SystemExit) as error:  # whatever a plug-in raises: its user is told
        expected = f"settings that it takes; it raised {raised(error)}"
        raise BadSetting("policy", plugin.name, expected) from error
