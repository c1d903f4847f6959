"""Six jobs of elastic width on CPU slots, with a head, a node and processes of their own.

The jobs compute nothing: of a planted speed by width, a step sleeps for its share of the batch and
for the exchange, and waits for the other processes by sockets. So slots may be more than cores, and
what is measured is the product: who gets how many slots when, what a resize costs, and whether the
speeds that it learns are those that were planted.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from benchmarks.live import finished, own_head
from benchmarks.orphans import scratch
from benchmarks.report import quantile, write_whole
from hermesd.sim.exports import open_export
from hermesd.sim.replay import happened

SLOTS = 8
STEPS = 600
# What one process computes for a global batch, in seconds; and what the exchange takes for each.
COMPUTE, EXCHANGE = (0.1, 0.14, 0.18, 0.22, 0.26, 0.3), 0.004
MOST = 4
ARMS = {
    "1": (1, {"name": "fifo"}),
    "2": (2, {"name": "fifo"}),
    f"1 to {MOST}, fifo": ({"min": 1, "max": MOST}, {"name": "fifo"}),
    f"1 to {MOST}, optimus": ({"min": 1, "max": MOST}, {"name": "optimus"}),
}
COLUMNS = [
    "devices", "jct_s", "makespan_s", "jct_x", "makespan_x", "resizes", "overhead_s",
    "widths", "speed_error_%",
]  # fmt: skip

PROGRAM = """
import json, os, socket, time
import trainer_shim

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
address = os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0"))
given = json.loads(os.environ["HERMES_PARAMETERS"])
compute, exchange, steps = given["compute"], given["exchange"], given["steps"]
if rank == 0 and world > 1:
    listener = socket.create_server(address)
    others = [listener.accept()[0] for _ in range(world - 1)]
elif rank:
    while True:
        try:
            others = [socket.create_connection(address)]
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
else:
    others = []

def together():
    for turn in (0, 1):
        for other in others:
            other.send(b".") if (rank == 0) == turn else other.recv(1)

def save(folder):
    open(os.path.join(folder, "step"), "w").close()

trial = trainer_shim.attach()
for step in range(trial.resume.step + 1 if trial.resume else 1, steps + 1):
    time.sleep(compute / world + exchange * world)
    together()
    trial.report(step, loss=1.0 / (0.01 * step + 0.5) + 0.2, save=save)
"""


def speed(compute: float, width: int) -> float:
    """Steps a second, as planted."""
    return 1.0 / (compute / width + EXCHANGE * width)


class Took(NamedTuple):
    """What came of an arm."""

    completion_seconds: float
    makespan_seconds: float
    resizes: int
    overhead_seconds: float
    widths: tuple[int, ...]
    #: How far the speeds that the head knows are from the planted ones, at most.
    speed_error: float


def lived(devices: object, policy: object) -> Took:
    """All jobs of an arm, submitted at once."""
    study = {
        "name": "elastic",
        "program": "train.py",
        "parameters": {
            "compute": {"values": list(COMPUTE)},
            "exchange": {"value": EXCHANGE},
            "steps": {"value": STEPS},
        },
        "resources": {"devices": devices, "processes": "ranks"},
        "schedule": {"policy": policy},
        "stop": {"max_steps": STEPS},
    }
    with scratch() as folder, own_head(folder, SLOTS) as hermes:
        program, export = folder / "program", folder / "export.jsonl"
        program.mkdir()
        (program / "train.py").write_text(PROGRAM)
        done = finished(hermes, study, program)
        write_whole(export, b"".join(hermes.export(done)))
        outcome = happened(open_export(export))
        trials = hermes.study(done).trials
    errors, seen = [0.0], set()
    for trial, compute in zip(sorted(trials, key=lambda each: each.number), COMPUTE, strict=True):
        for each in trial.widths:
            if each.steps_per_second:
                seen.add(each.devices)
                errors.append(abs(each.steps_per_second / speed(compute, each.devices) - 1))
    return Took(
        fmean(outcome.finished), max(outcome.finished), sum(trial.resizes for trial in trials),
        outcome.overhead_seconds, tuple(sorted(seen)), quantile(errors, 1.0),
    )  # fmt: skip


def compared() -> Sequence[Sequence[str | float]]:
    """A row for each arm, beside how many times as long as the first it took."""
    took = {name: lived(*arm) for name, arm in ARMS.items()}
    first = next(iter(took.values()))
    return [
        [
            name, each.completion_seconds, each.makespan_seconds,
            each.completion_seconds / first.completion_seconds,
            each.makespan_seconds / first.makespan_seconds, each.resizes, each.overhead_seconds,
            "/".join(map(str, each.widths)) or "-", 100 * each.speed_error,
        ]
        for name, each in took.items()
    ]  # fmt: skip
