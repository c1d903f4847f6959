"""Pools: each shares its own devices among its own studies, by its own policy and placement."""

from __future__ import annotations

from typing import ClassVar

import pytest

from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import FidelityKnown, PoolsConfigured, Unpaused
from hermesd.core.events import Paused as Pause
from hermesd.core.model import Fidelity, Plugin, Pool, Quantum, pool_of
from hermesd.core.placement import make_placement, untried
from hermesd.core.policy import Claim, View
from hermesd.core.trial import Trial
from hermesd.policy import make_policy
from tests.core.playbook import (
    LEASE,
    Playbook,
    completed,
    crashed,
    joined,
    live,
    parked,
    quantum_ended,
    run,
    started,
    submitted,
    written,
)

ROUND_ROBIN = Plugin("round_robin", (("quantum_seconds", 5.0),))
GOLD = Pool("gold", ("m",))


def configured(*pools: Pool) -> Playbook:
    """Two nodes of a device each: n, and m in the pool gold unless the test says otherwise."""
    book = Playbook().tell(PoolsConfigured(pools or (GOLD,)))
    return book.tell(joined(), joined(1, node="m"))


def known(name: str, fidelity: Fidelity = Fidelity.EXACT) -> FidelityKnown:
    return FidelityKnown(run(name), fidelity, "", "keras")


@pytest.mark.parametrize(
    ("node", "pool"),
    [("a1", "gold"), ("a2", "red"), ("b9", "red"), ("c", "default"), ("A1", "default")],
)
def test_a_name_goes_before_a_pattern_and_the_first_pattern_before_the_next(
    node: str, pool: str
) -> None:
    pools = (Pool("red", ("a*", "b?")), Pool("gold", ("a1", "b*")))
    assert pool_of(node, pools) == pool


def test_a_study_runs_on_its_pools_devices_alone() -> None:
    book = configured().tell(submitted(2, "s"), submitted(2, "t", pool="gold"))
    book.expect("launch s/0#1 on n/0", "launch t/0#1 on m/0")
    book.tell(completed("t/0#1")).expect("launch t/1#1 on m/0")
    book.tell(completed("t/1#1")).expect()


def test_pools_have_different_policies_side_by_side() -> None:
    book = configured(Pool("gold", ("m",), ROUND_ROBIN))
    book.tell(submitted(2, "s", policy=ROUND_ROBIN), submitted(2, "t", pool="gold"))
    book.expect("launch s/0#1 on n/0 for 5 s", "launch t/0#1 on m/0 for 5 s")
    explained = book.scheduler.explain("t/1", 0.0)
    assert (explained.policy, book.scheduler.explain("s/1", 0.0).policy) == ("round_robin",) * 2
    book.tell(PoolsConfigured((Pool("gold", ("m",)), Pool("default", (), Plugin("fifo")))))
    assert book.scheduler.explain("s/1", 0.0).policy == "fifo"
    assert book.scheduler.explain("t/1", 0.0).policy == "fifo", "as the study asked"


def test_a_pools_placement_holds_for_its_studies() -> None:
    book = configured(Pool("gold", ("m",), None, Plugin("homes")))
    book.tell(submitted(1, "t", pool="gold")).expect("bind t/0 to m/0", "launch t/0#1 on m/0")
    book.tell(submitted(1, "s")).expect("launch s/0#1 on n/0")


def test_a_policy_that_raised_is_forgotten_with_another_one_of_the_pool() -> None:
    book = configured().tell(submitted(1, "t", pool="gold"))
    book.state.fallen["t"] = "it raised"
    book.entries.clear()
    book.scheduler.observe(PoolsConfigured((Pool("gold", ("m",), Plugin("fifo")),)), 0.0)
    assert "t" in book.state.fallen, "its policy is the same"
    book.scheduler.observe(PoolsConfigured((Pool("gold", ("m",), ROUND_ROBIN),)), 0.0)
    assert "t" not in book.state.fallen


def test_what_runs_on_a_node_that_changes_its_pool_leaves_at_the_end_of_its_quantum() -> None:
    book = configured().tell(submitted(1, "t", pool="gold", policy=ROUND_ROBIN))
    book.tell(started("t/0#1"), known("t/0#1"), submitted(2, "s"))
    book.expect("launch t/0#1 on m/0 for 5 s", "launch s/0#1 on n/0")
    book.tell(PoolsConfigured(())).expect()
    book.at(5).tell(quantum_ended("t/0#1")).expect("suspend t/0#1 by checkpoint")
    assert book.trial("t/0").run.asked.reason == "node m is of pool default now"
    book.tell(written("t/0#1", 9)).expect("launch s/1#1 on m/0")
    assert "pool gold is no longer in the head's configuration" in summary(book, "t/0")
    book.tell(completed("s/0#1")).expect()
    book.tell(PoolsConfigured((Pool("gold", ("n",)),))).expect(
        "launch t/0#2 on n/0 for 5 s from t/0#1@9"
    )


def summary(book: Playbook, trial: str) -> str:
    return book.scheduler.explain(trial, book.now).summary


