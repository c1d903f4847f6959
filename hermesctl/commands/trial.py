"""`hermesctl trial`: list, show and change trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from hermesctl.commands.options import (
    HeadOption,
    LatestStudyArgument,
    NewOption,
    OutputOption,
    TrialArgument,
    TrialsArgument,
    ValueOption,
    YesOption,
    complete_metric,
    complete_trial,
)
from hermesctl.commands.running import (
    NounGroup,
    chosen_study,
    confirm,
    refuse_unknown_arguments,
    retried_text,
    run,
    show_change,
)
from hermesctl.errors import NotFound, UsageError
from hermesctl.invocation import command
from hermesctl.render.charts import plot, sparkline
from hermesctl.render.event_lines import quantum_text
from hermesctl.render.failure_views import failures_view, only_exited, without_shown_errors
from hermesctl.render.output import Format, emit, row
from hermesctl.render.tables import (
    cell,
    facts_table,
    left_text,
    param_text,
    params_text,
    state_cell,
    step_text,
    trials_table,
    varying,
)
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import MetricValue, Trial, TrialDetail, TrialState
from hermesctl.study_file.load import INT32_MAX
from hermesctl.study_file.trees import named_values
from hermesctl.terminal import say, stdout
from hermesctl.text import (
    changed,
    count,
    drawn_lines,
    duration,
    last_line,
    number,
    one_line,
    percent,
    printable,
    size,
)
from hermesctl.yaml_text import Data

_PLOT_HEIGHT = 14
_PLOT_WIDTH_MAX = 100
_USAGE_WIDTH = 40
_OUTPUT_LINES_SHOWN = 15
_MOST_ANCESTORS = 100
# What is told first of a trial that failed, and what is of no use to it.
_OF_A_FAILURE = ("trial", "state", "it said", "parameters", "step")
_OF_ONE_TO_RESUME = ("fidelity", "kept", "left")
# What the head keeps of them, beside the metrics.
_CPU_USE, _DEVICE_USE = "hermes/cpu_use", "hermes/device_use"

app = typer.Typer(
    cls=NounGroup,
    help="List, show and change trials. Without a verb: a study's trials, or one trial.",
)


@app.command("ls")
def list_trials(
    study: LatestStudyArgument = None,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="TAG",
            help="Only trials with this tag. Repeatable: trials must have them all.",
            show_default=False,
        ),
    ] = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List a study's trials.

    Example: hermesctl trial ls digits -o csv > trials.csv

    Example: hermesctl trial ls digits --tag baseline
    """

    async def body(client: AsyncClient) -> None:
        detail = await client.study(await chosen_study(client, study))
        trials = [trial for trial in detail.trials if {*(tags or ())} <= {*trial.tags}]
        if tags and not trials and output.for_people:
            say(f"no trial of {printable(detail.study.id)} matches: {_tags_there(detail.trials)}")
            return
        rows = [row(trial) for trial in trials]
        metric = detail.study.ranked_by
        document: dict[str, Data] = {"study": detail.study.id, "trials": rows}
        emit(stdout(), output, document, rows, lambda wide: trials_table(trials, metric, wide))

    run(body, head=head)


@app.command()
def show(
    trial: TrialArgument, head: HeadOption = None, output: OutputOption = Format.TABLE
) -> None:
    """Show a trial: where it stands, what it used, why it failed, what it printed last.

    Example: hermesctl trial show digits/3
    """

    run(lambda client: show_trial(client, trial, output), head=head)


async def show_trial(client: AsyncClient, trial: str, output: Format) -> None:
    """Show a trial as `trial show` does."""
    detail = await client.trial(trial)
    document = row(detail)
    uses = (
        [await _use(client, trial, of) for of in (_CPU_USE, _DEVICE_USE)]
        if output.for_people
        else [(), ()]
    )
    signal = (await client.curve(trial, max_points=1)).metric if output.for_people else ""
    wanted = ""
    if output.for_people and detail.trial.metric is None and detail.trial.metrics:
        wanted = (await client.best(detail.trial.study, 1)).metric
    family = await _family(client, detail.trial) if output.for_people else []
    rows = [row(detail.trial)]
    emit(
        stdout(),
        output,
        document,
        rows,
        lambda _: trial_view(detail, *uses, signal=signal, wanted=wanted, family=family),
    )


