"""Pools, studies and synthetic curves, all from a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

from hermesd.core.decide.scheduler import LeaseTerms
from hermesd.core.events import Submitted
from hermesd.core.model import (
    Device,
    DeviceId,
    Fidelity,
    Goal,
    MetricMode,
    Plugin,
    Pool,
    Program,
    Stage,
    StopRule,
    Study,
    Tier,
    TrialId,
    TrialSpec,
)
from hermesd.core.node.machine import NodeTerms
from tests.core.machine_choices import staged
from tests.sim.cluster.curves import Recording
from tests.sim.cluster.faults import NONE, Faults
from tests.sim.cluster.node import Box, SimulatedWork
from tests.sim.cluster.storm import Storm
from tests.sim.cluster.world import World

LEASE = LeaseTerms(lease_seconds=30.0, grace_seconds=10.0, margin_seconds=5.0)
POLICIES = [
    Plugin("fifo"),
    Plugin("round_robin", (("quantum_seconds", 5.0),)),
    Plugin("hermes", (("quantum_seconds", 3.0), ("growth_seconds", 2.0))),
    Plugin("hermes", (("quantum_seconds", 3.0), ("winner_may_stay", False))),
    Plugin("best_first"),
    Plugin("slaq", (("quantum_seconds", 5.0), ("reading", "predicted_reduction"))),
    Plugin("asha", (("eta", 2),)),
]
PLACEMENTS = [Plugin("free"), Plugin("free"), Plugin("homes"), Plugin("homes", (("G_thres", 2),))]
REBALANCED = [
    Plugin("homes", (("rebalance", "node"),)),
    Plugin("swap"),
    Plugin("free"),
    Plugin("homes", (("rebalance", "cluster"),)),
    Plugin("swap", (("rebalance", "cluster"),)),
]
SLOWNESS = 4.0


def curve(random: Random) -> Recording:
    """A noisy exponential fall."""
    steps, noise = random.randint(10, 80), random.uniform(0.0, 0.2)
    rate, floor = random.uniform(0.01, 0.2), random.uniform(0.0, 1.0)
    losses = [floor + math.exp(-rate * i) + noise * random.random() for i in range(steps)]
    return Recording(tuple(losses), random.choice([0.05, 0.2, 0.5, 1.5]))


def world(seed: int, faults: Faults) -> World:
    """One to three nodes and one or two studies on them; some seeds have two pools of them."""
    random = Random(f"scenario {seed}")
    gpus = random.random() < 0.3
    boxes = []
    for node in "nmk"[: random.choice([1, 1, 2, 3])]:
        devices = tuple(
            Device(f"{node}/{i}", node, "gpu" if gpus else "cpu", 1 << 30)
            for i in range(random.choice([1, 2]))
        )
        cheapest = {each.id: Tier.CHECKPOINT if gpus else Tier.PARK for each in devices}
        budget = random.choice([None, None, 150])
        spare = not gpus and Random(f"cores {seed} {node}").random() < 0.6
        rebuild = {each.id: (9,) for each in devices if spare}
        terms = NodeTerms(cheapest, budget, rebuild, start_seconds=60.0, lease_step_seconds=2.0)
        boxes.append(Box(node, devices, terms, LEASE.grace_seconds))
    submissions, work = [], {}
    for name in "st"[: random.choice([1, 1, 2])]:
        study = _study(name, random)
        specs = [
            TrialSpec(f"{name}/{i}", name, i, (Stage(None, ()),), (), i)
            for i in range(random.randint(1, 6))
        ]
        submissions.append(Submitted(study, tuple(specs), f"submit {name}"))
        for spec in specs:
            park_only = not gpus and random.random() < 0.2
            fidelity = Fidelity.PARK_ONLY if park_only else Fidelity.EXACT
            work[spec.id] = SimulatedWork(curve(random), fidelity)
    copies = Random(f"replicas {seed}")
    submissions = [
        replace(each, study=replace(each.study, replicas=copies.choice([0, 1, 1, 2])))
        for each in submissions
    ]
    unequal, slow = Random(f"kinds {seed}"), list[DeviceId]()
    if unequal.random() < 0.4:
        submissions, boxes, slow = _unequal(submissions, boxes, unequal)
    if Random(f"trees {seed}").random() < 0.4:
        submissions, work = _as_trees(submissions, work)
    pools: tuple[Pool, ...] = ()
    if len(boxes) > 1 and len(submissions) > 1:
        submissions, work, pools = _pooled(submissions, work, Random(f"pools {seed}"))
    made = World(seed, submissions, work, boxes, LEASE, faults, pools)
    made.ground.slowness.update(dict.fromkeys(slow, SLOWNESS))
    Storm(made)
    return made


def _as_trees(
    submissions: list[Submitted], work: dict[TrialId, SimulatedWork]
) -> tuple[list[Submitted], dict[TrialId, SimulatedWork]]:
    """The same, but that the trials of a study begin alike, and share what they have in common."""
    found, same = [], {}
    for each in submissions:
        first = work[each.trials[0].id].recording
        same |= {spec.id: replace(work[spec.id], recording=first) for spec in each.trials}
        found.append(replace(each, trials=tuple(map(staged, each.trials))))
    return found, same


def two_nodes(policy: Plugin, trials: int, replicas: int = 1) -> World:
    """Nodes n and m of one CPU slot each; every trial takes 400 s, and nothing goes wrong."""
    specs = tuple(
        TrialSpec(f"s/{number}", "s", number, (Stage(None, ()),), (), number)
        for number in range(trials)
    )
    falling = Recording(tuple(1.0 / (1 + step) for step in range(800)), 0.5)
    plain = _study("s", Random("two nodes"))
    study = replace(plain, policy=policy, placement=Plugin("free"), tier=None, replicas=replicas)
    boxes = []
    for node in "nm":
        device = Device(f"{node}/0", node, "cpu", 1 << 30)
        terms = NodeTerms({device.id: Tier.PARK})
        boxes.append(Box(node, (device,), terms, LEASE.grace_seconds))
    work = {each.id: SimulatedWork(falling, Fidelity.EXACT) for each in specs}
    return World(1, [Submitted(study, specs, "submit")], work, boxes, LEASE, NONE)


def one_node(policy: Plugin, placement: Plugin, slowness: Mapping[DeviceId, float]) -> World:
    """Node n of two CPU slots of one kind; three trials of 100 s each, one of 300 s."""
    specs = tuple(
        TrialSpec(f"s/{number}", "s", number, (Stage(None, ()),), (), number) for number in range(4)
    )
    study = replace(_study("s", Random("one node")), policy=policy, placement=placement, tier=None)
    made = tuple(Device(f"n/{place}", "n", "cpu", 1 << 30) for place in range(2))
    terms = NodeTerms(dict.fromkeys((each.id for each in made), Tier.PARK))
    work = {}
    for each in specs:
        steps = 600 if each.number == 3 else 200
        falling = Recording(tuple(1.0 / (1 + step) for step in range(steps)), 0.5)
        work[each.id] = SimulatedWork(falling, Fidelity.EXACT)
    box = Box("n", made, terms, LEASE.grace_seconds)
    world = World(1, [Submitted(study, specs, "submit")], work, [box], LEASE, NONE)
    world.ground.slowness.update(slowness)
    return world


def _pooled(
    submissions: list[Submitted], work: dict[TrialId, SimulatedWork], random: Random
) -> tuple[list[Submitted], dict[TrialId, SimulatedWork], tuple[Pool, ...]]:
    """The second study in a pool of its own, of the second node and perhaps with a policy.

    All can be written down: what can only be parked waits on a node that has left its pool.
    """
    policy = random.choice([None, *POLICIES])
    placement = random.choice([None, Plugin("free"), Plugin("homes")])
    first, second = submissions
    second = replace(second, study=replace(second.study, pool="gold"))
    restorable = {trial: replace(each, fidelity=Fidelity.EXACT) for trial, each in work.items()}
    return [first, second], restorable, (Pool("gold", ("m",), policy, placement),)


def _unequal(
    submissions: list[Submitted], boxes: list[Box], random: Random
) -> tuple[list[Submitted], list[Box], list[DeviceId]]:
    """The same with some devices of a slow kind, and placements that go by that; who is slow."""
    slow = [each.id for box in boxes for each in box.devices if random.random() < 0.5]
    kinds = [
        replace(
            box,
            devices=tuple(
                replace(each, kind="slow") if each.id in slow else each for each in box.devices
            ),
        )
        for box in boxes
    ]
    studies = [
        replace(each, study=replace(each.study, placement=random.choice(REBALANCED)))
        for each in submissions
    ]
    return studies, kinds, slow


def _study(name: str, random: Random) -> Study:
    return Study(
        id=name,
        owner="ann",
        pool="default",
        metric="loss",
        goal=Goal.MINIMIZE,
        mode=MetricMode.LAST,
        signal="loss",
        signal_goal=Goal.MINIMIZE,
        policy=random.choice(POLICIES),
        placement=random.choice(PLACEMENTS),
        program=Program(("train.py",), "python3", "", "/"),
        stop=StopRule(),
        submitted=0.0,
        fingerprint=name,
        source=b"",
        tier=random.choice([None, None, Tier.CHECKPOINT]),
        durability_seconds=20.0,
        suspend_deadline_seconds=15.0,
        max_failures=1_000_000,
    )


def alike(policy: Plugin) -> World:
    """Two CPU slots; six trials of 20 s, three of them distinct, which part after 2 and 4 s."""
    specs = tuple(staged(TrialSpec(f"s/{number}", "s", number, (), (), 0)) for number in range(6))
    falling = Recording(tuple(1.0 / (1 + step) for step in range(40)), 0.5)
    plain = _study("s", Random("alike"))
    study = replace(plain, policy=policy, placement=Plugin("free"), tier=None)
    made = tuple(Device(f"n/{place}", "n", "cpu", 1 << 30) for place in range(2))
    terms = NodeTerms(dict.fromkeys((each.id for each in made), Tier.PARK))
    work = {each.id: SimulatedWork(falling, Fidelity.EXACT) for each in specs}
    box = Box("n", made, terms, LEASE.grace_seconds)
    return World(1, [Submitted(study, specs, "submit")], work, [box], LEASE, NONE)
