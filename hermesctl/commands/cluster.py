"""`hermesctl cluster`: nodes that a batch system lends."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hermesctl.commands.options import HeadOption, OutputOption, OwnNodesOption
from hermesctl.commands.running import run
from hermesctl.commands.user import DAY_SECONDS
from hermesctl.errors import HermesError, Refused, UsageError
from hermesctl.invocation import command
from hermesctl.render.output import Format, emit, write
from hermesctl.render.tables import facts_table
from hermesctl.sdk.address import state_directory
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.people import invite, take_back
from hermesctl.sdk.records import Invited
from hermesctl.terminal import say, stdout
from hermesctl.text import cut, one_line, printable
from hermesctl.yaml_text import Data
from hermesd.security.identity import Invitation, NotEnrolled, Role, said_token

# A Slurm job whose tasks are node daemons: the script that is submitted, and sbatch.
#
# Neither the script nor a command line holds a secret. The token lies beside the script, in
# a directory that its owner alone can read. But so can the programs of trials, which run as that
# owner: where these are anybody's, the job removes the file before its first node starts, and
# once all have joined the token is used up. The token of one's own nodes stays, since it is of no
# use to programs of one's own.

# A job of one's own that is requeued has its tasks join anew; so often at most.
REQUEUES = 3
# The longest notice that Slurm knows.
LONGEST_NOTICE_SECONDS = 65_535
# It may come a minute early, and a daemon takes a while to start.
LEAST_SERVICE_SECONDS = 120
TOKEN, HEAD, SCRIPT = "token", "head", "job.sh"

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,@:+-]*\Z")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of Slurm."""

    nodes: int
    gpus_per_node: int
    cpus_per_node: int
    seconds: int
    #: So long before the end of the job its nodes begin to leave.
    notice_seconds: int
    partition: str = ""
    account: str = ""
    #: Options of sbatch that are passed on, each as `--name=value`.
    options: tuple[str, ...] = ()
    hermesd: tuple[str, ...] = ("hermesd",)
    #: Its nodes run the trials of who launches it alone.
    own: bool = False

    @property
    def joins(self) -> int:
        """How often its nodes join at most."""
        return self.nodes * (1 + REQUEUES if self.own else 1)

    def __post_init__(self) -> None:
        if not self.gpus_per_node and not self.cpus_per_node:
            raise UsageError("nodes without devices: expected --gpus-per-node or --cpus-per-node")
        if not 0 < self.notice_seconds <= LONGEST_NOTICE_SECONDS:
            raise UsageError(
                f"--notice: {self.notice_seconds} s: expected up to {LONGEST_NOTICE_SECONDS} s"
            )
        least = self.notice_seconds + LEAST_SERVICE_SECONDS
        if self.seconds < least:
            raise UsageError(
                f"--time: {self.seconds} s: expected at least {least} s, --notice and two minutes"
            )
        for flag, word in (("--partition", self.partition), ("--account", self.account)):
            if word and not _WORD.match(word):
                raise UsageError(
                    f"{flag}: {cut(printable(word))}: expected a name that Slurm accepts"
                )
        for option in self.options:
            if not re.match(r"--[a-z][^\n\r]*\Z", option):
                shown = cut(printable(option))
                raise UsageError(f"--sbatch: {shown}: expected an option such as --qos=high")


def seconds_of(text: str, flag: str) -> int:
    """`8h`, `1d12h`, `90m`, or as Slurm writes it: `8:00:00`, `1-12:00:00`. Raises UsageError."""
    units = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    if units is not None and text:
        parts = zip(_UNITS.values(), units.groups(), strict=True)
        return sum(unit * int(number or 0) for unit, number in parts)
    clock = re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)", text)
    if clock is not None:
        days, hours, minutes, seconds = (int(number or 0) for number in clock.groups())
        return 86_400 * days + 3_600 * hours + 60 * minutes + seconds
    shown = cut(printable(text))
    raise UsageError(f"{flag}: {shown}: expected a duration such as 8h, 1d12h or 1-12:00:00")


def script(wish: Wish, folder: Path) -> str:
    """The job as sbatch takes it; `folder` is where it finds the token, seen by all its nodes."""
    header = "\n".join(f"#SBATCH {option}" for option in _options(wish, folder))
    resources = "--slots 0" if wish.gpus_per_node else f"--slots {wish.cpus_per_node}"
    devices = (
        'export HERMES_NODE_VISIBLE_GPUS="$CUDA_VISIBLE_DEVICES"'
        if wish.gpus_per_node
        else "export HERMES_NODE_GPUS=false"
    )
    cpus = f" --cpus-per-task={wish.cpus_per_node}" if wish.cpus_per_node else ""
    return _SCRIPT.format(
        header=header,
        folder=shlex.quote(str(folder)),
        hermesd=shlex.join(wish.hermesd),
        devices=devices,
        resources=resources,
        cpus=cpus,
        reading="" if wish.own else '; rm -f "$LAUNCH/token"',
    )


