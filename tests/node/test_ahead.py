"""Trials that were written down are put back where they were before their turn comes."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermesd.config.schema import NodeConfig
from hermesd.config.slots import SlotSetting
from hermesd.core.events import NodeJoined, RunStarted, RunSuspended
from hermesd.core.model import Checkpoint, RunId, Tier
from hermesd.core.node.messages import Upcoming

from .conftest import PROGRAM, Head, Node, becomes

Launch = Callable[..., RunId]
Running = Callable[..., Awaitable[RunId]]
Suspended = Callable[..., Awaitable[RunSuspended]]

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core here")

# Leaves a note before it asks where to go on, and when it knows and may: beside its working
# directory, where what the beginning of a program that is resumed writes is put back.
NOTING = PROGRAM.replace(
    "trial = trainer_shim.attach()",
    """
def note(word):
    with open("../notes", "a") as file:
        print(word, os.getpid(), *sorted(os.sched_getaffinity(0)), file=file)
note("came")
while os.path.exists("../wait"):
    time.sleep(0.005)
trial = trainer_shim.attach()
note("went")
""",
)
TRIAL = "digits/1"
ASKED_FOR = Upcoming((TRIAL,), 1)


@pytest.fixture
def config(config: NodeConfig) -> NodeConfig:
    """One slot, and a core beside it."""
    return config.model_copy(update={"cpu_slots": (SlotSetting((min(os.sched_getaffinity(0)),)),)})


class Trial:
    """What can be seen of the trial from outside."""

    def __init__(self, config: NodeConfig) -> None:
        self.folder = config.state_dir / "trials" / TRIAL
        self.journal = config.state_dir / "runs" / TRIAL

    def notes(self, word: str) -> list[list[int]]:
        """Process and cores of each process that came so far."""
        lines = (self.folder / "notes").read_text().splitlines()
        return [[int(n) for n in line.split()[1:]] for line in lines if line.startswith(word)]

    async def stands(self) -> int:
        """Wait until the second process is held; its id."""
        await becomes(lambda: (self.journal / "parked").exists())
        return self.notes("came")[1][0]


@pytest.fixture
def trial(config: NodeConfig) -> Trial:
    return Trial(config)


@pytest.fixture
async def kept(
    head: Head, node: Node, running: Running, suspended: Suspended, trial: Trial
) -> Checkpoint:
    """The trial was written down, and its last line is safe."""
    run = await running(program=NOTING)
    checkpoint = (await suspended(run, Tier.CHECKPOINT)).checkpoint
    assert checkpoint is not None
    await becomes(lambda: (trial.journal / "last.pb").exists())
    return checkpoint


async def test_it_goes_on_in_the_process_that_stands_ready(
    head: Head, node: Node, launch: Launch, kept: Checkpoint, trial: Trial
) -> None:
    slot, *others = sorted(os.sched_getaffinity(0))
    head.send(ASKED_FOR)
    pid = await trial.stands()
    assert len(trial.notes("went")) == 1, "it trains nothing before its turn"
    assert trial.notes("came")[1][1:] == [others[0]], "as many cores, and none of a slot"
    after = len(head.events)
    run = launch(attempt=2, checkpoint=kept, program=NOTING)
    started = await head.hears(RunStarted, run)
    assert started.step >= kept.step
    assert trial.notes("went")[1] == [pid, slot]
    of_the_last = [e for e in head.events[after:] if getattr(e, "run", None) == RunId(TRIAL, 1)]
    assert of_the_last == [], "the rebuilt process is no run"


async def test_its_turn_may_come_before_it_stands_there(
    head: Head, node: Node, launch: Launch, kept: Checkpoint, trial: Trial
) -> None:
    (trial.folder / "wait").touch()
    head.send(ASKED_FOR)
    await becomes(lambda: len(trial.notes("came")) == 2)
    run = launch(attempt=2, checkpoint=kept, program=NOTING)
    await becomes(lambda: not (trial.journal / "rebuilt").exists())
    (trial.folder / "wait").unlink()
    assert (await head.hears(RunStarted, run)).step >= kept.step
    assert len(trial.notes("came")) == 2


@pytest.mark.parametrize("when", ["while it is rebuilt", "while it stands there"])
async def test_kill_9_of_what_was_rebuilt_is_harmless(
    head: Head, node: Node, launch: Launch, kept: Checkpoint, trial: Trial, when: str
) -> None:
    if when == "while it is rebuilt":
        (trial.folder / "wait").touch()
        head.send(ASKED_FOR)
        await becomes(lambda: len(trial.notes("came")) == 2)
        pid = trial.notes("came")[1][0]
    else:
        head.send(ASKED_FOR)
        pid = await trial.stands()
    os.kill(pid, signal.SIGKILL)
    await becomes(lambda: not (trial.journal / "rebuilt").exists())
    (trial.folder / "wait").unlink(missing_ok=True)
    run = launch(attempt=2, checkpoint=kept, program=NOTING)
    assert (await head.hears(RunStarted, run)).step >= kept.step
    assert not any(isinstance(event, RunSuspended) for event in head.events[-2:])


async def test_what_is_not_needed_ends(
    head: Head, node: Node, kept: Checkpoint, trial: Trial
) -> None:
    head.send(ASKED_FOR)
    pid = await trial.stands()
    head.send(Upcoming((), 0))
    await becomes(lambda: not Path(f"/proc/{pid}").exists())
    await becomes(lambda: not (trial.journal / "rebuilt").exists())


async def test_a_daemon_that_comes_anew_ends_it(
    head: Head, config: NodeConfig, running: Running, suspended: Suspended, launch: Launch,
    trial: Trial, no_survivors: None,
) -> None:  # fmt: skip
    async with Node(config):
        await head.hears(NodeJoined)
        kept = (await suspended(await running(program=NOTING), Tier.CHECKPOINT)).checkpoint
        await becomes(lambda: (trial.journal / "last.pb").exists())
        head.send(ASKED_FOR)
        pid = await trial.stands()
    assert Path(f"/proc/{pid}").exists(), "hosts outlive their daemon"
    async with Node(config):
        await becomes(lambda: not Path(f"/proc/{pid}").exists())
        joined = await head.hears(NodeJoined, count=2)
        assert joined.live == ()
        run = launch(attempt=2, checkpoint=kept, program=NOTING)
        await head.hears(RunStarted, run)
    assert len(trial.notes("came")) == 3


async def test_nothing_is_rebuilt_from_a_checkpoint_that_is_gone(
    head: Head, node: Node, launch: Launch, kept: Checkpoint, trial: Trial
) -> None:
    for path in (trial.folder / "checkpoints").glob("*/manifest.json"):
        path.unlink()
    head.send(ASKED_FOR)
    await head.hears(RunStarted, launch(attempt=2, program=NOTING))
    assert not (trial.journal / "rebuilt").exists()
    assert len(trial.notes("came")) == 2, "it would have begun from the beginning"
