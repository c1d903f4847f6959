"""What a user's program can do beside the daemon and the programs of others, as an account that is
its user's alone. With a root's daemon, its hosts, and accounts that are really others'."""

import asyncio
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from hermesd.config.schema import NodeConfig, UserTerms
from hermesd.config.slots import SlotSetting
from hermesd.core.commands import Release
from hermesd.core.events import (
    Copied,
    NodeJoined,
    NotCopied,
    Reported,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunSuspended,
)
from hermesd.core.model import RunId, Tier, Venv
from hermesd.core.node.messages import Fetch
from hermesd.expecting import StateRefused
from hermesd.head.statedir import owned
from hermesd.node.daemon import require_run_as, run_node
from hermesd.node.deep_trees import PARTIAL
from hermesd.node.machine import accounts, processes
from hermesd.node.machine.accounts import Accounts, NoAccount
from hermesd.node.machine.cgroups import NoCgroups
from hermesd.node.machine.environment import OWNER
from hermesd.node.machine.venvs import NotMade, Venvs
from hermesd.node.outbox import Outbox
from hermesd.node.runner.cleanup import end_everything
from hermesd.node.storage import checkpoints, gone_users
from hermesd.node.storage.shared_directory import SharedAway
from hermesd.node.storage.trial_folder import TrialFolder, TrialFolders
from hermesd.pb.hermes.v1 import node_pb2 as pb
from tests.node.conftest import (
    CPU1,
    PROGRAM,
    Head,
    Node,
    becomes,
    daemon_process,
    worker_of,
)
from tests.node.test_checkpoints import build

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="no root here")

# Tests beside these have others.
FIRST = 400_000 + os.getpid() % 900 * 128
PROBE = """
import ctypes, json, os, signal, sys
wanted = json.load(open(sys.argv[1]))
found = {}
def attempt(name, deed):
    try:
        found[name] = str(deed())
    except OSError as error:
        found[name] = error.strerror
def ptrace(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "attached"
for path in wanted["paths"]:
    attempt(path, lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read())
for name, pid in wanted["pids"].items():
    attempt(f"signal {name}", lambda: os.kill(pid, 0))
    attempt(f"ptrace {name}", lambda: ptrace(pid))
    attempt(f"environment of {name}", lambda: open(f"/proc/{pid}/environ", "rb").read())
attempt("root", lambda: os.setuid(0))
attempt("remove", lambda: os.unlink(wanted["paths"][0]))
found["uid"] = os.getuid()
found["groups"] = os.getgroups()
found["environment"] = dict(os.environ)
print("FOUND", json.dumps(found), flush=True)
"""


@pytest.fixture
def config(tmp_path: Path) -> Iterator[NodeConfig]:
    """A node whose programs run as throw-away accounts, where these can come to."""
    state = Path(tempfile.mkdtemp(prefix="hermes-"))
    state.chmod(0o755)
    # Somebody was careless.
    membership = state / "node" / "membership"
    membership.mkdir(parents=True, mode=0o777)
    (membership / "key.pem").write_text("the node's key")
    yield NodeConfig(
        name="n1",
        state_dir=state / "node",
        head=f"unix:{tmp_path}/head.sock",
        cpu_slots=(SlotSetting((0,)), SlotSetting((0,))),
        gpus=False,
        run_as=f"{FIRST}-{FIRST + 100}",
        criu="off",
    )
    shutil.rmtree(state)


@pytest.fixture
async def node(head: Head, config: NodeConfig, no_survivors: None) -> AsyncIterator[Node]:
    async with Node(config) as serving:
        await head.hears(NodeJoined)
        yield serving


ALICE, BOB = "alice", "bob"
ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"  # that of the tests may be in a home of root's
LONG = (PYTHON, "train.py", "100000", "0.005")
Launch = Callable[..., RunId]


