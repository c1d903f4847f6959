"""The rule of Hops: a first failure excludes a device, a second its node, a third ends all."""

from __future__ import annotations

import pytest

from hermesd.core.events import FidelityKnown, Forgiven, Removed, RunFailed
from hermesd.core.model import FailureRule, Fidelity, OnThirdFailure, Phase
from hermesd.head.api.notices import notices
from hermesd.refusal import Refused
from hermesd.study.submission import Submission, draft
from tests.core.playbook import Playbook, completed, crashed, joined, play, run, started
from tests.study_specs import spec


def strict(trials: int = 1, devices: int = 2) -> Playbook:
    """A study on n, which has some devices, and then m, which has one."""
    rule = {"failure_rule": FailureRule.HOPS, "on_third_failure": OnThirdFailure.STUDY}
    return play(trials, devices, **rule).tell(joined(1, node="m"))


def where(book: Playbook, trial: str = "s/0") -> str:
    holder = book.trial(trial).run
    return holder.devices[0] if holder else "nowhere"


def test_each_failure_of_a_trial_takes_more_from_its_study_and_the_third_all() -> None:
    book = strict()
    assert where(book) == "n/0"
    book.tell(started("s/0#1"), crashed("s/0#1", 3, "same"))
    assert set(book.state.excluded) == {("s", "n/0")}
    assert where(book) != "n/0"
    book.tell(started("s/0#2"), crashed("s/0#2", 3, "same"))
    assert len(book.state.excluded) == 2
    assert book.trial().phase is not Phase.FAILED, "the same error again ends nothing here"
    place = where(book)
    assert ("s", place) not in book.state.excluded
    book.tell(started("s/0#3"), crashed("s/0#3", 3, "same"))
    assert (book.trial().phase, "retry.rule: hops" in book.trial().reason) == (Phase.FAILED, True)
    assert book.state.is_over("s")


def test_what_one_trial_failed_on_no_other_of_the_study_gets() -> None:
    book = strict(trials=3, devices=1)
    assert (where(book, "s/0"), where(book, "s/1")) == ("n/0", "m/0")
    book.tell(started("s/0#1"), crashed("s/0#1", 1, "a"))
    assert book.busy("n/0") is None, "though two trials wait"
    told = book.scheduler.explain("s/2", book.now).left_out
    assert [(each.place, "retry.rule: hops" in each.reason) for each in told] == [("n/0", True)]
    book.tell(started("s/1#1"), completed("s/1#1", 3))
    assert book.busy("m/0") is not None
    book.tell(Forgiven("n", "release"))
    assert not book.state.excluded
    assert book.busy("n/0") is not None


def test_the_author_is_told_when_no_place_is_left() -> None:
    book = play(2, 1, failure_rule=FailureRule.HOPS)

    def told() -> list[str]:
        return notices(book.scheduler, book.state.studies["s"], book.now)

    assert not told()
    book.tell(started("s/0#1"), crashed("s/0#1", 1, "a"))
    (words,) = told()
    assert words.startswith("no device is left that the study may have: on n/0, s/0 failed there")
    assert "`hermesctl node release n` gives it back" in words
    book.tell(joined(1, node="m"))
    assert not told()


def test_failures_of_several_trials_do_not_add_up_and_a_third_of_one_stops_all() -> None:
    book = strict(trials=4, devices=3)
    for name in ("s/0#1", "s/1#1"):
        book.tell(started(name), FidelityKnown(run(name), Fidelity.EXACT, "", "keras"))
        book.tell(crashed(name, 1, name))
    assert {place for _, place in book.state.excluded} == {"n/0", "n/1"}
    for attempt in (2, 3):
        assert not book.state.is_over("s")
        if book.trial("s/0").run is None:  # it waits for the device of another
            other = next(t.run.id for t in book.state.trials.values() if t.run)
            book.tell(started(str(other)), completed(str(other), 3))
        book.tell(started(f"s/0#{attempt}"), crashed(f"s/0#{attempt}", 1, "again"))
    phases = {trial.phase for trial in book.state.trials.values() if not trial.run}
    assert phases <= {Phase.FAILED, Phase.STOPPED, Phase.COMPLETED}
    assert book.trial("s/0").phase is Phase.FAILED


def test_a_checkpoint_that_cannot_be_used_is_no_failure_of_its_device() -> None:
    book = strict()
    book.tell(RunFailed(run("s/0#1"), "restore", "damaged", "", 0))
    assert not book.state.excluded


def test_exclusions_go_with_their_study() -> None:
    book = strict()
    book.tell(started("s/0#1"), crashed("s/0#1", 3, "a"))
    last = book.trial().run
    assert last is not None
    book.tell(started(str(last.id)), completed(str(last.id), 9))
    assert book.state.excluded
    book.tell(Removed("s", "rm"))
    assert not book.state.excluded


def test_it_takes_the_place_of_the_other_rules() -> None:
    study = draft(Submission(spec(retry={"rule": "FAILURE_RULE_HOPS"}))).study
    assert (study.failure_rule, study.on_third_failure) == (FailureRule.HOPS, OnThirdFailure.STUDY)
    with pytest.raises(Refused, match="evidence beside max_failures"):
        draft(Submission(spec(retry={"rule": "FAILURE_RULE_HOPS", "max_failures": 5})))
