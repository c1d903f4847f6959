"""`hermesctl checkpoint`: list checkpoints and fetch them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from hermesctl.commands.options import (
    ForceOption,
    HeadOption,
    LatestStudyArgument,
    OutputOption,
    TrialArgument,
)
from hermesctl.commands.running import NounGroup, chosen_study, run, show_change
from hermesctl.render.loading import is_loaded, loading_lines, step_for_people
from hermesctl.render.output import Format, emit, row
from hermesctl.render.tables import checkpoints_table
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import TrialState
from hermesctl.terminal import say, stderr, stdout
from hermesctl.text import count, printable, size
from hermesctl.waiting import is_live
from hermesctl.yaml_text import Data

app = typer.Typer(
    cls=NounGroup,
    help="List checkpoints, and download them with the finished models. Without a verb: the list.",
)


@app.command("ls")
def list_checkpoints(
    study: LatestStudyArgument = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the newest checkpoint of each trial of a study.

    Example: hermesctl checkpoint ls digits
    """

    async def body(client: AsyncClient) -> None:
        detail = await client.study(await chosen_study(client, study))
        saved = [(t.id, t.checkpoint) for t in detail.trials if t.checkpoint is not None]
        if not saved and output.for_people:
            say(f"note: no trial of {printable(detail.study.id)} has a checkpoint")
            return
        rows = [{"trial": trial, **row(checkpoint)} for trial, checkpoint in saved]
        emit(stdout(), output, {"checkpoints": rows}, rows, lambda _: checkpoints_table(saved))

    run(body, head=head)


@app.command()
def download(
    trial: TrialArgument,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Where to. Default: ./STUDY-NUMBER.", show_default=False
        ),
    ] = None,
    checkpoint: Annotated[
        str,
        typer.Option(
            "--id", metavar="ID", help="Which checkpoint. Default: the newest.", show_default=False
        ),
    ] = "",
    force: ForceOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Write a trial's checkpoint as a directory of files.

    If a Keras fit is over, model.keras is among them. A finished PyTorch trial has model.pt and
    optimizer.pt, plain state_dicts; with Lightning also model.ckpt, with the Hugging Face Trainer a
    folder `pretrained`. A finished tf.function loop has a tf.train.Checkpoint, `tf-checkpoint`. The
    lines that load them are printed. A trial that was stopped, by a rule or a person, has none of
    these. With --force, files of the same names are replaced and all others stay.

    Example: hermesctl checkpoint download digits/13 --to best
    """

    async def body(client: AsyncClient) -> None:
        found = (await client.trial(trial)).trial
        folder = to or Path(found.id.replace("/", "-"))
        newest = found.checkpoint
        known = newest is not None and checkpoint in ("", newest.id)
        columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
        console = stderr()
        with Progress(
            *columns, console=console, transient=True, disable=not is_live(console)
        ) as bar:
            task = bar.add_task("", total=newest.size_bytes if newest and known else None)
            files = await client.download_checkpoint(
                found,
                folder,
                checkpoint,
                force=force,
                on_progress=lambda received: bar.update(task, completed=received),
            )
        weight = size(sum(file.stat().st_size for file in files))
        step = step_for_people(folder)
        words = f"{count(len(files), 'file')} ({weight}) in {printable(str(folder))}"
        fetched: dict[str, Data] = {"trial": found.id, "step": step, "files": [*map(str, files)]}
        show_change(output, words, fetched)
        if not output.for_people:
            return
        there = {str(file.relative_to(folder.absolute())): file for file in files}
        if step is not None and step < found.step:
            say(f"note: this is the trial at step {step}, and it came to step {found.step}")
        if lines := loading_lines(folder, there):
            say("it loads without Hermes:")
            say("\n".join(f"  {line}" for line in lines), is_code=True)
            _list(file for name, file in there.items() if is_loaded(name))
            say("what Hermes resumes the trial from:")
            _list(file for name, file in there.items() if not is_loaded(name))
            return
        _list(files)
        if found.state is not TrialState.COMPLETED:
            say(
                "note: these are what Hermes resumes the trial from; a model that loads without"
                f" Hermes is written when its program has ended, and {found.id} is {found.state}"
            )

    run(body, head=head, waiting="")


def _list(files: Iterable[Path]) -> None:
    for file in files:
        typer.echo(printable(str(file)))
