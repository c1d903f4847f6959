"""A node goes for good: what runs is given back, what only it has is copied; it is forgotten."""

from __future__ import annotations

from hermesd.core.commands import Suspend
from hermesd.core.events import Copied, NodeLost, NodeSilent, Removed, Yielded
from hermesd.core.model import Phase
from hermesd.core.tables import left_behind
from tests.core.playbook import completed, joined, started, written
from tests.core.test_copies import copied, pool, saved

GOES = Yielded("n", "it goes back", parting=True)


def test_what_runs_is_given_back_and_goes_on_where_there_is_a_device() -> None:
    book = pool().tell(joined(1, node="m")).tell(GOES).expect("suspend s/0#1 by checkpoint")
    order = book.trial().run.asked
    assert isinstance(order, Suspend)
    assert order.reason == "node n rests: it goes back"
    assert left_behind(book.state, "n") == 1
    book.tell(written("s/0#1", 9)).expect("launch s/0#2 on m/0 from s/0#1@9")
    assert left_behind(book.state, "n") == 1, "m has yet to fetch it"
    book.tell(started("s/0#2", 9))
    assert left_behind(book.state, "n") == 0


def test_the_only_checkpoint_is_copied_even_for_a_study_without_copies() -> None:
    book = (
        pool(replicas=0)
        .tell(GOES)
        .expect("suspend s/0#1 by checkpoint")
        .tell(written("s/0#1", 9))
        .expect()
    )
    assert left_behind(book.state, "n") == 1, "nobody could take it yet"
    book.tell(joined(0, node="m")).expect("copy s/0#1@9 from n to m")
    assert left_behind(book.state, "n") == 1, "a copy that is under way is none"
    book.tell(copied("s/0#1", 9)).expect()
    assert left_behind(book.state, "n") == 0


def test_a_copy_on_a_node_that_goes_as_well_is_none() -> None:
    book = pool("m").tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to m")
    book.tell(copied("s/0#1", 9)).expect()
    book.tell(Yielded("m", "it goes back", parting=True)).expect()
    assert left_behind(book.state, "m") == 0, "n has it"
    book.tell(GOES).expect("suspend s/0#1 by checkpoint").tell(written("s/0#1", 9)).expect()
    assert left_behind(book.state, "m") == left_behind(book.state, "n") == 1
    book.tell(joined(0, node="k")).expect("copy s/0#1@9 from n to k")
    book.tell(Copied("k", "s/0", "s/0#1@9")).expect()
    assert left_behind(book.state, "m") == left_behind(book.state, "n") == 0


def test_the_checkpoint_of_a_result_is_not_left_behind() -> None:
    book = pool().tell(saved("s/0#1", 9)).tell(completed("s/0#1", 9)).expect()
    book.tell(GOES).expect()
    assert left_behind(book.state, "n") == 1
    book.tell(joined(0, node="m")).expect("copy s/0#1@9 from n to m")
    book.tell(copied("s/0#1", 9))
    assert left_behind(book.state, "n") == 0


def test_one_that_has_left_is_not_waited_for() -> None:
    book = pool("m").tell(saved("s/0#1", 9)).tell(copied("s/0#1", 9)).tell(joined(1, node="k"))
    book.heard()
    book.tell(NodeSilent("n", "goodbye"), NodeLost("n", left=True)).expect(
        "launch s/0#2 on k/0 from s/0#1@9"
    )
    kept = book.trial().checkpoint
    assert kept is not None
    assert kept.nodes == ("m",), "its files are gone"
    node = book.state.nodes["n"]
    assert (node.left, node.leaving, node.parting) == (True, False, False)
    assert not book.state.slots["n/0"].sound


def test_what_lay_there_alone_begins_anew() -> None:
    book = pool().tell(saved("s/0#1", 9)).tell(joined(1, node="m"))
    book.heard()
    book.tell(NodeSilent("n", "goodbye"), NodeLost("n", left=True))
    assert book.trial().checkpoint is None
    book.expect("launch s/0#2 on m/0")


def test_a_node_of_that_name_may_come_again() -> None:
    book = pool().tell(GOES).expect("suspend s/0#1 by checkpoint").tell(written("s/0#1", 9))
    book.tell(NodeSilent("n", "goodbye"), NodeLost("n", left=True)).expect()
    book.tell(joined(1, node="n")).expect("launch s/0#2 on n/0")
    assert not book.state.nodes["n"].left
    book.tell(started("s/0#2"))
    assert book.trial().phase is Phase.RUNNING


def test_nothing_is_kept_for_the_day_when_one_that_has_left_comes_back() -> None:
    """Guests come and go by the hundred; what one has left, it says itself."""
    book = pool("m", "k").tell(saved("s/0#1", 9), completed("s/0#1", 9))
    gone = (NodeSilent("m", "goodbye"), NodeLost("m", left=True), NodeSilent("k", "goodbye"))
    book.tell(*gone).heard()
    book.tell(Removed("s", "r1")).expect("forget s/0 on n")
    assert list(book.state.releases) == [("s/0", "k")], "it is only silent"
    book.tell(NodeLost("k", left=True)).expect()
    assert book.state.releases == {}


def test_only_a_node_can_part() -> None:
    pool().refuses(Yielded("n/0", "gone", parting=True), "only a node can part")
