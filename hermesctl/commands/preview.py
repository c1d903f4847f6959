"""`preview`: the trials that a study would have, and when to expect results.

It stores nothing and starts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from hermesctl.commands.frameworks import untested
from hermesctl.commands.options import (
    FileArgument,
    GridOption,
    HeadOption,
    LocalOption,
    MetricOption,
    OutputOption,
    PoolOption,
    RandomOption,
    SetOption,
    TrialsOption,
    TryOption,
)
from hermesctl.commands.running import run
from hermesctl.commands.try_out import Tried, try_out
from hermesctl.errors import ExitCode
from hermesctl.render.documents import submission_document
from hermesctl.render.grid import PARAMETERS
from hermesctl.render.output import Format, emit, row
from hermesctl.render.replay_views import forecast_view
from hermesctl.render.tables import cell, grid, param_text, params_text, varying
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.forecast import Forecast, policy_of
from hermesctl.sdk.local import with_further
from hermesctl.sdk.records import DEFAULT_POOL, Submission
from hermesctl.study_file.load import Document, Table
from hermesctl.study_file.submission import (
    Prepared,
    UnsoundStudy,
    from_file,
    open_study,
    options_of,
)
from hermesctl.study_file.trees import spanning_decades, with_flags
from hermesctl.terminal import say, stdout
from hermesctl.text import count, printable

_PREVIEWED = 20


def preview(
    file: FileArgument,
    grid: GridOption = None,
    random: RandomOption = None,
    trials: TrialsOption = None,
    settings: SetOption = None,
    metric: MetricOption = None,
    pool: PoolOption = None,
    local: LocalOption = False,
    tries: TryOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the trials that a study would have, and when to expect results; store nothing.

    The head checks and expands the study, as on submit; if no head answers, this machine does,
    without a forecast. The forecast simulates the study's policy on the curves of the most similar
    earlier study with the same signal, if there is one, and on the devices that could take the
    trials now. It says what the two studies have in common. If no node can take the trials, each
    node is named with the reason.

    With --try, the first trial runs for some seconds, on a device that the study could have; only
    then does --local start a head. The metrics that it reports are listed, or how it failed; then
    it is deleted.

    Example: hermesctl preview study.yaml -o wide

    Example: hermesctl preview study.yaml --try
    """
    prepared = prepare(
        file, grid=grid, random=random, trials=trials, settings=settings, metric=metric, pool=pool
    )

    async def body(client: AsyncClient) -> ExitCode | None:
        told = await client.preview(prepared)
        if words := renamed(prepared, told.submission):
            say(f"note: {words}")
        if client.connection.address.embedded:
            for words in await untested(prepared.spec, prepared.directory):
                say(f"note: {words}")
        tried = await try_out(client, prepared) if tries else None
        show_preview(stdout(), prepared, told.submission, output, told.forecast, tried)
        return ExitCode.TRIALS_FAILED if tried is not None and tried.has_failed else None

    run(body, head=head, local=local, starts=tries)


def prepare(
    file: Path,
    *,
    grid: Sequence[str] | None = None,
    random: Sequence[str] | None = None,
    trials: int | None = None,
    settings: Sequence[str] | None = None,
    metric: str | None = None,
    name: str | None = None,
    pool: str | None = None,
) -> Prepared:
    """The study of a file and the flags that change it; raises UsageError."""
    document = open_study(file)
    if isinstance(document.root, Table):
        changed = with_flags(
            document.root,
            name=name,
            metric=metric,
            grid=grid or (),
            random=random or (),
            trials=trials,
            settings=settings or (),
            pool=pool,
            options=options_of(file, document, Path.cwd()) if settings else (),
        )
        document = Document(changed, document.problems)
    try:
        prepared = from_file(file, document, Path.cwd())
    except UnsoundStudy as error:
        raise asyncio.run(with_further(error)) from None
    return replace(prepared, notes=(*prepared.notes, *spanning_decades(random or ())))


def show_preview(
    console: Console,
    prepared: Prepared,
    submission: Submission,
    output: Format,
    expected: Forecast | None = None,
    tried: Tried | None = None,
) -> None:
    """Print the trials of a study that was only checked, and what can be expected of it."""
    for note in submission.notes:
        say(f"note: {printable(note)}")
    trials = submission.trials
    names = varying(trials)

    def table(wide: bool) -> Any:
        table = grid(">trial", *(f"={name}" for name in names), spared=(PARAMETERS,), wide=wide)
        shown = trials if wide else trials[:_PREVIEWED]
        for trial in shown:
            values = [cell(param_text(trial, name)) for name in names]
            table.add_row(cell(str(trial.number)), *values)
        return table

    policy, pool = policy_of(prepared, submission).partition(":")[0], prepared.spec.pool
    document = {**submission_document(submission), "policy": policy, "pool": pool or DEFAULT_POOL}
    if expected is not None:
        document["forecast"] = row(expected)
    if tried is not None:
        document["tried"] = tried.document()
    rows = [{"number": t.number, **row({"params": t.params})} for t in trials]
    emit(console, output, {**document, "trials": rows}, rows, table)
    if not output.for_people:
        return
    if output is Format.TABLE and len(trials) > _PREVIEWED:
        console.print(cell(f"… and {len(trials) - _PREVIEWED} more (-o wide shows all)", "dim"))
    changing = {each.name for each in prepared.spec.parameters if each.HasField("sequence")}
    same = {k: v for k, v in trials[0].params.items() if k not in names} if trials else {}
    fixed = {name: value for name, value in same.items() if name not in changing}
    first = {name: value for name, value in same.items() if name in changing}
    console.print()
    where = f", pool {printable(pool)}" if pool else ""
    console.print(cell(f"{count(len(trials), 'trial')}{where}, policy {policy}"))
    if fixed:
        console.print(cell(f"the same in all: {params_text(fixed)}"))
    if first:
        console.print(cell(f"changing while a trial trains, from: {params_text(first)}"))
    if expected is not None:
        console.print()
        console.print(forecast_view(expected))
    if tried is not None:
        console.print()
        console.print(tried.view())
        if tried.doubt:
            console.print(cell(f"note: {tried.doubt}", "yellow"))


def renamed(prepared: Prepared, submission: Submission) -> str:
    """What to say of a name that can't be the id as it is; empty where there is nothing."""
    name, study = prepared.spec.name, submission.study
    if not study or not name or study == name or submission.identical_to:
        return ""
    taken = "it is taken, so " if study.startswith(name) else ""
    return f"name {printable(name)}: {taken}the study's id is {printable(study)}"
