"""Runs of another study that bore the same name, at a head that knew nothing of ours."""

from __future__ import annotations

from dataclasses import replace

from hermesd.core.commands import Release
from hermesd.core.events import RunFailed, RunStarted, RunSuspended
from hermesd.core.model import Tier
from hermesd.core.node.actions import DeleteTrialFiles, EndProcess, Spawn, TellHead
from hermesd.core.node.messages import LeftDevice, Parked, Started
from tests.core.node_talk import ONE, TWO, Told, exact, order, suspend, with_terms
from tests.core.playbook import completed, joined, live, play, run, started, submitted

OURS, THEIRS = with_terms(order(ONE), identity="ours"), with_terms(order(ONE), identity="theirs")


def test_a_launch_of_the_same_name_ends_what_was_here_and_starts() -> None:
    node = Told()
    assert node.says(THEIRS) == [Spawn(THEIRS, None, None)]
    assert node.says(Started(ONE, 0)) == [TellHead(RunStarted(ONE, 0, 0.0), (), "theirs")]
    assert node.says(OURS) == [EndProcess(ONE)]
    assert [(each.run, each.identity) for each in node.machine.live()] == [
        (ONE, "theirs"),
        (ONE, "ours"),
    ]
    left, spawn = node.says(LeftDevice(ONE, Tier.KILL, 3, None))
    assert isinstance(left, TellHead)
    assert (type(left.event), left.identity) == (RunSuspended, "theirs")
    assert spawn == Spawn(OURS, None, None)


def test_what_is_parked_of_another_study_is_not_let_go() -> None:
    node = Told()
    node.says(THEIRS)
    node.says(Started(ONE, 0))
    node.says(exact(ONE))
    node.says(suspend(ONE, Tier.PARK))
    node.says(Parked(ONE, 5))
    assert node.says(with_terms(order(TWO, parked=ONE), identity="ours")) == [EndProcess(ONE)]


def test_what_is_forgotten_of_another_study_does_not_take_ours_with_it() -> None:
    node = Told()
    node.says(THEIRS)
    node.says(Started(ONE, 0))
    node.says(Release(ONE.trial, "n1", True))
    assert node.says(OURS) == []
    said = node.says(LeftDevice(ONE, Tier.KILL, 0, None))
    assert said[1:] == [Spawn(OURS, None, None)]
    assert not any(isinstance(each, DeleteTrialFiles) for each in said)


def test_an_answer_about_a_run_that_was_never_here_is_said_of_no_study() -> None:
    (told,) = Told().says(suspend(ONE))
    assert isinstance(told, TellHead)
    assert (type(told.event), told.identity) == (RunFailed, "")


def test_a_hello_with_a_run_of_another_study_keeps_none_of_ours_alive() -> None:
    book = play(devices=None).tell(submitted(name="t", identity="ours")).tell(joined(2))
    book.expect("launch s/0#1 on n/0", "launch t/0#1 on n/1")
    book.tell(started("s/0#1"), started("t/0#1"))
    theirs = replace(live("t/0#1", device="n/1"), identity="theirs")
    book.tell(joined(2, live=[live("s/0#1"), theirs]))
    book.expect("launch t/0#2 on n/1", "kill t/0#1 on n")
    assert book.trial("t/0").failures[0].error_kind == "lost"
    same = replace(live("t/0#2", "starting", device="n/1"), identity="ours")
    book.tell(joined(2, live=[live("s/0#1"), same])).expect()


def test_a_node_tells_a_restored_head_which_attempts_there_were() -> None:
    book = play(1, devices=1).expect("launch s/0#1 on n/0")
    seen = RunFailed(run("s/0#1"), "lost", "the head has forgotten attempts of it", "", 0, 7)
    book.tell(seen).expect("launch s/0#8 on n/0")
    trial = book.state.trials["s/0"]
    assert (trial.failures, trial.misfortunes, trial.attempt) == ((), 0, 8)
    assert not book.state.strikes
    book.tell(started("s/0#8"), completed("s/0#8", 3)).expect()
