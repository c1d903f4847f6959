"""Several processes of one trial, connected with each other, as an image of all of them."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import select
import shutil
import signal
import socket
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, running
from tests.images.driving import WorldTrial, criu
from tests.images.test_kills import Held
from tests.trainer_shim.driving import Event, environment
from tests.trainer_shim.rank_programs import ALL_REDUCE, DDP, SOCKETS
from tests.trainer_shim.suspending import QUIET
from tests.trainer_shim.test_ranks import IN_A_ROUND, ROUNDS, last_words, undisturbed
from tests.trainer_shim.test_ranks import suspended as suspended_by_one_host
from tests.waiting import until
from trainer_shim.host import image
from trainer_shim.host.freeze import descendants
from trainer_shim.program import connections

pytestmark = [pytest.mark.image, pytest.mark.timeout(300)]

# Of these Hermes can have no checkpoint: the first is seen to make steps, the others are not, and
# are stopped wherever they are. Each prints a line once all are connected.
_SAVE, _FIRST = ", save=save", "for step in range(first"
_LOOP, _EPOCH = "for x, y in loader:", "    sampler.set_epoch"
assert _EPOCH in DDP
assert _SAVE in ALL_REDUCE
assert _FIRST in ALL_REDUCE
assert _LOOP in DDP
_READY = 'print("connected", flush=True)\n'
# However quick the machine is, they are not at their end before they have been suspended.
_PACE = "    if step % 10 == 0: time.sleep(0.002)\n"
_STEP = "    weight += 1e-3"
assert _STEP in ALL_REDUCE
REPORTS = ALL_REDUCE.replace(_SAVE, "").replace(_FIRST, _READY + _FIRST)
REPORTS = REPORTS.replace(_STEP, _PACE + _STEP)
BLIND = SOCKETS.replace("import trainer_shim", "") + textwrap.dedent("""
    mine, weight = random.Random(rank), 1.0
    print("connected", flush=True)
    for step in range(int(sys.argv[1])):
        if step % 10 == 0: time.sleep(0.002)
        weight += 1e-3 * all_reduce(mine.random() - weight)
    print(rank, weight.hex(), flush=True)
""")
DDP_BLIND = DDP.replace(_LOOP, "for x, y in [*loader]:").replace("for epoch", _READY + "for epoch")
DDP_BLIND = DDP_BLIND.replace(_EPOCH, f"    __import__('time').sleep(0.02)\n{_EPOCH}")


def tool(folder: Path) -> str:
    """A CRIU that holds connections; skips the test where none does."""
    found = criu(folder)
    if not connections.are_held():
        pytest.skip("open connections take rights over the network")
    return found


def trial_of(folder: Path, width: int, program: str, *arguments: str, **fields: Any) -> WorldTrial:
    """A trial of so many processes, where images of connected ones can be made."""
    script = folder / "cut.py"
    script.write_text(program)
    argv = [sys.executable, str(script), *arguments]
    env, ranks = environment(**QUIET), [{}] * width
    return WorldTrial(folder / "cut", argv, env, ranks=ranks, criu=tool(folder), **fields)


def suspended(trial: WorldTrial, count: int, chance: random.Random) -> int:
    """Suspend it so often, at any moments, each time by a host that ends there; how often it was,
    before its end."""
    trial.launch()
    trial.start()
    trial.until("started")
    until(lambda: "connected" in trial.output)
    for done in range(count):
        time.sleep(chance.uniform(0.0, 0.1))
        trial.suspend("checkpoint")
        event = trial.until("suspended", "completed")
        if event["kind"] == "completed":
            return done
        assert event["tier"] == "checkpoint", event
        path = event["checkpoint"]["path"]
        assert image.is_image(path)
        trial.end()
        trial.launch()
        trial.start(restore=path)
        trial.until("started")
        shutil.rmtree(path)  # 500 of them would fill a disk
    trial.until("completed")
    return count


PROGRAMS = {
    "sockets, at one step": (REPORTS, 20_000),
    "sockets, anywhere": (BLIND, 20_000),
    "PyTorch, anywhere": (DDP_BLIND, 200),
}
# A host as an ordinary user's.
POWERLESS = """
import sys
from trainer_shim.host import __main__
from trainer_shim.program import connections
connections.are_held = lambda: False
__main__.main(sys.argv[1:])
"""
SLOW = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("turn", "count"),
    [(0, 3), *(pytest.param(turn, IN_A_ROUND, marks=SLOW) for turn in ROUNDS)],
)
def test_all_are_one_image_and_train_as_if_never_stopped(
    program: str, width: int, turn: int, count: int, tmp_path: Path
) -> None:
    if "PyTorch" in program and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch here")
    text, steps = PROGRAMS[program]
    steps *= count // 3
    expected = undisturbed(tmp_path / "plain", width, steps, text)
    trial = trial_of(tmp_path, width, text, str(steps), seed=1)
    try:
        assert suspended(trial, count, random.Random(f"{width} {turn}")) == count
        assert last_words(trial, width) == expected
    finally:
        trial.end()


@pytest.mark.parametrize(("tier", "count"), [("park", 10), ("checkpoint", 3)])
def test_those_that_have_a_checkpoint_are_suspended_by_it(
    tier: str, count: int, tmp_path: Path
) -> None:
    """Though they are no children of the host."""
    expected = undisturbed(tmp_path / "plain", 3, 20_000)
    trial = trial_of(tmp_path, 3, ALL_REDUCE, "20000")
    try:
        trial.launch()
        assert suspended_by_one_host(trial, tier, count, random.Random(count)) == count
        assert last_words(trial, 3) == expected
        assert not any(map(image.is_image, map(str, trial.checkpoints.iterdir())))
        until(lambda: processes(trial) == {})
    finally:
        trial.end()


# Each waits for what never comes, and none learns that another has gone.
IDLE = BLIND.replace("    weight +=", "    time.sleep(3600)\n    weight +=")


@pytest.fixture
def of_two(tmp_path: Path) -> Iterator[WorldTrial]:
    """A trial of two processes that are connected."""
    trial = trial_of(tmp_path, 2, IDLE, "1")
    try:
        trial.launch()
        connected(trial)
        yield trial
    finally:
        trial.end()


def connected(trial: WorldTrial, restore: str | None = None) -> list[int]:
    """The process numbers of the first and the others, as the trial's world has them."""
    trial.start(restore)
    started = trial.until("started")
    until(lambda: "connected" in trial.output)
    return [started["worker_pid"], *started["rank_pids"]]


