"""A trial that goes on from an image of another one's processes, as itself."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hermesd.node.storage import checkpoints
from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster
from tests.e2e.test_lost_node import becomes, node
from tests.head.heads import world
from tests.images.driving import WorldTrial, criu
from tests.images.test_failures import Gate

STEPS = 40
# It saves nothing, and nobody can run it again: what it draws depends on all that it has drawn. It
# counts its steps in a temporary file, too.
PROGRAM = f"""
import os, random, tempfile, time
import trainer_shim

trial = trainer_shim.attach()
draws, rate = random.Random(1), [trial.params["rate"]]
trainer_shim.on_change("rate", lambda value: rate.__setitem__(0, value))
count = os.path.join(tempfile.mkdtemp(), "count")
with open("log.csv", "w") as log:
    for step in range({STEPS}):
        assert step == 0 or open(count).read() == str(step)
        with open(count, "w") as file:
            file.write(str(step + 1))
        loss = rate[0] * draws.random()
        log.write(f"{{step}},{{loss!r}}\\n")
        log.flush()
        time.sleep(0.01)
        trial.report(step + 1, loss=loss)
"""

pytestmark = [pytest.mark.image, pytest.mark.timeout(120)]


def _rows(*rates: tuple[int, float]) -> list[str]:
    """What a trial logs with these rates, each from a step on."""

    draws, rows = random.Random(1), []
    for step in range(STEPS):
        rate = [rate for since, rate in rates if since <= step][-1]
        rows.append(f"{step},{rate * draws.random()!r}")
    return rows


def _trial(folder: Path, name: str, **fields: Any) -> WorldTrial:
    trial = WorldTrial(
        folder / name, [sys.executable, "main.py"], criu=criu(folder), parameters={"rate": 0.5}
    )
    (trial.directory / "work" / "main.py").write_text(PROGRAM)
    said = json.loads(trial.spec.read_text())
    trial.spec.write_text(json.dumps({**said, **fields}))
    return trial


def _ended(trial: WorldTrial) -> list[str]:
    trial.until("completed")
    trial.quit()
    return (trial.directory / "work" / "log.csv").read_text().split()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[WorldTrial]:
    """A trial whose rate falls after 20 steps, where others part from it."""
    stages = [[20, {"rate": 0.5}, True], [None, {"rate": 0.25}, False]]
    trial = _trial(tmp_path, "a", stages=stages)
    yield trial
    trial.end()


@pytest.fixture
def fork(tmp_path: Path, parent: WorldTrial) -> Iterator[WorldTrial]:
    """Another, beside it."""
    trial = _trial(tmp_path, "b")
    trial.checkpoints.mkdir()
    yield trial
    trial.end()


def _begin(fork: WorldTrial, path: str, **fields: Any) -> None:
    """Start a trial as a node begins it from this checkpoint of another."""
    said = json.loads(fork.spec.read_text())
    fork.spec.write_text(json.dumps({**said, **fields}))
    checkpoints.fork(Path(path), fork.checkpoints / "begin")
    fork.launch()
    fork.start(restore=str(fork.checkpoints / "begin"))
    fork.until("started")


def _parked(trial: WorldTrial, step: int) -> str:
    """Have it trained up to there; an image of it."""
    trial.launch()
    trial.start(limit=step)
    trial.until("parked")
    trial.send("checkpoint", id="here")
    return str(trial.until("checkpointed")["path"])


def test_a_stage_tree_branches_at_an_image_taken_in_passing(
    parent: WorldTrial, fork: WorldTrial
) -> None:
    parent.launch()
    parent.start()
    saved = parent.until("checkpointed")
    assert (saved["step"], saved["id"]) == (20, "a1-fork-s20")
    assert saved["why"] == "its framework's checkpoint is park-only"
    stages = [[20, {"rate": 0.5}], [30, {"rate": 0.125}], [None, {"rate": 1.0}]]
    _begin(fork, saved["path"], stages=stages)
    assert _ended(fork) == _rows((0, 0.5), (20, 0.125), (30, 1.0))
    assert _ended(parent) == _rows((0, 0.5), (20, 0.25)), "it went on meanwhile"


def test_a_fork_waits_for_the_image_before_it_and_a_suspend_for_both(parent: WorldTrial) -> None:
    gate = Gate(parent)
    parent.launch()
    parent.start(limit=5)
    parent.until("parked")
    parent.resume()
    parent.send("checkpoint", id="passing")
    gate.is_reached()
    while parent.until("reported")["last_step"] < 20:
        pass
    parent.suspend("checkpoint")
    gate.opens()
    found = [parent.until("checkpointed")["id"] for _ in range(2)]
    assert found == ["passing", "a2-fork-s20"]
    saved = parent.until("suspended")["checkpoint"]
    parent.end()
    parent.launch()
    parent.start(restore=saved["path"])
    assert _ended(parent) == _rows((0, 0.5), (20, 0.25))


# A host that is about to stop a program, which passes its gate only then, comes to its fork, and
# is stopped there.
LATE = """
import os, sys, time
from trainer_shim.host import __main__, suspension
look, gate = suspension.Suspension._look, os.path.dirname(sys.argv[1]) + "/gate"

