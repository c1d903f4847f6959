"""The arguments and flags that many commands share, with the completion of ids.

The same thing has the same name, letter and help everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer

from hermesctl.errors import HermesError
from hermesctl.render.output import Format
from hermesctl.render.tables import value_text
from hermesctl.sdk.address import HEAD_VARIABLE
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import Trial
from hermesctl.study_file.load import INT32_MAX
from hermesctl.study_file.schema import setting_keys
from hermesctl.study_file.submission import open_study, options_of
from hermesctl.yaml_text import Data

_COMPLETION_PATIENCE_SECONDS = 0.0
_TRIALS_LOOKED_AT = 100

T = TypeVar("T")


def complete_study(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of studies that begin so; nothing where no head answers."""

    async def ask() -> list[str]:
        async with _named_head(ctx) as client:
            return [s.id async for s in client.studies() if s.id.startswith(incomplete)]

    return _quietly(ask)


def complete_trial(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of trials; studies first, until there is a slash or one study is left, after which a
    shell would set a space."""
    study, slash, _ = incomplete.partition("/")
    if not slash:
        studies = complete_study(ctx, incomplete)
        if len(studies) != 1:
            return [f"{found}/" for found in studies]
        study, incomplete = studies[0], f"{studies[0]}/"

    async def ask() -> list[str]:
        async with _named_head(ctx) as client:
            return [t.id async for t in client.trials(study) if t.id.startswith(incomplete)]

    return _quietly(ask)


def complete_study_or_trial(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of studies; behind a slash, those of the study's trials."""
    return (complete_trial if "/" in incomplete else complete_study)(ctx, incomplete)


def complete_policies(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of policies that the head has, after the last comma."""
    before, comma, last = incomplete.rpartition(",")

    async def ask() -> list[str]:
        async with _named_head(ctx) as client:
            return list((await client.server_info()).policies)

    return [f"{before}{comma}{name}" for name in _quietly(ask) if name.startswith(last)]


def complete_node(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of nodes."""

    async def ask() -> list[str]:
        async with _named_head(ctx) as client:
            return [n.id for n in await client.nodes() if n.id.startswith(incomplete)]

    return _quietly(ask)


def complete_pool(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of pools that have a node."""

    async def ask() -> list[str]:
        async with _named_head(ctx) as client:
            return sorted({n.pool for n in await client.nodes() if n.pool.startswith(incomplete)})

    return _quietly(ask)


def complete_metric(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of metrics that the trial, or a trial of the study, before them has reported."""
    named = (each.name for trial in _named_trials(ctx) for each in trial.metrics)
    return [name for name in dict.fromkeys(named) if name.startswith(incomplete)]


def complete_value(ctx: typer.Context, incomplete: str) -> list[str]:
    """Hyper-parameters of the trial, or of the study, before them, each with a value to change."""
    values: dict[str, Data] = {}
    for trial in _named_trials(ctx):
        values = {**trial.params, **values}
    found = [f"{name}={value_text(value)}" for name, value in values.items()]
    return [words for words in found if words.startswith(incomplete)]


def complete_axis(ctx: typer.Context, incomplete: str) -> list[str]:
    """Options of the script before them, or hyper-parameters of the study."""
    return [words for name in _axes(ctx) if (words := f"{name}=").startswith(incomplete)]


def complete_setting(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same, and keys of a study file."""
    keys = [words for key in setting_keys() if (words := f"{key}=").startswith(incomplete)]
    return complete_axis(ctx, incomplete) + keys


def _axes(ctx: typer.Context) -> list[str]:
    if all(each.name != "file" for each in ctx.command.params):
        return list(dict.fromkeys(name for trial in _named_trials(ctx) for name in trial.params))
    file = next((Path(words) for words in (ctx.params.get("file"), *ctx.args) if words), Path())
    try:
        options = options_of(file, open_study(file), Path.cwd())
    except HermesError:
        return []
    return sorted(each[2:] for each in options - {"--help"} if each.startswith("--"))


def _named_trials(ctx: typer.Context) -> list[Trial]:
    """The trial, or the first trials of the study, that the words before name."""
    # An option whose value is still to come keeps arguments from being told apart.
    given = (ctx.params.get("trial"), ctx.params.get("study"), *ctx.args)
    name = next((words for words in given if words), "")

    async def ask() -> list[Trial]:
        async with _named_head(ctx) as client:
            if "/" in name:
                return [(await client.trial(name)).trial]
            if not name:
                return []
            async with aclosing(client.trials(name)) as trials:
                found = []
                async for each in trials:
                    found.append(each)
                    if len(found) == _TRIALS_LOOKED_AT:
                        break
                return found

    return _quietly(ask)


def _named_head(ctx: typer.Context) -> AsyncClient:
    """The head that the words before the one to be completed name, or else the usual one."""
    head = ctx.params.get("head") or ctx.find_root().params.get("head")
    return AsyncClient(head, patience_seconds=_COMPLETION_PATIENCE_SECONDS)


def _quietly(ask: Callable[[], Coroutine[None, None, list[T]]]) -> list[T]:
    try:
        return asyncio.run(ask())
    except HermesError:
        return []


HeadOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--head",
        metavar="ADDRESS",
        help="HOST:PORT, the name of a login (`hermesctl login`), or unix:PATH."
        f" Default: {HEAD_VARIABLE}, else your current login, else your own local head.",
        show_default=False,
        rich_help_panel="Connection",
    ),
]
OwnNodesOption = Annotated[
    bool,
    typer.Option(
        "--own",
        help="Only for your own trials, in the pool `own`. Always so unless you are an admin.",
    ),
]
OutputOption: TypeAlias = Annotated[
    Format, typer.Option("--output", "-o", help="How to print the result.")
]
YesOption: TypeAlias = Annotated[
    bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.", show_default=False)
]
AgainOption: TypeAlias = Annotated[
    bool, typer.Option("--again", help="Run it even if an identical study exists.")
]
TryOption: TypeAlias = Annotated[
    bool,
    typer.Option("--try", help="Run the first seconds of one trial, and list its metrics."),
]
PoliciesOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME[:SETTING=VALUE],...",
        help="Policies with settings, as for `hermesd simulate`.",
        autocompletion=complete_policies,
    ),
]
FileToOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--to", metavar="FILE", help="Where to. Default: stdout.", show_default=False),
]
ForceOption: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Replace what is there.", show_default=False)
]
GoalOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--goal",
        metavar="minimize|maximize",
        help="Whether low or high values are best. Default: the study's goal for it, else"
        " minimize.",
        show_default=False,
        autocompletion=lambda: ["minimize", "maximize"],
    ),
]
RankOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Rank by this metric just this once; `study metric` changes it for good.",
        autocompletion=complete_metric,
        show_default=False,
    ),
]
ByOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="last|best|smoothed",
        help="Which value of a trial counts; smoothed, for the study's signal only, is the mean of"
        " its last tenth. Default: smoothed for the signal, else last.",
        show_default=False,
        autocompletion=lambda: ["last", "best", "smoothed"],
    ),
]
StudyArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study's id, or a unique prefix of it.",
        autocompletion=complete_study,
        show_default=False,
    ),
]
LatestStudyArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="STUDY",
        help="A study's id, or a unique prefix of it. Default: the newest.",
        autocompletion=complete_study,
        show_default=False,
    ),
]
LatestArgument: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="STUDY|TRIAL",
        help="A study, or a trial, `study/17`; a unique prefix will do. Default: the newest study.",
        autocompletion=complete_study_or_trial,
        show_default=False,
    ),
]
TrialArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TRIAL",
        help="A trial, `study/17`, or a unique prefix.",
        autocompletion=complete_trial,
        show_default=False,
    ),
]
TrialsArgument: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="TRIAL...",
        help="Trials, `study/17`.",
        autocompletion=complete_trial,
        show_default=False,
    ),
]
NodeArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="NODE", help="A node's name.", autocompletion=complete_node, show_default=False
    ),
]
FileArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A study file (.yaml, .yml, .json), a script (.py), or any program that can be run.",
        show_default=False,
    ),
]
GridOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="NAME=V,V",
        help="An axis of the grid. Repeatable.",
        autocompletion=complete_axis,
        show_default=False,
    ),
]
RandomOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--random",
        metavar="NAME=LOW..HIGH[:log]",
        help="Draw a parameter at random; with :log, each decade is equally likely. --trials says"
        " how often. Repeatable.",
        autocompletion=complete_axis,
        show_default=False,
    ),
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a parameter, epochs=5, or a key of the study file, schedule.policy=asha."
        " Repeatable.",
        autocompletion=complete_setting,
        show_default=False,
    ),
]
RaiseOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a limit, a parameter or a bound: stop.max_steps=2000, epochs=20, run_cap=40."
        " Repeatable.",
        autocompletion=complete_value,
        show_default=False,
    ),
]
ValueOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Give a parameter this one value. Repeatable.",
        autocompletion=complete_value,
        show_default=False,
    ),
]
TrialsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--trials",
        min=1,
        max=INT32_MAX,
        metavar="N",
        help="How many trials to draw, or the most to take from a grid.",
        show_default=False,
    ),
]
NewOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--new",
        metavar="NAME=VALUE",
        help="Pass the program an argument that is not a parameter of the study. Repeatable.",
        show_default=False,
    ),
]
MetricOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:GOAL]",
        help="The metric that ranks the trials, for example val_accuracy:maximize.",
        show_default=False,
    ),
]
NameOption: TypeAlias = Annotated[
    str | None, typer.Option(help="The study's name.", show_default=False)
]
PoolOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The pool whose nodes run it; `node ls` lists them.",
        autocompletion=complete_pool,
        show_default=False,
    ),
]
EnvOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME=VALUE",
        help="An environment variable for the trials. Repeatable.",
        show_default=False,
    ),
]
LocalOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--local",
        help="Use your own head on this machine; start it if needed.",
        show_default=False,
        rich_help_panel="Connection",
    ),
]
