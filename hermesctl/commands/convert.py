"""`hermesctl convert`: other tools' search files as study files."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hermesctl.errors import StudyFileError, UsageError
from hermesctl.study_file import convert as files
from hermesctl.study_file import convert_code
from hermesctl.study_file.schema import build_spec
from hermesctl.study_file.trees import tree_of
from hermesctl.terminal import say
from hermesctl.text import printable
from hermesctl.yaml_text import to_yaml


class Tool(StrEnum):
    """Whose file it is."""

    WANDB = "wandb"
    OPTUNA = "optuna"
    RAY = "ray"
    NNI = "nni"
    KATIB = "katib"
    DETERMINED = "determined"
    HYDRA = "hydra"


_READERS = {
    Tool.WANDB: files.from_wandb,
    Tool.OPTUNA: convert_code.from_optuna,
    Tool.RAY: convert_code.from_ray,
    Tool.NNI: files.from_nni,
    Tool.KATIB: files.from_katib,
    Tool.DETERMINED: files.from_determined,
    Tool.HYDRA: files.from_hydra,
}
# What starts these may also be a program.
_SOURCE_READERS = {Tool.WANDB: convert_code.from_wandb, Tool.NNI: convert_code.from_nni}


def convert(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Its configuration, or its Python script.")
    ],
    tool: Annotated[
        Tool,
        typer.Option(
            "--from", metavar="TOOL", help=f"The tool that the file is for: {', '.join(Tool)}."
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="STUDY.YAML", help="Where to. Default: standard output.", show_default=False
        ),
    ] = None,
) -> None:
    """Convert another tool's search file to a study file.

    Says what it could not carry over. A Python script is read but never run.

    Example: hermesctl convert experiment.yaml --from katib --to study.yaml
    """
    try:
        reader = _SOURCE_READERS.get(tool) if file.suffix == ".py" else None
        draft = files.finished((reader or _READERS[tool])(file))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        shown = printable(f"{type(error).__name__}: {error}")
        raise UsageError(
            f"{printable(str(file))}: expected a file for {tool}; this one is different ({shown})"
        ) from None
    except RecursionError:
        raise UsageError(f"{printable(str(file))}: expected less nesting") from None
    text = to_yaml(draft.data)
    if to is None:
        typer.echo(text, nl=False)
    else:
        try:
            with to.open("x") as stream:
                stream.write(text)
        except FileExistsError:
            raise UsageError(
                f"{printable(str(to))}: expected a file that is not there yet"
            ) from None
        except OSError as error:
            raise UsageError(f"{printable(str(to))}: {error.strerror}") from None
    for note in draft.notes:
        say(f"note: {note}")
    for problem in _problems(draft.data):
        say(f"to fix: {problem}")


def _problems(data: dict[str, object]) -> list[str]:
    """What a study file may not have so."""
    try:
        _, problems, _ = build_spec(tree_of(data, "study"))
    except StudyFileError as error:
        problems = list(error.problems)
    return [str(problem) for problem in problems]
