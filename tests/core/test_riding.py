"""Trials that are alike so far: one trains for all, and where they part each goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hermesd.core.events import (
    Added,
    Cancelled,
    Copied,
    Extended,
    FidelityKnown,
    NodeLost,
    NodeSilent,
    NotCopied,
    Paused,
    Removed,
    Retried,
    RunFailed,
    Submitted,
    Unpaused,
)
from hermesd.core.fold import riding
from hermesd.core.model import (
    Fidelity,
    Phase,
    Plugin,
    RetryAction,
    RetryRule,
    Stage,
    StopRule,
    TrialSpec,
)
from hermesd.core.node.messages import assignment
from hermesd.core.tables import riding_of
from hermesd.core.trial import RESTORE
from hermesd.head.api import forking
from hermesd.head.api.public_events import public_events
from hermesd.head.journal import outcomes
from hermesd.head.journal.schema import JournalLine
from hermesd.head.refusals import NotNow
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.refusal import Refused
from tests.core.playbook import (
    Playbook,
    checkpointed,
    completed,
    crashed,
    joined,
    quantum_ended,
    reported,
    run,
    started,
    study,
    trial_spec,
    written,
)

A, B, C, D = "abcd"


def spec(number: int, *values: str, ends: Sequence[int] = (10, 20), name: str = "s") -> TrialSpec:
    """A trial with these values one after the other."""
    stages = zip([*ends[: len(values) - 1], None], values, strict=True)
    found = tuple(Stage(end, (("lr", value),)) for end, value in stages)
    return replace(trial_spec(f"{name}/{number}"), stages=found, root="root")


def tree(*specs: TrialSpec, devices: int = 1, **changes: Any) -> Playbook:
    book = Playbook().tell(Submitted(study(replicas=0, **changes), specs, "submit s"))
    book.tell(joined(devices)).heard()
    return book


def three(devices: int = 1, **changes: Any) -> Playbook:
    """s/0 and s/1 part at 10, s/2 parts from s/1 at 20; s/0 trains."""
    specs = spec(0, A, B), spec(1, A, C), spec(2, A, C, D)
    book = tree(*specs, devices=devices, **changes)
    assert (book.busy("n/0"), book.state.free.keys() & {"n/0"}) == ("s/0#1", set())
    return book


def trained(book: Playbook, name: str, first: int, last: int) -> Playbook:
    """A run has reported these steps."""
    present = book.trial(name.partition("#")[0]).run
    fidelity = FidelityKnown(run(name), Fidelity.EXACT, "", "keras")
    begun = [] if present is None or present.started else [started(name, first)]
    losses = [1.0 / step for step in range(first + 1, last + 1)]
    return book.tell(*begun, fidelity, reported(name, last, losses))


def copied(trial: str, of: str, step: int) -> Copied:
    return Copied("n", trial, f"{of}@{step}")


def test_one_of_those_that_are_alike_trains_and_the_others_are_no_candidates() -> None:
    book = three(devices=2)
    assert [book.trial(f"s/{n}").carrier for n in range(3)] == [None, "s/0", "s/0"]
    summary = book.scheduler.explain("s/2", 0.0).summary
    assert summary.startswith("s/2 rides on s/0, which does the same until step 10")


def test_its_node_hears_where_others_part_from_it() -> None:
    book = three()
    parts = book.state.riding.riders["s/0"].values()
    launch, _ = next(e for e in book.entries if type(e[0]).__name__ == "Launch")
    order = assignment(launch, book.state.studies["s"], book.trial(), parts)  # type: ignore[arg-type]
    assert order.work.forks == (10,)


def test_where_they_part_each_goes_on_from_the_checkpoint() -> None:
    book = trained(three(devices=2), "s/0#1", 0, 10)
    book.tell(checkpointed("s/0#1", 10)).expect("copy s/0#1@10 from n to n")
    assert book.trial().run, "the first goes on in its process"
    assert [book.trial(f"s/{n}").carrier for n in (1, 2)] == [None, "s/1"]
    book.tell(copied("s/1", "s/0#1", 10)).expect("launch s/1#2 on n/1 from s/1@10")
    fork = book.trial("s/1")
    assert (fork.step, fork.curve) == (10, book.trial().curve)
    trained(book, "s/1#2", 10, 20).tell(checkpointed("s/1#2", 20))
    book.expect("copy s/1#2@20 from n to n")
    book.tell(completed("s/0#1", 30)).expect()
    book.tell(copied("s/2", "s/1#2", 20)).expect("launch s/2#3 on n/0 from s/2@20")
    assert book.trial("s/2").carried_steps == 20


def test_trials_of_several_devices_part_from_each_other_as_those_of_one_do() -> None:
    specs = spec(0, A, B), spec(1, A, C)
    book = Playbook().tell(Submitted(study(replicas=0, devices=2), specs, "submit s"), joined(4))
    book.expect("launch s/0#1 on n/0, n/1")
    trained(book, "s/0#1", 0, 10).tell(checkpointed("s/0#1", 10))
    book.expect("copy s/0#1@10 from n to n")
    book.tell(copied("s/1", "s/0#1", 10)).expect("launch s/1#2 on n/2, n/3 from s/1@10")


def forked(book: Playbook, name: str, **fields: Any) -> tuple[Added, list[str]]:
    """A fork as a person asks for it, and what is said of where it begins."""
    made = forking.forked(book.state, name, pb.ForkTrialRequest(**fields), "fork")
    said = forking.notes(book.state, book.trial(name), made, "", is_asked="step" in fields)
    return made, said


def test_a_fork_of_a_rider_begins_where_others_have_written_down_what_they_share() -> None:
    """s/2 rides on s/0 until 10, and then on s/1 until 20; it has nothing of its own."""
    book = three()
    with pytest.raises(NotNow, match=r"^s/0, which trains for s/2, has no checkpoint yet, .* step"):
        forked(book, "s/2")
    trained(book, "s/0#1", 0, 7).tell(checkpointed("s/0#1", 5))
    made, said = forked(book, "s/2")
    assert [each and each.id for each in made.forked] == ["s/0#1@5"]
    assert said == [
        "s/0 trains for s/2 as long as both are the same, so this begins from step 5 of s/0"
    ]
    trained(book, "s/0#1", 7, 10).tell(checkpointed("s/0#1", 10)).heard()
    trained(book, "s/0#1", 10, 16).tell(checkpointed("s/0#1", 16)).heard()
    assert book.trial("s/2").carrier == "s/1"
    made, _ = forked(book, "s/2")
    assert [each and each.id for each in made.forked] == ["s/0#1@10"], "beyond that, s/0 differs"
    book.tell(made).heard()
    fork = book.trial(made.trials[0].id)
    assert (fork.forked and fork.forked.step, fork.carrier) == (10, None)
    with pytest.raises(Refused, match="a step at which it has a checkpoint: 10"):
        forked(book, "s/2", step=16)


def small_and_large() -> Playbook:
    """s/0 trains for s/1 as well, with which it parts at 10; the second device has more memory."""
    more = (RetryRule("out of memory", RetryAction.MORE_MEMORY),)
    specs = spec(0, A, B), spec(1, A, C)
    book = Playbook().tell(Submitted(study(replicas=0, retry_rules=more), specs, "submit s"))
    book.tell(joined(1, memory=[1 << 30])).expect("launch s/0#1 on n/0")
    return trained(book, "s/0#1", 0, 6).tell(checkpointed("s/0#1", 5))


def out_of_memory(name: str, step: int) -> RunFailed:
    said = "out of memory"
    return RunFailed(run(name), "exception", said, said, step, devices=1)


def test_where_the_carrier_has_run_out_of_memory_its_riders_ride_on_on_a_larger_device() -> None:
    book = small_and_large().tell(joined(1, node="m", memory=[4 << 30]))
    book.heard()
    book.tell(out_of_memory("s/0#1", 6)).expect("launch s/0#2 on m/0 from s/0#1@5")
    assert (book.trial("s/1").carrier, book.trial("s/1").failures) == ("s/0", ())


@pytest.mark.parametrize("failed_at", [6, 12])
def test_what_parts_from_the_carrier_knows_where_that_has_run_out_of_memory_before(
    failed_at: int,
) -> None:
    """What the carrier has learned of its own values, once they had parted, is none of its."""
    book = small_and_large().tell(joined(1, node="m", memory=[4 << 30]))
    book.heard()
    if failed_at == 6:
        book.tell(out_of_memory("s/0#1", 6)).expect("launch s/0#2 on m/0 from s/0#1@5")
        trained(book, "s/0#2", 5, 10).tell(checkpointed("s/0#2", 10))
        book.heard()
        book.tell(copied("s/1", "s/0#2", 10)).expect()
        told = book.scheduler.explain("s/1", 0.0)
        assert ("n/0", "it ran out of memory on a device with as much") in {
            (each.place, each.reason) for each in told.left_out
        }
        book.tell(completed("s/0#2", 30)).expect("launch s/1#3 on m/0 from s/1@10")
    else:
        trained(book, "s/0#1", 6, 10).tell(checkpointed("s/0#1", 10))
        trained(book, "s/0#1", 10, 12).tell(out_of_memory("s/0#1", 12))
        book.heard()
        book.tell(copied("s/1", "s/0#1", 10)).expect("launch s/1#2 on n/0 from s/1@10")
    assert [each.step for each in book.trial("s/1").warnings] == ([6] if failed_at == 6 else [])
    assert not book.trial("s/1").failures


def test_where_no_device_has_more_memory_each_that_is_alike_fails_after_one_more_has_tried() -> (
    None
):
    """The second goes on from what the first has saved, and ends at the same step."""
    book = small_and_large().tell(out_of_memory("s/0#1", 6))
    book.heard()
    assert book.trial("s/0").phase is Phase.FAILED
    assert (book.trial("s/1").phase, book.trial("s/1").step) == (Phase.WAITING, 5)
    book.tell(copied("s/1", "s/0#1", 5)).expect("launch s/1#2 on n/0 from s/1@5")
    trained(book, "s/1#2", 5, 6).tell(out_of_memory("s/1#2", 6)).expect()
    assert book.trial("s/1").phase is Phase.FAILED


def at_an_image(book: Playbook, is_fork: bool = True, id: str = "s/0@a1-s10") -> Playbook:
    """s/0, the carrier, has trained up to where s/1 parts, and has an image of its processes."""
    event = checkpointed("s/0#1", 10)
    image = replace(event.checkpoint, id=id, image_of="n", is_fork=is_fork)
    return trained(book, "s/0#1", 0, 10).tell(replace(event, checkpoint=image))


def test_they_part_at_an_image_as_well() -> None:
    book = at_an_image(three(devices=2)).expect("copy s/0@a1-s10 from n to n")
    book.tell(replace(copied("s/1", "s/0#1", 10), checkpoint="s/0@a1-s10"))
    begin = book.trial("s/1").checkpoint
    assert begin is not None
    assert (begin.trial, begin.step, begin.image_of) == ("s/1", 10, "n")


def test_they_part_at_no_image_that_was_not_taken_for_that() -> None:
    """It may be of a program amid an iteration."""
    book = at_an_image(three(devices=2), is_fork=False).expect()
    assert book.trial("s/1").carrier == "s/0"


def test_they_part_at_an_image_that_an_older_journal_calls_a_fork_by_its_name_alone() -> None:
    book = at_an_image(three(devices=2), is_fork=False, id="s/0@a1-fork-s10")
    book.expect("copy s/0@a1-fork-s10 from n to n")
    # The name of a study says nothing.
    at_an_image(three(devices=2), is_fork=False, id="a-fork-small/0@a1-s10").expect()


def test_nobody_goes_on_from_an_image_of_another_users_processes() -> None:
    """It has what that user gave them."""
    book = tree(spec(0, A, B), devices=2)
    bobs = study("t", replicas=0, owner="bob")
    specs = (spec(1, A, C, name="t"),)
    book.tell(Submitted(bobs, specs, "submit t"))
    assert book.trial("t/1").carrier == "s/0"
    at_an_image(book).expect()
    assert book.trial("t/1").forked is None
    trained(book, "s/0#1", 10, 12).heard()
    alone = book.trial("t/1")
    assert (alone.carrier, alone.forked, alone.step) == (None, None, 0)


def test_riders_have_what_their_carrier_has_at_the_end_of_a_quantum() -> None:
    book = tree(spec(0, A, B), spec(1, A, C), policy=Plugin("round_robin"))
    trained(book, "s/0#1", 0, 4)
    assert book.trial("s/1").step == 0
    book.tell(quantum_ended("s/0#1", 0, 4)).heard()
    rider = book.trial("s/1")
    assert (rider.step, rider.quanta) == (4, 1)
    assert rider.curve is book.trial().curve


def test_a_trial_that_is_the_same_ends_with_it_and_can_be_asked_to_go_on() -> None:
    book = trained(tree(spec(0, A, B), spec(1, A, B)), "s/0#1", 0, 30)
    book.tell(checkpointed("s/0#1", 30), completed("s/0#1", 30)).heard()
    same = book.trial("s/1")
    assert (same.phase, same.step, same.metrics) == (Phase.COMPLETED, 30, book.trial().metrics)
    assert same.reason == "s/0 is the same, and was trained for both"
    assert same.carried_steps == 30
    more = Extended("s", ("s/1",), StopRule(), (("epochs", 9),), (("more",),), "extend")
    book.tell(more).expect("copy s/0#1@30 from n to n")
    book.tell(copied("s/1", "s/0#1", 30)).expect("launch s/1#1 on n/0 from s/1@30")


def test_where_the_training_ends_before_they_part_they_are_the_same() -> None:
    book = trained(tree(spec(0, A, B), spec(1, A, C)), "s/0#1", 0, 8)
    book.tell(completed("s/0#1", 8)).expect()
    assert book.trial("s/1").phase is Phase.COMPLETED


def test_a_loss_that_is_not_finite_ends_all_that_have_it() -> None:
    book = trained(three(), "s/0#1", 0, 3)
    book.tell(reported("s/0#1", 4, [1.0], not_finite=True)).expect("stop s/0#1")
    book.tell(written("s/0#1", 4)).expect()
    assert {book.trial(f"s/{n}").phase for n in range(3)} == {Phase.STOPPED}


def test_a_stop_rule_at_which_one_ends_is_no_rule_for_another_study() -> None:
    book = trained(three(stop=StopRule(max_steps=6)), "s/0#1", 0, 6).expect("stop s/0#1")
    longer = spec(0, A, B, name="t")
    other = Submitted(study("t", replicas=0), (longer,), "submit t")
    book.tell(other).expect()
    assert book.trial("t/0").carrier is None, "one that is about to end carries nobody"
    book.tell(written("s/0#1", 6)).heard()
    assert book.trial("t/0").phase is not Phase.STOPPED


def test_when_the_carrier_is_cancelled_the_next_goes_on_from_its_checkpoint() -> None:
    book = trained(three(), "s/0#1", 0, 6)
    book.tell(Cancelled(("s/0",), "cancel")).expect("stop s/0#1")
    book.tell(written("s/0#1", 6)).expect("copy s/0#1@6 from n to n")
    assert [book.trial(f"s/{n}").carrier for n in (1, 2)] == [None, "s/1"]
    book.tell(copied("s/1", "s/0#1", 6)).expect("launch s/1#2 on n/0 from s/1@6")


def test_when_the_carrier_is_paused_the_next_goes_on_and_it_rides_later() -> None:
    book = trained(three(), "s/0#1", 0, 6)
    book.tell(Paused(("s/0",), "pause")).expect("suspend s/0#1 by checkpoint")
    book.tell(written("s/0#1", 6)).expect("copy s/0#1@6 from n to n")
    book.tell(copied("s/1", "s/0#1", 6)).expect("launch s/1#2 on n/0 from s/1@6")
    book.tell(Unpaused(("s/0",), "go on")).expect()
    assert book.trial("s/0").carrier == "s/1"
    trained(book, "s/1#2", 6, 10).tell(checkpointed("s/1#2", 10))
    book.expect("copy s/1#2@10 from n to n")
    assert book.trial("s/0").forked == book.trial("s/1").checkpoint


def test_a_rider_that_is_cancelled_only_ends() -> None:
    book = three()
    book.tell(Cancelled(("s/1",), "cancel")).expect()
    assert book.trial("s/1").phase is Phase.CANCELLED
    assert book.trial("s/1").carrier is None


def test_a_lost_node_costs_what_every_trial_loses_and_nothing_twice() -> None:
    book = trained(three(), "s/0#1", 0, 6)
    book.tell(checkpointed("s/0#1", 5), NodeSilent("n", "gone")).expect()
    book.tell(NodeLost("n", "lost"), joined(2, node="m", boot="c")).heard()
    assert {book.trial(f"s/{n}").step for n in range(3)} == {5}
    assert [book.trial(f"s/{n}").carrier for n in (1, 2)] == ["s/0", "s/0"]


def test_a_lost_checkpoint_is_trained_again_once_and_only_if_somebody_needs_it() -> None:
    book = trained(three(), "s/0#1", 0, 10).tell(checkpointed("s/0#1", 10))
    book.tell(completed("s/0#1", 30)).expect("copy s/0#1@10 from n to n")
    book.tell(NodeSilent("n", "gone"), NodeLost("n", "lost"))
    assert book.trial("s/1").forked is None
    assert (book.trial("s/1").step, book.trial("s/2").carrier) == (0, "s/1")
    book.tell(joined(2, node="m", boot="c")).expect("launch s/1#1 on m/0")


def test_without_the_checkpoint_where_it_parts_a_rider_goes_on_from_an_earlier_one() -> None:
    book = trained(three(), "s/0#1", 0, 7).tell(checkpointed("s/0#1", 7))
    trained(book, "s/0#1", 7, 11).expect("copy s/0#1@7 from n to n")
    assert book.trial("s/1").step == 7
    assert book.trial("s/2").carrier == "s/1"


def test_a_checkpoint_that_cannot_be_given_is_no_failure() -> None:
    book = trained(three(), "s/0#1", 0, 10).tell(checkpointed("s/0#1", 10), completed("s/0#1", 30))
    book.heard()
    book.tell(NotCopied("n", "s/1", "s/0#1@10", "it is damaged", False))
    book.expect("launch s/1#1 on n/0")
    assert (book.trial("s/1").step, book.trial("s/2").carrier) == (0, "s/1")


def test_the_carrier_s_failure_is_not_its_riders_unless_it_comes_again() -> None:
    book = trained(three(max_failures=1), "s/0#1", 0, 6)
    book.tell(crashed("s/0#1", 6, "boom")).expect("launch s/1#1 on n/0")
    assert not book.trial("s/1").failures
    trained(book, "s/1#1", 0, 6).tell(crashed("s/1#1", 6, "boom")).expect()
    assert book.trial("s/2").phase is Phase.FAILED
    assert book.trial("s/2").reason.startswith("as s/0 and s/1 before it:")


def test_a_checkpoint_that_is_lost_where_its_trial_fell_back_behind_it_is_not_looked_for() -> None:
    """Heard of after its run had failed, it is ahead of its trial, which trains again up to there:
    those that part there ride on that."""
    book = trained(three(), "s/0#1", 0, 9)
    book.tell(joined(1, "m"), crashed("s/0#1", 11)).expect("launch s/0#2 on m/0")
    book.tell(checkpointed("s/0#1", 10)).expect("copy s/0#1@10 from n to n")
    book.tell(NodeSilent("n", "it is off"), NodeLost("n")).expect()
    assert [book.trial(f"s/{n}").carrier for n in range(3)] == [None, "s/0", "s/0"]
    assert [book.trial(f"s/{n}").step for n in range(3)] == [0, 0, 0]


def of_two_users() -> Playbook:
    """Two trials of Eve's and one of Ann's that are alike until step 10; one device."""
    book = Playbook()
    for name, numbers in (("eve", (0, 1)), ("ann", (2,))):
        specs = tuple(spec(n, A, f"{name}{n}", name=name) for n in numbers)
        of_one = study(name, replicas=0, owner=name, max_failures=1)
        book.tell(Submitted(of_one, specs, f"submit {name}"))
    book.tell(joined(1)).heard()
    assert book.trial("ann/2").carrier == "eve/0"
    return book


def test_nobody_s_trial_fails_since_those_of_others_did() -> None:
    book = trained(of_two_users(), "eve/0#1", 0, 6)
    book.tell(crashed("eve/0#1", 6, "boom")).expect("launch eve/1#1 on n/0")
    trained(book, "eve/1#1", 0, 6).tell(crashed("eve/1#1", 6, "boom"))
    book.expect("launch ann/2#1 on n/0")
    assert book.trial("ann/2").step == 0, "and it takes nothing of what they had come to"


def test_a_study_of_others_that_is_removed_takes_nothing_of_ones_own_along() -> None:
    book = trained(of_two_users(), "eve/0#1", 0, 10).tell(checkpointed("eve/0#1", 10))
    book.heard()
    assert book.trial("ann/2").forked, "it is to go on from what Eve's has written"
    book.tell(Cancelled(("eve/0", "eve/1"), "cancel"), written("eve/0#1", 11))
    book.tell(Removed("eve", "remove"))
    assert "eve/0" not in book.state.trials
    book.heard()
    gone = NotCopied("n", "ann/2", "eve/0#1@10", "it is not here", False)
    book.tell(gone).expect("launch ann/2#1 on n/0")
    assert (book.trial("ann/2").step, book.trial("ann/2").failures) == (0, ())


def test_a_checkpoint_of_others_that_cannot_be_loaded_is_no_failure() -> None:
    book = of_two_users().tell(Cancelled(("eve/1",), "cancel"))
    trained(book, "eve/0#1", 0, 10).tell(checkpointed("eve/0#1", 10), completed("eve/0#1", 10))
    book.tell(copied("ann/2", "eve/0#1", 10)).heard()
    present = book.trial("ann/2").run
    assert present is not None
    poisoned = RunFailed(present.id, RESTORE, "it cannot be loaded", "poisoned", 10)
    book.tell(poisoned).heard()
    ann = book.trial("ann/2")
    assert not ann.phase.final
    assert ann.run is not None


def test_to_part_and_to_fail_cost_as_much_as_there_are_riders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them looks at few others, not at all: one user's tree would stop the head."""

    def looks(book: Playbook, *ends: Any) -> int:
        seen = []
        parting = riding.parting
        with monkeypatch.context() as patched:
            patched.setattr(riding, "parting", lambda *both: seen.append(both) or parting(*both))
            book.tell(*ends)
        return len(seen)

    def all_at_once(count: int) -> Playbook:
        return trained(tree(*(spec(n, A, f"{n}") for n in range(count))), "s/0#1", 0, 10)

    def half_before(count: int) -> Playbook:
        specs = (spec(n, A, *(B if n % 2 == 0 else ""), f"{n}") for n in range(count))
        book = trained(tree(*specs, max_failures=1), "s/0#1", 0, 10)
        return trained(book.tell(checkpointed("s/0#1", 10)), "s/0#1", 10, 15)

    for begun, end in (
        (all_at_once, checkpointed("s/0#1", 10)),
        (all_at_once, Cancelled(("s/0",), "cancel")),
        (half_before, crashed("s/0#1", 15, "boom")),
    ):
        assert looks(begun(100), end) < 2.5 * looks(begun(50), end) + 10


