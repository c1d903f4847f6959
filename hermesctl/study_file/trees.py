"""Study trees that were not read from a file: made from plain data, or changed by flags.

A changed part remembers the flag as its place, so an error names what the person typed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import NamedTuple

from hermesctl.errors import Place, Problem, StudyFileError, UsageError
from hermesctl.study_file.load import (
    INT64_MAX,
    INT64_MIN,
    BrokenYaml,
    Items,
    Node,
    Scalar,
    Table,
    TreeEntry,
    parse_value,
    unfit,
)
from hermesctl.study_file.schema import BELOW
from hermesctl.text import nearest, printable
from hermesd.pb.hermes.v1.types_pb2 import Parameter, StudySpec

_GOALS = ("minimize", "maximize")
# What a study file says of a parameter.
_KEYS = frozenset(StudySpec.DESCRIPTOR.fields_by_name)
# How like a key of a study file a word is that is no name of a parameter.
_A_SLIP = 0.8
# Bounds are far apart from here on.
_DECADES = 100
# What some write between two bounds.
_WITHOUT_DOTS = re.compile(r"([^:,]+)[:,]([^:,]+)(?:[:,](log)|:([^:,]+))?")
_OF_A_PARAMETER = frozenset(Parameter.DESCRIPTOR.fields_by_name) - {"name"}


def tree_of(data: Mapping[str, object], source: str) -> Table:
    """The tree of a study given as a dict. NumPy's scalars count as numbers.

    Raises StudyFileError for what no study file can hold.
    """
    problems: list[Problem] = []
    tree = _node(data, "", Place(source), problems)
    if problems:
        raise StudyFileError(problems)
    assert isinstance(tree, Table)
    return tree


def with_value(table: Table, keys: Sequence[str], node: Node) -> Table:
    """`table` with `node` at the path `keys`; mappings on the way are made where missing, and a
    bare name there is kept as its mapping's `name`."""
    key, *rest = keys
    old = next((e for e in table.entries if e.key == key), None)
    if rest:
        node = with_value(_mapping(old, node.place), rest, node)
    if old is None:
        return Table((*table.entries, TreeEntry(key, node.place, node)), table.place)
    new = TreeEntry(key, old.place if rest else node.place, node)
    return Table(tuple(new if e is old else e for e in table.entries), table.place)


def with_flags(
    table: Table,
    *,
    name: str | None = None,
    metric: str | None = None,
    grid: Sequence[str] = (),
    random: Sequence[str] = (),
    trials: int | None = None,
    settings: Sequence[str] = (),
    pool: str | None = None,
    options: Collection[str] = (),
) -> Table:
    """`table` changed by `--name`, `--pool`, `--metric`, `--grid`, `--random`, `--trials` and
    `--set`, in this order; `options` are those that its program is known to have, `--lr`.

    Raises UsageError for a flag that has not its form, StudyFileError for a bad value.
    """
    if name is not None:
        table = with_value(table, ["name"], Scalar(name, name, Place("--name")))
    if pool is not None:
        table = with_value(table, ["pool"], Scalar(pool, pool, Place("--pool")))
    if metric is not None:
        table = with_value(table, ["metric"], _metric(metric))
    for key, axis in _axes(grid, random).items():
        place = _axis_keys(_below(table, "parameters"), key.split("."))
        table = with_value(table, ["parameters", *place], axis)
    if random:
        table = with_value(table, ["method"], Scalar("random", "random", Place("--random")))
    if trials is not None:
        table = with_value(table, ["run_cap"], Scalar(trials, str(trials), Place("--trials")))
    for flag in settings:
        path, text = _split("--set", flag, "key=value, for example epochs=5")
        node = _setting(text, f"--set {flag}")
        if _is_parameter(path, table, options):
            place = _axis_keys(_below(table, "parameters"), path.split("."))
            axis = Table((TreeEntry("value", node.place, node),), node.place)
            table = with_value(table, ["parameters", *place], axis)
        else:
            table = with_value(table, keys_on(path, table), node)
    return table


