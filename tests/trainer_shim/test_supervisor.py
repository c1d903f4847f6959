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
from trainer_shim.channel.frames import FrameConnection, send
from trainer_shim.channel.page import ControlPage
from trainer_shim.host.event_log import boottime
from trainer_shim.host.freeze import WorkGroup
from trainer_shim.host.supervisor import Supervisor
from trainer_shim.host.worker import Worker
from trainer_shim.spec import Spec

Told = list[dict[str, Any]]


class Alone(WorkGroup):
    """One process of those below the test's own, which has others: the tracker of a pool's
    semaphores must outlive what this group kills."""

    def __init__(self, pid: int, cgroup: str | None) -> None:
        super().__init__(os.getpid(), cgroup)
        self._pid = pid

    def members(self) -> set[int]:
        return super().members() & {self._pid}


class Sleeping:
    """A supervisor whose trial is a process that sleeps; its agent is the test."""

    def __init__(
        self,
        folder: Path,
        restore: str | None = None,
        command: tuple[str, ...] = ("sleep", "1000"),
        **fields: Any,
    ) -> None:
        trial = Trial(folder / "t", ["sleep"], **fields)
        self.told: Told = []
        spec = Spec.load(str(trial.spec))
        self.supervisor = Supervisor(spec, self.told.append)
        self.process = subprocess.Popen(command)
        self.supervisor.group = Alone(self.process.pid, spec.cgroup_work)
        ours, self.agent = socket.socketpair()
        self.pipe, self.output = os.pipe()
        os.set_blocking(self.pipe, False)
        worker = Worker(self.process.pid, FrameConnection(ours), ControlPage.create(), self.pipe)
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
    supervisor.group = Alone(0, None)
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
    assert (fidelity["level"], "boundaries" in fidelity["reason"]) == ("park-only", True)
    assert (started["kind"], started["step"]) == ("started", 0)


def test_a_program_back_at_its_checkpoint_may_have_no_boundary_left(tmp_path: Path) -> None:
    sleeping = Sleeping(tmp_path, restore="somewhere")
    supervisor = sleeping.supervisor
    supervisor.heard({"kind": "hello", "framework": "keras"})
    supervisor.heard({"kind": "restored"})
    supervisor.tick(boottime() + 10)
    assert sleeping.kinds() == ["fidelity", "started"]
    sleeping.close()


def test_a_program_that_is_starting_can_be_parked(sleeping: Sleeping) -> None:
    supervisor = sleeping.supervisor
    supervisor.heard({"kind": "hello", "framework": "keras"})
    supervisor.suspend("park", 5.0)
    while supervisor.phase != "parked":
        supervisor.tick(boottime())
    assert sleeping.kinds()[-1] == "parked"


def test_what_a_program_has_said_when_it_is_stopped_is_told_before_that(
    sleeping: Sleeping,
) -> None:
    """A report of its last steps, on its way out: told later, it would be of no present run."""
    supervisor = sleeping.supervisor
    supervisor.heard({"kind": "begun", "step": 0})
    sleeping.kinds()
    worker = supervisor.worker
    assert worker is not None
    worker.page.step = 3
    report = {"kind": "reported", "last_step": 3, "points": [], "count": 3, "cpu_seconds": 0.0}
    send(sleeping.agent, report)
    supervisor.suspend("park", 60.0)
    while supervisor.phase != "parked":
        supervisor.tick(boottime())
    told = [event["kind"] for event in sleeping.told if event.get("count") != 0]
    assert told == ["reported", "parked"]


def looked_at(sleeping: Sleeping, start: float, seconds: int) -> float:
    """The supervisor looks at its trial each 5 s of a clock of ours."""
    for now in range(5, seconds + 1, 5):
        sleeping.supervisor.tick(start + now)
    return start + seconds


@pytest.mark.parametrize("said", [{"kind": "blind"}, {"kind": "hello", "framework": "keras"}])
def test_a_program_without_boundaries_that_is_idle_and_silent_has_hung(
    sleeping: Sleeping, said: dict[str, str]
) -> None:
    """However long one takes that computes or prints: it may prepare its data for an hour."""
    sleeping.supervisor.heard(said)
    start = boottime() + 60
    sleeping.supervisor.tick(start)
    looked_at(sleeping, start, 835)
    assert sleeping.process.poll() is None
    looked_at(sleeping, start + 835, 75)
    _, status, _ = os.wait4(sleeping.process.pid, 0)
    sleeping.process.returncode = os.waitstatus_to_exitcode(status)
    sleeping.supervisor.exited(status, 0.0, 0)
    failed = sleeping.told[-1]
    assert (failed["kind"], failed["error_kind"]) == ("failed", "hung")
    words = "for 900 s (retry.hung_seconds) it has printed nothing and used less than 1% of a core"
    assert words in failed["detail"]


