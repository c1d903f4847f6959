"""The commands for every day: `status`, `top`, `tail`, `logs`, `best`, `why`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from hermesctl.commands.options import (
    ByOption,
    ForceOption,
    GoalOption,
    HeadOption,
    LatestArgument,
    LatestStudyArgument,
    OutputOption,
    RankOption,
    TrialArgument,
)
from hermesctl.commands.running import chosen_study, outcome, run
from hermesctl.commands.trial import show_trial
from hermesctl.commands.trial_files import fetch
from hermesctl.errors import ExitCode, NotFound, Unreachable, UsageError
from hermesctl.render.documents import best_columns, best_document, study_document
from hermesctl.render.event_lines import print_event
from hermesctl.render.failure_views import failed_trials
from hermesctl.render.live import LEADERBOARD_LENGTH, concerns, heeded, said_last, show_top, unread
from hermesctl.render.node_views import hindrances
from hermesctl.render.output import Format, emit, json_line, row, write
from hermesctl.render.tables import cell, leaderboard, ranking_text, reads_text
from hermesctl.render.views import (
    explanation_view,
    more_trials,
    notices_view,
    others_view,
    same_params,
    status_view,
)
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.events import ENDS, Event, Plain
from hermesctl.sdk.records import Study
from hermesctl.study_file import load
from hermesctl.terminal import say, stdout, write_bytes
from hermesctl.text import TerminalFilter, one_line, printable
from hermesctl.waiting import progress

CountOption = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--count",
        min=1,
        max=load.INT32_MAX,
        help=f"How many trials. Default: {LEADERBOARD_LENGTH} in a table, else all.",
        show_default=False,
    ),
]


def status(
    of: LatestArgument = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the study has finished.")
    ] = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show how a study, or a trial, is doing. Without one: the newest study, and which others are
    unfinished.

    The exit code is 0 if the study could be shown. With --wait, it says how the study ended: 6 if
    any trial failed or was cancelled (study stop, trial stop), else 0.

    Example: hermesctl status digits --wait && hermesctl best digits
    """

    if wait and of is not None and "/" in of:
        raise UsageError(f"--wait: expected a study, not one of its trials: {printable(of)}")

    async def body(client: AsyncClient) -> ExitCode | None:
        if of is not None and "/" in of:
            await show_trial(client, of, output)
            return None
        chosen = await chosen_study(client, of)
        detail = await client.study(chosen)
        for words in await unread(client, detail.study):
            say(f"note: {words}")
        if not detail.study.finished:
            for reason in await hindrances(client, detail.study):
                say(f"note: {reason}")
        if wait:
            with progress(f"waiting until {printable(chosen)} has finished"):
                detail = await client.wait(chosen)
        document = study_document(detail)
        console = stdout()
        said = await said_last(client, detail) if output.for_people else {}
        emit(console, output, document, [document], lambda _: status_view(detail, said))
        if of is None and output.for_people:
            others = [s async for s in client.studies() if not s.finished and s.id != chosen]
            if others:
                console.print()
                console.print(others_view(others))
        return outcome(detail) if wait else None

    run(body, head=head, interrupted=lambda: "the study goes on; nothing was changed")


def top(study: LatestStudyArgument = None, head: HeadOption = None) -> None:
    """Show the devices and a study's trials, live. q or Ctrl-C leaves; the study goes on.

    Keys: up and down choose a trial, l shows its output, w why it runs or waits; / filters, f shows
    only trials on a device, s sorts, p pauses the display, ? lists all keys.

    Example: hermesctl top digits
    """

    async def body(client: AsyncClient) -> None:
        await show_top(client, await chosen_study(client, study), stdout())

    run(body, head=head, interrupted=lambda: "the study goes on", waiting="")


def _events(
    client: AsyncClient, study: Study | None, after: int, reports: bool, follow: bool
) -> AsyncGenerator[Event, None]:
    """What happened after that, and with `follow` what happens then."""
    if study is not None and follow:
        return client.follow(study, after=after, reports=reports, on_gap=say_gap)
    return client.events(study, after=after, reports=reports, once=not follow, on_gap=say_gap)


