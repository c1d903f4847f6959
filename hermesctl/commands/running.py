"""Runs a command's coroutine with a client, turns its result into an exit code, and asks before
damage.

Ctrl-C is not an error; a message says what goes on without us and how to look at it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import typer
from typer.core import TyperGroup, TyperOption

from hermesctl.errors import ExitCode, HermesError, NotFound, Problem, UsageError
from hermesctl.invocation import command, heed_interrupts, named_head
from hermesctl.render.output import Format, emit
from hermesctl.sdk import local as own_head
from hermesctl.sdk.address import embedded_head, find_head
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.records import Study, StudyDetail, TrialState
from hermesctl.study_file.load import Table
from hermesctl.study_file.submission import unknown_arguments
from hermesctl.terminal import forget_stdout, say, show_error, stdout
from hermesctl.text import count, cut, nearest, printable
from hermesctl.waiting import make_room, progress
from hermesctl.yaml_text import Data
from hermesd.misuse import Misuse, OneLineGroup, elsewhere

_SHOWN = "hermes.shown"
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

Body: TypeAlias = Callable[[AsyncClient], Awaitable[ExitCode | None]]

# What `hermesctl --head X command` says for the commands that don't say it themselves.
root_head: contextvars.ContextVar[str | None] = contextvars.ContextVar("root_head", default=None)


def run(
    body: Body,
    *,
    head: str | None,
    local: bool = False,
    starts: bool = True,
    interrupted: Callable[[], str] | None = None,
    waiting: str = "waiting for the head",
) -> None:
    """Run `body` with a client and leave with its exit code.

    A `local` head that does not run is started, unless `starts` is false.
    `interrupted` says, after Ctrl-C or another signal to end, what is true now; `waiting` what
    takes so long, nothing for a body that shows that itself.
    """
    # An empty one is no address either, and must not be taken for none: `--head "$UNSET"`.
    named = head if head is not None else root_head.get()
    if named is not None and local:
        raise UsageError("--head and --local: expected one of them")
    named_head.set(named or _head_to_name(local))

    async def with_client() -> ExitCode | None:
        client = AsyncClient(named, local=local)
        client.local &= starts  # it would start the head by itself
        with progress(waiting):
            if client.local:
                await own_head.start(os.environ, say=say)
            async with client:
                return await body(client)

    with saying_if_interrupted(interrupted):
        code = asyncio.run(with_client())
    if code:
        raise typer.Exit(code)


@contextlib.contextmanager
def saying_if_interrupted(interrupted: Callable[[], str] | None) -> Iterator[None]:
    """Leave when interrupted, with what is true then."""
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        if interrupted is not None:
            say("\n" + interrupted())
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _head_to_name(local: bool) -> str:
    """One's own head where `--local` meant it and a command without would find another."""
    if not local:
        return ""
    own = embedded_head(os.environ).target
    try:
        return "" if find_head(None, os.environ).target == own else own
    except UsageError:
        return own


class HermesGroup(OneLineGroup):
    """A group whose errors are one message and a stable exit code."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command line; a disk without room for what it says is one message, too."""
        try:
            return super().main(*args, **settings)
        except OSError as error:
            if error.errno not in _CANNOT_WRITE:
                raise
            forget_stdout()
            show_error(UsageError(f"what was to be written: {error.strerror}"))
            sys.exit(ExitCode.USAGE)

    def refused(self, misuse: Misuse) -> NoReturn:
        """Say what is wrong with the command line, and leave."""
        problem = Problem(misuse.expected, misuse.name, misuse.value, misuse.nearest)
        show_error(UsageError("", [problem]))
        raise typer.Exit(ExitCode.USAGE)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        heed_interrupts()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # before there was anything to say of
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except HermesError as error:
            known = error
        except UnicodeEncodeError as error:
            # Bytes of the command line, or of a variable, that the wire has no text for.
            known = UsageError(f"{cut(printable(error.object))}: expected text in UTF-8")
        show_error(known)
        raise typer.Exit(known.exit_code)