async def probed(head: Head, launch: Launch, folder: Path, **wanted: object) -> dict[str, object]:
    """What a program of Bob's came to that tried all this."""
    asked = folder / "wanted.json"
    asked.write_text(json.dumps(wanted))
    asked.chmod(0o644)
    run = launch(
        "pry/1",
        argv=(PYTHON, "train.py", str(asked)),
        program=PROBE,
        device=CPU1,
        user=BOB,
        python=PYTHON,
    )
    await head.hears(RunCompleted, run)
    ticket = pb.SendFile(ticket=4711, trial="pry/1", log=pb.LogRange())
    head.send(ticket)
    await head.until(lambda: any(chunk.last for chunk in head.chunks))
    said = b"".join(chunk.data for chunk in head.chunks).decode()
    line = next(line for line in said.splitlines() if line.startswith("FOUND"))
    found: dict[str, object] = json.loads(line.removeprefix("FOUND "))
    return found


def uid_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


async def test_a_program_comes_to_nothing_of_the_daemon_or_of_others(
    head: Head, node: Node, running: Callable[..., Awaitable[RunId]], launch: Launch
) -> None:
    state = node.config.state_dir
    membership = state / "membership"
    secret = (("API_KEY", "alices-own"),)
    theirs = await running(argv=LONG, user=ALICE, environment=secret, python=PYTHON)
    host, worker = worker_of(node)
    closed = [
        *(membership, membership / "key.pem"),
        *(state / "trials" / "digits" / "1", state / "trials" / "digits" / "1" / "spec.json"),
        *(state / "runs", state / "runs" / "digits" / "1" / "run.pb"),
        *(state / "accounts.json", state / "homes" / str(FIRST + 1), state / "code", state),
    ]
    pids = {"the daemon": os.getpid(), "a host": host, "a program": worker}
    found = await probed(
        head, launch, state.parent, paths=[str(each) for each in closed], pids=pids
    )
    for path in closed:
        assert found[str(path)] == "Permission denied", path
    for name in pids:
        assert found[f"signal {name}"] == "Operation not permitted"
        assert found[f"ptrace {name}"] == "Operation not permitted"
        assert found[f"environment of {name}"] == "Permission denied"
    assert found["root"] == "Operation not permitted"
    assert found["remove"] in ("Permission denied", "Is a directory")
    assert (uid_of(worker), uid_of(host)) == (FIRST + 1, FIRST + 1)
    assert (found["uid"], found["groups"]) == (FIRST + 2, [])
    environment = found["environment"]
    assert isinstance(environment, dict)
    assert environment["HOME"] == str(state / "homes" / str(FIRST + 2))
    assert not [event for event in head.events if isinstance(event, RunFailed)], theirs


# The text of a program names a framework: it is forked from a warm interpreter of its account.
WARM = "# as one of keras\n" + PROGRAM


@pytest.mark.parametrize("program", [PROGRAM, WARM], ids=["cold", "warm"])
async def test_it_is_parked_saved_and_goes_on_as_its_user(
    head: Head,
    node: Node,
    launch: Launch,
    running: Callable[..., Awaitable[RunId]],
    suspended: Callable[..., Awaitable[RunSuspended]],
    program: str,
) -> None:
    of_alice = {"user": ALICE, "python": PYTHON, "argv": LONG, "program": program}
    first = await running(**of_alice)
    worker = min(processes.below(host_of_account(FIRST + 1)))
    assert (await suspended(first, Tier.PARK)).tier is Tier.PARK
    second = await running(attempt=2, parked=first, **of_alice)
    assert min(processes.below(host_of_account(FIRST + 1))) == worker, "it was parked"
    kept = (await suspended(second, Tier.CHECKPOINT)).checkpoint
    assert kept is not None
    after = len(head.events)
    third = launch(attempt=3, checkpoint=kept, **of_alice)
    assert (await head.hears(RunStarted, third, after)).step == kept.step
    await head.hears(Reported, third, after)
    head.send(pb.SendFile(ticket=1, trial="digits/1", checkpoint=kept.id))
    await head.until(lambda: any(chunk.last for chunk in head.chunks))
    assert {"manifest.json", "state.json"} <= {chunk.name for chunk in head.chunks}
    head.send(Release("digits/1", "n1", forget=True))
    await becomes(lambda: not (node.config.state_dir / "trials" / "digits" / "1").exists())


