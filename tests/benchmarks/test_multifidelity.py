"""A schedule of another's is timed as the simulator times ours, and nobody is left untrained."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.research.multifidelity import Stretch, timed, to_the_end, with_switch
from hermesd.core.model import Plugin
from hermesd.sim.compare import Recorded, Scene, order_of
from hermesd.sim.drive import Drive, SimulatedOutcome
from hermesd.sim.figures import effort_of, figures_of
from hermesd.sim.orders import BINS, SubmissionOrder
from tests.simulate.small import trainings


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> SubmissionOrder:
    path = trainings(tmp_path_factory.mktemp("curves") / "a.npz", trials=40, steps=200, seed=5)
    return order_of(Scene(Recorded(path, "base", None), 1, BINS["1"], 16, 1, 0), 0)


def stretches(outcome: SimulatedOutcome) -> list[Stretch]:
    return [Stretch(stay.trial, stay.first, stay.last) for stay in outcome.stays]


@pytest.mark.parametrize("seconds", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("policy", ["fifo", "asha", "best_first"])
def test_what_our_policy_did_is_timed_as_it_was(
    order: SubmissionOrder, policy: str, seconds: float
) -> None:
    order = with_switch(order, seconds)
    drive = Drive(order, 1, Plugin(policy), Plugin("free"))
    theirs = drive.run()
    ours = timed(order, stretches(theirs))
    assert asdict(figures_of(order, ours)) == pytest.approx(asdict(figures_of(order, theirs)))
    assert ours.switches == theirs.switches
    assert effort_of(ours).overhead == pytest.approx(effort_of(theirs).overhead)


def test_a_search_that_is_cut_off_did_what_the_whole_one_did_by_then(
    order: SubmissionOrder,
) -> None:
    whole = Drive(order, 1, Plugin("asha"), Plugin("free")).run()
    stays = whole.stays
    until = stays[len(stays) // 2].freed
    drive = Drive(order, 1, Plugin("asha"), Plugin("free"))
    drive.play(until)
    begun = [stay for stay in stays if stay.freed <= until]
    assert tuple(drive.stays[: len(begun)]) == tuple(begun)
    assert len(begun) <= len(drive.stays) < len(stays)
    assert len(timed(order, stretches(whole), until).stays) <= len(begun) + 1


def test_trials_left_paused_are_trained_on_by_their_last_loss(order: SubmissionOrder) -> None:
    low, high = sorted((3, 5), key=lambda place: order.jobs[place].losses[49])
    steps = order.jobs[0].steps
    plan = list(
        to_the_end(order, [Stretch(0, 0, steps), Stretch(high, 0, 50), Stretch(low, 0, 50)])
    )
    assert plan[3:5] == [Stretch(low, 50, steps), Stretch(high, 50, steps)]
    trained = {each.trial: each.last for each in plan}
    assert trained == {place: job.steps for place, job in enumerate(order.jobs)}


def test_a_trial_that_goes_on_at_once_is_not_switched(order: SubmissionOrder) -> None:
    steps = order.jobs[0].steps
    in_parts = timed(order, [Stretch(0, 0, 10), Stretch(0, 10, steps)])
    assert in_parts == timed(order, [Stretch(0, 0, steps)])
    assert in_parts.switches == 0
    assert in_parts.overhead_seconds == 0.0