def imaged(trial: WorldTrial) -> str:
    """Suspended by an image, by a host that ends."""
    trial.suspend("checkpoint")
    path = trial.until("suspended")["checkpoint"]["path"]
    assert image.is_image(path)
    trial.end()
    return str(path)


def failure(trial: WorldTrial) -> Event:
    with pytest.raises(AssertionError):
        trial.until("completed")
    return trial.events[-1]


def processes(trial: WorldTrial) -> dict[int, int]:
    """Of what is below the host: the numbers in the trial's world, and in this one."""
    found = {}
    for pid in descendants(trial.pid, ()):
        with suppress(FileNotFoundError):
            status = Path(f"/proc/{pid}/status").read_text()
            found[int(status.partition("NSpid:")[2].splitlines()[0].split()[-1])] = pid
    return found


def test_an_image_in_passing_is_gone_on_from_though_a_host_is_killed_while_it_restores(
    tmp_path: Path,
) -> None:
    """All processes are there again by then, and none has gone on."""
    expected = undisturbed(tmp_path / "plain", 2, 20_000, BLIND)
    trial = trial_of(tmp_path, 2, BLIND, "20000")
    spec = json.loads(trial.spec.read_text())
    held = Held(tmp_path, spec["criu"])
    trial.spec.write_text(json.dumps({**spec, "criu": str(held.path)}))
    try:
        trial.launch()
        connected(trial)
        trial.send("checkpoint", id="passing")
        path = trial.until("checkpointed")["path"]
        trial.end()
        held.hold("amid post-restore")
        trial.launch()
        trial.start(path)
        until(lambda: held.is_held)
        left = [os.pidfd_open(pid) for pid in descendants(trial.pid, ())]
        assert len(left) > 3, "two, one above them, and CRIU"
        trial.end()
        for fd in left:
            select.select([fd], [], [])  # it ends with its world
            os.close(fd)
        held.go_on()
        trial.launch()
        trial.start(path)
        trial.until("completed")
        assert last_words(trial, 2) == expected
    finally:
        trial.end()


def test_a_port_that_is_taken_is_told_and_is_no_fault_of_the_image(of_two: WorldTrial) -> None:
    trial = of_two
    (port,) = {
        int(line.split()[1].partition(":")[2], 16)
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in sockets(trial)
    }
    path = imaged(trial)
    trial.launch()
    with socket.create_server(("127.0.0.1", port)):
        trial.start(path)
        failed = failure(trial)
    assert failed["error_kind"] == "unfit"
    assert failed["detail"] == f"its image cannot be brought back: {image.PORT_TAKEN}"
    assert processes(trial) == {}
    trial.start(path)
    trial.until("started")
    assert image.is_image(imaged(trial))


def test_ports_of_connections_that_ended_a_moment_ago_are_waited_for(of_two: WorldTrial) -> None:
    """The system keeps them for a minute, unless they ended with data that nobody had read."""
    trial = of_two
    trial.send("checkpoint", id="passing")
    path = trial.until("checkpointed")["path"]
    for _ in range(2):
        trial.end()
        trial.launch()
        trial.start(path)
        trial.until("started")


