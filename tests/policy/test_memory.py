"""What earlier studies say of a new one, and how long that is believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from statistics import correlation
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.model import Plugin, Setting, Stage, TrialSpec
from hermesd.core.policy import BadSetting, Earlier, Facts
from hermesd.policy import make_policy
from hermesd.policy import memory as memory_module
from hermesd.policy.best_first import BestFirst, Recalling
from hermesd.policy.guided import Guided
from hermesd.policy.memory import (
    MOST,
    MOST_KEPT,
    MOST_LEARNED,
    Kernel,
    Memory,
    learned,
    rank_correlation,
)
from hermesd.policy.process import Floats, Ints
from hermesd.sim.curves import Job, Switch
from hermesd.sim.drive import Drive, SimulatedOutcome, earlier_study
from hermesd.sim.orders import LossGoal, SubmissionOrder
from tests.policy.trials import curve, trained, trial

STEPS = 400


def falling(rate: float, **parameters: float | str) -> Job:
    """A training whose loss falls by this rate from 2."""
    losses = tuple(2 * math.exp(-rate * step / STEPS) for step in range(STEPS))
    return Job(losses, 0.1, STEPS, 1, tuple(parameters.items()))


def by_rate(rate: Callable[[int], float], count: int = 12) -> list[Job]:
    return [falling(rate(n), lr=10.0**-n, opt="adam" if n % 2 else "sgd") for n in range(count)]


def simulated(
    jobs: Sequence[Job],
    *history: Earlier,
    name: str = "best_first",
    settings: tuple[tuple[str, str], ...] = (),
) -> SimulatedOutcome:
    """The study on one device."""
    order = SubmissionOrder(tuple(jobs), (), LossGoal(0.0, 2.0, 0.0), Switch.split(0.1))
    policy = Plugin(name, settings)
    return Drive(order, 1, policy, Plugin("free"), history=history).run()


def begins(outcome: SimulatedOutcome) -> dict[int, float]:
    """When each trial ran first, in that order."""
    found: dict[int, float] = {}
    for stay in outcome.stays:
        found.setdefault(stay.trial, stay.taken)
    return found


PEAK = by_rate(lambda n: 6.0 - abs(n - 7))


def test_probes_go_by_what_earlier_trials_came_to_and_the_second_is_the_worst() -> None:
    first = list(begins(simulated(PEAK, earlier_study("before", PEAK))))
    assert first[:2] == [7, 0]
    assert set(first[2:4]) <= {5, 6, 8, 9}


def test_guided_begins_with_what_was_predicted() -> None:
    outcome = simulated(PEAK, earlier_study("before", PEAK), name="guided")
    assert list(begins(outcome))[:2] == [7, 0]
    assert begins(outcome)[1] > outcome.finished[7]


def test_guided_is_best_first_where_parameters_that_are_no_numbers_say_nothing() -> None:
    words = [replace(job, parameters=(("data", f"set {n}"),)) for n, job in enumerate(PEAK)]
    guided, plain = simulated(words, name="guided"), simulated(words)
    assert list(begins(guided)) == list(begins(plain)) == list(range(len(PEAK)))
    assert guided.finished == plain.finished


def test_without_history_and_with_it_off_probes_go_in_order_of_submission() -> None:
    off = simulated(PEAK, earlier_study("before", PEAK), settings=(("history", "off"),))
    assert list(begins(off)) == list(begins(simulated(PEAK))) == list(range(len(PEAK)))


def test_who_is_predicted_to_be_slow_waits_until_the_fast_are_trained() -> None:
    with_history, without = simulated(PEAK, earlier_study("before", PEAK)), simulated(PEAK)
    assert with_history.finished[7] < without.finished[7]
    assert begins(with_history)[1] > with_history.finished[7]


def test_an_order_that_does_not_hold_is_ignored() -> None:
    reversed_here = by_rate(lambda n: 1.0 + abs(n - 7))
    outcome = simulated(reversed_here, earlier_study("before", PEAK))
    # All are probed before any is trained to its end.
    assert max(begins(outcome).values()) < min(outcome.finished)


def test_of_studies_that_say_nothing_nothing_is_remembered() -> None:
    specs = [replace(trial(n).spec, stages=(Stage(None, (("lr", n),)),)) for n in range(9)]
    same = [replace(trial(n), spec=specs[n], curve=curve([1.0] * 9), step=9) for n in range(9)]
    for trials in ([], same[:5], same, [replace(each, curve=()) for each in same]):
        memory = Memory((Earlier("before", trials),), specs)
        assert memory.studies == ()
        assert BestFirst().remembering((Earlier("before", trials),), specs) == BestFirst()


def test_trials_of_the_same_settings_are_told_apart_by_nothing() -> None:
    alike = [replace(job, parameters=()) for job in PEAK]
    plain, told = simulated(alike), simulated(alike, earlier_study("before", alike))
    assert begins(told) == begins(plain)
    assert told.finished == plain.finished


def kernel_of(rows: Floats, values: Floats, studies: Sequence[int] = ()) -> Kernel:
    return Kernel(rows, values, np.array(studies or [0] * len(values)))


def test_a_parameter_that_explains_nothing_does_not_count() -> None:
    rows = np.array([[n / 63, (n * 37 % 64) / 63] for n in range(64)])
    kernel = kernel_of(rows, np.sin(6 * rows[:, 0]))
    assert kernel.narrow[0] > 0
    assert kernel.narrow[1] == 0


def test_mostly_none_counts_where_none_explains_anything() -> None:
    counts = 0
    for seed in range(20):
        chance = np.random.default_rng(seed)
        kernel = kernel_of(chance.permutation(64)[:, None] / 63, chance.random(64))
        counts += kernel.narrow != [0.0]
    assert counts <= 10


def test_a_study_counts_by_how_many_trials_it_has() -> None:
    rows = np.linspace(0, 1, 80)[:, None]
    values = rows[:, 0].copy()
    values[64:] = np.tile([1.0, 0.0], 8)
    few = [n // 2 for n in range(64, 80)]
    assert kernel_of(rows, values, [0] * 64 + few).narrow[0] > 0
    assert kernel_of(rows[64:], values[64:], few).narrow[0] == 0


def test_a_study_whose_values_are_all_higher_is_no_reason_for_a_parameter_to_count() -> None:
    rows = np.array([[study, n / 31] for study in (0.0, 1.0) for n in range(32)])
    values = rows[:, 0] * 9 + np.sin(6 * rows[:, 1])
    both = kernel_of(rows, values, [0] * 32 + [1] * 32)
    assert both.narrow[1] > 0


def test_a_constant_that_was_another_one_before_takes_nothing_off_what_is_predicted() -> None:
    def of(epochs: int) -> Earlier:
        jobs = [replace(each, parameters=(*each.parameters, ("epochs", epochs))) for each in PEAK]
        return earlier_study("nightly", jobs)

    same, longer = (
        Memory([of(12)], [each.spec for each in of(epochs).trials]) for epochs in (12, 20)
    )
    assert longer.predicted == pytest.approx(same.predicted)
    assert np.ptp(longer.predicted) > 1


def rugged(count: int) -> list[Job]:
    """Trainings whose rates say nothing of those of other settings."""
    rates = np.random.default_rng(0).permutation(count) * 6 / count
    digits = [[n // 4**place % 4 for place in range(6)] for n in range(count)]
    return [
        falling(rate, **{f"p{place}": float(each) for place, each in enumerate(row)})
        for rate, row in zip(rates.tolist(), digits, strict=True)
    ]


def asked(specs: Sequence[TrialSpec], **parameters: Setting) -> list[TrialSpec]:
    """Trials of these settings, but for some."""
    stages = [{**dict(spec.parameters), **parameters} for spec in specs]
    return [
        replace(trial(n).spec, stages=(Stage(None, tuple(each.items())),))
        for n, each in enumerate(stages)
    ]


def test_what_the_same_settings_came_to_counts_however_many_others_ran() -> None:
    jobs = rugged(MOST)
    earlier = tuple(earlier_study(name, jobs) for name in ("monday", "tuesday"))
    specs = [each.spec for each in earlier[0].trials]
    looked_at = {spec.parameters for spec in learned(earlier).specs}
    others = [spec for spec in specs if spec.parameters not in looked_at][:12]
    memory = Memory(earlier, others)
    ended = [jobs[spec.number].losses[-1] for spec in others]
    assert rank_correlation(memory.predicted, np.array(ended)) > 0.9


def test_settings_are_the_same_whatever_is_constant_in_a_study_and_however_it_is_written() -> None:
    jobs = [replace(job, parameters=(*job.parameters, ("model", "a"))) for job in rugged(64)]
    earlier = earlier_study("monday", jobs)
    specs = [each.spec for each in earlier.trials]
    whole = asked(specs)
    written = [
        replace(
            spec,
            stages=(
                Stage(None, tuple((k, v if k == "model" else int(v)) for k, v in spec.parameters)),
            ),
        )
        for spec in whole
    ]
    expected = Memory([earlier], specs)
    for again in (asked(specs, model="b"), written):
        memory = Memory([earlier], again)
        assert memory.ran_before
        assert memory.predicted == pytest.approx(expected.predicted)


@pytest.mark.parametrize(("new", "ran_before"), [(5, True), (6, False)])
def test_settings_ran_before_if_most_of_them_did(new: int, ran_before: bool) -> None:
    earlier = earlier_study("monday", rugged(16))
    specs = [each.spec for each in earlier.trials][:10]
    specs = [*specs[new:], *asked(specs[:new], p0=9.0)]
    assert Memory([earlier], specs).ran_before == ran_before


def test_of_other_settings_no_more_is_expected_than_was_predicted_without_the_same() -> None:
    jobs = rugged(200)
    earlier = tuple(earlier_study(name, jobs) for name in ("monday", "tuesday"))
    specs = [each.spec for each in earlier[0].trials][:16]
    policies = [BestFirst().remembering(earlier, each) for each in (specs, asked(specs, p0=9.0))]
    again, others = policies
    assert isinstance(again, Recalling)
    assert isinstance(others, Recalling)
    assert again.reliability.history > 0.9
    assert others.reliability.history == 0


def test_trials_that_repeat_settings_keep_no_others_from_being_looked_at() -> None:
    jobs = [job for job in by_rate(lambda n: n + 1.0, 10) for _ in range(64)]
    earlier = tuple(earlier_study(f"day {n}", jobs) for n in range(8))
    known = learned(earlier)
    assert len({spec.parameters for spec in known.specs[:MOST_LEARNED]}) == 10
    assert {len({t.spec.parameters for t in study.trials}) for study in known.studies} == {10}


def test_no_more_trials_are_learned_from_than_tell_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []

    class Noted(Kernel):
        def __init__(self, places: Floats, values: Floats, studies: Ints) -> None:
            rows.append(len(places))
            super().__init__(places, values, studies)

    monkeypatch.setattr(memory_module, "Kernel", Noted)
    jobs = rugged(MOST)
    known = learned(tuple(earlier_study(name, jobs) for name in ("monday", "tuesday")))
    assert rows == [MOST_LEARNED]
    assert len(known.specs) == len(known.values) == MOST
    kept = [[each.spec.parameters for each in study.trials] for study in known.studies]
    assert kept[0] == kept[1]
    assert len(kept[0]) == MOST_KEPT


@given(st.lists(st.floats(-9, 9), min_size=2, max_size=20, unique=True), st.randoms())
def test_a_rank_correlation_is_that_of_the_ranks(values: list[float], chance: Random) -> None:
    left, right = np.array(values), np.array(chance.sample(values, len(values)))
    ranks = [[sorted(each).index(value) for value in each] for each in (list(left), list(right))]
    assert rank_correlation(left, right) == pytest.approx(correlation(*ranks))
    assert rank_correlation(left, -left) == pytest.approx(-1)


def test_why_says_what_history_said() -> None:
    earlier = earlier_study("nightly", PEAK)
    specs = [each.spec for each in earlier.trials]
    policy = BestFirst().remembering((earlier,), specs)
    assert isinstance(policy, Recalling)
    waiting = replace(trial(7), spec=specs[7])
    assert policy.words(waiting) == "not probed yet, place 1 of 12 by earlier studies"


def test_why_says_what_history_said_under_guided_too() -> None:
    earlier = earlier_study("nightly", PEAK)
    specs = [each.spec for each in earlier.trials]
    ledger = Guided().remembering((earlier,), specs).ledger()
    ledger.note([replace(trial(spec.number), spec=spec) for spec in specs])
    claim = ledger.claim(specs[7].id, 0.0, Facts())
    assert claim.reason == "not probed yet, place 1 of 12 by earlier studies"


def test_guided_says_of_a_running_trial_what_history_said_until_its_probe_is_over() -> None:
    earlier = earlier_study("nightly", PEAK)
    specs = [each.spec for each in earlier.trials]
    policy = Guided().remembering((earlier,), specs)
    begun, probed = (replace(trained(7, [1.0] * steps), planned_steps=400) for steps in (5, 30))
    assert policy.words(begun) == "its probe goes on, place 1 of 12 by earlier studies"
    assert policy.words(probed) == "loss 1"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (BestFirst(), "nightly, whose order says what is probed while it holds"),
        (Guided(), "nightly, whose order counts while it holds"),
    ],
)
def test_a_policy_says_which_earlier_studies_it_goes_by(
    policy: BestFirst | Guided, said: str
) -> None:
    earlier = (earlier_study("few", PEAK[:5]), earlier_study("nightly", PEAK))
    specs = [each.spec for each in earlier[1].trials]
    assert policy.remembering(earlier, specs).remembered(earlier, specs) == said


@pytest.mark.parametrize("policy", [BestFirst, Guided])
def test_a_policy_says_why_it_goes_by_no_earlier_study(
    policy: type[BestFirst] | type[Guided],
) -> None:
    all_of, few, none = (earlier_study("nightly", PEAK[:count]) for count in (12, 5, 0))
    specs = [each.spec for each in all_of.trials]

    def said(
        history: Literal["own", "shared", "off"], *earlier: Earlier, asked: Sequence[TrialSpec]
    ) -> str:
        return policy(history=history).remembering(earlier, asked).remembered(earlier, asked)

    assert said("off", all_of, asked=specs) == "none, by `history: off`"
    begun, ended = (
        "none: when this study began",
        "with the same parameter names had 8 trials that had ended",
    )
    assert said("own", asked=specs) == f"{begun}, none of its owner's {ended}"
    assert said("shared", asked=specs) == f"{begun}, none of its owner's or shared with it {ended}"
    assert said("own", all_of, asked=specs[:1]) == "none, as all trials have the same settings"
    begun += ", fewer than 8 trials"
    came = "had come to anything, or all to the same"
    assert said("own", few, asked=specs) == f"{begun} of nightly {came}"
    assert said("own", few, none, asked=specs) == f"{begun} each of nightly, nightly {came}"


@pytest.mark.parametrize("value", ["own", "shared", "off", False])
def test_history_is_a_setting(value: str | bool) -> None:
    policy = make_policy(Plugin("best_first", (("history", value),)))
    assert isinstance(policy, BestFirst)
    assert policy.history == (value or "off")


def test_a_history_of_another_name_is_refused() -> None:
    with pytest.raises(BadSetting, match="one of off, own, shared"):
        make_policy(Plugin("best_first", (("history", "all"),)))