def confined() -> tuple[str, ...]:
    """What starts a program with the rights that the unit leaves to a daemon which runs programs as
    their users, and shows it and them the processes that the unit does."""
    text = (ROOT / "systemd" / "hermesd-node-accounts.conf").read_text()
    lines = dict(each.split("=", 1) for each in text.splitlines() if "=" in each[1:])
    names = [name.removeprefix("CAP_").lower() for name in lines["CapabilityBoundingSet"].split()]
    rights = ",".join(["-all", *(f"+{name}" for name in names)])
    mount = f"mount -t proc -o hidepid={lines['ProtectProc']} proc /proc"
    words = f'{mount} && exec setpriv --bounding-set={rights} "$0" "$@"'
    return ("unshare", "--mount", "sh", "-c", words)


@pytest.mark.skipif(
    subprocess.run([*confined(), "true"], capture_output=True, check=False).returncode != 0,
    reason="no file systems can be mounted here",
)
async def test_what_its_unit_leaves_the_daemon_is_enough_and_programs_see_nobody_else(
    head: Head,
    config: NodeConfig,
    no_survivors: None,
    launch: Launch,
    running: Callable[..., Awaitable[RunId]],
    suspended: Callable[..., Awaitable[RunSuspended]],
) -> None:
    of_alice = {"user": ALICE, "python": PYTHON, "argv": LONG}
    daemon = await daemon_process(config, before=confined())
    try:
        await head.hears(NodeJoined)
        first = await running(**of_alice)
        assert (await suspended(first, Tier.PARK)).tier is Tier.PARK
        second = await running(attempt=2, parked=first, device=CPU1, **of_alice)
        kept = (await suspended(second, Tier.CHECKPOINT)).checkpoint
        assert kept is not None
        third = launch(attempt=3, checkpoint=kept, **of_alice)
        after = len(head.events)
        assert (await head.hears(RunStarted, third, after)).step == kept.step
        host = f"/proc/{os.getpid()}/cmdline"
        found = await probed(head, launch, config.state_dir.parent, paths=[host], pids={})
        assert found[host] == "No such file or directory"
        daemon.kill()
        await daemon.wait()
        daemon = await daemon_process(config, before=confined())
        await head.hears(NodeJoined, count=2)
        assert "digits/1" in {run.trial for run in head.hello.runs}, "it was adopted"
        await suspended(third, Tier.KILL)
        head.send(Release("digits/1", "n1", forget=True))
        await becomes(lambda: not (config.state_dir / "trials" / "digits" / "1").exists())
    finally:
        daemon.terminate()
        await daemon.wait()


def host_of_account(uid: int) -> int:
    """The host that runs as this number: a process of nobody's."""
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    ours = {pid for pid in pids if processes.runs_as(pid, uid)}
    found = {pid for pid in ours if processes.below(pid) and processes.parent(pid) not in ours}
    (host,) = found
    return host


IDENTITY = "0f1e2d3c"


@pytest.fixture
def shared(config: NodeConfig) -> Path:
    """A directory that this node shares with others, of which somebody was careless."""
    root = config.state_dir.parent / "nfs"
    (root / IDENTITY).mkdir(parents=True, mode=0o777)
    (root / IDENTITY).chmod(0o777)
    return root


