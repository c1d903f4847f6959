"""Several processes of one trial: what each is told, the one step at which all stop, their end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.trainer_shim.driving import ROOT, Event, Trial, Zygote, ending, environment
from tests.trainer_shim.rank_programs import (
    ALL_REDUCE,
    DDP,
    DDP_IN_PARTS,
    DDP_OF_ANY_WIDTH,
    MIRRORED_FIT,
    MULTI_WORKER,
    MULTI_WORKER_OF_ANY_WIDTH,
    PARAMETER_SERVERS,
    SOCKETS,
)
from tests.trainer_shim.suspending import QUIET, warm_zygote
from trainer_shim.adapters.tensorflow.function import TracedPlan, check_batch
from trainer_shim.adapters.tensorflow.function_graph import Definition
from trainer_shim.host import ranks
from trainer_shim.host.freeze import WorkGroup
from trainer_shim.host.ranks import OtherRanks
from trainer_shim.saver import OtherProgram
from trainer_shim.spec import Spec

# PyTorch's processes are suspended 500 times in each tier, in rounds: `make test-ranks` goes on
# with those that are left.
ROUNDS, IN_A_ROUND = range(10), 50


def trial_of(folder: Path, width: int, program: str, *arguments: str, **fields: Any) -> Trial:
    """A trial of so many processes."""
    folder.parent.mkdir(exist_ok=True)
    script = folder.parent / "train.py"
    script.write_text(program)
    argv = [sys.executable, str(script), *arguments]
    return Trial(folder, argv, environment(**QUIET), ranks=[{}] * width, **fields)


def last_words(trial: Trial, width: int) -> list[str]:
    """What each process printed last."""
    outputs = [trial.output] + [
        (trial.directory / f"output.log.rank{rank}").read_text() for rank in range(1, width)
    ]
    return [output.splitlines()[-1] for output in outputs]


@pytest.fixture(scope="module")
def of_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """What has imported PyTorch, so that its trials start at once."""
    with warm_zygote(tmp_path_factory.mktemp("z"), "torch") as zygote:
        yield zygote


def undisturbed(
    folder: Path, width: int, steps: int, program: str = ALL_REDUCE, zygote: Zygote | None = None
) -> list[str]:
    with ending(trial_of(folder, width, program, str(steps), seed=1).launch(zygote)) as trial:
        trial.start()
        trial.until("completed")
        return last_words(trial, width)


def steps_begin(trial: Trial, least: int = 1) -> None:
    """Until a step is reported that is so far."""
    points: list[tuple[int, Any]] = []
    while not points or points[-1][0] < least:
        points = trial.until("reported")["points"]


def suspended(
    trial: Trial, tier: str, count: int, chance: random.Random, at_boundaries: bool = True
) -> int:
    """Start, then suspend and resume so often, at any moments; how often it was, before the
    program's end.

    It is started to hold at the fifth step by itself: by then DistributedDataParallel tells in what
    order it sums, which it does not at once.
    """
    trial.start(limit=5)
    assert trial.until("parked")["at_boundary"]
    trial.resume()
    trial.until("resumed")
    for done in range(count):
        time.sleep(chance.uniform(0.0, 0.01))
        trial.suspend(tier)
        event: Event = trial.until("parked", "suspended", "completed")
        if event["kind"] == "completed":
            return done
        if event["kind"] == "parked":
            assert event["at_boundary"] or not at_boundaries, event
            trial.resume()
            trial.until("resumed")
        else:
            assert event["tier"] == "checkpoint", event
            trial.start(event["checkpoint"]["path"])
            trial.until("started")
    trial.until("completed")
    return count


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize(
    ("tier", "steps", "count"),
    [
        ("park", 20_000, 20),
        ("checkpoint", 20_000, 2),
        pytest.param("park", 400_000, 500, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
        pytest.param(
            "checkpoint", 400_000, 500, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]
        ),
    ],
)
def test_all_stop_at_one_step_whenever_that_is_and_train_as_if_never_stopped(
    tmp_path: Path, width: int, tier: str, steps: int, count: int
) -> None:
    chance = random.Random(width)
    expected = undisturbed(tmp_path / "plain", width, steps)
    assert len({word.split()[1] for word in expected}) == 1
    with ending(trial_of(tmp_path / "cut", width, ALL_REDUCE, str(steps)).launch()) as trial:
        assert suspended(trial, tier, count, chance) == count
        assert last_words(trial, width) == expected
        losses = trial.losses()
    assert list(losses) == sorted(losses)


@pytest.mark.parametrize("tier", ["park", "checkpoint"])
def test_a_program_with_parameter_servers_of_its_own_comes_to_the_same(
    tmp_path: Path, tier: str
) -> None:
    """What it has started is frozen with it, and asked by it for what it saves."""
    steps = 2_000
    expected = undisturbed(tmp_path / "plain", 0, steps, PARAMETER_SERVERS)
    with ending(trial_of(tmp_path / "cut", 0, PARAMETER_SERVERS, str(steps)).launch()) as trial:
        assert suspended(trial, tier, 3, random.Random(0)) == 3
        assert last_words(trial, 1) == expected


def comes_to_the_same(
    program: str,
    folder: Path,
    zygote: Zygote,
    width: int,
    tier: str,
    epochs: int,
    count: int,
    turn: int = 0,
) -> None:
    """Suspended so often, as undisturbed. Between two passes DistributedDataParallel is in no loop,
    and is then frozen wherever it is."""
    expected = undisturbed(folder / "plain", width, epochs, program, zygote)
    trial = trial_of(folder / "cut", width, program, str(epochs), seed=1)
    with ending(trial.launch(zygote)) as trial:
        chance = random.Random(f"{width} {turn}")
        assert suspended(trial, tier, count, chance, at_boundaries=False) == count
        assert last_words(trial, width) == expected


@pytest.mark.torch
@pytest.mark.parametrize(
    ("turn", "width", "tier", "epochs", "count"),
    [
        pytest.param(0, 2, "park", 60, 10, marks=pytest.mark.timeout(300)),
        pytest.param(0, 3, "checkpoint", 60, 1, marks=pytest.mark.timeout(300)),
        *(
            pytest.param(
                turn,
                width,
                tier,
                epochs,
                IN_A_ROUND,
                marks=[pytest.mark.slow, pytest.mark.timeout(3600)],
            )
            for turn in ROUNDS
            for width in (2, 3)
            for tier, epochs in (("park", 800), ("checkpoint", 400))
        ),
    ],
)
def test_torchs_distributed_data_parallel_comes_to_the_same_weights(
    tmp_path: Path, of_torch: Zygote, turn: int, width: int, tier: str, epochs: int, count: int
) -> None:
    comes_to_the_same(DDP, tmp_path, of_torch, width, tier, epochs, count, turn)


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_several_of_them_begin_with_the_buckets_of_the_checkpoint(
    tmp_path: Path, of_torch: Zygote
) -> None:
    """Or three would sum their gradients in another order in the first step after it."""
    comes_to_the_same(DDP_IN_PARTS, tmp_path, of_torch, 3, "checkpoint", 60, 2)


def resized(trial: Trial, width: int, zygote: Zygote | None = None) -> None:
    """Suspend a trial by a checkpoint, and have so many processes go on from it."""
    steps_begin(trial)
    trial.suspend("checkpoint")
    saved = trial.until("suspended")["checkpoint"]["path"]
    trial.quit()
    spec = json.loads(trial.spec.read_text())
    trial.spec.write_text(json.dumps({**spec, "ranks": [{}] * width}))
    trial.launch(zygote)
    trial.start(saved)


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_torchs_distributed_data_parallel_differs_by_rounding_on_another_number_of_devices(
    tmp_path: Path,
) -> None:
    """The batch of a step is the same on one, on two and on three; its gradients are summed in
    another order."""
    epochs = 100  # after 600, fixed widths are apart by 0.005, too
    (plain,) = undisturbed(tmp_path / "plain", 1, epochs, DDP_OF_ANY_WIDTH)
    trial = trial_of(tmp_path / "cut", 2, DDP_OF_ANY_WIDTH, str(epochs), seed=1)
    with ending(trial.launch()) as trial:
        trial.start()
        for width in (1, 2, 3):
            resized(trial, width)
        trial.until("completed")
        found = last_words(trial, 3)
        steps = list(trial.losses())
        known = [each["framework"] for each in trial.events if each["kind"] == "fidelity"]
    assert len(set(found)) == 1, "each has the same weights"
    weights, expected = (list(map(float, each.split())) for each in (found[0], plain))
    assert weights == pytest.approx(expected, rel=0, abs=1e-5)
    assert steps == list(range(1, 4 * epochs + 1))
    assert known[-1].startswith("torch-ddp ")


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_tensorflows_multi_worker_strategy_comes_to_the_same_weights(
    zygote: Zygote, tmp_path: Path
) -> None:
    expected = undisturbed(tmp_path / "plain", 2, 1000, MULTI_WORKER, zygote)
    assert len({word.split()[1] for word in expected}) == 1
    trial = trial_of(tmp_path / "cut", 2, MULTI_WORKER, "1000", seed=1)
    with ending(trial.launch(zygote)) as trial:
        assert suspended(trial, "checkpoint", 1, random.Random(2)) == 1
        assert last_words(trial, 2) == expected


@pytest.mark.tensorflow
@pytest.mark.in_depth
@pytest.mark.timeout(300)
def test_tensorflows_multi_worker_strategy_differs_by_rounding_on_another_number_of_devices(
    zygote: Zygote, tmp_path: Path
) -> None:
    """An unchanged program, whose batches TensorFlow divides among however many there are."""
    steps = 400
    (plain,) = undisturbed(tmp_path / "plain", 1, steps, MULTI_WORKER_OF_ANY_WIDTH, zygote)
    trial = trial_of(tmp_path / "cut", 2, MULTI_WORKER_OF_ANY_WIDTH, str(steps), seed=1)
    with ending(trial.launch(zygote)) as trial:
        trial.start()
        for width in (1, 2, 3):
            resized(trial, width, zygote)
        trial.until("completed")
        found = last_words(trial, 3)
        done = list(trial.losses())
        known = [each["framework"] for each in trial.events if each["kind"] == "fidelity"]
    assert len(set(found)) == 1, "each has the same weights"
    weights, expected = (list(map(float, each.split())) for each in (found[0], plain))
    assert weights == pytest.approx(expected, rel=0, abs=1e-5)
    assert done == list(range(1, steps + 1))
    assert known[-1].startswith("tensorflow-multiworker ")


class Tensor:
    def __init__(self, *shape: int) -> None:
        self._shape = shape

    def _shape_tuple(self) -> tuple[int, ...]:
        return self._shape


@pytest.mark.parametrize(
    ("inputs", "part"),
    [
        ([Tensor(12, 8), Tensor(12, 1)], 12),
        ([Tensor(), Tensor(12, 8), Tensor(12, 1)], 12),  # the step's number
        ([Tensor(10), Tensor(12, 8), Tensor(12, 1)], 0),  # weights of classes
        ([Tensor()], 0),
        ([], 0),
    ],
)
def test_the_batch_of_a_step_is_what_all_its_arrays_have_in_common(
    inputs: list[Tensor], part: int
) -> None:
    captured = [Tensor(), Tensor(96, 8)]  # an iterator or a variable, and all of the data
    definition = Definition(resources=[len(inputs)])
    plan = TracedPlan(b"__inference_step_1", definition, {}, len(inputs), None)
    assert plan.part([*inputs, *captured]) == part
    plan = TracedPlan(b"__inference_step_1", definition, {}, None, None)
    assert plan.part([*inputs, Tensor(7)]) == part, "nor is an iterator's handle an array"


@pytest.mark.parametrize(("now", "is_same"), [((8, 3), True), ((8, 4), False), ((8, 1), False)])
def test_a_batch_is_the_same_or_another_and_nothing_between(
    now: tuple[int, int], is_same: bool
) -> None:
    with nullcontext() if is_same else pytest.raises(OtherProgram):
        check_batch((2, 12), now)
    with pytest.raises(OtherProgram):
        check_batch((1, 1), (8, 1))
    with pytest.raises(OtherProgram, match="of 0 in 8"):
        check_batch((1, 0), (8, 0))


@pytest.mark.tensorflow
@pytest.mark.in_depth
@pytest.mark.timeout(300)
def test_a_step_whose_batch_cannot_be_told_is_not_of_any_number_of_devices(
    zygote: Zygote, tmp_path: Path
) -> None:
    weighted = MULTI_WORKER.replace("train_step(a, b)", "train_step(classes, a, b)")
    weighted = weighted.replace("train_step(tf.", "train_step(tf.ones(10), tf.")
    trial = trial_of(tmp_path / "t", 2, weighted, "40", seed=1)
    with ending(trial.launch(zygote)) as trial:
        trial.start()
        resized(trial, 2, zygote)
        trial.until("completed")
        known = [each["framework"] for each in trial.events if each["kind"] == "fidelity"]
    assert known
    assert not [each for each in known if each.startswith("tensorflow-multiworker")]


@pytest.mark.tensorflow
@pytest.mark.in_depth
@pytest.mark.timeout(300)
def test_a_batch_that_is_not_divided_is_told_when_the_number_of_devices_changes(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Each of two processes has twelve examples a step, and so has the only one."""
    trial = trial_of(tmp_path / "t", 2, MULTI_WORKER, "1000000", seed=1)
    with ending(trial.launch(zygote)) as trial:
        trial.start()
        resized(trial, 1, zygote)
        with pytest.raises(AssertionError):
            trial.until("completed")
        failed = trial.events[-1]
    assert failed["error_kind"] == "restore"
    told = "a batch of 12 in 1 processes, it was 24 in 2: divide the batch by WORLD_SIZE"
    assert told in failed["detail"]


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_keras_fit_of_one_process_with_several_devices_parks_and_says_why_it_only_does(
    zygote: Zygote, tmp_path: Path
) -> None:
    expected = undisturbed(tmp_path / "plain", 1, 10, MIRRORED_FIT, zygote)
    trial = trial_of(tmp_path / "cut", 0, MIRRORED_FIT, "10", seed=1)
    with ending(trial.launch(zygote)) as trial:
        assert suspended(trial, "park", 3, random.Random(1)) == 3
        assert last_words(trial, 1) == expected
        (*_, known) = (each for each in trial.events if each["kind"] == "fidelity")
        assert known["level"] == "park-only"
        assert known["reason"] == "training under a tf.distribute strategy"


