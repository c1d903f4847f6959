"""From a submitted study file to trials: sections, space, command lines. Pure but for pydantic."""

from hermesd.study.extension import extension
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
    "Draft",
    "Submission",
    "draft",
    "extension",
    "fingerprint",
    "proposed_id",
    "spec_of",
    "trial_seed",
]
