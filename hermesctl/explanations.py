"""Why a trial runs or waits, as the SDK hands it out. Rule: as in records.py."""

from __future__ import annotations

from dataclasses import dataclass

from hermesctl.records import TrialState


@dataclass(frozen=True, slots=True)
class Ranked:
    """A trial's place in the policy's present order, in the policy's words."""

    trial: str
    words: str
    state: TrialState


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A place that a trial does not get as long as it could run elsewhere."""

    place: str
    reason: str
    until_unix_seconds: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Why a trial runs or waits; `notices` are its study's."""

    trial: str
    summary: str
    ranking: tuple[Ranked, ...]
    last_decision: str
    policy: str
    left_out: tuple[LeftOut, ...] = ()
    notices: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Explanation {self.trial}: {self.summary}>"
