"""The scheduler's conversations: who is launched, renewed, suspended and stopped, and when."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hermesd.core import tables
from hermesd.core.commands import Release
from hermesd.core.events import Cancelled, Extended, NodeSilent, Paused, Removed, Retried, Unpaused
from hermesd.core.model import Milestone, Phase, Plugin, StopRule
from hermesd.core.policy import Score
from hermesd.core.trial import Trial
from hermesd.policy.best_first import BestFirst
from hermesd.policy.fifo import Fifo
from tests.core import playbook
from tests.core.playbook import (
    LEASE,
    completed,
    joined,
    killed,
    live,
    milestone,
    parked,
    play,
    quantum_ended,
    reported,
    started,
    submitted,
    written,
)

ROUND_ROBIN = Plugin("round_robin")
HERMES = Plugin("hermes")


def test_first_in_first_out_on_two_devices() -> None:
    (
        play(trials=3, devices=2)
        .expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
        .at(1)
        .tell(started("s/0#1"), started("s/1#1"))
        .expect()
        .at(5)
        .tell(completed("s/1#1", 10))
        .expect("launch s/2#1 on n/1")
        .at(9)
        .tell(completed("s/0#1", 10), started("s/2#1"))
        .expect()
        .at(12)
        .tell(completed("s/2#1", 10))
        .expect()
    )


def test_round_robin_takes_turns_and_resumes_what_is_parked() -> None:
    (
        play(trials=2, policy=ROUND_ROBIN)
        .expect("launch s/0#1 on n/0 for 30 s")
        .at(1)
        .tell(started("s/0#1"))
        .expect()
        .at(31)
        .tell(quantum_ended("s/0#1", step=30))
        .expect("suspend s/0#1 for s/1")
        .at(32)
        .tell(parked("s/0#1", 31))
        .expect("launch s/1#1 on n/0 for 30 s")
        .at(33)
        .tell(started("s/1#1"))
        .at(63)
        .tell(quantum_ended("s/1#1", step=30))
        .expect("suspend s/1#1 for s/0")
        .at(64)
        .tell(parked("s/1#1", 31))
        .expect("launch s/0#2 on n/0 for 30 s from s/0#1")
    )


def test_who_is_alone_is_renewed() -> None:
    (
        play(policy=ROUND_ROBIN)
        .tell(started("s/0#1"))
        .expect("launch s/0#1 on n/0 for 30 s")
        .at(30)
        .tell(quantum_ended("s/0#1"))
        .expect("renew s/0#1.1 for 30 s")
        .at(60)
        .tell(quantum_ended("s/0#1", grant=1))
        .expect("renew s/0#1.2 for 30 s")
    )


def test_an_end_of_quantum_is_heard_once() -> None:
    (
        play(policy=ROUND_ROBIN)
        .tell(started("s/0#1"))
        .at(30)
        .tell(quantum_ended("s/0#1"))
        .refuses(quantum_ended("s/0#1"), "over already")
        .refuses(quantum_ended("s/0#1", grant=2), "over already")
    )


def test_hermes_explores_then_keeps_what_falls_fastest() -> None:
    book = play(trials=2, policy=HERMES).expect("launch s/0#1 on n/0 for 10 s")
    book.tell(started("s/0#1")).at(10)
    book.tell(reported("s/0#1", 10, [4.0] * 10), quantum_ended("s/0#1", step=10))
    book.expect("suspend s/0#1 for s/1").tell(parked("s/0#1", 10))
    book.expect("launch s/1#1 on n/0 for 10 s").tell(started("s/1#1")).at(20)
    book.tell(reported("s/1#1", 10, [4.0, 2.0] * 5), quantum_ended("s/1#1", step=10))
    book.expect("renew s/1#1.1 for 10 s")


def test_a_milestone_lengthens_the_quantum_at_once() -> None:
    book = play(policy=HERMES).tell(started("s/0#1")).expect("launch s/0#1 on n/0 for 10 s")
    book.at(10).tell(reported("s/0#1", 10, [4.0] * 10), quantum_ended("s/0#1", step=10))
    book.expect("renew s/0#1.1 for 10 s")
    holder = book.trial().run
    assert holder is not None
    assert holder.quantum.milestones[0] == Milestone(25.0, 3.0)
    book.at(14).tell(milestone("s/0#1", 25.0, 2.9, 14)).expect("extend s/0#1.2 for 20 s")
    book.refuses(milestone("s/0#1", 25.0, 2.8, 15), "before")
    book.at(18).tell(milestone("s/0#1", 50.0, 1.9, 18)).expect("extend s/0#1.3 for 30 s")


def test_the_literal_algorithm_lets_the_winner_go() -> None:
    literal = Plugin("hermes", (("winner_may_stay", False),))
    book = play(trials=2, policy=literal).tell(started("s/0#1"))
    book.at(10).tell(reported("s/0#1", 10, [4.0, 2.0] * 5), quantum_ended("s/0#1", step=10))
    book.tell(parked("s/0#1", 10)).tell(started("s/1#1"))
    book.at(20).tell(reported("s/1#1", 10, [4.0] * 10), quantum_ended("s/1#1", step=10))
    book.tell(parked("s/1#1", 10)).tell(started("s/0#2", step=10))
    book.at(30).tell(reported("s/0#2", 20, [2.0, 0.5] * 5), quantum_ended("s/0#2", step=20))
    book.expect(
        "launch s/0#1 on n/0 for 10 s",
        "suspend s/0#1 for s/1",
        "launch s/1#1 on n/0 for 10 s",
        "suspend s/1#1 for s/0",
        "launch s/0#2 on n/0 for 10 s from s/0#1",
        "suspend s/0#2 for s/1",
    )


def test_asha_lets_a_trial_that_is_held_back_use_an_idle_device() -> None:
    halving = Plugin("asha", (("eta", 2), ("min_rung", 10.0), ("max_rung", 20.0)))
    book = play(trials=2, devices=2, policy=halving)
    book.expect("launch s/0#1 on n/0 for step 10", "launch s/1#1 on n/1 for step 10")
    book.tell(started("s/0#1"), started("s/1#1"))
    book.at(5).tell(reported("s/0#1", 10, [2.0] * 10), quantum_ended("s/0#1", step=10))
    book.expect("renew s/0#1.1")
    book.at(6).tell(reported("s/1#1", 10, [1.0] * 10), quantum_ended("s/1#1", step=10))
    book.expect("renew s/1#1.1")


def test_homes_bind_each_trial_to_its_device() -> None:
    book = play(trials=3, devices=2, policy=ROUND_ROBIN, placement=Plugin("homes"))
    book.expect(
        "bind s/0 to n/0",
        "bind s/1 to n/1",
        "bind s/2 to n/0",
        "launch s/0#1 on n/0 for 30 s",
        "launch s/1#1 on n/1 for 30 s",
    )
    book.tell(started("s/0#1"), started("s/1#1")).at(30)
    book.tell(quantum_ended("s/1#1"), quantum_ended("s/0#1"))
    book.expect("suspend s/0#1 for s/2", "renew s/1#1.1 for 30 s")


# People.


def test_what_is_parked_on_a_silent_node_is_released_when_it_is_back() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(NodeSilent("n", "cut")).tell(Cancelled(("s/0",), "r2"))
    book.expect("launch s/0#1 on n/0", "suspend s/0#1")
    book.tell(joined(live=[live("s/0#1", "parked")])).expect("release s/0 on n")


def test_a_release_that_was_not_sent_is_void_for_a_trial_that_goes_on() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(NodeSilent("n", "cut")).tell(Cancelled(("s/0",), "r2"))
    book.tell(Retried(("s/0",), "r3")).expect("launch s/0#1 on n/0", "suspend s/0#1")
    book.tell(joined(live=[live("s/0#1", "parked")]))
    book.expect("launch s/0#2 on n/0 from s/0#1")
    assert book.trial().step == 5


def test_what_is_still_parked_goes_on_when_its_trial_is_retried_at_once() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(Cancelled(("s/0",), "r2"), Retried(("s/0",), "r3"))
    book.expect("launch s/0#1 on n/0", "suspend s/0#1", "launch s/0#2 on n/0 from s/0#1")


def test_what_one_node_lets_go_is_kept_on_another() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1")).tell(parked("s/0#1", 5))
    book.tell(NodeSilent("n", "cut")).tell(Cancelled(("s/0",), "r2"))
    book.at(LEASE.silence_seconds).tell(Retried(("s/0",), "r3"))
    book.expect("launch s/0#1 on n/0", "suspend s/0#1")
    book.tell(joined(node="m")).tell(started("s/0#2")).tell(Paused(("s/0",), "r4"))
    book.tell(parked("s/0#2", 7)).expect("launch s/0#2 on m/0", "suspend s/0#2")
    book.tell(joined(live=[live("s/0#1", "parked")])).expect("kill s/0#1 on n")
    kept = book.trial().kept
    assert kept is not None
    assert (str(kept.run), kept.device) == ("s/0#2", "m/0")
    # The journal of an older version may hold this, for a node that had the trial before.
    book.state.apply(Release("s/0", "n", False), book.now)
    assert book.trial().kept == kept
    book.state.apply(Release("s/0", "m", False), book.now)
    assert book.trial().kept is None


def test_a_running_trial_is_stopped_for_good() -> None:
    book = play(trials=2).tell(started("s/0#1")).expect("launch s/0#1 on n/0")
    book.at(3).tell(Cancelled(("s/0",), "r1")).expect("stop s/0#1")
    assert book.trial().phase is Phase.SUSPENDING
    book.at(4).tell(written("s/0#1", 7)).expect("launch s/1#1 on n/0")
    assert book.trial().phase is Phase.CANCELLED
    assert book.trial().reason == "stopped by a person"


def test_a_waiting_trial_ends_at_once_and_its_parked_process_is_released() -> None:
    book = play(trials=2, policy=ROUND_ROBIN).tell(started("s/0#1"))
    book.at(30).tell(quantum_ended("s/0#1")).tell(parked("s/0#1", 30))
    book.expect(
        "launch s/0#1 on n/0 for 30 s",
        "suspend s/0#1 for s/1",
        "launch s/1#1 on n/0 for 30 s",
    )
    book.tell(Cancelled(("s/0",), "r1")).expect("release s/0 on n")
    assert book.trial().phase is Phase.CANCELLED


def test_a_trial_is_stopped_while_it_starts() -> None:
    book = play().expect("launch s/0#1 on n/0")
    book.tell(Cancelled(("s/0",), "r1")).expect("stop s/0#1")
    book.tell(started("s/0#1")).expect().tell(killed("s/0#1")).expect()
    assert book.trial().phase is Phase.CANCELLED


def test_a_program_that_ends_while_it_is_stopped_has_completed() -> None:
    book = play().tell(started("s/0#1")).tell(Cancelled(("s/0",), "r1"))
    book.tell(completed("s/0#1", 9))
    assert book.trial().phase is Phase.COMPLETED


def test_pause_suspends_and_unpause_resumes() -> None:
    book = play().tell(started("s/0#1")).expect("launch s/0#1 on n/0")
    book.tell(Paused(("s/0",), "r1")).expect("suspend s/0#1")
    book.tell(parked("s/0#1", 5)).expect()
    book.tell(Unpaused(("s/0",), "r2")).expect("launch s/0#2 on n/0 from s/0#1")


def test_a_pause_during_the_start_waits_for_it() -> None:
    book = play().expect("launch s/0#1 on n/0").tell(Paused(("s/0",), "r1")).expect()
    book.tell(started("s/0#1")).expect("suspend s/0#1")


def test_unpaused_in_flight_the_suspend_goes_on_and_the_trial_returns() -> None:
    book = play().tell(started("s/0#1")).tell(Paused(("s/0",), "r1"))
    book.tell(Unpaused(("s/0",), "r2")).expect("launch s/0#1 on n/0", "suspend s/0#1")
    book.tell(parked("s/0#1", 5)).expect("launch s/0#2 on n/0 from s/0#1")


def test_a_request_has_one_effect() -> None:
    book = play().tell(Paused(("s/0",), "r1"))
    book.refuses(Paused(("s/0",), "r1"), "before")
    assert book.state.requests["r1"] == ("s/0",)


def test_only_the_last_requests_are_remembered_and_the_last_of_each_name_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "REQUESTS_KEPT", 3)
    book = play()
    for request in ("a:1", "b#1:2", "a:3"):
        book.tell(Paused(("s/0",), request))
    assert book.state.named_requests.items() >= {("a", "a:3"), ("b#1", "b#1:2")}
    book.tell(Paused(("s/0",), "c")).tell(Paused(("s/0",), "d"))
    assert book.state.named_requests == {"a": "a:3", "c": "c", "d": "d"}
    book.state.check()


def test_a_stopped_trial_is_extended_and_goes_on_from_its_checkpoint() -> None:
    book = play(stop=StopRule(max_steps=5)).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 5, [1.0])).tell(written("s/0#1", 5))
    assert book.trial().phase is Phase.STOPPED
    longer = Extended("s", ("s/0",), StopRule(max_steps=9), (("epochs", 2),), (("x",),), "r1")
    book.tell(longer)
    book.expect("launch s/0#1 on n/0", "stop s/0#1", "launch s/0#2 on n/0 from s/0#1@5")
    assert dict(book.trial().spec.parameters)["epochs"] == 2
    assert book.trial().spec.argv == ("x",)


def test_a_cancelled_trial_is_retried() -> None:
    book = play().tell(Cancelled(("s/0",), "r1")).tell(killed("s/0#1"))
    book.expect("launch s/0#1 on n/0", "stop s/0#1")
    book.tell(Retried(("s/0",), "r2")).expect("launch s/0#2 on n/0")
    book.refuses(Retried(("s/0",), "r3"), "not finished")


def test_a_removed_study_is_forgotten_everywhere() -> None:
    book = play().tell(started("s/0#1")).expect("launch s/0#1 on n/0")
    book.refuses(Removed("s", "r1"), "unfinished")
    book.tell(completed("s/0#1", 3)).tell(Removed("s", "r2")).expect("forget s/0 on n")
    book.refuses(started("s/0#1"), "no trial")


def test_a_submission_is_taken_once() -> None:
    play().refuses(submitted(), "exists")


def test_two_studies_share_the_devices() -> None:
    book = play(trials=3, devices=None).tell(submitted(3, name="t")).tell(joined(4))
    book.expect(
        "launch s/0#1 on n/0",
        "launch t/0#1 on n/1",
        "launch s/1#1 on n/2",
        "launch t/1#1 on n/3",
    )


def test_a_policy_that_raises_gives_way_to_first_in_first_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Fifo):
        def score(self, trial: Trial) -> Score:
            raise ZeroDivisionError("no mercy")

    def make(plugin: Plugin) -> Fifo:
        return Broken() if plugin.name == "broken" else Fifo()

    monkeypatch.setattr(playbook, "make_policy", make)
    book = play(trials=2, policy=Plugin("broken")).expect("launch s/0#1 on n/0")
    (said,) = book.state.fallen.values()
    # Its author needs the line that raised.
    assert re.fullmatch(rf"ZeroDivisionError: no mercy \({re.escape(__file__)}:\d+\)", said)
    assert book.scheduler.explain("s/1", 0.0).policy == "fifo"


# Questions.


def test_next_up_and_why() -> None:
    book = play(trials=3).tell(started("s/0#1"))
    assert book.scheduler.next_up("s", 2, 0.0) == ("s/1", "s/2")
    why = book.scheduler.explain("s/1", 0.0)
    assert "waiting" in why.summary
    assert "2 of 3" in why.summary
    assert [row[0] for row in why.ranking] == ["s/0", "s/1", "s/2"]
    assert "launched on n/0" in book.scheduler.explain("s/0", 0.0).last_decision
    book.tell(completed("s/0#1"))
    assert "completed" in book.scheduler.explain("s/0", 0.0).summary


def test_why_says_that_a_policy_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked by a person it changes nothing: it may well be able to decide."""

    class Speechless(Fifo):
        def words(self, trial: Trial) -> str:
            raise ZeroDivisionError("no words")

    book = play(trials=2).tell(started("s/0#1"))
    monkeypatch.setattr(Fifo, "words", Speechless.words)
    why = book.scheduler.explain("s/1", 0.0)
    assert why.summary.startswith(
        "s/1 is waiting; fifo raised when it was asked for its ranking: ZeroDivisionError: no words"
        f" ({__file__}:"
    )
    assert why.ranking == ()
    assert book.state.fallen == {}


