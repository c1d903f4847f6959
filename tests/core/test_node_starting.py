"""How long a program may take to its first boundary: as any may, or twice its longest start."""

from __future__ import annotations

from dataclasses import replace

from hermesd.core.commands import Launch, Renew
from hermesd.core.events import QuantumEnded, RunFailed, RunStarted
from hermesd.core.model import Quantum, RunId, Tier
from hermesd.core.node.actions import AskReport, EndProcess
from hermesd.core.node.messages import LeftDevice, Parked, ProcessStarted, Started, assignment
from hermesd.core.node.stay import FIRST_STEP_SECONDS
from tests.core.node_talk import ONE, TWO, Told, events, order, progress, suspend, with_terms
from tests.core.playbook import checkpointed, killed, play, run


def test_a_resume_may_take_twice_as_long_as_its_longest_start() -> None:
    node = Told()
    node.all(replace(order(ONE), start_allowance_seconds=1_600.0), ProcessStarted(ONE))
    assert node.later(1_599) == []
    assert node.later(1) == [EndProcess(ONE)]
    (failed,) = events(node.says(LeftDevice(ONE, Tier.KILL, 0, None)))
    assert isinstance(failed, RunFailed)
    assert failed.error_kind == "hung"
    words = "no first iteration within 1600 s of the start, twice what the longest of its starts"
    assert failed.detail.startswith(words)


def test_a_study_may_give_its_programs_longer() -> None:
    node = Told()
    node.all(with_terms(order(ONE), hung_seconds=1_600.0), ProcessStarted(ONE))
    assert node.later(1_599) == []
    assert node.later(1) == [EndProcess(ONE)]
    (failed,) = events(node.says(LeftDevice(ONE, Tier.KILL, 0, None)))
    assert isinstance(failed, RunFailed)
    assert failed.detail == "no first iteration within 1600 s of the start (retry.hung_seconds)"


def test_a_program_that_starts_fast_has_as_long_as_any() -> None:
    node = Told()
    node.all(replace(order(ONE), start_allowance_seconds=4.0), ProcessStarted(ONE))
    assert node.later(899) == []
    assert node.says(Started(ONE, 0))


def test_the_head_remembers_the_longest_start() -> None:
    book = play()
    for name, seconds, step in (("s/0#1", 700.0, 0), ("s/0#2", 30.0, 40)):
        book.tell(RunStarted(run(name), step, seconds, None)).tell(checkpointed(name, step + 40))
        book.tell(killed(name, step + 40))
    (launch,) = book.scheduler.outstanding("n")
    assert isinstance(launch, Launch)
    told = assignment(launch, book.state.studies["s"], book.trial())
    assert told.start_allowance_seconds == 1_400.0


def test_a_quantums_seconds_count_from_the_first_step_of_a_process() -> None:
    """However long the program imports, reads its data and compiles before."""
    node = Told()
    node.all(order(ONE, quantum=Quantum(seconds=5.0)), Started(ONE, 0, awaits_step=True))
    assert node.later(40) == []
    node.says(progress(ONE, 0))  # what the silent program uses meanwhile
    assert node.later(10) == []
    node.says(progress(ONE, 1, 1.0))
    assert node.later(4.9) == []
    assert node.later(0.2) == [AskReport(ONE)]
    assert QuantumEnded(ONE, 0, 9) in events(node.says(progress(ONE, 9, 1.0)))


def test_parked_before_its_first_step_a_program_has_its_seconds_from_there_as_well() -> None:
    node = Told()
    node.all(order(ONE, quantum=Quantum(seconds=5.0)), Started(ONE, 0, awaits_step=True))
    node.all(suspend(ONE), Parked(ONE, 0))
    node.all(order(TWO, quantum=Quantum(seconds=5.0), parked=ONE), Started(TWO, 0))
    assert node.later(50) == []
    node.says(progress(TWO, 1, 1.0))
    node.all(suspend(TWO), Parked(TWO, 1))
    three = RunId("digits/1", 3)
    node.all(order(three, quantum=Quantum(seconds=5.0), parked=TWO), Started(three, 1))
    assert node.later(5.1) == [AskReport(three)], "now it steps as soon as it goes on"


def test_a_program_that_comes_to_no_step_gives_its_device_back_all_the_same() -> None:
    node = Told()
    node.all(order(ONE, quantum=Quantum(seconds=5.0)), Started(ONE, 0, awaits_step=True))
    assert node.later(FIRST_STEP_SECONDS - 0.1) == []
    assert events(node.later(1.2)) == [QuantumEnded(ONE, 0, 0)]
    node.says(Renew(ONE, 1, Quantum(seconds=5.0), "alone"))
    assert node.later(FIRST_STEP_SECONDS - 0.1) == [], "each quantum is as long"
    assert events(node.later(1.2)) == [QuantumEnded(ONE, 1, 0)]
