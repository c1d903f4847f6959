"""How fast trials are on how many devices, if those of a study may have more or fewer.

Measured speeds count, those of the trial itself before those of its study. Other speeds are
predicted: a trial is expected to gain as much as when it was last given more devices, and for the
first step it is assumed that twice the devices are twice as fast. So each width is tried once
before it is believed to be of no use, and no width is more than twice the last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import median

from hermesd.core.fast_replace import replace
from hermesd.core.model import Checkpoint, Study, Tier
from hermesd.core.policy import Facts
from hermesd.core.speeds import batch, steps_ahead
from hermesd.core.trial import Run, Trial

# The newest report weighs this much in what is typical of a study.
WEIGHT = 0.2
# Of the speed that is usual, a straggler has less than this part.
STRAGGLES = 0.5
# The frameworks whose checkpoints are of any number of devices: what a program writes and reads
# itself, DistributedDataParallel and MultiWorkerMirroredStrategy. Other adapters put back the
# program's rank and its share of the data, or cannot tell whether what is trained is replicated.
# Which one it is is known once a trial has begun, on as few devices as it may.
OF_ANY_WIDTH = ("explicit", "torch-ddp", "tensorflow-multiworker")


def is_of_any_width(trial: Trial) -> bool:
    """Whether its checkpoints are of any number of devices, as far as is known by now."""
    return not trial.keeps_width and trial.framework.partition(" ")[0] in OF_ANY_WIDTH


def as_told(trial: Trial, study: Study) -> Checkpoint | None:
    """Its checkpoint, without a number of devices if it may be used on any: no trial of the study
    can have so many as it was made on, or so many were waited for in vain."""
    if trial.checkpoint is None:
        return None
    own = study.as_own(trial.checkpoint)
    return replace(own, devices=0) if own.id == trial.freed else own


def pinned(trial: Trial, study: Study) -> int:
    """On how many devices its checkpoint alone can be used; 0: on any number, as far as is known.

    That is so of an image of processes, of a checkpoint that could not be used on another number,
    and of one that nobody has tried so: of a framework whose checkpoints are not of any number,
    with more devices than its study asks for, or than it will do with, for its memory.
    """
    saved = as_told(trial, study)
    if saved is None:
        return 0
    has_grown = trial.has_outgrown or saved.devices > study.devices
    untried = has_grown and not is_of_any_width(trial)
    width = saved.devices if trial.keeps_width or untried else 0
    return width or (trial.width if saved.image_of else 0)


def wider(trial: Trial, study: Study, width: int) -> int:
    """The fewest devices above `width` that the trial may continue on, each with the same part of a
    batch, as far as one of the parameters is the batch's size; 0 if it may have no more."""
    known = trial.checkpoint
    if known is not None and known.id != trial.freed and not is_of_any_width(trial):
        before = study.as_own(known).devices or trial.width
        return before if before > width else 0
    size = batch(trial)
    widths = range(max(width + 1, study.devices), study.widest + 1)
    return next((each for each in widths if size == 1.0 or size % each == 0), 0)


def launched_on(trial: Trial, width: int, kind: str) -> Trial:
    """The trial on so many devices of a kind. What its iterations took on another number of them
    says nothing of those to come."""
    if trial.width in (0, width):
        return replace(trial, width=width, aim=0)
    known = trial.width_seconds.get(width)
    return replace(
        trial,
        width=width,
        aim=0,
        resizes=trial.resizes + 1,
        step_seconds={kind: known} if known else {},
        paces={},
    )


def timed(trial: Trial, kind: str) -> Trial:
    """The trial after a report from devices of a kind."""
    seconds = trial.step_seconds.get(kind)
    if seconds is None or trial.width_seconds.get(trial.width) == seconds:
        return trial
    return replace(trial, width_seconds={**trial.width_seconds, trial.width: seconds})