def test_the_first_report_of_a_new_process_says_nothing_of_its_speed() -> None:
    book = play().expect("launch s/0#1 on n/0").at(1).tell(started("s/0#1")).expect()
    book.tell(reported("s/0#1", 1, [2.0], busy_seconds=30.0)).expect()
    assert book.state.trials["s/0"].seconds_per_step is None
    assert book.state.facts["s"].step_seconds == 0.0
    book.tell(reported("s/0#1", 11, [2.0] * 10, busy_seconds=1.0)).expect()
    assert book.state.trials["s/0"].seconds_per_step == pytest.approx(0.1)
    assert book.state.facts["s"].step_seconds == pytest.approx(0.1)


def test_a_study_knows_the_shortest_length_that_a_trial_told_or_came_to_without_telling() -> None:
    book = play(trials=4)
    known = []
    for number, planned_steps in enumerate((None, 500, 900, None)):
        known.append(book.state.facts["s"].planned_steps)
        run, steps = f"s/{number}#1", 700 if number == 0 else 300
        book.tell(started(run, planned=planned_steps))
        book.tell(reported(run, 1, [2.0]), completed(run, steps))
    known.append(book.state.facts["s"].planned_steps)
    assert known == [None, 700, 500, 500, 300], "one that ends sooner than planned is no shorter"