def test_what_is_parked_on_such_a_node_is_written_down_and_goes_on_in_its_pool() -> None:
    book = configured(Pool("gold", ("m", "k"))).tell(submitted(1, "t", pool="gold"))
    book.tell(started("t/0#1"), known("t/0#1"), Pause(("t/0",), "r0")).tell(parked("t/0#1", 5))
    book.expect("launch t/0#1 on m/0", "suspend t/0#1")
    book.tell(PoolsConfigured((Pool("gold", ("k",)),))).expect("write down t/0#1 on m")
    book.tell(written("t/0#1", 5), joined(1, node="k"), Unpaused(("t/0",), "r1"))
    book.expect("launch t/0#2 on k/0 from t/0#1@5")


def test_what_no_checkpoint_brings_back_waits_for_its_node_and_says_so() -> None:
    book = configured().tell(submitted(1, "t", pool="gold"))
    book.tell(started("t/0#1"), Pause(("t/0",), "r0")).tell(parked("t/0#1", 5))
    book.expect("launch t/0#1 on m/0", "suspend t/0#1")
    book.tell(PoolsConfigured(()), Unpaused(("t/0",), "r1")).expect()
    assert "waits for node m, which is of pool default now" in summary(book, "t/0")
    book.tell(PoolsConfigured((GOLD,))).expect("launch t/0#2 on m/0 from t/0#1")


def test_a_device_that_was_kept_for_a_trial_is_free_in_its_new_pool() -> None:
    book = configured(Pool("gold", ("m", "n"))).tell(
        submitted(3, "t", pool="gold", policy=ROUND_ROBIN)
    )
    book.tell(started("t/0#1"), started("t/1#1"), known("t/0#1")).at(5)
    book.tell(quantum_ended("t/0#1"))
    book.expect(
        "launch t/0#1 on m/0 for 5 s", "launch t/1#1 on n/0 for 5 s", "suspend t/0#1 for t/2"
    )
    book.tell(PoolsConfigured((Pool("gold", ("n",)),)), submitted(1, "s"))
    book.tell(completed("t/1#1")).expect("launch t/2#1 on n/0 for 5 s")
    book.tell(written("t/0#1", 3)).expect("launch s/0#1 on m/0")


def test_homes_are_of_the_pool() -> None:
    book = configured().tell(submitted(2, "t", pool="gold", placement=Plugin("homes")))
    book.expect("bind t/0 to m/0", "bind t/1 to m/0", "launch t/0#1 on m/0")
    book.tell(PoolsConfigured((Pool("gold", ("n",)),)))
    book.expect("bind t/1 to n/0", "launch t/1#1 on n/0")


def test_a_failure_is_tried_elsewhere_in_the_pool_only() -> None:
    book = configured().tell(submitted(1, "t", pool="gold"), joined(1, node="k"))
    book.tell(started("t/0#1"))
    assert not untried(book.state, book.trial("t/0")), "n and k are of another pool"
    book.tell(crashed("t/0#1", signature="E")).expect("launch t/0#1 on m/0", "launch t/0#2 on m/0")


def test_a_pool_without_a_node_makes_its_trials_wait_and_says_so() -> None:
    book = configured(Pool("red", ("z*",))).tell(submitted(1, "t", pool="red")).expect()
    assert "no device of its pool red can be used now (it has none)" in summary(book, "t/0")
    book.tell(joined(1, node="z1")).expect("launch t/0#1 on z1/0")


def test_pools_outlive_the_head_and_a_node_that_comes_back_is_of_its_pool() -> None:
    book = configured().tell(submitted(1, "t", pool="gold")).expect("launch t/0#1 on m/0")
    book.scheduler = Scheduler(book.state, make_policy, make_placement, LEASE)
    book.tell(joined(1, node="m", live=[live("t/0#1", device="m/0")]), submitted(1, "s"))
    book.expect("launch s/0#1 on n/0")
    assert {node.id: node.pool for node in book.state.nodes.values()} == {
        "n": "default",
        "m": "gold",
    }


def test_what_can_only_be_parked_runs_on_to_its_end_where_the_pool_has_changed() -> None:
    book = configured().tell(submitted(1, "t", pool="gold", policy=ROUND_ROBIN))
    book.tell(started("t/0#1"), PoolsConfigured(()), submitted(2, "s"))
    book.expect("launch t/0#1 on m/0 for 5 s", "launch s/0#1 on n/0")
    book.at(5).tell(quantum_ended("t/0#1")).expect()
    book.tell(completed("t/0#1")).expect("launch s/1#1 on m/0")


class Counting:
    """A planning policy that notes how many devices it is told of."""

    name: ClassVar[str] = "counting"

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def plan(self, view: View) -> list[Claim]:
        self.seen.add(view.devices)
        return [Claim(trial.id, Quantum(), "") for trial in view.trials]

    def words(self, trial: Trial) -> str:
        return ""


def test_a_policy_is_told_of_its_pools_devices_alone() -> None:
    book, counting = configured(), Counting()
    book.scheduler = Scheduler(book.state, lambda _: counting, make_placement, LEASE)
    book.tell(joined(3, node="k"), submitted(1, "t", pool="gold")).expect("launch t/0#1 on m/0")
    assert counting.seen == {1}
    book.tell(submitted(1, "s"))
    assert counting.seen == {1, 4}
