"""Failures, for people: an error is shown once in full, and everywhere else on one line.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from hermesctl.invocation import command
from hermesctl.render.tables import cell, grid, moment
from hermesctl.sdk.records import Failure, Trial, TrialState
from hermesctl.text import count, cut, one_line

_FAILED_SHOWN = 5
_ERROR_LENGTH = 100
_SPARED = ("see it whole",)
# Of Python, of C programs and of libraries that write their own words.
_OUTSIDE = re.compile(
    r"No such file or directory: b?['\"](?:\./)?\.\./|\.\./\S*['\"]?:? (?:No such file|.*not found)"
)
_IN_A_COPY = (
    "A trial runs in a copy of its study's directory, without the directories around it: give the"
    " program the absolute path, or keep the files below that directory and list them under"
    " `data`."
)


def unexplained(trials: Sequence[Trial]) -> list[Trial]:
    """Of the trials that `failed_trials` shows, those whose error is only in their output."""
    failed = [trial for trial in trials if trial.state is TrialState.FAILED]
    same = [trial for trial in trials if trial.not_extended]
    shown = (*failed[:_FAILED_SHOWN], *same[:_FAILED_SHOWN])
    return [trial for trial in shown if only_exited(trial)]


def only_exited(trial: Trial) -> bool:
    """Whether all that is known of how a trial, or its extension, failed is its exit status."""
    if not trial.failures or not trial.failures[-1].untold:
        return False
    # An extension may have come to nothing in another way, after an older failure.
    return trial.state is TrialState.FAILED or (
        bool(trial.not_extended) and trial.not_extended in trial.failures[-1].detail
    )


def failed_trials(trials: Sequence[Trial], said: Mapping[str, str]) -> list[RenderableType]:
    """The trials that failed, each with its error in a line, and those that were to go on and could
    not; nothing if there are none.

    `said` is the last line of the output of those that `unexplained` names.
    """
    tables = [*_failed(trials, said), *_not_extended(trials, said)]
    return [Group(*tables), Text()] if tables else []


def _not_extended(trials: Sequence[Trial], said: Mapping[str, str]) -> Iterator[RenderableType]:
    same = [trial for trial in trials if trial.not_extended]
    table = grid("not extended", "~why: it is as it was", "|see it whole", spared=_SPARED)
    for trial in same[:_FAILED_SHOWN]:
        why = cell(_told(one_line(trial.not_extended), said.get(trial.id, "")))
        table.add_row(cell(trial.id), why, cell(command(f"trial show {trial.id}"), "cyan"))
    if same:
        yield table
        yield from _hidden(len(same) - _FAILED_SHOWN)


def _hidden(hidden: int) -> Iterator[RenderableType]:
    if hidden > 0:
        yield cell(f"… and {count(hidden, 'trial')} more", "dim")


def _failed(trials: Sequence[Trial], said: Mapping[str, str]) -> Iterator[RenderableType]:
    failed = [trial for trial in trials if trial.state is TrialState.FAILED]
    if not failed:
        return
    table = grid("failed", "~error", "|see it whole", spared=_SPARED)
    for trial in failed[:_FAILED_SHOWN]:
        error = one_line(trial.failures[-1].detail) if trial.failures else one_line(trial.reason)
        table.add_row(
            cell(trial.id, "red"),
            cell(_told(error, said.get(trial.id, "")) or "-"),
            cell(command(f"trial show {trial.id}"), "cyan"),
        )
    yield table
    yield from _hidden(len(failed) - _FAILED_SHOWN)


def _told(error: str, last: str) -> str:
    """An error in a line, with the program's last one where that says more."""
    return cut(error if last in error else f"{error}: {last}", _ERROR_LENGTH)


def failures_view(failures: Sequence[Failure]) -> Iterator[RenderableType]:
    """A trial's failures: those before the last in a line each, the last with all its lines."""
    for failure in failures[:-1]:
        yield cell(f"failed: {_circumstances(failure)}: {one_line(failure.detail)}", "red")
    for failure in failures[-1:]:
        yield cell(f"failed: {_circumstances(failure)}", "red")
        yield from (cell(f"  {line}") for line in failure.detail.splitlines())
        if _OUTSIDE.search(failure.detail):
            yield cell(_IN_A_COPY, "yellow")


def without_shown_errors(lines: Sequence[str], failures: Sequence[Failure]) -> list[str]:
    """Output without the errors that `failures_view` tells already, each a remark instead."""
    errors = [failure.detail.rstrip().splitlines() for failure in failures]
    # An error of one line may be any line; only what is long is worth leaving out.
    known = [error for error in errors if len(error) > 2]
    left: list[str] = []
    position = 0
    while position < len(lines):
        told = next((e for e in known if lines[position : position + len(e)] == e), None)
        left.append(lines[position] if told is None else f"[{one_line(told[-1])}: see above]")
        position += 1 if told is None else len(told)
    return left


def _circumstances(failure: Failure) -> str:
    where = f"attempt {failure.attempt} on {failure.device or '?'}, step {failure.step}"
    return f"{failure.kind or 'error'} ({where}, {moment(failure.at_unix_seconds)})"
