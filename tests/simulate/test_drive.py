"""The scheduler in virtual time: every second of a small order is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hermesd.core.model import Plugin, Quantum
from hermesd.core.policy import Claim, Policy
from hermesd.policy.fifo import Fifo
from hermesd.sim.bound import bound_of, check
from hermesd.sim.curves import Passes
from hermesd.sim.drive import Drive, SimulatedOutcome, SimulationStalled
from hermesd.sim.figures import figures_of
from tests.simulate.small import EXAMPLE, FREE, SLOW, STEEP, job, order, play


def stays(outcome: SimulatedOutcome) -> list[tuple[int, int, int, list[float]]]:
    """Trial, first and last step, and the times of each stay, as they ended."""
    return [
        (s.trial, s.first, s.last, [round(t, 9) for t in (s.taken, s.begun, s.ended, s.freed)])
        for s in outcome.stays
    ]


def test_fifo_pays_every_first_start_and_nothing_else() -> None:
    outcome = play(EXAMPLE, Plugin("fifo"))
    assert stays(outcome) == [
        (0, 0, 4, [0, 0.64, 4.64, 4.64]),
        (1, 0, 4, [4.64, 5.28, 9.28, 9.28]),
    ]
    assert outcome.finished == pytest.approx((4.64, 9.28))
    assert (outcome.switches, outcome.overhead_seconds) == (0, 0.0)


def test_a_population_trains_in_rounds() -> None:
    outcome = play(EXAMPLE, Plugin("pbt", (("ready", 2),)))
    rounds = [(trial, first, last) for trial, first, last, _ in stays(outcome)]
    assert rounds == [(0, 0, 2), (1, 0, 2), (0, 2, 4), (1, 2, 4)]


def test_each_turn_is_left_for_36_and_resumed_for_64_percent_of_a_switch() -> None:
    outcome = play(EXAMPLE, Plugin("round_robin", (("quantum_seconds", 2.0),)))
    assert stays(outcome) == [
        (0, 0, 2, [0, 0.64, 2.64, 3.0]),
        (1, 0, 2, [3.0, 3.64, 5.64, 6.0]),
        (0, 2, 4, [6.0, 6.64, 8.64, 8.64]),
        (1, 2, 4, [8.64, 9.28, 11.28, 11.28]),
    ]
    assert outcome.finished == pytest.approx((8.64, 11.28))
    assert outcome.switches == 2
    assert outcome.overhead_seconds == pytest.approx(2 * 0.36 + 2 * 0.64)


def test_a_first_iteration_may_take_longer_and_an_end_its_time() -> None:
    """Turns of 2 s: the first iteration of 3 s is longer than one, and is not cut in two."""
    opened = tuple(replace(each, opening_seconds=2.0) for each in EXAMPLE.jobs)
    slow = replace(EXAMPLE, jobs=opened, switch=replace(EXAMPLE.switch, ending=0.5))
    outcome = play(slow, Plugin("round_robin", (("quantum_seconds", 2.0),)))
    assert stays(outcome) == [
        (0, 0, 1, [0, 2.64, 3.64, 4.0]),
        (1, 0, 1, [4.0, 6.64, 7.64, 8.0]),
        (0, 1, 3, [8.0, 8.64, 10.64, 11.0]),
        (1, 1, 3, [11.0, 11.64, 13.64, 14.0]),
        (0, 3, 4, [14.0, 14.64, 15.64, 16.14]),
        (1, 3, 4, [16.14, 16.78, 17.78, 18.28]),
    ]
    assert outcome.stays[0].time_of(1) == pytest.approx(3.64)
    assert outcome.finished == pytest.approx((16.14, 18.28))


def test_what_follows_a_pass_is_waited_for() -> None:
    """Turns of 2 s, that end within the second and a half after each trial's second iteration."""
    passing = tuple(replace(each, passes=Passes(2, 1.5)) for each in EXAMPLE.jobs)
    slow = replace(EXAMPLE, jobs=passing)
    outcome = play(slow, Plugin("round_robin", (("quantum_seconds", 2.0),)))
    assert stays(outcome) == [
        (0, 0, 2, [0, 0.64, 4.14, 4.5]),
        (1, 0, 2, [4.5, 5.14, 8.64, 9.0]),
        (0, 2, 4, [9.0, 9.64, 13.14, 13.14]),
        (1, 2, 4, [13.14, 13.78, 17.28, 17.28]),
    ]
    assert [outcome.stays[0].time_of(step) for step in (1, 2)] == pytest.approx([1.64, 4.14])
    check(figures_of(slow, outcome), bound_of(slow, 1), "turns")