def test_a_checkpoint_while_they_train_has_all_of_them_at_one_step(tmp_path: Path) -> None:
    with ending(trial_of(tmp_path / "t", 2, ALL_REDUCE, "1000000").launch()) as trial:
        trial.start()
        steps_begin(trial)
        trial.send("checkpoint", id="one")
        saved = Path(trial.until("checkpointed")["path"])
        manifests = [saved / "manifest.json", saved / "rank-1" / "manifest.json"]
        steps = {json.loads(path.read_text())["step"] for path in manifests}
        assert len(steps) == 1
        trial.suspend("park")
        assert trial.until("parked")["step"] > steps.pop()


def test_a_parked_trial_is_written_down_and_goes_on_from_there(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "plain", 2, 20_000)
    with ending(trial_of(tmp_path / "t", 2, ALL_REDUCE, "20000").launch()) as trial:
        trial.start()
        steps_begin(trial)
        trial.suspend("park")
        trial.until("parked")
        trial.send("demote", id="down", deadline_seconds=60)
        saved = trial.until("suspended")["checkpoint"]["path"]
        trial.start(saved)
        trial.until("completed")
        assert last_words(trial, 2) == expected


def test_all_hold_by_themselves_at_the_step_that_ends_their_quantum(tmp_path: Path) -> None:
    with ending(trial_of(tmp_path / "t", 3, ALL_REDUCE, "5000").launch()) as trial:
        trial.start(limit=1000)
        parked = trial.until("parked")
        assert (parked["step"], parked["at_boundary"]) == (1000, True)
        trial.resume(limit=2000)
        assert trial.until("parked")["step"] == 2000
        trial.resume()
        trial.until("completed")


