"""Several processes of one trial where others are to go on from it: one checkpoint of all of them,
written in passing."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.trainer_shim.driving import Event, Trial, Zygote, ending
from tests.trainer_shim.rank_programs import ALL_REDUCE, DDP
from tests.trainer_shim.test_ranks import (
    last_words,
    of_torch,
    steps_begin,
    trial_of,
)
from tests.waiting import until
from trainer_shim.channel.page import ControlPage
from trainer_shim.host.freeze import WorkGroup
from trainer_shim.host.output import Output
from trainer_shim.host.ranks import OtherRanks, Rank
from trainer_shim.host.worker import Worker
from trainer_shim.spec import Spec

assert of_torch  # a fixture

# Its rate changes: each process is told so, at the same step.
CHANGING = ALL_REDUCE.replace("1e-3 * all", "trial.params['rate'] * all")
assert CHANGING != ALL_REDUCE


def stages(
    rates: Sequence[float], at: Sequence[int], forks: bool = True, name: str = "rate"
) -> list[Any]:
    """Each rate until a step, the last to the end; others go on from where they change."""
    ends = [*at, None]
    return [
        [end, {name: rate}, forks and end is not None]
        for end, rate in zip(ends, rates, strict=True)
    ]


def forked(trial: Trial) -> list[Event]:
    """The checkpoints that it has told of so far, for others to go on from."""
    return [e for e in trial.events if e["kind"] == "checkpointed" and e.get("is_fork")]


def changing(
    folder: Path, width: int, rates: Sequence[float], at: Sequence[int], steps: int, **how: Any
) -> Trial:
    """A trial of so many processes whose rate changes at these steps."""
    given = {"parameters": {"rate": rates[0]}, "stages": stages(rates, at, **how)}
    return trial_of(folder, width, CHANGING, str(steps), **given)


def alone(
    folder: Path, width: int, rates: Sequence[float], at: Sequence[int], steps: int
) -> list[str]:
    """What the processes of one from which nobody goes on print last."""
    with ending(changing(folder, width, rates, at, steps, forks=False).launch()) as trial:
        trial.start()
        trial.until("completed")
        return last_words(trial, width)


def test_another_trial_goes_on_from_a_checkpoint_of_all_and_they_go_on_in_their_processes(
    tmp_path: Path,
) -> None:
    steps, at = 3000, (1000, 2000)
    rates, others = (1e-3, 2e-3, 3e-3), (1e-3, 2e-3, 9e-3)
    expected = alone(tmp_path / "one", 2, rates, at, steps)
    expected_child = alone(tmp_path / "other", 2, others, at, steps)
    assert expected != expected_child
    with ending(changing(tmp_path / "carrier", 2, rates, at, steps).launch()) as carrier:
        carrier.start()
        carrier.until("completed")
        assert last_words(carrier, 2) == expected
        assert [each["step"] for each in forked(carrier)] == [*at]
        assert [each["kind"] for each in carrier.events].count("started") == 1
        saved = Path(forked(carrier)[1]["path"])
    for manifest in (saved / "manifest.json", saved / "rank-1" / "manifest.json"):
        assert json.loads(manifest.read_text())["step"] == at[1]
    with ending(changing(tmp_path / "child", 2, others, at, steps).launch()) as child:
        child.start(str(saved))
        child.until("completed")
        assert last_words(child, 2) == expected_child
        assert min(child.losses()) == at[1] + 1


@pytest.mark.parametrize(("width", "tier"), [(2, "park"), (3, "park"), (2, "checkpoint")])
def test_suspends_at_any_moment_neither_lose_such_a_checkpoint_nor_change_a_digit(
    tmp_path: Path, width: int, tier: str
) -> None:
    """Where processes hold for it, others of them may just have been told to hold elsewhere."""
    steps, at = 300, range(3, 300, 7)
    rates = tuple(1e-3 + 1e-6 * n for n in range(len(at) + 1))
    expected = alone(tmp_path / "plain", width, rates, at, steps)
    chance = random.Random(width)
    with ending(changing(tmp_path / "cut", width, rates, at, steps).launch()) as trial:
        trial.start()
        steps_begin(trial)
        while True:
            time.sleep(chance.uniform(0.0, 0.02))
            if chance.random() < 0.5:
                trial.send("checkpoint", id="passing")
            trial.suspend(tier)
            event = trial.until("parked", "suspended", "completed")
            if event["kind"] == "completed":
                break
            if event["kind"] == "parked":
                assert event["at_boundary"] or event["step"] == steps, event
                trial.resume()
            else:
                assert event["tier"] == "checkpoint", event
                trial.start(event["checkpoint"]["path"])
                trial.until("started")
        assert last_words(trial, width) == expected
        assert [each["step"] for each in forked(trial)] == [*at]


@pytest.mark.parametrize("rank", [1, 0])
def test_a_host_that_is_killed_amid_such_a_checkpoint_leaves_none_and_it_is_made_again(
    tmp_path: Path, rank: int
) -> None:
    """Rank 0 writes its own, and takes in the others', once they are there."""
    program = CHANGING.replace("def save(folder):", "def save(folder):\n    time.sleep(0.3)")
    rates, at, steps = (1e-3, 2e-3), (50,), 100
    expected = alone(tmp_path / "plain", 2, rates, at, steps)
    given = {"parameters": {"rate": rates[0]}, "stages": stages(rates, at)}
    trial = trial_of(tmp_path / "t", 2, program, str(steps), **given)
    places = [trial.checkpoints, trial.directory / "ranks" / "1" / "checkpoints"]
    with ending(trial.launch()) as trial:
        trial.start()
        until(lambda: any(places[rank].glob("*-fork-s50.partial")))
        os.kill(trial.host_pid, signal.SIGKILL)
        assert trial.process is not None
        trial.process.wait()
        whole = [path for path in trial.checkpoints.glob("*") if path.suffix != ".partial"]
        assert not whole
        trial.launch()
        trial.start()
        trial.until("completed")
        assert last_words(trial, 2) == expected
        (saved,) = (Path(each["path"]) for each in forked(trial))
        assert (saved / "rank-1" / "manifest.json").exists()
        assert not [path for place in places for path in place.glob("*.partial")]


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", [2, 3])
def test_torchs_distributed_data_parallel_goes_on_from_one_as_if_it_had_trained_all_by_itself(
    tmp_path: Path, of_torch: Zygote, width: int
) -> None:
    """Its optimizer is in the loop's own variables, and its rate is set in every process."""
    at, epochs = (60,), 30

    def trial(name: str, rates: Sequence[float], forks: bool = True) -> Trial:
        given = {"parameters": {"lr": rates[0]}, "stages": stages(rates, at, forks, "lr")}
        return trial_of(tmp_path / name, width, DDP, str(epochs), seed=1, **given)

    def ended(trial: Trial, restore: str | None = None) -> tuple[list[str], list[Event]]:
        with ending(trial.launch(of_torch)) as trial:
            trial.start(restore)
            trial.until("completed")
            return last_words(trial, width), forked(trial)

    one, other = (0.01, 0.002), (0.01, 0.03)
    expected, _ = ended(trial("one", one, forks=False))
    expected_child, _ = ended(trial("other", other, forks=False))
    assert expected != expected_child
    found, (fork,) = ended(trial("carrier", one))
    assert found == expected
    found, _ = ended(trial("child", other), fork["path"])
    assert found == expected_child