def test_a_trial_that_tells_no_length_goes_by_what_completed_trials_came_to() -> None:
    """So its probe is over after 2 of its steps, not after 20."""
    book = play(trials=3, devices=2, policy=Plugin("best_first"))
    for number in range(2):
        book.tell(started(f"s/{number}#1"), reported(f"s/{number}#1", 2, [2.0, 1.0]))
    assert book.trial("s/1").likely_steps is None
    book.tell(completed("s/0#1", 60), reported("s/1#1", 3, [1.0]))
    assert book.trial("s/1").likely_steps == 60
    book.tell(quantum_ended("s/1#1", 0, 3))
    assert BestFirst().probed(book.trial("s/1"))
    book.tell(replace(reported("s/1#1", 4, [1.0]), planned_steps=900))
    assert book.trial("s/1").likely_steps is None, "its own word is better"
    assert not BestFirst().probed(book.trial("s/1"))


def test_who_was_ended_for_want_of_a_boundary_is_given_twice_as_long_the_next_time() -> None:
    """Else a validation that takes longer than the deadline would be begun again for ever."""
    book = play(trials=2, policy=ROUND_ROBIN, suspend_deadline_seconds=5.0)
    book.expect("launch s/0#1 on n/0 for 30 s")
    given, now = [], 0
    for attempt in range(1, 4):
        mine, other = f"s/0#{attempt}", f"s/1#{attempt}"
        book.tell(started(mine)).at(now + 40).tell(quantum_ended(mine))
        book.expect(f"suspend {mine} for s/1")
        given.append(book.trial().run.asked.deadline_seconds)
        parked_before = f" from s/1#{attempt - 1}" if attempt > 1 else ""
        book.tell(killed(mine)).expect(f"launch {other} on n/0 for 30 s{parked_before}")
        book.tell(started(other)).at(now + 80).tell(quantum_ended(other, step=attempt))
        book.expect(f"suspend {other} for s/0").tell(parked(other, attempt))
        book.expect(f"launch s/0#{attempt + 1} on n/0 for 30 s")
        now += 80
    assert given == [5.0, 10.0, 20.0]


def test_what_was_stopped_midway_tells_later_what_it_did_until_then() -> None:
    """In several reports perhaps; the first of them is of steps before that of its suspend."""
    book = play().tell(started("s/0#1"), reported("s/0#1", 4, [0.5] * 4))
    book.tell(Paused(("s/0",), "r1")).expect("launch s/0#1 on n/0", "suspend s/0#1")
    book.tell(parked("s/0#1", 30), Unpaused(("s/0",), "r2")).expect(
        "launch s/0#2 on n/0 from s/0#1"
    )
    book.tell(started("s/0#2", 30), reported("s/0#2", 17, [0.4] * 13))
    book.tell(reported("s/0#2", 31, [0.3] * 14))
    trial = book.trial()
    assert (trial.step, trial.curve[-1].last_step) == (31, 31)
    assert sum(chunk.size for chunk in trial.curve) == 31
    book.refuses(reported("s/0#2", 31, [0.3] * 14), "reported before")
    book.refuses(reported("s/0#2", 17, []), "reported before")