def test_a_quantum_ends_at_the_boundary_after_its_seconds() -> None:
    outcome = play(EXAMPLE, Plugin("round_robin", (("quantum_seconds", 1.5),)))
    assert stays(outcome)[0] == (0, 0, 2, [0, 0.64, 2.64, 3.0])


def test_a_quantum_may_be_longer_than_steps_can_count() -> None:
    """In 1e308 s there are more iterations of 0.1 s than a number can say."""
    jobs = tuple(replace(each, step_seconds=0.1) for each in EXAMPLE.jobs)
    outcome = play(replace(EXAMPLE, jobs=jobs), Plugin("hermes", (("quantum_seconds", 1e308),)))
    assert [(stay.first, stay.last) for stay in outcome.stays] == [(0, 4), (0, 4)]


def test_devices_work_side_by_side() -> None:
    outcome = play(order(SLOW, STEEP, SLOW), Plugin("fifo"), devices=2)
    assert [(s.trial, s.device) for s in outcome.stays] == [(0, 0), (1, 1), (2, 0)]
    assert outcome.finished == pytest.approx((4.64, 4.64, 9.28))


def test_homes_hold_back_what_they_have_no_room_for() -> None:
    """One trial a device: the third is bound, hence launched, when the first has ended."""
    homes = Plugin("homes", (("G_thres", 1),))
    turns = Plugin("round_robin", (("quantum_seconds", 1.0),))
    outcome = play(order(SLOW, STEEP, SLOW), turns, devices=2, placement=homes)
    assert outcome.switches == 0
    assert [(s.trial, s.device) for s in outcome.stays] == [(0, 0), (1, 1), (2, 0)]


def test_a_rung_ends_a_stay_at_its_very_step() -> None:
    rungs = Plugin("asha", (("eta", 2), ("min_rung", 3.0)))
    outcome = play(EXAMPLE, rungs)
    assert [(s.trial, s.first, s.last) for s in outcome.stays][:2] == [(0, 0, 3), (1, 0, 4)]


@pytest.mark.parametrize(("announced", "rung"), [(None, 20), (480, 30)])
def test_policies_know_the_announced_length_alone(announced: int | None, rung: int) -> None:
    """That trials end after 40 iterations nobody knows: rungs are shares of what is told."""
    curves = [tuple(10.0 - step / 10 for step in range(40))] * 2
    jobs = tuple(replace(job(losses), announced=announced) for losses in curves)
    outcome = play(replace(order(*curves), jobs=jobs), Plugin("asha"))
    assert stays(outcome)[0][:3] == (0, 0, rung)
    assert len(outcome.finished) == 2