async def test_what_nodes_share_of_a_trial_is_open_to_no_program_and_comes_back_as_its_users(
    head: Head,
    config: NodeConfig,
    shared: Path,
    no_survivors: None,
    launch: Launch,
    running: Callable[..., Awaitable[RunId]],
    suspended: Callable[..., Awaitable[RunSuspended]],
) -> None:
    of_alice = {"user": ALICE, "python": PYTHON, "argv": LONG, "identity": IDENTITY}
    async with Node(config.model_copy(update={"shared_dir": shared})):
        await head.hears(NodeJoined)
        first = await running(**of_alice)
        kept = (await suspended(first, Tier.CHECKPOINT)).checkpoint
        assert kept is not None
        head.send(Fetch(kept, (), (), "n1", IDENTITY, user=ALICE))
        await head.hears(Copied)
        folder = shared / IDENTITY / "digits" / "1"
        (copy,) = folder.iterdir()
        assert {path.stat().st_uid for path in shared.rglob("*")} == {0}
        closed = [shared / IDENTITY, folder, copy, copy / "manifest.json"]
        found = await probed(
            head, launch, config.state_dir.parent, paths=[str(each) for each in closed], pids={}
        )
        assert {found[str(path)] for path in closed} == {"Permission denied"}
        shutil.rmtree(config.state_dir / "trials" / "digits" / "1" / "checkpoints")
        second = launch(attempt=2, checkpoint=kept, **of_alice)
        after = len(head.events)
        assert (await head.hears(RunStarted, second, after)).step == kept.step
        brought = config.state_dir / "trials" / "digits" / "1" / "checkpoints"
        assert {path.stat().st_uid for path in brought.rglob("*")} == {FIRST + 1}


async def test_a_link_in_a_checkpoint_has_nodes_share_or_write_nothing_of_the_daemons(
    head: Head,
    config: NodeConfig,
    shared: Path,
    no_survivors: None,
    running: Callable[..., Awaitable[RunId]],
    suspended: Callable[..., Awaitable[RunSuspended]],
) -> None:
    of_alice = {"user": ALICE, "python": PYTHON, "argv": LONG, "identity": IDENTITY}
    membership = config.state_dir / "membership"
    async with Node(config.model_copy(update={"shared_dir": shared})):
        await head.hears(NodeJoined)
        kept = (await suspended(await running(**of_alice), Tier.CHECKPOINT)).checkpoint
        assert kept is not None
        (path,) = (config.state_dir / "trials" / "digits" / "1" / "checkpoints").iterdir()
        (path / "state.json").unlink()
        (path / "state.json").symlink_to(membership / "key.pem")
        (path / ".lent").symlink_to(membership / "made-by-root")
        head.send(Fetch(kept, (), (), "n1", IDENTITY, user=ALICE))
        told = await head.hears(NotCopied)
    assert "Permission denied" in told.reason
    assert not (membership / "made-by-root").exists()
    assert b"the node's key" not in b"".join(
        file.read_bytes() for file in shared.rglob("*") if file.is_file()
    )


@pytest.mark.parametrize("harm", ["open", "of another"])
async def test_a_shared_directory_that_others_may_write_to_is_refused(
    config: NodeConfig, shared: Path, harm: str
) -> None:
    if harm == "open":
        shared.chmod(0o777)
    else:
        os.chown(shared, FIRST + 1, FIRST + 1)
    with pytest.raises(SharedAway, match="the daemon's, and writable by nobody else"):
        await run_node(
            config.model_copy(update={"shared_dir": shared}),
            os.environ, asyncio.Event(), lambda: None,
        )  # fmt: skip


LINKING = """
import os, sys, time
here = os.path.dirname(os.getcwd())
for name in ("output.log", "events.jsonl"):
    os.rename(os.path.join(here, name), os.path.join(here, "was-" + name))
    os.symlink(sys.argv[1], os.path.join(here, name))
os.symlink(sys.argv[1], "model.bin")
os.mkfifo("never")
print("linked", flush=True)
"""