def _is_parameter(path: str, table: Table, options: Collection[str]) -> bool:
    """Whether a `--set` means a parameter by its name: no key of a study file begins so, nor is
    like it, unless the study has that parameter, or its program that option."""
    first = path.partition(".")[0]
    if first in _KEYS:
        return False
    if f"--{path}" in options:
        return True
    axes = _below(table, "parameters")
    for key in _axis_keys(axes, path.split(".")):
        axes = _below(axes, key)
    return axes is not None or not nearest(first, {*_KEYS, *BELOW}, _A_SLIP)


def keys_on(path: str, table: Table) -> list[str]:
    """The keys on a path in a study file, where a parameter's own name may have dots."""
    section, *parts = path.split(".")
    at = next((at for at, part in enumerate(parts) if at and part in _OF_A_PARAMETER), 0)
    if section != "parameters" or not at:
        return [section, *parts]
    return [section, *_axis_keys(_below(table, section), parts[:at]), *parts[at:]]


def _axis_keys(axes: Node | None, name: Sequence[str]) -> list[str]:
    """Where the parameter stands, or is to: below others, if the file has them nested."""
    first, *rest = name
    nested = _below(_below(axes, first), "parameters")
    if rest and isinstance(nested, Table):
        return [first, "parameters", *_axis_keys(nested, rest)]
    return [".".join(name)]


def _below(node: Node | None, key: str) -> Node | None:
    entries = node.entries if isinstance(node, Table) else ()
    return next((entry.node for entry in entries if entry.key == key), None)


def _setting(text: str, source: str) -> Node:
    """A flag's value; a word with a colon at its end is a list of one item, and no YAML table."""
    if text.endswith(":") and len(text.split()) == 1:
        return Scalar(text, text, Place(source))
    return parse_value(text, source)


class Assignments(NamedTuple):
    """What `--set` flags change of a study: its stop rules, values of parameters, the number of its
    trials, settings of axes. None: nothing of it."""

    stop: Table | None
    values: Table | None
    run_cap: int | None
    axes: Table | None


def parse_assignments(flags: Sequence[str]) -> Assignments:
    """`--set` flags, sorted: those under `stop` and `parameters`, `run_cap`, and parameters by
    their names.

    Raises UsageError for a flag that has not its form.
    """
    table = values = Table((), Place("--set"))
    for flag in flags:
        path, text = _split("--set", flag, "key=value, for example stop.max_seconds=2h")
        section, _, rest = path.partition(".")
        node = _setting(text, f"--set {flag}")
        if section == "stop" and not rest:
            raise UsageError("--set stop: expected stop.KEY=VALUE")
        if section == "parameters":
            # A parameter's own name may have dots.
            name, _, setting = rest.rpartition(".")
            if name and setting == "value":
                values = with_value(values, [name], node)
                continue
            if not name or setting == "values":
                expected = "a parameter by its name: --set NAME=VALUE"
                raise UsageError(f"--set {printable(flag)}: expected {expected}")
            table = with_value(table, ["parameters", name, setting], node)
        elif section == "stop" or path == "run_cap":
            table = with_value(table, path.split("."), node)
        else:
            values = with_value(values, [path], node)
    found = {entry.key: entry.node for entry in table.entries}
    stop, axes, cap = found.get("stop"), found.get("parameters"), found.get("run_cap")
    assert isinstance(stop, Table | None)
    assert isinstance(axes, Table | None)
    run_cap = cap.value if isinstance(cap, Scalar) else cap
    if not isinstance(run_cap, int | None) or isinstance(run_cap, bool):
        raise UsageError("--set run_cap: expected a whole number: how many trials there are to be")
    return Assignments(stop, values if values.entries else None, run_cap, axes)