TELLS = """
import json, os
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "TF_CONFIG", "CUDA_VISIBLE_DEVICES", "ROLE_RANK", "TORCHELASTIC_RUN_ID"]
print(json.dumps({name: os.environ.get(name) for name in names}), flush=True)
"""


def test_each_is_told_its_place_among_them_as_torchrun_and_tensorflow_do(tmp_path: Path) -> None:
    trial = trial_of(tmp_path / "t", 2, TELLS)
    spec = json.loads(trial.spec.read_text())
    spec["ranks"] = [{"CUDA_VISIBLE_DEVICES": "GPU-a"}, {"CUDA_VISIBLE_DEVICES": "GPU-b"}]
    trial.spec.write_text(json.dumps(spec))
    with ending(trial.launch()) as trial:
        trial.start()
        trial.until("completed")
        told = [json.loads(word) for word in last_words(trial, 2)]
    assert [each["RANK"] for each in told] == [each["LOCAL_RANK"] for each in told] == ["0", "1"]
    assert {each["WORLD_SIZE"] for each in told} == {each["LOCAL_WORLD_SIZE"] for each in told}
    assert [each["CUDA_VISIBLE_DEVICES"] for each in told] == ["GPU-a", "GPU-b"]
    assert [each["ROLE_RANK"] for each in told] == ["0", "1"]
    assert {each["TORCHELASTIC_RUN_ID"] for each in told} == {"hermes"}
    address = {f"{each['MASTER_ADDR']}:{each['MASTER_PORT']}" for each in told}
    clusters = [json.loads(each["TF_CONFIG"]) for each in told]
    assert {cluster["cluster"]["worker"][0] for cluster in clusters} == address
    assert [cluster["task"] for cluster in clusters] == [
        {"type": "worker", "index": 0}, {"type": "worker", "index": 1},
    ]  # fmt: skip


