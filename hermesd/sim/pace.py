"""What the simulated hosts take for what, in seconds and bytes, and what they are made to do."""

from __future__ import annotations

from dataclasses import dataclass

from hermesd.core.model import Tier

REPORT_SECONDS = 1.0
START_SECONDS = 0.6
RESUME_SECONDS = 0.02
PARK_SECONDS = 0.01
SAVE_SECONDS = 0.4
COPY_SECONDS = 0.7
KILL_SECONDS = 0.05
PARKED_BYTES = 100


@dataclass(slots=True, eq=False)
class Goal:
    """A suspension under way."""

    tier: Tier
    cause: str
    name: str