def test_another_failure_is_not_the_same() -> None:
    book = trained(three(max_failures=1), "s/0#1", 0, 6)
    book.tell(crashed("s/0#1", 6, "boom")).heard()
    trained(book, "s/1#1", 0, 6).tell(crashed("s/1#1", 3, "other"))
    assert "launch s/2#1 on n/0" in book.heard()


def test_a_trial_that_can_only_be_parked_carries_nobody_who_parts_from_it() -> None:
    book = three(devices=2).tell(started("s/0#1"))
    park = FidelityKnown(run("s/0#1"), Fidelity.PARK_ONLY, "no optimizer", "torch")
    book.tell(park).expect("launch s/1#1 on n/1")


def test_a_retried_trial_rides_with_those_that_do_the_same() -> None:
    book = trained(three(max_failures=1), "s/0#1", 0, 6)
    book.tell(crashed("s/0#1", 6, "boom")).expect("launch s/1#1 on n/0")
    book.tell(Retried(("s/0",), "retry")).expect()
    assert book.trial("s/0").carrier == "s/1"


def test_a_trial_that_is_drawn_anew_has_nothing_of_what_was_trained_for_it() -> None:
    book = three()
    other = replace(spec(1, B, C), root="other")
    book.tell(Extended("s", (), StopRule(), (), (), "redraw", redrawn=(other,))).expect()
    assert (book.trial("s/1").carrier, book.trial("s/2").carrier) == (None, "s/0")