def test_a_program_of_one_process_is_told_nothing_of_the_kind(tmp_path: Path) -> None:
    with ending(trial_of(tmp_path / "t", 0, TELLS).launch()) as trial:
        trial.start()
        trial.until("completed")
        assert set(json.loads(trial.output).values()) == {None}


def ranks_of(folder: Path, width: int) -> OtherRanks:
    """Nothing has been started of them yet."""
    spec = Spec.load(str(trial_of(folder, width, TELLS).spec))
    return OtherRanks(spec, WorkGroup(os.getpid(), None))


def ports_of(trial: OtherRanks) -> list[int]:
    """Those that a trial takes for its processes."""
    told = json.loads(trial.environments(are_imaged=False)[0]["TF_CONFIG"])
    return [int(each.rpartition(":")[2]) for each in told["cluster"]["worker"]]


def given_by_the_kernel(folder: Path, patch: pytest.MonkeyPatch, ports: str) -> None:
    """To those who want any port; nothing where a container does not say it."""
    said = folder / "ip_local_port_range"
    if ports:
        said.write_text(ports)
    patch.setattr(ranks, "_PORT_RANGE", str(said))


@pytest.mark.parametrize(
    ("given", "never"),
    [
        ("32768\t60999\n", range(32_768, 61_000)),
        ("", range(32_768, 61_000)),
        ("20003 65535", range(20_003, 42_769)),
        ("15000 65535", range(40_268)),
        ("1024 65535", range(33_280)),
    ],
)
def test_nobody_who_wants_any_port_is_given_one_of_theirs_nor_another_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, never: range
) -> None:
    """They take them only when they have imported what they need. Where the kernel gives them all,
    theirs are of the upper half."""
    given_by_the_kernel(tmp_path, monkeypatch, given)
    monkeypatch.setattr(os, "urandom", bytes)  # the same at each draw
    trials = [ranks_of(tmp_path / name, 2) for name in ("a", "b")]
    chosen = [port for trial in trials for port in ports_of(trial)]
    for trial in trials:
        trial.leave()
    assert len(set(chosen)) == 4
    assert set(chosen).isdisjoint(never)


