"""A trial that has now one device and now two, with real processes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, running
from tests.e2e.test_gangs import SOLE, TURNS
from tests.trainer_shim.rank_programs import (
    DDP_OF_ANY_WIDTH,
    GLOBAL_BATCH,
    MULTI_WORKER_OF_ANY_WIDTH,
    global_batch_weight,
)

STEPS = 400
SECONDS = 0.002  # a sample's


def logged(log: Path) -> str:
    """The program with its steps; each process says in a log which it does, of how many."""
    program = GLOBAL_BATCH.replace("int(sys.argv[1])", str(STEPS))
    program = program.replace("float(sys.argv[2])", str(SECONDS))
    notes = f"    with open({str(log)!r}, 'a') as log:\n"
    notes += "        log.write(f'{step} {rank} {world}\\n')\n"
    return program.replace("    trial.report(step", f"{notes}    trial.report(step")


async def submit_elastic(
    cluster: Cluster, program: str, processes: int = types_pb2.PROCESSES_RANKS, **spec: object
) -> None:
    await cluster.submit(
        "wide",
        {"train.py": program},
        {"number": [0.0]},
        resources=types_pb2.Resources(devices=1, max_devices=2, processes=processes),
        schedule=types_pb2.Schedule(policy=TURNS),
        suspend=types_pb2.Suspend(durability_seconds=1.0),
        # By what is known before it ends, a resize pays however slow the machine is.
        stop=types_pb2.Stop(max_steps=1_000_000),
        **spec,
    )


async def width_of(cluster: Cluster) -> int:
    trial = (await cluster.study("wide")).trials[0]
    return len(trial.device.split(", ")) if trial.device else 0


def done(log: Path) -> list[tuple[int, int]]:
    """Each step with the number of processes that did it; raises if not all of them did."""
    lines = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    steps = sorted({(step, world) for step, _, world in lines})
    whole = {(step, rank, world) for step, world in steps for rank in range(world)}
    assert whole == set(lines)
    return steps


@pytest.mark.timeout(180)
async def test_a_trial_goes_on_on_two_devices_and_on_one_and_comes_to_the_same(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with running(tmp_path_factory.mktemp("w"), slots=2) as cluster:
        await submit_elastic(cluster, logged(log))

        async def has_two() -> bool:
            return await width_of(cluster) == 2

        await cluster.until(has_two)
        await cluster.submit(
            "sole",
            {"train.py": SOLE},
            {"number": [0.0]},
            schedule=types_pb2.Schedule(policy=TURNS),
        )
        await cluster.finished("sole")
        (trial,) = (await cluster.finished("wide")).trials
        assert trial.state == types_pb2.TRIAL_STATE_COMPLETED
        assert trial.metric == global_batch_weight(STEPS)
        assert trial.resizes >= 2
        assert {each.devices for each in trial.widths} == {1, 2}
    steps = done(log)
    assert [step for step, _ in steps] == list(range(1, STEPS + 1)), "one was lost or done twice"
    widths = [width for _, width in steps]
    changes = [
        width for width, before in zip(widths, [0, *widths], strict=False) if width != before
    ]
    assert changes[:3] == [1, 2, 1]


@pytest.mark.timeout(180)
async def test_a_trial_that_ran_out_of_memory_goes_on_on_two_devices_and_comes_to_the_same(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    full = "    if world == 1 and step == 5:\n"
    full += "        raise MemoryError('no room for a batch: out of memory')\n"
    program = logged(log).replace("    mine = range(", f"{full}    mine = range(")
    rule = types_pb2.RetryRule(match="out of memory", do=types_pb2.RETRY_ACTION_MORE_MEMORY)
    async with running(tmp_path_factory.mktemp("w"), slots=2) as cluster:
        await submit_elastic(cluster, program, retry=types_pb2.Retry(rules=[rule]))
        (trial,) = (await cluster.finished("wide")).trials
        assert trial.state == types_pb2.TRIAL_STATE_COMPLETED
        assert trial.metric == global_batch_weight(STEPS)
        assert [each.detail.splitlines()[-1] for each in trial.failures] == [
            "MemoryError: no room for a batch: out of memory"
        ]
    assert {width for step, width in done(log) if step >= 5} == {2}, "it never has fewer again"


def weights() -> list[float]:
    """What an undisturbed run reports, step by step."""
    return [float(global_batch_weight(step)) for step in range(1, STEPS + 1)]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("victims", [("node",), ("host",), ("local", "head", "node", "host")])
async def test_nothing_is_lost_by_a_kill_of_what_has_two_processes_or_is_to_have_them(
    victims: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Of everything while it is being resized, and of one part when it has been."""
    async with running(tmp_path_factory.mktemp("w"), slots=2, kind=Cluster) as cluster:
        await submit_elastic(cluster, logged(tmp_path / "log"))
        at_once = len(victims) > 1

        async def is_time() -> bool:
            (trial,) = (await cluster.study("wide")).trials
            if at_once:
                return trial.state == types_pb2.TRIAL_STATE_SUSPENDING or trial.resizes > 0
            return ", " in trial.device and trial.state == types_pb2.TRIAL_STATE_RUNNING

        await cluster.until(is_time)
        cluster.kill([pid for kind in victims for pid in cluster.pids(kind)])
        if at_once:
            await cluster.stop()
            await cluster.start()
        (trial,) = (await cluster.finished("wide")).trials
        assert trial.state == types_pb2.TRIAL_STATE_COMPLETED
        assert trial.resizes >= 1
        curve = await cluster.stub.GetCurve(control.GetCurveRequest(trial="wide/1"))
        assert list(curve.values) == weights()
        await cluster.until(lambda: not cluster.pids("host"))