@app.command()
def curve(
    trial: TrialArgument,
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Which metric. Default: the signal.",
            autocompletion=complete_metric,
        ),
    ] = "",
    points: Annotated[
        int, typer.Option(min=0, max=INT32_MAX, help="At most this many points; 0: all.")
    ] = 0,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show a metric of a trial by step.

    Example: hermesctl trial curve digits/3 --metric val_loss -o csv > curve.csv
    """

    async def body(client: AsyncClient) -> None:
        found = await client.curve(trial, metric, points)
        console = stdout()
        pairs = zip(found.steps, found.values, strict=True)
        rows = [row({"step": step, found.metric or "signal": value}) for step, value in pairs]
        width = min(_PLOT_WIDTH_MAX, max(20, console.width - 14))
        lines = plot(found.steps, found.values, width, _PLOT_HEIGHT)
        if not found.steps and (await client.trial(trial)).trial.state.final:
            lines = ["no points: it ended and none was seen"]
        others = ", ".join(found.metrics_available)
        view = Group(
            cell(f"{found.metric or 'signal'}, {count(len(found.steps), 'point')}", "bold"),
            *(cell(line) for line in lines),
            cell(f"metrics: {others}" if others else "", "dim"),
        )
        emit(console, output, row(found), rows, lambda _: view)

    run(body, head=head)


@app.command()
def pause(
    trials: TrialsArgument, head: HeadOption = None, output: OutputOption = Format.TABLE
) -> None:
    """Suspend trials until they are resumed; nothing is lost.

    Example: hermesctl trial pause digits/3 digits/4
    """

    async def body(client: AsyncClient) -> None:
        paused = await client.pause(*trial_ids(trials))
        words = changed(len(paused), len(set(trials)), "paused", "paused or over already")
        show_change(output, words, {"trials": paused})

    run(body, head=head)


@app.command()
def resume(
    trials: TrialsArgument, head: HeadOption = None, output: OutputOption = Format.TABLE
) -> None:
    """Let paused trials run again.

    Example: hermesctl trial resume digits/3
    """

    async def body(client: AsyncClient) -> None:
        resumed = await client.resume(*trial_ids(trials))
        words = changed(len(resumed), len(set(trials)), "resumed", "not paused, or over")
        show_change(output, words, {"trials": resumed})

    run(body, head=head)


@app.command()
def stop(
    trials: TrialsArgument,
    yes: YesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """End trials; results and checkpoints stay. `trial retry` undoes it.

    Running and parked trials write a checkpoint first, if they can. Asks before it ends more than
    one. Their state is then `cancelled`; `stopped` means ended by one of the study's rules.

    Example: hermesctl trial stop digits/3 digits/4 --yes
    """

    async def body(client: AsyncClient) -> None:
        if len(trials) > 1:
            confirm(f"Stop {count(len(trials), 'trial')}?", yes=yes)
        stopped = await client.stop(*trial_ids(trials))
        words = changed(len(stopped), len(set(trials)), "cancelled", "over already")
        show_change(output, words, {"trials": [*stopped]}, stopped.notes)

    run(body, head=head)


@app.command()
def retry(
    trials: TrialsArgument, head: HeadOption = None, output: OutputOption = Format.TABLE
) -> None:
    """Run failed, stopped or cancelled trials again, from their last checkpoint, with the code and
    the environment that they were submitted with.

    Example: hermesctl trial retry digits/3
    """

    async def body(client: AsyncClient) -> None:
        again = await client.retry(*trial_ids(trials))
        show_change(output, retried_text(again), {"trials": again})

    run(body, head=head)


@app.command()
def fork(
    trial: TrialArgument,
    settings: ValueOption = None,
    new: NewOption = None,
    step: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=INT32_MAX,
            help="Start from its checkpoint of this step, not from where it is now.",
            show_default=False,
        ),
    ] = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Add a trial that goes on from where another one is, with other parameters.

    The other trial may be running, parked, waiting or over, and isn't changed. If it runs or is
    parked, a checkpoint of where it is now is written first. If that can't be done within 20 s, the
    new trial starts from the newest one that there is, and the answer says why.

    Lengths (`epochs`) can be raised and settings of the optimizer (`learning_rate`) changed, within
    the study's bounds, or beyond them with --new. If the program can't go on with a value, the new
    trial fails and says so.

    Example: hermesctl trial fork digits/3 --set learning_rate=1e-4
    """
    values, arguments = named_values("--set", settings or []), named_values("--new", new or [])

    async def body(client: AsyncClient) -> None:
        if arguments.entries:
            refuse_unknown_arguments((await client.study(trial.partition("/")[0])).study, arguments)
        made = await client.fork(trial, values, new=arguments, step=step)
        if output.for_people:
            at = f"step {made.forked_at_step}"
            say(f"{printable(made.id)} goes on from {printable(made.forked_from)} at {at}")
            for note in made.notes:
                say(f"note: {printable(note)}")
        metric = (await client.study(made.study)).study.ranked_by
        document: dict[str, Data] = {"trial": row(made)}
        emit(
            stdout(), output, document, [row(made)], lambda wide: trials_table([made], metric, wide)
        )

    run(body, head=head)


