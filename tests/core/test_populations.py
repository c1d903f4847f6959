"""A population whose losers are held back while forks of the winners go on in their places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from hermesd.core.events import (
    Added,
    Copied,
    Extended,
    FidelityKnown,
    NotCopied,
    PopulationEnded,
    Retried,
    Submitted,
    Unpaused,
)
from hermesd.core.model import Fidelity, Phase, Plugin, Stage, StopRule, TrialId
from hermesd.core.policy import Exploit, View
from hermesd.core.state import State
from hermesd.core.trial import Trial
from hermesd.head.journal import outcomes, replay
from hermesd.head.populations import Populations, _NothingToDo, forks, generation, is_over
from hermesd.pieces import whole
from hermesd.policy.published.pbt import Pbt
from tests.core.playbook import (
    Playbook,
    checkpointed,
    completed,
    joined,
    parked,
    quantum_ended,
    reported,
    run,
    started,
    study,
    submitted,
    trial_spec,
)
from tests.study_specs import spec

PBT = Plugin("pbt", (("ready", 10), ("share", 0.5), ("resample", 0.0)))
SPACE = {"lr": {"min": 0.0, "max": 1.0}}
SOURCE = spec(SPACE, method="SEARCH_METHOD_RANDOM", run_cap=2).SerializeToString()


def population(size: int = 2, devices: int = 1) -> Playbook:
    """s/1 ... of which the first come to the end of the first round on one device by turns."""
    specs = tuple(
        replace(trial_spec(f"s/{n}"), stages=(Stage(None, (("lr", 0.5),)),))
        for n in range(1, size + 1)
    )
    search = study(policy=PBT, source=SOURCE, replicas=0)
    return Playbook().tell(Submitted(search, specs, "submit"), joined(devices))


def trained(book: Playbook, name: str, loss: float, first: int = 0, to: int = 10) -> Playbook:
    """The run trains to the end of a round, and writes its checkpoint there."""
    begun = [] if first and book.trial(run(name).trial).run is None else [started(name, first)]
    begun += [FidelityKnown(run(name), Fidelity.EXACT, "", "keras")]
    grant = 0
    return book.tell(
        *begun,
        reported(name, to, [loss] * (to - first)),
        quantum_ended(name, grant, to),
    ).tell(checkpointed(name, to))


def ready(loss: float = 0.5, other: float = 0.25) -> Playbook:
    """s/1 and s/2 have come to the first round's end, s/2 on the device."""
    book = population()
    book.expect("launch s/1#1 on n/0 for step 10")
    trained(book, "s/1#1", loss).tell(parked("s/1#1", 10))
    book.heard()
    trained(book, "s/2#1", other)
    return book


def bred(book: Playbook) -> Added:
    ((name, exploration),) = book.scheduler.populations()
    exploits = book.scheduler.exploits(name, book.now)
    assert exploits
    specs = whole(forks(book.state, book.state.studies[name], exploits, exploration))
    return generation(book.state, name, exploits, specs, "round")


def test_the_loser_is_held_back_and_a_fork_of_the_winner_goes_on() -> None:
    book = ready()
    book.heard()
    book.tell(bred(book))
    assert "copy s/2#1@10 from n to n" in book.heard()
    loser, fork = book.trial("s/1"), book.trial("s/3")
    assert (loser.paused, loser.replaced_by, loser.phase) == (True, "s/3", Phase.WAITING)
    assert fork.spec.proposal == "pbt"
    assert dict(fork.spec.parameters)["lr"] in (0.4, 0.6)
    assert not book.scheduler.exploits("s", book.now), "a round has one exchange"
    told = book.scheduler.explain("s/1", book.now).summary
    assert told == "s/1 is held back: s/3 goes on in its place"
    book.tell(Copied("n", "s/3", "s/2#1@10"))
    assert book.trial("s/3").step == 10
    read = replay.read(tuple(replay.write(replay.taken(book.state))))
    assert read.trials["s/1"].replaced_by == "s/3"


def test_the_same_exchange_is_found_again_after_a_crash_before_it_was_journaled() -> None:
    book = ready()
    again = Playbook()
    for entry, at in book.entries:
        again.state.apply(entry, at)
    assert bred(book) == bred(again)


def test_a_person_has_the_loser_go_on_after_all() -> None:
    book = ready()
    book.tell(bred(book)).tell(Unpaused(("s/1",), "resume"))
    assert (book.trial("s/1").paused, book.trial("s/1").replaced_by) == (False, "")


