"""Is the simulator right? A study is recorded under fifo, other policies are predicted and run.

The 16 trials of examples/digits share CPU slots. From the export of the run under fifo the
simulator foretells when each trial is finished under the other policies; a real run of each says
how far off that is, and a second simulation, from that run's own export, how much of it is the
simulator's and how much comes of a machine that was not equally fast both times (`speed` is how
fast it was in a run beside what it was in the record). A second real run of the same policy, in the
place of the simulation, says how far off a run is from itself.
`python -m benchmarks.fidelity [--policies LIST] [--slots N] [--epochs N] [--runs N]`; runs that
were made before are not made again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import yaml

from benchmarks.live import Lived, Wanted, folder, kept, live
from benchmarks.report import median, publish
from hermesd.sim.compare import read
from hermesd.sim.contenders import FIFO, Contender, contenders
from hermesd.sim.drive import Drive, SimulatedOutcome
from hermesd.sim.orders import ALL, draw, goal_of

EXAMPLE = Path(__file__).parent.parent / "examples" / "digits"
# Quanta in proportion to trials of eight seconds.
POLICIES = "round_robin:quantum_seconds=2,hermes:quantum_seconds=1,growth_seconds=1,asha,best_first"
COLUMNS = [
    "policy", "foretold from", "error_p50", "error_max", "tau", "makespan_s", "foretold_s",
    "switches", "foretold_switches", "overhead", "foretold_overhead", "speed", "cores", "load",
]  # fmt: skip


def wanted(contender: Contender, slots: int, epochs: int, once_more: bool = False) -> Wanted:
    """The example's study under a policy, for its first run or for its second."""
    spec = yaml.safe_load((EXAMPLE / "study.yaml").read_text())
    spec["parameters"]["epochs"] = {"value": epochs}
    name = f"{contender.policy.name}-{slots}-{epochs}{'-again' if once_more else ''}"
    return Wanted(name, spec, EXAMPLE, contender, slots)


def foretold(export: Path, contender: Contender, slots: int) -> SimulatedOutcome:
    """What the simulator makes of an exported study under a policy, in the order submitted."""
    curves = read(export)
    order = draw(curves, goal_of(curves), ALL, len(curves.jobs), 0, 0)
    return Drive(order, slots, contender.policy, contender.placement).run()


def kendall_tau(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Of all pairs, the share in the same order less the share in the opposite one (tau a)."""
    agreed = 0
    pairs = list(combinations(zip(ours, theirs, strict=True), 2))
    for (a, x), (b, y) in pairs:
        agreed += ((a > b) - (a < b)) * ((x > y) - (x < y))
    return agreed / len(pairs)


def compared(
    run: Lived,
    other: SimulatedOutcome,
    label: str,
    contender: Contender,
    overhead: float,
    speed: float,
) -> list[str | float]:
    """A row: a real run beside what was foretold of it, or what happened another time."""
    real = run.outcome.finished
    errors = [abs(a - b) / b for a, b in zip(other.finished, real, strict=True)]
    return [
        contender.label, label, median(errors), max(errors), kendall_tau(other.finished, real),
        max(real), max(other.finished), run.outcome.switches, other.switches, run.overhead,
        overhead, speed, run.cores, run.load,
    ]  # fmt: skip


def simulated(
    run: Lived, record: Lived, label: str, contender: Contender, slots: int
) -> list[str | float]:
    """A row: a real run beside what was foretold of it from a record."""
    outcome = foretold(record.export, contender, slots)
    held = sum(stay.freed - stay.taken for stay in outcome.stays)
    overhead, speed = outcome.overhead_seconds / held, record.busy / run.busy
    return compared(run, outcome, label, contender, overhead, speed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default=POLICIES, help="as `hermesd simulate` takes them")
    parser.add_argument("--slots", type=int, default=2, help="CPU slots (2)")
    parser.add_argument("--epochs", type=int, default=12, help="epochs of a trial (12)")
    parser.add_argument("--runs", type=int, default=99, help="at most so many runs now")
    options = parser.parse_args()
    where = folder("fidelity")
    runs: dict[tuple[Contender, bool], Lived] = {}
    everyone = (FIFO, *contenders(options.policies))
    for once_more in (False, True):
        for contender in everyone:
            study = wanted(contender, options.slots, options.epochs, once_more)
            run = kept(study, where)
            if run is None and options.runs > 0:
                run = live(study, where)
                options.runs -= 1
            if run is not None:
                runs[contender, once_more] = run
    rows = []
    for contender in everyone:
        if (run := runs.get((contender, False))) is None:
            continue
        if contender != FIFO:
            rows.append(simulated(run, runs[FIFO, False], "fifo's run", contender, options.slots))
        rows.append(simulated(run, run, "its own run", contender, options.slots))
        if (other := runs.get((contender, True))) is not None:
            label, speed = "a second run", other.busy / run.busy
            rows.append(compared(run, other.outcome, label, contender, other.overhead, speed))
    publish("fidelity", COLUMNS, rows)
    left = 2 * len(everyone) - len(runs)
    if left:
        print(f"{left} runs are left; run this again", file=sys.stderr)


if __name__ == "__main__":
    main()
