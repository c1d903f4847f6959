"""The runs of a certificate and its verdicts: twice undisturbed, then suspended in each tier.

Differences between two undisturbed runs are not the fault of a resume: such a program cannot repeat
itself, and is never called exact. A program that cannot be rebuilt is only parked, and the
certificate says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hermesd.refusal import FieldError, Refused
from hermesd.verify.arm import Arm, ArmFailed, Bench, arm
from hermesd.verify.comparison import (
    Difference,
    TrialOutput,
    common,
    first_difference,
    first_shown,
)

TIERS = ("park", "checkpoint")
_PASSES = 3  # so many first ones, and the last, are suspended in


class ResumeVerdict(StrEnum):
    """How a tier came out."""

    EQUAL = "equal"
    DIFFERS = "differs"
    UNREPEATABLE = "cannot repeat itself"
    NOT_RUN = "not run"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TierVerdict:
    """One tier: where the run was suspended, and where it parts from the undisturbed one."""

    tier: str
    verdict: ResumeVerdict
    suspended_at: tuple[int, ...] = ()
    values: int = 0
    files: int = 0
    difference: Difference | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    """All tiers of one trial."""

    #: How many were run.
    steps: int
    fidelity: str
    reason: str
    tiers: tuple[TierVerdict, ...]

    @property
    def is_equal(self) -> bool | None:
        """Whether every tier came out equal; None where one could not be tried: nobody knows."""
        verdicts = {one.verdict for one in self.tiers}
        if verdicts - {ResumeVerdict.EQUAL, ResumeVerdict.NOT_RUN}:
            return False
        return None if ResumeVerdict.NOT_RUN in verdicts else True


Said = Callable[[str, int, int], None]  # which run, how many steps are done, of how many


async def certify(
    bench: Bench, steps: int | None, suspend_at: Sequence[int] | None, said: Said
) -> Certificate:
    """Run and compare 2 * `steps` steps, without them those of a minute; suspends are after the
    steps `suspend_at`, by default the first, the middle and the last but one, and the first of
    passes over the data.

    Raises ArmFailed when the program fails by itself, Refused for suspends past its end.
    """
    planned = None if steps is None else 2 * steps
    first = await _undisturbed(bench, planned, lambda at: said("undisturbed", at, planned or 0))
    if first.step == 0:
        return _unjudged(first, "the program shows no iterations, so there is nothing to compare")
    length = first.step
    chosen = _suspends(length, first.passes, suspend_at)
    # One more than there are: a program that ends by itself is not to be held before.
    last = length + 1 if first.ended else length
    second = await _undisturbed(bench, last, lambda at: said("undisturbed again", at, length))
    difference = first_difference(first, second)
    if difference is not None:
        why = f"two undisturbed runs part: {difference}".replace(" suspended", " the second time")
        tiers = [
            TierVerdict(tier, ResumeVerdict.UNREPEATABLE, (), 0, 0, difference, why)
            for tier in TIERS
        ]
        # What the agent saw gave no sign of it.
        level = "exact-if-deterministic" if first.level == "exact" else first.level
        reason = f"{first.reason}; two undisturbed runs of it part"
        return Certificate(length, level, reason, tuple(tiers))
    tiers = []
    for tier in TIERS:
        if tier == "checkpoint" and first.level == "park-only":
            tiers.append(TierVerdict(tier, ResumeVerdict.NOT_RUN, why=f"park-only: {first.reason}"))
            continue
        words = f"suspended by {tier}"
        heard = _saying(said, words, length)
        tiers.append(await _judged(bench, tier, chosen, (first, second), heard))
    return Certificate(length, first.level, first.reason, tuple(tiers))


def _saying(said: Said, words: str, length: int) -> Callable[[int], None]:
    return lambda at: said(words, at, length)


def _unjudged(outcome: TrialOutput, why: str) -> Certificate:
    tiers = tuple(TierVerdict(tier, ResumeVerdict.NOT_RUN, why=why) for tier in TIERS)
    return Certificate(outcome.step, outcome.level, outcome.reason, tiers)


def _suspends(length: int, passes: list[int], asked: Sequence[int] | None) -> tuple[int, ...]:
    if asked is None:
        # What lies between two passes was done by the first boundary of the second.
        begun = [step + 1 for step in passes if step + 1 < length]
        ends = {*begun[:_PASSES], *begun[-1:]}
        return tuple(sorted({1, (length + 1) // 2, max(1, length - 1)} | ends))
    beyond = [step for step in asked if not 1 <= step <= length]
    if beyond:
        expected = f"steps from 1 to {length}, after which the program is compared"
        raise Refused(FieldError("suspend_at", str(beyond[0]), expected))
    return tuple(sorted(set(asked)))


async def _undisturbed(
    bench: Bench, steps: int | None, heard: Callable[[int], None]
) -> TrialOutput:
    heard(0)
    async with arm(bench, heard) as run:
        if await run.start(steps):
            await run.take_state()
        run.look()
        return run.outcome


async def _judged(
    bench: Bench,
    tier: str,
    suspend_at: tuple[int, ...],
    undisturbed_twice: tuple[TrialOutput, TrialOutput],
    heard: Callable[[int], None],
) -> TierVerdict:
    undisturbed, again = undisturbed_twice
    heard(0)
    try:
        async with arm(bench, heard) as run:
            await _suspended(run, tier, suspend_at, undisturbed)
            run.look()
    except ArmFailed as failed:
        return TierVerdict(tier, ResumeVerdict.FAILED, suspend_at, why=str(failed))
    outcome = run.outcome
    difference = first_difference(undisturbed, outcome)
    difference = difference or first_shown(undisturbed, again, outcome)
    values = common(undisturbed, outcome)
    files = len(outcome.state or ()) if undisturbed.state is not None else 0
    if difference is None:
        return TierVerdict(tier, ResumeVerdict.EQUAL, suspend_at, values, files)
    why = f"{undisturbed.level}: {undisturbed.reason}"
    return TierVerdict(tier, ResumeVerdict.DIFFERS, suspend_at, values, files, difference, why)


async def _suspended(
    run: Arm, tier: str, suspend_at: tuple[int, ...], undisturbed: TrialOutput
) -> None:
    """As long as the undisturbed run, which was held at its last step unless it ended there."""
    # One more than there are: a program that ends by itself is not to be held before.
    last = undisturbed.step + 1 if undisturbed.ended else undisturbed.step
    goes_on = await run.start(suspend_at[0])
    for following in (*suspend_at[1:], last):
        if not goes_on:
            return
        if following <= run.outcome.step and not undisturbed.ended:
            continue  # a step of several at once has passed it
        if tier == "park":
            goes_on = await run.resume(following)
        else:
            goes_on = await run.start(following, await run.checkpoint())
    if goes_on:
        await run.take_state()
