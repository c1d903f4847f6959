"""Which places are kept from trials for now, by the strikes against them.

Rule: what is decided is a command, so that a replay needs no half-life; asked again when the ledger
has changed or a time is up. A quarantine is no more than a preference: see `placement.avoided`.
"""

from __future__ import annotations

from hermesd.core.commands import Issue, Quarantine, Trust
from hermesd.core.history import Strike
from hermesd.core.model import Time, TrialId
from hermesd.core.state import State
from hermesd.core.strikes import SUSPECT, against, lasting, met, struck, weight

# Of the same strikes the end is always the same, but for what floating point makes of it.
JITTER_SECONDS = 1.0
NAMED = 3


def judge(state: State, half_life_seconds: float, now: Time, issue: Issue) -> None:
    """Put suspect places in quarantine, and take out those that are suspect no more."""
    where_met = met(state)
    for place in dict.fromkeys((*struck(state), *state.quarantined)):
        strikes = against(state, place, where_met)
        weighs = weight(strikes, now, half_life_seconds)
        until = now + lasting(weighs, half_life_seconds)
        before = state.quarantined.get(place)
        if before is None and weighs < SUSPECT:
            continue
        if before is not None and until <= now:
            issue(Trust(place, "what failed there was not its fault"))
        elif before is None or abs(until - before.until) > JITTER_SECONDS:
            issue(Quarantine(place, until, _words(strikes)))


def release(state: State, now: Time, issue: Issue) -> None:
    """Take those places out whose time is up."""
    for place in [place for place, kept in state.quarantined.items() if kept.until <= now]:
        issue(Trust(place, "its strikes have faded"))


def _words(strikes: dict[TrialId, Strike]) -> str:
    """Who failed there, and of what, the latest last."""
    alike: dict[str, list[TrialId]] = {}
    for trial, strike in sorted(strikes.items(), key=lambda item: item[1].at):
        alike.setdefault(strike.detail or strike.error_kind, []).append(trial)
    return "; ".join(
        f"{_named(trials)} failed there: {error}" for error, trials in list(alike.items())[-NAMED:]
    )


def _named(trials: list[TrialId]) -> str:
    more = f" and {len(trials) - NAMED} more" if len(trials) > NAMED else ""
    return f"{', '.join(trials[:NAMED])}{more}"