@pytest.mark.parametrize("given", ["32768 60999", "15000 65535", "1024 65535"])
def test_ports_are_drawn_at_random_for_those_who_see_no_locks_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    given_by_the_kernel(tmp_path, monkeypatch, given)
    trial = ranks_of(tmp_path / "t", 2)
    chosen = []
    for drawn in range(4):
        monkeypatch.setattr(os, "urandom", lambda size, n=drawn: (n * 2000).to_bytes(size, "big"))
        chosen += ports_of(trial)
    trial.leave()
    assert len(set(chosen)) == 8


def test_where_too_few_ports_are_free_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_by_the_kernel(tmp_path, monkeypatch, "65535 65535")
    monkeypatch.setattr(ranks, "_PORTS", (65_535, 65_535))
    with pytest.raises(OSError, match="a trial of 2 processes needs as many ports"):
        ports_of(ranks_of(tmp_path / "t", 2))


def test_no_other_trial_takes_the_ports_of_one_that_is_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)  # the same at each draw
    before, back, other = (ranks_of(tmp_path / name, 2) for name in ("a", "b", "c"))
    theirs = ports_of(before)
    said = json.loads(json.dumps(before.state()))
    before.leave()
    back.expect(said, {}, str(tmp_path / "image"), None)
    assert set(theirs).isdisjoint(ports_of(other))
    assert back.state()["ports"] == theirs
    back.release()
    other.leave()