async def test_a_link_in_the_place_of_its_files_leads_to_nothing_of_the_daemons(
    head: Head, node: Node, launch: Launch
) -> None:
    key = node.config.state_dir / "membership" / "key.pem"
    run = launch(argv=(PYTHON, "train.py", str(key)), program=LINKING, user=BOB, python=PYTHON)
    await head.hears(RunCompleted, run)
    for ticket, what in enumerate(
        ({"log": pb.LogRange()}, {"work": pb.WorkFiles(patterns=["model.bin", "never"])}), 1
    ):
        head.send(pb.SendFile(ticket=ticket, trial="digits/1", **what))
        await head.until(
            lambda ticket=ticket: any(c.last for c in head.chunks if c.ticket == ticket)
        )
    assert not [chunk for chunk in head.chunks if chunk.data]
    assert "Permission denied" in next(c.error for c in head.chunks if c.ticket == 1 and c.error)


def test_a_trial_begins_from_that_of_another_user_with_files_of_its_own(
    config: NodeConfig,
) -> None:
    (config.state_dir / "homes").mkdir(mode=0o711)
    known, name = Accounts(config), "a1-fork-s5"
    parent, child = (
        TrialFolder(config.state_dir / "trials", config.state_dir, f"of-{user}/1")
        for user in (ALICE, BOB)
    )
    parent.belong_to("hers", known.of(ALICE))
    child.belong_to("his", known.of(BOB))
    path = parent.as_owner(build, parent.checkpoints, name, 5)
    child.begin_from(parent, name)
    child.begin_from(parent, name)
    own = child.checkpoints / name
    assert checkpoints.verified(own).step == 5
    assert {file.stat().st_uid for file in (own, *own.iterdir())} == {child.uid}
    shutil.rmtree(own)
    key = config.state_dir / "membership" / "key.pem"
    key.chmod(0o600)
    (path / "weights.bin").unlink()
    (path / "weights.bin").symlink_to(key)
    with pytest.raises((checkpoints.DamagedCheckpoint, PermissionError)):
        child.begin_from(parent, name)
    assert not own.exists()


def test_no_trial_begins_from_an_image_of_another_account_s_processes(config: NodeConfig) -> None:
    (config.state_dir / "homes").mkdir(mode=0o711)
    parent, child = (
        TrialFolder(config.state_dir / "trials", config.state_dir, f"of-{user}/1")
        for user in (ALICE, BOB)
    )
    parent.belong_to("hers", Accounts(config).of(ALICE))
    child.belong_to("his", Accounts(config).of(BOB))
    parent.as_owner(build, parent.checkpoints, "a1-s5", 5, form="image")
    with pytest.raises(checkpoints.DamagedCheckpoint, match="an image of one account alone"):
        child.begin_from(parent, "a1-s5")
    assert not child.checkpoints.exists() or not list(child.checkpoints.iterdir())


async def test_the_daemon_believes_no_socket_of_somebody_else(tmp_path: Path) -> None:
    """A program that has put a link to another's socket in the place of its host's does not have
    that one's process taken, and ended, as the host of its trial."""
    theirs = tmp_path / "theirs.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(theirs))
        listener.listen()
        link = tmp_path / "host.sock"
        link.symlink_to(theirs)
        assert accounts.connected(link, FIRST) is None
        found = accounts.connected(link, os.geteuid())
        assert found is not None
        found.close()


# Started again as often as they are ended, by many.
MARKED = """
import os, sys
marked = {**os.environ, "HERMES_OWNER": sys.argv[1]}
for _ in range(40):
    if os.fork() == 0:
        while True:
            os.waitpid(os.posix_spawn("/bin/sleep", ["sleep", "1000"], marked), 0)
os.wait()
"""


