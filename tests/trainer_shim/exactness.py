"""A pytest plugin: the exactness matrix in pieces, with what each test has compared.

`-p tests.trainer_shim.exactness --shard 1/4`: only the tests of the matrix, a quarter of them, less
those that have passed at this commit. Each test adds a line of JSON to a file of the commit in
`build/exactness`: its kind, and at how many boundaries a run was held, and begun again in a new
process, before it was compared with an undisturbed one.
Of a tree with changes that are not committed nothing counts as passed.
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer_shim import driving, suspending

ROOT = Path(__file__).resolve().parents[2]
# Every test that compares a suspended run with an undisturbed one, by the kind of its program.
KINDS = {
    "test_host.py::test_suspended_at_every_boundary_it_is_the_uninterrupted_run": "explicit API",
    "test_host.py::test_each_boundary_resumed_from_it_is_the_uninterrupted_run": "explicit API",
    "test_keras.py::test_every_boundary_parked_and_restored": "Keras fit, arrays",
    "test_keras.py::test_a_run_ended_at_every_boundary": "Keras fit, own train_step",
    "test_keras.py::test_suspends_of_other_programs[TWO_FITS": "Keras, several fits, subclassed",
    "test_keras.py::test_suspends_of_other_programs[TWO_OPT": "Keras fit, own train_step",
    "test_keras.py::test_suspends_of_other_programs[NESTED": "Keras fit, own train_step",
    "test_keras.py::test_suspends_of_other_programs[LONG_PASSES": "Keras, several steps at once",
    "test_keras.py::test_suspends_of_other_programs[DATASET": "Keras fit, tf.data",
    "test_keras.py::test_suspends_of_other_programs[PIPELINE": "Keras fit, tf.data",
    "test_keras.py::test_suspends_of_other_programs[SHUFFLED_": "Keras, shuffled validation data",
    "test_keras.py::test_suspends_of_other_programs[MIXED": "Keras, mixed precision",
    "test_keras.py::test_suspends_of_other_programs[STOPPED": "Keras fit, stopped by a callback",
    "test_keras_callbacks.py::test_what_callbacks_keep_is_there_again": "Keras, own callbacks",
    "test_keras_backends.py::test_every_boundary_parked_and_restored[torch": "Keras on PyTorch",
    "test_keras_backends.py::test_a_seeded_run_is_the_plain_one[torch": "Keras on PyTorch",
    "test_keras_backends.py::test_suspends_of_other_programs[torch": "Keras on PyTorch",
    "test_keras_backends.py::test_every_boundary_parked_and_restored[jax": "Keras on JAX",
    "test_keras_backends.py::test_a_seeded_run_is_the_plain_one[jax": "Keras on JAX",
    "test_keras_backends.py::test_suspends_of_other_programs[jax": "Keras on JAX",
    "test_keras_reading.py::test_suspended_anywhere": "Keras, generators and PyDatasets",
    "test_keras_reading.py::test_each_boundary_resumed_from": "Keras, generators and PyDatasets",
    "test_other_kinds.py::test_a_compiled_model": "PyTorch loop, torch.compile",
    "test_other_kinds.py::test_a_shell_script": "PyTorch loop, by a shell script",
    "test_other_kinds.py::test_an_eager_loop": "eager TensorFlow loop (parked only)",
    "test_other_kinds.py::test_a_loop_that_no_adapter_sees": "JAX, scikit-learn (parked only)",
    "test_other_kinds.py::test_a_version_that_was_not_tested": "untested version (parked only)",
    "test_other_kinds.py::test_kill_9": "PyTorch loop, killed in a save or restore",
    "test_bad_moments.py::test_kill_9_during": "explicit API, killed in a save or restore",
    "test_wallclock_replay.py::test_a_pytorch_run": "PyTorch loop, folder named by the time",
    "test_wallclock_replay.py::test_a_keras_run": "Keras fit, folder named by the time",
    "test_moments.py::test_asked_while_it_starts": "each kind, asked before the first step",
    "test_moments.py::test_asked_before_it_has_begun": "each kind, asked before the first step",
    "test_moments.py::test_asked_while_it_validates": "each kind, asked in a validation",
    "test_moments.py::test_asked_amid_the_last_step": "each kind, asked amid the last step",
    "test_singles.py::test_a_tf_function": "tf.function loop",
    "test_singles.py::test_a_fit_resumed_at_every_fifth_boundary[OWN": "Keras fit, own train_step",
    "test_singles.py::test_a_fit_resumed_at_every_fifth_boundary[DATASET": "Keras fit, tf.data",
    "test_singles.py::test_a_fit_resumed_at_every_fifth_boundary[PIPELINE": "Keras fit, tf.data",
    "test_singles.py::test_a_fit_ended_at_every_boundary[EVERYTHING": "Keras fit, arrays",
    "test_singles.py::test_a_fit_ended_at_every_boundary[DATASET": "Keras fit, tf.data",
    "test_singles.py::test_a_fit_ended_at_every_boundary[PIPELINE": "Keras fit, tf.data",
    "test_singles.py::test_a_fit_ended_at_every_boundary": "Keras, generators and PyDatasets",
    "test_singles.py::test_keras_2_resumed_at_each_boundary": "Keras 2 (legacy) fit",
    "test_tf_function.py::test_ended_at_every_boundary": "tf.function loop",
    "test_tf_function.py::test_other_programs_ended_at_every_boundary": "tf.function loop",
    "test_tf_function.py::test_random_operations_in_the_step": "tf.function loop",
    "test_tf_function.py::test_what_it_looks_at_may_depend_on_the_clock": "tf.function loop",
    "test_tf_function.py::test_keras_2_ended_at_every_boundary": "Keras 2 (legacy) fit",
    "test_torch.py::test_parked_at_every_boundary": "PyTorch loop",
    "test_torch.py::test_each_boundary_resumed_from": "PyTorch loop",
    "test_torch.py::test_a_run_ended_at_every_boundary": "PyTorch loop",
    "test_side_iterators.py::test_what_decides_about": "PyTorch loop, changed data and weights",
    "test_trainers.py::test_parked_at_every_boundary[LIGHTNING": "PyTorch Lightning fit",
    "test_trainers.py::test_each_boundary_resumed_from[LIGHTNING": "PyTorch Lightning fit",
    "test_trainers.py::test_a_run_ended_at_every_boundary[LIGHTNING": "PyTorch Lightning fit",
    "test_trainers.py::test_parked_at_every_boundary[TRANSFORMERS": "Hugging Face Trainer",
    "test_trainers.py::test_each_boundary_resumed_from[TRANSFORMERS": "Hugging Face Trainer",
    "test_trainers.py::test_a_run_ended_at_every_boundary[TRANSFORMERS": "Hugging Face Trainer",
}

_compared: Counter[str] = Counter()  # boundaries of the test under way, by tier
_wrong: list[int] = []  # those that it found to differ, where it tells


def kind_of(node_id: str) -> str | None:
    """The kind of program that a test is about; None for a test that is not of the matrix."""
    name = node_id.rpartition("/")[2]
    return next((kind for prefix, kind in KINDS.items() if name.startswith(prefix)), None)


def record_path() -> Path:
    """Where results are kept: by the commit, as they say nothing of another."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ROOT / "build" / "exactness" / f"{run.stdout.strip()}.jsonl"


