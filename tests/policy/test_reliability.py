"""How far losses and earlier studies are relied on, by what they predicted among earlier ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermesd.core.model import Phase, Stage
from hermesd.core.policy import Earlier, Field, Ranking
from hermesd.core.trial import Trial, Use
from hermesd.policy.best_first import UNPROMISING, BestFirst, Recalling
from hermesd.policy.memory import MOST_KEPT
from hermesd.policy.reliability import SHARES, Reliability, reliability_of
from hermesd.sim.curves import Job
from hermesd.sim.drive import SimulatedOutcome, earlier_study
from tests.policy.test_best_first import warming_up
from tests.policy.test_memory import STEPS, begins, by_rate, simulated
from tests.policy.trials import trained, trial


def late(shown: Sequence[int], end: Sequence[int]) -> list[Job]:
    """Trainings that rank as `shown` for a tenth of their steps, and as `end` from then on."""
    jobs = []
    for n, (begun, rate) in enumerate(zip(shown, end, strict=True)):
        early = [2 - 0.002 * step * (1 + 0.05 * begun) for step in range(STEPS // 10)]
        then = [early[-1] * math.exp(-0.4 * rate * k / STEPS) for k in range(STEPS - len(early))]
        jobs.append(Job(tuple(early + then), 0.1, STEPS, 1, (("lr", 10.0**-n),)))
    return jobs


END = [1, 2, 3, 4, 5, 12, 11, 10, 9, 8, 7, 6]
# At first the best trials show about as much as the others: a rank correlation of .22 with END.
SHOWN = [6, 2, 9, 4, 11, 8, 3, 12, 1, 10, 5, 7]
LATE = late(SHOWN, END)


def study(jobs: Sequence[Job], name: str = "before") -> Earlier:
    return earlier_study(name, jobs)


def first_finished(outcome: SimulatedOutcome, count: int) -> list[int]:
    ends = outcome.finished
    return sorted(range(len(ends)), key=ends.__getitem__)[:count]


def test_a_single_study_is_not_weighed_against_losses() -> None:
    signs = reliability_of((study(LATE),))
    assert signs == Reliability()
    assert signs.of_loss(0.0) == 1


def test_studies_that_predict_each_other_count_until_losses_say_more() -> None:
    signs = reliability_of((study(LATE), study(LATE, "again")))
    assert signs.history > 0.9
    assert signs.losses[0] < 0.5 < 0.9 < signs.losses[-1]
    assert signs.of_loss(0.025) < 0.2 < 0.4 < signs.of_loss(0.8) < 1


def test_studies_that_contradict_each_other_do_not_count() -> None:
    reversed_ends = late(SHOWN, END[::-1])
    assert reliability_of((study(LATE), study(reversed_ends, "again"))).history == 0


def test_one_that_says_nothing_is_no_second_study() -> None:
    assert reliability_of((study(LATE), study(LATE[:3], "again"))) == Reliability()


def many(count: int, extra: int | None = None) -> list[Job]:
    """Trainings, of which one alone has a parameter `augment` besides, as a fork may."""
    return [
        replace(job, parameters=(("augment", 1.0), *job.parameters)) if n == extra else job
        for n, job in enumerate(LATE[n % 12] for n in range(count))
    ]


@pytest.mark.parametrize("extra", range(2))
def test_a_parameter_that_one_of_many_trials_has_keeps_nothing_from_being_predicted(
    extra: int,
) -> None:
    signs = reliability_of((study(many(2 * MOST_KEPT, extra)), study(many(2 * MOST_KEPT), "again")))
    assert signs.history > 0.9


def test_studies_that_predict_each_other_worse_than_losses_did_are_not_weighed() -> None:
    rates = [1, 3, 2, 5, 4, 6, 8, 7, 10, 9, 12, 11]
    one, swapped = by_rate(lambda n: rates[n]), by_rate(lambda n: rates[n ^ 2])
    signs = reliability_of((study(one), study(swapped, "again")))
    assert signs.losses[0] > 0.9
    assert signs.history == 0


@given(
    st.lists(st.floats(-1, 1), min_size=len(SHARES), max_size=len(SHARES)),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_what_a_loss_counts_is_a_share_and_never_less_later(
    told: list[float], history: float, early: float, later: float
) -> None:
    signs = Reliability(tuple(sorted(told)), history)
    shares = sorted([early, later])
    assert 0 <= signs.of_loss(shares[0]) <= signs.of_loss(shares[1]) + 1e-12 <= 1 + 1e-12


SLOW = np.arange(16.0)
# Losses told nothing of the ends at first, and all of it later.
LATE_SIGNS = Reliability((0.0, 0.0, 0.2, 0.5, 0.9, 0.99), 0.9)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_probed_trials_say_nothing_yet(count: int) -> None:
    few = SLOW[:count]
    assert not Reliability().holds(few, few, [0.025] * count)
    assert not LATE_SIGNS.holds(few, few, [0.025] * count)


def test_what_is_the_same_for_all_says_nothing() -> None:
    same = np.zeros(16)
    assert not Reliability().holds(same, SLOW, [0.025] * 16)
    assert Reliability().holds(SLOW, same, [0.025] * 16), "the probed contradict nothing"


@given(st.permutations(range(16)))
def test_an_order_holds_if_probed_trials_confirm_it_and_not_if_they_show_the_opposite(
    shown: list[int],
) -> None:
    predicted, shares = np.array(shown, float), [0.025] * 16
    assert Reliability().holds(predicted, predicted, shares)
    assert not Reliability().holds(predicted, -predicted, shares)


def test_an_order_is_contradicted_by_late_losses_only_where_early_ones_said_nothing() -> None:
    assert LATE_SIGNS.holds(SLOW, -SLOW, [0.025] * 16)
    assert not LATE_SIGNS.holds(SLOW, -SLOW, [0.4] * 16)


def test_the_more_trials_show_something_else_the_less_an_order_holds() -> None:
    told = Reliability((0.7,) * len(SHARES), 0.7)
    halves, unrelated = np.tile([0.0, 0.0, 1.0, 1.0], 8), np.tile([0.0, 1.0, 1.0, 0.0], 8)
    believed = [
        told.holds(halves[:count], unrelated[:count], [0.1] * count) for count in range(4, 33, 4)
    ]
    assert believed[0], "nine to one at first"
    assert not believed[-1]
    assert believed == sorted(believed, reverse=True)


def test_two_studies_overrule_early_losses_that_said_little_there() -> None:
    one, two = (
        simulated(LATE, *(study(LATE, name) for name in names)) for names in (["a"], ["a", "b"])
    )
    assert set(first_finished(two, 2)) == {END.index(12), END.index(11)}
    assert set(first_finished(one, 2)) != {END.index(12), END.index(11)}


def ranked(
    diverged: int | None = None,
    new: int | None = None,
    steps: int = 20,
    told: int | None = STEPS,
    finished: int | None = None,
    studies: Sequence[str] = ("monday", "tuesday"),
    enough: bool = False,
) -> tuple[Ranking, list[Trial]]:
    """How the trials of `LATE` are ranked once each had so many steps but a new one, after studies
    of them; and they have told so long a length. One may have trained to its end, and these may be
    enough for now."""
    earlier = [study(LATE, name) for name in studies]
    specs = [each.spec for each in earlier[0].trials]
    policy = BestFirst().remembering(earlier, specs)
    assert isinstance(policy, Recalling)
    probed = []
    for spec, job in zip(specs, LATE, strict=True):
        done = job.losses[: STEPS if spec.number == finished else steps]
        losses = [math.nan] * steps if spec.number == diverged else done
        phase = Phase.COMPLETED if spec.number == finished else Phase.WAITING
        if spec.number == new:
            probed.append(replace(trial(spec.number, planned_steps=told), spec=spec))
            continue
        shown = trained(spec.number, losses, planned_steps=told, phase=phase)
        probed.append(replace(shown, spec=spec, use=Use(busy_seconds=0.1 * len(losses))))
    leader = min(probed, key=policy.level)
    first = min((each for each in probed if each.candidate), key=policy.score)
    return policy.adapted(Field(leader, probed, enough)).facing(first), probed


def test_why_says_how_much_earlier_studies_count_beside_a_loss() -> None:
    ranking, probed = ranked()
    assert min(probed, key=ranking.score).spec.number == 6
    assert ranking.words(probed[6]).startswith("loss 1.9")
    assert ranking.words(probed[6]).endswith(
        "; place 1 of 12 by earlier studies, which counts 100% of its rank"
    )


@pytest.mark.parametrize("ran_before", [True, False])
def test_a_trial_that_never_ran_is_last_by_loss_but_middling_where_settings_are_new(
    ran_before: bool,
) -> None:
    earlier = (study(LATE, "monday"), study(LATE, "tuesday"))
    specs = [each.spec for each in earlier[0].trials]
    if not ran_before:
        specs = [
            replace(spec, stages=(Stage(None, (("lr", 1.1 * 10.0**-n),)),))
            for n, spec in enumerate(specs)
        ]
    policy = BestFirst().remembering(earlier, specs)
    assert isinstance(policy, Recalling)
    few = [
        trained(spec.number, LATE[spec.number].losses[:20], planned_steps=STEPS)
        for spec in specs[:8]
    ]
    probed = [
        replace(each, spec=spec, use=Use(busy_seconds=2.0))
        for each, spec in zip(few, specs[:8], strict=True)
    ]
    new = replace(trial(8, planned_steps=STEPS), spec=specs[8])
    leader = min(probed, key=policy.level)
    ranking = policy.adapted(Field(leader, [*probed, new])).facing(new)
    weight, by_history = policy.reliability.of_loss(0.0), policy.memory.rank(8) / len(specs)
    assert weight > 0
    by_loss = 1.0 if ran_before else 0.5
    assert ranking.score(new)[1] == pytest.approx(weight * by_loss + (1 - weight) * by_history)


def test_one_that_was_predicted_to_lead_goes_before_probed_ones_without_its_own_probe() -> None:
    best, worst = 6, 0
    first, others = ranked(new=best)
    assert min(others, key=first.score).spec.number == best
    assert first.words(others[best]) == "not probed yet, place 1 of 12 by earlier studies"
    last, others = ranked(new=worst)
    assert max(others, key=last.score).spec.number == worst


def test_one_that_was_predicted_to_lead_waits_for_no_probed_one_once_the_leader_is_done() -> None:
    first, others = ranked(new=6, steps=STEPS // 4, finished=5)
    assert min(others, key=first.score).spec.number == 6


@pytest.mark.parametrize("studies", [["monday"], ["monday", "tuesday"]])
def test_where_enough_were_probed_one_that_was_not_waits_unless_it_is_ranked_with_them(
    studies: Sequence[str],
) -> None:
    best = 6
    ranking, trials = ranked(new=best, studies=studies, enough=True)
    first, *_, last = (each.spec.number for each in sorted(trials, key=ranking.score))
    assert (last if len(studies) == 1 else first) == best


@pytest.mark.parametrize("enough", [False, True])
def test_what_a_single_study_promises_nothing_of_is_told_so_while_others_wait(enough: bool) -> None:
    worst = 0
    ranking, trials = ranked(new=worst, studies=["monday"], enough=enough, steps=STEPS // 2)
    assert ranking.score(trials[worst])[0] == UNPROMISING
    assert "not expected among the fastest" in ranking.words(trials[worst])


def test_trials_that_tell_no_length_are_as_far_as_earlier_ones_were_then() -> None:
    counts = []
    for told in (STEPS, None):
        ranking, others = ranked(steps=STEPS * 9 // 10, told=told)
        counts.append(ranking.words(others[5]).rpartition(" counts ")[2])
    assert counts[0] == counts[1] != "100%"


def test_a_policy_says_whether_it_weighs_losses_against_what_was_predicted() -> None:
    told = []
    for earlier in ((study(LATE, "monday"),), (study(LATE, "monday"), study(LATE, "tuesday"))):
        specs = [each.spec for each in earlier[0].trials]
        told.append(BestFirst().remembering(earlier, specs).remembered(earlier, specs))
    assert told == [
        "monday, whose order says what is probed while it holds",
        "monday, tuesday, whose order counts beside the losses while it holds",
    ]


def test_losses_are_not_looked_at_again_where_it_is_known_what_they_show() -> None:
    falling = warming_up(8, apart=0.1, fall=3.0)
    specs = [each.spec for each in falling]
    one = BestFirst().remembering((study(LATE),), specs)
    two = BestFirst().remembering((study(LATE), study(LATE, "again")), specs)
    assert one.suited(falling).probe_share == one.second_look
    assert two.suited(falling) == two


def test_a_loss_that_is_no_number_is_not_made_up_for_by_what_was_predicted() -> None:
    ranking, probed = ranked(diverged=6)
    assert "counts 100%" in ranking.words(probed[5])
    assert max(probed, key=ranking.score).spec.number == 6


@pytest.mark.parametrize("count", [1, 2])
def test_why_says_that_an_order_does_not_hold_where_it_would_have_counted(count: int) -> None:
    peak, here = (by_rate(rate) for rate in (lambda n: 6.0 - abs(n - 7), lambda n: 1 + abs(n - 7)))
    earlier = tuple(study(peak, name) for name in ("monday", "tuesday")[:count])
    specs = [each.spec for each in earlier[0].trials]
    policy = BestFirst().remembering(earlier, specs)
    shown = [trained(n, here[n].losses[:40], planned_steps=STEPS) for n in range(11)]
    shown = [
        replace(each, spec=spec, use=Use(busy_seconds=4.0))
        for each, spec in zip(shown, specs, strict=False)
    ]
    new = replace(trial(11, planned_steps=STEPS), spec=specs[11])
    ranking = policy.adapted(Field(min(shown, key=policy.level), shown)).facing(new)
    fails = "by earlier studies, which does not hold so far"
    assert ranking.words(new).endswith(fails)
    # After one study, losses alone decide among the probed whether it holds or not.
    assert ranking.words(shown[3]).endswith(fails) == (count > 1)


def test_an_order_that_does_not_hold_here_is_ignored_however_many_studies_agree() -> None:
    peak = by_rate(lambda n: 6.0 - abs(n - 7))
    here = by_rate(lambda n: 1.0 + abs(n - 7))
    outcome = simulated(here, study(peak), study(peak, "again"))
    assert max(begins(outcome).values()) < min(outcome.finished)