def test_best_first_waits_for_a_loss_that_is_told_once_an_epoch() -> None:
    """Six trials of ten epochs of ten iterations of 1 s; the last submitted is the best."""
    curves = [tuple(n + 1 / (1 + step // 10) for step in range(1, 101)) for n in range(6, 0, -1)]
    jobs = tuple(replace(job(losses), points=tuple(range(10, 101, 10))) for losses in curves)
    outcome = play(replace(order(*curves, switch=0.1), jobs=jobs), Plugin("best_first"))
    begun = {stay.trial: stay.taken for stay in reversed(outcome.stays)}
    # Each is left when it has shown a loss; in order of submission the last would begin at 500 s.
    assert max(begun.values()) < 100
    assert outcome.finished[5] < 250


def test_a_milestone_lengthens_the_quantum_in_progress() -> None:
    """Trial 0 falls by half in its second quantum of 2 s, which then is one of 5 s."""
    falling = (10.0, 9.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0)
    settings = (
        ("quantum_seconds", 2.0),
        ("growth_seconds", 3.0),
        ("milestones", (50.0,)),
        ("winner_may_stay", False),
    )
    outcome = play(order(falling, (10.0,) * 10), Plugin("hermes", settings))
    assert stays(outcome)[:3] == [
        (0, 0, 2, [0, 0.64, 2.64, 3.0]),
        (1, 0, 2, [3.0, 3.64, 5.64, 6.0]),
        (0, 2, 7, [6.0, 6.64, 11.64, 12.0]),
    ]


def test_a_trial_whose_loss_breaks_is_stopped_there() -> None:
    broken = replace(EXAMPLE, jobs=(job((3.0, 2.0), diverges=True), EXAMPLE.jobs[1]))
    outcome = play(broken, Plugin("fifo"))
    assert stays(outcome)[0] == (0, 0, 2, [0, 0.64, 2.64, 3.0])
    assert outcome.finished == pytest.approx((3.0, 7.64))
    assert outcome.switches == 0


FIFO = Plugin("fifo")


class Raising(Fifo):
    def score(self, trial: Any) -> Any:
        raise ZeroDivisionError("no score")


class Idle:
    name = "idle"

    def plan(self, view: Any) -> list[Claim]:
        return [
            Claim(trial.id, Quantum(), "") for trial in view.trials[:1] if trial.id == "study/0"
        ]

    def words(self, trial: Any) -> str:
        return ""


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Raising, "policy any raised .*no score"),
        (Idle, r"policy any claims none of the trials that are left \(1 of 2\)"),
    ],
)
def test_a_policy_that_fails_is_never_replaced_in_silence(policy: type, why: str) -> None:
    def make(plugin: Plugin) -> Policy:
        return Fifo() if plugin == FIFO else policy()  # type: ignore[no-any-return]

    simulation = Drive(EXAMPLE, 1, Plugin("any"), Plugin("free"), make=make)
    with pytest.raises(SimulationStalled, match=why):
        simulation.run()


def test_best_first_probes_slow_trials_for_as_many_steps_as_fast_ones() -> None:
    """Iterations of 0.1, 1 and 10 s: 2.5 % of 200 steps are 5, whatever those before them took."""
    curve = [10.0 - step / 20 for step in range(200)]
    jobs = tuple(job(curve, seconds) for seconds in (1.0, 0.1, 10.0, 0.1, 10.0))
    outcome = play(replace(EXAMPLE, jobs=jobs), Plugin("best_first"))
    first = {each.trial: each.last for each in reversed(outcome.stays)}
    assert [first[trial] for trial in range(1, 5)] == [5, 5, 5, 5]


def test_a_trial_has_a_second_device_from_when_nobody_waits_for_it() -> None:
    """Steps of 1 s, and of 0.5 s on two devices; 10 s a turn."""
    long, short = [float(200 - step) for step in range(100)], [9.0] * 15
    jobs = order(long, short)
    turns = Plugin("round_robin", (("quantum_seconds", 10.0),))
    outcome = Drive(jobs, 2, turns, FREE, widest=2, gain=lambda width: float(width)).run()
    paces = [stay.step_seconds for stay in outcome.stays if stay.trial == 0]
    assert paces == [1.0, 0.5]
    (_, wide) = (stay for stay in outcome.stays if stay.trial == 0)
    assert wide.taken >= outcome.finished[1]
    assert outcome.finished[0] == pytest.approx(wide.first + 0.64 + 1.0 + (100 - wide.first) / 2)
    alone = Drive(jobs, 2, turns, FREE).run()
    assert alone.finished[0] == pytest.approx(100.64)
