"""What the scheduler is driven through in `test_scheduler_machine`: settings, a policy with moods.

Only what is drawn from or compared with; what is done with it stays with the machine.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import combinations
from typing import Any

from hypothesis import strategies as st

from hermesd.core.decide.relocation import arriving
from hermesd.core.fast_replace import replace
from hermesd.core.model import (
    Fidelity,
    Plugin,
    Pool,
    RetryAction,
    RetryRule,
    Slot,
    Stage,
    TrialSpec,
)
from hermesd.core.placement import avoided, fits
from hermesd.core.policy import Policy, Score
from hermesd.core.state import State
from hermesd.core.tree import parting, path_of
from hermesd.core.trial import Trial
from hermesd.policy import make_policy
from hermesd.policy.fifo import Fifo

PLUGINS = [
    Plugin("fifo"),
    Plugin("round_robin"),
    Plugin("hermes"),
    Plugin("hermes", (("winner_may_stay", False), ("growth_on", "preemptions"))),
    Plugin("best_first"),
    Plugin("slaq", (("reading", "predicted_reduction"),)),
    Plugin("asha", (("eta", 2), ("min_rung", 2.0))),
    Plugin("optimus"),
    Plugin("moody"),
]
NODES = ("n", "m", "k")
TRIALS = [f"{study}/{number}" for study in "st" for number in range(4)]

RULES = (
    RetryRule("out of memory", RetryAction.NOT_HERE),
    RetryRule("bug", RetryAction.NO_RETRY),
    RetryRule("ECC", RetryAction.EXCLUDE_NODE),
)
PLACEMENTS = [
    Plugin("free"),
    Plugin("free", (("speeds", "equal"),)),
    Plugin("homes", (("G_thres", 2), ("rebalance", "node"))),
    Plugin("homes", (("G_thres", 2), ("rebalance", "cluster"))),
    Plugin("swap", (("G_thres", 2),)),
]

FULL = "OOM when allocating"  # on devices that have all as much memory

POOLS = [
    (),
    (Pool("gold", ("m",)),),
    (Pool("gold", ("?",), Plugin("round_robin")), Pool("default", (), None, Plugin("free"))),
    (Pool("gold", ("m",), None, Plugin("homes", (("G_thres", 2),))), Pool("red", ("n", "m"))),
]

plugins = st.sampled_from(PLUGINS)
some_trials = st.lists(st.sampled_from(TRIALS), min_size=1, max_size=3, unique=True).map(tuple)
nodes = st.sampled_from(NODES)
requests = st.integers(0, 40).map("r{}".format)
steps = st.integers(0, 12)
# An event speaks of the present attempt, mostly; of the one before, or of one never made.
attempts = st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1])


def staged(spec: TrialSpec) -> TrialSpec:
    """The trial with a sequence that begins as those of all of its study do."""
    of = (("a", "b"), ("a", "c", "b"), ("a", "c"), ("a", "b"))[spec.number % 4]
    ends = (*(4, 8)[: len(of) - 1], None)
    stages = tuple(Stage(end, (("lr", value),)) for end, value in zip(ends, of, strict=True))
    return replace(spec, stages=stages, root=f"root of {spec.study}")


def doing_the_same(state: State) -> list[tuple[str, str]]:
    """Pairs of trials that are on devices to train the same, though one could do it for both."""
    there = [
        trial
        for trial in state.trials.values()
        if trial.phase.on_device and trial.spec.root and not (trial.paused or trial.ending)
    ]
    return [
        (one.id, other.id)
        for one, other in combinations(there, 2)
        if one.spec.root == other.spec.root
        and all(t.fidelity is Fidelity.UNKNOWN or t.fidelity.restorable for t in (one, other))
        and (
            (parts := parting(path_of(one.spec), path_of(other.spec))) is None
            or parts > max(one.step, other.step)
        )
    ]


class Moody(Fifo):
    """A policy that raises for every third trial, once that ran."""

    def score(self, trial: Trial) -> Score:
        if trial.explored and trial.spec.number == 2:
            raise ArithmeticError("not today")
        return (0.0, 0.0)


def stranded(state: State, trial: Trial, slot: Slot) -> bool:
    """Whether it is its park alone that keeps a trial from a free device of another node, and
    nothing is on its way to one."""
    study, node, device = state.studies[trial.spec.study], state.parked_on(trial), slot.device
    if node in (None, device.node) or state.placement_of(study.id).name != "free":
        return False
    kept = trial.kept
    writable = kept is not None and not (kept.unwritable or kept.midway or kept.leaving)
    if not (writable and trial.fidelity.restorable and state.nodes[node or ""].connected):
        return False
    able = state.serves(device, study) and fits(trial, study, device, None)
    able = able and (node, device.node) not in state.severed
    if not able or avoided(state, replace(trial, kept=None), device.id):
        return False
    return not any(arriving(state, other) for other in state.trials.values())


def policy_named(plugin: Plugin) -> Policy:
    return Moody() if plugin.name == "moody" else make_policy(plugin)


def snapshot(state: State) -> dict[str, Any]:
    """A copy two levels deep; below that all is frozen or replaced, never changed."""
    return {
        name: {k: dict(v) if isinstance(v, dict) else v for k, v in table.items()}
        if isinstance(table, dict)
        else deepcopy(table)
        for name, table in vars(state).items()
    }
