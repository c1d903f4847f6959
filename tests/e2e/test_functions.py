"""A Python function as a trial, from a script, a package, a notebook: with a head of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hermesctl import Client, UsageError, experiment, search, searches
from hermesctl.searches import Results
from tests.e2e.cluster import running

HELPER = "def doubled(x):\n    return 2 * x\n"
FUNCTION = """
import helper

def train(rate, dropout=0.5):
    assert type(rate) is float, "arguments have the types that they were given with"
    return helper.doubled(rate) - dropout
"""
SEARCH = """
import json
from hermesctl import Client, experiment
{setup}
if __name__ == "__main__":
    with Client() as client:
        grid = {{"rate": [0.25, 1.0, 0.5], "dropout": [0.125, 0.25]}}
        results = experiment.grid_search({function}, grid, name="found", client=client)
        print(json.dumps([[trial.params, trial.metric] for trial in results.leaderboard()]))
"""
ALONE = sorted(
    (
        [{"rate": rate, "dropout": dropout}, 2 * rate - dropout]
        for rate in (0.25, 1.0, 0.5)
        for dropout in (0.125, 0.25)
    ),
    key=lambda pair: -float(str(pair[1])),
)


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


CASES = {
    "script": ("search.py", SEARCH.format(setup=FUNCTION, function="train"), {"helper.py": HELPER}),
    "module": (
        "search.py",
        SEARCH.format(setup="import other", function="other.train"),
        {"other.py": FUNCTION, "helper.py": HELPER},
    ),
    "package": (
        "search.py",
        SEARCH.format(setup="from lab.nets import small", function="small.train"),
        {
            "lab/__init__.py": "",
            "lab/nets/__init__.py": "",
            "lab/nets/small.py": FUNCTION.replace("import helper", "from .. import helper"),
            "lab/helper.py": HELPER,
        },
    ),
    "method": (
        "search.py",
        SEARCH.format(
            setup="class Net:\n    def __init__(self, factor):\n        self.factor = factor\n\n"
            "    def train(self, rate, dropout):\n        return self.factor * rate - dropout\n",
            function="Net(2).train",
        ),
        {},
    ),
    "defined anew": (
        "search.py",
        SEARCH.format(
            setup="def train(rate, dropout):\n    return 2 * rate - dropout\n"
            "\nkept = train\ndef train(): pass\n",
            function="kept",
        ),
        {},
    ),
    "below the line with __main__": (
        "search.py",
        SEARCH.format(setup="", function="train").replace(
            "    with Client",
            "    def train(rate, dropout):\n        return 2 * rate - dropout\n\n    with Client",
        ),
        {},
    ),
    "closure": (
        "search.py",
        SEARCH.format(
            setup="def made(factor):\n    return lambda rate, dropout: factor * rate - dropout\n",
            function="made(2)",
        ),
        {},
    ),
}


@pytest.mark.timeout(180)
async def test_each_point_comes_to_what_the_function_returns(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    async with running(tmp_path_factory.mktemp("h")) as cluster:
        environment = {**os.environ, "HERMES_HEAD": f"unix:{cluster.state}/head.sock"}
        for case, (name, script, others) in CASES.items():
            folder = written(tmp_path / case, {name: script, **others})
            process = await asyncio.create_subprocess_exec(
                sys.executable, name, cwd=folder, env=environment,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, err = await process.communicate()
            assert process.returncode == 0, (case, err.decode())
            assert json.loads(out) == ALONE, case
            left = {path.name for path in folder.rglob("*") if "__pycache__" not in path.parts}
            assert left <= {name, *(part for other in others for part in Path(other).parts)}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """This user's own head and node, in a place of their own."""

    def own(verb: str) -> None:
        words = [sys.executable, "-m", "hermesctl.cli", "local", verb]
        subprocess.run(words, check=True, capture_output=True)

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HERMES_")]:
            patch.delenv(name)
        patch.setenv("HERMES_STATE", str(tmp_path_factory.mktemp("h")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("c")))
        own("start")
        with Client(local=True) as client:
            yield client
        own("stop")


