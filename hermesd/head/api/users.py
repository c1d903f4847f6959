"""Users: what they have, use and may have, what their quotas refuse, and the audit of calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hermesd.config.schema import HeadConfig
from hermesd.core.events import TermsSet
from hermesd.core.model import StudyId, Time, UserId
from hermesd.core.sharing import Terms
from hermesd.core.state import State
from hermesd.head.api import paging
from hermesd.head.journal.store import Journal
from hermesd.head.loop import Head
from hermesd.head.refusals import TooMuch
from hermesd.head.security.access import asker
from hermesd.pb.hermes.v1 import control_pb2 as pb

# What somebody may have whose settings name no limit: far more than a person looks at, far less
# than fills the head's memory or disk.
MOST_STUDIES = 10_000
MOST_UNFINISHED_TRIALS = 200_000

# Who has nothing here and has used less than that, decayed, is not listed any more.
FORGOTTEN_SECONDS = 1.0


@dataclass(frozen=True)
class UsersService:
    """What is asked of users."""

    head: Head

    async def ListUsers(self, request: pb.ListUsersRequest, context: Any) -> pb.ListUsersResponse:
        state, who = self.head.state, asker()
        views = user_views(state, self.head.clock())
        return pb.ListUsersResponse(
            users=[view for view in views if who.everything or view.name == who.user]
        )


def user_views(state: State, now: Time) -> list[pb.User]:
    """Everybody who has terms of their own, has studies here or lately had devices, by name."""
    owners = {study.owner for study in state.studies.values()}
    had = {
        user
        for user, account in state.accounts.items()
        if account.devices or state.used_by(user, now) >= FORGOTTEN_SECONDS
    }
    names = sorted({*owners, *state.terms, *had})
    unfinished = {name: unfinished_trials(state, name) for name in names}
    used = {name: state.used_by(name, now) for name in names}
    everything = math.fsum(used.values())
    views = []
    for name in names:
        terms = state.terms_of(name)
        there = [each for each in names if unfinished[each] or each == name]
        weights = math.fsum(state.terms_of(each).weight for each in there)
        views.append(
            pb.User(
                name=name,
                weight=terms.weight,
                max_devices=terms.max_devices,
                max_unfinished_trials=terms.max_unfinished_trials,
                max_studies=terms.max_studies,
                devices=state.devices_of(name),
                unfinished_trials=unfinished[name],
                studies=len(studies_of(state, name)),
                decayed_device_seconds=used[name],
                share=used[name] / everything if everything else 0.0,
                fair_share=terms.weight / weights,
                half_life_seconds=state.half_life_seconds,
            )
        )
    return views


def studies_of(state: State, user: UserId) -> list[StudyId]:
    """The user's studies, those that are over included."""
    return [study.id for study in state.studies.values() if study.owner == user]


def unfinished_trials(state: State, user: UserId) -> int:
    """How many trials of the user's are not over."""
    return sum(len(state.active[study]) for study in studies_of(state, user))


def room_for_study(state: State, user: UserId, trials: int) -> None:
    """See that the user may have one more study, of so many trials. Raises TooMuch."""
    most, known = state.terms_of(user).max_studies, len(studies_of(state, user))
    most = MOST_STUDIES if most is None else most
    if known >= most:
        studies = "study" if most == 1 else "studies"
        raise TooMuch(
            f"your quota is {most} {studies}, finished ones included: you have {known};"
            " remove one that you no longer need (hermesctl study rm)"
        )
    within_quota(state, user, user, trials)


def within_quota(state: State, user: UserId, asker: UserId, more: int) -> None:
    """See that the user may have so many more unfinished trials. Raises TooMuch."""
    most = state.terms_of(user).max_unfinished_trials
    most = MOST_UNFINISHED_TRIALS if most is None else most
    if more == 0:
        return
    known = unfinished_trials(state, user)
    if known + more > most:
        whose, they = ("your", "you have") if asker == user else (f"{user}'s", "there are")
        trials = "trial" if most == 1 else "trials"
        raise TooMuch(
            f"{whose} quota is {most} unfinished {trials}: {they} {known}, and this would be"
            f" {more} more; wait for some to end, or stop them"
        )


def changed_terms(config: HeadConfig, state: State) -> TermsSet | None:
    """The event that the head's settings make of its users' terms; None if these are as before."""
    terms = {
        name: Terms(**each.model_dump(exclude={"account"})) for name, each in config.users.items()
    }
    half_life_seconds = config.fair_share.half_life_hours * 3600.0
    if terms == state.terms and half_life_seconds == state.half_life_seconds:
        return None
    return TermsSet(half_life_seconds, tuple(terms.items()))


_BEYOND_ALL = 2**62


@dataclass(frozen=True)
class AuditService:
    """What clients ask of the audit."""

    journal: Journal
    #: The head's clock.
    now: Callable[[], Time]

    async def ListAudit(self, request: pb.ListAuditRequest, context: Any) -> pb.ListAuditResponse:
        size = paging.entries(request.page_size)
        found = await self.journal.audit(
            paging.place(request.page_token) or _BEYOND_ALL,
            size,
            self.now() - request.within_seconds if request.within_seconds else 0.0,
            request.name,
            request.refusals_only,
        )
        return pb.ListAuditResponse(
            entries=[pb.AuditEntry(**asdict(entry)) for entry in found],
            next_page_token=str(found[-1].number) if len(found) == size else "",
        )