def test_a_rider_that_a_cap_had_ended_rides_again() -> None:
    book = trained(three(), "s/0#1", 0, 3)
    cut = Extended("s", (), StopRule(), (), (), "cut", ended=(("s/1", "run_cap = 1"),))
    redraw = Extended("s", (), StopRule(), (), (), "redraw", redrawn=(spec(1, A, D),))
    book.tell(cut, redraw).expect()
    ended = book.trial("s/1")
    assert (ended.phase, ended.reason, ended.step) == (Phase.STOPPED, "run_cap = 1", 0)
    book.tell(Extended("s", (), StopRule(), (), (), "resume", resumed=("s/1",))).heard()
    assert (book.trial("s/1").phase, book.trial("s/1").carrier) == (Phase.WAITING, "s/0")
    assert book.trial("s/1").result is None, "if it fails now, it has failed"


def test_trials_that_are_added_later_ride_as_well() -> None:
    book = three()
    book.tell(Added("s", (spec(3, A, D),), "add")).expect()
    assert book.trial("s/3").carrier == "s/0"


def test_a_later_study_goes_on_from_what_an_earlier_one_has() -> None:
    book = trained(tree(spec(0, A)), "s/0#1", 0, 10)
    book.tell(checkpointed("s/0#1", 9), completed("s/0#1", 10)).heard()
    other = Submitted(study("t", replicas=0), (spec(0, A, B, name="t"),), "submit t")
    book.tell(other).expect("copy s/0#1@9 from n to n")
    assert book.trial("t/0").step == 9


