"""This user's embedded head and node: found, started in the background, stopped.

They run as `hermesd local`, a process in a session of its own that outlives whoever started it. The
state directory has everything that is to be known about it (`local.json`, `local.log`).
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from hermesctl.errors import HermesError, Refused, StudyFileError, Unreachable, UsageError
from hermesctl.invocation import command
from hermesctl.sdk.address import embedded_head, embedded_process, short_state_directory
from hermesctl.sdk.connection import Connection, problems_of
from hermesctl.study_file.submission import UnsoundStudy
from hermesctl.text import printable, size
from hermesd import children
from hermesd.pb.hermes.v1 import control_pb2 as pb

# Without -P, Python would import first what lies in the current folder.
HERMESD = (sys.executable, "-P", "-m", "hermesd.cli")
COMMAND = (*HERMESD, "local")
# The first start compiles every module; a stop lets trainings reach a checkpoint.
START_SECONDS = 60.0
# With less than this on the disk nothing would last for long.
ROOM_BYTES = 16 << 20
STOP_SECONDS = 150.0
# A node that is ready attaches at once; what else is the matter with it is not found out here.
ATTACH_SECONDS = 15.0
_PROBE_SECONDS = 0.05
# Another one is about to answer, for example after its head died: it is waited for instead.
_EXIT_IN_THE_WAY = 4
# What is wrong is told, and can be mended: a setting, or what lies in the state directory.
_REFUSED = 2
_OF_A_SETTING = ("hermesd: environment: ", "hermesd: --")
_LOG_LINES_SHOWN = 15

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LocalHead:
    """What is known of the embedded head."""

    state: Path
    socket: Path
    #: None if none of its processes lives.
    pid: int | None
    answers: bool


async def find(environment: Mapping[str, str]) -> LocalHead:
    """The embedded head, whether it runs or not."""
    state = short_state_directory(environment)
    address = embedded_head(environment)
    assert address.socket is not None
    return LocalHead(state, address.socket, embedded_process(state), await _answers(address.socket))


async def start(
    environment: Mapping[str, str], *, slots: int | str | None = None, say: Say | None = None
) -> subprocess.Popen[bytes] | None:
    """Start the embedded head and node unless they run; returns once the head answers and, as far
    as that comes soon, has its node.

    The result is the process, or None if it ran already. `slots` is the number of CPU
    slots, or their shares such as "80%,40%".
    Raises HermesError, with the end of its log, when it ends before it answers, Refused where it
    refuses what it finds in the state directory, or a head of its own has that, UsageError when
    that can't be written or a setting is wrong.
    """
    state = short_state_directory(environment)
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        (state / "local.lock").touch()
    except OSError as error:
        raise UsageError(
            f"{printable(str(state))}: {error.strerror}; name a directory of your own in"
            " HERMES_STATE"
        ) from None
    async with _alone(state):
        if (await find(environment)).answers:
            return None
        if await _answers(state / "head" / "head.sock"):
            raise Refused(
                f"a hermesd head of yours runs already, with its state in {state / 'head'}, where"
                " --local would start one. Leave out --local, and this command finds it;"
                f" {command('node ls')} shows its nodes, and hermesd node adds this machine"
            )
        if (free := shutil.disk_usage(state).free) < ROOM_BYTES:
            raise Refused(
                f"{printable(str(state))}: {size(free)} free on its disk, expected at least "
                f"{size(ROOM_BYTES)}: free some, or set HERMES_STATE to a folder on a larger disk"
            )
        if say is not None:
            say(f"starting a head and a node for you (log: {_log(state)})")
        flags = [] if slots is None else ["--slots", str(slots)]
        before = _log(state).stat().st_size if _log(state).exists() else 0
        process = _spawn(state, flags)
        await _ready(environment, state, process, before)
        return process


def slots_told(state: Path) -> str:
    """What the embedded node that runs was started with, for people."""
    try:
        slots = json.loads((state / "local.json").read_bytes()).get("slots")
    except (OSError, ValueError, AttributeError):
        return "slots that it doesn't tell"
    return "a slot for each core" if slots is None else f"--slots {printable(str(slots))}"


async def stop(environment: Mapping[str, str], *, say: Say | None = None) -> bool:
    """End the embedded head and node; False if none ran.

    Trainings are checkpointed on the way and go on after the next start. Raises HermesError when
    it does not end in time.
    """
    state = short_state_directory(environment)
    pid = embedded_process(state)
    if pid is None:
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if say is not None:
            say(f"stopping the head and the node (process {pid})")
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        await asyncio.wait_for(_ended(descriptor), STOP_SECONDS)
    except ProcessLookupError:
        pass
    except TimeoutError:
        raise HermesError(
            f"process {pid} did not end in {STOP_SECONDS:.0f} s; its log is {_log(state)}"
        ) from None
    finally:
        os.close(descriptor)
    return True


def _spawn(state: Path, flags: list[str]) -> subprocess.Popen[bytes]:
    # Ctrl-C goes to all that the terminal has, and so to the child until its session is its own. It
    # starts with it held, and drops what came meanwhile (hermesd.cli).
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        # A plain Popen: asyncio's transport would kill the child when it is collected.
        with _log(state).open("ab") as log:
            return subprocess.Popen(
                [*COMMAND, "--state", str(state), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=state,
                start_new_session=True,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def _ready(
    environment: Mapping[str, str],
    state: Path,
    process: subprocess.Popen[bytes],
    logged_before_bytes: int,
) -> None:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + START_SECONDS
    while loop.time() < give_up:
        if process.poll() not in (None, _EXIT_IN_THE_WAY):
            raise _ended_at_once(state, process.returncode, _logged(state, logged_before_bytes))
        address = embedded_head(environment)
        assert address.socket is not None
        # The record is there once the head and the node are both ready.
        if (state / "local.json").exists() and await _answers(address.socket):
            connection = Connection(address, token=None, patience_seconds=START_SECONDS)
            try:
                await connection.call(connection.stub.ServerInfo, pb.ServerInfoRequest())
                await _attached(connection)
                return
            except Unreachable:
                continue
            finally:
                await connection.close()
        await asyncio.sleep(_PROBE_SECONDS)
    raise Unreachable(
        f"the local head did not answer in {START_SECONDS:.0f} s:\n"
        f"{_logged(state, logged_before_bytes)}"
    )


def _ended_at_once(state: Path, code: int | None, told: str) -> HermesError:
    words = (
        f"the local head, whose state is in {printable(str(state))}, ended at once"
        f" (exit code {code}):\n{told}"
    )
    if any(line.strip().startswith(_OF_A_SETTING) for line in told.splitlines()):
        return UsageError(words)  # which would be as wrong in another folder
    words += "\nTo start afresh, set HERMES_STATE to another folder."
    return Refused(words) if code == _REFUSED else HermesError(words)


async def _attached(connection: Connection) -> None:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + ATTACH_SECONDS
    while loop.time() < give_up:
        answer = await connection.call(connection.stub.ListNodes, pb.ListNodesRequest())
        if any(node.connected for node in answer.nodes):
            return
        await asyncio.sleep(_PROBE_SECONDS)


@asynccontextmanager
async def _alone(state: Path) -> AsyncIterator[None]:
    """Two starts at once would make two heads, of which one loses its socket."""
    with (state / "local.lock").open("a") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield


async def _answers(socket: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    writer.close()
    return True


async def _ended(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)


def _log(state: Path) -> Path:
    return state / "local.log"


def _logged(state: Path, after_bytes: int) -> str:
    """What was said since: the words of those that refuse to start, else the last lines."""
    try:
        with _log(state).open("rb") as log:
            log.seek(after_bytes)
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    # Whoever is started again and again says the same each time.
    refusals = list(dict.fromkeys(line for line in lines if line.startswith("hermesd: ")))
    return "\n".join(f"  {printable(line)}" for line in (refusals or lines)[-_LOG_LINES_SHOWN:])


_EXPAND = (*HERMESD, "expand")


async def expanded(request: pb.SubmitStudyRequest) -> pb.SubmitStudyResponse:
    """What a study would be where no head answers: asked of `hermesd expand`, a process of its own.

    `hermesd` comes in the same wheel and says what a head of its own version would. Raises
    UsageError with what is wrong, HermesError if it fails.
    """
    process = await asyncio.create_subprocess_exec(
        *_EXPAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        answer, said = await process.communicate(request.SerializeToString())
    finally:
        await children.end(process)
    if process.returncode == _REFUSED and (problems := problems_of(answer)):
        raise UsageError("", problems)
    if process.returncode:
        words = printable(said.decode(errors="replace"), keep="\n")
        raise HermesError(
            f"the study cannot be expanded (exit code {process.returncode}):\n{words}"
        )
    return pb.SubmitStudyResponse.FromString(answer)


# What says which other keys a study needs: without it a head would miss some that nobody left out.
_NEEDED_FIRST = {"", "method", "parameters", "program", "search"}
# A head may have policies that this machine has not.
_ITS_OWN = ("schedule.policy", "schedule.placement")


async def with_further(error: UnsoundStudy) -> StudyFileError:
    """The error with what a head would refuse besides, so that all is mended in one go."""
    broken = {_key(each.field_path) for each in error.problems}
    broken |= {_key(each.nearest) for each in error.problems if each.nearest}
    if broken & _NEEDED_FIRST:
        return error
    try:
        await expanded(pb.SubmitStudyRequest(spec=error.sound.spec))
    except HermesError as refused:
        problems = refused.problems if isinstance(refused, UsageError) else ()
        further = [
            each
            for each in error.sound.located(problems)
            # What the command lacks, --env may give.
            if _key(each.field_path) not in {*broken, "command"}
            and (each.nearest or each.field_path not in _ITS_OWN)
        ]
        return UnsoundStudy([*error.problems, *further], error.sound)
    return error


def _key(field_path: str) -> str:
    """The key of a study file below which a path begins."""
    return field_path.partition(".")[0].partition("[")[0]
