"""The resume certificate: equal, or where two runs part and why; nothing of it is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from hermesctl.commands import verify
from hermesd.core.model import Processes, Study
from hermesd.node.machine import processes
from hermesd.node.machine.environment import OWNER
from hermesd.node.machine.images import ProcessImages
from hermesd.node.runner.host_link import HostLink
from hermesd.verify import __main__ as engine
from hermesd.verify.arm import Arm, ArmFailed, Bench
from hermesd.verify.comparison import TrialOutput, first_difference, first_shown, shown, state_of
from tests.forked import Forked
from tests.images.driving import criu
from tests.trainer_shim.test_device_memory import USES, driver_in
from tests.waiting import until

# Its state has two parts; `{saved}` is what a checkpoint keeps, `{noise}` what else a step adds.
# What `{saved}` lacks is lost where a resume, or another trial, goes on.
PROGRAM = """
import json, os, pathlib
import trainer_shim
trial = trainer_shim.attach()
state, momentum, step = 1.0, 0.0, 0
if trial.resume:
    saved = json.loads((pathlib.Path(trial.resume.path) / "state").read_text())
    state, step = saved[0], saved[-1]
    momentum = saved[1] if len(saved) == 3 else 0.0
def save(folder):
    (pathlib.Path(folder) / "state").write_text(json.dumps({saved}))
while step < {steps}:
    momentum = 0.5 * momentum + {rate} * state
    state, step = state - momentum + {noise}, step + 1
    trial.report(step, loss=state, save={save})
"""
# One GPU.
PYNVML = """
from types import SimpleNamespace
nvmlInit = nvmlDeviceGetHandleByIndex = lambda *arguments: None
nvmlDeviceGetCount, nvmlDeviceGetUUID = lambda: 1, lambda gpu: "GPU-1"
nvmlDeviceGetName, nvmlSystemGetDriverVersion = lambda gpu: "a test's", lambda: "570"
nvmlDeviceGetMemoryInfo = lambda gpu: SimpleNamespace(total=1 << 30, used=0)
"""
WHOLE, FORGETFUL = "[state, momentum, step]", "[state, step]"
NOISE = "int.from_bytes(os.urandom(2), 'big') / 1e6"


@pytest.fixture(autouse=True)
def _makes_no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """But where a test names a CRIU itself: with one that this machine happens to have any program
    is exact."""
    monkeypatch.setenv("HERMES_NODE_CRIU", "off")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study file beside a program that tests write."""
    path = tmp_path / "study" / "study.yaml"
    path.parent.mkdir()
    path.write_text("program: train.py\nmethod: grid\nparameters:\n  lr: {values: [0.1, 0.2]}\n")
    return path


def program(
    study: Path,
    *,
    saved: str = WHOLE,
    noise: str = "0.0",
    steps: int = 12,
    save: str = "save",
    rate: str = "0.1",
) -> None:
    (study.parent / "train.py").write_text(
        PROGRAM.replace("{saved}", saved)
        .replace("{rate}", rate)
        .replace("{noise}", noise)
        .replace("{steps}", str(steps))
        .replace("{save}", save)
    )