async def test_programs_that_bear_the_mark_of_anothers_trial_keep_that_one_from_no_end(
    head: Head, node: Node, running: Callable[..., Awaitable[RunId]], launch: Launch
) -> None:
    trials = node.config.state_dir / "trials"
    theirs = await running(argv=LONG, user=ALICE, python=PYTHON)
    host, _ = worker_of(node)
    argv = (PYTHON, "train.py", str(trials / "digits" / "1"))
    launch("storm/1", argv=argv, program=MARKED, device=CPU1, user=BOB, python=PYTHON)
    await becomes(lambda: bool(marked_as(trials / "digits" / "1", FIRST + 2)))
    made = Venvs("n1", trials, {}, Outbox(), are_shared=False)
    async with asyncio.timeout(30):  # nor is an environment kept from being made so
        await made._end_others(trials / "digits" / "1", FIRST + 50)
    os.kill(host, signal.SIGKILL)
    await head.hears(RunFailed, theirs)
    assert marked_as(trials / "digits" / "1", FIRST + 2), "they are none of alice's"


def marked_as(trial: Path, uid: int) -> set[int]:
    """The processes of this user that bear the mark of this trial."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            if processes.started_with(pid, OWNER) == str(trial) and processes.runs_as(pid, uid):
                found.add(pid)
    return found


async def test_what_has_the_number_of_a_host_by_now_is_not_ended_for_it(
    config: NodeConfig,
) -> None:
    """A program may listen in its host's place, and have the process that began to end."""
    folder = TrialFolder(config.state_dir / "trials", config.state_dir, "digits/1")
    (config.state_dir / "homes").mkdir(mode=0o711)
    folder.belong_to("hers", Accounts(config).of(ALICE))
    provisions = SimpleNamespace(cgroups=NoCgroups("a test"))
    context = SimpleNamespace(provisions=provisions, shim=config.state_dir / "shim")
    other = await asyncio.create_subprocess_exec("sleep", "1000")
    hers = await asyncio.create_subprocess_exec("sleep", "1000", user=folder.uid)
    for process in (other, hers):
        await end_everything(context, folder, process.pid, None)  # type: ignore[arg-type]
    assert await hers.wait() == -signal.SIGKILL
    assert other.returncode is None
    other.kill()
    await other.wait()


async def test_environments_that_take_for_ever_take_one_turn_of_one_account(
    config: NodeConfig,
) -> None:
    folder = config.state_dir.parent
    (config.state_dir / "homes").mkdir(mode=0o711)
    for name, does in (("slow", "sleep 1000"), ("failing", "echo no; exit 1")):
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    known = Accounts(config)
    alice, bob = known.of(ALICE), known.of(BOB)
    made = Venvs("n1", config.state_dir / "venvs", {"PATH": "/bin"}, Outbox(), are_shared=False)
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            hers = [
                tasks.create_task(made.interpreter(Venv(str(folder / "slow"), f"# {n}"), alice))
                for n in range(3)
            ]
            await becomes(lambda: (config.state_dir / "venvs" / str(alice.uid)).is_dir())
            with pytest.raises(NotMade, match="no"):
                await made.interpreter(Venv(str(folder / "failing"), "#"), bob)
            for task in hers:
                task.cancel()
    finally:
        processes.kill_those(lambda pid: processes.runs_as(pid, alice.uid))


async def test_a_process_that_a_host_names_is_one_of_its_user_or_none() -> None:
    assert processes.numbered(os.getpid(), os.getpid(), FIRST) == 0
    assert processes.numbered(os.getpid(), os.getpid(), os.geteuid()) == os.getpid()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc here")
