"""`share: tree` with trials of two processes each: what they have in common is trained once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, running
from tests.trainer_shim.rank_programs import ALL_REDUCE

END, FIRST, SECOND = 30, 10, 20
# The rate falls at 10 and at 20 by one factor or the other.
GRID = {
    "start": {"value": 0.01},
    "one": {"values": [0.5, 0.1]},
    "other": {"values": [0.05, 0.025]},
    "rate": {"sequence": {"values": ["start", "one", "other"], "at": [FIRST, SECOND]}},
}
UNIQUE = FIRST + 2 * (SECOND - FIRST) + 4 * (END - SECOND)


def program(log: Path, saving_seconds: float) -> str:
    """Two processes, which sum what each has drawn; each notes its steps."""
    text = ALL_REDUCE.replace("int(sys.argv[1])", str(END))
    text = text.replace("1e-3 * all", "trial.params['rate'] * all")
    text = text.replace("def save(folder):", f"def save(folder):\n    time.sleep({saving_seconds})")
    notes = f"    time.sleep(0.02)\n    with open({str(log)!r}, 'a') as log:\n"
    notes += "        log.write(f\"{os.environ['HERMES_TRIAL']} {step} {rank}\\n\")\n"
    return text.replace("    trial.report(step", f"{notes}    trial.report(step")


def reached(*rates: float) -> float:
    """The weight of a trial with these rates, by itself."""
    weight, drawn = 1.0, [random.Random(0), random.Random(1)]
    for step in range(END):
        mine, other = (each.random() - weight for each in drawn)
        weight += rates[(step >= FIRST) + (step >= SECOND)] * (mine + other)
    return weight


def trained(log: Path) -> Counter[tuple[str, int]]:
    """How often the first process of each trial has done each step."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return Counter((trial, int(step)) for trial, step, rank in lines if rank == "0")


async def submit(cluster: Cluster, log: Path, saving_seconds: float = 0.0) -> None:
    text = program(log, saving_seconds)
    two = types_pb2.Resources(devices=2)
    often = types_pb2.Suspend(durability_seconds=1.0)
    tree = types_pb2.SHARE_TREE
    await cluster.submit("s", {"train.py": text}, GRID, suspend=often, share=tree, resources=two)


async def all_as_alone(cluster: Cluster) -> None:
    await cluster.finished("s")
    for trial in (await cluster.study("s")).trials:
        values = {each.name: each.value.double_value for each in trial.parameters}
        assert trial.step == END
        assert trial.metric == reached(0.01, values["one"], values["other"]), trial.id


@pytest.mark.timeout(180)
async def test_each_stage_is_trained_once_by_both_and_comes_to_what_each_trial_comes_to_alone(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with running(tmp_path_factory.mktemp("h"), slots=2) as cluster:
        await submit(cluster, log)
        for least in (FIRST // 2, FIRST + 5, 2 * SECOND):
            await cluster.until(lambda least=least: sum(trained(log).values()) > least)
            cluster.kill(cluster.pids("node"))
            cluster.kill(cluster.pids("head"))
        await all_as_alone(cluster)
        done = trained(log)
        assert (sum(done.values()), set(done.values())) == (UNIQUE, {1})
        study = (await cluster.study("s")).study
        assert (study.trained_steps, study.steps) == (UNIQUE, 4 * END)


@pytest.mark.timeout(180)
async def test_hosts_that_are_killed_amid_a_checkpoint_where_trials_part_cost_no_more_than_that(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    log, folder = tmp_path / "log", tmp_path_factory.mktemp("h")
    async with running(folder, slots=2) as cluster:
        await submit(cluster, log, saving_seconds=0.3)
        await cluster.until(lambda: any(folder.glob(f"**/*-fork-s{FIRST}.partial")))
        cluster.kill(cluster.pids("host"))
        await all_as_alone(cluster)
        again = {step for (_, step), times in trained(log).items() if times > 1}
        assert again <= set(range(1, FIRST + 1))
