"""What administrators do with a head's state: a backup while it runs, a repair while it does
not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from hermesd.security.accounts import not_permitted

if TYPE_CHECKING:
    from hermesd.config.schema import HeadConfig

FAILED, REFUSED = 1, 2


def backup(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The tar file to write; secret, because it holds the head's keys."
        ),
    ],
    config: Annotated[
        Path | None, typer.Option("--config", envvar="HERMES_CONFIG", help="The TOML file.")
    ] = None,
    state: Annotated[Path | None, typer.Option("--state", help="Overrides state_dir.")] = None,
) -> None:
    """Save the head's state to a file while it runs; to restore it, unpack the file.

    Checkpoints are not included; they are on the nodes.

    Example: hermesd backup /root/saved.tar --config /etc/hermes/hermesd.toml
    """
    from hermesd.config.sources import ConfigError, load_head
    from hermesd.head.journal.backup import backup
    from hermesd.head.statedir import StateAway, StateRefused

    try:
        settings = load_head(config, os.environ, {"state_dir": state})
        saved = backup(settings.state_dir, file)
    except (ConfigError, StateRefused, FileExistsError) as error:
        _refuse(str(error), REFUSED)
    except PermissionError as error:
        _refuse(not_permitted(error), FAILED)
    except (StateAway, OSError) as error:
        _refuse(str(error), FAILED)
    typer.echo(f"{file}: {saved.size_bytes} bytes, {saved.entries} entries of the journal")


def repair(config: HeadConfig) -> None:
    """Make a journal of what can be read of it, and say what cannot."""
    from hermesd.head.journal.repair import repair
    from hermesd.head.statedir import StateRefused, owned

    try:
        with owned(config.state_dir, called=config.told("state_dir")):
            done = repair(config.state_dir)
    except PermissionError as error:
        _refuse(not_permitted(error), REFUSED)
    except (StateRefused, FileNotFoundError) as error:
        _refuse(str(error), REFUSED)
    for line in done.told():
        typer.echo(line)


def _refuse(message: str, code: int) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"hermesd: {line}", err=True)
    raise typer.Exit(code) from None
