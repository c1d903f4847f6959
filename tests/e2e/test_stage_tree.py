"""`share: tree` with real processes: what trials have in common is trained once, exactly, whatever
is killed meanwhile."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, processes, running
from tests.e2e.test_joining import Place, place
from tests.e2e.test_try_out import hermesctl
from tests.waiting import ASK_SECONDS, until

assert place  # a fixture

END = 30
FIRST, SECOND = 10, 20
RATES = (0.01, 0.02)

PROGRAM = """
import json, os, pathlib, time
import trainer_shim

trial = trainer_shim.attach()
state, step = 1.0, 0
if trial.resume:
    state, step = json.loads((pathlib.Path(trial.resume.path) / "state.json").read_text())

def save(folder):
    (pathlib.Path(folder) / "state.json").write_text(json.dumps([state, step]))

while step < END:
    time.sleep(SECONDS)
    rate = trial.params["rate"]
    state, step = state * (1 - rate), step + 1
    with open("LOG", "a") as log:
        log.write(f"{os.environ['HERMES_TRIAL']} {step} {rate}\\n")
    trial.report(step, loss=state, save=save)
"""


def program(log: Path, seconds: float) -> str:
    told = PROGRAM.replace("END", str(END)).replace("SECONDS", str(seconds))
    return told.replace("LOG", str(log))


# 2 x 2 x 2 trials: the rate falls at 10 and 20 by one factor or the other.
GRID = {
    "start": {"values": list(RATES)},
    "one": {"values": [0.5, 0.1]},
    "other": {"values": [0.05, 0.025]},
    "rate": {"sequence": {"values": ["start", "one", "other"], "at": [FIRST, SECOND]}},
}
UNIQUE = 2 * FIRST + 4 * (SECOND - FIRST) + 8 * (END - SECOND)


def reached(*rates: float) -> float:
    """The state of a trial with these rates, by itself."""
    state = 1.0
    for step in range(END):
        state *= 1 - rates[(step >= FIRST) + (step >= SECOND)]
    return state


def trained(log: Path) -> Counter[tuple[str, int]]:
    """How often each step was done, by its trial."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return Counter((trial, int(step)) for trial, step, _ in lines)


async def submit(cluster: Cluster, log: Path, name: str, seconds: float) -> None:
    fields = {"share": types_pb2.SHARE_TREE}
    often = types_pb2.Suspend(durability_seconds=1.0)
    await cluster.submit(name, {"train.py": program(log, seconds)}, GRID, suspend=often, **fields)


async def all_as_alone(cluster: Cluster, name: str) -> None:
    await cluster.finished(name)
    for trial in (await cluster.study(name)).trials:
        values = {each.name: each.value.double_value for each in trial.parameters}
        alone = reached(values["start"], values["one"], values["other"])
        assert trial.step == END
        assert math.isclose(trial.metric, alone, rel_tol=1e-12), trial.id


