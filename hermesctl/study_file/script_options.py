"""What a Python script takes and imports, read from its source, to find mistakes early.

The script is only parsed, never executed. Nothing is said about a script that may take more than
its source shows: one that passes its parser on, handles `sys.argv` itself, or accepts unknown
options.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hermesctl.errors import Problem
from hermesctl.study_file.regular_files import open_regular
from hermesctl.study_file.source_names import bound_by, full_name, imported_names
from hermesctl.text import nearest, printable

_SOURCE_BYTES_MAX = 1 << 20
_NAMED_MAX = 8
_NUMBERS: Mapping[str, type[int | float]] = {"int": int, "float": float}
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# With these a parser knows options that its source doesn't name, or goes on with unknown ones.
_OPENS = {
    *("parents", "fromfile_prefix_chars", "prefix_chars", "exit_on_error", "context_settings"),
    None,
}
# Of a parser's own, by position: prog, usage, description, epilog.
_PLAIN_ARGUMENTS = 4
_UNREADABLE = {"parse_known_args", "parse_known_intermixed_args", "add_subparsers"}
_ADDS_TO_PARSER = {"add_argument_group", "add_mutually_exclusive_group"}
# Of a parser, and of the groups of its arguments: what changes nothing that can't be read.
_METHODS = {
    *_ADDS_TO_PARSER,
    *("add_argument", "parse_args", "set_defaults", "get_default", "error", "exit"),
    *("print_help", "print_usage", "format_help", "format_usage"),
}
_WORDS = {"prog", "usage", "description", "epilog", "formatter_class"}
# What a command of Click may be called with.
_HARMLESS = {"standalone_mode", "obj", "prog_name"}
# Of a parameter that Typer reads.
_TYPES = {
    *("int", "float", "str", "bool", "list", "tuple", "Path", "Optional", "Union"),
    *("List", "Tuple", "typing", "pathlib"),
}


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
    #: Of the options that are read as a number: as which kind.
    numbers: Mapping[str, type[int | float]] = field(default_factory=dict)

    def takes(self, name: str) -> bool:
        """Whether `--name=value` is understood."""
        return self.gives(name, self.accepted)

    def reads(self, name: str, text: str) -> bool:
        """Whether a value is understood, as far as can be told."""
        try:
            self.numbers.get(f"--{name}", str)(text)
        except ValueError:
            return False
        return True

    def gives(self, name: str, spellings: frozenset[str]) -> bool:
        """Whether `--name=value` may mean one of these."""
        option = f"--{name}"
        return option in spellings or (
            self.abbreviates and any(each.startswith(option) for each in spellings)
        )


def refusals(
    script: Path, names: Iterable[str], values: Iterable[tuple[str, str, str]] = ()
) -> list[Problem]:
    """What a script refuses if it gets `--name=value` for each of `names` and nothing else; each
    of `values` is the path of a field, the name, and the text that it gives."""
    given, file = list(names), printable(script.name)
    options = read_options(script)
    if options is None:
        return []
    found = _unknown(options, file, given, "parameters.")
    for spellings in options.required:
        if not any(options.gives(name, spellings) for name in given):
            wanted = max(spellings, key=len)
            how = f" (`--set parameters.{wanted[2:]}.value=...`)" if wanted.startswith("--") else ""
            found.append(Problem(f"{wanted}, which {file} requires{how}", "parameters"))
    for path, name, text in values:
        if not options.reads(name, text):
            kind = options.numbers[f"--{name}"]
            what = "a whole number" if kind is int else "a number"
            found.append(
                Problem(f"{what}, as {file} reads --{name} by {kind.__name__}", path, text)
            )
    return found


def unknown_options(script: Path, names: Iterable[str], source: str) -> list[Problem]:
    """Which of `names` a script has no option for; `source` is the flag that they were given by."""
    options = read_options(script)
    return _unknown(options, printable(script.name), list(names), source) if options else []


def _unknown(options: ScriptOptions, file: str, given: Sequence[str], source: str) -> list[Problem]:
    long = sorted(each[2:] for each in options.accepted if each.startswith("--"))
    others = [each for each in long if each != "help" and each not in given]
    known = ", ".join(f"--{each}" for each in others[:_NAMED_MAX])
    more = " …" if len(others) > _NAMED_MAX else ""
    found = []
    for name in given:
        if not options.takes(name):
            near = nearest(name, others)
            listed = f" ({known}{more})" if known and not near else ""
            found.append(Problem(f"an option of {file}{listed}", f"{source}{name}", "", near))
    return found


def imported(script: Path) -> set[str]:
    """The packages that a script imports itself; none where it can't be read."""
    nodes = list(ast.walk(_parsed(script) or ast.Module([], [])))
    names = [name.name for each in nodes if isinstance(each, ast.Import) for name in each.names]
    names += [each.module or "" for each in nodes if isinstance(each, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def read_options(path: Path) -> ScriptOptions | None:
    """The options that a script takes by argparse, Click or Typer; None where that can't be read
    off its source."""
    tree = _parsed(path)
    if tree is None or any(map(_is_unreadable, ast.walk(tree))):
        return None
    script = _Script(tree)
    readers: tuple[Callable[[_Script], ScriptOptions | None], ...] = (_argparse, _click, _typer)
    try:
        found = [options for read in readers if (options := read(script)) is not None]
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


def _argparse(script: _Script) -> ScriptOptions | None:
    calls = script.calls()
    parsers = [call for call in calls if _name_of(call.func) == "ArgumentParser"]
    if not parsers:
        return None
    (parser,) = parsers if len(parsers) == 1 else (None,)
    if parser is None or script.origin(parser.func) != "argparse.ArgumentParser":
        raise _Unsure
    is_spread = any(isinstance(each, ast.Starred) for each in parser.args)
    if is_spread or _keywords(parser).keys() & _OPENS or len(parser.args) > _PLAIN_ARGUMENTS:
        raise _Unsure
    uses = _uses(script, parser)
    parses = [call for call in calls if isinstance(call.func, ast.Attribute)]
    parses = [call for call in parses if _name_of(call.func) == "parse_args"]
    if len(parses) != 1 or parses[0] not in uses or not script.runs(parses[0]):
        raise _Unsure
    _parses_command_line(script, parses[0])
    accepted: set[str] = set()
    required = []
    kinds: dict[str, type[int | float] | None] = {}
    if _constant(_keywords(parser).get("add_help"), True):
        accepted |= {"-h", "--help"}
    for call in calls:
        if _name_of(call.func) == "add_argument":
            spellings, must = _argument(call)
            kind = _number_kind(script, call)
            # One that is added in two places may be either.
            kinds |= {each: None if each in kinds else kind for each in spellings}
            accepted |= {each for each in spellings if each.startswith("-")}
            if must and call in uses and script.stands_plainly(call, beside=parser):
                required.append(spellings)
    abbreviates = _constant(_keywords(parser).get("allow_abbrev"), True)
    numbers = {each: kind for each, kind in kinds.items() if kind is not None}
    return ScriptOptions(frozenset(accepted), tuple(required), bool(abbreviates), numbers)


def _number_kind(script: _Script, call: ast.Call) -> type[int | float] | None:
    """As what number the one value of an option is read; None where that is not told."""
    keywords = _keywords(call)
    kind = keywords.get("type")
    name = _name_of(kind)
    is_builtin = isinstance(kind, ast.Name) and not script.stores(name)
    if not is_builtin or keywords.keys() & {"nargs", "action"}:
        return None
    return _NUMBERS.get(name)


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


def _parses_command_line(script: _Script, parse: ast.Call) -> None:
    """Raises _Unsure where something else may be parsed than the command line, which is meant by no
    arguments, and by those that `main(argv=None)` has passed on."""
    if not parse.args and not parse.keywords:
        return
    function = script.function_around(parse)
    passed = parse.args[0] if len(parse.args) == 1 and not parse.keywords else None
    if function is None or not isinstance(passed, ast.Name):
        raise _Unsure
    arguments = function.args
    takes = {*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs}
    calls = [script.parent(name) for name in script.loads(function.name)]
    plain = all(isinstance(each, ast.Call) and not each.args + each.keywords for each in calls)
    if not plain or len(binders := script.stores(passed.id)) != 1 or not takes & {*binders}:
        raise _Unsure


def _uses(script: _Script, parser: ast.Call) -> set[ast.Call]:
    """The calls of the methods of a parser and of the groups of its arguments. Raises _Unsure where
    anything but those may change it."""
    found: set[ast.Call] = set()
    named: set[ast.AST] = set()
    waiting: list[ast.AST] = [parser]
    seen: set[ast.AST] = set()
    while waiting:
        if (node := waiting.pop()) in seen:
            continue
        seen.add(node)
        match parent := script.parent(node):
            case ast.Expr():
                pass
            case (
                ast.Assign(targets=[ast.Name() as name]) | ast.AnnAssign(target=ast.Name() as name)
            ):
                if isinstance(script.parent(parent), ast.ClassDef):
                    raise _Unsure  # it goes by other names
                named.add(name)
                waiting += script.loads(name.id)
            case ast.Attribute(attr=method):
                call = script.parent(parent)
                if isinstance(call, ast.Call) and call.func is parent and method in _METHODS:
                    found.add(call)
                    waiting += [call] if method in _ADDS_TO_PARSER else []
                elif method not in _WORDS:
                    raise _Unsure
            case ast.Return():
                waiting += _calls_of(script, script.function_around(node))
            case _:
                raise _Unsure
    names = {_name_of(each) for each in named}
    if any(each not in named for name in names for each in script.stores(name)):
        raise _Unsure
    return found


def _calls_of(script: _Script, function: _Function | None) -> list[ast.AST]:
    """All calls of a function. Raises _Unsure where it may be called elsewhere."""
    if function is None or function.decorator_list or script.stores(function.name) != [function]:
        raise _Unsure
    calls = [script.parent(name) for name in script.loads(function.name)]
    if not all(
        isinstance(each, ast.Call) and _name_of(each.func) == function.name for each in calls
    ):
        raise _Unsure
    if isinstance(script.parent(function), ast.ClassDef):
        raise _Unsure
    return [each for each in calls if each is not None]


# Click and Typer


def _click(script: _Script) -> ScriptOptions | None:
    functions = [each for each in script.nodes if isinstance(each, _Function)]
    commands = [each for each in functions if script.is_decorated(each, "click.command")]
    if not commands:
        return None
    if len(commands) > 1 or any(script.is_decorated(each, "click.group") for each in functions):
        raise _Unsure
    command = commands[0]
    starts = _calls_of_command(script, command)
    if not any(script.runs(call) for call in starts):
        raise _Unsure
    accepted, required = {"--help"}, []
    numbers: dict[str, type[int | float]] = {}
    for decorator in command.decorator_list:
        origin = script.origin(decorator.func) if isinstance(decorator, ast.Call) else ""
        name = origin.removeprefix("click.")
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
            if kind := _number_kind(script, decorator):
                numbers |= dict.fromkeys(spellings, kind)
        else:
            spellings = {*words}
            must = must and "nargs" not in keywords and "default" not in keywords
        if must and name != "command" and not keywords.keys() & {"default", "prompt", "envvar"}:
            required.append(frozenset(spellings))
    return ScriptOptions(frozenset(accepted), tuple(required), numbers=numbers)


def _calls_of_command(script: _Script, command: _Function) -> list[ast.Call]:
    """Where the command is run as it stands. Raises _Unsure where it may be changed, or gets
    something else than the command line."""
    calls = [script.parent(name) for name in script.loads(command.name)]
    found = [each for each in calls if isinstance(each, ast.Call)]
    if len(found) < len(calls) or script.stores(command.name) != [command]:
        raise _Unsure
    for call in found:
        is_called = _name_of(call.func) == command.name
        if not is_called or call.args or not _keywords(call).keys() <= _HARMLESS:
            raise _Unsure
    return found


def _typer(script: _Script) -> ScriptOptions | None:
    """Of `typer.run(main)`, whose options are what `main` has a default for."""
    runs = [call for call in script.calls() if script.origin(call.func) == "typer.run"]
    if not runs:
        return None
    named = [_name_of(argument) for argument in runs[0].args]
    mains = [each for each in script.tree.body if isinstance(each, _Function)]
    mains = [each for each in mains if [each.name] == named]
    if len(runs) > 1 or len(mains) != 1 or mains[0].decorator_list or not script.runs(runs[0]):
        raise _Unsure
    arguments = mains[0].args
    if arguments.posonlyargs or arguments.vararg or arguments.kwarg:
        raise _Unsure
    for default in (*arguments.defaults, *arguments.kw_defaults):
        if default is not None and not _is_plain(default):
            raise _Unsure  # it may name the options otherwise
    taken = [*arguments.args, *arguments.kwonlyargs]
    words = {each.arg: _type_words(each.annotation) for each in taken}
    without = len(arguments.args) - len(arguments.defaults)
    plain = [*arguments.args[without:], *arguments.kwonlyargs]
    names = {each.arg: each.arg.lower().replace("_", "-") for each in plain}
    flags = [name for arg, name in names.items() if "bool" in words[arg]]
    accepted = {"--help", *(f"--{each}" for each in names.values()), *(f"--no-{f}" for f in flags)}
    needed = [each.arg for each in arguments.args[:without]]
    required = [frozenset({arg.upper()}) for arg in needed if not words[arg] & {"Optional", "None"}]
    kinds = {
        f"--{name}": words[arg] - {"Optional", "None", "typing"} for arg, name in names.items()
    }
    numbers = {
        option: kind
        for option, said in kinds.items()
        for name, kind in _NUMBERS.items()
        if said == {name} and not script.stores(name)
    }
    return ScriptOptions(frozenset(accepted), tuple(required), numbers=numbers)


def _is_plain(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _type_words(annotation: ast.expr | None) -> set[str]:
    """The words of a type. Raises _Unsure for one that may be an alias, which may say more."""
    nodes = list(ast.walk(annotation)) if annotation is not None else []
    constants = {str(each.value) for each in nodes if isinstance(each, ast.Constant)}
    words = {_name_of(each) for each in nodes if isinstance(each, ast.Name | ast.Attribute)}
    if not words <= _TYPES or not constants <= {"None"}:
        raise _Unsure
    return words | constants


# Reading source


class _Script:
    """The nodes of a script, with what is around each."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = list(ast.walk(tree))
        self._read = {_name_of(each) for each in self.nodes if _is_read(each)}
        self._imported = imported_names(tree)
        self._loads: dict[str, list[ast.AST]] = {}
        self._stores: dict[str, list[ast.AST]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Name) and _is_read(node):
                self._loads.setdefault(node.id, []).append(node)
            for name in bound_by(node):
                self._stores.setdefault(name, []).append(node)
        self._parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """All that a node stands in, the nearest first."""
        while (above := self.parent(node)) is not None:
            yield (node := above)

    def function_around(self, node: ast.AST) -> _Function | None:
        inner = (ast.Lambda, ast.ClassDef, *_FUNCTIONS)
        found = next((each for each in self.around(node) if isinstance(each, inner)), None)
        return found if isinstance(found, _Function) else None

    def calls(self) -> list[ast.Call]:
        return [each for each in self.nodes if isinstance(each, ast.Call)]

    def loads(self, name: str) -> list[ast.AST]:
        """Where a name is read."""
        return self._loads.get(name, [])

    def stores(self, name: str) -> list[ast.AST]:
        """All that gives a name its value."""
        return self._stores.get(name, [])

    def origin(self, node: ast.AST) -> str:
        """The full name of what was imported: `argparse.ArgumentParser`; else empty."""
        return full_name(node, self._imported)

    def is_decorated(self, function: _Function, by: str) -> bool:
        decorators = function.decorator_list
        called = [each.func if isinstance(each, ast.Call) else each for each in decorators]
        return any(self.origin(each) == by for each in called)

    def runs(self, call: ast.Call) -> bool:
        """Whether a call is made whenever the script is, as far as can be seen, and ends it by what
        it refuses."""
        return not any(
            isinstance(each, ast.Try | ast.TryStar | ast.Lambda)
            or (isinstance(each, ast.If) and "__name__" not in map(_name_of, ast.walk(each.test)))
            or (isinstance(each, _Function) and each.name not in self._read)
            for each in self.around(call)
        )

    def stands_plainly(self, call: ast.Call, *, beside: ast.Call) -> bool:
        """Whether a call is made, for nothing but what it does, whenever another is."""
        around = list(self.around(call))
        is_plain = isinstance(around[0], ast.Expr)
        others = {*self.around(beside)}
        return is_plain and all(each in others for each in around[1:])


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
    """The last word of `parser.add_argument`, of `ArgumentParser`, or of an imported one."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.alias):
        return node.name
    return node.id if isinstance(node, ast.Name) else ""


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
