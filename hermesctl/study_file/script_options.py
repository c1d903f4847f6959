"""What a Python script takes and imports, read off its source, to find what is wrong early.

The script is only parsed, never run. Nothing is said of a script that could take more than can be
read: one that passes its parser on, handles `sys.argv` itself, or takes unknown options.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from hermesctl.study_file.regular_files import open_regular
from hermesctl.text import nearest, printable

_SOURCE_BYTES_MAX = 1 << 20
_NAMED_MAX = 8
_Function = ast.FunctionDef | ast.AsyncFunctionDef
# With these a parser knows options that its source doesn't name.
_OPENS = {"parents", "fromfile_prefix_chars", "prefix_chars", "context_settings", None}
_UNREADABLE = {"parse_known_args", "parse_known_intermixed_args", "add_subparsers"}
# Of Typer, and of Click, in a parameter's annotation or default.
_OWN_WORDS = {"Annotated", "Option", "Argument", "Context"}
_ADDS_TO_PARSER = {"add_argument_group", "add_mutually_exclusive_group"}


class _Unsure(Exception):
    """It may take more than can be read."""


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """The options of a script."""

    #: With their hyphens: `--lr`.
    accepted: frozenset[str]
    #: Those, and the positional arguments by name, that must be given; each in all its spellings.
    required: tuple[frozenset[str], ...] = ()
    #: Whether the first letters of an option are enough.
    abbreviates: bool = False

    def takes(self, name: str) -> bool:
        """Whether `--name=value` is understood."""
        option = f"--{name}"
        return option in self.accepted or (
            self.abbreviates and any(each.startswith(option) for each in self.accepted)
        )


def doubts(script: Path, names: Iterable[str]) -> list[str]:
    """What a script would refuse if it got `--name=value` for each of `names` and nothing else."""
    options = read_options(script)
    if options is None:
        return []
    given, file = list(names), printable(script.name)
    long = sorted(each[2:] for each in options.accepted if each.startswith("--"))
    found = []
    for name in given:
        if options.takes(name):
            continue
        others = [each for each in long if each != "help" and each not in given]
        near = nearest(name, others)
        known = ", ".join(f"--{each}" for each in others[:_NAMED_MAX])
        more = " …" if len(others) > _NAMED_MAX else ""
        instead = f"did you mean {near}?" if near else f"it takes {known}{more}" if known else ""
        found.append(
            f"parameter {printable(name)}: {file} takes no --{printable(name)}"
            + (f" ({instead})" if instead else "")
        )
    for spellings in options.required:
        if not any(f"--{name}" in spellings for name in given):
            wanted = max(spellings, key=len)
            name = wanted.lstrip("-")
            how = f" (`--set parameters.{name}.value=...`)" if wanted.startswith("--") else ""
            found.append(f"{file} requires {wanted}, which no parameter gives{how}")
    return found


def imported(script: Path) -> set[str]:
    """The packages that a script imports itself; none where it can't be read."""
    nodes = list(ast.walk(_parsed(script) or ast.Module([], [])))
    names = [name.name for each in nodes if isinstance(each, ast.Import) for name in each.names]
    names += [each.module or "" for each in nodes if isinstance(each, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def read_options(script: Path) -> ScriptOptions | None:
    """The options that a script takes by argparse, Click or Typer; None where that can't be read
    off its source."""
    tree = _parsed(script)
    if tree is None or any(map(_is_unreadable, ast.walk(tree))):
        return None
    readers: tuple[Callable[[ast.Module], ScriptOptions | None], ...] = (_argparse, _click, _typer)
    try:
        found = [options for read in readers if (options := read(tree)) is not None]
    except _Unsure:
        return None
    return found[0] if len(found) == 1 else None


def _parsed(script: Path) -> ast.Module | None:
    try:
        with open_regular(script) as stream:
            source = stream.read(_SOURCE_BYTES_MAX + 1)
        return ast.parse(source) if len(source) <= _SOURCE_BYTES_MAX else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_unreadable(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute | ast.alias) and _name_of(node) == "argv":
        return True
    return _name_of(node) in _UNREADABLE


# argparse


def _argparse(tree: ast.Module) -> ScriptOptions | None:
    calls = list(_calls(tree))
    parsers = [call for call in calls if _name_of(call.func) == "ArgumentParser"]
    if not parsers:
        return None
    parses = [call for call in calls if _name_of(call.func) == "parse_args"]
    (parser,) = parsers if len(parsers) == 1 else (None,)
    if parser is None or len(parses) != 1 or _keywords(parser).keys() & _OPENS:
        raise _Unsure
    _parses_command_line(tree, parses[0])
    _stays_here(tree, parser)
    accepted: set[str] = set()
    required = []
    if _constant(_keywords(parser).get("add_help"), True):
        accepted |= {"-h", "--help"}
    for call in calls:
        if _name_of(call.func) == "add_argument":
            spellings, must = _argument(call)
            accepted |= {each for each in spellings if each.startswith("-")}
            required += [spellings] if must else []
    abbreviates = _constant(_keywords(parser).get("allow_abbrev"), True)
    return ScriptOptions(frozenset(accepted), tuple(required), bool(abbreviates))


def _argument(call: ast.Call) -> tuple[frozenset[str], bool]:
    """The spellings of an argument, and whether it must be given."""
    words, keywords = _words(call.args), _keywords(call)
    nargs = keywords.get("nargs")
    if not words or None in keywords or _name_of(nargs) == "REMAINDER":
        raise _Unsure
    if not words[0].startswith("-"):
        must = nargs is None and _constant(keywords.get("action"), "store") == "store"
        return frozenset(words), must
    if _name_of(keywords.get("action")) == "BooleanOptionalAction":
        words += [f"--no-{word[2:]}" for word in words if word.startswith("--")]
    return frozenset(words), _constant(keywords.get("required"), False) is True


def _parses_command_line(tree: ast.Module, parse: ast.Call) -> None:
    """Raises _Unsure where something else may be parsed than the command line, which is meant by no
    arguments, and by those that `main(argv=None)` has passed on."""
    if not parse.args and not parse.keywords:
        return
    passed = parse.args[0].id if isinstance(parse.args[0], ast.Name) else ""
    stored = (node.id for node in ast.walk(tree) if _is_stored(node))
    parameters = (node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))
    if len(parse.args) > 1 or parse.keywords or passed in stored or passed not in parameters:
        raise _Unsure


def _stays_here(tree: ast.Module, parser: ast.Call) -> None:
    """Raises _Unsure for a parser, or a group of its arguments, that anything but its own methods
    may change."""
    makers = {id(parser)}
    makers |= {id(call) for call in _calls(tree) if _name_of(call.func) in _ADDS_TO_PARSER}
    names, harmless = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and id(node.value) in makers:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            if not all(isinstance(target, ast.Name) for target in node.targets):
                raise _Unsure
        elif isinstance(node, ast.Attribute | ast.Return):
            harmless.add(id(node.value))
    loads = (each for each in ast.walk(tree) if isinstance(each, ast.Name) and not _is_stored(each))
    if any(each.id in names and id(each) not in harmless for each in loads):
        raise _Unsure


# Click and Typer


def _click(tree: ast.Module) -> ScriptOptions | None:
    functions = [each for each in ast.walk(tree) if isinstance(each, _Function)]
    commands = [each for each in functions if _decorated(each, "command", "click")]
    if not commands:
        return None
    if len(commands) > 1 or any(_decorated(each, "group", "click") for each in functions):
        raise _Unsure
    accepted, required = {"--help"}, []
    for decorator in commands[0].decorator_list:
        name = _name_of(decorator.func) if isinstance(decorator, ast.Call) else ""
        if not isinstance(decorator, ast.Call) or name not in ("command", "option", "argument"):
            raise _Unsure
        keywords = _keywords(decorator)
        if keywords.keys() & _OPENS or "cls" in keywords:
            raise _Unsure
        words = _words(decorator.args)
        must = _constant(keywords.get("required"), name == "argument") is True
        if name == "option":
            spellings = {part.strip() for word in words for part in word.split("/")}
            spellings = {part for part in spellings if part.startswith("-")}
            if not spellings:
                raise _Unsure
            accepted |= spellings
        else:
            spellings = {*words}
            must = must and "nargs" not in keywords and "default" not in keywords
        if must and name != "command" and not keywords.keys() & {"default", "prompt", "envvar"}:
            required.append(frozenset(spellings))
    return ScriptOptions(frozenset(accepted), tuple(required))


def _typer(tree: ast.Module) -> ScriptOptions | None:
    """Of `typer.run(main)`, whose options are what `main` has a default for."""
    runs = [call for call in _calls(tree) if _dotted(call.func) == "typer.run"]
    if not runs:
        return None
    named = [_name_of(argument) for argument in runs[0].args]
    mains = [each for each in tree.body if isinstance(each, _Function) and [each.name] == named]
    if len(runs) > 1 or len(mains) != 1 or mains[0].decorator_list:
        raise _Unsure
    arguments = mains[0].args
    if any(_name_of(node) in _OWN_WORDS for node in ast.walk(arguments)):
        raise _Unsure  # it may name the options otherwise
    without = len(arguments.args) - len(arguments.defaults)
    plain = [*arguments.args[without:], *arguments.kwonlyargs]
    names = [each.arg.replace("_", "-") for each in plain]
    flags = [each.arg.replace("_", "-") for each in plain if _name_of(each.annotation) == "bool"]
    accepted = {"--help", *(f"--{each}" for each in names), *(f"--no-{each}" for each in flags)}
    required = [frozenset({each.arg.upper()}) for each in arguments.args[:without]]
    return ScriptOptions(frozenset(accepted), tuple(required))


# Reading source


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _decorated(function: _Function, name: str, module: str) -> bool:
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _dotted(called) == f"{module}.{name}":
            return True
    return False


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _keywords(call: ast.Call) -> dict[str | None, ast.expr]:
    """Its arguments by name; under None what `**` passes."""
    return {keyword.arg: keyword.value for keyword in call.keywords}


def _words(arguments: list[ast.expr]) -> list[str]:
    """Arguments that are plain text. Raises _Unsure for others."""
    words = [each.value for each in arguments if isinstance(each, ast.Constant)]
    if len(words) != len(arguments) or not all(isinstance(word, str) for word in words):
        raise _Unsure
    return [str(word) for word in words]


def _constant(node: ast.expr | None, default: object) -> object:
    """The value of a constant; `default` where there is none. Raises _Unsure for anything else."""
    if node is None:
        return default
    if not isinstance(node, ast.Constant):
        raise _Unsure
    return node.value


def _name_of(node: ast.AST | None) -> str:
    """The last name of `parser.add_argument`, of `ArgumentParser`, or of an imported one."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.alias):
        return node.name
    return node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""
