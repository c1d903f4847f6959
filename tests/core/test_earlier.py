"""Which earlier studies a new one may know of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import Submitted
from hermesd.core.model import Phase, Plugin, Stage
from hermesd.core.placement import make_placement
from hermesd.core.policy import FEWEST_EARLIER
from hermesd.core.state import State
from hermesd.core.tables import MOST_EARLIER
from hermesd.policy import make_policy
from tests.core.playbook import submitted

SHARED = Plugin("best_first", (("history", "shared"),))


def study(
    name: str, at: float, *parameters: str, trials: int = FEWEST_EARLIER, **changes: Any
) -> Submitted:
    """A study whose trials have these parameters."""
    event = submitted(trials, name, submitted=at, **changes)
    stage = Stage(None, tuple((each, 0.5) for each in parameters))
    specs = tuple(replace(each, stages=(stage,)) for each in event.trials)
    return replace(event, trials=specs)


def known(*events: Submitted, cancelled: tuple[str, ...] = ()) -> list[str]:
    """The studies that the last one may know of: the trials of all have ended."""
    state = State()
    for event in events:
        state.apply(event, event.study.submitted)
        name = event.study.id
        phase = Phase.CANCELLED if name in cancelled else Phase.COMPLETED
        for trial in state.members[name]:
            state.put(replace(state.trials[trial], phase=phase))
    return [each.study for each in state.earlier(events[-1].study.id)]


def test_those_before_it_with_the_same_parameters_in_any_order_the_latest_first() -> None:
    assert known(
        study("first", 1.0, "lr", "width"),
        study("other", 2.0, "lr"),
        study("second", 3.0, "width", "lr"),
        study("now", 4.0, "lr", "width"),
    ) == ["second", "first"]


def test_studies_of_which_nothing_came_take_no_place_of_others() -> None:
    before = [study(f"s{n}", float(n), "lr") for n in range(MOST_EARLIER)]
    few = [study(f"few{n}", 20.0 + n, "lr", trials=FEWEST_EARLIER - 1) for n in range(MOST_EARLIER)]
    gone = [study(f"gone{n}", 40.0 + n, "lr") for n in range(MOST_EARLIER)]
    cancelled = tuple(each.study.id for each in gone)
    found = known(*before, *few, *gone, study("now", 99.0, "lr"), cancelled=cancelled)
    assert found == [f"s{n}" for n in reversed(range(MOST_EARLIER))]


def test_why_says_what_a_policy_knows_of_earlier_studies_as_long_as_it_decides() -> None:
    state = State()
    for event in (
        study("first", 1.0, "lr", policy=Plugin("best_first")),
        study("now", 2.0, "lr", policy=SHARED),
        study("plain", 3.0, "lr", policy=Plugin("fifo")),
    ):
        state.apply(event, event.study.submitted)
    scheduler = Scheduler(state, make_policy, make_placement)

    def said(trial: str) -> str:
        return scheduler.explain(trial, 4.0).earlier_studies

    assert said("first/0").startswith("none: when this study began, none of its owner's with the")
    assert said("plain/0") == "", "it never goes by any"
    for name in state.members["first"]:
        state.put(replace(state.trials[name], phase=Phase.COMPLETED))
    assert said("first/0") == ""
    assert said("now/0") == "none, as all trials have the same settings"


def test_of_studies_without_parameters_nothing_is_known() -> None:
    assert known(study("first", 1.0), study("now", 2.0)) == []


def test_those_of_others_only_where_both_share() -> None:
    own, bob = {"policy": SHARED}, {"owner": "bob"}
    assert known(study("his", 1.0, "lr", **bob), study("now", 2.0, "lr", **own)) == []
    assert known(study("his", 1.0, "lr", **own, **bob), study("now", 2.0, "lr")) == []
    both = study("his", 1.0, "lr", **own, **bob), study("now", 2.0, "lr", **own)
    assert known(*both) == ["his"]


def test_only_trials_that_came_to_an_end_of_their_own_tell_anything() -> None:
    state = State()
    phases = (Phase.COMPLETED, Phase.FAILED, Phase.STOPPED, Phase.CANCELLED)
    ended = FEWEST_EARLIER // 2
    first = study("first", 1.0, "lr", trials=len(phases) * ended)
    for event in (first, study("now", 2.0, "lr")):
        state.apply(event, event.study.submitted)
    for number in range(len(first.trials)):
        phase = phases[number // ended]
        state.put(replace(state.trials[f"first/{number}"], phase=phase))
    (found,) = state.earlier("now")
    numbers = [trial.spec.number for trial in found.trials]
    assert numbers == [*range(ended), *range(2 * ended, 3 * ended)]