class _EventPrinter:
    """Prints events as they are asked for."""

    def __init__(self, output: Format, routine: bool, after: int) -> None:
        #: The number of the newest event that it saw.
        self.sequence = after
        self._output = output
        self._routine = routine
        self._plain = Plain()
        self._console = stdout()

    def tells(self, event: Event) -> bool:
        """Whether this event is to be printed."""
        self.sequence = event.sequence
        return not self._output.for_people or self._plain.tells(event) or self._routine

    def print(self, event: Event) -> None:
        """Print an event in a line."""
        if self._output.for_people:
            print_event(self._console, event)
        else:
            write(self._console, json_line(row(event)))

    async def print_all(self, stream: AsyncGenerator[Event, None]) -> None:
        """Print the events of a stream as they come."""
        async with aclosing(stream) as events:
            async for event in events:
                if self.tells(event):
                    self.print(event)

    async def print_last(self, stream: AsyncGenerator[Event, None], count: int) -> None:
        """Print the last so many events of a stream that ends."""
        async with aclosing(stream) as events:
            kept: deque[Event] = deque(maxlen=count)
            async for event in events:
                if self.tells(event):
                    kept.append(event)
        for event in kept:
            self.print(event)


def tail(
    of: LatestArgument = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing events as they happen.")
    ] = False,
    after: Annotated[
        int,
        typer.Option(
            min=0, max=load.INT64_MAX, metavar="SEQ", help="Only events after this sequence number."
        ),
    ] = 0,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines", "-n", min=0, metavar="N", help="Begin with the last N lines of the past."
        ),
    ] = None,
    reports: Annotated[
        bool, typer.Option("--reports", help="Include each report of a loss.")
    ] = False,
    routine: Annotated[
        bool,
        typer.Option("--routine", help="Include each end of a quantum, renewal and checkpoint."),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", "-A", help="Events of all studies and nodes, until interrupted."),
    ] = False,
    head: HeadOption = None,
    output: Annotated[
        Format,
        typer.Option("--output", "-o", metavar="table|json", help="How to print the events."),
    ] = Format.TABLE,
) -> None:
    """Print what happened in a study, or to a trial: results, milestones, switches, ends.

    Each line starts with its sequence number; --after continues from there. -o json prints one line
    of JSON for every event, including routine ones.

    Example: hermesctl tail -f digits --reports

    Example: hermesctl tail digits/3 --routine
    """
    printer = _EventPrinter(output, routine, after)

    async def body(client: AsyncClient) -> None:
        beside: AbstractAsyncContextManager[None] = nullcontext()
        chosen = None
        if not everything and of is not None and "/" in of:
            await _tail_trial(client, of, printer, lines, reports, follow)
            return
        if not everything:
            chosen = (await client.study(await chosen_study(client, of))).study
            told = [one_line(words) for words in chosen.notices]
            if follow:
                told = await concerns(client, chosen)
            for reason in told:
                say(f"note: {reason}")
            if follow:
                beside = heeded(client, chosen.id, told)
        if lines is not None:
            await printer.print_last(_events(client, chosen, after, reports, False), lines)
            if not follow:
                return
        async with beside:
            await printer.print_all(_events(client, chosen, printer.sequence, reports, follow))

    if output not in (Format.TABLE, Format.WIDE, Format.JSON):
        raise UsageError(f"-o {output}: expected table or json (a line each) for tail")
    run(
        body,
        head=head,
        interrupted=lambda: f"the trials go on; see the rest with --after {printer.sequence}",
        waiting="",
    )


async def _tail_trial(
    client: AsyncClient,
    name: str,
    printer: _EventPrinter,
    lines: int | None,
    reports: bool,
    follow: bool,
) -> None:
    """Print what happened to a trial, and with `follow` what does until it is over."""
    detail = await client.study(name.partition("/")[0])
    trial = (await client.trial(name)).trial
    study, now = detail.study, detail.journal_sequence

    async def events(follow: bool) -> AsyncGenerator[Event, None]:
        stream = _events(client, study, printer.sequence, reports, follow)
        async with aclosing(stream) as of_the_study:
            async for event in of_the_study:
                if event.trial != trial.id:
                    continue
                yield event
                may_be_over = follow and event.kind in ENDS and event.sequence > now
                if may_be_over and (await client.trial(trial)).trial.state.final:
                    return

    follow = follow and not trial.state.final
    if lines is not None:
        await printer.print_last(events(False), lines)
        if not follow:
            return
        # Its end may be among these, and no other one comes then.
        follow = not (await client.trial(trial)).trial.state.final
    await printer.print_all(events(follow))


