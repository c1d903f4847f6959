"""`hermesctl study`: list, show and change studies."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from hermesctl.commands.export import points_as_csv, wants_csv
from hermesctl.commands.options import (
    ByOption,
    FileToOption,
    ForceOption,
    GoalOption,
    GridOption,
    HeadOption,
    NameOption,
    NewOption,
    OutputOption,
    PoliciesOption,
    RaiseOption,
    RandomOption,
    RankOption,
    SetOption,
    StudyArgument,
    TrialsOption,
    ValueOption,
    YesOption,
    complete_metric,
    complete_study,
)
from hermesctl.commands.running import (
    NounGroup,
    confirm,
    no_study_yet,
    refuse_unknown_arguments,
    retried_text,
    run,
    show_change,
)
from hermesctl.errors import UsageError
from hermesctl.render.comparison_views import comparison_view
from hermesctl.render.documents import study_document
from hermesctl.render.live import said_last
from hermesctl.render.output import Format, emit, plain, row
from hermesctl.render.replay_views import replay_rows, replay_view
from hermesctl.render.tables import params_table, ranking_text, studies_table, trials_table
from hermesctl.render.views import next_commands, status_view
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.transfer import write_file
from hermesctl.study_file.load import Document
from hermesctl.study_file.submission import from_changed_spec
from hermesctl.study_file.trees import (
    named_values,
    parse_assignments,
    parse_axes,
    tree_of,
    with_flags,
)
from hermesctl.terminal import say, stdout, write_bytes
from hermesctl.text import changed, count, printable, size
from hermesctl.waiting import progress
from hermesctl.yaml_text import Data, to_yaml

app = typer.Typer(
    cls=NounGroup, help="List, show and change studies. Without a verb: the list, or one study."
)


@app.command("ls")
def list_studies(head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the studies.

    Example: hermesctl study ls -o wide
    """

    async def body(client: AsyncClient) -> None:
        studies = [study async for study in client.studies()]
        rows = [row(study) for study in studies]
        if not studies and output.for_people:
            say(f"note: {no_study_yet()}")
            return
        emit(stdout(), output, {"studies": rows}, rows, lambda wide: studies_table(studies, wide))

    run(body, head=head)