@pytest.mark.parametrize(
    "sign", ["prints", "computes", "reads and writes", "was parked", "was not looked at"]
)
def test_a_sign_of_life_begins_the_wait_anew(
    sleeping: Sleeping, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    supervisor = sleeping.supervisor
    supervisor.heard({"kind": "blind"})
    now = looked_at(sleeping, boottime(), 600)
    if sign == "prints":
        os.write(sleeping.output, b"still here")
        supervisor.output.pump(sleeping.pipe)
    elif sign == "computes":
        monkeypatch.setattr(supervisor.group, "cpu_seconds", lambda: 0.06)
    elif sign == "reads and writes":
        monkeypatch.setattr(supervisor.group, "moved_bytes", lambda: 1 << 20)
    elif sign == "was parked":
        supervisor.run.resuming()
        supervisor.run.say_resumed()
    else:
        now += 10_000  # the machine slept
    looked_at(sleeping, now, 600 if sign != "was not looked at" else 200)
    assert sleeping.process.poll() is None
    assert not supervisor.run.is_over


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


def test_each_second_on_the_device_is_told_once(
    sleeping: Sleeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the program or, while that is silent, by its host; none of it is lost at the end."""
    supervisor = sleeping.supervisor
    clock = {"now": boottime(), "cpu": 10.0}
    monkeypatch.setattr("trainer_shim.host.run.boottime", lambda: clock["now"])
    monkeypatch.setattr(supervisor.group, "cpu_seconds", lambda: clock["cpu"])
    report = {"kind": "reported", "last_step": 3, "points": [], "count": 1}

    def told(seconds: float, cpu: float) -> list[tuple[float, float]]:
        clock["now"] += seconds
        clock["cpu"] += cpu
        supervisor.tick(clock["now"])
        said = [
            (pytest.approx(event["busy_seconds"]), pytest.approx(event["cpu_seconds"]))
            for event in sleeping.told
            if event["kind"] == "reported"
            and (event["busy_seconds"], event["cpu_seconds"]) != (0, 0)
        ]
        sleeping.told.clear()
        return said

    supervisor.heard({"kind": "hello", "framework": "keras"})
    supervisor.heard({"kind": "begun", "step": 0})
    assert told(4.0, 4.0) == []
    supervisor.heard({**report, "cpu_seconds": 4.0})
    assert told(0.0, 0.0) == [(4.0, 4.0)]
    assert told(5.0, 2.0) == [(5.0, 2.0)]
    assert told(1.0, 1.0) == []
    supervisor.heard({**report, "cpu_seconds": 3.0})
    assert told(0.0, 0.0) == [(1.0, 1.0)]
    supervisor.suspend("park", 60.0)
    supervisor.heard({"kind": "at_boundary", "step": 3, "cause": "request"})
    while supervisor.phase != "parked":
        supervisor.tick(boottime())
    assert told(1000.0, 0.0) == []
    supervisor.resume(2, None, None)
    assert told(2.0, 0.5) == []
    sleeping.reap()
    assert told(0.0, 0.0) == [(2.0, 0.0)]  # the kernel's word of the processor: no more than told


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
    now = looked_at(sleeping, boottime(), 55)
    assert sleeping.process.poll() is None
    looked_at(sleeping, now, 20)
    sleeping.process.wait()
    sleeping.supervisor.exited(signal.SIGKILL, 0.0, 0)
    assert sleeping.kinds()[-1] == "completed"


def test_a_program_over_may_exit_as_long_as_it_does_something(
    sleeping: Sleeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit handlers may save and upload; but not for ever."""
    used = iter(range(10_000))
    monkeypatch.setattr(sleeping.supervisor.group, "cpu_seconds", lambda: float(next(used)))
    over = {"kind": "completed", "exit_code": 0, "checkpoint": None, "metrics": {}}
    sleeping.supervisor.heard(over)
    now = looked_at(sleeping, boottime(), 3500)
    assert sleeping.process.poll() is None
    looked_at(sleeping, now, 200)
    sleeping.process.wait()
    sleeping.supervisor.exited(signal.SIGKILL, 0.0, 0)
    assert sleeping.kinds()[-1] == "completed"


def test_how_long_a_program_may_show_nothing_is_the_studys_affair(tmp_path: Path) -> None:
    sleeping = Sleeping(tmp_path, hung_seconds=3000.0)
    sleeping.supervisor.heard({"kind": "blind"})
    now = looked_at(sleeping, boottime(), 2900)
    assert sleeping.process.poll() is None
    looked_at(sleeping, now, 200)
    sleeping.process.wait()
    sleeping.supervisor.exited(signal.SIGKILL, 0.0, 0)
    assert "for 3000 s (retry.hung_seconds)" in sleeping.told[-1]["detail"]
    sleeping.close()


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
    assert failed["error_kind"] == ("out_of_memory" if kills else "killed")
    assert (used["cpu_seconds"], used["memory_bytes"]) == (2.0, 3 << 20)
    sleeping.close()
