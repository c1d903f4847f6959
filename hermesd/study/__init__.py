"""Expands a submitted study file into trials: its sections, search space and command lines.

Pure, apart from validation by pydantic. No daemon may enter.
"""

from hermesd.study.addition import Addition, addition, axes_of, drawn, proposed
from hermesd.study.change import StudyChange, change, with_values
from hermesd.study.exploring import explored
from hermesd.study.extension import extension
from hermesd.study.fork import fork
from hermesd.study.submission import (
    TRIALS_LIMIT,
    Draft,
    Submission,
    draft,
    draft_in_pieces,
    fingerprint,
    proposed_id,
    spec_of,
    trial_seed,
)

__all__ = [
    "TRIALS_LIMIT",
    "Addition",
    "Draft",
    "StudyChange",
    "Submission",
    "addition",
    "axes_of",
    "change",
    "draft",
    "draft_in_pieces",
    "drawn",
    "explored",
    "extension",
    "fingerprint",
    "fork",
    "proposed",
    "proposed_id",
    "spec_of",
    "trial_seed",
    "with_values",
]
