"""A program that comes to no further step: when that is said, and what is done about it."""

from __future__ import annotations

import pytest

from hermesd.core.events import Reported, RunCompleted, RunFailed, RunStalled
from hermesd.core.losses import chunked
from hermesd.core.model import HUNG_SECONDS, OnStall, Phase, RunId, Tier
from hermesd.core.node.actions import Action, EndProcess
from hermesd.core.node.messages import (
    LeftDevice,
    Parked,
    Planned,
    Progress,
    RunFound,
    Started,
    StepPace,
)
from hermesd.core.node.stay import STALL_SECONDS, STALL_TIMES
from tests.core.node_talk import ONE, TWO, Told, events, order, suspend, with_terms
from tests.core.playbook import Playbook, play, reported, run, started
from trainer_shim.host.freeze import WorkGroup
from trainer_shim.host.usage import UsageMeter

LOOK_SECONDS = 5.0  # between two words of a host about a silent program


class Cores(WorkGroup):
    """The processes of a trial, of which only the CPU time is asked."""

    def __init__(self) -> None:
        self.used_seconds = 0.0

    def cpu_seconds(self) -> float:
        return self.used_seconds


class Watched(Told):
    """A node, and the meter of a host that says what its program does."""

    def __init__(self, host: Watched | None = None) -> None:
        """With the host of a trial that a daemon before this one has started."""
        super().__init__()
        self.cores = Cores() if host is None else host.cores
        self.meter = UsageMeter(self.cores) if host is None else host.meter
        self.clock = 0.0 if host is None else host.clock

    def begins(self, run: RunId = ONE, stalled: OnStall = OnStall.TELL) -> None:
        self.all(with_terms(order(run), stalled=stalled), Started(run, 0, awaits_step=True))
        self.meter.go(self.clock)

    def steps(self, run: RunId, step: int, seconds: float = 1.0) -> list[object]:
        self.clock += seconds
        said = self.meter.rest({"last_step": step, "cpu_seconds": 0.0}, self.clock)
        report = Reported(run, step, chunked(step, [1.0]), busy_seconds=said["busy_seconds"])
        return events(self.says(Progress(report, pace=StepPace(**said["pace"])), seconds))

    def silent(self, run: RunId, step: int, seconds: float, cores: float = 0.0) -> list[Action]:
        """The program shows no step for so long."""
        said: list[Action] = []
        for _ in range(round(seconds / LOOK_SECONDS)):
            said += self.looks(run, step, LOOK_SECONDS, cores)
        return said

    def looks(self, run: RunId, step: int, seconds: float, cores: float = 0.0) -> list[Action]:
        """The host tells once that there was no step for so long."""
        self.clock += seconds
        self.cores.used_seconds += cores * seconds
        used = self.meter.measure(self.clock)
        assert used is not None
        pace = StepPace(**used.pop("pace"))
        return self.says(Progress(Reported(run, step, (), **used), pace=pace), seconds)


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


@pytest.mark.parametrize(("cores", "least"), [(0.0, STALL_SECONDS), (1.0, HUNG_SECONDS)])
def test_a_restart_of_the_daemon_changes_nothing_of_what_is_known_of_a_hung_program(
    cores: float, least: float
) -> None:
    node = Watched()
    node.begins()
    node.steps(ONE, 10)
    node.steps(ONE, 20)
    node.silent(ONE, 20, least / 2, cores)
    later = Watched(host=node)
    later.says(RunFound(order(ONE), "running", 20))
    assert not stalls(later.silent(ONE, 20, least / 2 - LOOK_SECONDS, cores))
    assert stalls(later.silent(ONE, 20, LOOK_SECONDS, cores)) == [RunStalled(ONE, 20, least)]
    again = Watched(host=later)
    again.says(RunFound(order(ONE), "running", 20))
    assert stalls(again.silent(ONE, 20, LOOK_SECONDS, cores)), "this daemon has not told it yet"


def test_the_time_in_which_it_was_parked_does_not_count() -> None:
    node = Watched()
    node.begins()
    node.steps(ONE, 10)
    node.steps(ONE, 20)
    node.silent(ONE, 20, STALL_SECONDS - LOOK_SECONDS)
    node.all(suspend(ONE, Tier.PARK), Parked(ONE, 20, midway=True))
    node.meter.stop()
    node.says(order(TWO, parked=ONE), after=10 * HUNG_SECONDS)
    node.says(Started(TWO, 20))
    node.meter.go(node.clock)
    assert not stalls(node.silent(TWO, 20, STALL_SECONDS - LOOK_SECONDS))
    assert stalls(node.silent(TWO, 20, LOOK_SECONDS))


def test_a_machine_that_slept_stalled_nobody() -> None:
    node = Watched()
    node.begins()
    node.steps(ONE, 10)
    node.steps(ONE, 20)
    assert not stalls(node.looks(ONE, 20, 30_000.0))


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
    assert events(node.says(RunCompleted(ONE, 21))) == [RunCompleted(ONE, 21)]


# At the head.


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
