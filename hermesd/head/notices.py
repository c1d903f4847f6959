"""What the author of a study should know of it, a line each.

Rule: pure; each is derived here alone, and said wherever the study is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hermesd.core.model import Phase, Study, UserId
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.refusal import nearest


def notices(state: State, study: Study) -> list[str]:
    """All there is to say of a study as it is now."""
    trials = [state.trials[trial] for trial in state.members[study.id]]
    return [words for words in (_silent_signal(study, trials),) if words]


def reported(trials: Iterable[Trial]) -> list[str]:
    """The metrics that any of the trials has reported, by name."""
    return sorted({name for trial in trials for name in trial.metrics})


def never_heard(state: State, study: Study, user: UserId) -> list[str]:
    """What to say of a study to come whose signal earlier trials of the user's with the very same
    program, which were trained to their ends, have not reported."""
    if not study.program_sha256:
        return []
    alike = [
        other.id
        for other in state.studies.values()
        if other.owner == user and other.program_sha256 == study.program_sha256
    ]
    trials = [state.trials[trial] for other in alike for trial in state.members[other]]
    names = reported(trial for trial in trials if trial.phase is Phase.COMPLETED)
    if not names or study.signal in names:
        return []
    whom = f"{', '.join(alike[:3])}{' …' if len(alike) > 3 else ''}"
    silent = f"signal {study.signal} was never reported by this program ({whom})"
    return [f"{silent}; {_instead(study, names)}"]


def _silent_signal(study: Study, trials: Sequence[Trial]) -> str:
    """That no trial has reported the signal, though other metrics were; else empty."""
    names = reported(trials)
    if not names or study.signal in names or any(trial.curve for trial in trials):
        return ""
    ended = any(trial.phase is Phase.COMPLETED for trial in trials)
    when = "was never reported" if ended else "was not reported so far"
    return f"signal {study.signal} {when}; {_instead(study, names)}"


def _instead(study: Study, names: Sequence[str]) -> str:
    """What was reported, and which of it may be meant."""
    near = nearest(study.signal, names)
    return f"reported: {', '.join(names)}{f' (did you mean {near}?)' if near else ''}"
