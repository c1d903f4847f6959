"""Population-based training: when a round ends, and who is replaced by a fork of whom."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermesd.core.losses import chunked
from hermesd.core.model import Checkpoint, Fidelity, Phase
from hermesd.core.policy import BadSetting, Exploit, View
from hermesd.core.trial import Trial
from hermesd.policy.published.pbt import Pbt
from tests.policy.trials import on_device, trained, trial, view

TEN = Pbt(ready=10)


def saved(number: int, step: int) -> Checkpoint:
    return Checkpoint(f"s/{number}@{step}", f"s/{number}", 1, step, "5ha", 1, ("n",))


def member(number: int, loss: float, step: int = 10, **known: Any) -> Trial:
    """One that has trained so far, with a checkpoint there."""
    shown = {"checkpoint": saved(number, step), "fidelity": Fidelity.EXACT}
    return trained(number, [loss] * step, **{**shown, **known})


def population(size: int = 10, step: int = 10) -> list[Trial]:
    return [member(number, float(number), step) for number in range(size)]


def planned(policy: Pbt, study: View) -> dict[str, int | None]:
    return {claim.trial: claim.quantum.until_step for claim in policy.plan(study)}


def test_nobody_goes_past_the_round_before_all_have_come_to_its_end() -> None:
    late = member(0, 0.5, 7)
    study = view(late, *population()[1:])
    assert planned(TEN, study) == {"s/0": 10}
    assert TEN.exploits(study) == ()
    assert planned(TEN, view(trial(0), trial(1))) == {"s/0": 10, "s/1": 10}


def test_the_worst_fifth_is_replaced_by_forks_of_the_best() -> None:
    study = view(*population())
    exploits = TEN.exploits(study)
    assert {each.loser for each in exploits} == {"s/8", "s/9"}
    assert {each.winner for each in exploits} <= {"s/0", "s/1"}
    assert planned(TEN, study) == {f"s/{number}": 20 for number in range(8)}
    assert TEN.exploits(view(*reversed(population()))) == exploits, "in whatever order they came"


def test_a_round_has_one_exchange() -> None:
    forks = [
        replace(member(number, 0.0), forked=saved(0, 10), spec=proposed(number))
        for number in (10, 11)
    ]
    study = view(*population()[:8], *forks)
    assert TEN.exploits(study) == ()
    assert planned(TEN, study) == dict.fromkeys([each.id for each in study.trials], 20)
    later = [
        replace(each, step=20, checkpoint=saved(each.spec.number, 20)) for each in study.trials
    ]
    assert {each.loser for each in TEN.exploits(view(*later))} == {"s/6", "s/7"}


def proposed(number: int) -> Any:
    return replace(trial(number).spec, proposal="pbt")


@pytest.mark.parametrize("exploit", ["truncation", "tournament"])
def test_a_round_that_ends_the_training_replaces_nobody(exploit: Any) -> None:
    """A fork would have nothing left to train."""
    policy = Pbt(ready=10, exploit=exploit)
    for steps, replaces in ((10, False), (11, True)):
        study = view(*(replace(each, planned_steps=steps) for each in population()))
        assert bool(policy.exploits(study)) is replaces
        assert "s/0" in planned(policy, study), "all go on to their ends"


def test_a_fork_whose_checkpoint_is_away_keeps_nobody_waiting() -> None:
    away = replace(trial(10), forked=saved(0, 10), spec=proposed(10))
    assert away.awaits_fork
    study = view(*population(8, 20), away)
    assert TEN.exploits(study)
    assert "s/10" not in planned(TEN, study)


def test_a_trial_that_failed_or_diverged_is_replaced_first_and_once() -> None:
    failed = replace(trial(3), phase=Phase.FAILED)
    nan = replace(trial(4), phase=Phase.STOPPED, not_finite=True)
    stopped = replace(trial(5), phase=Phase.STOPPED)
    study = view(*population(3), failed, nan, stopped)
    assert [each.loser for each in Pbt(ready=10, share=0.4).exploits(study)] == ["s/3", "s/4"]
    gone = [replace(each, replaced_by="s/9") for each in (failed, nan)]
    assert [each.loser for each in TEN.exploits(view(*population(3), *gone))] == ["s/2"]


def test_who_cannot_be_forked_is_no_winner_and_without_one_all_go_on() -> None:
    blind = [replace(each, checkpoint=None) for each in population()]
    assert not TEN.exploits(view(*blind))
    assert len(planned(TEN, view(*blind))) == 10
    first, *others = population()
    image = replace(first, checkpoint=replace(saved(0, 10), image_of="n"))
    assert {each.winner for each in TEN.exploits(view(image, *others))} == {"s/1"}
    park = replace(first, fidelity=Fidelity.PARK_ONLY)
    assert {each.winner for each in TEN.exploits(view(park, *others))} == {"s/1"}


def test_the_round_waits_for_the_checkpoint_that_is_being_written() -> None:
    first, *others = population()
    writing = on_device(replace(first, checkpoint=None))
    assert TEN.exploits(view(writing, *others)) == ()
    assert planned(TEN, view(writing, *others)) == {"s/0": 20}, "it keeps its device meanwhile"


def test_in_a_tournament_each_worse_one_of_two_is_replaced() -> None:
    study = view(*population())
    exploits = Pbt(ready=10, exploit="tournament").exploits(study)
    assert exploits
    assert all(int(each.winner[2:]) < int(each.loser[2:]) for each in exploits)
    assert len({each.loser for each in exploits}) == len(exploits)


values = st.lists(st.integers(-999, 999).map(float), min_size=2, max_size=12)


@given(values, values)
def test_a_t_test_tells_what_is_clear_from_chance(one: list[float], other: list[float]) -> None:
    """As SciPy does, but with degrees of freedom that are rounded down: never more certain."""
    from scipy import stats  # not by each worker that only collects

    winner, loser = sorted((one, other), key=lambda each: fmean(each[-3:]))
    assume(fmean(winner[-3:]) < fmean(loser[-3:]) and fmean(winner[-10:]) < fmean(loser[-10:]))
    assume(min(np.var(winner[-10:]), np.var(loser[-10:])) > 0)
    found = stats.ttest_ind(winner[-10:], loser[-10:], equal_var=False)
    chance = 2 * stats.t.sf(abs(found.statistic), max(1, int(found.df + 1e-9)))
    assume(0.001 < chance < 0.99)
    study = view(*(shown(number, each) for number, each in enumerate((winner, loser))))
    for times, expected in ((1.001, [Exploit("s/1", "s/0")]), (0.999, [])):
        policy = Pbt(ready=12, exploit="t_test", significance=chance * times)
        assert policy.exploits(study) == expected


def shown(number: int, losses: list[float]) -> Trial:
    """A trial that has told these of its last steps before step 12."""
    known = member(number, 0.0, 12)
    return replace(known, curve=chunked(13 - len(losses), losses))


def test_by_a_t_test_one_without_a_loss_is_replaced_and_equals_are_not() -> None:
    policy = Pbt(ready=12, exploit="t_test")
    blind = replace(member(1, 0.0, 12), curve=())
    assert policy.exploits(view(shown(0, [1.0, 2.0]), blind)) == [Exploit("s/1", "s/0")]
    assert policy.exploits(view(shown(0, [1.0, 2.0]), shown(1, [1.0, 2.5]))) == []
    assert policy.exploits(view(shown(0, [1.0]), shown(1, [9.0]))) == [], "one value is no sample"


def test_of_equals_none_is_replaced() -> None:
    assert TEN.exploits(view(*(member(number, 1.0) for number in range(5)))) == []


def test_rounds_may_be_told_in_epochs() -> None:
    assert planned(Pbt(ready=2, steps_per_epoch=30), view(trial(0))) == {"s/0": 60}


@pytest.mark.parametrize(
    "wrong",
    [
        {"ready": 0},
        {"steps_per_epoch": 0},
        {"share": 0.6},
        {"share": 0.0},
        {"resample": 1.5},
        {"significance": 0.0},
        {"perturb": ()},
        {"perturb": (0.0,)},
    ],
)
def test_settings_without_a_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        Pbt(**wrong)