_SCRIPT = """\
#!/bin/bash
{header}
# Nodes of Hermes; written by `hermesctl cluster launch`.
export LAUNCH={folder}
run_node() {{
  local name=${{SLURMD_NODENAME,,}}-$SLURM_JOB_ID
  [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || name=$name-r$SLURM_RESTART_COUNT
  {devices}
  exec {hermesd} node join "$(<"$LAUNCH/head")" --token-file - --guest \\
    --run-as self --name "${{name//[^a-z0-9._-]/-}}" {resources}
}}
export -f run_node
# The tasks hear each signal themselves: nothing stands between Slurm and them. Here one tells that
# the job is cut short: if it may be requeued, the token is needed again.
trap cut=1 TERM
srun --label --kill-on-bad-exit=0 --no-kill --wait=0{cpus} bash -c run_node \\
  < <(cat "$LAUNCH/token"{reading})
status=$?
[ -n "$cut" ] || rm -f "$LAUNCH/token"
exit $status
"""


def _options(wish: Wish, folder: Path) -> Iterator[str]:
    yield "--job-name=hermes"
    yield f"--nodes={wish.nodes}"
    yield "--ntasks-per-node=1"
    if wish.cpus_per_node:
        yield f"--cpus-per-task={wish.cpus_per_node}"
    if wish.gpus_per_node:
        yield f"--gpus-per-node={wish.gpus_per_node}"
    yield f"--time={_clock(wish.seconds)}"
    yield f"--signal=USR1@{wish.notice_seconds}"
    # Each node is of use without the others, and after a requeue.
    yield "--no-kill"
    yield "--requeue" if wish.own else "--no-requeue"
    yield "--open-mode=append"
    yield f"--output={shlex.quote(f'{folder}/%j.log')}"
    if wish.partition:
        yield f"--partition={wish.partition}"
    if wish.account:
        yield f"--account={wish.account}"
    yield from wish.options


def _clock(seconds: int) -> str:
    """As Slurm writes it: D-HH:MM:SS."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{rest:02}"


async def submit(path: Path, program: Sequence[str] = ("sbatch",)) -> str:
    """Hand a script to sbatch; the job's id. Raises Refused with what sbatch says."""
    words = [*program, "--parsable", str(path)]
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError:
        raise Refused(
            f"{printable(program[0])} cannot be started here: run this on a machine from which jobs"
            " are submitted; --dry-run prints the script"
        ) from None
    out, err = await process.communicate()
    said = one_line(" ".join(err.decode(errors="replace").replace("sbatch: ", "").split()))
    if process.returncode:
        raise Refused(f"Slurm took no job: {said or f'sbatch ended with {process.returncode}'}")
    job = out.decode(errors="replace").strip().partition(";")[0]
    if not job.isdigit():
        raise Refused(f"sbatch named no job: {cut(printable(job or said))}")
    return job


# As long as an invitation can be good: a job may wait that long in its queue.
_TOKEN_DAYS = 30

app = typer.Typer(no_args_is_help=True, help="Run nodes as jobs of a batch system.")


@app.callback()
def cluster() -> None:
    """Run nodes as jobs of a batch system."""


