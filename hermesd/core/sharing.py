"""How users share the devices: what each has used lately, and what each may have.

Use is counted in device seconds, each of which counts half as much after a half-life (J. Kay and P.
Lauder, A Fair Share Scheduler, CACM 1988). Everything is in closed form, so nothing is computed for
a user between two changes. The terms are set by an event, so a replay counts as it was counted at
the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hermesd.core.model import Time

HALF_LIFE_SECONDS = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What a user may have: a part of the devices by weight, and no more than the quotas say."""

    weight: float = 1.0
    max_devices: int | None = None
    max_unfinished_trials: int | None = None
    max_studies: int | None = None


USUAL = Terms()


@dataclass(frozen=True, slots=True)
class Account:
    """What a user has used of the devices."""

    #: Used up to a time, decayed.
    decayed_seconds: float = 0.0
    #: That time.
    at: Time = 0.0
    #: In use since then.
    devices: int = 0

    def used(self, now: Time, half_life_seconds: float) -> float:
        """Decayed device seconds by now; so many devices in use for ever come to `settled`."""
        if now <= self.at:
            return self.decayed_seconds
        left = math.exp2((self.at - now) / half_life_seconds)
        return self.decayed_seconds * left + settled(self.devices, half_life_seconds) * (1.0 - left)

    def holding(self, devices: int, now: Time, half_life_seconds: float) -> Account:
        """The account from now on, with so many devices in use."""
        return Account(self.used(now, half_life_seconds), max(now, self.at), devices)


def settled(devices: int, half_life_seconds: float) -> float:
    """The decayed device seconds that so many devices, always in use, come to."""
    return devices * half_life_seconds / math.log(2.0)