async def test_nothing_of_its_environment_is_loaded_before_it_is_its_users(
    head: Head, node: Node, launch: Launch
) -> None:
    folder = node.config.state_dir.parent
    told = folder / "told"
    told.touch()
    told.chmod(0o666)
    (folder / "loaded.c").write_text(
        "#include <stdio.h>\n#include <unistd.h>\n"
        "__attribute__((constructor)) static void tell(void) {\n"
        f'  FILE *file = fopen("{told}", "a");\n'
        '  if (file) { fprintf(file, "%d\\n", getuid()); fclose(file); }\n}\n'
    )
    library = folder / "loaded.so"
    words = ("cc", "-shared", "-fPIC", "-o", str(library), str(folder / "loaded.c"))
    assert await (await asyncio.create_subprocess_exec(*words)).wait() == 0
    library.chmod(0o755)
    environment = (("LD_PRELOAD", str(library)),)
    short = (PYTHON, "train.py", "3", "0.001")
    run = launch(argv=short, user=BOB, python=PYTHON, environment=environment)
    await head.hears(RunCompleted, run)
    assert set(told.read_text().split()) == {str(FIRST + 1)}


async def test_a_user_has_the_account_that_is_named_for_them_or_the_one_of_their_name(
    head: Head, config: NodeConfig, launch: Launch, no_survivors: None
) -> None:
    users = {ALICE: UserTerms(account="games")}
    async with Node(config.model_copy(update={"run_as": "users", "users": users})):
        await head.hears(NodeJoined)
        short = (PYTHON, "-c", "import os; print(os.getuid(), os.getcwd())")
        run = launch(argv=short, user=ALICE, python=PYTHON)
        await head.hears(RunCompleted, run)
        log = config.state_dir / "trials" / "digits" / "1" / "output.log"
        assert log.read_text().split()[0] == str(pwd.getpwnam("games").pw_uid)
        refused = {
            BOB: "there is no account bob",
            "root": "the account root is the system's",
            "daemon": "the account daemon is the system's",
            "": "the head does not say whose program it is",
        }
        for number, (user, reason) in enumerate(refused.items(), 2):
            run = launch(trial=f"digits/{number}", argv=short, user=user, python=PYTHON)
            failed = await head.hears(RunFailed, run)
            assert (failed.error_kind, failed.detail[: len(reason)]) == ("not_started", reason)


async def test_a_user_keeps_a_throw_away_account_over_a_restart(config: NodeConfig) -> None:
    config.state_dir.joinpath("homes").mkdir()
    assert [Accounts(config).of(user).uid - FIRST for user in (ALICE, BOB)] == [1, 2]
    assert [Accounts(config).of(user).uid - FIRST for user in ("carol", BOB, ALICE)] == [3, 2, 1]
    full = Accounts(config.model_copy(update={"run_as": f"{FIRST}-{FIRST + 3}"}))
    with pytest.raises(NoAccount, match="all of these are taken"):
        full.of("dave")


async def test_a_state_directory_that_programs_cannot_come_to_is_refused(
    config: NodeConfig,
) -> None:
    config.state_dir.parent.chmod(0o700)
    with pytest.raises(StateRefused, match=f"{config.state_dir.parent}: expected a directory"):
        await run_node(config, os.environ, asyncio.Event(), lambda: None)


@pytest.mark.parametrize("own", [True, False])
def test_a_node_of_a_head_of_others_is_told_as_whom_it_runs_programs(
    tmp_path: Path, own: bool
) -> None:
    tmp_path.chmod(0o700 if own else 0o755)
    config = NodeConfig(state_dir=tmp_path / "node", head=f"unix:{tmp_path}/head.sock")
    for run_as in ("self", "users", "400000-400100"):
        require_run_as(config.model_copy(update={"run_as": run_as}))
    with nullcontext() if own else pytest.raises(StateRefused, match='run_as: expected "self"'):
        require_run_as(config)