@pytest.mark.timeout(180)
def test_several_metrics_are_drawn_and_what_is_none_is_a_failure(local: Client) -> None:
    def several(x: float) -> dict[str, float]:
        return {"a": 2 * x, "b": -x}

    bounds = {"x": {"min": 0.25, "max": 1.0}}
    results = experiment.random_search(several, bounds, trials=3, metric="a", client=local)
    drawn = results.leaderboard()
    assert [trial.metric for trial in drawn] == [2 * trial.params["x"] for trial in drawn]
    assert results.best.id == drawn[0].id
    assert len({trial.metric for trial in drawn}) == 3
    assert "<table" in results._repr_html_()
    assert len(results.frame()) == 3

    def wrong(x: int) -> Any:
        return {"a": "much"} if x else None

    results = experiment.grid_search(wrong, {"x": [0, 1]}, client=local, wait=False)
    ended = results.wait(progress=False).trials
    assert [str(trial.state) for trial in ended] == ["completed", "failed"]
    assert "expected a number, a dict of numbers or None" in ended[1].reason
    with pytest.raises(UsageError, match="no trial of wrong has a value of result; `hermesctl"):
        _ = results.best


@pytest.mark.timeout(180)
def test_points_are_proposed_and_shown_live_in_a_notebook(
    local: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[str] = []

    class Shown:
        def update(self, results: Results) -> None:
            tables.append(results._repr_html_())

    def display(results: Results, *, display_id: bool) -> Shown:
        assert display_id
        return Shown()

    notebook = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=True))
    monkeypatch.setitem(sys.modules, "IPython", cast(Any, notebook))
    page = types.SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", cast(Any, page))
    monkeypatch.setattr(searches, "TABLE_SECONDS", 0.0)

    def squared(x: float) -> float:
        return (x - 0.3) ** 2

    bounds = {"x": {"min": 0.0, "max": 1.0}}
    results = search(squared, bounds, method="random_walk", trials=6, goal="minimize", client=local)
    board = results.leaderboard()
    assert len(board) == 6
    assert [trial.metric for trial in board] == [(t.params["x"] - 0.3) ** 2 for t in board]
    assert len(tables) > 2
    assert "<table" in tables[-1]

    banded = search(squared, bounds, method="hyperband", run_cap=3, client=local, wait=False)
    assert "hyperband" in str(banded.wait(progress=False).study.spec["schedule"])


def test_one_value_alone_is_that_of_all_trials(local: Client) -> None:
    def train(rate: float, optimizer: str, layers: int) -> float:
        return rate * layers if optimizer == "adam" else 0.0

    grid = {"rate": [0.5, 0.25], "optimizer": "adam", "layers": 2}
    board = experiment.grid_search(train, grid, client=local).leaderboard()
    assert [trial.params for trial in board] == [{**grid, "rate": 0.5}, {**grid, "rate": 0.25}]


def test_arguments_that_the_function_does_not_take_are_found_before_anything_is_sent() -> None:
    def train(learning_rate: float, dropout_rate: float = 0.0) -> float:
        return learning_rate + dropout_rate

    with pytest.raises(UsageError, match=r"did you mean dropout_rate\?"):
        experiment.grid_search(train, {"learning_rate": [1.0], "dropout": [0.1]})
    with pytest.raises(UsageError, match=r"takes no dropout; did you mean dropout_rate\?"):
        experiment.grid_search(train, {"dropout": [0.1]})
    with pytest.raises(UsageError, match="missing a required argument: 'learning_rate'"):
        experiment.grid_search(train, {"dropout_rate": [0.1]})
    with pytest.raises(UsageError, match=r"0\.5: expected a function, not what it returns"):
        experiment.grid_search(cast(Any, 0.5), {"dropout_rate": [0.1]})
    with pytest.raises(UsageError, match=r"\[0\.1\]: expected a dict of its arguments"):
        experiment.grid_search(train, cast(Any, [0.1]))


def test_a_search_inside_of_a_trial_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_PARAMETERS", "{}")
    with pytest.raises(UsageError, match=r"below `if __name__ == .__main__.:`"):
        experiment.grid_search(lambda: 1.0, {})


def test_what_cannot_be_sent_says_so(local: Client) -> None:
    lock = threading.Lock()

    def locks(x: int) -> float:
        with lock:
            return float(x)

    with pytest.raises(UsageError, match=r"cannot be sent: .*create what it refers to inside it"):
        experiment.grid_search(locks, {"x": [1]}, client=local)
