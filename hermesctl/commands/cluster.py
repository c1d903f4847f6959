"""`hermesctl cluster`: nodes that a batch system lends."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from hermesctl import slurm
from hermesctl.address import state_directory
from hermesctl.async_client import AsyncClient
from hermesctl.commands.user import DAY_SECONDS
from hermesctl.errors import HermesError, UsageError
from hermesctl.invocation import command
from hermesctl.members import Invited, invite, take_back
from hermesctl.options import HeadOption, OutputOption
from hermesctl.output import Format, emit, write
from hermesctl.running import run
from hermesctl.tables import facts_table
from hermesctl.terminal import say, stdout
from hermesctl.text import printable
from hermesctl.yaml_text import Data
from hermesd.identity import Role

# As long as an invitation can be good: a job may wait that long in its queue.
_TOKEN_DAYS = 30

app = typer.Typer(no_args_is_help=True, help="Nodes that a batch system lends.")


@app.callback()
def cluster() -> None:
    """Nodes that a batch system lends."""


NodesOption = Annotated[int, typer.Option(min=1, max=1000, help="How many nodes.")]
GpusOption = Annotated[int, typer.Option(min=0, max=64, help="GPUs of each.")]
CpusOption = Annotated[
    int, typer.Option(min=0, max=4096, help="Cores of each; slots where no GPU is asked for.")
]
TimeOption = Annotated[
    str, typer.Option(metavar="DURATION", help="For how long: 8h, 1d12h, 1-12:00:00.")
]
NoticeOption = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="So long before the end trials leave, and checkpoints are taken elsewhere.",
    ),
]
PartitionOption = Annotated[
    str, typer.Option("--partition", "-p", help="Of Slurm.", show_default=False)
]
AccountOption = Annotated[
    str, typer.Option("--account", "-A", help="Of Slurm.", show_default=False)
]
SbatchOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPTION", help="One more for sbatch: --qos=high; repeat it.", show_default=False
    ),
]
ShareOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Of script, token and log; the nodes must see it. Default: slurm/ in HERMES_STATE.",
        show_default=False,
    ),
]
DaemonOption = Annotated[
    str, typer.Option(help="Default: the one beside hermesctl.", show_default=False)
]


@app.command()
def launch(
    of_slurm: Annotated[
        bool, typer.Option("--slurm", help="By a job of Slurm.", show_default=False)
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script; submit nothing.")
    ] = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Have a batch system run node daemons that join the head by themselves.

    Before their time is over, or when the job is cancelled, the nodes give back what runs, have
    their checkpoints taken elsewhere, and leave the head without a trace. It takes an admin.

    Example: hermesctl cluster launch --slurm --nodes 4 --gpus-per-node 2 --time 8h
    """
    if not of_slurm:
        raise UsageError("expected --slurm: no other batch system is known")
    wish = slurm.Wish(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        seconds=slurm.seconds_of(time, "--time"),
        notice_seconds=slurm.seconds_of(notice, "--notice"),
        partition=partition,
        account=account,
        options=tuple(sbatch or ()),
        hermesd=_daemon(hermesd),
    )
    shared = (share or state_directory(os.environ) / "slurm").absolute()
    if dry_run:
        write(stdout(), slurm.script(wish, shared / "LAUNCH"))
        return

    async def body(client: AsyncClient) -> None:
        seconds, uses = _TOKEN_DAYS * DAY_SECONDS, nodes * (1 + slurm.REQUEUES)
        invited = await invite(client.connection, Role.NODE, "", seconds, uses)
        _warn_of_address(invited)
        folder = _prepare(shared, wish, invited)
        try:
            job = await slurm.submit(folder / slurm.SCRIPT)
        except HermesError:
            shutil.rmtree(folder)
            with suppress(HermesError):  # a head that is older ends it by its time alone
                await take_back(client.connection, invited)
            raise
        _told(job, wish, folder, output)

    run(body, head=head)


def _daemon(named: str) -> tuple[str, ...]:
    """How the nodes start it: they see the same files, or it is named."""
    if named:
        return (named,)
    beside = Path(sys.executable).with_name("hermesd")
    return (str(beside),) if beside.exists() else (sys.executable, "-m", "hermesd.cli")


def _warn_of_address(invited: Invited) -> None:
    host = invited.address.rpartition(":")[0].strip("[]")
    if host in ("0.0.0.0", "::", "", "localhost") or host.startswith("127."):
        say(
            f"the head listens on {printable(invited.address)}, which no other machine reaches:"
            " set listen = HOST:PORT in its configuration"
        )


def _prepare(shared: Path, wish: slurm.Wish, invited: Invited) -> Path:
    """A new directory of this user alone with all that the job needs. Raises UsageError."""
    try:
        shared.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = Path(tempfile.mkdtemp(prefix="launch-", dir=shared))
        for name, text in (
            (slurm.HEAD, invited.address),
            (slurm.TOKEN, invited.token),
            (slurm.SCRIPT, slurm.script(wish, folder)),
        ):
            path = folder / name
            path.touch(mode=0o600)
            path.write_text(text)
    except OSError as error:
        raise UsageError(f"{printable(str(error.filename))}: {error.strerror}") from None
    return folder


def _told(job: str, wish: slurm.Wish, folder: Path, output: Format) -> None:
    document: dict[str, Data] = {
        "job": job,
        "nodes": wish.nodes,
        "gpus_per_node": wish.gpus_per_node,
        "cpus_per_node": wish.cpus_per_node,
        "time_seconds": wish.seconds,
        "notice_seconds": wish.notice_seconds,
        "script": str(folder / slurm.SCRIPT),
        "log": str(folder / f"{job}.log"),
    }
    facts = [
        ("job", f"{job}; scancel {job} ends it"),
        ("nodes", f"NAME-{job} in {command('node ls')}, once Slurm starts it"),
        ("log", str(document["log"])),
    ]
    emit(stdout(), output, document, [document], lambda _: facts_table(facts))
