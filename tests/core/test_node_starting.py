"""How long a program may take to its first boundary: as any may, or twice its longest start."""

from __future__ import annotations

from dataclasses import replace

from hermesd.core.commands import Launch
from hermesd.core.events import RunFailed, RunStarted
from hermesd.core.model import Tier
from hermesd.core.node_actions import End
from hermesd.core.node_messages import Begun, Left, Started, assignment
from tests.core.node_talk import ONE, Told, events, order
from tests.core.playbook import checkpointed, killed, play, run


def test_a_resume_may_take_twice_as_long_as_its_longest_start() -> None:
    node = Told()
    node.all(replace(order(ONE), start_allowance_seconds=1_600.0), Begun(ONE))
    assert node.later(1_599) == []
    assert node.later(1) == [End(ONE)]
    (failed,) = events(node.says(Left(ONE, Tier.KILL, 0, None)))
    assert isinstance(failed, RunFailed)
    assert failed.error_kind == "hung"
    words = "no first iteration within 1600 s of the start, twice what the longest of its starts"
    assert failed.detail.startswith(words)


def test_a_study_may_give_its_programs_longer() -> None:
    node = Told()
    node.all(replace(order(ONE), hung_seconds=1_600.0), Begun(ONE))
    assert node.later(1_599) == []
    assert node.later(1) == [End(ONE)]
    (failed,) = events(node.says(Left(ONE, Tier.KILL, 0, None)))
    assert isinstance(failed, RunFailed)
    assert failed.detail == "no first iteration within 1600 s of the start (retry.hung_seconds)"


def test_a_program_that_starts_fast_has_as_long_as_any() -> None:
    node = Told()
    node.all(replace(order(ONE), start_allowance_seconds=4.0), Begun(ONE))
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
