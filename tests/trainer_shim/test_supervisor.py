"""What a supervisor makes of time, of silence and of a death, with a real process and a clock of
the test's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer_shim.driving import Trial
from trainer_shim.events import boottime
from trainer_shim.page import Page
from trainer_shim.spec import Spec
from trainer_shim.supervisor import Supervisor
from trainer_shim.wire import Connection
from trainer_shim.worker import Worker

Told = list[dict[str, Any]]


class Sleeping:
    """A supervisor whose trial is a process that sleeps; its agent is the test."""

    def __init__(self, folder: Path, restore: str | None = None, **fields: Any) -> None:
        trial = Trial(folder / "t", ["sleep"], **fields)
        self.told: Told = []
        self.supervisor = Supervisor(Spec.load(str(trial.spec)), self.told.append)
        self.process = subprocess.Popen(["sleep", "1000"])
        ours, self.agent = socket.socketpair()
        pipe, self.output = os.pipe()
        os.set_blocking(pipe, False)
        worker = Worker(self.process.pid, Connection(ours), Page.create(), pipe)
        self.began = worker.started_at
        self.supervisor.phase = "running"
        self.supervisor.run = self.supervisor.new_run(worker, restore)

    def reap(self) -> None:
        """Kill the process and tell the supervisor, as its host does."""
        os.kill(self.process.pid, signal.SIGKILL)
        _, status, _ = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.supervisor.exited(status, cpu_seconds=2.0, memory_bytes=3 << 20)

    def kinds(self) -> list[str]:
        """The events told since the last look."""
        kinds = [str(event["kind"]) for event in self.told]
        self.told.clear()
        return kinds

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.returncode is None:
            self.reap()
        self.supervisor.close()
        self.agent.close()
        os.close(self.output)


@pytest.fixture
def sleeping(tmp_path: Path) -> Iterator[Sleeping]:
    """A trial of which nothing is known yet."""
    trial = Sleeping(tmp_path)
    yield trial
    trial.close()


def test_nothing_is_due_once_the_program_is_over_and_gone(tmp_path: Path) -> None:
    """A host with nothing to do must not spin."""
    trial = Trial(tmp_path / "t", ["true"])
    supervisor = Supervisor(Spec.load(str(trial.spec)), lambda event: None)
    supervisor.heard({"kind": "completed", "exit_code": 0, "checkpoint": None, "metrics": {}})
    assert supervisor.deadline() is None
    supervisor.close()


@pytest.mark.parametrize(("hello", "seconds"), [(False, 10), (True, 60)])
def test_a_quiet_program_counts_as_started_after_a_while(
    sleeping: Sleeping, hello: bool, seconds: int
) -> None:
    """Later if it has imported a framework, which promises boundaries."""
    supervisor = sleeping.supervisor
    if hello:
        supervisor.heard({"kind": "hello", "framework": "keras"})
    due = supervisor.deadline()
    assert due == pytest.approx(sleeping.began + seconds, abs=1)
    supervisor.tick(due - 0.1)
    assert sleeping.kinds() == []
    supervisor.tick(due)
    fidelity, started = sleeping.told
    assert (fidelity["kind"], fidelity["level"]) == ("fidelity", "park-only")
    assert "boundaries" in fidelity["reason"]
    assert (started["kind"], started["step"]) == ("started", 0)


def test_what_a_quiet_program_uses_is_told_until_it_tells_itself(sleeping: Sleeping) -> None:
    supervisor = sleeping.supervisor
    supervisor.heard({"kind": "blind"})
    assert sleeping.kinds() == ["fidelity", "started"]
    supervisor.tick(boottime() + 5)
    (report,) = sleeping.told
    assert (report["kind"], report["count"], report["points"]) == ("reported", 0, [])
    assert report["busy_seconds"] > 0
    assert report["memory_bytes"] > 0
    sleeping.kinds()
    supervisor.heard({"kind": "begun", "step": 0})
    assert sleeping.kinds() == ["reported"]
    supervisor.tick(boottime() + 5)
    assert sleeping.kinds() == []


def test_a_program_that_restores_is_never_taken_for_quiet(tmp_path: Path) -> None:
    """It would count as started at step 0, and its progress as lost."""
    sleeping = Sleeping(tmp_path, restore="somewhere")
    assert sleeping.supervisor.deadline() is None
    sleeping.supervisor.tick(boottime() + 1000)
    sleeping.reap()
    assert sleeping.kinds() == ["failed"]
    sleeping.close()


def test_a_program_over_that_does_not_exit_is_killed(sleeping: Sleeping) -> None:
    over = {"kind": "completed", "exit_code": 0, "checkpoint": None, "metrics": {}}
    sleeping.supervisor.heard(over)
    sleeping.supervisor.tick(boottime() + 60)
    sleeping.process.wait()
    sleeping.supervisor.exited(signal.SIGKILL, 0.0, 0)
    assert sleeping.kinds()[-1] == "completed"


@pytest.mark.parametrize("kills", [0, 1])
def test_a_process_that_the_kernel_killed_for_memory_is_told_so(tmp_path: Path, kills: int) -> None:
    """From the count in its cgroup; a SIGKILL without it was somebody else's."""
    cgroup = tmp_path / "cgroup"
    cgroup.mkdir()
    events = cgroup / "memory.events"
    events.write_text("low 0\noom 0\noom_kill 0\n")
    sleeping = Sleeping(tmp_path, cgroup_work=str(cgroup))
    events.write_text(f"low 0\noom {kills}\noom_kill {kills}\n")
    sleeping.reap()
    *_, used, failed = sleeping.told
    assert failed["error_kind"] == ("out_of_memory" if kills else "signal")
    assert (used["cpu_seconds"], used["memory_bytes"]) == (2.0, 3 << 20)
    sleeping.close()