def sockets(trial: WorldTrial) -> set[str]:
    fds = [fd for pid in descendants(trial.pid, ()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return {os.readlink(fd) for fd in fds}


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("is_parked", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_is_killed_is_told_of_at_once_and_takes_the_others_with_it(
    of_two: WorldTrial, rank: int, is_parked: bool, is_back: bool
) -> None:
    """Though it is no child of the host."""
    trial = of_two
    if is_back:
        path = imaged(trial)
        trial.launch()
        pids = connected(trial, path)
    else:
        started = next(each for each in trial.events if each["kind"] == "started")
        pids = [started["worker_pid"], *started["rank_pids"]]
    if is_parked:
        trial.suspend("park")
        trial.until("parked")
    os.kill(processes(trial)[pids[rank]], signal.SIGKILL)
    failed = failure(trial)
    assert failed["error_kind"] == "killed"
    assert failed.get("rank", 0) == rank
    assert processes(trial) == {}


def test_one_that_fails_ends_the_trial_with_its_error(tmp_path: Path) -> None:
    text = BLIND.replace(
        "    weight += 1e-3",
        "    if rank == 1 and step == 9: sys.exit('so it is')\n    weight += 1e-3",
    )
    trial = trial_of(tmp_path, 3, text, "100000000")
    try:
        trial.launch()
        trial.start()
        failed = failure(trial)
    finally:
        trial.end()
    assert (failed["error_kind"], failed["rank"]) == ("exit", 1)
    assert failed["detail"].startswith("rank 1: the program called sys.exit(1): so it is")


@pytest.mark.parametrize(
    ("listens", "connects"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")]
)
def test_one_process_that_is_connected_with_itself_is_held_too(
    listens: str, connects: str, tmp_path: Path
) -> None:
    family = int(socket.AF_INET6 if ":" in listens else socket.AF_INET)
    text = f"""
import socket, time
server = socket.create_server(("{listens}", 0), family={family}, dualstack_ipv6="{listens}" == "::")
client = socket.create_connection(("{connects}", server.getsockname()[1]))
end, _ = server.accept()
print("connected", flush=True)
for step in range(300):
    client.sendall(b"%d" % step); time.sleep(0.02)
    print(end.recv(100), flush=True)
"""
    trial = trial_of(tmp_path, 0, text)
    try:
        assert suspended(trial, 2, random.Random(listens)) == 2
    finally:
        trial.end()
    assert trial.output == "connected\n" + "".join(f"{b'%d' % step}\n" for step in range(300))


def test_where_there_are_no_rights_over_the_network_they_are_parked_and_it_is_said(
    tmp_path: Path,
) -> None:
    """As in a namespace of an ordinary user."""
    trial = trial_of(tmp_path, 2, BLIND, "20000")
    trial.host = "-c", POWERLESS
    try:
        trial.launch()
        connected(trial)
        trial.suspend("checkpoint")
        trial.until("parked")
        fidelity = [each for each in trial.events if each["kind"] == "fidelity"][-1]
        assert fidelity["level"] == "park-only"
        assert "connected with each other, which takes root's rights" in fidelity["reason"]
        trial.resume()
        trial.until("completed")
    finally:
        trial.end()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a short path, and a CRIU that nodes find."""
    folder = tmp_path_factory.mktemp("c")
    monkeypatch.setenv("HERMES_NODE_CRIU", tool(folder))
    return folder


async def test_a_trial_of_two_devices_comes_to_the_same_on_a_node_that_is_drained_amid_it(
    folder: Path,
) -> None:
    steps, pauses = 300, "    time.sleep(0.02)\n    weight +="
    program = BLIND.replace("int(sys.argv[1])", str(steps)).replace("    weight +=", pauses)
    expected = undisturbed(folder / "plain", 2, 0, program)
    (folder / "cluster").mkdir()
    async with running(folder / "cluster", slots=2, kind=Cluster) as cluster:
        study = await cluster.submit(
            "blind",
            {"train.py": program},
            {"rate": [0.01]},
            resources=types_pb2.Resources(devices=2),
        )
        trial = folder / "cluster" / "node" / "trials" / study / "1"
        await cluster.until(lambda: "connected" in _text(trial / "output.log"))
        drain = control.DrainNodeRequest(node="local", request_id="1")
        await cluster.stub.DrainNode(drain)
        await cluster.until(lambda: list(trial.glob("checkpoints/*/manifest.json")))
        await cluster.until(lambda: not cluster.pids("host"))
        (path,) = trial.glob("checkpoints/a*")
        assert image.is_image(str(path))
        await cluster.stub.UndrainNode(control.UndrainNodeRequest(node="local", request_id="2"))
        answer = await cluster.finished(study)
        assert [each.state for each in answer.trials] == [types_pb2.TRIAL_STATE_COMPLETED]
        logs = [_text(trial / f"output.log{end}") for end in ("", ".rank1")]
    assert [log.splitlines()[-1] for log in logs] == expected
    assert [log.count("connected") for log in logs] == [1, 1]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
