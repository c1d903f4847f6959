"""What may go wrong, how often, and the one source of chance."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Faults:
    """Mean seconds between faults of each kind (for the whole pool), and shares of messages.

    Infinite means never.
    """

    head_crash: float = 90.0
    daemon_crash: float = 60.0
    host_crash: float = 60.0
    program_crash: float = 60.0
    stall: float = 80.0
    reboot: float = 200.0
    death: float = 250.0
    wipe: float = 250.0
    cut: float = 40.0
    partition: float = 70.0
    corruption: float = 60.0
    person: float = 30.0
    operator: float = 40.0
    not_started: float = 0.02
    doubled: float = 0.05
    max_latency_seconds: float = 0.3


NEVER = float("inf")
NONE = Faults(
    head_crash=NEVER,
    daemon_crash=NEVER,
    host_crash=NEVER,
    program_crash=NEVER,
    stall=NEVER,
    reboot=NEVER,
    death=NEVER,
    wipe=NEVER,
    cut=NEVER,
    partition=NEVER,
    corruption=NEVER,
    person=NEVER,
    operator=NEVER,
    not_started=0.0,
    doubled=0.0,
    max_latency_seconds=0.05,
)


class Chance:
    """Everything random, from one seed. `faults` can be changed while the simulation runs."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.random = Random(seed)
        self.faults = faults

    def latency(self) -> float:
        """How long a message takes over the network, in seconds."""
        return self.random.uniform(0.0, self.faults.max_latency_seconds)

    def happens(self, share: float) -> bool:
        return self.random.random() < share

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self.faults = NONE