class Told:
    """One of the processes, as far as the host tells it something."""

    def __init__(self, step: int) -> None:
        self.page = ControlPage.create()
        self.page.step = step
        self.page.limit = 30
        self.is_quick = True
        self.at: list[int] = []

    def tell(self, kind: str, at: int) -> None:
        assert kind == "halt"
        self.at.append(at)
        if self.is_quick:
            self.page.step = at  # which has ended by the time that it looks again


@pytest.fixture
def told(tmp_path: Path) -> tuple[OtherRanks, Told, Told]:
    """Two processes that have done 28 steps, of at most 30."""
    trial = trial_of(tmp_path / "t", 2, "")
    ranks = OtherRanks(Spec.load(str(trial.spec)), WorkGroup(os.getpid(), None))
    one, other = Told(28), Told(28)
    ranks._first = cast(Worker, one)
    ranks.others[1] = Rank(1, cast(Worker, other), cast(Output, None))
    return ranks, one, other


def test_what_waits_where_it_was_told_to_go_on_from_does_not_count(
    told: tuple[OtherRanks, Told, Told],
) -> None:
    """That it waits there may be heard after it was told so: all would seem to wait at a step that
    they are about to leave."""
    ranks, one, other = told
    ranks.halt()
    assert one.at == other.at == [29, 30], "no further than their limit"
    assert not ranks.holds(0, 29)
    assert not ranks.holds(1, 29)
    assert not ranks.holds(0, 30)
    assert ranks.holds(1, 30)


def test_nobody_goes_further_for_the_sake_of_one_that_is_about_to_hold_as_well(
    told: tuple[OtherRanks, Told, Told],
) -> None:
    """Or they would go on, one step each time, for as long as the others' words are heard late."""
    ranks, one, other = told
    one.is_quick = other.is_quick = False
    ranks.halt()
    other.page.step = other.page.halt = 29
    assert not ranks.holds(0, 29)
    assert one.at == other.at == [29]
    assert ranks.holds(1, 29)
