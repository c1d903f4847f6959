"""`hermesd policy check`: whether a policy, with settings, keeps what every policy promises."""

from __future__ import annotations

from typing import Annotated

import typer

REFUSED = 2

Written = Annotated[
    str,
    typer.Argument(
        metavar="NAME[:SETTING=VALUE,...]",
        help="A policy, with settings, as of `hermesd simulate`; several have commas between.",
        show_default=False,
    ),
]


def check(policy: Written) -> None:
    """Try a policy out, with its defaults or these settings: all it promises, and a small study."""
    from hermesd.policy import make_policy
    from hermesd.policy.trying import faults
    from hermesd.refusal import Refused
    from hermesd.simulate.contenders import contenders

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
