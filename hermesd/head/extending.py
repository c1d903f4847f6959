"""Whether trials can go on from what they have come to: what is known of it before they are asked.

Rule: a trial that would only be run for nothing, or from its beginning, is not extended at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from hermesd.core.model import Phase, StopRule, Study
from hermesd.core.trial import Trial
from hermesd.head.refusals import NotNow
from hermesd.refusal import FieldError, Refused, shown


def extensible(study: Study, trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Those that can go on, all but the ones whose loss was not finite.

    Raises:
        NotNow: a trial is not finished, has nothing to go on from, or none is left.
    """
    if busy := [trial for trial in trials if not trial.phase.final]:
        raise NotNow(
            f"{len(busy)} of {len(trials)} trials are not finished ({busy[0].id} is"
            f" {busy[0].phase}): wait for them, or name those that are"
        )
    if study.stop.on_nan:
        trials = [trial for trial in trials if not trial.not_finite]
    if not trials:
        raise NotNow("the losses of these trials are not finite (stop.on_nan)")
    if endless := [trial for trial in trials if _has_no_end(trial)]:
        first, others = endless[0], len(trials) - len(endless)
        raise NotNow(
            f"{len(endless)} of {len(trials)} trials have no checkpoint to go on from ({first.id}"
            f" is {first.fidelity}: {first.fidelity_reason or 'nothing more is known'})"
            + (": name the others" if others else "; to run them again: study clone")
        )
    return tuple(trials)


def _has_no_end(trial: Trial) -> bool:
    """Whether it has a result and nothing from which that could go on."""
    return trial.phase in (Phase.COMPLETED, Phase.STOPPED) and trial.checkpoint is None


def see_that_it_raises(rule: StopRule, trials: Sequence[Trial]) -> None:
    """See that no trial would be over at once by the stop rule. Raises Refused."""
    furthest = max(trials, key=lambda trial: trial.step)
    longest = max(trials, key=lambda trial: trial.use.busy_seconds)
    errors = []
    if rule.max_steps is not None and furthest.step >= rule.max_steps:
        expected = f"more than {furthest.step}, the steps that {furthest.id} has done"
        errors.append(FieldError("stop.max_steps", shown(rule.max_steps), expected))
    seconds = longest.use.busy_seconds
    if rule.max_seconds is not None and seconds >= rule.max_seconds:
        expected = f"more than {seconds:.3g}, the seconds that {longest.id} has trained"
        errors.append(FieldError("stop.max_seconds", shown(rule.max_seconds), expected))
    if errors:
        raise Refused(*errors)
