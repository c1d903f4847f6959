"""Whoever waits is told who has the devices that it could run on, and those alone."""

from __future__ import annotations

from hermesd.core.events import PoolsConfigured, TermsSet
from hermesd.core.model import Pool
from hermesd.core.sharing import Terms
from hermesd.head.api.occupied import taken, waits_for
from hermesd.head.security.access import Asker
from hermesd.pieces import whole
from tests.core.playbook import Playbook, joined, started, submitted

ANN = Asker("ann", everything=False)
ALL = Asker("root", everything=True)


def busy(*nodes: str) -> Playbook:
    """Every device has a trial of the study `long` of ann's."""
    book = Playbook().tell(*(joined(1, node=node) for node in nodes))
    book.tell(submitted(len(nodes), "long", owner="ann"))
    return book.tell(*(started(f"long/{n}#1") for n in range(len(nodes))))


def told(book: Playbook, study: str = "s", who: Asker = ANN) -> str:
    return whole(waits_for(book.state, book.state.studies[study], book.now, who))


def test_a_study_is_told_who_has_its_devices_until_it_has_one() -> None:
    book = busy("n").tell(submitted(1, owner="ann"))
    assert told(book) == "n/0 has long/0 (of study long)"
    assert told(book, "long") == "", "it has a device"
    assert told(book.tell(joined(1, node="m"))) == "", "it has one now"


def test_devices_that_it_could_not_use_are_not_named() -> None:
    book = busy("n", "m").tell(PoolsConfigured((Pool("gold", ("m",)),)))
    book.tell(submitted(1, owner="ann", pool="gold"), submitted(1, "big", memory_bytes=1 << 60))
    assert told(book) == "m/0 has long/0 (of study long)"
    assert told(book, "big") == ""


def test_another_users_trial_is_not_named() -> None:
    book = busy("n").tell(submitted(1, owner="bob"))
    assert told(book, who=Asker("bob", everything=False)) == "n/0 has another user's trial"
    assert told(book, who=ALL) == "n/0 has long/0 (of study long)"


def test_who_waits_for_a_quota_waits_for_no_device() -> None:
    book = busy("n").tell(TermsSet(100.0, (("bob", Terms(max_devices=0)),)))
    book.tell(submitted(1, owner="bob"))
    assert taken(book.state, book.trial(), book.now, ALL) == ""
