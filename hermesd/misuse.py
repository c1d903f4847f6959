"""What is wrong with the words of a command line, as `hermesctl` and `hermesd` say it: in one line.

Whatever typer has to say of them, in whose words ever, becomes a `Misuse`. Nothing else of
hermesd is needed for it, so that the client can share it. What its commands say of themselves fills
the lines of the terminal, not those of the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

# Typer brings a click of its own or uses the one that is installed, by its version.
MISTAKE: type[Exception] = typer.BadParameter.__mro__[1]
WORDS = "hermes.words"
# No bound to people: the largest number that fits into a message.
LARGEST = 2**31 - 1
# What its messages expect, and ours.
EXPECTED = (
    (r"greater than or equal to (\S+?)\.?$", r"\1 or more"),
    (r"less than or equal to (\S+?)\.?$", r"\1 or less"),
    (r"in the range x>=(\S+?)\.$", r"\1 or more"),
    (r"in the range (\S+?)<=x<=(\S+?)\.$", r"\1 to \2"),
    (r"a valid integer|an integer", "a whole number"),
    (r"a valid (number|float)", "a number"),
    (r"a valid boolean", "true or false"),
)
# What other programs, such as `tail`, call an option of ours.
_ELSEWHERE = {"--lines": "--last", "--tail": "--lines"}
# The same of commands, one of ours with an option among them.
_CALLED_OTHERWISE = {
    "wait": "status --wait",
    "ps": "status",
    **dict.fromkeys(("delete", "remove"), "rm"),
    **dict.fromkeys(("cancel", "kill"), "stop"),
    **dict.fromkeys(("describe", "get", "info"), "show"),
}


# A verb that most nouns have, as `ls`, is meant of the first of them.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Misuse:
    """A word that will not do: of which option or argument, what it is and what was expected."""

    name: str
    value: str
    expected: str
    nearest: str = ""


class OneLineGroup(TyperGroup):
    """A program's commands; what is wrong with the words after its name is told by `refused`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _unwrap(self)

    def refused(self, misuse: Misuse) -> NoReturn:
        """Say so, and leave."""
        raise NotImplementedError

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Read the options before a command."""
        words = list(args)
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except MISTAKE as error:
            self.refused(misuse_of(error, words))
        context.meta[WORDS] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except MISTAKE as error:
            self.refused(misuse_of(error, ctx.meta[WORDS]))


def _unwrap(command: Any) -> None:
    """Have a command's help, and that of those below it, in paragraphs of one line each, ranges of
    numbers in words, and no type beside a flag, which takes no value."""
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "")
    all_of = command.get_params

    def get_params(ctx: Any) -> Any:
        found = all_of(ctx)
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
            elif getattr(each, "min", getattr(each, "max", None)) is not None:
                each.metavar = each.metavar or "N"
                each._get_number_range_help_str = partial(_range, each)
        return found

    command.get_params = get_params
    for each in getattr(command, "commands", {}).values():
        _unwrap(each)


def _range(parameter: Any) -> str:
    """The numbers that an option takes, in words; empty if any will do."""
    least, most = getattr(parameter, "min", None), getattr(parameter, "max", None)
    if most is not None and most < LARGEST:
        return f"{least:g} to {most:g}" if least is not None else f"{most:g} or less"
    return f"{least:g} or more" if least else ""


def misuse_of(error: Any, words: Sequence[str]) -> Misuse:
    """What typer refused in these words. Leaves without an error if no word asked for help, which
    has been printed."""
    if type(error).__name__ == "NoArgsIsHelpError":
        raise typer.Exit
    message = str(error.message)
    if isinstance(error, typer.BadParameter):
        return _bad_value(error, message, words)
    if (name := getattr(error, "option_name", None)) is not None:
        if message.endswith("does not take a value."):
            return Misuse(name, _given(words, [name]), "no value")
        if hasattr(error, "possibilities"):
            return _unknown(name, "options", _options(error), error.possibilities or ())
        return Misuse(name, "", "a value after it")
    if unknown := re.match(r"No such command ['\"](.*?)['\"]\.", message):
        commands = error.ctx.command.commands.items()
        shown = [name for name, each in commands if not each.hidden]
        misuse = _unknown(unknown[1], "commands", shown)
        near = elsewhere(error.ctx, unknown[1])
        return replace(misuse, expected="a command", nearest=near) if near else misuse
    if extra := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", message):
        measures = re.fullmatch(r"\w+", extra[1]) and "--metric" in _options(error)
        near = f"--metric {extra[1]}" if measures else ""
        return Misuse(extra[1], "", f"nothing more after `{error.ctx.command_path}`", near)
    return Misuse("", "", " ".join(message.split()))


def elsewhere(ctx: Any, word: str) -> str:
    """The program's commands of this name, or of what other programs call so, in whatever group, as
    they are typed; empty for none."""
    words = _CALLED_OTHERWISE.get(word, word)
    verb, _, option = words.partition(" ")
    root = ctx.find_root()
    found_in = []
    for name, group in {"": root.command, **root.command.commands}.items():
        each = getattr(group, "commands", {}).get(verb)
        if each and (not option or any(option in param.opts for param in each.params)):
            found_in.append(name)
    found = " or ".join(f"{name} {words}".strip() for name in found_in[:_NAMED])
    return f"{root.info_name} {found}" if found else ""


def _bad_value(error: Any, message: str, words: Sequence[str]) -> Misuse:
    param = error.param
    options = [each for each in param.opts if each.startswith("-")]
    name = max(options, key=len) if options else param.metavar or param.name.upper()
    if type(error).__name__ == "MissingParameter":
        return Misuse(name, "", f"a value{_purpose(param)}")
    quoted = re.match(r"(?:Value error, )?'(.*?)' is ", message)
    value = quoted[1] if quoted else _given(words, options)
    if listed := re.search(r"is not one of (.*?)\.?$", message):
        choices = re.findall(r"'(.*?)'", listed[1])
        return _unknown(value, "", choices, name=name)
    for pattern, meant in EXPECTED:
        if found := re.search(pattern, message):
            return Misuse(name, value, found.expand(meant))
    expected = re.sub(r"^(Input|Value) should be ", "", message)
    return Misuse(name, value, " ".join(expected.split()))


def _unknown(
    word: str, noun: str, choices: Iterable[str], likely: Iterable[str] = (), name: str = ""
) -> Misuse:
    """A word that is none of the choices."""
    known = list(choices)
    other = _ELSEWHERE.get(word)
    near = [other] if other in known else get_close_matches(word, known, 1) or sorted(likely)
    expected = f"one of the {noun} {', '.join(known)}" if noun else f"one of {', '.join(known)}"
    return Misuse(name or word, word if name else "", expected, next(iter(near), ""))


def _options(error: Any) -> list[str]:
    """The long names of a command's options."""
    ctx = error.ctx
    return [
        max(each.opts, key=len)
        for each in ctx.command.get_params(ctx)
        if each.opts[0].startswith("-") and not getattr(each, "hidden", False)
    ]


def _purpose(param: Any) -> str:
    """What a parameter is for: the first sentence of its help."""
    first = (getattr(param, "help", None) or "").partition(". ")[0].rstrip(".")
    return f": {first[0].lower()}{first[1:]}" if first else ""


def _given(words: Sequence[str], names: Sequence[str]) -> str:
    """What an option was given: the last time it stands in the words."""
    for at in reversed(range(len(words))):
        for name in names:
            rest = words[at].removeprefix(name)
            if words[at] == name:
                return words[at + 1] if at + 1 < len(words) else ""
            if rest != words[at] and (rest[0] == "=" or not name.startswith("--")):
                return rest.removeprefix("=")
    return ""
