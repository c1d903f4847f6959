"""What a simulated head is told first: a study of recorded jobs, and a node with devices."""

from __future__ import annotations

from collections.abc import Sequence

from hermesd.core.events import NodeJoined, Submitted
from hermesd.core.model import (
    Device,
    DeviceId,
    Goal,
    MetricMode,
    Plugin,
    Program,
    Stage,
    StopRule,
    Study,
    TrialId,
    TrialSpec,
)
from hermesd.simulate.curves import Job

STUDY, NODE = "study", "node"


def submitted(jobs: Sequence[Job], policy: Plugin, placement: Plugin) -> Submitted:
    """A study of one trial a job, in this order, submitted at time 0."""
    study = Study(
        id=STUDY,
        owner="simulate",
        pool="default",
        metric="loss",
        goal=Goal.MINIMIZE,
        mode=MetricMode.LAST,
        signal="loss",
        signal_goal=Goal.MINIMIZE,
        policy=policy,
        placement=placement,
        program=Program((), "", "", ""),
        stop=StopRule(),
        submitted=0.0,
        fingerprint="",
        source=b"",
    )
    specs = tuple(
        TrialSpec(_id(STUDY, place), STUDY, place, (Stage(None, job.parameters),), (), place)
        for place, job in enumerate(jobs)
    )
    return Submitted(study, specs, "submit")


def joined(devices: int, speeds: Sequence[float] = ()) -> NodeJoined:
    """A node with so many devices: equal ones, or one kind for each relative speed."""
    kinds = [f"{speed:.0%}" for speed in speeds] or ["simulated"] * devices
    named = tuple(Device(_id(NODE, place), NODE, k, 1 << 34) for place, k in enumerate(kinds))
    return NodeJoined(NODE, "boot", named, ())


def place_of(name: TrialId | DeviceId) -> int:
    """Which trial of the study, or device of the node, an id means."""
    return int(name.rpartition("/")[2])


def _id(owner: str, place: int) -> str:
    return f"{owner}/{place}"
