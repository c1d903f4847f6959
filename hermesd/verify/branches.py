"""The certificate of a stage tree: each trial as the tree trains it, compared with the same trial
alone.

The trials are run one after the other, as in the tree: a carrier writes checkpoints in passing
where others part from it, and these go on from there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hermesd.core.model import TrialSpec
from hermesd.core.tree import parting, path_of
from hermesd.refusal import FieldError, Refused
from hermesd.verify.arm import ArmFailed, Bench, arm
from hermesd.verify.certificate import ResumeVerdict, Said
from hermesd.verify.comparison import Difference, TrialOutput, common, first_difference


@dataclass(frozen=True, slots=True)
class Branch:
    """How a trial comes to be trained: from the checkpoint of another, or from its beginning."""

    #: Its number in the study.
    trial: int
    #: The number of the trial that it is carried by at first; 0: it carries itself.
    carrier: int = 0
    #: At which step it parts from that.
    step: int = 0
    #: Nothing of it is trained: it is the same as its carrier.
    is_same: bool = False


@dataclass(frozen=True, slots=True)
class BranchVerdict:
    """How a trial came out, compared with itself alone from where it parts."""

    branch: Branch
    verdict: ResumeVerdict
    #: How far it was run.
    steps: int = 0
    values: int = 0
    files: int = 0
    difference: Difference | None = None
    why: str = ""


def branches(specs: Sequence[TrialSpec]) -> list[Branch]:
    """Who carries whom of these trials, as in a study that trains them in their order."""
    found: list[Branch] = []
    for place, spec in enumerate(specs):
        best = Branch(spec.number)
        for other in specs[:place]:
            if not spec.root or other.root != spec.root:
                continue
            step = parting(path_of(other), path_of(spec))
            if step is None:
                best = Branch(spec.number, other.number, is_same=True)
                break
            if step > best.step:
                best = Branch(spec.number, other.number, step)
        found.append(best)
    return found


async def certify_tree(
    benches: Sequence[Bench],
    specs: Sequence[TrialSpec],
    steps: int | None,
    kept: Path,
    said: Said,
) -> list[BranchVerdict]:
    """Run and compare 2 * `steps` steps of each trial, without them those of a minute.

    `kept` is a folder for checkpoints. Raises ArmFailed when a program fails by itself, Refused if
    the trials have nothing in common.
    """
    tree = branches(specs)
    shared = {n for each in tree if each.carrier for n in (each.trial, each.carrier)}
    if not shared:
        expected = "trials of a study with `share: tree` that begin alike"
        raise Refused(FieldError("tree", str(len(specs)), expected))
    planned = None if steps is None else 2 * steps
    alone: dict[int, TrialOutput] = {}
    verdicts = []
    for branch, bench in zip(tree, benches, strict=True):
        number = branch.trial
        if number not in shared or branch.is_same:
            why = f"the same as trial {branch.carrier}" if branch.is_same else "shares nothing"
            verdicts.append(BranchVerdict(branch, ResumeVerdict.NOT_RUN, why=why))
            continue
        heard = _saying(said, f"trial {number} alone", planned or 0)
        alone[number] = await _run(bench, planned, heard)
        length = alone[number].step
        forks = sorted({each.step for each in tree if each.carrier == number and each.step})
        there = kept / f"{branch.carrier}-s{branch.step}"
        if branch.step and (branch.step >= length or not there.exists()):
            why = f"it parts from trial {branch.carrier} at step {branch.step}, past what was run"
            verdicts.append(BranchVerdict(branch, ResumeVerdict.NOT_RUN, length, why=why))
            continue
        # One more than there are: a program that ends by itself is not to be held before.
        last = length + 1 if alone[number].ended else length
        carried = replace(bench, work=replace(bench.work, forks=tuple(forks)))
        heard = _saying(said, f"trial {number} in the tree", length)
        begin = str(there) if branch.step else None
        try:
            ran = await _run(carried, last, heard, begin, kept / str(number))
        except ArmFailed as failed:
            verdicts.append(BranchVerdict(branch, ResumeVerdict.FAILED, length, why=str(failed)))
            continue
        verdicts.append(_judged(branch, alone[number], ran))
        if verdicts[-1].verdict is ResumeVerdict.DIFFERS:
            heard = _saying(said, f"trial {number} alone again", length)
            again = await _run(bench, last, heard)
            if (difference := first_difference(alone[number], again)) is not None:
                why = f"two undisturbed runs part: {difference}"
                verdicts[-1] = replace(verdicts[-1], verdict=ResumeVerdict.UNREPEATABLE, why=why)
    return verdicts


def _saying(said: Said, words: str, length: int) -> Callable[[int], None]:
    return lambda at: said(words, at, length)


async def _run(
    bench: Bench,
    steps: int | None,
    heard: Callable[[int], None],
    restore: str | None = None,
    keep: Path | None = None,
) -> TrialOutput:
    """One run; the checkpoints that it wrote for others are then at `keep` with their steps."""
    heard(0)
    async with arm(bench, heard) as run:
        if await run.start(steps, restore):
            await run.take_state()
        for step, path in run.forks.items() if keep is not None else ():
            shutil.copytree(path, f"{keep}-s{step}", dirs_exist_ok=True)
        return run.outcome


def _judged(branch: Branch, alone: TrialOutput, ran: TrialOutput) -> BranchVerdict:
    """What was trained in the tree is compared; before it parts, its carrier's is. Of the step at
    which it parts, either may have told a value: at the end of an epoch, what was validated."""
    there = {(step, name) for step, name in ran.values if step == branch.step}
    later = {
        key: value for key, value in alone.values.items() if key[0] > branch.step or key in there
    }
    own = replace(alone, values=later)
    difference = first_difference(own, ran)
    verdict = ResumeVerdict.EQUAL if difference is None else ResumeVerdict.DIFFERS
    files = len(ran.state or ()) if alone.state is not None else 0
    why = "" if difference is None else f"{alone.level}: {alone.reason}"
    return BranchVerdict(branch, verdict, alone.step, common(own, ran), files, difference, why)
