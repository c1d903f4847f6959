"""What every policy promises, whichever it is."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import NamedTuple

import pytest

from hermesd.core.model import Plugin, Quantum, Setting, TrialId
from hermesd.core.policy import BadSetting, Facts, Planning, Policy, Ranking
from hermesd.policy import POLICIES, make_policy
from hermesd.policy.asha import Asha
from hermesd.policy.best_first import BestFirst
from hermesd.policy.fifo import Fifo
from hermesd.policy.hermes import Hermes
from hermesd.policy.round_robin import RoundRobin
from hermesd.policy.slaq import Slaq
from tests.policy.trials import mixed_bag, view

VARIANTS: list[Policy] = [
    Asha(),
    Asha(eta=2, min_rung=10.0, max_rung=100.0),
    BestFirst(),
    BestFirst(probe_share=0.05, growth=0.0),
    Fifo(),
    Hermes(),
    Hermes(growth_on="preemptions", winner_may_stay=False, milestones=(10.0,)),
    RoundRobin(),
    RoundRobin(quantum_seconds=0.1),
    Slaq(),
    Slaq(reading="predicted_reduction"),
]
every_variant = pytest.mark.parametrize("policy", VARIANTS, ids=repr)
every_name = pytest.mark.parametrize("name", sorted(POLICIES))


class Answer(NamedTuple):
    trial: TrialId
    place: object
    quantum: Quantum
    words: str


def answers(policy: Policy) -> list[Answer]:
    """All that a policy says about the mixed bag."""
    bag = {each.id: each for each in mixed_bag()}
    if isinstance(policy, Planning):
        plan = policy.plan(view(*bag.values(), devices=3))
        return [Answer(c.trial, i, c.quantum, c.reason) for i, c in enumerate(plan)]
    facts = Facts(0.2, 0.3, 0.01)
    return [
        Answer(each.id, policy.score(each), policy.quantum(each, facts), policy.words(each))
        for each in bag.values()
        if not each.phase.final
    ]


def test_every_policy_is_tried_here() -> None:
    assert {policy.name for policy in VARIANTS} == set(POLICIES)


@every_variant
def test_the_same_view_gives_the_same_answer(policy: Policy) -> None:
    assert answers(policy) == answers(policy)


@every_variant
def test_quanta_are_none_or_long_enough_and_limits_lie_ahead(policy: Policy) -> None:
    bag = {each.id: each for each in mixed_bag()}
    for trial, _, quantum, _ in answers(policy):
        assert quantum.seconds is None or 0.1 <= quantum.seconds < math.inf
        assert quantum.until_step is None or quantum.until_step > bag[trial].step
        assert all(math.isfinite(milestone.loss) for milestone in quantum.milestones)


@every_variant
def test_scores_can_be_compared_and_words_say_something(policy: Policy) -> None:
    for _, score, _, words in answers(policy):
        assert words
        if isinstance(score, tuple):
            assert all(isinstance(part, float) and part == part for part in score)
    if isinstance(policy, Ranking):
        assert len({len(policy.score(each)) for each in mixed_bag()}) == 1


@every_variant
def test_claims_are_unique_and_of_candidates(policy: Policy) -> None:
    if not isinstance(policy, Planning):
        return
    bag = {each.id: each for each in mixed_bag()}
    claimed = [answer.trial for answer in answers(policy)]
    assert len(set(claimed)) == len(claimed) > 0
    assert all(bag[trial].candidate for trial in claimed)
    assert policy.plan(view()) == []


@every_variant
def test_a_policy_is_one_of_the_two_forms(policy: Policy) -> None:
    assert isinstance(policy, Planning) != isinstance(policy, Ranking)


@every_variant
def test_settings_survive_repr(policy: Policy) -> None:
    names = {kind.__name__: kind for kind in POLICIES.values()}
    assert eval(repr(policy), names) == policy


@every_variant
def test_settings_survive_the_study_file(policy: Policy) -> None:
    settings = tuple((field.name, getattr(policy, field.name)) for field in fields(policy))  # type: ignore[arg-type]
    assert make_policy(Plugin(policy.name, settings)) == policy


@every_variant
def test_a_policy_cannot_be_changed(policy: Policy) -> None:
    for field in fields(policy):  # type: ignore[arg-type]
        with pytest.raises(AttributeError):
            setattr(policy, field.name, 1)


@every_name
def test_defaults_need_no_settings(name: str) -> None:
    assert make_policy(Plugin(name)) == POLICIES[name]()


@every_name
def test_an_unknown_setting_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        make_policy(Plugin(name, (("quantum_second", 5),)))
    known = [field.name for field in fields(POLICIES[name])]  # type: ignore[arg-type]
    assert refusal.value.value == "quantum_second"
    assert refusal.value.nearest in {*known, ""}
    assert refusal.value.nearest == "quantum_seconds" or "quantum_seconds" not in known
    assert name in refusal.value.field
    assert all(setting in refusal.value.expected for setting in known)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("hermse", "hermes"), ("bestfirst", "best_first"), ("roundrobin", "round_robin")],
)
def test_an_unknown_policy_is_refused_with_the_nearest(written: str, meant: str) -> None:
    with pytest.raises(BadSetting, match=f"did you mean {meant}") as refusal:
        make_policy(Plugin(written))
    assert refusal.value.field == "policy"
    assert refusal.value.expected == "one of " + ", ".join(sorted(POLICIES))


@pytest.mark.parametrize(
    ("name", "setting", "value", "expected"),
    [
        ("hermes", "quantum_seconds", 0.05, "0.1 seconds or more"),
        ("hermes", "quantum_seconds", float("nan"), "0.1 seconds or more"),
        ("hermes", "quantum_seconds", "ten", "a number"),
        ("hermes", "quantum_seconds", True, "a number"),
        ("hermes", "quantum_seconds", (1.0,), "a number"),
        ("hermes", "growth_seconds", -1, "0 seconds or more"),
        ("hermes", "growth_on", "milestone", "one of milestones, preemptions"),
        ("hermes", "milestones", 25.0, "a list, each a number"),
        ("hermes", "milestones", (50.0, 25.0), "rising percentages above 0"),
        ("hermes", "winner_may_stay", 1, "true or false"),
        ("asha", "eta", 1, "2 or more"),
        ("asha", "eta", 2.5, "a whole number"),
        ("asha", "min_rung", 0.0, "a share of the length"),
        ("asha", "max_rung", float("inf"), "a share of the length"),
        ("best_first", "probe_share", 1.5, "a share from 0 to 1"),
        ("best_first", "probe_seconds", 0.0, "0.1 seconds or more"),
        ("best_first", "growth", -0.1, "0 or more"),
        ("round_robin", "quantum_seconds", 0, "0.1 seconds or more"),
        ("slaq", "reading", "loss", "one of high_loss, predicted_reduction"),
    ],
)
def test_a_wrong_value_is_refused(name: str, setting: str, value: Setting, expected: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        make_policy(Plugin(name, ((setting, value),)))
    assert refusal.value.field == setting
    assert refusal.value.expected.startswith(expected)
    assert repr(refusal.value.value) in str(refusal.value)


def test_a_misspelt_choice_names_the_nearest() -> None:
    with pytest.raises(BadSetting, match="did you mean milestones"):
        make_policy(Plugin("hermes", (("growth_on", "milestone"),)))


def test_a_whole_number_will_do_for_seconds() -> None:
    policy = make_policy(Plugin("round_robin", (("quantum_seconds", 5),)))
    assert policy == RoundRobin(5.0)
    assert repr(replace(RoundRobin(), quantum_seconds=5.0)) == repr(policy)
