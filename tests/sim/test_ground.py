"""The referee sees what must never happen, and virtual time is kept in order."""

from __future__ import annotations

import pytest

from hermesd.core.model import RunId
from hermesd.sim.agenda import Agenda
from tests.sim.cluster.disk import Folder
from tests.sim.cluster.ground import Ground, GroundTruthBroken

ONE, AGAIN, OTHER = RunId("s/0", 1), RunId("s/0", 2), RunId("s/1", 1)


def test_a_device_is_not_handed_on_before_it_is_free() -> None:
    ground = Ground()
    ground.begin(ONE, ("n/0",))
    with pytest.raises(GroundTruthBroken, match="where s/0#1 computes"):
        ground.begin(OTHER, ("n/0",))
    ground.end(ONE)
    ground.begin(OTHER, ("n/0",))


def test_a_trial_computes_in_one_place() -> None:
    ground = Ground()
    ground.begin(ONE, ("n/0",))
    with pytest.raises(GroundTruthBroken, match="while s/0#1 computes"):
        ground.begin(AGAIN, ("m/0",))


def test_a_run_begins_once() -> None:
    ground = Ground()
    ground.begin(ONE, ("n/0",))
    ground.end(ONE)
    with pytest.raises(GroundTruthBroken, match="second time"):
        ground.begin(ONE, ("n/0",))


def test_deeds_are_done_by_time_then_as_put_down() -> None:
    agenda, done = Agenda(), list[str]()
    agenda.at(2.0, lambda: done.append("c"))
    agenda.at(1.0, lambda: done.append("a"))
    agenda.at(1.0, lambda: agenda.at(0.5, lambda: done.append("late")))
    agenda.after(1.5, lambda: done.append("b"))
    while agenda.step():
        pass
    assert done == ["a", "late", "b", "c"]
    assert agenda.now == 2.0


def test_a_damaged_checkpoint_gives_way_to_the_one_before() -> None:
    folder = Folder("n", "s/0")
    older, newer = folder.save(ONE, "a", 5), folder.save(ONE, "b", 9)
    assert folder.restorable(newer) == newer
    folder.damage()
    assert folder.restorable(newer) == older
    folder.damage()
    assert folder.restorable(newer) is None
    assert folder.restorable(None) is None


def test_two_checkpoints_are_kept() -> None:
    folder = Folder("n", "s/0")
    for name, step in (("a", 1), ("b", 2), ("c", 3)):
        folder.save(ONE, name, step)
    assert [kept.step for kept in folder.verified()] == [3, 2]
