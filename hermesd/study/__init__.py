"""Expands a submitted study file into trials: its sections, search space and command lines.

Pure, apart from validation by pydantic. No daemon may enter.
"""

from hermesd.study.addition import Addition, addition
from hermesd.study.change import StudyChange, change
from hermesd.study.extension import extension
from hermesd.study.fork import fork
from hermesd.study.submission import (
    Draft,
    Submission,
    draft,
    fingerprint,
    proposed_id,
    spec_of,
    trial_seed,
)

__all__ = [
    "Addition",
    "Draft",
    "StudyChange",
    "Submission",
    "addition",
    "change",
    "draft",
    "extension",
    "fingerprint",
    "fork",
    "proposed_id",
    "spec_of",
    "trial_seed",
]
