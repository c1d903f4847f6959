"""`hermesd replay` and `hermesd forecast`: what `hermesctl` asks of an exported study, as JSON.

Rule: a key once there keeps its name and meaning under the same `version`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hermesd.simulate.contenders import Contender

VERSION = 1
REFUSED, INTERRUPTED = 2, 130

Export = Annotated[
    Path, typer.Argument(metavar="EXPORT", help="What `hermesctl study export` wrote.")
]
Policy = Annotated[str, typer.Option(help="Policies, with settings, as of `hermesd simulate`.")]


def replay(
    export: Export,
    policy: Policy = "asha",
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="Default: as many as it ran on.", show_default=False),
    ] = None,
) -> None:
    """Say what became of an exported study, and what would have under other policies: as JSON.

    People use `hermesctl study replay`.
    """

    def answer(chosen: tuple[Contender, ...]) -> Any:
        from hermesd.simulate.replay import replay

        return replay(export, chosen, devices)

    _print(policy, answer)


def forecast(
    export: Export,
    trials: Annotated[int, typer.Option(min=1, help="Trials of the study to come.")],
    policy: Policy = "best_first",
    devices: Annotated[int, typer.Option(min=1, help="Devices that it will have.")] = 1,
    draws: Annotated[int, typer.Option(min=1, help="How often trials are drawn.")] = 10,
) -> None:
    """Say when a study to come has something, by the curves of an exported one: as JSON.

    People use `hermesctl preview`.
    """

    def answer(chosen: tuple[Contender, ...]) -> Any:
        from hermesd.simulate.forecast import forecast

        return forecast(export, chosen, devices, trials, draws)

    _print(policy, answer)


def _print(policy: str, answer: Callable[[tuple[Contender, ...]], Any]) -> None:
    """What is answered for these policies, as JSON; a refusal on standard error."""
    from hermesd.refusal import Refused, as_options
    from hermesd.simulate.contenders import contenders
    from hermesd.simulate.drive import Stalled

    try:
        answered = answer(contenders(policy))
    except (Refused, Stalled) as error:
        told = as_options(error, ("policy",)) if isinstance(error, Refused) else str(error)
        for line in told.splitlines():
            typer.echo(f"hermesd: {line}", err=True)
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    print(json.dumps({"version": VERSION, **asdict(answered)}, indent=1))
