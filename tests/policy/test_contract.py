"""What every policy promises, whichever it is."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from hermesd.core.model import Plugin, Setting
from hermesd.core.policy import BadSetting, Planning, Policy, Ranking
from hermesd.policy import POLICIES, SHIPPED, make_policy
from hermesd.policy.best_first import BestFirst
from hermesd.policy.check import STUDY_STEPS, STUDY_TRIALS, faults, rehearse
from hermesd.policy.fifo import Fifo
from hermesd.policy.guided import Guided
from hermesd.policy.published.asha import Asha, Pasha
from hermesd.policy.published.flowcon import FlowCon
from hermesd.policy.published.hermes import Hermes
from hermesd.policy.published.hyperband import Hyperband
from hermesd.policy.published.median import Median
from hermesd.policy.published.optimus import Optimus, OptimusWidth1
from hermesd.policy.published.pbt import Pbt
from hermesd.policy.published.slaq import Slaq
from hermesd.policy.published.successive_halving import SuccessiveHalving
from hermesd.policy.published.themis import Themis
from hermesd.policy.published.tiresias import Tiresias
from hermesd.policy.round_robin import RoundRobin

VARIANTS: list[Policy] = [
    Asha(),
    Asha(eta=2, min_rung=10.0, max_rung=100.0),
    BestFirst(),
    BestFirst(probe_share=0.05, growth=0.0),
    BestFirst(target=1.5, scale="relative"),
    BestFirst(scale="absolute", good=0.0),
    Fifo(),
    FlowCon(),
    FlowCon(quantum_seconds=0.1, floor=0.01),
    Guided(),
    Guided(probe_share=0.1, first_probes=2, caution=0.0),
    Hermes(),
    Hermes(growth_on="preemptions", winner_may_stay=False, milestones=(10.0,)),
    Hyperband(),
    Hyperband(eta=2, min_rung=3.0, max_rung=50.0),
    Median(),
    Median(grace=7.0, every=3.0, min_trials=1),
    Optimus(),
    OptimusWidth1(),
    OptimusWidth1(threshold=0.1, epoch=4.0, epochs=1),
    Pasha(),
    Pasha(eta=2, min_rung=10.0, max_rung=100.0),
    Pbt(),
    Pbt(ready=5, steps_per_epoch=2, exploit="tournament"),
    RoundRobin(),
    RoundRobin(quantum_seconds=0.1),
    Slaq(),
    Slaq(reading="predicted_reduction"),
    SuccessiveHalving(),
    SuccessiveHalving(eta=2, min_rung=5.0, max_rung=0.5),
    Themis(),
    Themis(quantum_seconds=0.1),
    Tiresias(),
    Tiresias(thresholds=()),
    Tiresias(durations=(1.0, 5.0, 30.0)),
]
every_variant = pytest.mark.parametrize("policy", VARIANTS, ids=repr)
every_name = pytest.mark.parametrize("name", sorted(policy.name for policy in SHIPPED))


def test_every_policy_is_tried_here() -> None:
    assert {policy.name for policy in VARIANTS} == {policy.name for policy in SHIPPED}


@every_variant
def test_a_policy_keeps_the_contract(policy: Policy) -> None:
    assert faults(policy) == []


@every_variant
def test_every_trial_comes_to_its_end(policy: Policy) -> None:
    assert len(rehearse(policy)) == STUDY_TRIALS


def test_a_rehearsal_takes_as_long_as_its_steps() -> None:
    ends = rehearse(Fifo())
    assert list(ends.values()) == [STUDY_STEPS * 0.25 * (n + 1) for n in range(STUDY_TRIALS)]


@every_variant
def test_a_policy_is_one_of_the_two_forms(policy: Policy) -> None:
    assert isinstance(policy, Planning) != isinstance(policy, Ranking)


@every_variant
def test_settings_survive_repr(policy: Policy) -> None:
    names: dict[str, object] = {kind.__name__: kind for kind in SHIPPED}
    assert eval(repr(policy), {**names, "inf": float("inf")}) == policy


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


STEPS = "a share of the length up to 1, or a number of steps above 1"


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
        ("hermes", "milestones", (50.0, 25.0), "rising percentages above 0, up to 100"),
        ("hermes", "milestones", (25.0, 100.1), "rising percentages above 0, up to 100"),
        ("asha", "min_rung", "1/0", "a number"),
        ("asha", "min_rung", "a/b", "a number"),
        ("asha", "min_rung", "0.1", "a number"),
        ("asha", "eta", "6/2", "a whole number"),
        ("hermes", "milestones", "25", "a list, each a number"),
        ("hermes", "milestones", "25:x", "a number"),
        ("hermes", "winner_may_stay", 1, "true or false"),
        ("asha", "eta", 1, "2 or more"),
        ("asha", "eta", 2.5, "a whole number"),
        ("asha", "eta", 10**400, "2 or more, up to 1000"),
        ("asha", "min_rung", 1e-320, STEPS),
        ("asha", "max_rung", 1e30, STEPS),
        ("asha", "min_rung", 0.0, "a share of the length"),
        ("asha", "max_rung", float("inf"), "a share of the length"),
        ("best_first", "probe_share", 1.5, "a share from 0 to 1"),
        ("best_first", "probe_seconds", 0.0, "0.1 seconds or more"),
        ("best_first", "growth", -0.1, "0 or more"),
        ("best_first", "target", float("nan"), "a loss, or -inf for none"),
        ("best_first", "scale", "own", "one of absolute, auto, relative"),
        ("flowcon", "quantum_seconds", 0.0, "0.1 seconds or more"),
        ("flowcon", "floor", 0.0, "a share of a turn"),
        ("guided", "probe_share", 2.0, "a share from 0 to 1"),
        ("guided", "first_probes", 1, "2 or more"),
        ("guided", "caution", -1.0, "0 or more"),
        ("hyperband", "eta", 1, "2 or more"),
        ("hyperband", "min_rung", 5.0, "at most max_rung (1), both"),
        ("median", "grace", 0.0, STEPS),
        ("median", "every", -1.0, STEPS),
        ("median", "min_trials", 0, "1 or more"),
        ("optimus_width1", "threshold", 0.0, "a share between 0 and 1"),
        ("optimus_width1", "epoch", 0.0, STEPS),
        ("optimus_width1", "epochs", 0, "1 or more"),
        ("optimus_width1", "quantum_seconds", 0.0, "0.1 seconds or more"),
        ("round_robin", "quantum_seconds", 0, "0.1 seconds or more"),
        ("slaq", "reading", "loss", "one of high_loss, predicted_reduction"),
        ("successive_halving", "eta", 1, "2 or more"),
        ("successive_halving", "min_rung", 0.0, STEPS),
        ("themis", "quantum_seconds", 0.0, "0.1 seconds or more"),
        ("tiresias", "thresholds", (30.0, 10.0), "rising seconds above 0"),
        ("tiresias", "durations", (0.0,), "seconds above 0"),
        ("tiresias", "quantum_seconds", 0.0, "0.1 seconds or more"),
    ],
)
def test_a_wrong_value_is_refused(name: str, setting: str, value: Setting, expected: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        make_policy(Plugin(name, ((setting, value),)))

    assert refusal.value.field == setting
    assert refusal.value.expected.startswith(expected)
    assert repr(refusal.value.value) in str(refusal.value)


@pytest.mark.parametrize("name", ["asha", "hyperband", "successive_halving"])
@pytest.mark.parametrize(("lowest", "top"), [(0.5, 0.25), (30.0, 20.0)])
def test_rungs_do_not_begin_above_their_top(name: str, lowest: float, top: float) -> None:
    why = rf"min_rung: {lowest}: expected at most max_rung \({top:g}\)"
    with pytest.raises(BadSetting, match=why):
        make_policy(Plugin(name, (("min_rung", lowest), ("max_rung", top))))


def test_a_misspelled_choice_names_the_nearest() -> None:
    with pytest.raises(BadSetting, match="did you mean milestones"):
        make_policy(Plugin("hermes", (("growth_on", "milestone"),)))


def test_a_fraction_is_a_number_and_colons_make_a_list_wherever_settings_are_written() -> None:
    assert make_policy(Plugin("asha", (("min_rung", "1/27"),))) == Asha(min_rung=1 / 27)
    written = Plugin("hermes", (("milestones", "25:50:200/3"),))
    assert make_policy(written) == Hermes(milestones=(25.0, 50.0, 200 / 3))
    alone = Plugin("hermes", (("milestones", ("1/2",)),))
    assert make_policy(alone) == Hermes(milestones=(0.5,))


def test_a_whole_number_will_do_for_seconds() -> None:
    policy = make_policy(Plugin("round_robin", (("quantum_seconds", 5),)))
    assert policy == RoundRobin(5.0)
    assert repr(replace(RoundRobin(), quantum_seconds=5.0)) == repr(policy)