def test_join_keeps_the_token_where_it_was_not_told(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("invite_anything")
    words = ("join", "127.0.0.1:1", "--token-file", str(token), "--state", str(tmp_path / "node"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HERMES_")}
    done = subprocess.run(
        [sys.executable, "-m", "hermesd.cli", "node", *words],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr[:25]) == (2, "hermesd: node.run_as: exp")


def test_settings_that_would_run_programs_as_root_or_nobody_knows_whom_are_refused() -> None:
    for run_as in ("root", "0-10", "1000-2000", "400100-400000", "400000", "me"):
        with pytest.raises(ValueError, match='"self", "users" or user numbers of 65536 or more'):
            NodeConfig(run_as=run_as)
    for account in ("root", "", "../x", "a b"):
        with pytest.raises(ValueError, match="account of the machine that is not root"):
            UserTerms(account=account)


def test_what_is_the_heads_is_closed_at_its_start_whoever_made_it(tmp_path: Path) -> None:
    state = tmp_path / "head"
    names = ("authority/authority.key", "journal.db", "journal.db-wal", "token", "tokens.json")
    for name in names:
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text("secret")
        (state / name).chmod(0o666)
    (state / "blobs").mkdir(mode=0o777)
    state.chmod(0o777)
    with owned(state):
        modes = {name: stat.S_IMODE((state / name).stat().st_mode) for name in names}
        assert modes == dict.fromkeys(names, 0o600)
        folders = [stat.S_IMODE(path.stat().st_mode) for path in (state, state / "blobs")]
        assert folders == [0o750, 0o700]


async def test_what_is_left_of_a_user_who_is_gone_goes(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while a trial of theirs is here, or anything of theirs runs, or just began; and nothing
    goes that a link there leads to."""
    (config.state_dir / "homes").mkdir(mode=0o711)
    now = [0.0]
    monkeypatch.setattr(accounts, "boottime", lambda: now[0])
    known, folders = Accounts(config), TrialFolders(config.state_dir / "trials", config.state_dir)
    users = (ALICE, BOB, "carol", "dave")
    keeps, runs, begins, gone = found = [known.of(user) for user in users]
    for account in found:
        for place in ("homes", "venvs"):
            folder = config.state_dir / place / str(account.uid)
            (folder / "deep").mkdir(parents=True)
            (folder / "link").symlink_to(config.state_dir / "membership")
    folders.of("digits/1").belong_to("theirs", keeps)
    (config.state_dir / "homes" / "partial-4711" / "deep").mkdir(parents=True)

    def left(place: str) -> set[str]:
        return {path.name for path in (config.state_dir / place).iterdir()}

    everybody = {str(account.uid) for account in found}
    process = await asyncio.create_subprocess_exec("sleep", "600", user=runs.uid)
    try:
        await gone_users.remove(config.state_dir, folders, known)
        assert left("homes") == left("venvs") == everybody
        now[0] += gone_users.UNUSED_SECONDS
        assert known.of("carol") == begins
        # As a daemon leaves it that ends amid the removal.
        (config.state_dir / "homes" / f"{PARTIAL}{gone.uid}" / "left").mkdir(parents=True)
        await gone_users.remove(config.state_dir, folders, known)
        assert left("homes") == left("venvs") == everybody - {str(gone.uid)}
    finally:
        process.kill()
        await process.wait()
    await gone_users.remove(config.state_dir, folders, known)
    assert left("homes") == left("venvs") == {str(keeps.uid), str(begins.uid)}
    assert (config.state_dir / "membership" / "key.pem").exists()
    assert known.of("dave") == gone
    assert gone.home.stat().st_uid == gone.uid
    assert not any(gone.home.iterdir())


async def test_a_node_removes_it_by_itself(
    head: Head,
    config: NodeConfig,
    no_survivors: None,
    launch: Launch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gone_users, "UNUSED_SECONDS", 0.0)
    monkeypatch.setattr(gone_users, "_LOOK_SECONDS", 0.05)
    home = config.state_dir / "homes" / str(FIRST + 1)
    async with Node(config):
        await head.hears(NodeJoined)
        run = launch(user=ALICE, python=PYTHON, argv=LONG, program=PROGRAM)
        await head.hears(Reported, run)
        assert home.is_dir()
        head.send(Release("digits/1", "n1", forget=True))
        await becomes(lambda: not home.exists())