@pytest.mark.timeout(180)
async def test_each_stage_is_trained_once_and_comes_to_what_each_trial_comes_to_alone(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with running(tmp_path_factory.mktemp("h"), slots=2) as cluster:
        await submit(cluster, log, "s", 0.02)
        await all_as_alone(cluster, "s")
        done = trained(log)
        assert sum(done.values()) == UNIQUE
        assert set(done.values()) == {1}
        study = (await cluster.study("s")).study
        assert (study.trained_steps, study.steps) == (UNIQUE, 8 * END)
        shown = json.loads((await hermesctl(cluster, "trial", "show", "s/8", "-o", "json"))[1])
        trial = shown["trial"]
        assert (trial["shared_steps"], trial["forked_at_step"]) == (SECOND, SECOND)
        assert 0 < trial["shared_out_seconds"] < END * 1.0
        _, out, _ = await hermesctl(cluster, "trial", "curve", "s/8", "-o", "json")
        assert json.loads(out)["steps"] == list(range(1, END + 1)), "what others trained is its own"
        # The same again, as another study of the user: what is left to train is the last steps.
        await cluster.submit(
            "t",
            {"train.py": program(log, 0.02)},
            {**GRID, "other": {"values": [0.05, 0.075]}},
            share=types_pb2.SHARE_TREE,
        )
        await all_as_alone(cluster, "t")
        more = sum(trained(log).values()) - UNIQUE
        assert more == 4 * (END - SECOND), "what both studies have in common is trained once"


@pytest.mark.timeout(180)
async def test_a_kill_of_everything_costs_what_was_not_saved_and_nothing_more(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with running(tmp_path_factory.mktemp("h"), slots=2, kind=Cluster) as cluster:
        await submit(cluster, log, "s", 0.05)
        for least in (FIRST // 2, FIRST + 5, 3 * SECOND):
            await cluster.until(lambda least=least: sum(trained(log).values()) > least)
            cluster.kill(cluster.pids("node"))
            cluster.kill(cluster.pids("head"))
        await all_as_alone(cluster, "s")
        assert sum(trained(log).values()) == UNIQUE, "hosts outlive the daemons: nothing was lost"


SHARED = """
name: {name}
program: train.py
share: tree
share_with: [{others}]
python: {python}
metric: {{name: loss, goal: minimize}}
suspend: {{durability_seconds: 1}}
parameters:
  later: {{values: {later}}}
  rate: {{sequence: {{values: [0.01, later], at: [20]}}}}
"""


@pytest.mark.timeout(180)
def test_users_who_name_each_other_train_once_what_they_have_in_common(place: Place) -> None:
    log = place.folder / "log"
    studies = {
        "ann": {"others": "bob", "later": [0.5, 0.1]},
        "bob": {"others": "ann", "later": [0.1, 0.2]},
        "eve": {"others": "ann, bob", "later": [0.5]},
    }
    for name, said in studies.items():
        project = place.folder / name
        project.mkdir()
        (project / "train.py").write_text(program(log, 0.05))
        text = SHARED.format(name=f"of-{name}", python=sys.executable, **said)
        (project / "study.yaml").write_text(text)

    def trials(name: str) -> list[dict[str, Any]]:
        listed = place.ctl("--head", name, "trial", "ls", f"of-{name}", "-o", "json")
        found: list[dict[str, Any]] = json.loads(listed)["trials"]
        return found

    def until_killed(*words: str) -> None:
        """Run a part of all, and everything but the hosts is killed."""
        with place.daemon("head"), place.daemon("node", *node):
            for word in words:
                place.ctl("--head", word, "submit", str(place.folder / word / "study.yaml"))
            until(lambda: sum(trained(log).values()) >= FIRST * len(words))
            for pid, line in processes(place.folder):
                if "hermesd" in line and {"head", "node"} & {*line}:
                    os.kill(pid, signal.SIGKILL)

    node = ("--state", str(place.folder / "node"), "--slots", "1")
    with place.daemon("head"):
        join = place.ctl("node", "token", "--name", "box", admin=True).split()
        for name in studies:
            login = place.ctl("user", "token", name, admin=True).split()
            place.ctl(*login[1:], "--name", name)
        with place.daemon(*join[1:], *node):
            pass
    until_killed("ann", "bob")
    with place.daemon("head"), place.daemon("node", *node):
        place.ctl("--head", "eve", "submit", str(place.folder / "eve" / "study.yaml"))
        for name in studies:
            until(
                lambda name=name: {each["state"] for each in trials(name)} == {"completed"},
                ASK_SECONDS,
            )
            for each in trials(name):
                later = each["params"]["later"]
                assert math.isclose(each["metric"], reached(0.01, 0.01, later), rel_tol=1e-12)
        done = trained(log)
        own = {name: steps for name, steps in done.items() if not name[0].startswith("of-eve")}
        assert set(own.values()) == {1}
        assert len(own) == SECOND + 3 * (END - SECOND), "0.1 after step 20 is both users'"
        assert len(done) - len(own) == END, "nobody has named her"
        shown = place.ctl("--head", "bob", "trial", "show", "of-bob/1", "-o", "json")
        assert json.loads(shown)["trial"]["shared_steps"] == END
