"""Trials that may have more devices or fewer: as few as they may while others wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from hermesd.core.commands import Launch
from hermesd.core.decide.resizing import spare_to_first
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import (
    Checkpointed,
    Event,
    FidelityKnown,
    NodeDrained,
    NodeLost,
    NodeSilent,
    NodeUndrained,
    Paused,
    QuantumEnded,
    RunFailed,
    RunStarted,
    RunSuspended,
    Spoilt,
    TermsSet,
    Unpaused,
)
from hermesd.core.failures import kept_parked
from hermesd.core.model import (
    Fidelity,
    LiveRun,
    Phase,
    Plugin,
    Quantum,
    RetryAction,
    RetryRule,
    Stage,
    Tier,
    TrialId,
)
from hermesd.core.node.messages import assignment
from hermesd.core.placement import make_placement
from hermesd.core.policy import Claim, ElasticJob, Facts, View
from hermesd.core.resume_points import width_patience_seconds
from hermesd.core.sharing import Terms
from hermesd.core.state import State
from hermesd.core.trial import RESTORE, Run, Trial
from hermesd.core.widths import learned, narrowed, speed_of
from hermesd.policy import make_policy
from tests.core.playbook import (
    LEASE,
    Playbook,
    checkpoint,
    joined,
    parked,
    play,
    quantum_ended,
    reported,
    run,
    started,
    submitted,
    tables,
    trial_spec,
    written,
)

TURNS = Plugin("round_robin", (("quantum_seconds", 30.0),))
EXACT = Fidelity.EXACT


def elastic(trials: int = 1, devices: int = 4, most: int = 4, **changes: Any) -> Playbook:
    """A study whose trials may have from one device to `most`."""
    return play(trials, devices, **{"most_devices": most, "policy": TURNS, **changes})


def trains(
    book: Playbook,
    name: str,
    step: int,
    steps: int,
    seconds: float,
    planned: int = 10_000,
    framework: str = "explicit",
    fidelity: Fidelity = EXACT,
) -> Playbook:
    """A run that starts at a step and does so many more, each in so many seconds."""
    run = book.trial(name.partition("#")[0]).run.id
    book.tell(started(name, step, planned), FidelityKnown(run, fidelity, "", framework))
    book.tell(reported(name, step + 1, [1.0], busy_seconds=seconds))  # the first compiles
    return book.tell(
        reported(name, step + steps, [1.0] * (steps - 1), busy_seconds=seconds * (steps - 1))
    )


def test_it_begins_on_as_few_devices_as_it_may() -> None:
    elastic().expect("launch s/0#1 on n/0 for 30 s")


def test_what_nobody_waits_for_is_given_to_it_when_its_quantum_is_over() -> None:
    book = elastic()
    trains(book, "s/0#1", 0, 30, 1.0).expect("launch s/0#1 on n/0 for 30 s")
    book.at(30).tell(quantum_ended("s/0#1", 0, 30)).expect("suspend s/0#1 by checkpoint")
    book.tell(written("s/0#1", 30)).expect("launch s/0#2 on n/0, n/1 for 30 s from s/0#1@30")
    # It becomes as fast as was hoped: twice as many are tried.
    trains(book, "s/0#2", 30, 60, 0.5)
    book.at(60).tell(quantum_ended("s/0#2", 0, 90)).expect("suspend s/0#2 by checkpoint")
    book.tell(written("s/0#2", 90))
    book.expect("launch s/0#3 on n/0, n/1, n/2, n/3 for 30 s from s/0#2@90")


def test_more_devices_that_do_not_help_are_given_back_by_none_and_not_tried_again() -> None:
    book = elastic(2, 4, 2)
    trains(book, "s/0#1", 0, 30, 1.0)
    trains(book, "s/1#1", 0, 30, 1.0).heard()
    book.at(30).tell(quantum_ended("s/0#1", 0, 30), written("s/0#1", 30)).heard()
    trains(book, "s/0#2", 30, 30, 1.0)
    book.at(60).tell(quantum_ended("s/1#1", 0, 60)).expect("renew s/1#1.1 for 30 s")


@pytest.mark.parametrize(
    ("framework", "fidelity", "why"),
    [
        ("torch 2.13.0", EXACT, "its checkpoints are of one number of devices"),
        ("none", Fidelity.PARK_ONLY, "it cannot be resumed from a checkpoint"),
    ],
)
def test_what_cannot_be_resized_keeps_to_the_fewest_and_why_says_so(
    framework: str, fidelity: Fidelity, why: str
) -> None:
    book = elastic()
    trains(book, "s/0#1", 0, 30, 1.0, framework=framework, fidelity=fidelity).heard()
    book.at(30).tell(quantum_ended("s/0#1", 0, 30)).expect("renew s/0#1.1 for 30 s")
    said = book.scheduler.explain("s/0", book.now).summary
    assert f"it may have 1 to 4 devices, and keeps to the fewest, as {why}; on 1 it does" in said
    assert "a resize would take" not in said


@pytest.mark.parametrize("framework", ["torch-ddp 2.13.0", "tensorflow-multiworker 2.21.0"])
def test_replicas_are_resized_whoever_restores_them(framework: str) -> None:
    book = elastic()
    trains(book, "s/0#1", 0, 30, 1.0, framework=framework).heard()
    book.at(30).tell(quantum_ended("s/0#1", 0, 30)).expect("suspend s/0#1 by checkpoint")


def unrestored(name: str) -> RunFailed:
    return RunFailed(run(name), RESTORE, "a batch of 48 in 2, it was 24 in 1", "OtherProgram", 30)


def fails_on_two(book: Playbook, attempt: int) -> Playbook:
    """A quantum on one device, after which its checkpoint cannot be used on two."""
    name, step = f"s/0#{attempt}", 15 * (attempt - 1)
    trains(book, name, step, 30, 1.0, framework="tensorflow-multiworker 2.21.0").heard()
    book.at(book.now + 30).tell(quantum_ended(name, 0, step + 30))
    book.expect(f"suspend {name} by checkpoint")
    after = f"from {name}@{step + 30}"
    book.tell(written(name, step + 30, 1))
    book.expect(f"launch s/0#{attempt + 1} on n/0, n/1 for 30 s {after}")
    book.tell(unrestored(f"s/0#{attempt + 1}"))
    return book.expect(f"launch s/0#{attempt + 2} on n/0 for 30 s {after}")


KEEPS = "keeps its number, as its checkpoint could not be used on another"


def test_what_could_not_be_resized_is_so_once_more_and_then_keeps_its_number() -> None:
    book = fails_on_two(elastic(), 1)
    fails_on_two(book, 3)
    trains(book, "s/0#5", 60, 30, 1.0, framework="tensorflow-multiworker 2.21.0")
    book.at(90).tell(quantum_ended("s/0#5", 0, 90)).expect("renew s/0#5.1 for 30 s")
    book.tell(Checkpointed(run("s/0#5"), checkpoint("s/0#5", 90, 1)))
    assert KEEPS in book.scheduler.explain("s/0", 0).summary
    assert kept_parked(book.trial()) == "", "on one device it goes on from its checkpoints"


def test_what_cannot_become_smaller_waits_for_as_many_devices_as_it_had() -> None:
    book = wide(2)
    book.tell(submitted(1, "t", policy=TURNS)).at(60).tell(quantum_ended("s/0#2", 0, 90))
    book.tell(written("s/0#2", 90, 2)).heard()
    book.tell(started("t/0#1"), unrestored("s/0#3")).expect("gather n/0, n/1 for s/0")
    book.at(90).tell(quantum_ended("t/0#1")).expect("suspend t/0#1")
    book.tell(parked("t/0#1")).expect("launch s/0#4 on n/0, n/1 for 30 s from s/0#2@90")


def pinned() -> Playbook:
    """A trial that could not continue on one device of a node, and the node with two is drained."""
    book = wide(2).tell(joined(1, node="m"))
    book.tell(NodeDrained("n", "r")).at(60).tell(quantum_ended("s/0#2", 0, 90)).heard()
    saved = replace(checkpoint("s/0#2", 90, 2), nodes=("n", "m"))
    book.tell(replace(written("s/0#2", 90), checkpoint=saved))
    book.expect("launch s/0#3 on m/0 for 30 s from s/0#2@90")
    return book.tell(unrestored("s/0#3")).expect()


def test_what_no_node_has_any_more_is_waited_for_as_long_as_training_it_again_takes() -> None:
    book = pinned()
    told = "if within 90 s no node has that many that its user may have, it continues on as few"
    assert told in book.scheduler.explain("s/0", book.now).summary
    assert book.scheduler.deadline == 150.0
    book.at(149).expect().at(150).expect("launch s/0#4 on m/0 for 30 s from s/0#2@90")
    # Its node sets a checkpoint that fails twice aside now, like any other.
    (launch,) = book.scheduler.outstanding("m")
    assert isinstance(launch, Launch)
    from_there = assignment(launch, book.state.studies["s"], book.trial()).checkpoint
    assert from_there is not None
    assert not from_there.is_of_other(1)
    book.tell(unrestored("s/0#4")).expect("launch s/0#5 on m/0 for 30 s from s/0#2@90")
    book.tell(unrestored("s/0#5")).expect("launch s/0#6 on m/0 for 30 s from s/0#2@90")
    book.tell(started("s/0#6", 30))
    assert (book.trial().phase, book.trial().step) == (Phase.RUNNING, 30)


def test_a_restart_of_the_head_counts_what_was_waited_for_before() -> None:
    book, state = pinned(), State()
    for entry, at in book.entries:
        state.apply(entry, at)
    assert tables(state) == tables(book.state)
    book.state, book.now = state, 140.0
    book.scheduler = Scheduler(state, make_policy, make_placement, LEASE)
    book.tell(NodeSilent("n", "restarted"), NodeSilent("m", "restarted")).expect()
    book.at(141).tell(joined(1, node="m")).expect()
    assert book.scheduler.deadline == 200.0, "nodes have a minute to come back"
    book.at(200).expect("launch s/0#4 on m/0 for 30 s from s/0#2@90")


def test_a_node_that_has_as_many_again_before_that_gets_the_trial() -> None:
    book = pinned().at(149).expect()
    book.tell(NodeUndrained("n", "r2")).expect("launch s/0#4 on n/0, n/1 for 30 s from s/0#2@90")


def test_as_many_as_its_checkpoint_is_of_are_preferred_if_they_are_free_when_it_goes_on() -> None:
    book = pinned().tell(submitted(1, "t")).expect("launch t/0#1 on m/0").at(150).expect()
    book.tell(NodeUndrained("n", "r2")).expect("launch s/0#4 on n/0, n/1 for 30 s from s/0#2@90")


def test_a_long_training_is_not_begun_anew_for_a_short_absence() -> None:
    slow = replace(pinned().trial(), step_seconds={"cpu": 1000.0})
    assert width_patience_seconds(slow) == slow.step * 1000.0


def test_time_without_any_node_for_the_trial_does_not_count() -> None:
    book = pinned().tell(NodeSilent("m", "cut"))
    book.at(100_000).expect()
    assert KEEPS in book.scheduler.explain("s/0", book.now).summary
    book.tell(NodeUndrained("n", "r2")).expect("launch s/0#4 on n/0, n/1 for 30 s from s/0#2@90")


def test_what_its_user_may_not_have_any_more_is_waited_for_no_longer() -> None:
    book = wide(2).tell(TermsSet(1e3, (("ann", Terms(1.0, 1)),)))
    book.at(60).tell(quantum_ended("s/0#2", 0, 90)).expect("suspend s/0#2 by checkpoint")
    book.tell(written("s/0#2", 90, 2)).expect("launch s/0#3 on n/0 for 30 s from s/0#2@90")
    book.tell(unrestored("s/0#3")).expect()
    why = book.scheduler.explain("s/0", 60).summary
    assert "it waits: ann's quota of 1 device is less than the 2 that it needs" in why
    book.at(149).expect().at(150).expect("launch s/0#4 on n/0 for 30 s from s/0#2@90")


def quota(book: Playbook, most: int | None) -> Playbook:
    return book.tell(TermsSet(1e3, (("ann", Terms(1.0, most)),)))


def imaged() -> Playbook:
    """A trial that could not be resized twice waits with an image of its processes on two devices,
    and its user may have one."""
    book = Playbook().tell(submitted(most_devices=2, policy=TURNS))
    book.tell(replace(joined(2), image_features=("avx",)))
    trains(book, "s/0#1", 0, 30, 1.0)
    book.at(30).tell(quantum_ended("s/0#1", 0, 30)).tell(written("s/0#1", 30))
    for attempt, step in ((2, 30), (4, 90)):
        trains(book, f"s/0#{attempt}", step, 60, 0.5)
        quota(book, 1).at(book.now + 30).tell(quantum_ended(f"s/0#{attempt}", 0, step + 60))
        book.tell(written(f"s/0#{attempt}", step + 60, 2)).tell(unrestored(f"s/0#{attempt + 1}"))
        quota(book, None)
    trains(book, "s/0#6", 150, 60, 0.5)
    book.tell(FidelityKnown(run("s/0#6"), Fidelity.PARK_ONLY, "a second loader", ""))
    quota(book, 1).at(120).tell(quantum_ended("s/0#6", 0, 210)).heard()
    suspended = written("s/0#6", 210, 2)
    assert suspended.checkpoint is not None
    image = replace(suspended.checkpoint, image_of="n")
    return book.tell(replace(suspended, checkpoint=image)).expect()


def test_an_image_of_more_devices_than_there_are_is_given_up_for_the_checkpoint_before() -> None:
    book = imaged()
    told = "its image is of 2 devices: if within 60 s no node has that many that its user may "
    told += "have, it goes on from its checkpoint of step 150"
    assert told in book.scheduler.explain("s/0", book.now).summary
    book.at(179).expect().at(180).expect()
    assert (book.trial().step, book.trial().before_image) == (150, None)
    why = "back at step 150: the image of its processes is of more devices than it could have"
    assert book.trial().reason == why
    # It waits with that, too, and has done so for a minute.
    book.at(194).expect().at(195).expect("launch s/0#7 on n/0 for 30 s from s/0#4@150")


def test_an_image_before_which_there_is_no_checkpoint_waits_for_as_many_devices() -> None:
    book = imaged()
    book.tell(Spoilt("n", "s/0", book.trial().before_image.id, "it is torn"))
    assert (book.trial().before_image, book.scheduler.deadline) == (None, None)
    book.at(10_000).expect()
    quota(book, 2).expect("launch s/0#7 on n/0, n/1 for 30 s from s/0#6@210")


def test_a_checkpoint_of_as_many_devices_or_of_a_number_that_cannot_be_tells_nothing() -> None:
    for devices in (0, 2, 99):
        book = wide()
        book.tell(Paused(("s/0",), "r")).tell(written("s/0#2", 90, devices))
        book.tell(Unpaused(("s/0",), "u")).heard()
        width = len(book.trial().run.devices)
        assert width == 2
        (launch,) = book.scheduler.outstanding("n")
        assert isinstance(launch, Launch)
        saved = assignment(launch, book.state.studies["s"], book.trial()).checkpoint
        assert saved is not None
        assert not saved.is_of_other(2), "its node goes by the same rule"
        book.tell(unrestored("s/0#3"))
        assert not book.trial().keeps_width


def test_a_resize_that_does_not_pay_is_not_made() -> None:
    book = elastic()
    trains(book, "s/0#1", 0, 30, 0.01, planned=60).heard()
    book.at(30).tell(quantum_ended("s/0#1", 0, 30)).expect("renew s/0#1.1 for 30 s")


def four_wide(**changes: Any) -> Playbook:
    """A trial on all four devices, at step 150."""
    book = elastic(**changes)
    for seconds, (name, step) in enumerate((("s/0#1", 0), ("s/0#2", 30)), 1):
        trains(book, name, step, 30 * seconds, 1.0 / seconds)
        end = step + 30 * seconds
        book.at(book.now + 60).tell(quantum_ended(name, 0, end)).tell(written(name, end))
    return trains(book, "s/0#3", 90, 60, 0.25)


def test_it_is_made_smaller_when_others_wait_and_by_no_more_than_they_need() -> None:
    book = four_wide(policy=Plugin("fifo"), priority=1)
    book.heard()
    book.tell(submitted(2, "t", policy=TURNS)).expect()
    book.at(180).tell(quantum_ended("s/0#3", 0, 150)).expect("suspend s/0#3 by checkpoint")
    assert book.trial().aim == 2
    book.tell(written("s/0#3", 150)).expect(
        "launch s/0#4 on n/0, n/1 for 60 s from s/0#3@150",
        "launch t/0#1 on n/2 for 30 s",
        "launch t/1#1 on n/3 for 30 s",
    )


def test_it_makes_room_for_those_that_go_first_and_has_what_they_leave() -> None:
    book = four_wide()
    book.heard()
    book.tell(submitted(2, "t", policy=TURNS)).expect()
    book.at(180).tell(quantum_ended("s/0#3", 0, 150))
    book.expect("suspend s/0#3 by checkpoint for t/0")
    book.tell(written("s/0#3", 150)).expect(
        "launch t/0#1 on n/0 for 30 s",
        "launch s/0#4 on n/1, n/2 for 30 s from s/0#3@150",
        "launch t/1#1 on n/3 for 30 s",
    )


def test_what_cannot_be_written_down_keeps_its_width() -> None:
    book = elastic().tell(started("s/0#1"))
    book.tell(FidelityKnown(book.trial().run.id, Fidelity.PARK_ONLY, "", ""))
    book.tell(reported("s/0#1", 1, [1.0], busy_seconds=1.0))
    book.tell(reported("s/0#1", 30, [1.0] * 29, busy_seconds=29.0)).heard()
    book.at(30).tell(quantum_ended("s/0#1", 0, 30)).expect("renew s/0#1.1 for 30 s")


def wide(devices: int = 4) -> Playbook:
    """One trial on two devices, at step 90."""
    book = elastic(1, devices, 2)
    trains(book, "s/0#1", 0, 30, 1.0)
    book.at(30).tell(quantum_ended("s/0#1", 0, 30)).tell(written("s/0#1", 30))
    trains(book, "s/0#2", 30, 60, 0.5).heard()
    return book


def test_one_that_is_wide_is_written_down_rather_than_parked() -> None:
    wide().tell(Paused(("s/0",), "r")).expect("suspend s/0#2 by checkpoint")


def test_one_that_was_parked_all_the_same_waits_for_as_many_devices() -> None:
    """It could not be written down, or came to no boundary in time."""
    book = wide(2)
    book.tell(Paused(("s/0",), "r")).tell(parked("s/0#2", 90))
    book.tell(submitted(2, "t", policy=TURNS)).heard()
    book.tell(started("t/0#1"), started("t/1#1"), Unpaused(("s/0",), "u")).expect()
    book.at(60).tell(quantum_ended("t/0#1"), quantum_ended("t/1#1"))
    book.expect("gather n/0, n/1 for s/0", "suspend t/0#1", "suspend t/1#1")
    book.tell(parked("t/0#1"), parked("t/1#1"))
    book.expect("launch s/0#3 on n/0, n/1 for 30 s from s/0#2")


def test_users_get_no_more_devices_than_their_quota() -> None:
    book = Playbook().tell(TermsSet(1e3, (("ann", Terms(1.0, 1)),)))
    book.tell(submitted(1, most_devices=4, policy=TURNS), joined(4))
    trains(book, "s/0#1", 0, 30, 1.0).heard()
    book.at(30).tell(quantum_ended("s/0#1", 0, 30)).expect("renew s/0#1.1 for 30 s")


def test_why_says_what_a_resize_must_save_before_there_was_one() -> None:
    book = elastic()
    trains(book, "s/0#1", 0, 30, 1.0)
    said = book.scheduler.explain("s/0", book.now).summary
    assert "1 to 4 devices; on 1 it does 1 steps a second; a resize would take" in said
    assert "s, and must save 5 times as much" in said


def test_the_speed_on_another_number_of_devices_is_not_taken_for_that_on_these() -> None:
    book = wide()
    assert book.trial().width_seconds == pytest.approx({1: 1.0, 2: 0.5})
    assert book.state.facts["s"].gains == pytest.approx({2: 2.0})
    assert book.state.facts["s"].step_seconds == pytest.approx(1.0)
    assert (book.trial().width, book.trial().resizes) == (2, 1)
    said = book.scheduler.explain("s/0", book.now).summary
    assert "it may have 1 to 2 devices; on 1 it does 1 steps a second, on 2 it does 2" in said
    assert "it was resized once, for" in said


class Three:
    """A policy that has a width of its own for its trials."""

    name: ClassVar[str] = "three"

    def plan(self, view: View) -> Iterator[Claim]:
        for trial in view.trials:
            yield Claim(trial.id, Quantum(30.0), "", width=3)

    def words(self, trial: Trial) -> str:
        return "three"


def test_a_policy_may_say_on_how_many_devices_a_trial_goes_on() -> None:
    book = Playbook()
    book.scheduler = Scheduler(book.state, lambda plugin: Three(), make_placement, LEASE)
    book.tell(submitted(1, most_devices=4), joined(4))
    # Whether its checkpoints are of any number of devices is not known before it has begun.
    book.expect("launch s/0#1 on n/0 for 30 s")
    trains(book, "s/0#1", 0, 30, 1.0)
    book.at(30).tell(quantum_ended("s/0#1", 0, 30)).expect("suspend s/0#1 by checkpoint")
    book.tell(written("s/0#1", 30))
    book.expect("launch s/0#2 on n/0, n/1, n/2 for 30 s from s/0#1@30")


def test_optimus_gives_a_device_to_the_one_that_gains_most_and_not_to_the_first() -> None:
    book = play(2, 3, most_devices=2, policy=Plugin("optimus"))
    trains(book, "s/0#1", 0, 30, 1.0, planned=100_000)
    trains(book, "s/1#1", 0, 30, 1.0, planned=1_000).heard()
    book.at(30).tell(quantum_ended("s/1#1", 0, 30)).expect("renew s/1#1.1 for 30 s")
    book.tell(quantum_ended("s/0#1", 0, 30)).expect("suspend s/0#1 by checkpoint")
    book.tell(written("s/0#1", 30)).expect("launch s/0#2 on n/0, n/2 for 30 s from s/0#1@30")


# The parts.


def timed(**seconds: float) -> Trial:
    known = {int(width[1:]): each for width, each in seconds.items()}
    return Trial(trial_spec("s/0"), 0.0, 0.0, width=max(known, default=0), width_seconds=known)


def test_speeds_are_measured_or_foreseen_from_the_last_step() -> None:
    assert speed_of(timed(), {}, 1) is None
    speed = speed_of(timed(w1=1.0), {}, 1)
    assert speed is not None
    assert [speed(width) for width in (1, 2, 4)] == pytest.approx([1, 2, 4]), "nothing is known"
    speed = speed_of(timed(w1=1.0, w2=1.0 / 1.5), {2: 1.5}, 1)
    assert speed is not None
    assert [speed(width) for width in (1, 2, 4)] == pytest.approx([1, 1.5, 1.5**2])
    speed = speed_of(timed(w2=0.1), {2: 1.6}, 1)
    assert speed is not None
    assert speed(1) == pytest.approx(10 / 1.6), "what its study has learned is its own"


def test_a_study_learns_from_trials_that_were_measured_on_both() -> None:
    assert learned(Facts(), timed(w1=1.0), 1).gains == {}
    assert learned(Facts(), timed(w4=1.0), 1).gains == {}
    assert learned(Facts(), timed(w1=1.0, w4=0.5), 1).gains == {4: 2.0}


def test_each_device_has_the_same_part_of_a_batch_that_is_a_parameter() -> None:
    spec = trial_spec("s/0")
    stages = (Stage(None, (("batch_size", 12),)),)
    batch = Trial(replace(spec, stages=stages), 0.0, 0.0)
    assert [narrowed(batch, 1, width) for width in (1, 2, 3, 5, 8)] == [1, 2, 3, 4, 6]
    assert narrowed(Trial(spec, 0.0, 0.0), 1, 5) == 5


@given(
    jobs=st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 6), st.floats(-0.5, 1.2)), max_size=6
    ),
    devices=st.integers(0, 20),
)
def test_what_is_spare_goes_to_the_first_that_gains(
    jobs: list[tuple[int, int, float]], devices: int
) -> None:
    known = [
        ElasticJob(f"s/{n}", 100.0, lambda width, e=exponent: width**e, least, least + more)
        for n, (least, more, exponent) in enumerate(jobs)
    ]
    given_ = spare_to_first(known, devices)
    needed = sum(job.min for job in known)
    assert sum(given_.values()) <= max(devices, needed)
    for job in known:
        assert job.min <= given_[job.trial] <= job.max
        assert job.speed(given_[job.trial]) >= job.speed(job.min)


class WidthMachine(RuleBasedStateMachine):
    """Two elastic trials whose checkpoints can often not be used on another number of devices, or
    are images, and that run out of memory, while nodes and quotas come and go: neither is left
    waiting for devices that nobody has."""

    frameworks: ClassVar = {"s/0": "explicit", "s/1": "torch 2.13.0"}

    def __init__(self) -> None:
        super().__init__()
        rules = (RetryRule("out of memory", RetryAction.MORE_MEMORY),)
        self.book = elastic(2, 4, 4, retry_rules=rules)
        self.requests = 0
        # All checkpoints are there, and nothing runs there before the end.
        there = joined(1, "o", memory=[8 << 30])
        self.book.tell(replace(there, image_features=("avx",)), NodeDrained("o", "o"))
        self.a_node_comes("m", 1, "a")
        self.trained: set[TrialId] = set()

    def runs(self, *phases: Phase) -> list[Run]:
        trials = self.book.state.trials.values()
        return [trial.run for trial in trials if trial.phase in phases and trial.run]

    @rule(
        begins=st.sampled_from(["", "", RESTORE, RESTORE, RESTORE, "lost", "memory"]),
        image=st.booleans(),
    )
    def a_turn(self, begins: str, image: bool) -> None:
        """All that run come to the end of their quanta, those that leave have left, and those that
        begin then do or fail."""
        told: list[Event] = []
        for stay in self.runs(Phase.STARTING):
            known, step = (
                FidelityKnown(stay.id, EXACT, "", self.frameworks[stay.id.trial]),
                self.step(stay),
            )
            told += [RunStarted(stay.id, step, 0.1, 10_000), known]
            for count in (1, 60):
                step, busy = step + count, count / len(stay.devices)
                told.append(reported(str(stay.id), step, [1.0] * count, busy_seconds=busy))
        self.book.at(self.book.now + 30).tell(*told)
        running = self.runs(Phase.RUNNING)
        self.trained |= {stay.id.trial for stay in running}
        self.book.tell(*(QuantumEnded(stay.id, stay.grant, self.step(stay)) for stay in running))
        told = []
        for stay in self.runs(Phase.SUSPENDING):
            saved = checkpoint(str(stay.id), self.step(stay), len(stay.devices))
            of = stay.devices[0][0] if image and self.has_written(stay) else ""
            saved = replace(saved, nodes=("n", "m", "o"), image_of=of)
            told.append(RunSuspended(stay.id, Tier.CHECKPOINT, saved.step, saved, 0.5))
        self.book.tell(*told)
        for stay in self.runs(Phase.STARTING) if begins else ():
            kind, words = begins, "" if begins == "lost" else "a batch of 48 in 2"
            if begins == "memory":
                kind, words = "exception", "out of memory"
            width = len(stay.devices)
            self.book.tell(RunFailed(stay.id, kind, words, words, 0, devices=width))

    def has_written(self, stay: Run) -> bool:
        """Whether the trial has a checkpoint that is no image."""
        trial = self.book.trial(stay.id.trial)
        saved = trial.checkpoint
        return trial.before_image is not None or (saved is not None and not saved.image_of)

    def step(self, stay: Run) -> int:
        return self.book.trial(stay.id.trial).step

    @rule(node=st.sampled_from("nm"), devices=st.integers(1, 4), boot=st.sampled_from("ab"))
    def a_node_comes(self, node: str, devices: int, boot: str) -> None:
        runs = self.runs(Phase.STARTING, Phase.RUNNING, Phase.SUSPENDING)
        here = [stay for stay in runs if stay.devices[0].startswith(node)]
        alive = [LiveRun(stay.id, "running", stay.devices, 0) for stay in here]
        there = joined(devices, node, boot, alive)
        self.book.tell(replace(there, image_features=("avx",)))

    @rule(node=st.sampled_from("nm"), drained=st.booleans())
    def a_node_is_drained_or_not(self, node: str, drained: bool) -> None:
        self.requests += 1
        wish = NodeDrained if drained else NodeUndrained
        self.book.tell(wish(node, f"r{self.requests}"))

    @rule(node=st.sampled_from("nm"))
    def a_node_goes(self, node: str) -> None:
        self.book.tell(NodeSilent(node, "cut"), NodeLost(node, left=True))

    @rule(most=st.sampled_from([None, None, 1, 2]))
    def a_quota_changes(self, most: int | None) -> None:
        self.book.tell(TermsSet(1e3, (("ann", Terms(1.0, most)),)))

    @rule(seconds=st.sampled_from([1.0, 60.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.book.at(self.book.now + seconds)

    def teardown(self) -> None:
        """With one device of more memory, both go on within the times that are set for them."""
        self.a_quota_changes(None)
        self.a_node_goes("n")
        self.a_node_goes("m")
        self.book.tell(NodeUndrained("o", "undrained"))
        trials = self.book.state.trials.values()
        ended = {t.id: t.reason for t in trials if t.phase.final}
        assert all("no other device has more memory" in reason for reason in ended.values()), ended
        self.trained = set(ended)
        for _ in range(20):
            self.a_turn("", False)
            if len(self.trained) == 2:
                return
            self.book.at(max(self.book.now, self.book.scheduler.deadline or 0.0))
        raise AssertionError(f"only {self.trained} go on")


TestWidthMachine = WidthMachine.TestCase
TestWidthMachine.settings = settings(
    max_examples=60, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