class NounGroup(TyperGroup):
    """A noun's commands. Without a verb it lists; an id instead of a verb shows that thing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb that is meant before the arguments; `list` is what many say for `ls`."""
        places = self._operands(args)
        if places and args[places[0]] == "list" and "ls" in self.commands:
            args = [*args[: places[0]], "ls", *args[places[0] + 1 :]]
        words = [args[place] for place in places]
        if ctx.resilient_parsing and not words:  # what is to be completed may be a verb
            return super().parse_args(ctx, args)
        if any(a in ("--help", "-h") for a in args):
            return super().parse_args(ctx, args)
        if words and words[0] in self.commands:
            verb = places[0]
            return super().parse_args(ctx, [args[verb], *args[:verb], *args[verb + 1 :]])
        self._refuse_misspelled(words, ctx)
        ctx.meta[_SHOWN] = words[0] if words else ""
        return super().parse_args(ctx, [self._verb(words), *args])

    def invoke(self, ctx: Any) -> Any:
        """Run the verb. An id that is none may be meant as a verb, `study wait`."""
        try:
            return super().invoke(ctx)
        except NotFound as error:
            if near := elsewhere(ctx, ctx.meta.get(_SHOWN, "")):
                raise NotFound(f"{error}; did you mean {near}?") from None
            raise

    def _operands(self, args: Sequence[str]) -> list[int]:
        """Where `args` has what is neither an option nor the value of one."""
        valued = {
            name
            for verb in self.commands.values()
            for option in verb.params
            if isinstance(option, TyperOption) and not option.is_flag
            for name in option.opts
        }
        return [
            place
            for place, word in enumerate(args)
            if not word.startswith("-") and not (place and args[place - 1] in valued)
        ]

    def _verb(self, words: Sequence[str]) -> str:
        lists_inside = "ls" in self.commands and self.name == "trial"
        shows = "show" in self.commands and words and not (lists_inside and "/" not in words[0])
        return "show" if shows else "ls"

    def _refuse_misspelled(self, words: Sequence[str], ctx: Any) -> None:
        # `pasue digits` has two words; `digits` alone is an id.
        if words[1:]:
            near = elsewhere(ctx, words[0]) or nearest(words[0], self.commands, 0.7)
            raise UsageError(
                f"{self.name} {printable(words[0])}: expected one of {', '.join(self.commands)}"
                + (f"; did you mean {near}?" if near else "")
            )


def confirm(question: str, *, yes: bool) -> None:
    """Ask; leave without having done anything unless the answer is yes, which nobody can give
    without a terminal."""
    if yes:
        return
    if not (sys.stdin and sys.stdin.isatty()):
        say(f"{question} There is no terminal to ask on, so nothing was done; add --yes to do it")
        raise typer.Exit(ExitCode.USAGE)
    make_room()
    # The loop that may be running would wait for the answer before it heeds Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        say("\nnothing was done")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)
    if not agreed:
        say("nothing was done")
        raise typer.Exit(ExitCode.OK)


def show_change(
    output: Format, words: str, document: Mapping[str, Data], notes: Sequence[str] = ()
) -> None:
    """Say what a command has changed: people in `words`, programs in a document, which has `notes`.

    As in a result that is read, `study` is an id, and so is each of `trials`: those that changed.
    """
    if not output.for_people:
        noted = {**document, "notes": list(notes)}
        emit(stdout(), output, noted, [noted], lambda _: "")
        return
    for line in (words, *(f"note: {printable(note)}" for note in notes)):
        if line:
            say(line)


def refuse_unknown_arguments(study: Study, new: Table) -> None:
    """Raises UsageError, with the nearest, for a new argument that the study's program has no
    option for: it would end at once, and the trial would stay as it is."""
    names = [entry.key for entry in new.entries]
    problems = names and unknown_arguments(
        study.spec, study.submit_directory, study.program_sha256, names
    )
    if problems:
        raise UsageError("", problems)


def retried_text(trials: Sequence[str]) -> str:
    """How many trials run again, and with what: not with what was mended meanwhile."""
    what = "the code and the environment that they were submitted with"
    return f"{count(len(trials), 'trial')} will run again, with {what}"


def no_study_yet() -> str:
    """What to say to people who look at studies before there is one."""
    return f"there is no study yet; submit one: {command('submit study.yaml')}"


async def chosen_study(client: AsyncClient, study: str | None) -> str:
    """The study that is meant: the one named, or the newest."""
    if study is not None:
        return study
    newest = await client.latest_study()
    if newest is None:
        raise NotFound(no_study_yet())
    return newest.id


def outcome(detail: StudyDetail) -> ExitCode:
    """The exit code of a study that was waited for."""
    counts = detail.study.counts
    lost = any(counts.get(state) for state in (TrialState.FAILED, TrialState.CANCELLED))
    return ExitCode.TRIALS_FAILED if lost else ExitCode.OK