def spanning_decades(random: Sequence[str]) -> list[str]:
    """What to say of `--random` flags that draw evenly between bounds so far apart that nearly all
    draws are of the size of the higher one."""
    notes = []
    for flag in random:
        place, (_, _, bounds) = Place(f"--random {flag}"), flag.partition("=")
        match [_real(end, place) for end in bounds.split("..")]:
            case [int() | float() as low, int() | float() as high] if high >= _DECADES * low > 0:
                notes.append(
                    f"{place}: nine in ten draws are above {low + (high - low) / 10:g};"
                    f" {printable(flag)}:log draws as often from each decade"
                )
    return notes


def named_values(option: str, flags: Sequence[str]) -> Table:
    """`NAME=VALUE` flags as a table, also written `parameters.NAME.value=VALUE` as in a study file.
    A name with dots is a name like any other.

    Raises UsageError for another setting of a parameter.
    """
    table = Table((), Place(option))
    for flag in flags:
        name, text = _split(option, flag, "NAME=VALUE, for example epochs=20")
        if name.startswith("parameters."):
            name, _, setting = name.removeprefix("parameters.").rpartition(".")
            if not name or setting != "value":
                raise UsageError(
                    f"{option} {printable(flag)}: expected a parameter by its name: {option}"
                    " NAME=VALUE"
                )
        table = with_value(table, [name], _setting(text, f"{option} {flag}"))
    return table


def parse_axes(values: Sequence[str], grid: Sequence[str], random: Sequence[str]) -> Table:
    """`--set`, `--grid` and `--random` flags as the parameters of a study file, each name once.

    Raises UsageError for a flag that has not its form.
    """
    given = Table((), Place("--set"))
    for key, axis in _axes(grid, random).items():
        given = with_value(given, [key], axis)
    for entry in named_values("--set", values).entries:
        if any(entry.key == other.key for other in given.entries):
            raise UsageError(
                f"{printable(entry.key)}: expected one of --set, --grid and --random of a name"
            )
        # A list is one value here, which a bare list in the table would not be.
        given = with_value(given, [entry.key, "value"], entry.node)
    return given


def _mapping(old: TreeEntry | None, place: Place) -> Table:
    match old:
        case TreeEntry(node=Table() as table):
            return table
        case TreeEntry(node=Scalar(value=value) as name) if value is not None:
            return Table((TreeEntry("name", old.place, name),), old.place)
        case _:
            return Table((), place)


def _axes(grid: Sequence[str], random: Sequence[str]) -> dict[str, Table]:
    """The parameters that `--grid` and `--random` flags name. Raises UsageError."""
    axes: dict[str, Table] = {}
    for option, flags, read in (("--grid", grid, _axis), ("--random", random, _range)):
        for flag in flags:
            key, axis = read(flag)
            if key in axes:
                raise UsageError(f"{option} {printable(flag)}: expected each name once")
            axes[key] = axis
    return axes


def _range(flag: str) -> tuple[str, Table]:
    """The parameter that a `--random` names, with its distribution: between two whole numbers,
    whole ones."""
    form = "NAME=LOW..HIGH, for example lr=1e-5..1e-1:log or drop=0.1..0.5"
    key, text = _split("--random", flag, form)
    place = Place(f"--random {flag}")
    bounds, _, scale = text.partition(":")
    ends = [_real(end, place) for end in bounds.split("..", 1)]
    if len(ends) != 2 or None in ends:
        near = ""
        if meant := _WITHOUT_DOTS.fullmatch(text):
            low, high, *scales = meant.groups()
            if all(_real(end, place) is not None for end in (low, high)):
                words = ":".join([f"{low}..{high}", *filter(None, scales)])
                near = f"; did you mean {printable(key)}={words}?"
        raise UsageError(f"{place}: expected {form}{near}")
    whole = all(isinstance(end, int) for end in ends)
    axis: dict[str, object] = {"min": ends[0], "max": ends[1]}
    if scale == "log":
        axis["distribution"] = "q_log_uniform_values" if whole else "log_uniform_values"
    elif scale:
        axis |= {"distribution": "q_uniform", "q": _real(scale, place)}
        if axis["q"] is None:
            raise UsageError(f"{place}: expected `log` after the colon, or a step such as 0.1")
    else:
        axis["distribution"] = "int_uniform" if whole else "uniform"
    problems: list[Problem] = []
    node = _node(axis, f"parameters.{key}", place, problems)
    assert isinstance(node, Table)
    return key, node


