"""A program that comes to no further step: when that is said, and what is done about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.events import Reported, RunCompleted, RunFailed, RunStalled
from hermesd.core.losses import chunked
from hermesd.core.model import HUNG_SECONDS, OnStall, Phase, RunId, Tier
from hermesd.core.node.actions import Action, EndProcess
from hermesd.core.node.messages import (
    Completed,
    LeftDevice,
    Parked,
    Planned,
    Progress,
    RunFound,
    Started,
)
from hermesd.core.node.stay import STALL_SECONDS, STALL_TIMES
from tests.core.node_talk import ONE, TWO, Told, events, order, suspend
from tests.core.playbook import Playbook, play, reported, run, started

LOOK_SECONDS = 5.0  # between two words of a host about a silent program


class Watched(Told):
    """A node, and a host that says what its program does."""

    def begins(self, run: RunId = ONE, stalled: OnStall = OnStall.TELL) -> None:
        self.all(replace(order(run), stalled=stalled), Started(run, 0, awaits_step=True))

    def steps(self, run: RunId, step: int, seconds: float = 1.0) -> list[object]:
        report = Reported(run, step, chunked(step, [1.0]), busy_seconds=seconds)
        return events(self.says(Progress(report), seconds))

    def silent(self, run: RunId, step: int, seconds: float, cores: float = 0.0) -> list[Action]:
        """The program shows no step for so long."""
        said: list[Action] = []
        for _ in range(round(seconds / LOOK_SECONDS)):
            used = Reported(
                run, step, busy_seconds=LOOK_SECONDS, cpu_seconds=cores * LOOK_SECONDS, chunks=()
            )
            said += self.says(Progress(used), LOOK_SECONDS)
        return said


def stalls(actions: list[Action]) -> list[RunStalled]:
    return [event for event in events(actions) if isinstance(event, RunStalled)]


@pytest.mark.parametrize(("cores", "least"), [(0.0, STALL_SECONDS), (1.0, HUNG_SECONDS)])
def test_a_step_that_does_not_end_is_told_once(cores: float, least: float) -> None:
    """Later if the program computes."""
    node = Watched()
    node.begins()
    node.steps(ONE, 10)
    node.steps(ONE, 20)
    assert not stalls(node.silent(ONE, 20, least - LOOK_SECONDS, cores))
    assert stalls(node.silent(ONE, 20, LOOK_SECONDS, cores)) == [RunStalled(ONE, 20, least)]
    assert not stalls(node.silent(ONE, 20, 2 * least, cores))
    node.steps(ONE, 21, LOOK_SECONDS)
    longest = STALL_TIMES * (3 * least + LOOK_SECONDS)
    assert not stalls(node.silent(ONE, 21, longest - LOOK_SECONDS, cores))
    assert stalls(node.silent(ONE, 21, LOOK_SECONDS, cores)), "it is told again the next time"


def test_what_lay_between_two_steps_before_may_take_its_time_again() -> None:
    """A validation at the end of each epoch, a checkpoint that takes long."""
    node = Watched()
    node.begins()
    node.steps(ONE, 100)
    node.silent(ONE, 100, 60)
    node.steps(ONE, 101, 0.0)
    assert not stalls(node.silent(ONE, 101, 20 * 60 - LOOK_SECONDS))
    assert stalls(node.silent(ONE, 101, LOOK_SECONDS))


def test_neither_a_slow_start_nor_a_program_without_steps_has_stalled() -> None:
    node = Watched()
    node.begins()
    assert not stalls(node.silent(ONE, 0, 10 * HUNG_SECONDS))
    node.steps(ONE, 1)
    assert not stalls(node.silent(ONE, 1, 10 * HUNG_SECONDS)), "a second one shows the pace"


@pytest.mark.parametrize(("cores", "is_told"), [(0.0, True), (1.0, False)])
def test_a_program_that_hung_before_its_daemon_was_restarted_is_told(
    cores: float, is_told: bool
) -> None:
    """One that computes may be in a long step: its pace is not known."""
    node = Watched()
    node.says(RunFound(order(ONE), "running", 20))
    assert not stalls(node.silent(ONE, 20, HUNG_SECONDS - LOOK_SECONDS, cores))
    told = stalls(node.silent(ONE, 20, LOOK_SECONDS, cores))
    assert told == [RunStalled(ONE, 20, HUNG_SECONDS)] * is_told


def test_the_time_in_which_it_was_parked_does_not_count() -> None:
    node = Watched()
    node.begins()
    node.steps(ONE, 10)
    node.steps(ONE, 20)
    node.silent(ONE, 20, STALL_SECONDS - LOOK_SECONDS)
    node.all(suspend(ONE, Tier.PARK), Parked(ONE, 20, midway=True))
    node.says(order(TWO, parked=ONE), after=10 * HUNG_SECONDS)
    node.says(Started(TWO, 20))
    assert not stalls(node.silent(TWO, 20, STALL_SECONDS - LOOK_SECONDS))
    assert stalls(node.silent(TWO, 20, LOOK_SECONDS))


def test_a_machine_that_slept_stalled_nobody() -> None:
    node = Watched()
    node.begins()
    node.steps(ONE, 10)
    node.steps(ONE, 20)
    slept = Reported(ONE, 20, (), busy_seconds=30_000.0)
    assert not stalls(node.says(Progress(slept)))


def test_a_program_that_has_done_its_steps_may_take_long_to_end() -> None:
    node = Watched()
    node.begins()
    node.says(Planned(ONE, 20))
    node.steps(ONE, 10)
    node.steps(ONE, 20)
    assert not stalls(node.silent(ONE, 20, HUNG_SECONDS - LOOK_SECONDS))
    assert stalls(node.silent(ONE, 20, LOOK_SECONDS))


@pytest.mark.parametrize("stalled", [OnStall.RETRY, OnStall.FAIL])
def test_it_is_ended_if_its_study_wants_that(stalled: OnStall) -> None:
    node = Watched()
    node.begins(stalled=stalled)
    node.steps(ONE, 10)
    node.steps(ONE, 20)
    assert node.silent(ONE, 20, STALL_SECONDS)[-1] == EndProcess(ONE)
    (failed,) = events(node.says(LeftDevice(ONE, Tier.KILL, 0, None)))
    assert isinstance(failed, RunFailed)
    words = f"no step after 20 for 120 s (retry.stalled: {stalled})"
    assert (failed.error_kind, failed.detail) == ("stalled", words)


def test_one_that_comes_to_its_end_before_it_is_ended_has_ended() -> None:
    node = Watched()
    node.begins(stalled=OnStall.RETRY)
    node.steps(ONE, 10)
    node.steps(ONE, 20)
    node.silent(ONE, 20, STALL_SECONDS)
    assert events(node.says(Completed(ONE, 21))) == [RunCompleted(ONE, 21)]


# -- at the head -------------------------------------------------------------------------------


def stalled_book(stalled: OnStall = OnStall.TELL) -> Playbook:
    book = play(stalled=stalled).at(100.0).tell(started("s/0#1"), reported("s/0#1", 20, [1.0]))
    return book.at(300.0).tell(RunStalled(run("s/0#1"), 20, 120.0))


def test_the_head_knows_it_until_the_next_step() -> None:
    book = stalled_book()
    assert book.trial().run.stalled_since == 180.0
    assert (
        "it has stalled: no step after 20 for 3 min" in book.scheduler.explain("s/0", 360.0).summary
    )
    book.refuses(RunStalled(run("s/0#1"), 20, 125.0), "told before")
    book.tell(Reported(run("s/0#1"), 20, (), busy_seconds=5.0))
    assert book.trial().run.stalled_since == 180.0
    book.tell(reported("s/0#1", 21, [1.0]))
    assert book.trial().run.stalled_since is None
    assert "stalled" not in book.scheduler.explain("s/0", 360.0).summary


@pytest.mark.parametrize(
    ("stalled", "phase"), [(OnStall.RETRY, Phase.STARTING), (OnStall.FAIL, Phase.FAILED)]
)
def test_a_run_that_was_ended_for_it_is_tried_again_or_not(stalled: OnStall, phase: Phase) -> None:
    book = stalled_book(stalled)
    detail = f"no step after 20 for 120 s (retry.stalled: {stalled})"
    book.tell(RunFailed(run("s/0#1"), "stalled", detail, "", 20))
    assert book.trial().phase is phase
    assert book.trial().failures[0].programs
