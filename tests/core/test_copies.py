"""Checkpoints get copies on other nodes, and a trial goes on from one when its node is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.commands import Copy, Drop
from hermesd.core.events import (
    Checkpointed,
    Copied,
    DeviceFailed,
    Dropped,
    Event,
    Extended,
    FidelityKnown,
    NodeDrained,
    NodeJoined,
    NodeSilent,
    NodeUndrained,
    NotCopied,
    Paused,
    PoolsConfigured,
    Removed,
    RunFailed,
    Spoilt,
)
from hermesd.core.model import Checkpoint, Fidelity, Phase, Pool, RunId, StopRule
from hermesd.core.node.actions import DeleteCheckpoints, FetchCheckpoint, TellHead
from hermesd.core.node.messages import DropCopies, Fetch
from hermesd.core.tables import rebuilt
from hermesd.core.trial import remembered
from tests.core.node_talk import ONE, Told, order
from tests.core.playbook import (
    LEASE,
    Playbook,
    completed,
    crashed,
    joined,
    live,
    play,
    reported,
    run,
    started,
    submitted,
    tables,
    written,
)

LOST = LEASE.silence_seconds
NOTHING = Checkpoint("", "", 0, 0, "", 0, ())


def saved(name: str, step: int, node: str = "n") -> Checkpointed:
    stay: RunId = run(name)
    found = Checkpoint(f"{name}@{step}", stay.trial, stay.attempt, step, "5ha", 1, (node,))
    return Checkpointed(stay, found)


def copied(name: str, step: int, node: str = "m") -> Copied:
    return Copied(node, run(name).trial, f"{name}@{step}")


def not_copied(name: str, step: int, node: str = "m", way: bool = False) -> NotCopied:
    return NotCopied(node, run(name).trial, f"{name}@{step}", "why ever", way)


def pool(*others: str, replicas: int = 1, trials: int = 1) -> Playbook:
    """s/0 runs on n; the other nodes have no device, and so serve for copies alone."""
    book = play(trials, replicas=replicas).tell(*(joined(0, node=node) for node in others))
    book.tell(started("s/0#1"), FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", "keras"))
    book.heard()
    return book


def test_a_checkpoint_is_copied_to_another_node() -> None:
    book = pool("m").tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to m")
    book.tell(copied("s/0#1", 9)).expect()
    kept = book.trial().checkpoint
    assert kept is not None
    assert kept.nodes == ("n", "m")
    assert book.trial().copied == kept


def test_alone_there_is_nowhere_to_copy_to_until_another_joins() -> None:
    book = pool().tell(saved("s/0#1", 9)).expect()
    book.tell(joined(0, node="m")).expect("copy s/0#1@9 from n to m")


def test_a_study_may_do_without() -> None:
    pool("m", replicas=0).tell(saved("s/0#1", 9)).expect()


def test_two_copies_lie_on_two_nodes_one_after_the_other() -> None:
    book = pool("m", "k", replicas=2).tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to k")
    book.tell(copied("s/0#1", 9, "k")).expect("copy s/0#1@9 from n to m")
    book.tell(copied("s/0#1", 9, "m")).expect()


def test_the_next_goes_where_the_one_before_is() -> None:
    book = pool("m", "k").tell(saved("s/0#1", 9), copied("s/0#1", 9, "m")).expect()
    book.tell(saved("s/0#1", 20)).expect("copy s/0#1@20 from n to m")


def test_copies_are_spread_over_the_nodes() -> None:
    book = Playbook().tell(submitted(2, replicas=1), joined(2), joined(0, node="m"))
    book.tell(joined(0, node="k"), started("s/0#1"), started("s/1#1")).heard()
    book.tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to k")
    book.tell(saved("s/1#1", 7)).expect()  # a node gives one at a time
    book.tell(copied("s/0#1", 9, "k")).expect("copy s/1#1@7 from n to m")


def test_a_copy_rather_goes_where_the_trial_can_go_on() -> None:
    book = pool("k", "m").tell(PoolsConfigured((Pool("gold", ("k",)),)))
    book.tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to m")
    book = pool("k").tell(PoolsConfigured((Pool("gold", ("k",)),)))
    book.tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to k")


def test_each_trial_has_its_turn_however_soon_another_has_a_newer_checkpoint() -> None:
    book = Playbook().tell(submitted(2, replicas=1), joined(2), joined(0, node="m"))
    book.tell(started("s/0#1"), started("s/1#1")).heard()
    book.tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to m")
    book.tell(saved("s/1#1", 7), saved("s/0#1", 20)).expect()
    book.tell(copied("s/0#1", 9)).expect("copy s/1#1@7 from n to m")
    book.tell(saved("s/1#1", 8), not_copied("s/1#1", 7)).expect("copy s/0#1@20 from n to m")
    book.tell(copied("s/0#1", 20)).expect("copy s/1#1@8 from n to m")


def test_no_copy_leaves_a_private_pool_or_comes_to_one() -> None:
    gold = Pool("gold", ("k",), private=True)
    book = pool("k", "m").tell(PoolsConfigured((gold,)))
    book.tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to m")
    book = pool("k").tell(PoolsConfigured((gold,))).tell(saved("s/0#1", 9)).expect()
    book = pool("k").tell(PoolsConfigured((Pool("gold", ("k",)), Pool("default", private=True))))
    book.tell(saved("s/0#1", 9)).expect()
    book.tell(joined(0, node="m")).expect("copy s/0#1@9 from n to m")


def test_a_newer_checkpoint_waits_for_the_copy_under_way() -> None:
    book = pool("m").tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to m")
    book.tell(saved("s/0#1", 20)).expect()
    book.tell(copied("s/0#1", 9)).expect("copy s/0#1@20 from n to m")
    assert (book.trial().copied or NOTHING).step == 9
    book.tell(copied("s/0#1", 20)).expect()
    assert (book.trial().copied or NOTHING).step == 20


def test_what_could_not_be_copied_is_tried_again_later() -> None:
    book = pool("m").tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to m")
    book.tell(not_copied("s/0#1", 9)).expect()
    assert book.scheduler.deadline == 60
    book.at(59).expect().at(60).expect("copy s/0#1@9 from n to m")


def test_a_way_that_is_cut_is_avoided() -> None:
    book = pool("m", "k").tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to k")
    book.tell(not_copied("s/0#1", 9, "k", way=True)).expect("copy s/0#1@9 from n to m")
    book.tell(not_copied("s/0#1", 9, "m", way=True)).expect()
    book.tell(saved("s/0#1", 20)).expect().at(60).expect("copy s/0#1@20 from n to k")


def test_a_newer_checkpoint_is_no_reason_to_wait() -> None:
    book = pool("m").tell(saved("s/0#1", 9)).tell(not_copied("s/0#1", 9))
    book.tell(saved("s/0#1", 20)).expect("copy s/0#1@9 from n to m", "copy s/0#1@20 from n to m")


def test_a_copy_is_void_when_one_of_its_nodes_falls_silent() -> None:
    book = pool("m", "k").tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to k")
    book.tell(NodeSilent("k", "cut")).expect("copy s/0#1@9 from n to m")
    book.tell(NodeSilent("n", "cut")).expect()
    book.tell(joined(1, live=[live("s/0#1")])).expect("copy s/0#1@9 from n to m")


def test_a_copy_that_comes_late_is_one_all_the_same() -> None:
    book = pool("m", "k").tell(saved("s/0#1", 9), NodeSilent("k", "cut"))
    book.tell(joined(0, node="k")).tell(copied("s/0#1", 9, "k"))
    assert (book.trial().checkpoint or NOTHING).nodes == ("n", "k")
    book.refuses(copied("s/0#1", 9, "k"), "nothing refers to it, or it is known")


def test_a_lost_node_costs_what_was_trained_since_the_copy() -> None:
    book = pool("m").tell(saved("s/0#1", 9), copied("s/0#1", 9), saved("s/0#1", 20))
    book.tell(joined(1, node="m")).heard()
    book.tell(NodeSilent("n", "dead")).at(LOST).expect("launch s/0#2 on m/0 from s/0#1@9")
    assert book.trial().step == 9
    book.tell(started("s/0#2", 9)).expect()
    assert book.trial().phase is Phase.RUNNING
    book.tell(saved("s/0#2", 12, "m")).expect()  # there is nobody else
    book.at(LOST + 1).tell(joined(1)).expect("copy s/0#2@12 from m to n")


def test_a_copy_of_the_newest_costs_nothing() -> None:
    book = pool("m").tell(saved("s/0#1", 9), copied("s/0#1", 9)).tell(joined(1, node="m"))
    book.heard()
    book.tell(NodeSilent("n", "dead")).at(LOST).expect("launch s/0#2 on m/0 from s/0#1@9")


def test_without_a_copy_the_newest_is_asked_for_all_the_same() -> None:
    book = pool("m", replicas=0).tell(saved("s/0#1", 9)).tell(joined(1, node="m"))
    book.tell(NodeSilent("n", "dead")).at(LOST).expect("launch s/0#2 on m/0 from s/0#1@9")


def test_without_replicas_a_lost_node_costs_all_of_the_training() -> None:
    """The node of the launch finds that it has nothing, and nobody else to ask."""
    book = pool("m", replicas=0).tell(saved("s/0#1", 9), reported("s/0#1", 30, [1.0] * 30))
    book.tell(joined(1, node="m")).expect()
    book.tell(NodeSilent("n", "dead")).at(LOST).expect("launch s/0#2 on m/0 from s/0#1@9")
    book.tell(started("s/0#2", 0)).expect()
    assert (book.trial().step, book.trial().curve) == (0, ())
    assert [each.error_kind for each in book.trial().failures] == ["lost"]
    book.tell(saved("s/0#2", 5, "m")).at(LOST + 1).tell(joined(1)).expect()


def test_without_replicas_what_a_trial_left_where_it_was_is_all_there_is() -> None:
    book = pool(replicas=0).tell(joined(1, node="m"), NodeDrained("n", "r1"))
    book.tell(written("s/0#1", 12)).heard()
    book.tell(started("s/0#2", 12), saved("s/0#2", 20, "m"), NodeUndrained("n", "r2")).expect()
    book.tell(NodeSilent("m", "dead")).at(LOST).expect("launch s/0#3 on n/0 from s/0#1@12")
    assert book.trial().step == 12


def test_where_a_trial_was_restored_its_checkpoint_lies_as_well() -> None:
    book = pool("m").tell(saved("s/0#1", 9), copied("s/0#1", 9), joined(1, node="k"))
    book.tell(NodeSilent("n", "dead")).heard()
    book.at(LOST).expect("launch s/0#2 on k/0 from s/0#1@9").tell(started("s/0#2", 9))
    assert (book.trial().checkpoint or NOTHING).nodes == ("n", "m", "k")


def test_what_nothing_refers_to_is_dropped() -> None:
    book = pool("m", "k").tell(saved("s/0#1", 9)).tell(copied("s/0#1", 9, "k"))
    book.tell(NodeDrained("k", "r1")).expect("copy s/0#1@9 from n to k", "copy s/0#1@9 from n to m")
    book.tell(copied("s/0#1", 9, "m")).expect()
    book.tell(saved("s/0#1", 20)).expect("copy s/0#1@20 from n to m")
    book.tell(copied("s/0#1", 20, "m")).expect("drop s/0 on k")


def left_over() -> Playbook:
    """k has a checkpoint of s/0 that is of no use, and was told."""
    book = pool("m", "k").tell(saved("s/0#1", 9)).tell(copied("s/0#1", 9, "k"))
    book.tell(NodeDrained("k", "r1")).tell(copied("s/0#1", 9, "m")).tell(saved("s/0#1", 20))
    book.tell(copied("s/0#1", 20, "m"), NodeUndrained("k", "r2"))
    assert "drop s/0 on k" in book.heard()
    return book


def test_what_may_not_have_been_heard_is_said_again_until_it_is_answered() -> None:
    book = left_over().tell(NodeSilent("k", "cut"), joined(0, node="k")).expect("drop s/0 on k")
    book.tell(Dropped("k", "s/0")).tell(NodeSilent("k", "cut"), joined(0, node="k")).expect()


def test_what_is_wanted_again_is_not_dropped() -> None:
    book = left_over().tell(NodeSilent("m", "dead"), NodeSilent("k", "cut"), joined(0, node="k"))
    book.expect("drop s/0 on k")
    book.at(LOST).expect("copy s/0#1@20 from n to k")
    book.tell(NodeSilent("k", "cut"), joined(0, node="k"))
    book.expect("drop s/0 on k", "copy s/0#1@20 from n to k")
    book.tell(copied("s/0#1", 20, "k"), NodeSilent("k", "cut"), joined(0, node="k")).expect()


def test_the_checkpoints_of_a_node_that_drains_go_elsewhere() -> None:
    book = pool("m", "k").tell(saved("s/0#1", 9), copied("s/0#1", 9, "m")).expect()
    book.tell(NodeDrained("m", "r1")).expect("copy s/0#1@9 from n to k")


def test_a_finished_trial_keeps_its_result_on_two_nodes() -> None:
    book = pool("m").tell(saved("s/0#1", 9), completed("s/0#1", 9))
    book.expect("copy s/0#1@9 from n to m")


def test_removal_ends_what_is_under_way() -> None:
    book = pool("m").tell(saved("s/0#1", 9), completed("s/0#1", 9)).tell(Removed("s", "r1"))
    book.expect("copy s/0#1@9 from n to m", "forget s/0 on n", "forget s/0 on m")
    assert book.state.copies == rebuilt(book.state)
    book.refuses(copied("s/0#1", 9), "no trial")
    assert not book.state.copies.giving


def test_the_index_can_be_made_anew() -> None:
    book = pool("m", trials=2).tell(saved("s/0#1", 9), Paused(("s/0",), "r1"))
    before = tables(book.state)
    assert rebuilt(book.state) == before["copies"]


@pytest.mark.parametrize("command", [Copy("s/0", "s/0#1@8", "n", "m"), Copy("s/0", "x", "n", "m")])
def test_only_the_newest_is_copied(command: Copy) -> None:
    book = pool().tell(saved("s/0#1", 9))
    book.refuses(command, "is not to be copied")  # type: ignore[arg-type]
    book.refuses(Drop("s/0", "n"), "nothing of 's/0' is left over on n")  # type: ignore[arg-type]
    book.refuses(Dropped("n", "s/0"), "nothing of s/0 was left over on n")


# At the node.


def fetch(identity: str = "") -> Fetch:
    found = Checkpoint("digits/1@s9", "digits/1", 1, 9, "5ha", 1, ("m",))
    return Fetch(found, (), (), "n", identity)


def test_a_node_fetches_what_it_is_told_to() -> None:
    assert Told().says(fetch()) == [FetchCheckpoint(fetch())]
    assert Told().says(DropCopies("digits/1", "i")) == [DeleteCheckpoints("digits/1", "i")]


def test_a_trial_that_is_here_keeps_its_checkpoints() -> None:
    node = Told()
    node.says(order(ONE))
    assert node.says(fetch()) == [FetchCheckpoint(fetch())]
    assert node.says(DropCopies("digits/1", "")) == []


def test_a_trial_of_another_study_is_not_mixed_with_it() -> None:
    node = Told()
    node.says(order(ONE))
    (said,) = node.says(fetch("another"))
    assert isinstance(said, TellHead)
    assert isinstance(said.event, NotCopied)


# A node without its disk.


def again(node: str, disk: str, boot: str = "b2") -> NodeJoined:
    return replace(joined(1 if node == "n" else 0, node=node, boot=boot), disk=disk)


def test_a_node_that_comes_back_with_another_disk_has_no_checkpoints() -> None:
    book = play(devices=None, replicas=1).tell(again("n", "one", "b1"), again("m", "two", "b1"))
    book.tell(started("s/0#1"), saved("s/0#1", 9), copied("s/0#1", 9)).tell(saved("s/0#1", 20))
    book.heard()
    book.tell(NodeSilent("n", "dead"), again("n", "three"))
    book.expect("launch s/0#2 on n/0 from s/0#1@9")
    assert (book.trial().checkpoint or NOTHING).nodes == ("m",)
    assert book.trial().step == 9


def test_a_node_that_comes_back_with_its_disk_goes_on_from_the_newest() -> None:
    book = play(devices=None, replicas=1).tell(again("n", "one", "b1"), again("m", "two", "b1"))
    book.tell(started("s/0#1"), saved("s/0#1", 9), copied("s/0#1", 9)).tell(saved("s/0#1", 20))
    book.heard()
    book.tell(NodeSilent("n", "dead"), again("n", "one"))
    book.expect("launch s/0#2 on n/0 from s/0#1@20", "copy s/0#1@20 from n to m")


def test_what_lay_on_one_disk_alone_is_gone_with_it() -> None:
    book = play(devices=None, replicas=0).tell(again("n", "one", "b1")).tell(started("s/0#1"))
    book.tell(saved("s/0#1", 20)).heard()
    book.tell(NodeSilent("n", "dead"), again("n", "two"))
    book.expect("launch s/0#2 on n/0").tell(started("s/0#2", 0))
    assert book.trial().step == 0
    book.tell(saved("s/0#2", 5)).expect()
    assert (book.trial().checkpoint or NOTHING).step == 5


def test_what_an_extended_trial_had_come_to_is_kept_with_its_copy() -> None:
    book = pool("m", "k").tell(saved("s/0#1", 9), copied("s/0#1", 9, "m")).expect()
    book.tell(completed("s/0#1", 9), Extended("s", ("s/0",), StopRule(), (), ((),), "r1"))
    book.tell(started("s/0#2", 9)).tell(saved("s/0#2", 20)).tell(NodeDrained("m", "r2"))
    assert book.heard()[-1] == "copy s/0#2@20 from n to k"
    book.tell(copied("s/0#2", 20, "k")).expect()  # nothing is dropped on m
    assert {each.id for each in remembered(book.trial())} == {"s/0#1@9", "s/0#2@20"}


def test_a_copy_of_what_could_not_be_used_ends_like_any_other() -> None:
    book = pool("m").tell(saved("s/0#1", 9)).tell(NodeSilent("n", "cut"), joined(1, boot="b2"))
    book.tell(started("s/0#2", 0)).heard()
    assert book.trial().checkpoint is None
    assert book.trial().copying is not None
    book.tell(copied("s/0#1", 9))
    assert book.state.copies == rebuilt(book.state)
    assert not book.state.copies.taking
    book.tell(saved("s/0#2", 5)).expect("copy s/0#2@5 from n to m")


# A checkpoint that is not what it was.


def spoilt(name: str, step: int, node: str = "n", instead: int = 0) -> Spoilt:
    trial = run(name).trial
    older = Checkpoint(f"{name}@{instead}", trial, 1, instead, "5ha", 1, (node,))
    return Spoilt(node, trial, f"{name}@{step}", "it is damaged", older if instead else None)


def asked_for(*files: Event, replicas: int = 1) -> Playbook:
    """s/0 is to go on at m from what n has of it."""
    book = pool("m", replicas=replicas).tell(*files)
    book.tell(joined(1, node="m"), DeviceFailed("n/0", "broken"), crashed("s/0#1", 20))
    assert "launch s/0#2 on m/0 from s/0#1@20" in book.heard()
    return book


NOT_STARTED = RunFailed(run("s/0#2"), "not_fetched", "s/0#1@20 could not be had", "", 0)


def test_the_only_copy_is_damaged_and_the_trial_goes_on_from_the_one_before() -> None:
    book = asked_for(saved("s/0#1", 9), copied("s/0#1", 9), saved("s/0#1", 20))
    book.tell(spoilt("s/0#1", 20, instead=5), NOT_STARTED)
    book.expect("launch s/0#3 on m/0 from s/0#1@9")
    assert book.trial().step == 9


def test_what_is_heard_after_the_failure_has_the_same_effect() -> None:
    book = asked_for(saved("s/0#1", 9), copied("s/0#1", 9), saved("s/0#1", 20))
    book.tell(NOT_STARTED).expect("launch s/0#3 on m/0 from s/0#1@20")
    book.tell(replace(NOT_STARTED, run=run("s/0#3"))).expect("copy s/0#1@20 from n to m")
    book.tell(spoilt("s/0#1", 20)).at(1).expect("launch s/0#4 on m/0 from s/0#1@9")
    book.tell(not_copied("s/0#1", 20)).refuses(spoilt("s/0#1", 20), "nothing refers to it")


def test_what_the_node_has_instead_may_be_further_than_the_copy() -> None:
    book = asked_for(saved("s/0#1", 9), copied("s/0#1", 9), saved("s/0#1", 20))
    book.tell(spoilt("s/0#1", 20, instead=15), NOT_STARTED)
    book.expect("launch s/0#3 on m/0 from s/0#1@15")
    assert book.trial().step == 15


def test_with_nothing_left_the_trial_begins_anew() -> None:
    book = asked_for(saved("s/0#1", 20), replicas=0)
    book.tell(spoilt("s/0#1", 20), NOT_STARTED).expect("launch s/0#3 on m/0")
    assert book.trial().step == 0


def test_one_of_two_copies_is_damaged_and_another_is_made() -> None:
    book = pool("m", "k").tell(saved("s/0#1", 9)).tell(copied("s/0#1", 9, "k"))
    book.heard()
    book.tell(spoilt("s/0#1", 9, "k")).expect("copy s/0#1@9 from n to k")
    assert (book.trial().checkpoint or NOTHING).nodes == ("n",)


@pytest.mark.parametrize("lie", [("s/1", 15), ("s/0", 30)])
def test_what_is_had_instead_is_of_the_trial_and_of_before(lie: tuple[str, int]) -> None:
    trial, step = lie
    book = asked_for(saved("s/0#1", 20), replicas=0)
    other = Checkpoint(f"{trial}#1@{step}", trial, 1, step, "5ha", 1, ("n",))
    book.refuses(spoilt("s/0#1", 20, "m"), "nothing refers to it")
    book.tell(replace(spoilt("s/0#1", 20), instead=other), NOT_STARTED)
    book.expect("launch s/0#3 on m/0")


def test_a_run_goes_on_though_its_checkpoint_is_damaged() -> None:
    book = pool("m", replicas=0).tell(saved("s/0#1", 9), reported("s/0#1", 12, [1.0]))
    book.tell(spoilt("s/0#1", 9)).expect()
    assert book.trial().step == 12
    assert book.trial().checkpoint is None
    book.tell(saved("s/0#1", 20)).expect()
    assert (book.trial().checkpoint or NOTHING).step == 20
