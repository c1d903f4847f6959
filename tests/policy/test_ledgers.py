"""What a ledger plans follows from the trials as they are, whatever it was told before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.losses import chunked, extend
from hermesd.core.model import Phase
from hermesd.core.policy import Facts, Following
from hermesd.core.trial import Trial, Use
from hermesd.policy import POLICIES
from hermesd.policy.guided import Guided
from hermesd.policy.published.asha import Asha, Pasha
from hermesd.policy.published.flowcon import FlowCon
from hermesd.policy.published.hyperband import Hyperband
from hermesd.policy.published.median import Median
from hermesd.policy.published.successive_halving import SuccessiveHalving
from hermesd.policy.published.themis import Themis
from tests.policy.trials import costing, losses, on_device, trial, view

TRIALS, FACTS = 9, Facts(0.1, 0.2, 0.1)
FOLLOWING: list[Following] = [
    Asha(eta=2, min_rung=0.1),
    FlowCon(floor=0.01),
    Guided(first_probes=2),
    Hyperband(eta=2, min_rung=0.1),
    Median(min_trials=1),
    Pasha(eta=2, min_rung=0.1),
    SuccessiveHalving(eta=2, min_rung=0.1),
    Themis(),
]


def trained(steps: int, loss: float) -> Callable[[Trial], Trial]:
    """Another quantum of so many steps, around a loss."""

    def more(each: Trial) -> Trial:
        values = [loss / (1 + step / 20) for step in range(each.step, each.step + steps)]
        return replace(
            each,
            step=each.step + steps,
            planned_steps=(100, 100, None)[each.spec.number % 3],
            curve=extend(each.curve, chunked(each.step + 1, values)),
            quanta=each.quanta + 1,
            before=each.latest,
            latest=losses(*values),
            use=Use(busy_seconds=each.use.busy_seconds + steps / 10),
        )

    return more


def waits(each: Trial) -> Trial:
    return replace(each, phase=Phase.WAITING, run=None, finished=None, costs=costing(1.0, 2.0))


def ended(phase: Phase) -> Callable[[Trial], Trial]:
    return lambda each: replace(each, phase=phase, run=None, finished=9.0)


changes = st.one_of(
    st.builds(trained, st.integers(1, 40), st.sampled_from([1.0, 2.0, 3.0, float("inf")])),
    st.sampled_from([waits, on_device, lambda each: on_device(each, expired=False)]),
    st.sampled_from([ended(Phase.COMPLETED), ended(Phase.FAILED)]),
    st.just(lambda each: replace(each, paused=not each.paused)),
)
batches = st.lists(st.dictionaries(st.integers(0, TRIALS - 1), changes, min_size=1), max_size=20)


def test_every_policy_with_a_ledger_is_tried_here() -> None:
    with_ledgers = {name for name in POLICIES if isinstance(POLICIES[name](), Following)}
    assert {policy.name for policy in FOLLOWING} == with_ledgers


@pytest.mark.parametrize("policy", FOLLOWING, ids=lambda policy: policy.name)
@given(batches)
def test_what_a_ledger_plans_follows_from_the_trials_as_they_are(
    policy: Following, told: list[dict[int, Callable[[Trial], Trial]]]
) -> None:
    trials = [trial(number) for number in range(TRIALS)]
    ledger = policy.ledger()
    ledger.note(reversed(trials))
    for now, batch in enumerate(told, 10):
        for number, change in batch.items():
            trials[number] = change(trials[number])
        ledger.note(trials[number] for number in batch)
        order = list(ledger.order(now))
        shown = view(*[each for each in trials if not each.shelved], now=now, facts=FACTS)
        assert [ledger.claim(each, now, FACTS) for each in order] == list(policy.plan(shown))
        places = {each.id: ledger.place(each.id, now) for each in trials}
        assert [name for name in places if places[name] is None] == [
            name for name in places if name not in order
        ]
        assert sorted(order, key=lambda name: places[name] or ()) == order
