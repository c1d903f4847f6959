"""`submit`: from a file, or a script and flags, to a study.

After Ctrl-C it says whether the request was sent. An identical study is never run twice unless that
is asked for.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from hermesctl.commands.options import (
    AgainOption,
    EnvOption,
    FileArgument,
    GridOption,
    HeadOption,
    LocalOption,
    MetricOption,
    NameOption,
    OutputOption,
    PoolOption,
    RandomOption,
    SetOption,
    TrialsOption,
    TryOption,
    YesOption,
)
from hermesctl.commands.preview import prepare, renamed, show_preview
from hermesctl.commands.running import confirm, outcome, run, saying_if_interrupted
from hermesctl.commands.try_out import try_out
from hermesctl.errors import ExitCode, UsageError
from hermesctl.invocation import command
from hermesctl.render.documents import best_columns, ending_document, submission_document
from hermesctl.render.live import follow_to_the_end, show_end
from hermesctl.render.node_views import hindrances
from hermesctl.render.output import Format, emit
from hermesctl.render.views import next_commands, progress_line, to_look_at
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.forecast import with_doubts
from hermesctl.sdk.records import StudyDetail, Submission, TrialState
from hermesctl.study_file.regular_files import open_regular
from hermesctl.study_file.submission import Prepared, fewest_trials, program_sha256
from hermesctl.study_file.write import study_text
from hermesctl.terminal import say, stderr, stdout
from hermesctl.text import count, duration, printable
from hermesctl.waiting import progress
from hermesd.pb.hermes.v1.types_pb2 import StudySpec

# What is more than these is asked about: a grid grows by a factor with each axis.
MANY_TRIALS = 1_000


class _Sent(Enum):
    NOTHING = auto()
    REQUEST = auto()
    ANSWERED = auto()


@dataclass(slots=True)
class _Progress:
    """How far a submit has come, for whoever interrupts it."""

    local: bool
    sent: _Sent = _Sent.NOTHING
    study: str = ""


def submit(
    file: FileArgument,
    grid: GridOption = None,
    random: RandomOption = None,
    trials: TrialsOption = None,
    settings: SetOption = None,
    metric: MetricOption = None,
    name: NameOption = None,
    pool: PoolOption = None,
    env: EnvOption = None,
    local: LocalOption = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show the trials until the study has finished.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the study to finish.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only check and expand it; needs no head and starts none."),
    ] = False,
    tries: TryOption = False,
    again: AgainOption = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the equivalent study file here.")
    ] = None,
    yes: YesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit a study: a file, or a script with a grid or random draws.

    Example: hermesctl submit study.yaml --local --follow

    Example: hermesctl submit train.py --grid lr=1e-3,5e-4 --grid layers=2,3

    Example: hermesctl submit train.py --random lr=1e-5..1e-1:log --trials 20

    Example: hermesctl submit study.yaml --set schedule.policy=fifo --dry-run

    Example: hermesctl submit study.yaml --try
    """
    _one_of(dry_run, tries)
    axes = {"grid": grid, "random": random, "settings": settings}
    far = _Progress(local and not dry_run)
    interrupted = partial(_interrupted, far)
    with saying_if_interrupted(interrupted):
        prepared = prepare(file, **axes, trials=trials, metric=metric, name=name, pool=pool)
        prepared, saved = _saving(save, _taken(prepared, dry_run or yes), yes)
        environment = _environment(env or [])

    async def body(client: AsyncClient) -> ExitCode | None:
        await _confirm_many_trials(client, prepared, dry_run or yes)
        if tries and not await _tried(client, prepared, environment, yes):
            return ExitCode.TRIALS_FAILED
        far.sent = _Sent.REQUEST
        before = (await client.server_info()).journal_sequence if follow and not dry_run else 0
        with progress("sending the study"):
            submission = await client.submit(
                prepared, again=again, dry_run=dry_run, environment=environment
            )
        far.sent, far.study = _Sent.ANSWERED, submission.study
        submission = await with_doubts(prepared, submission)
        _save(save, saved, bool(env))
        if words := renamed(prepared, submission):
            say(f"note: {words}")
        if dry_run:
            show_preview(stdout(), prepared, submission, output)
            return None
        await _say_notes(client, submission)
        if not output.for_people:
            return await _report(client, submission, output, wait=wait or follow)
        return _ended(await _watch(client, submission, before if follow else None, wait), local)

    run(body, head=head, local=local, starts=not dry_run, interrupted=interrupted, waiting="")