def results(path: Path) -> dict[str, dict[str, Any]]:
    """The newest result of each test."""
    if not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {line["test"]: line for line in lines}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which part to run."""
    parser.addoption("--shard", default="1/1", help="K/N: the K-th of N parts of the matrix")


def pytest_configure(config: pytest.Config) -> None:
    """Watch what every trial of a test is asked to do."""
    config.option.shard = _shard(config.option.shard)
    _count(driving.Trial, "resume", lambda trial, **given: "park")
    _count(driving.Trial, "start", lambda trial, **given: "checkpoint" * bool(given.get("restore")))
    original = suspending.Runs.resumed_wrongly

    @functools.wraps(original)
    def resumed_wrongly(runs: suspending.Runs, *args: Any) -> list[int]:
        found = original(runs, *args)
        _wrong.extend(found)
        return found

    suspending.Runs.resumed_wrongly = resumed_wrongly  # type: ignore[method-assign]


def _shard(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 0 < int(number) <= int(count)):
        raise pytest.UsageError(f"--shard {text}: expected K/N with K from 1 to N, such as 1/4")
    return int(number), int(count)


def _count(owner: Any, name: str, tier: Any) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(trial: driving.Trial, *args: Any, **given: Any) -> Any:
        _compared[tier(trial, **given)] += 1
        return original(trial, *args, **given)

    setattr(owner, name, method)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the matrix and the slow ones, of this shard, that have not passed yet."""
    number, count = config.option.shard
    path = record_path()
    before = {} if path.stem.endswith("-dirty") else results(path)
    passed = {test for test, line in before.items() if line["passed"]}
    wanted = [one for one in items if kind_of(one.nodeid) or one.get_closest_marker("slow")]
    ours = sorted(wanted, key=lambda one: one.nodeid)
    chosen = [one for at, one in enumerate(ours) if at % count == number - 1]
    left = [one for one in chosen if one.nodeid not in passed]
    config.hook.pytest_deselected(items=[one for one in items if one not in left])
    items[:] = left


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Record a test that has run."""
    report: Any = yield
    if report.when == "call" and not report.skipped:
        line = {
            "test": item.nodeid,
            "kind": kind_of(item.nodeid),
            "passed": report.passed,
            "park": _compared["park"],
            "checkpoint": _compared["checkpoint"],
            "wrong": sorted(_wrong),
            "seconds": round(report.duration, 1),
        }
        path = record_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
    if report.when == "teardown":
        _compared.clear()
        _wrong.clear()
    return report