@app.command()
def show(
    study: StudyArgument,
    file: Annotated[bool, typer.Option("--file", help="Print its study file instead.")] = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show a study and its trials.

    Example: hermesctl study show digits --file > digits.yaml
    """

    async def body(client: AsyncClient) -> None:
        detail = await client.study(study)
        if file:
            stdout().print(Text(to_yaml(detail.study.spec)), end="", soft_wrap=True)
            return
        rows = [row(trial) for trial in detail.trials]
        document = {**study_document(detail), "trials": rows}
        metric = detail.study.ranked_by
        said = await said_last(client, detail) if output.for_people else {}
        emit(
            stdout(),
            output,
            document,
            rows,
            lambda wide: Group(
                status_view(detail, said), Text(), trials_table(detail.trials, metric, wide)
            ),
        )

    run(body, head=head)


@app.command()
def pause(
    study: StudyArgument, head: HeadOption = None, output: OutputOption = Format.TABLE
) -> None:
    """Suspend all trials of a study until it is resumed; nothing is lost.

    Example: hermesctl study pause digits
    """

    async def body(client: AsyncClient) -> None:
        found = (await client.study(study)).study
        paused = await client.pause(found)
        words = changed(len(paused), found.trial_count, "paused", "paused or over already")
        show_change(output, words, {"study": found.id, "trials": paused})

    run(body, head=head)


@app.command()
def resume(
    study: StudyArgument, head: HeadOption = None, output: OutputOption = Format.TABLE
) -> None:
    """Let a paused study's trials run again.

    Example: hermesctl study resume digits
    """

    async def body(client: AsyncClient) -> None:
        found = (await client.study(study)).study
        resumed = await client.resume(found)
        words = changed(len(resumed), found.trial_count, "resumed", "not paused, or over")
        show_change(output, words, {"study": found.id, "trials": resumed})

    run(body, head=head)


@app.command()
def stop(
    study: StudyArgument,
    yes: YesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """End all unfinished trials of a study; results and checkpoints stay.

    Running and parked trials write a checkpoint first, if they can. Asks before it ends more than
    one. Their state is then `cancelled`; `stopped` means ended by one of the study's rules. `study
    retry` undoes it.

    Example: hermesctl study stop digits --yes
    """

    async def body(client: AsyncClient) -> None:
        detail = await client.study(study)
        going = [t for t in detail.trials if not t.state.final]
        if len(going) > 1:
            name = printable(detail.study.id)
            confirm(f"Stop {count(len(going), 'trial')} of {name}?", yes=yes)
        stopped = await client.stop(detail.study)
        words = changed(len(stopped), len(detail.trials), "cancelled", "over already")
        document: dict[str, Data] = {"study": detail.study.id, "trials": [*stopped]}
        show_change(output, words, document, stopped.notes)

    run(body, head=head)


@app.command()
def retry(
    study: StudyArgument, head: HeadOption = None, output: OutputOption = Format.TABLE
) -> None:
    """Run failed, stopped and cancelled trials again, from their last checkpoint, with the code and
    the environment that they were submitted with.

    Example: hermesctl study retry digits
    """

    async def body(client: AsyncClient) -> None:
        found = (await client.study(study)).study
        again = await client.retry(found)
        show_change(output, retried_text(again), {"study": found.id, "trials": again})

    run(body, head=head)


@app.command()
def extend(
    study: StudyArgument,
    settings: RaiseOption = None,
    new: NewOption = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Train trials longer, finished ones from their last checkpoint; or change a running study.

    KEY is a hyper-parameter, for finished trials, or a key of the study file: a rule under `stop`,
    `run_cap`, or, for a random search, a setting of an axis. A trial whose program has ended by
    itself needs a greater length, such as more epochs. Trials that have not started are drawn again
    from new bounds.

    Example: hermesctl study extend digits --set epochs=20

    Example: hermesctl study extend digits --set stop.max_seconds=2h

    Example: hermesctl study extend digits --set epochs=30 --set learning_rate=0.0001

    Example: hermesctl study extend draws --set run_cap=40 --set parameters.learning_rate.max=0.01
    """
    if not settings and not new:
        raise UsageError("expected --set KEY=VALUE, for example --set stop.max_seconds=2h")
    given = parse_assignments(settings or [])
    arguments = named_values("--new", new or [])

    async def body(client: AsyncClient) -> None:
        found = (await client.study(study)).study
        refuse_unknown_arguments(found, arguments)
        extended = await client.extend(
            found,
            stop=given.stop,
            parameters=given.values,
            new=arguments,
            run_cap=given.run_cap,
            axes=given.axes,
        )
        words = "\n".join(map(printable, extended.notes))
        show_change(
            output,
            words or f"{count(len(extended), 'trial')} extended",
            {"study": found.id, "trials": [*extended]},
            () if output.for_people else extended.notes,
        )

    run(body, head=head)


@app.command()
def add(
    study: StudyArgument,
    settings: ValueOption = None,
    grid: GridOption = None,
    random: RandomOption = None,
    new: NewOption = None,
    trials: TrialsOption = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Add trials to a study, even if it has finished.

    Parameters that you don't give stay as in the study. A grid gets the points that no trial has
    yet; random parameters are drawn `--trials` times. A study with a searcher gets `--trials` more
    proposed.

    Example: hermesctl study add digits --set learning_rate=3e-4

    Example: hermesctl study add digits --grid learning_rate=3e-4,1e-5 --set optimizer=adam

    Example: hermesctl study add random-digits --set learning_rate=3e-4 --trials 20

    Example: hermesctl study add digits --random learning_rate=1e-5..1e-4:log --trials 20
    """
    axes, arguments = (
        parse_axes(settings or [], grid or [], random or []),
        named_values("--new", new or []),
    )

    async def body(client: AsyncClient) -> None:
        if arguments.entries:
            refuse_unknown_arguments((await client.study(study)).study, arguments)
        added = await client.add(study, axes, new=arguments, count=trials)
        for note in added.notes:
            say(f"note: {printable(note)}")
        if output.for_people and added.trials:
            first, last = printable(added.trials[0].id), printable(added.trials[-1].id)
            which = first if first == last else f"{first} to {last}"
            say(f"{count(len(added.trials), 'trial')} added: {which}")
        rows = [row(trial) for trial in added.trials]
        notes = list(added.notes)
        document: dict[str, Data] = {"study": added.study, "trials": rows, "notes": notes}
        if output.for_people and not added.trials:
            if not added.notes:
                say("no trial was added")
            return
        metric = (await client.study(added.study)).study.ranked_by
        view = partial(trials_table, added.trials, metric)
        emit(stdout(), output, document, rows, view)

    run(body, head=head)


@app.command()
def ask(study: StudyArgument, head: HeadOption = None, output: OutputOption = Format.TABLE) -> None:
    """Ask for the next trial of a study that your own loop trains (`search: {asked: true}`).

    Its searcher proposes the trial from all results that you have told it (`trial tell`).

    Example: hermesctl study ask own -o json | jq .trial.params
    """

    async def body(client: AsyncClient) -> None:
        trial = await client.ask(study)
        if output.for_people:
            say(f"{printable(trial.id)}: hermesctl trial tell {printable(trial.id)} NAME=VALUE")
        document: dict[str, Data] = {"trial": row(trial)}
        emit(stdout(), output, document, [row(trial)], lambda wide: params_table(trial))

    run(body, head=head)


@app.command()
def metric(
    study: StudyArgument,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A metric that its trials have reported.",
            autocompletion=complete_metric,
        ),
    ],
    goal: GoalOption = "",
    by: ByOption = "",
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Rank a study by another metric from now on, even if it has finished.

    Policies still read the study's signal, which `study signal` changes. To rank by it just once:
    `best --metric NAME`.

    Example: hermesctl study metric digits val_accuracy --goal maximize
    """

    async def body(client: AsyncClient) -> None:
        found = (await client.study(study)).study
        chosen = await client.set_metric(found, name, goal=goal, by=by)
        words = ranking_text(chosen.metric, chosen.goal, chosen.mode)
        document: dict[str, Data] = {"study": found.id, **row(chosen)}
        show_change(output, f"{printable(found.id)} is ranked by {words}", document, chosen.notes)

    run(body, head=head)


@app.command()
def signal(
    study: StudyArgument,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A metric that its trials have reported.",
            autocompletion=complete_metric,
        ),
    ],
    goal: GoalOption = "",
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Have policies read another metric from now on, while the study runs.

    The curves so far are read anew; milestones start over.

    Example: hermesctl study signal digits val_loss
    """

    async def body(client: AsyncClient) -> None:
        found = (await client.study(study)).study
        direction = await client.set_signal(found, name, goal=goal)
        better = {"maximize": "higher", "minimize": "lower"}.get(direction, direction)
        words = f"policies of {printable(found.id)} read {printable(name)} now ({better} is better)"
        show_change(output, words, {"study": found.id, "signal": name, "goal": direction})

    run(body, head=head)


@app.command()
def clone(
    study: StudyArgument,
    settings: SetOption = None,
    name: NameOption = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit a study again with changes, using the same code.

    Example: hermesctl study clone digits --set schedule.policy=hermes --name digits-hermes
    """

    async def body(client: AsyncClient) -> None:
        original = (await client.study(study)).study
        tree = with_flags(tree_of(original.spec, original.id), name=name, settings=settings or ())
        prepared = from_changed_spec(Document(tree, ()), Path(original.submit_directory))
        submission = await client.clone(original, prepared)
        for note in submission.notes:
            say(f"note: {printable(note)}")
        document: dict[str, Data] = {
            "study": submission.study,
            "trials": plain(submission.trials),
            "notes": list(submission.notes),
        }
        if output.for_people:
            words = f"{printable(submission.study)}: {count(len(submission.trials), 'trial')}"
            stdout().print(Text(words, style="bold"))
        emit(stdout(), output, document, [document], lambda _: next_commands(submission.study))

    run(body, head=head)


@app.command("rm")
def remove(
    study: StudyArgument,
    yes: YesOption = False,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete a study with its trials, results, checkpoints and working copies.

    With --yes it must be named in full: a command that is repeated removes no other study.

    Example: hermesctl study rm digits
    """

    async def body(client: AsyncClient) -> None:
        found = (await client.study(study)).study
        name, held = printable(found.id), size(found.checkpoint_bytes)
        unasked = yes or found.trial_count == 0
        if unasked and study != found.id:
            raise UsageError(f"study: {printable(study)}: expected its whole id, such as {name}")
        confirm(
            f"Remove {name} with {count(found.trial_count, 'trial')} and {held} of checkpoints?",
            yes=unasked,
        )
        await client.remove(found)
        show_change(output, f"{name} removed", {"study": found.id})

    run(body, head=head)


@app.command()
def export(
    study: StudyArgument,
    to: FileToOption = None,
    force: ForceOption = False,
    head: HeadOption = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="json|csv",
            help="JSON Lines of everything, or the points as CSV. Default: by the file's ending.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Write a study as JSON Lines (its trials, journal and points too), or its points as CSV.

    Example: hermesctl study export digits --to digits.jsonl

    Example: hermesctl study export digits -o csv | head
    """
    as_csv = wants_csv(output, to)

    async def body(client: AsyncClient) -> None:
        content = client.export(study)
        if as_csv:
            content = points_as_csv(content)
        async with aclosing(content):
            if to is not None:
                await write_file(content, to, force=force)
                say(f"written to {printable(str(to))} ({size(to.stat().st_size)})")
                return
            console = stdout()
            async for data in content:
                write_bytes(console, data)

    run(body, head=head)


@app.command()
def compare(
    studies: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY STUDY...",
            help="Two studies or more: their ids, or unique prefixes.",
            autocompletion=complete_study,
            show_default=False,
        ),
    ],
    metric: RankOption = "",
    goal: GoalOption = "",
    by: ByOption = "",
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show studies side by side: the best of each, how soon it was found, and what differs.

    Values by time are the best of any trial so far; values by step are the best trial's own. The
    metric is the first study's, unless you give one.

    Example: hermesctl study compare digits digits-asha
    """

    async def body(client: AsyncClient) -> None:
        found = await client.compare(*studies, metric=metric, goal=goal, by=by)
        rows = [row(each) for each in found.studies]
        emit(stdout(), output, row(found), rows, lambda _: comparison_view(found))

    run(body, head=head)


@app.command()
def replay(
    study: StudyArgument,
    policy: PoliciesOption = "asha",
    devices: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many devices. Default: as many as it ran on.", show_default=False
        ),
    ] = None,
    head: HeadOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show how other policies would have run a study, which trials they would have ended, and
    whether that would have been a mistake.

    The real scheduler runs over the study's own curves, speeds and costs in virtual time.

    Example: hermesctl study replay digits --policy asha,hermes,fifo

    Example: hermesctl study replay digits --policy asha:eta=2,min_rung=1/27 --devices 4 -o wide
    """

    async def body(client: AsyncClient) -> None:
        found = (await client.study(study)).study
        with progress(f"replaying {printable(found.id)}"):
            document = await client.replay(found, policy, devices)
        rows = replay_rows(document)
        emit(stdout(), output, document, rows, lambda wide: replay_view(document, found, wide))

    run(body, head=head)