def _real(text: str, place: Place) -> int | float | None:
    """The finite number that a text is, as a study file has it; None if it is none."""
    node = parse_value(text, place.source)
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def _axis(flag: str) -> tuple[str, Table]:
    """The parameter that a `--grid` names, with its values."""
    key, text = _split("--grid", flag, "name=value,value")
    place = Place(f"--grid {flag}")
    if not text.strip(", "):
        raise UsageError(
            f"{place}: expected values after `=`, for example {printable(key)}=0.1,0.01"
        )
    if text.rstrip().endswith(","):
        raise UsageError(f"{place}: expected a value after the last comma")
    values = parse_value(f"[{text}]", place.source)
    items = values.items if isinstance(values, Items) else ()
    for each in items:
        words = each.text if isinstance(each, Scalar) else ""
        low, dots, high = words.partition("..")
        if dots and _real(low, place) is not None and _real(high, place) is not None:
            name = printable(key)
            near = f"; did you mean {name}={low},{high}, or --random {name}={words}?"
            raise UsageError(
                f"{place}: expected values with commas between" + near * (len(items) == 1)
            )
    return key, Table((TreeEntry("values", place, values),), place)


def _metric(flag: str) -> Node:
    place = Place(f"--metric {flag}")
    name, colon, goal = flag.rpartition(":")
    if not colon or goal not in _GOALS:
        near = next((g for g in _GOALS if colon and goal[:3].lower() == g[:3]), "")
        if near:
            raise UsageError(f"{place}: expected NAME:GOAL; did you mean {printable(name)}:{near}?")
        # A colon may be part of a metric's own name.
        return Scalar(flag, flag, place)
    entries = (("name", name), ("goal", goal))
    return Table(tuple(TreeEntry(k, place, Scalar(v, v, place)) for k, v in entries), place)


def _split(option: str, flag: str, form: str) -> tuple[str, str]:
    key, equals, text = flag.partition("=")
    if not equals or not key or not all(key.split(".")):
        raise UsageError(f"{option} {printable(flag)}: expected {form}")
    return key, text


def _node(data: object, path: str, place: Place, problems: list[Problem]) -> Node:
    def refuse(expected: str) -> Node:
        problems.append(Problem(expected, path, repr(data), place=place))
        return BrokenYaml(place)

    match data:
        case str() if expected := unfit(data):
            return refuse(expected)
        case None | bool() | str():
            return Scalar(data, "" if data is None else str(data), place)
        case Integral():
            value = int(data)
            fits = INT64_MIN <= value <= INT64_MAX
            return Scalar(value, str(value), place) if fits else refuse("64 bits")
        case Real():
            real = float(data)
            finite = math.isfinite(real)
            return Scalar(real, repr(real), place) if finite else refuse("a finite number")
        case Mapping():
            entries: list[TreeEntry] = []
            for key, value in data.items():
                if not isinstance(key, str):
                    return refuse("text as keys")
                if expected := unfit(key):
                    return refuse(f"keys that are {expected}")
                below = f"{path}.{key}" if path else key
                entries.append(TreeEntry(key, place, _node(value, below, place, problems)))
            return Table(tuple(entries), place)
        case list() | tuple() | range():
            items = (_node(v, f"{path}[{i}]", place, problems) for i, v in enumerate(data))
            return Items(tuple(items), place)
        case _:
            return refuse("text, a number, true, false, a list or a mapping")