@app.command()
def tell(
    trial: TrialArgument,
    metrics: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="Its metrics.", show_default=False),
    ] = None,
    failed: Annotated[
        str, typer.Option(metavar="REASON", help="It failed, and why.", show_default=False)
    ] = "",
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Report the result of a trial that you asked for (`study ask`), which ends it.

    Example: hermesctl trial tell own/17 loss=0.31 accuracy=0.9
    """
    values = dict(_metric(word) for word in metrics or [])

    async def body(client: AsyncClient) -> None:
        told = await client.tell(trial, values, failure=failed)
        if output.for_people:
            say(f"{printable(told.id)}: {told.state}" + (f", rank {told.rank}" * bool(told.rank)))
            return
        emit(stdout(), output, {"trial": row(told)}, [row(told)], lambda wide: "")

    run(body, head=head)


def _metric(word: str) -> tuple[str, float]:
    name, is_given, value = word.partition("=")
    try:
        if not (name and is_given):
            raise ValueError
        return name, float(value)
    except ValueError:
        raise UsageError(f"{printable(word)}: expected a metric such as loss=0.31") from None


@app.command()
def tag(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TRIAL... TAG...",
            help="Trials, `study/17`, then tags, which have no slash.",
            autocompletion=complete_trial,
            show_default=False,
        ),
    ],
    remove: Annotated[bool, typer.Option("--remove", help="Remove these tags instead.")] = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Tag trials; `trial ls --tag` lists those with a tag.

    Example: hermesctl trial tag digits/3 digits/7 baseline

    Example: hermesctl trial tag digits/3 baseline --remove
    """
    trials, tags = [w for w in words if "/" in w], [w for w in words if "/" not in w]
    if not trials or not tags:
        raise UsageError("expected trials and tags, for example digits/3 baseline")

    async def body(client: AsyncClient) -> None:
        given, taken = ((), tags) if remove else (tags, ())
        marked = await client.tag(*trials, add=given, remove=taken)
        names, done = ", ".join(map(printable, tags)), "removed" if remove else "added"
        words = f"{count(len(marked), 'trial')}: {names} {done}"
        show_change(output, words, {"trials": marked, f"tags_{done}": tags})

    run(body, head=head)


