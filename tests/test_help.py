"""Every --help page of both programs, as a terminal of 80 columns shows it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hermesctl.cli import app as hermesctl
from hermesd.cli import app as hermesd

COLUMNS = 80


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    yield command, words
    for name, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from commands(each, (*words, name))


PAGES = [
    (app, command, words)
    for app, program in ((hermesctl, "hermesctl"), (hermesd, "hermesd"))
    for command, words in commands(typer.main.get_command(app), (program,))
]


@pytest.mark.parametrize(
    ("app", "command", "words"), PAGES, ids=[" ".join(words) for *_, words in PAGES]
)
def test_a_page_of_help_fits_and_cuts_nothing(
    app: typer.Typer, command: Any, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    said = CliRunner().invoke(app, [*words[1:], "--help"], prog_name=words[0])
    assert said.exit_code == 0
    page = [line.rstrip() for line in said.stdout.splitlines()]
    assert max(map(len, page)) <= COLUMNS
    assert "…" not in said.stdout
    assert "<bool>" not in said.stdout, "a flag takes no value"
    assert "<=" not in said.stdout, "a range of numbers is in words"
    if not getattr(command, "commands", {}):
        example = rf"Example: (source <\()?{' '.join(words)}\b"
        assert re.search(example, " ".join(said.stdout.split()))
    # A paragraph is broken where the line is full, not where the source was.
    about = page[: next(at for at, line in enumerate(page) if line.startswith("╭"))]
    for line, following in itertools.pairwise(about):
        if line and following:
            assert len(line) + 1 + len(following.split()[0]) >= COLUMNS, (line, following)
    assert not [line for line in (command.help or "").split("\n\n") if "\n" in line]


def test_only_what_prints_text_for_people_or_a_file_has_no_form_for_programs() -> None:
    without = {
        " ".join(words[1:])
        for app, command, words in PAGES
        if app is hermesctl and not getattr(command, "commands", {})
        if not any("--output" in option.opts for option in command.params)
    }
    assert without == {"top", "logs", "completion", "convert", "trial files cat"}