def _one_of(dry_run: bool, tries: bool) -> None:
    if dry_run and tries:
        raise UsageError(
            "--dry-run and --try: expected one of them; `preview --try` submits nothing"
        )


def _taken(prepared: Prepared, anyway: bool) -> Prepared:
    """The study. Raises UsageError, unless it is wanted anyway, for parameters and values with
    which trials would not get beyond their command lines."""
    if prepared.refused and not anyway:
        told = "\n".join(map(str, prepared.refused))
        raise UsageError(
            f"{told}\nNothing was submitted: trials would fail at once. If the program takes it all"
            " the same, add --yes"
        )
    return prepared


async def _confirm_many_trials(client: AsyncClient, prepared: Prepared, anyway: bool) -> None:
    """Ask, where there is somebody to ask, before a study of very many trials is submitted, with
    what that comes to if the same program has run before."""
    trials = fewest_trials(prepared.spec)
    if trials <= MANY_TRIALS or anyway or not (sys.stdin and sys.stdin.isatty()):
        return
    devices = sum(len(node.devices) for node in await client.nodes()) or 1
    words, program = f"Submit {trials:,} trials?", program_sha256(prepared)
    before = [s async for s in client.studies() if program and s.program_sha256 == program]
    before = [each for each in before if each.counts.get(TrialState.COMPLETED)]
    if before:
        last = before[-1]
        done = [t async for t in client.trials(last) if t.state is TrialState.COMPLETED]
        seconds = sum(each.busy_seconds for each in done) / max(1, len(done))
        at_once = max(1, devices // max(1, prepared.spec.resources.devices))
        words = (
            f"Submit {trials:,} trials? Of {duration(seconds)} each, as in {printable(last.id)},"
            f" they take {duration(trials * seconds / at_once)} on {count(devices, 'device')}."
        )
    confirm(words, yes=False)


async def _tried(
    client: AsyncClient, prepared: Prepared, environment: dict[str, str], yes: bool
) -> bool:
    """Whether the first trial, tried for some seconds, lets the others follow."""
    tried = await try_out(client, prepared, environment)
    stderr().print(tried.view())
    if tried.has_failed:
        say("nothing was submitted")
    elif tried.doubt:
        say(f"note: {tried.doubt}")
        confirm("Submit anyway?", yes=yes)
    return not tried.has_failed


async def _watch(
    client: AsyncClient, submission: Submission, follow_after: int | None, wait: bool
) -> StudyDetail | None:
    """Say what was submitted, and be there until it has finished if that is asked for: with
    everything that happens after this number, or waiting for it; the study then."""
    console = stdout()
    there = await _announce(client, console, submission)
    if follow_after is not None:
        return await follow_to_the_end(client, submission.study, console, follow_after)
    if wait:
        await _finished(client, submission)
        console.print()
        return await show_end(client, submission.study, console)
    console.print()
    console.print(await _look_further(client, submission, there))
    return None


def _ended(detail: StudyDetail | None, local: bool) -> ExitCode | None:
    """The exit code of a study that has finished; what is not over with it is said."""
    if detail is None:
        return None
    if local:
        say(f"your head and node stay; {command('local stop')} ends them")
    return outcome(detail)


async def _finished(client: AsyncClient, submission: Submission) -> StudyDetail:
    with progress(f"waiting until {printable(submission.study)} has finished"):
        return await client.wait(submission)


async def _look_further(
    client: AsyncClient, submission: Submission, there: StudyDetail | None
) -> RenderableType:
    """Where to look at a study: one that was there before may have ended."""
    if there is None or not there.study.finished:
        return next_commands(submission.study)
    best = await client.best(there.study, 1)
    return next_commands(submission.study, to_look_at(best, there.trials), ended=True)


async def _say_notes(client: AsyncClient, submission: Submission) -> None:
    for note in submission.notes:
        say(f"note: {printable(note)}")
    for reason in await hindrances(client):
        say(f"note: {reason}")


def _environment(flags: list[str]) -> dict[str, str]:
    variables = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not name or not equals:
            raise UsageError(f"--env {printable(flag)}: expected NAME=VALUE")
        variables[name] = value
    return variables


def _saving(path: Path | None, prepared: Prepared, yes: bool) -> tuple[Prepared, str]:
    """The study with the file that it is to be saved as, and that file's text."""
    if path is None:
        return prepared, ""
    text = _to_save(path, prepared, yes)
    return replace(prepared, own_files=(*prepared.own_files, path)), text


def _to_save(path: Path, prepared: Prepared, yes: bool) -> str:
    """The text of the study file, once nothing is in its way; raises UsageError."""
    text = _text_for(path, prepared)
    try:
        old = None
        if path.exists():
            with open_regular(path) as stream:
                old = stream.read()
        if old not in (None, text.encode()) and not yes:
            raise UsageError(f"{printable(str(path))}: it exists; add --yes to replace it")
        path.parent.stat()
    except OSError as error:
        raise UsageError(f"{printable(str(path))}: {error.strerror}") from None
    return text


def _text_for(path: Path, prepared: Prepared) -> str:
    """The study as a file at `path`, whose paths begin where that is."""
    spec, directory = prepared.spec, prepared.directory
    if path.absolute().parent.resolve() == directory.resolve():
        return study_text(spec)
    if not spec.program or "/" in spec.program:
        raise UsageError(
            f"--save {printable(str(path))}: expected a file in {printable(str(directory))}, where "
            "the paths of this study begin"
        )
    # An absolute program brings its directory along, in which all other paths begin.
    elsewhere = StudySpec()
    elsewhere.CopyFrom(spec)
    elsewhere.program = str(directory / spec.program)
    return study_text(elsewhere)


def _save(path: Path | None, text: str, env: bool) -> None:
    if path is None:
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{printable(str(path))}: {error.strerror}") from None
    say(f"saved as {printable(str(path))}" + (" (without what --env gives)" if env else ""))


async def _report(
    client: AsyncClient, submission: Submission, output: Format, *, wait: bool
) -> ExitCode | None:
    """The submission for a program: one document, once all that is waited for has ended."""
    document = submission_document(submission)
    rows, code = [document], None
    if wait:
        say(_summary(submission))
        detail = await _finished(client, submission)
        best = await client.best(submission, max(1, len(detail.trials)))
        document |= ending_document(detail, best)
        rows = [best_columns(trial, best) for trial in best]
        code = outcome(detail)
    emit(stdout(), output, document, rows, lambda _: "")
    return code


async def _announce(
    client: AsyncClient, console: Console, submission: Submission
) -> StudyDetail | None:
    """Say what came of it; of a study that was there before also how far it is, and return it."""
    summary = _summary(submission)
    if not submission.identical_to:
        console.print(Text(summary, style="bold"))
        return None
    again = Text("Add --again to run it once more.", style="dim")
    console.print(Text(f"{summary}\n") + again)
    there = await client.study(submission)
    if not there.study.finished:
        console.print(progress_line(there), soft_wrap=True)
    if failed := sum(trial.state is TrialState.FAILED for trial in there.trials):
        retry = command(f"study retry {printable(there.study.id)}")
        say(
            f"{count(failed, 'trial')} of it failed: {retry} runs those again in the environment"
            " that they were submitted from, --again all of them in today's"
        )
    return there


def _summary(submission: Submission) -> str:
    study = printable(submission.study)
    if submission.identical_to:
        return f"{study} is this very study, submitted before; nothing new was started."
    return f"{study}: {count(len(submission.trials), 'trial')}"


def _interrupted(progress: _Progress) -> str:
    study = printable(progress.study)
    match progress.sent:
        case _Sent.NOTHING:
            stays = f"; your local head stays: {command('local stop')} ends it"
            return f"nothing was submitted{stays if progress.local else ''}"
        case _Sent.REQUEST:
            return f"the study may have been submitted: {command('study ls')} tells"
        case _Sent.ANSWERED:
            commands = {
                command(f"top {study}"): "look again",
                command(f"tail -f {study}"): "follow it as lines",
                command(f"study stop {study}"): "end it",
            }
            if progress.local:
                commands[command("local stop")] = (
                    "end your local head; it asks first if a trial would have to start over"
                )
            width = max(map(len, commands))
            rows = [f"  {line:<{width}}  {meaning}" for line, meaning in commands.items()]
            return "\n".join([f"{study} goes on without this terminal", *rows])
