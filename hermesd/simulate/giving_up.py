"""What a policy would have given up, had it ended the trials that it holds back.

Rule: it is the same scheduler and the same policy; only the claims that are `held_back` are left
out of its plans. A trial that then is never finished is one that it would have given up. When only
such are left and no trial came to its end, the foremost goes on, as in tools that end trials the
last one does: the share of a few that goes on is less than one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from hermesd.core.model import Phase, Plugin, Time
from hermesd.core.policy import Claim, Planning, Policy, View
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
    """A planning policy that leaves out of its plan who would only get an idle device, but for the
    last one."""

    name: ClassVar[str] = "without_held_back"

    def __init__(self, policy: Planning) -> None:
        self._policy = policy

    def plan(self, view: View) -> Iterator[Claim]:
        held_back = []
        through = any(trial.phase is Phase.COMPLETED for trial in view.finished)
        alone = not through and not any(trial.phase.on_device for trial in view.trials)
        for claim in self._policy.plan(view):
            if claim.held_back:
                held_back.append(claim)
            else:
                alone = False
                yield claim
        if alone:
            yield from held_back[:1]

    def words(self, trial: Trial) -> str:
        return self._policy.words(trial)


def courses(
    order: Order, devices: int, policy: Plugin, placement: Plugin, maximized: bool
) -> tuple[Course, ...]:
    """Every trial's course, if one that is held back gets nothing, not even an idle device.

    Of a signal that was `maximized` the words give its values.

    Raises:
        Stalled: the policy raised.
    """
    drive = Drive(order, devices, policy, placement, make=_giving_up)
    trials = drive.play()
    last = {stay.trial: stay.freed for stay in drive.stays}
    words = make_policy(policy).words
    return tuple(
        Course(
            trial.phase.final,
            trial.step,
            last.get(place, 0.0),
            words(replace(trial, maximized=maximized)),
        )
        for place, trial in enumerate(trials)
    )


def _giving_up(plugin: Plugin) -> Policy:
    policy = make_policy(plugin)
    return WithoutHeldBack(policy) if isinstance(policy, Planning) else policy