FAILS = ALL_REDUCE.replace(
    "    trial.report(step", "    if step == 2000 and rank == 1:\n        {}\n    trial.report(step"
)


@pytest.mark.parametrize(
    ("end", "kind", "detail"),
    [
        ("raise ValueError('shape')", "exception", "ValueError: shape"),
        ("os._exit(3)", "exit", "exit status 3"),
        ("os.kill(os.getpid(), 9)", "killed", "killed by SIGKILL"),
    ],
)
def test_one_that_fails_ends_the_others_and_its_error_is_the_trials(
    tmp_path: Path, end: str, kind: str, detail: str
) -> None:
    program = FAILS.replace("{}", end)
    with ending(trial_of(tmp_path / "t", 3, program, "100000").launch()) as trial:
        trial.start()
        with pytest.raises(AssertionError):
            trial.until("completed")
        failed = trial.events[-1]
        assert (failed["error_kind"], failed["rank"]) == (kind, 1)
        assert failed["detail"].startswith("rank 1: ")
        assert detail in failed["detail"]


def test_the_first_that_fails_ends_the_others(tmp_path: Path) -> None:
    program = FAILS.replace("rank == 1", "rank == 0").replace("{}", "raise ValueError('shape')")
    with ending(trial_of(tmp_path / "t", 3, program, "100000").launch()) as trial:
        trial.start()
        with pytest.raises(AssertionError):
            trial.until("completed")
        failed = trial.events[-1]
        assert failed["error_kind"] == "exception"
        assert "ValueError: shape" in failed["detail"]
        assert "rank" not in failed