def test_the_losers_end_with_the_population_and_can_still_be_had_back() -> None:
    book = ready()
    book.tell(bred(book)).tell(Copied("n", "s/3", "s/2#1@10"))
    assert not is_over(book.state, "s")
    for _ in range(2):
        run_id = next(each.run.id for each in book.state.trials.values() if each.run)
        if book.trial(run_id.trial).phase is Phase.STARTING:
            book.tell(started(str(run_id), 10))
        book.tell(completed(str(run_id), 20))
    assert is_over(book.state, "s")
    assert outcomes.unfinished(book.state, PopulationEnded("s")) == ("s/1",), "its end is told"
    book.tell(PopulationEnded("s"))
    loser = book.trial("s/1")
    assert (loser.phase, loser.reason) == (Phase.STOPPED, "s/3 went on in its place")
    assert book.state.is_over("s")
    book.tell(Retried(("s/1",), "retry"))
    assert (book.trial("s/1").phase, book.trial("s/1").replaced_by) != (Phase.STOPPED, "s/3")


def test_the_place_of_a_fork_that_cannot_begin_is_filled_in_the_next_round() -> None:
    book = ready()
    refused = NotCopied("n", "s/3", "s/2#1@10", "it is damaged", False)
    assert outcomes.unfinished(book.tell(bred(book)).state, refused) == ("s/3",), "its end is told"
    book.tell(refused)
    assert book.trial("s/3").phase is Phase.FAILED
    book.tell(reported("s/2#1", 20, [0.25] * 10), quantum_ended("s/2#1", 1, 20))
    book.tell(checkpointed("s/2#1", 20))
    assert bred(book).instead == ("s/3",)


def test_who_is_over_or_held_back_is_not_replaced() -> None:
    book = ready()
    event = bred(book)
    book.refuses(replace(event, instead=("s/1", "s/2")), "in the places of 2")
    book.refuses(replace(event, instead=("s/9",)), "no trial")
    book.tell(event)
    more = replace(event, trials=(replace(event.trials[0], id="s/4", number=4),), request_id="2")
    book.refuses(more, "s/1 is not to be replaced")


@pytest.mark.parametrize(("one", "other"), [(0.5, 0.5), (0.25, 0.25)])
def test_of_equals_nobody_is_replaced(one: float, other: float) -> None:
    book = ready(one, other)
    assert not book.scheduler.exploits("s", book.now)
    assert book.trial("s/1").candidate


def test_a_population_whose_policy_raises_goes_on_without_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    book = ready()
    book.tell(bred(book)).tell(Copied("n", "s/3", "s/2#1@10"))

    def broken(policy: Pbt, view: View) -> list[Exploit]:
        raise ZeroDivisionError

    monkeypatch.setattr(Pbt, "exploits", broken)
    assert book.scheduler.exploits("s", book.now) == ()
    for _ in range(2):
        run_id = next(each.run.id for each in book.state.trials.values() if each.run)
        if book.trial(run_id.trial).phase is Phase.STARTING:
            book.tell(started(str(run_id), 10))
        book.tell(completed(str(run_id), 20))
    assert "ZeroDivisionError" in book.state.fallen["s"]
    assert not [*book.scheduler.populations()]
    assert is_over(book.state, "s"), "and its losers can still be ended"


def test_a_study_that_goes_on_is_known_by_one_of_its_trials() -> None:
    """It is asked after each entry, of every study."""

    class Counted(dict[TrialId, Trial]):
        asked = 0

        def __getitem__(self, key: TrialId) -> Trial:
            self.asked += 1
            return super().__getitem__(key)

    state = State()
    state.apply(submitted(50), 0.0)
    state.trials = counted = Counted(state.trials)
    assert not is_over(state, "s")
    assert counted.asked == 1


async def test_forks_that_were_explored_in_bounds_that_changed_meanwhile_are_made_anew() -> None:
    book = ready()
    narrower = spec({"lr": {"min": 0.0, "max": 0.4}}, method="SEARCH_METHOD_RANDOM", run_cap=2)
    changes = [Extended("s", (), StopRule(), (), (), "r", narrower.SerializeToString())]

    class Busy:
        """A head of which a person asks something while the forks are made."""

        state, scheduler, clock = book.state, book.scheduler, staticmethod(lambda: book.now)

        async def read(self, user: str, count: int, begin: Any) -> Any:
            made = whole(begin(book.state))
            while changes:
                book.tell(changes.pop())
            return made

        async def change(self, key: str, compose: Any) -> None:
            book.tell(compose(book.state, book.now))

    populations = Populations(cast(Any, Busy()))
    ((name, exploration),) = book.scheduler.populations()
    with pytest.raises(_NothingToDo):
        await populations._breed(name, exploration)
    assert "s/3" not in book.state.trials
    await populations._breed(name, exploration)
    assert dict(book.trial("s/3").spec.parameters)["lr"] <= 0.4
