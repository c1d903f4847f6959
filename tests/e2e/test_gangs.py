"""Trials of two devices beside trials of one, with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import grpc.aio
import pytest

from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, running
from tests.trainer_shim.rank_programs import ALL_REDUCE

STEPS = 150
FAR = 1_000_000  # by what is left, a move pays however slow the machine is
SOLE = """
import time
import trainer_shim
trial = trainer_shim.attach()
for step in range(1, 200):
    time.sleep(0.005)
    trial.report(step, loss=1.0 / step)
"""
TURNS = types_pb2.Plugin(name="round_robin")
TURNS.settings.add(name="quantum_seconds", value=types_pb2.Value(double_value=0.5))


def paired(log: Path) -> str:
    """The program with its steps, and each process's cores in a log."""
    program = ALL_REDUCE.replace("int(sys.argv[1])", str(STEPS))
    notes = f"    with open({str(log)!r}, 'a') as log:\n"
    notes += "        log.write(f'{step} {rank} {sorted(os.sched_getaffinity(0))}\\n')\n"
    slow = "    import time; time.sleep(0.01)\n"
    return program.replace("    trial.report(step", f"{slow}{notes}    trial.report(step")


async def submit(
    cluster: Cluster, name: str, text: str, trials: int, devices: int, **spec: object
) -> str:
    numbers = [float(number) for number in range(trials)]
    return await cluster.submit(
        name,
        {"train.py": text},
        {"number": numbers},
        resources=types_pb2.Resources(devices=devices),
        schedule=types_pb2.Schedule(policy=TURNS),
        **spec,
    )


@pytest.mark.timeout(180)
async def test_trials_of_two_devices_take_turns_with_others_and_train_as_if_alone(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with running(tmp_path_factory.mktemp("g"), slots=2) as cluster:
        await submit(cluster, "pairs", paired(log), 2, 2)
        await submit(cluster, "singles", SOLE, 3, 1)
        ended = [*(await cluster.finished("pairs")).trials]
        ended += (await cluster.finished("singles")).trials
        assert {trial.state for trial in ended} == {types_pb2.TRIAL_STATE_COMPLETED}
        pairs = [trial for trial in ended if trial.id.startswith("pairs/")]
        assert len({trial.metric for trial in pairs}) == 1, "both compute the same"
        assert sum(trial.preemptions for trial in pairs), "none was ever suspended"
        for rank in (0, 1):  # each prints its rank and its last weight
            call = cluster.stub.TailLogs(control.TailLogsRequest(trial=pairs[0].id, rank=rank))
            printed = b"".join([piece.data async for piece in call])
            assert printed.startswith(b"%d " % rank)
    lines = [line.split(maxsplit=2) for line in log.read_text().splitlines()]
    for step in range(1, STEPS + 1):
        places = {rank: cores for at, rank, cores in lines if at == str(step)}
        assert len(places) == 2
    assert len(lines) == 2 * 2 * STEPS, "a step was lost, or done again"


def on_devices(where: Path) -> str:
    """The program, far from its end. It reads in a file which trials are on a slow device: there
    each of its steps takes 0.5 s instead of 0.02, and each of its checkpoints a second more."""
    program = ALL_REDUCE.replace("int(sys.argv[1])", str(FAR))
    seen = f"    import time\n    with open({str(where)!r}) as file:\n"
    seen += "        is_slow = os.environ['HERMES_TRIAL'] in json.load(file)\n"
    seen += "    time.sleep(0.5 if is_slow else 0.02)\n"
    program = program.replace("def save(folder):", "def save(folder):\n    time.sleep(is_slow)")
    return program.replace("    trial.report(step", f"{seen}    trial.report(step")


@pytest.mark.timeout(180)
async def test_a_trial_on_a_slow_device_goes_on_on_others_and_why_says_so(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Of eight devices the fifth is slow, whoever has it; the other trials stay where they are."""
    where = tmp_path / "slow"
    where.write_text("[]")
    async with running(tmp_path_factory.mktemp("g"), slots=8) as cluster:
        far = types_pb2.Stop(max_steps=FAR)
        await submit(cluster, "pairs", on_devices(where), 3, 2, stop=far)
        places: dict[str, list[str]] = {}  # those that each trial has had
        said: dict[str, None] = {}  # what `why` told of the one that has moved

        async def has_moved() -> bool:
            trials = {trial.id: trial for trial in (await cluster.study("pairs")).trials}
            on_it = [name for name, trial in trials.items() if "local/cpu4" in trial.device]
            partial = where.with_suffix(".new")
            partial.write_text(json.dumps(on_it))
            partial.rename(where)
            for name, trial in trials.items():
                if trial.device and trial.device not in places.setdefault(name, []):
                    places[name].append(trial.device)
            for name in on_it:
                request = control.ExplainTrialRequest(trial=name)
                said[(await cluster.stub.ExplainTrial(request)).last_decision] = None
            return any(len(had) > 1 for had in places.values())

        await cluster.until(has_moved)
        then = {trial.id: trial.step for trial in (await cluster.study("pairs")).trials}

        async def are_ahead() -> bool:
            trials = (await cluster.study("pairs")).trials
            return all(trial.step > then[trial.id] + 50 for trial in trials)

        await cluster.until(are_ahead)
    slow, *others = sorted(places.values(), key=lambda had: "local/cpu4" not in had[0])
    assert slow == ["local/cpu4, local/cpu5", "local/cpu6, local/cpu7"]
    assert others == [["local/cpu0, local/cpu1"], ["local/cpu2, local/cpu3"]]
    told = "it continues on other devices: on these it is"
    assert any(told in each and "as fast as is usual, to save" in each for each in said)


@pytest.mark.timeout(60)
async def test_more_devices_than_any_node_has_are_refused_and_the_widest_node_is_named(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with running(tmp_path_factory.mktemp("g"), slots=2) as cluster:

        async def attached() -> bool:
            answer = await cluster.stub.ListNodes(control.ListNodesRequest())
            return bool(answer.nodes)

        await cluster.until(attached)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await submit(cluster, "wide", SOLE, 1, 3)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "resources.devices" in str(refused.value.trailing_metadata()) + str(
            refused.value.details()
        )
