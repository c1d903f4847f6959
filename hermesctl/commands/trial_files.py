"""`hermesctl trial files`: what a trial's program has written, on whichever node it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from hermesctl.commands.options import ForceOption, HeadOption, OutputOption, TrialArgument
from hermesctl.commands.running import NounGroup, run, show_change
from hermesctl.render.output import Format, emit, row
from hermesctl.render.tables import cell, grid, moment
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import Trial
from hermesctl.terminal import stderr, stdout
from hermesctl.text import count, printable, size
from hermesctl.waiting import is_live

app = typer.Typer(
    cls=NounGroup,
    help="List, fetch and print files of a trial's working copy, during the trial and after."
    " Without a verb: the list.",
)

PatternsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH",
        help="Files, folders or patterns (`'*.png'`). Default: all.",
        show_default=False,
    ),
]


@app.command("ls")
def list_files(
    trial: TrialArgument,
    paths: PatternsArgument = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the files of a trial's working copy, on the node where it ran last.

    A link to a file of the working copy counts as that file, and a link to a folder as that folder
    if you name the link itself. What other links lead to, such as the paths of `data`, is not
    included. A completed trial's working copy is deleted when its node's disk budget is used up,
    except for what the study file says to `keep`.

    Example: hermesctl trial files ls digits/13 'runs/*'
    """

    async def body(client: AsyncClient) -> None:
        files = await client.files(trial, *(paths or ()))

        def table(_: bool) -> RenderableType:
            table = grid(">size", "modified", "~path")
            for file in files:
                when = moment(file.modified_unix_seconds)
                table.add_row(cell(size(file.size_bytes)), cell(when), cell(file.path))
            return table

        rows = [row(file) for file in files]
        emit(stdout(), output, {"files": rows}, rows, table)

    run(body, head=head)


@app.command()
def get(
    trial: TrialArgument,
    paths: PatternsArgument = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Where to. Default: ./STUDY-NUMBER-files.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Copy files of a trial's working copy to a directory, each as it was when it was read.

    Example: hermesctl trial files get digits/13 best.pt 'runs/*' --to best
    """

    async def body(client: AsyncClient) -> None:
        found = (await client.trial(trial)).trial
        await fetch(client, found, paths or (), to, output, force=force)

    run(body, head=head, waiting="")


async def fetch(
    client: AsyncClient,
    trial: Trial,
    paths: Sequence[str],
    to: Path | None,
    output: Format,
    *,
    force: bool,
    written_only: bool = False,
) -> None:
    """Write files of a trial's working copy to a directory, and print their names."""
    folder = to or Path(f"{trial.id.replace('/', '-')}-files")
    listed = await client.files(trial, *paths, written_only=written_only)
    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    console = stderr()
    with Progress(*columns, console=console, transient=True, disable=not is_live(console)) as bar:
        task = bar.add_task("", total=sum(file.size_bytes for file in listed))
        files = await client.download_files(
            trial,
            folder,
            *paths,
            written_only=written_only,
            force=force,
            on_progress=lambda received: bar.update(task, completed=received),
        )
    weight = size(sum(file.stat().st_size for file in files))
    words = f"{count(len(files), 'file')} ({weight}) in {printable(str(folder))}"
    show_change(output, words, {"trial": trial.id, "files": [*map(str, files)]})
    for file in files if output.for_people else ():
        typer.echo(printable(str(file)))


@app.command()
def cat(
    trial: TrialArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file of the working copy.")],
    head: HeadOption = None,
) -> None:
    """Print a file of a trial's working copy.

    Example: hermesctl trial files cat digits/13 log.csv
    """

    async def body(client: AsyncClient) -> None:
        async with aclosing(client.read_file(trial, path)) as pieces:
            async for data in pieces:
                sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    run(body, head=head)
