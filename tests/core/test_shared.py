"""Where nodes share a directory, a checkpoint's copy lies there, and all of them have it."""

from __future__ import annotations

from dataclasses import replace

from hermesd.core.events import FidelityKnown, NodeJoined, NodeSilent
from hermesd.core.model import Fidelity
from hermesd.core.node.actions import FetchCheckpoint
from hermesd.core.node.messages import Fetch
from tests.core.node_talk import ONE, Told, order
from tests.core.playbook import Playbook, joined, run, started, submitted
from tests.core.test_copies import LOST, copied, not_copied, saved


def sharing(node: str = "n", devices: int = 0, shared: str = "nfs", disk: str = "") -> NodeJoined:
    return replace(joined(devices, node=node), shared=shared, disk=disk)


def pool(*others: NodeJoined, replicas: int = 1) -> Playbook:
    """s/0 runs on n, which shares a directory."""
    book = Playbook().tell(submitted(1, replicas=replicas), sharing(devices=1), *others)
    book.tell(started("s/0#1"), FidelityKnown(run("s/0#1"), Fidelity.EXACT, "", "keras"))
    book.heard()
    return book


def places(book: Playbook) -> tuple[str, ...]:
    checkpoint = book.trial().checkpoint
    assert checkpoint is not None
    return checkpoint.nodes


def test_the_copy_is_on_every_node_that_shares_the_directory() -> None:
    book = pool(sharing("m"), sharing("k"), sharing("x", shared="another"), joined(0, node="y"))
    book.tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to n")
    book.tell(copied("s/0#1", 9, "n")).expect()
    assert places(book) == ("n", "m", "k")
    assert book.trial().copied == book.trial().checkpoint


def test_alone_with_its_directory_a_node_gives_to_a_peer() -> None:
    book = pool(sharing("x", shared="another"))
    book.tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to x")
    book.tell(copied("s/0#1", 9, "x")).expect()


def test_a_study_may_do_without() -> None:
    pool(sharing("m"), replicas=0).tell(saved("s/0#1", 9)).expect()


def test_while_the_directory_is_away_peers_have_the_copies() -> None:
    book = pool(sharing("m")).tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to n")
    book.tell(not_copied("s/0#1", 9, "n", way=True)).expect("copy s/0#1@9 from n to m")
    book.tell(copied("s/0#1", 9)).expect()
    book.at(59).tell(saved("s/0#1", 20)).expect("copy s/0#1@20 from n to m")
    book.tell(copied("s/0#1", 20)).expect()
    book.at(60).tell(saved("s/0#1", 30)).expect("copy s/0#1@30 from n to n")


def test_when_its_node_is_lost_a_trial_goes_on_where_the_directory_is() -> None:
    book = pool(sharing("m")).tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to n")
    book.tell(copied("s/0#1", 9, "n"), sharing("m", 1), NodeSilent("n", "cut")).expect()
    book.at(LOST).expect("launch s/0#2 on m/0 from s/0#1@9")
    assert book.trial().step == 9


def test_a_node_with_an_empty_disk_still_shares_the_directory() -> None:
    book = pool(sharing("m", disk="one"), sharing("k"))
    book.tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to n")
    book.tell(copied("s/0#1", 9, "n"), NodeSilent("m", "cut")).expect()
    book.tell(sharing("m", disk="two")).expect()
    assert places(book) == ("n", "k"), "what it had of its own may have been more than the copy"
    book.tell(saved("s/0#1", 20)).expect("copy s/0#1@20 from n to n")
    book.tell(copied("s/0#1", 20, "n")).expect()
    assert set(places(book)) == {"n", "m", "k"}


def test_a_node_that_falls_silent_shares_nothing_more() -> None:
    book = pool(sharing("m")).tell(saved("s/0#1", 9)).expect("copy s/0#1@9 from n to n")
    book.tell(NodeSilent("n", "cut"))
    assert book.trial().copying is None


def test_a_node_is_asked_for_its_own_checkpoint_without_a_source() -> None:
    fetch = Fetch(saved("s/0#1", 9).checkpoint, (), (), "n1", order(ONE).identity)
    assert Told().says(fetch) == [FetchCheckpoint(fetch)]