@app.command()
def note(
    trial: TrialArgument,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="The new note, which replaces the old one; an empty text deletes it."
            " Default: show the note.",
            show_default=False,
        ),
    ] = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Write a note on a trial, or show it.

    Example: hermesctl trial note digits/3 "diverges after the warm-up"
    """

    async def body(client: AsyncClient) -> None:
        if text is None:
            found = (await client.trial(trial)).trial
            words = Text(printable(found.note, keep="\n\t") or "no note")
            if output.for_people:
                stdout().print(words, soft_wrap=True)
            else:
                show_change(output, "", {"trials": [found.id], "note": found.note})
            return
        noted = await client.note(*trial_ids([trial]), text=text)
        done = "noted" if text else "no note any more"
        show_change(output, done, {"trials": noted, "note": text})

    run(body, head=head)


async def _use(client: AsyncClient, trial: str, of: str) -> Sequence[float]:
    """The cores that its program used, or how busy its device was (0 to 1), by step; none where
    nobody measured."""
    try:
        return (await client.curve(trial, of, _USAGE_WIDTH)).values
    except NotFound:
        return ()


def trial_view(
    detail: TrialDetail,
    cpu_use: Sequence[float] = (),
    device_use: Sequence[float] = (),
    *,
    signal: str = "loss",
    wanted: str = "",
    family: Sequence[Trial] = (),
) -> RenderableType:
    """Everything about one trial, with its use of CPU and device over time.

    `signal` is the name of what policies read, `wanted` of what ranks the trials, if it has not
    reported that. `family` are the trial and those that it goes back to, the first of them first.
    """
    trial = detail.trial
    facts = _facts(trial, sparkline(cpu_use, _USAGE_WIDTH), signal, wanted, detail.pids)
    if len(family) > 1:
        facts.append(("lineage", _lineage(family)))
    if device_use:
        busy = f"busy {percent(mean(device_use))}  {sparkline(device_use, _USAGE_WIDTH)}"
        facts.append(("device use", busy))
    if detail.parked_memory:
        facts.append(("parked", one_line(detail.parked_memory)))
    if only_exited(trial):
        facts.insert(2, ("it said", last_line(detail.output_tail) or "-"))
    known = [(name, words) for name, words in facts if words != "-"]
    parts: list[RenderableType] = []
    if trial.failures:
        parts += [Text(), *failures_view(trial.failures)]
    if detail.output_tail:
        lines = without_shown_errors(drawn_lines(detail.output_tail), trial.failures)
        parts += [Text(), _last_output_heading(trial.id, len(lines))]
        parts += [cell(f"  {line}") for line in lines[-_OUTPUT_LINES_SHOWN:]]
    if trial.state is not TrialState.FAILED:
        return Group(facts_table(known), *parts)
    # What failed, why, and what it said before it is told how it was.
    first = [fact for fact in known if fact[0] in _OF_A_FAILURE]
    rest = [fact for fact in known if fact[0] not in (*_OF_A_FAILURE, *_OF_ONE_TO_RESUME)]
    return Group(facts_table(first), *parts, Text(), facts_table(rest))


def _last_output_heading(trial: str, lines: int) -> Text:
    heading = cell("last output", "bold")
    if lines > _OUTPUT_LINES_SHOWN:
        heading.append(f"  (more: {command(f'logs {trial}')})", "dim")
    return heading


def _facts(
    trial: Trial, cpu_over_time: str, signal: str, wanted: str, pids: Sequence[int]
) -> list[tuple[str, str]]:
    metrics = ", ".join(map(_metric_text, trial.metrics))
    # Only of the metric that ranks it is known which value is best.
    ranking = next((m.name for m in trial.metrics if m.best is not None), wanted or "metric")
    so_far = "" if trial.state.final else " so far"
    unseen = f"not reported{so_far}; it ranks the trials" if wanted else "no metric seen"
    state = state_cell(trial).plain
    kept = f"{trial.kept_tier} on {trial.kept_node}" if trial.kept_tier else "-"
    fidelity = trial.fidelity or "not known yet"
    if trial.fidelity and trial.widths:
        fidelity += " at fixed width"
    checkpoint = trial.checkpoint
    saved = "none" if trial.state.final else "none yet"
    if checkpoint is not None:
        saved = f"{checkpoint.id} at step {checkpoint.step}, {size(checkpoint.size_bytes)}"
        saved += ", an image of its processes" if checkpoint.image_of else ""
        saved += f": {checkpoint.why}" if checkpoint.why else ""
    return [
        ("trial", trial.id),
        ("state", f"{state}: {one_line(trial.reason)}" if trial.reason else state),
        ("last run", one_line(trial.last_run_reason) or "-"),
        ("parameters", params_text(trial.params)),
        ("step", step_text(trial)),
        ("signal", _signal_text(trial, signal)),
        (ranking, number(trial.metric) if trial.metric is not None else unseen),
        ("metrics", metrics or "-"),
        ("rank", str(trial.rank or "-")),
        ("device", trial.device or "-"),
        *_widths(trial),
        ("quantum", quantum_text(trial.quantum) if trial.quantum else "-"),
        ("milestone", f"{trial.milestone_percent:g} %" if trial.milestone_percent else "-"),
        ("kept", kept),
        ("pid", ", ".join(map(str, pids)) or "-"),
        ("fidelity", f"{fidelity}: {trial.fidelity_reason}" if trial.fidelity_reason else fidelity),
        *_origin(trial),
        ("checkpoint", saved),
        *_effort(trial, cpu_over_time),
        ("framework", trial.framework or "-"),
        ("tags", ", ".join(trial.tags) or "-"),
        ("note", " ".join(trial.note.split()) or "-"),
        ("command", " ".join(trial.argv)),
    ]


def _effort(trial: Trial, cpu_over_time: str) -> Iterator[tuple[str, str]]:
    """What it took, and how fast it is; nothing of a trial that has never begun."""
    if not trial.attempt:
        return
    yield "attempts", f"{trial.attempt} ({count(trial.preemptions, 'preemption')})"
    used = f"{duration(trial.busy_seconds)}, {percent(trial.overhead_share)} overhead"
    yield "device time", used
    if trial.steps_per_second:
        rate = f"{trial.steps_per_second:.3g} steps/s"
        if trial.examples_per_second:
            rate += f", {trial.examples_per_second:.4g} examples/s"
        yield "speed", rate
    yield "left", left_text(trial)
    if trial.memory_bytes:
        yield "memory", size(trial.memory_bytes)
    if trial.device_memory_bytes:
        yield "GPU memory", size(trial.device_memory_bytes)
    if trial.cpu_use or cpu_over_time:
        yield "CPU", f"{trial.cpu_use:.2f} cores  {cpu_over_time}".rstrip()


def _widths(trial: Trial) -> Iterator[tuple[str, str]]:
    """How fast it is on how many devices, where it may have more or fewer."""
    if trial.widths:
        known = (
            f"{count(each.devices, 'device')}: {each.steps_per_second:.3g} steps/s"
            for each in trial.widths
            if each.steps_per_second
        )
        times = f"resized {count(trial.resizes, 'time')}"
        yield "widths", "; ".join((*known, times))


def _origin(trial: Trial) -> Iterator[tuple[str, str]]:
    if trial.rides_on:
        yield "rides on", f"{trial.rides_on}, which trains for both"
    if trial.shared_out_seconds:
        trained = f"{trial.shared_steps} of {trial.step} steps were trained by others"
        yield "shared out", f"{duration(trial.shared_out_seconds)}; {trained}"
    if trial.forked_from:
        yield "forked from", f"{trial.forked_from} at step {trial.forked_at_step}"
    if trial.replaced_by:
        yield "replaced by", trial.replaced_by


async def _family(client: AsyncClient, trial: Trial) -> list[Trial]:
    """A trial and those that it goes back to, as far as they are still there."""
    found = [trial]
    while found[0].forked_from and len(found) < _MOST_ANCESTORS:
        try:
            found.insert(0, (await client.trial(found[0].forked_from)).trial)
        except NotFound:
            break
    return found


def _lineage(family: Sequence[Trial]) -> str:
    """Until which step the values of each were in force, of the parameters that have changed."""
    names = varying(family)
    begins = [f"to step {each.forked_at_step}" for each in family[1:]]
    return "; ".join(
        f"{each.id} {until}: {' '.join(f'{name}={param_text(each, name)}' for name in names)}"
        for each, until in zip(family, [*begins, "since"], strict=True)
    )


def _signal_text(trial: Trial, name: str) -> str:
    """What policies read of it, and what that is: the core's `Trial.loss`."""
    if trial.signal is None:
        return "-"
    what = f"{name} without penalties" if name == "loss" else name
    return f"{number(trial.signal)}, what policies read: {what}, the mean of the last tenth so far"


def _metric_text(metric: MetricValue) -> str:
    words = f"{metric.name} {number(metric.last)}"
    if metric.low is None or metric.high is None:
        return words
    return f"{words} ({number(metric.low)} … {number(metric.high)})"


def _tags_there(trials: Sequence[Trial]) -> str:
    """Which tags trials have, for who looks for others."""
    known = sorted({tag for trial in trials for tag in trial.tags})
    return f"its trials have the tags {', '.join(known)}" if known else "no trial of it has a tag"


def trial_ids(trials: list[str]) -> list[str]:
    """The ids given; raises UsageError for one that is a study's."""
    for trial in trials:
        if "/" not in trial:
            raise UsageError(f"{printable(trial)}: expected a trial, `study/17`")
    return trials
