"""Microseconds to say and to understand the two messages of which a busy cluster sends most.

    python -m benchmarks.wire

A report is sent about once a second by every running trial, a launch for every turn. Each figure is
the best of some rounds, since whatever else the machine does can only add to it.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

from hermesd import wire
from hermesd.core.commands import Launch
from hermesd.core.events import Reported
from hermesd.core.losses import Chunk
from hermesd.core.model import Checkpoint, Goal, Milestone, Program, Quantum, RunId, RunTerms
from hermesd.core.node.messages import Assignment, CheckpointSource, Series, Work
from hermesd.pb.hermes.v1 import node_pb2 as pb

ROUNDS, REPEATS = 15, 1000

RUN = RunId("digits/17", 4)
REPORT = Reported(
    RUN,
    1600,
    tuple(Chunk(100 * i, 100 * i + 99, 100, 51.5, 0.25, 0.75) for i in range(16)),
    busy_seconds=1.0,
    cpu_seconds=0.9,
    examples=51200,
    memory_bytes=1 << 30,
    number=12,
)
POINTS = tuple(
    Series(f"metric{i}", tuple(range(10)), tuple(0.5 * j for j in range(10))) for i in range(4)
)
LAUNCH = Assignment(
    Launch(
        RUN,
        ("n1/cpu0",),
        Quantum(30.0, 2000, milestones=tuple(Milestone(p, 1 / p) for p in (10.0, 20.0, 30.0))),
        "the best of three",
        checkpoint="digits/17@3-1500",
    ),
    Checkpoint("digits/17@3-1500", "digits/17", 3, 1500, "ab" * 32, 1 << 20, ("n1", "n2")),
    Work(
        Program(
            ("python", "train.py", "--lr=0.1"),
            "/usr/bin/python3",
            "cd" * 32,
            "/home/somebody/digits",
            tuple((f"NAME{i}", f"value {i}") for i in range(8)),
        ),
        (("lr", 0.1), ("layers", 3), ("deep", True), ("optimizer", "adam")),
        "loss",
        Goal.MINIMIZE,
        7,
    ),
    RunTerms(identity="9f" * 16),
    (CheckpointSource("n2", "10.0.0.2:7400", b"ticket"),),
)


def microseconds(call: Callable[[], object]) -> float:
    """The shortest mean time of a call."""
    return min(timeit.repeat(call, number=REPEATS, repeat=ROUNDS)) / REPEATS * 1e6


def main() -> None:
    report = wire.event_to_proto(REPORT, POINTS).SerializeToString()
    launch = wire.command_to_proto(LAUNCH).SerializeToString()
    calls: dict[str, Callable[[], object]] = {
        "say a report": lambda: wire.event_to_proto(REPORT, POINTS, 7).SerializeToString(),
        "understand it": lambda: wire.event_from_proto(pb.AttachRequest.FromString(report)),
        "say a launch": lambda: wire.command_to_proto(LAUNCH).SerializeToString(),
        "understand one": lambda: wire.command_from_proto(
            pb.AttachResponse.FromString(launch), "n1"
        ),
    }
    for name, call in calls.items():
        print(f"{name:15}{microseconds(call):8.1f} us")


if __name__ == "__main__":
    main()
