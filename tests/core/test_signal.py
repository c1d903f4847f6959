"""What is known of a study's trials when its policy is to read another metric."""

from __future__ import annotations

import pytest

from hermesd.core.decide.matching import OTHERWISE_ENDLESS_SECONDS, understood
from hermesd.core.events import SignalChosen
from hermesd.core.losses import chunked
from hermesd.core.model import Goal, Milestone, Plugin, Quantum
from hermesd.core.tables import Rejected
from tests.core.playbook import milestone, play, reported, started


def test_a_run_that_began_before_is_given_no_loss_to_judge_by() -> None:
    book = play(2, policy=Plugin("round_robin")).tell(started("s/0#1"))
    book.tell(reported("s/0#1", 4, [0.5] * 4))
    book.tell(SignalChosen("s", "acc", Goal.MAXIMIZE, (("s/0", chunked(1, [-0.25] * 9)),), "now"))
    trial = book.trial("s/0")
    assert trial.loss == -0.25
    assert trial.curve[-1].last_step == 4, "no further than it has come"
    with pytest.raises(Rejected, match="another signal"):
        book.tell(milestone("s/0#1", 50, 0.1, 5))
    run, study = trial.run, book.state.studies["s"]
    assert run is not None
    wanted = Quantum(loss=0.1, milestones=(Milestone(50, 0.1),))
    assert understood(wanted, run, study) == Quantum(seconds=OTHERWISE_ENDLESS_SECONDS)
    assert understood(Quantum(seconds=5.0), run, study) == Quantum(seconds=5.0)