def logs(
    trial: TrialArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the trial ends.")
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines",
            "-n",
            min=0,
            max=load.INT32_MAX,
            metavar="N",
            help="Begin with the last N lines, within the last 16 MiB.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Begin with this much from the end, such as 64KiB.",
            show_default=False,
        ),
    ] = None,
    rank: Annotated[
        int,
        typer.Option(
            min=0,
            max=load.INT32_MAX,
            metavar="RANK",
            help="Of which process, if it has one for each device.",
        ),
    ] = 0,
    head: HeadOption = None,
) -> None:
    """Print what a trial's program printed.

    Example: hermesctl logs digits/3 -n 20 -f

    Example: hermesctl logs digits/3 --last 64KiB
    """
    if lines is not None and last is not None:
        raise UsageError("--lines and --last: expected one of them")
    offset = -_size(last) if last is not None else 0

    async def body(client: AsyncClient) -> None:
        on_terminal = sys.stdout is not None and sys.stdout.isatty()
        console = stdout()
        shown = TerminalFilter()
        chunks = client.logs(
            trial, offset=offset, lines=lines, follow=follow, rank=rank, on_gap=say_gap
        )
        async with aclosing(chunks) as stream:
            async for chunk in stream:
                if on_terminal:
                    write(console, shown.feed(chunk))
                else:
                    write_bytes(console, chunk)

    run(body, head=head, interrupted=lambda: f"{printable(trial)} goes on", waiting="")


def best(
    study: LatestStudyArgument = None,
    count: CountOption = None,
    metric: RankOption = "",
    goal: GoalOption = "",
    by: ByOption = "",
    files: Annotated[
        bool,
        typer.Option("--files", help="Copy the files that the best trial wrote, instead."),
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Where --files copies to. Default: ./STUDY-NUMBER-files.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the leaderboard: the best trials, or all with -o wide, json, yaml or csv.

    Example: hermesctl best digits -n 1 -o json | jq .trials[0].params

    Example: hermesctl best digits --metric val_accuracy --goal maximize

    Example: hermesctl best digits --files --to best
    """
    if (to or force) and not files:
        raise UsageError("--to and --force are for --files")
    if files and count:
        raise UsageError("--files copies the files of one trial: expected no -n")

    async def body(client: AsyncClient) -> None:
        chosen = (await client.study(await chosen_study(client, study))).study
        if files:
            first = await client.best(chosen, 1, metric=metric, goal=goal, by=by)
            if not first or not first[0].rank:
                raise NotFound(f"no trial of {printable(chosen.id)} has a rank yet")
            await fetch(client, first[0], (), to, output, force=force, written_only=True)
            return
        many = LEADERBOARD_LENGTH if output is Format.TABLE else max(1, chosen.trial_count)
        trials = await client.best(chosen, count or many, metric=metric, goal=goal, by=by)
        document = best_document(chosen, trials)
        rows = [best_columns(trial, trials) for trial in trials]
        asked = ranking_text(trials.metric, trials.metric_goal, trials.metric_mode)
        ranked = chosen.best_trial or any(trial.rank for trial in trials)
        words = f"ranked by {asked}" if metric or goal or by else chosen.metric_reason
        reads = reads_text(chosen)
        emit(
            stdout(),
            output,
            document,
            rows,
            lambda wide: Group(
                leaderboard(trials, trials.ranked_by, wide, [*trials.objectives][1:], trials.front),
                *same_params(chosen, trials),
                *more_trials(chosen, len(trials)),
                *([cell(words, "dim")] if words else []),
                *([cell(f"policies read {reads}", "dim")] if reads else []),
                *([] if ranked else notices_view(chosen.notices)),
            ),
        )

    run(body, head=head)


def why(
    of: LatestArgument = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say why a trial, or each trial of a study, runs or waits, and what comes next.

    Example: hermesctl why digits/3
    """

    async def body(client: AsyncClient) -> None:
        failed: list[RenderableType] = []
        if of is not None and "/" in of:
            explanation = await client.why(of)
        else:
            chosen = await chosen_study(client, of)
            explanation = await client.why_study(chosen)
            for reason in await hindrances(client):
                say(f"note: {reason}")
            if output.for_people:
                detail = await client.study(chosen)
                failed = failed_trials(detail.trials, await said_last(client, detail))
        rows = [row(ranked) for ranked in explanation.ranking]
        emit(
            stdout(),
            output,
            row(explanation),
            rows,
            lambda wide: Group(
                explanation_view(explanation, wide), *([Text(), *failed] if failed else [])
            ),
        )

    run(body, head=head)


def say_gap(error: Unreachable) -> None:
    """Say that the head is away and what that means."""
    say(f"{str(error).splitlines()[0]}; reconnecting, the trials go on")


def _size(text: str) -> int:
    size_bytes = load.size_bytes(text if text.endswith("B") else f"{text}B")
    if not size_bytes:
        raise UsageError(f"--last {printable(text)}: expected a size such as 64KiB")
    return size_bytes
