"""The simulator's command lines: `hermesd simulate`, for people; and `replay` and `forecast`, which
`hermesctl` runs on an exported study and which print JSON.

A key keeps its name and meaning as long as `version` is the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hermesd.sim.contenders import Contender


VERSION = 1
REFUSED, INTERRUPTED = 2, 130

Export = Annotated[
    Path, typer.Argument(metavar="EXPORT", help="What `hermesctl study export` wrote.")
]
Policy = Annotated[str, typer.Option(help="Policies with settings, as for `hermesd simulate`.")]
Charts = Annotated[
    Path | None, typer.Option(help="Draw charts into this folder.", show_default=False)
]
History = Annotated[
    list[Path] | None,
    typer.Option(
        help="A file to treat as an earlier study, for policies that use these; repeatable.",
        show_default=False,
    ),
]

SwitchCost = Annotated[
    str,
    typer.Option(help="Seconds of a suspend and a resume; paper: those of the Hermes paper."),
]
MetricLoss = Annotated[
    str,
    typer.Option(
        metavar="base|total",
        help="The loss for policies and figures: base, or total, with penalties.",
    ),
]
Good = Annotated[
    str,
    typer.Option(
        metavar="way|optimum",
        help="A loss is good at 90 % of the way from start to best, or at best / 0.9 (optimum).",
    ),
]


def simulate(
    curves: Annotated[
        list[Path] | None, typer.Option(help="A file of recorded curves; list as many as you like.")
    ] = None,
    more: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="More files.", show_default=False),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="Policies, with settings, such as asha:eta=2. Default: fifo, round_robin, slaq,"
            " hermes, hermes with homes and a G_thres of 4, asha, best_first.",
            show_default=False,
        ),
    ] = "fifo,round_robin,slaq,hermes,hermes:placement=homes,g_thres=4,asha,best_first",
    devices: Annotated[
        str,
        typer.Option(help="How many devices: 1,4 tries both; 100:70:50 is three unequal ones."),
    ] = "1,4",
    trials: Annotated[
        int | None,
        typer.Option(
            help="How many trials an order has. Default: 16; an exported study is run whole.",
            show_default=False,
        ),
    ] = None,
    bins: Annotated[
        str | None,
        typer.Option(
            "--bin",
            help="1: a quarter of the trials are good; 2: three quarters; all: the file as it is."
            " Default: 1,2; all for an exported study.",
            show_default=False,
        ),
    ] = None,
    orders: Annotated[
        int, typer.Option(help="How many random orders to try, the same for every policy.")
    ] = 200,
    switch_cost: SwitchCost = "paper",
    metric_loss: MetricLoss = "base",
    good: Good = "way",
    seed: Annotated[int, typer.Option(help="The seed of the random orders.")] = 0,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many processes to use. Default: one per core.", show_default=False
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="table|json", help="How to print the figures."),
    ] = "table",
    charts: Charts = None,
    history: History = None,
) -> None:
    """Compare policies on recorded curves, in virtual time.

    Example: hermesd simulate --curves digits.jsonl --policy fifo,best_first --devices 4 --orders 1
    """
    from hermesd.sim import comparison

    files = [*(curves or ()), *(more or ())]
    cores = processes or len(os.sched_getaffinity(0))
    words = comparison.Words(
        files, policy, devices, bins, trials, orders, switch_cost, metric_loss, good, seed,
        cores, output, charts, history or (),
    )  # fmt: skip
    with _refusing(comparison.OPTIONS):
        comparison.simulate(words)


def replay(
    export: Export,
    policy: Policy = "asha",
    devices: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many devices. Default: as many as it ran on.", show_default=False
        ),
    ] = None,
) -> None:
    """Print as JSON how an exported study ran, and how it would have under other policies.

    `hermesctl study replay` shows the same as tables.

    Example: hermesd replay digits.jsonl --policy asha,fifo | jq .policies
    """

    def answer(chosen: tuple[Contender, ...]) -> Any:
        from hermesd.sim.replay import replay

        return replay(export, chosen, devices)

    _print(policy, answer)


def forecast(
    export: Export,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials in the planned study.")],
    policy: Policy = "best_first",
    devices: Annotated[int, typer.Option(min=1, help="How many devices it will have.")] = 1,
    draws: Annotated[
        int, typer.Option(min=1, help="How many random samples of trials to simulate.")
    ] = 10,
) -> None:
    """Print as JSON when a planned study would have results, judging by an exported one.

    `hermesctl preview` shows the same as text.

    Example: hermesd forecast digits.jsonl --trials 32 --devices 4
    """

    def answer(chosen: tuple[Contender, ...]) -> Any:
        from hermesd.sim.forecast import forecast

        return forecast(export, chosen, devices, trials, draws)

    _print(policy, answer)


def _print(policy: str, answer: Callable[[tuple[Contender, ...]], Any]) -> None:
    """What is answered for these policies, as JSON; a refusal on standard error."""
    from hermesd.sim.contenders import contenders

    with _refusing(("policy", "draws")):
        answered = answer(contenders(policy))
    print(json.dumps({"version": VERSION, **asdict(answered)}, indent=1))


@contextmanager
def _refusing(options: Sequence[str]) -> Iterator[None]:
    """Tell what is wrong with the words of these options, and leave; as when interrupted."""
    from hermesd.refusal import Refused, as_options
    from hermesd.sim.drive import SimulationStalled

    try:
        yield
    except (Refused, SimulationStalled) as error:
        told = as_options(error, options) if isinstance(error, Refused) else str(error)
        for line in told.splitlines():
            typer.echo(f"hermesd: {line}", err=True)
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


# `hermesd policy check`: whether a policy, with settings, keeps what every policy promises.

Written = Annotated[
    str,
    typer.Argument(
        metavar="NAME[:SETTING=VALUE,...]",
        help="A policy with settings, as for `hermesd simulate`; separate several by commas.",
        show_default=False,
    ),
]


def check(policy: Written) -> None:
    """Check that a policy keeps its contract, then run a small simulated study with it.

    Example: hermesd policy check asha:eta=2
    """
    from hermesd.policy import make_policy
    from hermesd.policy.check import faults
    from hermesd.refusal import Refused
    from hermesd.sim.contenders import contenders

    found: list[str] = []
    try:
        for each in contenders(policy):
            mine = faults(make_policy(each.policy))
            found += [f"{each.label}: {fault}" for fault in mine]
            if not mine:
                typer.echo(f"{each.label} keeps the contract of a policy")
    except Refused as error:
        found = str(error).splitlines()
    for line in found:
        typer.echo(f"hermesd: {line}", err=True)
    if found:
        raise typer.Exit(REFUSED)