def hermesctl(study: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["hermesctl", "verify-resume", str(study), *words]
    run = Forked(*command, environment={**os.environ, "COLUMNS": "200"})
    return subprocess.CompletedProcess(command, *run.communicate())


def certificate(study: Path, *words: str, code: int = 0) -> dict[str, Any]:
    run = hermesctl(study, "-o", "json", *words)
    assert run.returncode == code, run.stdout + run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_an_exact_resume_is_certified(study: Path) -> None:
    program(study)
    found = certificate(study, "--steps", "4", "--suspend-at", "1,2,5,8")
    assert found["identical"]
    assert [one["differ"] for one in found["tiers"]] == [False, False]
    assert (found["steps"], found["fidelity"]) == (8, "author")
    assert [one["tier"] for one in found["tiers"]] == ["park", "checkpoint"]
    for tier in found["tiers"]:
        assert (tier["verdict"], tier["values"], tier["files"]) == ("equal", 8, 1)
        assert tier["boundaries"] == [1, 2, 5, 8]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc here")
def test_what_a_program_has_on_its_gpu_is_moved_away_as_on_a_node(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = driver_in(study.parent.parent, monkeypatch)
    (gpu.folder / "pynvml.py").write_text(PYNVML)
    monkeypatch.setenv("PYTHONPATH", str(gpu.folder))
    program(study)
    path = study.parent / "train.py"
    path.write_text(USES + path.read_text())
    found = certificate(study, "--steps", "4", "--suspend-at", "1,5")
    assert [(one["verdict"], one["files"]) for one in found["tiers"]] == [("equal", 1)] * 2
    away, back = ["lock", "checkpoint"], ["restore", "unlock"]
    runs = 1 + 2 + 3 + 3  # it is tried out, and each held at its last step
    assert gpu.calls() == (away + back) * runs


@pytest.mark.parametrize(
    ("named", "devices", "processes", "seen", "ranks"),
    [
        (None, 2, None, "GPU-0,GPU-1", [None, None]),
        ("2,0", 2, Processes.RANKS, "GPU-2,GPU-0", [None, None]),
        (None, 2, Processes.WORKERS, "GPU-0,GPU-1", ["GPU-0", "GPU-1"]),
        (None, 3, Processes.ONE, "GPU-0,GPU-1,GPU-2", []),
        # Fewer than it has on a node: it sees what it sees by hand.
        (None, 4, None, None, [None] * 4),
        ("1", 2, Processes.WORKERS, None, [None, None]),
    ],
)
async def test_a_trial_of_several_devices_has_as_many_gpus(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    named: str | None,
    devices: int,
    processes: Processes | None,
    seen: str | None,
    ranks: list[str | None],
) -> None:
    """Three there are."""
    pynvml = ModuleType("pynvml")
    exec(PYNVML, vars(pynvml))
    vars(pynvml).update(
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda gpu: f"GPU-{gpu}",
    )
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    _, rack = await engine._gpus(devices, tmp_path, tmp_path, ProcessImages("", "none here"))
    there = list(rack.devices)
    assert rack.environment(there).get("CUDA_VISIBLE_DEVICES") == seen
    assert not there or not rack.parks(there)
    study = cast(Study, SimpleNamespace(devices=devices, processes=processes))
    found = [each.get("CUDA_VISIBLE_DEVICES") for each in engine._ranks(study, rack)]
    assert found == ranks


def test_a_program_that_ends_by_itself_is_compared_to_its_end(study: Path) -> None:
    program(study, steps=7)
    found = certificate(study)
    assert (found["identical"], found["steps"]) == (True, 7)
    assert found["tiers"][1]["boundaries"] == [1, 4, 6]
    table = hermesctl(study, "--trial", "2", "--steps", "2")
    assert "study.yaml, trial 2: lr=0.2" in table.stdout
    assert "checkpoint  equal    1, 2, 3" in table.stdout


def test_another_value_in_a_file_with_times_is_found(study: Path) -> None:
    """What a resumed program wrote otherwise, though nothing that it reports tells of it."""
    program(study, steps=6)
    path = study.parent / "train.py"
    path.write_text(
        path.read_text()
        + "import pickle, time\n"
        + "told = {'at': time.time(), 'resumed': trial.resume is not None, 'w': state}\n"
        + "pickle.dump(told, open('last.pkl', 'wb'))\n"
    )
    park, checkpoint = certificate(study, code=1)["tiers"]
    assert (park["verdict"], checkpoint["verdict"]) == ("equal", "differs")
    assert checkpoint["first_difference"]["name"] == "file last.pkl, key resumed"


def test_when_a_program_saved_its_state_is_no_part_of_it(study: Path) -> None:
    program(study, steps=6)
    path = study.parent / "train.py"
    saved = '(pathlib.Path(folder) / "more.json").write_text(json.dumps({"time": time.time()}))'
    text = path.read_text().replace("while step", f"    {saved}\nwhile step", 1)
    path.write_text(f"import time\n{text}")
    found = certificate(study)
    assert [(one["verdict"], one["files"]) for one in found["tiers"]] == [("equal", 2)] * 2


def test_where_a_forgetful_resume_parts_is_shown_with_both_values(study: Path) -> None:
    program(study, saved=FORGETFUL)
    found = certificate(study, "--steps", "4", "--suspend-at", "3", code=1)
    park, checkpoint = found["tiers"]
    assert (park["verdict"], checkpoint["verdict"]) == ("equal", "differs")
    assert (park["differ"], checkpoint["differ"]) == (False, True)
    assert not found["identical"]
    difference = checkpoint["first_difference"]
    assert (difference["step"], difference["name"]) == (4, "loss")
    state, momentum = 1.0, 0.0
    for _ in range(3):
        momentum = 0.5 * momentum + 0.1 * state
        state -= momentum
    assert float(difference["before"]) == state - (0.5 * momentum + 0.1 * state)
    assert float(difference["after"]) == state - 0.1 * state
    assert checkpoint["why"] == "author: the program saves and restores itself"
    table = hermesctl(study, "--steps", "4", "--suspend-at", "3")
    assert table.returncode == 1
    parts = f"step 4: loss: {difference['before']} undisturbed, {difference['after']} suspended"
    assert parts in table.stdout


def test_what_a_resume_prints_otherwise_is_a_difference(study: Path) -> None:
    """Every value agrees, and what the program remembers of its beginning does not."""
    program(study)
    path = study.parent / "train.py"
    told = "    print('since', began, step)\n    trial.report"
    counting = path.read_text().replace("    trial.report", told)
    path.write_text(counting.replace("def save", "began = step\ndef save", 1))
    found = certificate(study, "--steps", "4", "--suspend-at", "3", code=1)
    park, checkpoint = found["tiers"]
    assert (park["verdict"], checkpoint["verdict"]) == ("equal", "differs")
    difference = checkpoint["first_difference"]
    assert (difference["before"], difference["after"]) == ("since 0 4", "nothing")


def test_a_program_that_cannot_repeat_itself_is_never_called_exact(study: Path) -> None:
    program(study, noise=NOISE)
    found = certificate(study, "--steps", "4", code=1)
    assert not found["identical"]
    assert found["fidelity"] != "exact"
    assert "two undisturbed runs of it part" in found["reason"]
    for tier in found["tiers"]:
        assert tier["verdict"] == "cannot repeat itself"
        assert tier["why"].startswith("two undisturbed runs part: step 1: loss: ")


def test_a_failed_resume_shows_what_the_program_printed_last(study: Path) -> None:
    """Line by line, without what a library logs of the machine."""
    program(study)
    path = study.parent / "train.py"
    logged = "E0000 00:00:1795383823.799085 5380 cuda_platform.cc:52] failed call to cuInit"
    failing = f"if trial.resume:\n    print('of no use')\n    print({logged!r})\n    1 / 0\n"
    path.write_text(path.read_text().replace("def save", failing + "def save", 1))
    shown = hermesctl(study, "--steps", "2", "--suspend-at", "1").stdout
    assert "checkpoint  failed" in shown
    assert "\n  of no use\n  Traceback" in shown
    assert "\n  ZeroDivisionError: division by zero\n" in shown
    assert "cuInit" not in shown
    assert "\\n" not in shown


def test_where_there_is_a_criu_it_is_certified_as_an_image(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_NODE_CRIU", criu(tmp_path))
    program(study, save="None")
    found = certificate(study, "--steps", "4")
    assert found["identical"]
    assert found["fidelity"] == "exact"
    assert [each["verdict"] for each in found["tiers"]] == ["equal", "equal"]


def test_what_can_only_be_parked_is_only_parked(study: Path) -> None:
    program(study, save="None")
    found = certificate(study, "--steps", "4")
    park, checkpoint = found["tiers"]
    assert (park["verdict"], park["files"], checkpoint["verdict"]) == ("equal", 0, "not run")
    assert checkpoint["why"] == "park-only: the program reports without save="
    assert found["identical"] is None  # nobody has tried


def test_a_program_that_fails_by_itself_is_no_matter_of_resumes(study: Path) -> None:
    (study.parent / "train.py").write_text("print('so far')\n1 / 0\n")
    run = hermesctl(study)
    assert run.returncode == 4
    assert "the program fails undisturbed: ZeroDivisionError: division by zero" in run.stderr
    assert "so far" in run.stderr


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["--suspend-at", "99"], "--suspend-at: 99: expected steps from 1 to 12"),
        (["--suspend-at", "a"], "--suspend-at a: expected steps"),
        (["--trial", "3"], "--trial: 3: expected from 1 to 2"),
    ],
)
def test_what_cannot_be_meant_is_refused(study: Path, words: list[str], refusal: str) -> None:
    program(study)
    run = hermesctl(study, *words)
    assert run.returncode == 2
    assert refusal in run.stderr