def test_the_trial_is_over_when_the_last_of_them_is(tmp_path: Path) -> None:
    program = "import os, time\ntime.sleep(int(os.environ['RANK']))\nprint('over', flush=True)\n"
    with ending(trial_of(tmp_path / "t", 2, program).launch()) as trial:
        trial.start()
        trial.until("completed")
        assert last_words(trial, 2) == ["over", "over"]


def hosted_by(trial: Trial, code: str) -> Trial:
    """Its host runs this first."""
    program = f"import sys\n{code}\n__main__.main(sys.argv[1:])"
    command = [sys.executable, "-c", program, str(trial.spec)]
    itself = {**os.environ, "PYTHONHASHSEED": "0"}  # else it starts once more, without the code
    trial.process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, env=itself)
    trial.attach()
    return trial


IMPATIENT = """
from trainer_shim.host import __main__, run
run.LOOK_SECONDS, run._EXIT_IDLE_SECONDS = 0.2, 2.0
"""
LAST = """
import os, time
if os.environ["RANK"] == "1":
    until = time.monotonic() + 4.0
    while time.monotonic() < until: print("writes", flush=True)
    print("over", flush=True)
    {}
print("over", flush=True)
"""


def test_those_that_still_do_something_may_end_after_the_first_those_that_hang_not(
    tmp_path: Path,
) -> None:
    for then in ("pass", "time.sleep(1e6)"):
        trial = trial_of(tmp_path / then, 2, LAST.replace("{}", then))
        with ending(hosted_by(trial, IMPATIENT)) as trial:
            trial.start()
            trial.until("completed")
            assert last_words(trial, 2) == ["over", "over"]


# They miss who has gone, but a bit later; those that are killed have died of that by then.
_SUM = "all_reduce(mine.random() - weight)"
MISSES = SOCKETS + ALL_REDUCE.removeprefix(SOCKETS).replace(_SUM, "awaited(mine.random() - weight)")
MISSES = MISSES.replace(
    "def save",
    """def awaited(value):
    try:
        return all_reduce(value)
    except OSError:
        time.sleep(0.2)
        raise

def save""",
)
LATE = """
from trainer_shim.host import __main__
from trainer_shim.host.freeze import WorkGroup
from tests.waiting import until
kill = WorkGroup.kill
def late(group):
    until(lambda: not group.members())
    kill(group)
WorkGroup.kill = late
"""


def test_what_others_say_as_the_first_is_killed_comes_of_that(tmp_path: Path) -> None:
    trial = trial_of(tmp_path / "t", 3, MISSES, "1000000")
    with ending(hosted_by(trial, LATE)) as trial:
        trial.start()
        os.kill(trial.until("started")["worker_pid"], signal.SIGKILL)
        with pytest.raises(AssertionError):
            trial.until("completed")
        failed = trial.events[-1]
        assert failed["detail"] == "killed by SIGKILL"
        assert "rank" not in failed


def test_one_that_fails_as_the_first_is_done_fails_the_trial(tmp_path: Path) -> None:
    program = "import os\nos._exit(3 * int(os.environ['RANK']))\n"
    for turn in range(3):
        with ending(trial_of(tmp_path / f"{turn}", 2, program).launch()) as trial:
            trial.start()
            with pytest.raises(AssertionError):
                trial.until("completed")
            assert trial.events[-1]["rank"] == 1


def test_a_hung_program_is_told_of_as_hung(tmp_path: Path) -> None:
    # The first is the last to be gone.
    program = (
        "import os, time\nkept = b'-' * ((os.environ['RANK'] == '0') << 28)\ntime.sleep(1e6)\n"
    )
    trial = trial_of(tmp_path / "t", 3, program, hung_seconds=1.0)
    with ending(hosted_by(trial, f"{IMPATIENT}\nrun._QUIET_START_SECONDS = 0.1")) as trial:
        trial.start()
        with pytest.raises(AssertionError):
            trial.until("completed")
        failed = trial.events[-1]
        assert failed["error_kind"] == "hung"
        assert "rank" not in failed
