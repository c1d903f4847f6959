"""What a study wants done about failures beside what is done anyway."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class OnThirdFailure(StrEnum):
    """What the last failure that a trial may have ends."""

    TRIAL = "trial"
    STUDY = "study"


class OnSameFailure(StrEnum):
    """What it ends when the first three trials meet the same failure before their first step."""

    STUDY = "study"
    GO_ON = "go_on"


class OnStall(StrEnum):
    """What is done about a program that comes to no further step: it is only told, or ended and
    tried again as after a failure, or has failed for good."""

    TELL = "tell"
    RETRY = "retry"
    FAIL = "fail"


class RetryAction(StrEnum):
    """What a rule does about a failure: no run of the trial on that device again, none on a device
    of no more memory, no further run at all, or no run of any trial of the study on that node."""

    NOT_HERE = "not_here"
    MORE_MEMORY = "more_memory"
    NO_RETRY = "no_retry"
    EXCLUDE_NODE = "exclude_node"


@dataclass(frozen=True, slots=True)
class RetryRule:
    """An action for the errors that contain `match`: its pieces between asterisks, in this order,
    whatever their letters' case. Nothing in it makes it slow on a long error."""

    match: str
    do: RetryAction

    def fits(self, error: str) -> bool:
        """Whether the error's text is one of those."""
        text, position = error.lower(), 0
        for piece in self.match.lower().split("*"):
            found = text.find(piece, position)
            if found < 0:
                return False
            position = found + len(piece)
        return True


# How frameworks say that a device's memory is full: CUDA and PyTorch, TensorFlow, XLA, ROCm.
OUT_OF_DEVICE_MEMORY = tuple(
    RetryRule(words, RetryAction.MORE_MEMORY)
    for words in (
        "CUDA*out of memory",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "HIP out of memory",
        "OOM when allocating",
        "RESOURCE_EXHAUSTED*out of memory",
    )
)


def ruled(rules: Iterable[RetryRule], error: str) -> RetryAction | None:
    """What the first rule that fits wants done."""
    return next((rule.do for rule in rules if rule.fits(error)), None)