def test_what_a_trial_began_from_serves_later_ones_too() -> None:
    book = trained(three(devices=2), "s/0#1", 0, 10).tell(checkpointed("s/0#1", 10))
    book.tell(copied("s/1", "s/0#1", 10)).heard()
    trained(book, "s/1#2", 10, 20).tell(checkpointed("s/1#2", 20), completed("s/0#1", 30))
    book.tell(Cancelled(("s/1",), "cancel")).heard()
    book.tell(written("s/1#2", 22)).heard()
    other = Submitted(study("t", replicas=0), (spec(0, A, D, name="t"),), "submit t")
    book.tell(other)
    begin = book.trial("t/0").forked
    assert begin is not None
    assert (begin.id, book.trial("t/0").step) == ("s/0#1@10", 10)


def test_the_index_is_of_the_trials_alone() -> None:
    book = trained(three(devices=2), "s/0#1", 0, 10)
    for event in (
        checkpointed("s/0#1", 10),
        copied("s/1", "s/0#1", 10),
        Cancelled(("s/2",), "no"),
        completed("s/0#1", 30),
    ):
        book.tell(event)
        known = book.state.riding
        assert riding_of(book.state) == known


def test_people_hear_of_the_end_of_one_that_another_trained_for() -> None:
    book = trained(tree(spec(0, A, B), spec(1, A, B)), "s/0#1", 0, 30)
    end = completed("s/0#1", 30)
    before = outcomes.unfinished(book.state, end)
    book.tell(end)
    told = outcomes.write(outcomes.ended(book.state, end, before))
    events = public_events(JournalLine(1, 0.0, end, told), book.state)
    kinds = [(event.trial or event.study, event.kind) for event in events]
    assert kinds == [
        ("s/0", pb.PUBLIC_EVENT_KIND_COMPLETED),
        ("s/1", pb.PUBLIC_EVENT_KIND_COMPLETED),
        ("s", pb.PUBLIC_EVENT_KIND_STUDY_FINISHED),
    ]
    assert events[1].reason == "s/0 is the same, and was trained for both"