EPOCHS = 75  # of four steps


def torch_program(log: Path) -> str:
    """A `DistributedDataParallel` that is as many times as fast as it has processes. Rank 0 writes
    their number and the loss of each step's whole batch to a log."""
    notes = textwrap.dedent(f"""
        import time
        time.sleep({SECONDS} * len(x))
        total = loss.detach().clone()
        dist.all_reduce(total)
        if job.rank == 0:
            with open({str(log)!r}, "a") as log:
                log.write(f"{{job.world}} {{total.item() / job.world}}\\n")
    """)
    # As far as is known before it ends, a resize pays however slow the machine is.
    program = DDP_OF_ANY_WIDTH.replace("int(sys.argv[1])", "1_000_000")
    counts, ends = "        seen += len(x) * job.world\n", "        schedule.step()\n"
    assert counts in program
    assert ends in program
    program = program.replace(counts, textwrap.indent(notes, " " * 8) + counts)
    return program.replace(ends, f"{ends}        if number == {EPOCHS - 1}: break\n")


@pytest.mark.torch
@pytest.mark.timeout(300)
async def test_an_unchanged_ddp_program_goes_on_on_two_devices_and_on_one_with_the_same_losses(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """What it gives a device back for is the same program, which nobody resizes."""
    logs = {name: tmp_path / name for name in ("wide", "sole")}
    async with running(tmp_path_factory.mktemp("w"), slots=2) as cluster:
        await submit_elastic(cluster, torch_program(logs["wide"]))

        async def has_two() -> bool:
            return await width_of(cluster) == 2

        await cluster.until(has_two)
        await cluster.submit(
            "sole",
            {"train.py": torch_program(logs["sole"])},
            {"number": [0.0]},
            resources=types_pb2.Resources(devices=1, processes=types_pb2.PROCESSES_RANKS),
            schedule=types_pb2.Schedule(policy=TURNS),
        )
        ended = [*(await cluster.finished("wide")).trials, *(await cluster.finished("sole")).trials]
    assert {trial.state for trial in ended} == {types_pb2.TRIAL_STATE_COMPLETED}
    wide, sole = ended
    assert (wide.resizes >= 2, sole.resizes, sole.preemptions) == (True, 0, 0)
    told = {
        name: [line.split() for line in log.read_text().splitlines()] for name, log in logs.items()
    }
    widths = [width for width, _ in told["wide"]]
    changes = [
        width for width, before in zip(widths, ["", *widths], strict=False) if width != before
    ]
    assert changes[:3] == ["1", "2", "1"]
    losses = {name: [float(loss) for _, loss in lines] for name, lines in told.items()}
    assert len(losses["sole"]) == 4 * EPOCHS
    assert losses["wide"] == pytest.approx(losses["sole"], rel=0, abs=1e-5)


def multi_worker(steps: int, seconds: float) -> str:
    """A model under `MultiWorkerMirroredStrategy` whose steps take so long on one device, and half
    as long on two."""
    program = MULTI_WORKER_OF_ANY_WIDTH.replace("int(sys.argv[1])", str(steps))
    step = "    loss = train_step(*next(batches))\n"
    assert step in program
    takes = f"{seconds} / strategy.num_replicas_in_sync"
    return program.replace(step, f"{step}    __import__('time').sleep({takes})\n")


@pytest.mark.tensorflow
@pytest.mark.in_depth
@pytest.mark.timeout(300)
async def test_an_unchanged_multi_worker_program_goes_on_on_two_devices_on_one_and_on_two_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    workers, steps = types_pb2.PROCESSES_WORKERS, 150
    async with running(tmp_path_factory.mktemp("w"), slots=2) as cluster:

        async def trains_alone(name: str, program: str) -> None:
            resources = types_pb2.Resources(devices=1, processes=workers)
            known = {"resources": resources, "schedule": types_pb2.Schedule(policy=TURNS)}
            await cluster.submit(name, {"train.py": program}, {"number": [0.0]}, **known)
            await cluster.finished(name)

        async def has_two() -> bool:
            return await width_of(cluster) == 2

        await submit_elastic(cluster, multi_worker(steps, 0.2), workers)
        await cluster.until(has_two)
        await trains_alone("short", SOLE)
        await cluster.until(has_two)
        (trial,) = (await cluster.finished("wide")).trials
        await trains_alone("plain", multi_worker(steps, 0.0))
        curves = [
            (await cluster.stub.GetCurve(control.GetCurveRequest(trial=name))).values
            for name in ("wide/1", "plain/1")
        ]
    assert trial.state == types_pb2.TRIAL_STATE_COMPLETED
    assert trial.resizes >= 3
    assert {each.devices for each in trial.widths} == {1, 2}
    assert len(curves[1]) == steps
    assert list(curves[0]) == pytest.approx(list(curves[1]), rel=0, abs=1e-5)