def learned(facts: Facts, trial: Trial, fewest: int) -> Facts:
    """What is typical of a study after a report of one of its trials."""
    few, here = trial.width_seconds.get(fewest), trial.width_seconds.get(trial.width)
    if trial.width == fewest or not few or not here:
        return facts
    gain = facts.gains.get(trial.width, few / here)
    gain += WEIGHT * (few / here - gain)
    return replace(facts, gains={**facts.gains, trial.width: gain})


def speed_of(
    trial: Trial, gains: Mapping[int, float], fewest: int
) -> Callable[[int], float] | None:
    """Steps a second by the number of devices; None while the trial was never measured.

    Args:
        gains: how many times as fast trials of the study are on so many devices as on the fewest.
    """
    own, known = trial.width_seconds, {**gains, fewest: 1.0}
    if not own:
        return None

    def gain(width: int) -> float:
        if width in known:
            return known[width]
        below = sorted(each for each in known if each < width)
        widest, exponent = below[-1], 1.0
        if len(below) > 1:
            grown = math.log(known[widest] / known[below[-2]]) / math.log(widest / below[-2])
            exponent = min(max(grown, 0.0), 1.0)
        return float(known[widest] * (width / widest) ** exponent)

    def speed(width: int) -> float:
        if width in own:
            return 1.0 / own[width]
        near = min(own, key=lambda each: (abs(math.log(each / width)), each))
        return gain(width) / gain(near) / own[near]

    return speed


def tried_up_to(trial: Trial, gains: Mapping[int, float], fewest: int) -> int:
    """The most devices on which it, or another trial of its study, was measured."""
    return max(fewest, *trial.width_seconds, *gains)


def narrowed(trial: Trial, fewest: int, width: int) -> int:
    """So many devices, or as many fewer as it takes for each to have the same part of a batch, as
    far as one of the parameters is the batch's size."""
    size = batch(trial)
    if size == 1.0:
        return width
    return next((each for each in range(width, fewest, -1) if size % each == 0), fewest)


def remaining_steps(trial: Trial, study: Study) -> int:
    """How many steps it has ahead: as planned, or as many as behind."""
    limits = [each for each in (trial.planned_steps, study.stop.max_steps) if each]
    return max(min(limits) - trial.step, 0) if limits else steps_ahead(trial)


def straggles(trial: Trial, kind: str, runs: Iterable[Trial]) -> tuple[float, float] | None:
    """Its seconds an iteration on its devices, and the usual ones, if it does less than half of the
    usual steps there: a straggler of Optimus (EuroSys 2018), below half the median speed.

    Args:
        kind: that of its devices.
        runs: the trials that are compared, itself among them.
    """
    here, *elsewhere = _pace(trial, kind)
    # Where it was itself on others, that says more than its like: these may have more to do.
    seen = elsewhere or [_pace(each, kind)[0] for each in runs]
    usual = median(1.0 / seconds for seconds in seen)
    return (here, 1.0 / usual) if 1.0 / here < STRAGGLES * usual else None


def is_paced(trial: Trial, kind: str) -> bool:
    """Whether the speed of a running trial was measured on the devices that it has."""
    known = trial.paces.get(kind)
    return bool(known and trial.run and known[0].device == trial.run.devices[0])


def _pace(trial: Trial, kind: str) -> list[float]:
    """Seconds of an iteration on the devices that it was on last, and on those before."""
    return [each.seconds for each in trial.paces[kind]]


def resize_seconds(trial: Trial, facts: Facts) -> float:
    """What another number of devices, or others, cost the trial: to be written down, and to begin
    from that; as measured, or as its start took."""
    measured = trial.costs.get(Tier.CHECKPOINT)
    suspend = measured.suspend_seconds if measured else facts.suspend_seconds
    resume = (measured.resume_seconds if measured else 0.0) or facts.restore_seconds
    return suspend + (resume or trial.longest_start_seconds)


def tier_of(study: Study, run: Run) -> Tier | None:
    """How a run is kept by default. What is parked can only go on as wide as it is: one that has
    more devices than it needs is written down."""
    return Tier.CHECKPOINT if study.elastic and len(run.devices) > study.devices else study.tier