def late(self):
    if os.path.exists(gate):
        open(gate, "w").close()
        os.unlink(gate)
        until = time.monotonic() + 60
        while not self._trial.run.at_boundary:
            assert time.monotonic() < until, "the program comes to no boundary"
            self._trial.hear_out()
    look(self)

suspension.Suspension._look = late
__main__.main(sys.argv[1:])
"""
GATE = 'import os; os.path.exists("../gate") and open("../gate").close()'


def _late(trial: WorldTrial, before: str) -> None:
    """Have the program wait at its gate before this line of it."""
    os.mkfifo(trial.directory / "gate")
    indent = " " * (len(before) - len(before.lstrip()))
    text = PROGRAM.replace(before, f"{indent}{GATE}\n{before}")
    (trial.directory / "work" / "main.py").write_text(text)
    trial.host = "-c", LATE
    trial.launch()
    trial.start()


def test_what_is_parked_as_it_comes_to_its_fork_has_the_image_when_it_goes_on(
    parent: WorldTrial, fork: WorldTrial
) -> None:
    _late(parent, "trial = trainer_shim.attach()")
    parent.suspend("park")
    parent.until("parked")
    parent.resume()
    saved = parent.until("checkpointed")
    assert (saved["step"], saved["is_fork"]) == (20, True)
    _begin(fork, saved["path"], stages=[[20, {"rate": 0.5}], [None, {"rate": 1.0}]])
    assert _ended(fork) == _rows((0, 0.5), (20, 1.0))
    assert _ended(parent) == _rows((0, 0.5), (20, 0.25))


def test_an_image_of_what_has_come_to_its_fork_is_that_for_the_fork_as_well(
    parent: WorldTrial, fork: WorldTrial
) -> None:
    _late(parent, "        trial.report(step + 1, loss=loss)")
    parent.until("started")
    parent.send("suspend", tier="checkpoint", deadline_seconds=0.0)
    saved = parent.until("suspended")["checkpoint"]
    assert (saved["step"], saved["is_fork"]) == (20, True)
    _begin(fork, saved["path"], stages=[[20, {"rate": 0.5}], [None, {"rate": 1.0}]])
    assert _ended(fork) == _rows((0, 0.5), (20, 1.0))
    parent.end()
    parent.host = WorldTrial.host
    parent.launch()
    parent.start(restore=saved["path"])
    assert _ended(parent) == _rows((0, 0.5), (20, 0.25))


def test_a_fork_has_the_new_value_that_its_program_sets(
    parent: WorldTrial, fork: WorldTrial
) -> None:
    _begin(fork, _parked(parent, 15), parameters={"rate": 0.25})
    assert _ended(fork) == _rows((0, 0.5), (15, 0.25))


def test_a_value_that_the_program_sets_nowhere_is_refused(
    parent: WorldTrial, fork: WorldTrial
) -> None:
    _begin(fork, _parked(parent, 15), parameters={"rate": 0.5, "momentum": 0.5})
    with pytest.raises(AssertionError, match=r"cannot set momentum to 0\.5"):
        fork.until("completed")


async def test_a_search_trains_each_stage_once_by_images_and_forks_from_them(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("f")
    (root / "head").mkdir()
    async with AsyncExitStack() as stack:
        head = await stack.enter_async_context(world(root / "head"))
        state = await stack.enter_async_context(node("a", head, None))
        await becomes(lambda: len(head.state.slots) > 0)
        cluster = Cluster(root / "head", slots=0)
        stack.push_async_callback(cluster.stop)
        study = await cluster.submit(
            "tree",
            {"train.py": PROGRAM},
            {
                "later": {"values": [0.25, 0.125]},
                "rate": {"sequence": {"values": [0.5, "later"], "at": [20]}},
            },
            share=types_pb2.SHARE_TREE,
        )
        answer = await cluster.finished(study)
        assert {each.state for each in answer.trials} == {types_pb2.TRIAL_STATE_COMPLETED}
        shown = (await cluster.study(study)).study
        assert (shown.trained_steps, shown.steps) == (20 + 2 * 20, 2 * STEPS)
        for number, later in enumerate((0.25, 0.125), 1):
            log = state / "trials" / study / str(number) / "work" / "log.csv"
            assert log.read_text().split() == _rows((0, 0.5), (20, later))
        made = await cluster.stub.ForkTrial(
            control.ForkTrialRequest(trial=f"{study}/1", step=20, request_id="f")
        )
        again = await cluster.finished(study)
        fork = next(each for each in again.trials if each.id == made.trial.id)
        assert (fork.state, fork.forked_at_step) == (types_pb2.TRIAL_STATE_COMPLETED, 20)
        log = state / "trials" / fork.id / "work" / "log.csv"
        assert log.read_text().split() == _rows((0, 0.5), (20, 0.25))
