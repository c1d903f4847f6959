"""A plan is taken from its policy only as far as somebody asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hermesd.core.decide.queue import StudyQueue
from hermesd.core.model import Quantum, TrialId
from hermesd.core.placement import Free
from hermesd.core.policy import Claim, Plan, View
from hermesd.core.trial import Trial
from tests.core.playbook import play


def claims(names: Iterable[str], taken: list[str]) -> Iterator[Claim]:
    for name in names:
        taken.append(name)
        yield Claim(name, Quantum(), "")


def test_a_plan_is_taken_as_far_as_it_is_asked_for() -> None:
    taken: list[str] = []
    plan = Plan(claims("abcde", taken), devices=1)
    assert next(iter(plan)) == "a"
    assert taken == ["a"]
    assert plan.get("c") is not None
    assert taken == ["a", "b", "c"]
    assert list(plan) == list("abcde") == list(plan)
    assert plan.get("x") is None


def test_of_two_claims_for_a_trial_the_first_counts() -> None:
    plan = Plan([Claim("a", Quantum(1.0), ""), Claim("a", Quantum(2.0), "")], devices=1)
    claim = plan.get("a")
    assert (list(plan), claim and claim.quantum.seconds) == (["a"], 1.0)


@dataclass(frozen=True)
class Backwards:
    """The latest trial first."""

    taken: list[TrialId]
    name: ClassVar[str] = "backwards"

    def plan(self, view: View) -> Iterator[Claim]:
        return claims([trial.id for trial in reversed(view.trials)], self.taken)

    def words(self, trial: Trial) -> str:
        return trial.id


def order(queue: StudyQueue, count: int, occupants: Sequence[Trial] = ()) -> list[TrialId]:
    return queue.order(count, occupants, lambda trial: trial.id != "s/8", 0.0)


def test_the_first_that_may_and_every_occupant_in_the_order_of_the_plan() -> None:
    book, taken = play(trials=10, devices=None), list[TrialId]()
    queue = StudyQueue(book.state, "s", Backwards(taken), Free())
    assert order(queue, 2) == ["s/9", "s/7"]
    assert taken == ["s/9", "s/8", "s/7"]
    # One who has a device is ranked however far down he is.
    assert order(queue, 1, [book.trial("s/3")]) == ["s/9", "s/3"]
    assert taken[-1] == "s/3"
    assert order(queue, 0) == []