NodesOption = Annotated[int, typer.Option(min=1, max=1000, help="How many nodes.")]
GpusOption = Annotated[int, typer.Option(min=0, max=64, help="GPUs per node.")]
CpusOption = Annotated[
    int,
    typer.Option(min=0, max=4096, help="Cores per node; they are its slots if you ask for no GPU."),
]
TimeOption = Annotated[
    str, typer.Option(metavar="DURATION", help="For how long: 8h, 1d12h, 1-12:00:00.")
]
NoticeOption = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="How long before the end trials leave and checkpoints are moved elsewhere.",
    ),
]
PartitionOption = Annotated[
    str, typer.Option("--partition", "-p", help="The Slurm partition.", show_default=False)
]
AccountOption = Annotated[
    str, typer.Option("--account", "-A", help="The Slurm account.", show_default=False)
]
SbatchOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPTION",
        help="Another option for sbatch, such as --qos=high. Repeatable.",
        show_default=False,
    ),
]
ShareOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="A directory for script, token and log that the nodes can see. Default: slurm/ in"
        " HERMES_STATE.",
        show_default=False,
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with what `hermesctl node token` printed for that many nodes; the head is not"
        " asked. `-` reads standard input.",
        show_default=False,
    ),
]
DaemonOption = Annotated[
    str,
    typer.Option(help="Path of hermesd. Default: the one beside hermesctl.", show_default=False),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the script; submit nothing.")]


@app.command()
def launch(
    of_slurm: Annotated[
        bool, typer.Option("--slurm", help="Submit a Slurm job.", show_default=False)
    ] = False,
    nodes: NodesOption = 1,
    gpus_per_node: GpusOption = 0,
    cpus_per_node: CpusOption = 0,
    time: TimeOption = "1h",
    notice: NoticeOption = "10m",
    partition: PartitionOption = "",
    account: AccountOption = "",
    sbatch: SbatchOption = None,
    share: ShareOption = None,
    hermesd: DaemonOption = "",
    dry_run: DryRunOption = False,
    own: OwnNodesOption = False,
    token_file: TokenOption = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Run node daemons as batch jobs; they join the head by themselves.

    Before their time is up, or when the job is cancelled, the nodes suspend their trials, move
    their checkpoints elsewhere, and leave; the head then forgets them. A user's nodes run only that
    user's trials, in the pool `own`. Nodes for everybody need an admin, or the token that an
    admin's `node token` printed. Only with --own may Slurm requeue the job.

    Example: hermesctl cluster launch --slurm --nodes 4 --gpus-per-node 2 --time 8h
    """
    _see_that_it_can_be_meant(of_slurm, own, token_file)
    wish = Wish(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        seconds=seconds_of(time, "--time"),
        notice_seconds=seconds_of(notice, "--notice"),
        partition=partition,
        account=account,
        options=tuple(sbatch or ()),
        hermesd=_daemon(hermesd),
        own=own,
    )
    shared = (share or state_directory(os.environ) / "slurm").absolute()
    if dry_run:
        write(stdout(), script(wish, shared / "LAUNCH"))
        return

    async def handed_over(invited: Invited) -> None:
        _warn_of_address(invited)
        folder = _prepare(shared, wish, invited)
        try:
            job = await submit(folder / SCRIPT)
        except HermesError:
            shutil.rmtree(folder)
            raise
        _told(job, wish, folder, output)

    async def body(client: AsyncClient) -> None:
        seconds = _TOKEN_DAYS * DAY_SECONDS
        invited = await invite(client.connection, Role.NODE, "", seconds, wish.joins, own=own)
        try:
            await handed_over(invited)
        except HermesError:
            with suppress(HermesError):  # a head that is older ends it by its time alone
                await take_back(client.connection, invited)
            raise

    if token_file is None:
        run(body, head=head)
    else:
        asyncio.run(handed_over(_given(token_file)))


def _see_that_it_can_be_meant(of_slurm: bool, own: bool, token_file: Path | None) -> None:
    if not of_slurm:
        raise UsageError("expected --slurm: no other batch system is known")
    if own and token_file is not None:
        raise UsageError("--own: the token in --token-file decides whose trials they run")


def _daemon(named: str) -> tuple[str, ...]:
    """How the nodes start it: they see the same files, or it is named."""
    if named:
        return (named,)
    beside = Path(sys.executable).with_name("hermesd")
    return (str(beside),) if beside.exists() else (sys.executable, "-m", "hermesd.cli")


def _given(file: Path) -> Invited:
    """What `hermesctl node token` printed, in a file. Raises UsageError."""
    try:
        words = said_token(None, file).split()
        address, token, *_ = words[words.index("join") + 1 :] if "join" in words else words
        Invitation.of(token)
    except ValueError:
        expected = "what `hermesctl node token` printed: hermesd node join HOST:PORT TOKEN"
        raise UsageError(f"--token-file: {file}: expected {expected}") from None
    except NotEnrolled as error:
        raise UsageError(f"--token-file: {error}") from None
    return Invited(token, address)


def _warn_of_address(invited: Invited) -> None:
    host = invited.address.rpartition(":")[0].strip("[]")
    if host in ("0.0.0.0", "::", "", "localhost") or host.startswith("127."):
        say(
            f"the head listens on {printable(invited.address)}, which no other machine can reach:"
            " set listen = HOST:PORT in its configuration"
        )


def _prepare(shared: Path, wish: Wish, invited: Invited) -> Path:
    """A new directory of this user alone with all that the job needs. Raises UsageError."""
    try:
        shared.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = Path(tempfile.mkdtemp(prefix="launch-", dir=shared))
        for name, text in (
            (HEAD, invited.address),
            (TOKEN, invited.token),
            (SCRIPT, script(wish, folder)),
        ):
            path = folder / name
            path.touch(mode=0o600)
            path.write_text(text)
    except OSError as error:
        raise UsageError(f"{printable(str(error.filename))}: {error.strerror}") from None
    return folder


def _told(job: str, wish: Wish, folder: Path, output: Format) -> None:
    document: dict[str, Data] = {
        "job": job,
        "nodes": wish.nodes,
        "gpus_per_node": wish.gpus_per_node,
        "cpus_per_node": wish.cpus_per_node,
        "time_seconds": wish.seconds,
        "notice_seconds": wish.notice_seconds,
        "script": str(folder / SCRIPT),
        "log": str(folder / f"{job}.log"),
    }
    facts = [
        ("job", f"{job}; scancel {job} ends it"),
        ("nodes", f"NAME-{job} in {command('node ls')}, once Slurm starts it"),
        ("log", str(document["log"])),
    ]
    emit(stdout(), output, document, [document], lambda _: facts_table(facts))