def owned_by(folder: Path) -> set[int]:
    """The processes whose trial lies below a folder."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            owner = processes.started_with(int(entry.name), OWNER)
        except OSError:
            continue
        if owner is not None and Path(owner).is_relative_to(folder):
            found.add(int(entry.name))
    return found


def test_ctrl_c_ends_all_that_it_started(study: Path, tmp_path: Path) -> None:
    program(study, steps=10**9)
    temporary = tmp_path / "t"
    temporary.mkdir()
    run = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hermesctl.cli",
            "verify-resume",
            str(study),
            "--steps",
            "500000000",
        ],
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: list(temporary.glob("*/trials/verify/1/events.jsonl")) or run.poll() is not None)
    assert run.poll() is None
    assert owned_by(temporary)
    os.killpg(run.pid, signal.SIGINT)
    _, errors = run.communicate()
    assert run.returncode == 130
    assert "none of its processes is left" in errors
    assert owned_by(temporary) == set()
    assert list(temporary.iterdir()) == []


KERAS = """
import keras, numpy as np, tensorflow as tf
rng = np.random.default_rng()
x = rng.normal(size=(60, 4)).astype("float32")
{data}
model = keras.Sequential([keras.layers.Dense(5), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit({fit}, epochs=2, verbose=0)
"""


@pytest.mark.tensorflow
@pytest.mark.timeout(400)
def test_a_keras_program_is_certified_and_so_are_its_files_with_times_in_them(study: Path) -> None:
    """What TensorFlow's writer of events holds back for minutes is not lost with its process."""
    events = (
        "import json, pickle, time\n"
        "writer = tf.summary.create_file_writer('logs')\n"
        "class Events(keras.callbacks.Callback):\n"
        "    def on_epoch_end(self, epoch, logs=None):\n"
        "        tf.raw_ops.WriteScalarSummary(writer=writer._resource, step=epoch, tag='loss',\n"
        "                                      value=float(logs['loss']))\n"
    )
    end = (
        "model.save('last.keras')\n"
        "state = {'weights': model.get_weights(), 'at': time.time(), 'tags': {'a', 'b', 'c'}}\n"
        "pickle.dump(state, open('last.pkl', 'wb'))\n"
        "json.dump({'seconds': time.time(), 'tags': 3}, open('a.json', 'w'))\n"
    )
    fit = "x, x.sum(axis=1), batch_size=10, validation_split=0.2, callbacks=[Events()]"
    text = KERAS.replace("{data}", events).replace("{fit}", fit) + end
    (study.parent / "train.py").write_text(text)
    found = certificate(study)
    assert [one["verdict"] for one in found["tiers"]] == ["equal", "equal"], found
    # A callback of one's own may know what no checkpoint does.
    told = (found["identical"], found["steps"], found["fidelity"])
    assert told == (True, 10, "exact-if-deterministic")
    # 6: what lies between two epochs is done
    assert found["tiers"][1]["boundaries"] == [1, 5, 6, 9]
    assert all(one["values"] > 10 and one["files"] >= 1 for one in found["tiers"])


@pytest.mark.tensorflow
@pytest.mark.in_depth
@pytest.mark.timeout(400)
def test_data_augmented_in_parallel_are_not_called_exact(study: Path) -> None:
    """Which element draws which numbers is chance: the runs part, or may be equal by luck."""
    data = (
        "data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).repeat(8)\n"
        "noisy = lambda x, y: (x + tf.random.normal(tf.shape(x)), y)\n"
        "data = data.map(noisy, num_parallel_calls=8, deterministic=False).batch(20)"
    )
    text = KERAS.replace("{data}", data).replace("{fit}", "data")
    (study.parent / "train.py").write_text(text)
    run = hermesctl(study, "-o", "json")
    found = json.loads(run.stdout)
    assert found["fidelity"] == "park-only"
    assert found["tiers"][1]["verdict"] in ("cannot repeat itself", "not run")


# Comparing.


def outcome(*values: Any, step: int = 3, **fields: Any) -> TrialOutput:
    heard = TrialOutput(step=step, **fields)
    points = [[at, {"loss": value}] for at, value in enumerate(values, 1)]
    heard.hear({"points": points, "count": len(points)})
    return heard


BENCH = cast(Bench, SimpleNamespace(work=SimpleNamespace(signal="loss")))


class Slow:
    """The host of a program that imports for a while, and when it was to be over."""

    def __init__(self) -> None:
        none = {"points": [], "signal": {"count": 0}, "count": 0}
        self.words = [{"kind": "reported", "last_step": step, **none} for step in (0, 0, 2, 3)]
        self.words.append({"kind": "completed", "step": 3, "checkpoint": None})
        self.run: Arm | None = None
        self.ends: list[float] = []

    def send(self, kind: str, **fields: object) -> None: ...

    async def hear(self) -> dict[str, Any]:
        alarm = self.run._alarm if self.run else None
        self.ends.append(alarm.when() - asyncio.get_running_loop().time() if alarm else 0.0)
        return self.words.pop(0)


async def test_a_slow_start_is_no_part_of_the_minute_that_is_compared() -> None:
    slow = Slow()
    slow.run = Arm(BENCH, cast(HostLink, slow), lambda step: None)
    await slow.run.start(None)
    before, first, second, begun, later = slow.ends
    assert before == 0.0
    assert first > 60 < second
    assert begun <= 60 >= later > 0


class Midway(Slow):
    """The host of a program that is stopped between two of its loops when its minute is over."""

    def __init__(self) -> None:
        super().__init__()
        told = {"signal": {"count": 2}, "count": 1}
        self.words[2:] = [
            {"kind": "reported", "last_step": 2, "points": [[2, {"loss": 0.5}]], **told},
            {"kind": "parked", "step": 2, "at_boundary": False},
            {"kind": "reported", "last_step": 4, "points": [[3, {}], [4, {"loss": 0.25}]], **told},
            {"kind": "parked", "step": 4, "at_boundary": True},
        ]
        self.asked: list[tuple[str, object]] = []

    def send(self, kind: str, **fields: object) -> None:
        self.asked.append((kind, fields.get("limit_step")))


async def test_a_run_that_is_stopped_midway_goes_on_to_where_it_has_told_all() -> None:
    midway = Midway()
    midway.run = Arm(BENCH, cast(HostLink, midway), lambda step: None)
    assert await midway.run.start(None)
    assert midway.run.outcome.step == 4
    assert midway.run.outcome.values == {(2, "loss"): ("0.5",), (4, "loss"): ("0.25",)}
    assert midway.asked == [("start", None), ("resume", 1)]


@pytest.mark.parametrize("is_failure", [True, False])
async def test_a_program_that_fails_as_its_final_state_is_saved_has_failed(
    is_failure: bool, tmp_path: Path
) -> None:
    """One that cannot save any has not."""
    told = {"kind": "failed", "error_signature": "OSError"} if is_failure else {
        "kind": "checkpoint_failed", "reason": "it can only be parked"
    }  # fmt: skip
    host = Slow()
    host.words = [told]
    bench = cast(
        Bench,
        SimpleNamespace(
            work=SimpleNamespace(signal=""), folder=SimpleNamespace(output=tmp_path / "none")
        ),
    )
    run = Arm(bench, cast(HostLink, host), lambda step: None)
    if is_failure:
        with pytest.raises(ArmFailed, match="OSError"):
            await run.take_state()
    else:
        await run.take_state()
    assert run.outcome.state is None


async def test_the_engine_is_ended_by_its_input_and_told_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal makes Python look for the process, which its own watcher then misses."""
    script = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1] + '/told', 'w'))\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    monkeypatch.setattr(verify, "ENGINE", (sys.executable, "-c", script))
    async with verify._engine(tmp_path, ()) as process:
        assert process.stdout is not None
        await process.stdout.readline()
    assert process.returncode == 0
    assert not (tmp_path / "told").exists()


def test_the_last_bit_counts_and_nan_is_itself() -> None:
    one = outcome(0.1, "nan", 0.3)
    assert first_difference(one, outcome(0.1, "nan", 0.3)) is None
    found = first_difference(one, outcome(0.1, "nan", 0.1 + 0.2))
    assert found is not None
    assert str(found) == ("step 3: loss: 0.3 undisturbed, 0.30000000000000004 suspended")


def test_a_step_that_is_reported_twice_must_agree_with_itself() -> None:
    twice = outcome(0.1, 0.2)
    twice.hear({"points": [[2, {"loss": 0.25}]], "count": 1})
    found = first_difference(outcome(0.1, 0.2), twice)
    assert found is not None
    assert found.after == "0.2 then 0.25"


def test_rows_of_a_file_are_compared_as_the_file_not_by_the_step_of_reading() -> None:
    def heard(step: int) -> TrialOutput:
        found = outcome(0.1, 0.2)
        found.hear({"points": [[step, {"MSE": 0.5}]], "count": 1, "sampled": ["mse"]})
        return found

    assert first_difference(heard(1), heard(2)) is None
    surer = outcome(0.1, 0.2)
    surer.hear({"points": [[1, {"MSE": 0.5}]], "count": 1})
    other = outcome(0.1, 0.2)
    other.hear({"points": [[2, {"MSE": 0.5}]], "count": 1})
    assert first_difference(surer, other) is not None


def test_missing_steps_are_a_difference_unless_reports_were_thinned() -> None:
    whole, short = outcome(0.1, 0.2), outcome(0.1)
    found = first_difference(whole, short)
    assert found is not None
    assert (found.step, found.after) == (2, "nothing")
    short.hear({"points": [], "count": 1})
    assert first_difference(whole, short) is None


def test_what_was_printed_counts_as_far_as_it_repeats_itself() -> None:
    one = outcome(0.1, output=["begun", "took 1 s", "best 3", "over"])
    two = outcome(0.1, output=["begun", "took 2 s", "best 3", "over"])
    same = outcome(0.1, output=["begun", "took 3 s", "best 3", "over"])
    assert first_shown(one, two, same) is None
    for lines in (["begun", "best 4", "over"], ["begun", "best 3", "best 3", "over"], ["begun"]):
        found = first_shown(one, two, outcome(0.1, output=lines))
        assert found is not None
        assert found.name.startswith("output, line 2" if len(lines) == 3 else "output, line ")


def test_of_what_was_printed_progress_bars_warnings_and_times_do_not_count() -> None:
    bar = "epoch 1: 0/4\r\repoch 1: 2/4 [00:01<00:02, 9.52it/s]\r            \rloss 0.25\n"
    keras = "4/4 - 1s - 3ms/step - accuracy: 0.5 - loss: 1.5\r\n"
    assert shown(bar + keras) == ["loss 0.25", "4/4 - ~ - ~ - accuracy: 0.5 - loss: 1.5"]
    warning = "/usr/lib/any.py:98: UserWarning: You are warned.\n  warnings.warn('You')\n"
    assert shown(f"begun\n{warning}over\n") == ["begun", "over"]
    assert shown("took 1 min 3.5 s, 12:01:59") == ["took ~ ~, ~"]
    tqdm = "ep 1: 100%|###| 8/8 [00:01<00:00,  5.8it/s]\nep 1: 100%|###| 8/8 [00:00<?, ?it/s]\n"
    assert shown(tqdm) == ["ep 1:", "ep 1:"]
    rich = "ep 1 ---- 0% -:--:--\nep 1 ---- 0% 0:00:03\n"
    assert shown(rich) == ["ep 1 ---- 0% ~"] * 2
    # The bar of a training, above that of its validation.
    assert shown(" 33%|#  | 32/96 [00:01<00:02, 31.4it/s]\n{'eval_loss': 0.5}\n") == [
        "{'eval_loss': 0.5}"
    ]
    # What the program says before a bar, or prints right after it.
    for line in (
        "loss 0.5:  33%|#  | 3/9 [00:01<00:02, 3.4it/s]",
        " 33%|#  | 3/9 [00:01<?, ?it/s]loss 0.5",
    ):
        assert "loss 0.5" in shown(f"{line}\n")[0]
    assert shown("at 2026-01-02 03:04:05,678 500.5 images/sec, time: 3, Elapsed 4.5") == [
        "at ~ ~, time: ~, Elapsed ~"
    ]
    assert shown("mask 3, s 4, v1.2s, 1e-3, 7 samples") == ["mask 3, s 4, v1.2s, 1e-3, 7 samples"]


def test_a_progress_bar_of_colors_and_padding_differs_in_its_values_alone() -> None:
    def bar(seconds: int, padding: str, loss: str) -> str:
        first = f"\x1b[1m 1/80\x1b[0m \x1b[37m---\x1b[0m \x1b[1m{seconds}s\x1b[0m 61ms/step"
        last = f"\x1b[1m80/80\x1b[0m {seconds}s{padding} 3ms/step - loss: {loss}\n"
        return f"{first}{chr(8) * 40}\r{last}"

    one = shown(bar(5, "", "0.25"))
    assert one == shown(bar(12, "  ", "0.25"))
    assert one == ["80/80 ~ ~ - loss: 0.25"]
    assert one != shown(bar(5, "", "0.26"))


def test_files_count_as_far_as_they_repeat_themselves() -> None:
    one = outcome(0.1, files={"log": "1", "made-1201": "2"})
    two = outcome(0.1, files={"log": "1", "made-1202": "2"})
    assert first_shown(one, two, outcome(0.1, files={"log": "1", "made-1203": "2"})) is None
    found = first_shown(one, two, outcome(0.1, files={"log": "3"}))
    assert found is not None
    assert (found.name, found.before, found.after) == ("file log", "1", "3")
    found = first_shown(one, one, outcome(0.1, files={**one.files, "more": "4"}))
    assert found is not None
    assert (found.name, found.before) == ("file more", "nothing")


def test_files_named_by_the_time_are_compared_and_counted() -> None:
    """A run that goes on in another folder has two of what each undisturbed run has once."""

    def run(folder: str, **more: str) -> TrialOutput:
        return outcome(0.1, files={f"runs/{folder}/log-1": "1", "same": "2", **more})

    one, two = run("2026-01-02_030405"), run("2026-01-02_030617")
    assert first_shown(one, two, run("2026-01-02_031122")) is None
    found = first_shown(one, two, run("2026-01-02_031122", **{"runs/2026-01-02_031125/log-1": "3"}))
    assert found is not None
    name = "file runs/~-~-~_~/log-~"
    assert (found.name, found.before, found.after) == (name, "1", "1, 3")
    found = first_shown(one, two, outcome(0.1, files={"same": "2"}))
    assert found is not None
    assert (found.before, found.after) == ("1", "nothing")
    found = first_shown(one, two, outcome(0.1, files={"runs/2026-01-02_9/log-1": "4", "same": "2"}))
    assert found is not None
    assert (found.before, found.after) == ("1", "4")
    noise = outcome(0.1, files={"runs/2026-01-02_030617/log-1": "5", "same": "2"})
    assert first_shown(one, noise, run("2026-01-02_031122")) is None
    few = outcome(0.1, files={"same": "2"})
    assert first_shown(one, few, few) is None


def test_values_that_are_times_by_their_names_do_not_count() -> None:
    def run(seconds: float, fps: float, signal: str = "loss") -> TrialOutput:
        told = TrialOutput(signal=signal)
        values = {"loss": 0.5, "epoch_seconds": seconds, "time/fps": fps, "time_step": 3.0}
        told.hear({"points": [[1, values]], "count": 1})
        return told

    one = run(1.5, 90.0)
    assert sorted(name for _, name in one.values) == ["loss", "time_step"]
    assert first_difference(one, run(2.5, 80.0)) is None
    found = first_difference(run(1.5, 90.0, "time/fps"), run(1.5, 80.0, "time/fps"))
    assert found is not None
    assert found.name == "time/fps"


def test_of_a_log_with_times_the_lines_that_do_not_change_count() -> None:
    def run(speed: str, accuracy: str) -> TrialOutput:
        text = f"2026-01-02 03:04:0{speed},678 begun\naccuracy {accuracy}\nspeed is {speed}.1\n"
        return outcome(0.1, files={"log": speed}, texts={"log": shown(text)})

    assert first_shown(run("1", "0.5"), run("2", "0.5"), run("3", "0.5")) is None
    found = first_shown(run("1", "0.5"), run("2", "0.5"), run("3", "0.6"))
    assert found is not None
    assert found.name == "file log, line 2 of those that do not change"


def test_event_folders_are_counted() -> None:
    def run(*folders: str) -> TrialOutput:
        return outcome(0.1, files={f"runs/exp{name}/events": "events" for name in folders})

    assert first_shown(run("17"), run("18"), run("19")) is None
    found = first_shown(run("17"), run("18"), run("19", "20"))
    assert found is not None
    assert (found.before, found.after) == ("events", "events, events")


def test_of_a_graph_beside_a_checkpoint_only_that_it_is_there_counts() -> None:
    def run(graph: str, **more: str) -> TrialOutput:
        files = {"best.index": "1", "best.meta": graph, "other.meta": "2", **more}
        return outcome(0.1, files=files)

    assert first_shown(run("a"), run("a"), run("b")) is None
    found = first_shown(run("a"), run("a"), run("b", **{"other.meta": "3"}))
    assert found is not None
    assert found.name == "file other.meta"


def test_a_state_is_its_arrays_where_they_are_apart() -> None:
    files = {name: {"sha256": name * 20} for name in ("keras.arrays", "keras.state", "model.keras")}
    assert list(state_of(files)) == ["keras.arrays"]
    assert list(state_of({"a": files["keras.state"], ".hermes-files.json": {}})) == ["a"]
    one = outcome(0.1, state={"a": "1"})
    found = first_difference(one, outcome(0.1, state={"a": "2"}))
    assert found is not None
    assert (found.step, found.name) == (None, "a")


def test_a_state_that_one_run_alone_has_saved_is_a_difference() -> None:
    """Of images, nothing can be compared."""
    saved, unsaved = outcome(0.1, state={"a": "1"}), outcome(0.1)
    for one, other in ((saved, unsaved), (unsaved, saved)):
        found = first_difference(one, other)
        assert found is not None
        assert found.step is None
    assert str(found) == "final state: all of it: not saved undisturbed, saved suspended"
    assert first_difference(unsaved, outcome(0.1)) is None
    imaged = outcome(0.1)
    imaged.is_imaged = True
    assert first_difference(saved, imaged) is None
    assert first_difference(imaged, saved) is None
