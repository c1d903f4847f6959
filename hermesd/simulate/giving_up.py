"""What a policy would have given up, had it ended the trials that it holds back.

Rule: it is the same scheduler and the same policy; only the claims that are `held_back` are left
out of its plans. A trial that then is never finished is one that it would have given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.model import Plugin, Time
from hermesd.core.placement import make_placement
from hermesd.core.policy import Claim, Planning, Policy, View
from hermesd.core.scheduler import Scheduler
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.policy import make_policy
from hermesd.simulate.drive import Drive
from hermesd.simulate.orders import Order


@dataclass(frozen=True, slots=True)
class Course:
    """How far a trial came: whether to its end, to which step, when it last had a device."""

    finished: bool
    step: int
    at: Time
    words: str


class WithoutHeldBack:
    """A planning policy that leaves out of its plan who would only get an idle device."""

    name: ClassVar[str] = "without_held_back"

    def __init__(self, policy: Planning) -> None:
        self._policy = policy

    def plan(self, view: View) -> Iterator[Claim]:
        return (claim for claim in self._policy.plan(view) if not claim.held_back)

    def words(self, trial: Trial) -> str:
        return self._policy.words(trial)


class GivingUp(Drive):
    """A simulation in which a held-back trial gets nothing, not even a device that is idle."""

    def __init__(self, order: Order, devices: int, policy: Plugin, placement: Plugin) -> None:
        super().__init__(order, devices, policy, placement)
        self._policy = make_policy(policy)
        self._scheduler = Scheduler(State(), _giving_up, make_placement)

    def courses(self) -> tuple[Course, ...]:
        """Every trial's course, once no device has anything to do any more.

        Raises:
            Stalled: the policy raised.
        """
        self._tell(*self._opening)
        while self._agenda.step():
            pass
        last = {stay.trial: stay.freed for stay in self._stays}
        return tuple(
            Course(
                place in self._finished,
                trial.step,
                last.get(place, 0.0),
                self._policy.words(trial),
            )
            for place, trial in enumerate(self._scheduler.state.trials.values())
        )


def _giving_up(plugin: Plugin) -> Policy:
    policy = make_policy(plugin)
    return WithoutHeldBack(policy) if isinstance(policy, Planning) else policy
