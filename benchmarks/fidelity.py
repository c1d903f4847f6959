"""Is the simulator right? A study is recorded under fifo, other policies are predicted and run.

The 16 trials of examples/digits share CPU slots. From the export of the run under fifo the
simulator foretells when each trial is finished under the other policies; a real run of each says
how far off that is, and a second simulation, from that run's own export, how much of it is the
simulator's and how much comes of a machine that was not equally fast both times (`speed` is how
fast it was in a run beside what it was in the record).
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
from hermesd.simulate.contenders import FIFO, Contender, contenders
from hermesd.simulate.drive import Drive, Outcome
from hermesd.simulate.orders import ALL, draw, goal_of
from hermesd.simulate.reading import read

EXAMPLE = Path(__file__).parent.parent / "examples" / "digits"
# Quanta in proportion to trials of eight seconds.
POLICIES = "round_robin:quantum_seconds=2,hermes:quantum_seconds=1,growth_seconds=1,asha,best_first"
COLUMNS = [
    "policy", "foretold from", "error_p50", "error_max", "tau", "makespan_s", "foretold_s",
    "switches", "foretold_switches", "overhead", "foretold_overhead", "speed", "cores", "load",
]  # fmt: skip


def wanted(contender: Contender, slots: int, epochs: int) -> Wanted:
    """The example's study under a policy."""
    spec = yaml.safe_load((EXAMPLE / "study.yaml").read_text())
    spec["parameters"]["epochs"] = {"value": epochs}
    name = f"{contender.policy.name}-{slots}-{epochs}"
    return Wanted(name, spec, EXAMPLE, contender, slots)


def foretold(export: Path, contender: Contender, slots: int) -> Outcome:
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
    run: Lived, record: Lived, label: str, contender: Contender, slots: int
) -> list[str | float]:
    """A row: a real run beside what was foretold of it from a record."""
    outcome, happened = foretold(record.export, contender, slots), run.outcome
    real = happened.finished
    errors = [abs(a - b) / b for a, b in zip(outcome.finished, real, strict=True)]
    held = sum(stay.freed - stay.taken for stay in outcome.stays)
    return [
        contender.label, label, median(errors), max(errors), kendall_tau(outcome.finished, real),
        max(real), max(outcome.finished), happened.switches, outcome.switches, run.overhead,
        outcome.overhead_seconds / held, record.busy / run.busy, run.cores, run.load,
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default=POLICIES, help="as `hermesd simulate` takes them")
    parser.add_argument("--slots", type=int, default=2, help="CPU slots (2)")
    parser.add_argument("--epochs", type=int, default=12, help="epochs of a trial (12)")
    parser.add_argument("--runs", type=int, default=99, help="at most so many runs now")
    options = parser.parse_args()
    where = folder("fidelity")
    runs: dict[Contender, Lived] = {}
    everyone = (FIFO, *contenders(options.policies))
    for contender in everyone:
        study = wanted(contender, options.slots, options.epochs)
        run = kept(study, where)
        if run is None and options.runs > 0:
            run = live(study, where)
            options.runs -= 1
        if run is not None:
            runs[contender] = run
    rows = [
        compared(run, record, label, contender, options.slots)
        for contender, run in runs.items()
        for label, record in (("fifo's run", runs[FIFO]), ("its own run", run))
        if contender != FIFO or label == "its own run"
    ]
    publish("fidelity", COLUMNS, rows)
    left = [contender.label for contender in everyone if contender not in runs]
    if left:
        print(f"not run yet: {', '.join(left)}; run this again", file=sys.stderr)


if __name__ == "__main__":
    main()
