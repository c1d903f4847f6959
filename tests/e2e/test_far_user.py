"""What one has from another machine: the files of trials, what they keep, and the time left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.test_joining import Place, place
from tests.waiting import ASK_SECONDS, until

assert place  # a fixture

# The second trial waits in the middle until the gate is there.
PROGRAM = """
import argparse, os, time
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
for step in range(40):
    while step == 20 and rate == 2.0 and not os.path.exists({gate!r}):
        time.sleep(0.02)
    time.sleep(0.005)
    print(f"step {{step}} loss: {{rate / (step + 1)}}", flush=True)
with open("result.txt", "w") as file:
    file.write(f"rate {{rate}}")
"""
STUDY = """
name: far
program: train.py
method: grid
keep: ["result.*"]
schedule: {policy: fifo}
parameters:
  rate: {values: [1.0, 2.0]}
"""


@pytest.mark.timeout(180)
def test_files_and_the_time_left_as_a_user_of_another_machine(place: Place) -> None:
    gate = place.folder / "gate"
    project = place.folder / "project"
    project.mkdir()
    (project / "train.py").write_text(PROGRAM.format(gate=str(gate)))
    (project / "study.yaml").write_text(STUDY)

    def trials() -> list[dict[str, Any]]:
        listed = place.ctl("--head", "alice", "trial", "ls", "far", "-o", "json")
        found: list[dict[str, Any]] = json.loads(listed)["trials"]
        return found

    node = ("--state", str(place.folder / "node"), "--slots", "1")
    with place.daemon("head"):
        join = place.ctl("node", "token", "--name", "box", admin=True).split()
        for name in ("alice", "bob"):
            login = place.ctl("user", "token", name, admin=True).split()
            place.ctl(*login[1:], "--name", name)
        with place.daemon(*join[1:], *node):
            place.ctl("--head", "alice", "submit", str(project / "study.yaml"))
            until(lambda: trials()[1]["step"] >= 20, ASK_SECONDS)
            second = trials()[1]
            assert second["state"] == "running"
            assert second["expected_steps"] == trials()[0]["step"] == 40
            assert 0 < second["remaining_seconds"] < 60
            assert "/~40" in place.ctl("--head", "alice", "trial", "ls", "far")
            study = json.loads(place.ctl("--head", "alice", "status", "far", "-o", "json"))
            assert study["remaining_seconds"] == pytest.approx(
                trials()[1]["remaining_seconds"], rel=0.5
            )
            gate.touch()
            place.ctl("--head", "alice", "status", "far", "--wait")
            to = place.folder / "home"
            place.ctl("--head", "alice", "trial", "files", "get", "far/2", "--to", str(to))
            assert (to / "result.txt").read_text() == "rate 2.0"
            printed = place.ctl("--head", "alice", "trial", "files", "cat", "far/1", "result.txt")
            assert printed == "rate 1.0"
            for words in (("ls", "far/1"), ("cat", "far/1", "result.txt"), ("get", "far/1")):
                with pytest.raises(AssertionError, match="no study far"):
                    place.ctl("--head", "bob", "trial", "files", *words)
