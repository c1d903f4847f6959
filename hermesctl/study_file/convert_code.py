"""Searches written in Python as the data of a study file.

The source is read and never executed. So bounds must be written out there, as numbers, text, or
names to which such a value is assigned once, and nothing else anywhere in the file.
"""

from __future__ import annotations

import ast
import copy
import math
import operator as op
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermesctl.errors import Place, Problem, UsageError
from hermesctl.study_file.convert import (
    VALUES_MAX,
    StudyDraft,
    is_sweep,
    number,
    of_nni,
    of_wandb,
    plain_values,
    read,
    stepped,
)
from hermesctl.study_file.source_names import bound_by, full_name, imported_names
from hermesctl.text import cut, printable


class _Unknown(Exception):
    """An expression whose value does not stand in the source."""


# What a value may come to, in letters and nodes, where each name in it is written out.
_WRITTEN_OUT_MAX = 1 << 18
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: op.add, ast.Sub: op.sub, ast.Mult: op.mul, ast.Div: op.truediv,
    ast.FloorDiv: op.floordiv, ast.Pow: op.pow,
}  # fmt: skip
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class PythonSource:
    """A parsed program, with the names that it gives a plain value, once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.tree = ast.parse(read(path))
        except SyntaxError as error:
            where = f"{printable(str(path))}:{error.lineno or 1}"
            raise UsageError(f"{where}: not Python: {error.msg}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise UsageError(f"{printable(str(path))}: not Python: {error}") from None
        self.imported = imported_names(self.tree)
        bound: Counter[str] = Counter()
        assigned: dict[str, tuple[ast.expr, tuple[ast.AST, ...]]] = {}
        #: What hyper-parameters are asked of, such as `trial`.
        self.trials: set[str] = set()
        #: The functions and classes around each name that is read.
        self._around: dict[ast.Name, tuple[ast.AST, ...]] = {}
        for node, around in _scoped(self.tree):
            bound.update(bound_by(node))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._around[node] = around
            if isinstance(node, ast.Call) and called(node).startswith("suggest_"):
                self.trials.update([owner] if (owner := _owner(node.func)) else [])
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        assigned[target.id] = (node.value, around)
        self._named = {name: one for name, one in assigned.items() if bound[name] == 1}

    def value(self, node: ast.expr | None) -> Any:
        """What an expression is. Raises _Unknown, and UsageError for one that is made of itself or
        is huge."""
        try:
            return self._value(node, (), [_WRITTEN_OUT_MAX])
        except RecursionError:
            raise _Unknown from None

    def _value(self, node: ast.expr | None, within: tuple[str, ...], left: list[int]) -> Any:
        """`within` are the names whose value this is a part of, `left` is how long it may be."""
        if isinstance(node, ast.Name):
            if node.id in within:
                raise self.refusal(node, "a value that is not made of itself")
            return self._value(self.named(node), (*within, node.id), left)
        if node is None:
            raise _Unknown
        is_made = isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.Call, ast.BinOp))
        left[0] -= 1 if is_made else sum(map(_length, ast.walk(node)))
        if left[0] < 0:
            raise self.refusal(node, "at most 256 KiB where each name is written out")
        match node:
            case ast.List() | ast.Tuple():
                return [self._value(one, within, left) for one in node.elts]
            case ast.ListComp(elt, [ast.comprehension(ast.Name(name), each, [], 0)]):
                listed = self._value(each, within, left)
                if not isinstance(listed, list):
                    raise _Unknown
                return [self._value(_with(elt, name, one), within, left) for one in listed]
            case ast.Call(ast.Name("list" | "tuple"), [each], []):
                return self._value(each, within, left)
            case ast.Call(ast.Name("range"), [_, *_] as ends, []):
                counted = _counted([self._value(end, within, left) for end in ends])
                left[0] -= len(counted)
                return counted
            case ast.BinOp(one, operator, other):
                sides = [self._value(side, within, left) for side in (one, other)]
                return _calculated(operator, *sides)
            case _:
                pass
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise _Unknown from None

    def refusal(self, node: ast.expr, expected: str) -> UsageError:
        """That an expression can't be meant."""
        place = Place(str(self._path), node.lineno)
        return UsageError("", [Problem(expected, "", cut(ast.unparse(node)), place=place)])

    def named(self, node: ast.expr | None) -> ast.expr | None:
        """The expression that a name stands for; None if that does not stand there."""
        if not isinstance(node, ast.Name):
            return node
        value, scope = self._named.get(node.id, (None, ()))
        around = self._around.get(node, ())
        is_seen = around[: len(scope)] == scope
        if scope and isinstance(scope[-1], ast.ClassDef):
            is_seen = around == scope  # its functions don't see a class' names
        return value if is_seen else None

    def usual(self, node: ast.expr | None) -> Any:
        """The same as `value`; of an argument of a function, what all its calls give, or what it is
        by default. Raises likewise."""
        around = self._around.get(node, ()) if isinstance(node, ast.Name) else ()
        for scope in reversed(around):
            if isinstance(scope, ast.FunctionDef) and isinstance(node, ast.Name):
                names = [one.arg for one in scope.args.args if one.arg != "self"]
                if node.id in names:
                    return self._argument(scope, names, node.id)
        return self.value(node)

    def _argument(self, function: ast.FunctionDef, names: Sequence[str], name: str) -> Any:
        default = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        calls = [call for word, call in self.calls() if word == function.name]
        if any(one.arg is None for call in calls for one in call.keywords):
            raise _Unknown
        said = [given(call, *names).get(name, default.get(name)) for call in calls]
        first, *others = map(self.value, said or [default.get(name)])
        if any(other != first for other in others):
            raise _Unknown
        return first

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """All calls, each with the last word of what is called."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield called(node), node


def _with(node: ast.expr, name: str, value: Any) -> ast.expr:
    """An expression in which a name has a plain value."""

    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.copy_location(ast.Constant(value), node) if node.id == name else node

    return Put().visit(copy.deepcopy(node))  # type: ignore[no-any-return]


def _counted(ends: Sequence[Any]) -> list[int]:
    """What `range` counts. Raises _Unknown."""
    try:
        found = range(*ends)
    except (TypeError, ValueError):
        raise _Unknown from None
    if len(found) > VALUES_MAX:
        raise _Unknown
    return list(found)


def _calculated(operator: ast.operator, one: Any, other: Any) -> float:
    """Two numbers, added or the like. Raises _Unknown."""
    does = _OPERATORS.get(type(operator))
    if does is None or number(one) != one or number(other) != other:
        raise _Unknown
    try:
        # As floating-point numbers first: whole ones may have no end.
        about = does(float(one), float(other))
        fits = isinstance(about, float) and abs(about) < 2**63
        found = number(does(one, other)) if fits else None
    except (ArithmeticError, ValueError):
        found = None
    if found is None:
        raise _Unknown
    return found


def _length(node: ast.AST) -> int:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return 1 + (len(node.value) if is_text else 0)  # type: ignore[attr-defined]


def _scoped(tree: ast.AST) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """All nodes, each with the functions and classes around it."""
    waiting: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(tree, ())]
    while waiting:
        node, around = waiting.pop()
        yield node, around
        inside = (*around, node) if isinstance(node, _SCOPES) else around
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]


def called(node: ast.AST | None) -> str:
    """The last word of what a call calls; empty for another expression."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _owner(node: ast.expr) -> str:
    """Whose attribute it is, a variable's (`trial.x`) or a variable's attribute's (`self.trial.x`);
    empty for anything else."""
    owner = getattr(node, "value", None)
    names = [] if not isinstance(owner, ast.Attribute) else [owner.attr]
    owner = owner.value if isinstance(owner, ast.Attribute) else owner
    return ".".join([owner.id, *names]) if isinstance(owner, ast.Name) else ""


def given(call: ast.Call, *names: str) -> dict[str, ast.expr]:
    """What a call is given, by name: the first words by these."""
    found = dict(zip(names, call.args, strict=False))
    return {**found, **{one.arg: one.value for one in call.keywords if one.arg}}


def _values(source: PythonSource, call: ast.Call, *names: str) -> dict[str, Any]:
    """The same as values. Raises _Unknown."""
    return {name: source.value(node) for name, node in given(call, *names).items()}


# Optuna's space is what an objective asks for, wherever that stands.

_OPTUNA_NUMBERS = {
    "suggest_float": ("name", "low", "high"), "suggest_int": ("name", "low", "high", "step"),
    "suggest_uniform": ("name", "low", "high"), "suggest_loguniform": ("name", "low", "high"),
    "suggest_discrete_uniform": ("name", "low", "high", "q"),
}  # fmt: skip


def from_optuna(path: Path) -> StudyDraft:
    """A program with an objective that asks a trial for its hyper-parameters."""
    source, draft = PythonSource(path), StudyDraft(path)
    _suggested(source, draft, source.tree, {}, {})
    for name, call in source.calls():
        if name in ("create_study", "load_study"):
            _optuna_study(source, draft, given(call))
        elif name == "hyperparameter_search":  # of Hugging Face's Trainer
            about = given(call, "hp_space", "compute_objective", "n_trials", "direction")
            draft.run_up_to(_or_noted(source, draft, about, "n_trials"))
            goals = _or_noted(source, draft, about, "direction") or "minimize"
            draft.rank_by_values([goals] if isinstance(goals, str) else goals)
            known = ("hp_space", "n_trials", "direction", "backend")
            draft.leave_out(dict.fromkeys(about, 0), known)
        elif name == "optimize":
            about = given(call, "func", "n_trials")
            draft.run_up_to(_or_noted(source, draft, about, "n_trials"))
            draft.leave_out({name: 0 for name in ("timeout", "callbacks") if name in about}, ())
        elif name == "GridSampler":
            _grid_of_optuna(source, draft, given(call, "search_space"))
    draft.data.setdefault("metric", {"name": "value", "goal": "minimize"})
    draft.data.setdefault("method", "tpe")  # Optuna's own choice
    draft.data["program"] = path.name
    draft.note(
        "the program has to run the objective with the arguments that it is given, and print"
        " value=VALUE: optuna.trial.FixedTrial does that in ten lines (docs/coming-from/optuna.md)"
    )
    return draft


def _optuna_study(source: PythonSource, draft: StudyDraft, about: Mapping[str, ast.expr]) -> None:
    goals = _or_noted(source, draft, about, "directions")
    draft.rank_by_values(goals or [_or_noted(source, draft, about, "direction") or "minimize"])
    if sampler := _called_or_noted(source, draft, about, "sampler"):
        draft.search_by(sampler)
        call = source.named(about["sampler"])
        settings = given(call) if isinstance(call, ast.Call) else {}
        if isinstance(seed := _or_none(source, settings.pop("seed", None)), int) and seed >= 0:
            draft.data["seed"] = seed
        draft.leave_out(settings, ("search_space",), f"{sampler} ")
    if pruner := _called_or_noted(source, draft, about, "pruner"):
        draft.schedule_by(pruner, "optuna", _settings(source, about["pruner"]))
    if name := _or_noted(source, draft, about, "study_name"):
        draft.data["name"] = str(name)
    draft.leave_out(about, ("direction", "directions", "sampler", "pruner", "study_name"))


def _grid_of_optuna(source: PythonSource, draft: StudyDraft, about: Mapping[str, ast.expr]) -> None:
    space = _or_noted(source, draft, about, "search_space")
    for name, values in space.items() if isinstance(space, dict) else ():
        draft.parameters[name] = {"values": plain_values(draft, name, list(values))}


def _or_none(source: PythonSource, node: ast.expr | None) -> Any:
    try:
        return source.value(node)
    except _Unknown:
        return None


def _or_noted(
    source: PythonSource, draft: StudyDraft, about: Mapping[str, ast.expr], key: str
) -> Any:
    """What is given by this name; None, with a note, if that does not stand there."""
    try:
        return source.value(about[key]) if key in about else None
    except _Unknown:
        draft.note(f"left out: {key} (line {about[key].lineno}), whose value is not written out")
        return None


def _called_or_noted(
    source: PythonSource, draft: StudyDraft, about: Mapping[str, ast.expr], key: str
) -> str:
    """What makes the thing that is given by this name; empty, with a note, if unknown."""
    found = called(source.named(about.get(key)))
    if not found:
        _or_noted(source, draft, about, key)
    return found


def _suggested(
    source: PythonSource,
    draft: StudyDraft,
    node: ast.AST,
    when: Mapping[str, Any],
    asked: dict[str, str],
) -> None:
    """What is asked for in and below `node`, where these others have these values; `asked` are the
    variables, and items of dicts, that hold a hyper-parameter."""
    if isinstance(node, ast.Assign) and called(node.value).startswith("suggest_"):
        assert isinstance(node.value, ast.Call)
        _suggest(source, draft, node.value, when)
        for target in node.targets:
            _suggested(source, draft, target, when, asked)
            if isinstance(target, ast.Name | ast.Subscript):
                asked[ast.unparse(target)] = _asked_for(source, node.value, asked)
        return
    for again in _set_again(node):
        for known in [each for each in asked if each == again or each.startswith(f"{again}[")]:
            del asked[known]  # it is no longer what was asked for
    if called(node).startswith("suggest_"):
        assert isinstance(node, ast.Call)
        _suggest(source, draft, node, when)
    if isinstance(node, (ast.If, ast.IfExp)):
        _suggested_if(source, draft, node, when, asked)
        return
    if isinstance(node, (ast.While, ast.Match, ast.BoolOp, ast.ExceptHandler)) and _suggests(node):
        _note_condition(draft, node)
    _suggested_each(source, draft, [*ast.iter_child_nodes(node)], when, asked)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
        for key, value in zip(node.value.keys, node.value.values, strict=True):
            if isinstance(key, ast.Constant) and called(value).startswith("suggest_"):
                for target in node.targets:
                    item = f"{ast.unparse(target)}[{key.value!r}]"
                    asked[item] = _asked_for(source, value, asked)


def _set_again(node: ast.AST) -> list[str]:
    """What is another one because of a node: variables, or an item of a dict."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return [] if isinstance(node.ctx, ast.Load) else [ast.unparse(node)]
    return bound_by(node)


def _asked_for(source: PythonSource, node: ast.AST, asked: Mapping[str, str]) -> str:
    """The hyper-parameter that an expression is; empty if it is none."""
    if called(node).startswith("suggest_"):
        assert isinstance(node, ast.Call)
        name = given(node, "name").get("name")
        return str(_or_none(source, name)) if name else ""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
        is_one = node.value.attr == "params" and _owner(node.value) in source.trials
        is_one = is_one and isinstance(node.slice, ast.Constant)
        return str(node.slice.value) if is_one else ""  # type: ignore[attr-defined]
    return asked.get(ast.unparse(node), "") if isinstance(node, ast.Name | ast.Subscript) else ""


def _suggested_each(
    source: PythonSource,
    draft: StudyDraft,
    nodes: Sequence[ast.AST],
    when: Mapping[str, Any],
    asked: dict[str, str],
) -> None:
    for at, one in enumerate(nodes):
        if isinstance(one, ast.If) and _leaves(one) and any(map(_suggests, nodes[at + 1 :])):
            _note_condition(draft, one)
        _suggested(source, draft, one, when, asked)


def _suggested_if(
    source: PythonSource,
    draft: StudyDraft,
    node: ast.If | ast.IfExp,
    when: Mapping[str, Any],
    asked: dict[str, str],
) -> None:
    _suggested(source, draft, node.test, when, asked)
    inside, others = _condition(source, draft, node.test, asked)
    then: Sequence[ast.AST] = node.body if isinstance(node.body, list) else [node.body]
    otherwise: Sequence[ast.AST] = node.orelse if isinstance(node.orelse, list) else [node.orelse]
    if (not inside and any(map(_suggests, then))) or (
        not others and any(map(_suggests, otherwise))
    ):
        _note_condition(draft, node)
    _suggested_each(source, draft, then, _both(when, inside), asked)
    _suggested_each(source, draft, otherwise, _both(when, others), asked)


def _note_condition(draft: StudyDraft, node: Any) -> None:
    line = getattr(node, "lineno", 0)
    draft.note(
        f"left out: the condition of line {line}, which is not understood: give `when` to what is"
        " asked for below it, which every trial has now"
    )


def _both(when: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Where both conditions hold."""
    found = dict(when)
    for name, value in more.items():
        values = value if isinstance(value, list) else [value]
        known = found.get(name, values)
        known = known if isinstance(known, list) else [known]
        left = [one for one in values if one in known]
        found[name] = left[0] if len(left) == 1 else left
    return found


def _suggests(node: ast.AST) -> bool:
    return any(called(one).startswith("suggest_") for one in ast.walk(node))


def _leaves(node: ast.If) -> bool:
    """Whether what follows is not always reached."""
    exits = (ast.Return, ast.Raise, ast.Continue, ast.Break)
    return any(isinstance(one, exits) for one in ast.walk(node))


def _condition(
    source: PythonSource, draft: StudyDraft, test: ast.expr, asked: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What hyper-parameters are where a test holds, and where it does not: `if kind == "svc"`,
    `if kind in (...)`, `if is_deep`, these with `not`, and some with `and`. Nothing for others."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inside, others = _condition(source, draft, test.operand, asked)
        return others, inside
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        all_of = [_condition(source, draft, each, asked)[0] for each in test.values]
        together: dict[str, Any] = {}
        for each in all_of:
            together = _both(together, each)
        return (together if all(all_of) else {}), {}
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        name, value = _asked_for(source, test.left, asked), _or_none(source, test.comparators[0])
        kinds = (ast.In, ast.NotIn) if isinstance(value, list) else (ast.Eq, ast.NotEq)
        if name not in draft.parameters or value is None or not isinstance(test.ops[0], kinds):
            return {}, {}
        inside = {name: value}
        others = _others(draft, inside)
        return (inside, others) if isinstance(test.ops[0], kinds[0]) else (others, inside)
    name = _asked_for(source, test, asked)
    values = draft.parameters.get(name, {}).get("values", ())
    if values and all(isinstance(each, bool) for each in values):
        return {name: True}, {name: False}
    return {}, {}


def _others(draft: StudyDraft, inside: Mapping[str, Any]) -> dict[str, Any]:
    """What a hyper-parameter is in the `else`: all but those values."""
    found = {}
    for name, value in inside.items():
        taken = value if isinstance(value, list) else [value]
        left = [one for one in draft.parameters.get(name, {}).get("values", ()) if one not in taken]
        if left:
            found[name] = left[0] if len(left) == 1 else left
    return found


def _suggest(
    source: PythonSource, draft: StudyDraft, call: ast.Call, when: Mapping[str, Any]
) -> None:
    kind, line = called(call), call.lineno
    names = _OPTUNA_NUMBERS.get(kind, ("name", "choices"))
    try:
        about = _values(source, call, *names)
    except _Unknown:
        draft.note(f"left out: line {line}, whose {kind} is given a value that is not written out")
        return
    name, more = str(about.get("name")), {"when": dict(when)} if when else {}
    if name in draft.parameters and draft.data.get("method") != "grid":
        draft.note(f"{name} is asked for twice: the first counts")
        return
    if "choices" in about:
        values = plain_values(draft, name, list(about["choices"]))
        draft.parameters[name] = {"values": values, **more}
        return
    is_whole, step = kind == "suggest_int", about.get("step", about.get("q"))
    low, high = (draft.bound(f"{name}.{key}", about.get(key), is_whole) for key in ("low", "high"))
    axis: dict[str, Any] = {"min": low, "max": high}
    if about.get("log") or kind == "suggest_loguniform":
        axis["distribution"] = "q_log_uniform_values" if is_whole else "log_uniform_values"
    elif step is not None and not (is_whole and step == 1):
        axis = stepped(draft, name, low, high, draft.bound(f"{name}.step", step, is_whole))
    if axis:
        draft.parameters[name] = {**axis, **more}


# Ray Tune's spaces are dicts in which some values are drawn.

_RAY_NUMBERS = {
    "uniform": ("lower", "upper"), "quniform": ("lower", "upper", "q"),
    "loguniform": ("lower", "upper"), "qloguniform": ("lower", "upper", "q"),
    "randint": ("lower", "upper"), "qrandint": ("lower", "upper", "q"),
    "lograndint": ("lower", "upper"), "qlograndint": ("lower", "upper", "q"),
    "randn": ("mean", "sd"), "qrandn": ("mean", "sd", "q"),
}  # fmt: skip
_RAY_LEFT = ("stop", "time_budget_s", "max_concurrent_trials")
_RAY_LISTS = ("choice", "grid_search")


def from_ray(path: Path) -> StudyDraft:
    """A program with a Tuner, or `tune.run`."""
    source, draft = PythonSource(path), StudyDraft(path)
    dicts = [(node, _as_dict(node)) for node in ast.walk(source.tree)]
    spaces = [(node, it) for node, it in dicts if it and any(map(_is_drawn, it.values))]
    inner = {id(one) for node, _ in spaces for one in ast.walk(node) if one is not node}
    for node, space in spaces:
        if id(node) not in inner:
            _ray_space(source, draft, space, "")
    for one in ast.walk(source.tree):
        if isinstance(one, ast.Call) and _is_drawn_by_ray(one) and id(one) not in inner:
            what = printable(cut(ast.unparse(one)))
            draft.note(f"left out: {what} (line {one.lineno}), which is in no dict")
    for name, call in source.calls():
        if name in ("TuneConfig", "RunConfig", "run", "Tuner"):
            _ray_settings(source, draft, about := given(call))
            if isinstance(own := _or_none(source, about.get("name")), str):
                draft.data["name"] = own
        elif name == "with_resources":
            _ray_resources(source, draft, given(call, "trainable", "resources").get("resources"))
    kinds = {called(one) for _, space in spaces for one in space.values}
    draft.data.setdefault("method", "random" if kinds - {"", "grid_search"} else "grid")
    if draft.data["method"] == "grid":
        draft.data.pop("run_cap", None)
    elif "grid_search" in kinds:
        draft.note("grid_search beside what is drawn: its values are drawn, too")
        if draft.data["method"] == "random":
            _as_often_as_ray(source, draft)
    draft.data["program"] = path.name
    draft.note(
        "the program has to take its hyper-parameters as arguments, and print or log its metrics"
        " where it calls tune.report; or keep the function: hermesctl.search(train, {...})"
    )
    return draft


def _as_often_as_ray(source: PythonSource, draft: StudyDraft) -> None:
    """As many trials as there are in Ray, which draws `num_samples` times at each grid point."""
    found = [given(call, "values") for name, call in source.calls() if name == "grid_search"]
    grids = [_or_none(source, each.get("values")) for each in found]
    points = math.prod(len(each) for each in grids if isinstance(each, (list, tuple)))
    draft.run_up_to(draft.data.get("run_cap", 1) * points)


def _is_drawn(node: ast.expr | None) -> bool:
    name = called(node)
    return name in _RAY_NUMBERS or name in _RAY_LISTS or name == "sample_from"


def _is_drawn_by_ray(node: ast.Call) -> bool:
    of = getattr(node.func, "value", None)
    return _is_drawn(node) and isinstance(of, ast.Name) and of.id == "tune"


def _as_dict(node: ast.AST) -> ast.Dict | None:
    """A dict, be it written `dict(lr=...)`, or made key by key: `config["lr"] = ...`."""
    match node:
        case ast.Dict():
            return node
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=words) if all(
            word.arg for word in words
        ):
            keys: list[ast.expr | None] = [ast.Constant(word.arg) for word in words]
            return ast.Dict(keys, [word.value for word in words])
        case ast.Assign(
            targets=[ast.Subscript(slice=ast.Constant(value=str()) as key)], value=value
        ):
            return ast.Dict([key], [value])
        case _:
            return None


def _ray_space(source: PythonSource, draft: StudyDraft, node: ast.Dict, prefix: str) -> None:
    for key, one in zip(node.keys, node.values, strict=True):
        name = f"{prefix}{_or_none(source, key)}"
        try:
            if (nested := _as_dict(one)) is not None:
                _ray_space(source, draft, nested, f"{name}.")
            elif _is_drawn(one):
                draft.parameters[name] = _ray_axis(source, draft, name, one)  # type: ignore[arg-type]
            elif values := plain_values(draft, name, [source.value(one)]):
                draft.parameters[name] = {"value": values[0]}
        except (_Unknown, KeyError, TypeError):
            draft.note(f"left out: {name} (line {one.lineno}), whose value is not written out")


def _ray_axis(source: PythonSource, draft: StudyDraft, name: str, call: ast.Call) -> dict[str, Any]:
    """Raises _Unknown, and KeyError or TypeError for what the call is not given so."""
    kind = called(call)
    if kind == "sample_from":
        values = plain_values(draft, name, source.value(_drawn_from(source, call)))
        return {"values": list(dict.fromkeys(values))}
    if kind in _RAY_LISTS:
        words = given(call, "values")
        listed = source.value(words.get("values", words.get("categories")))
        return {"values": plain_values(draft, name, list(listed))}
    about = _values(source, call, *_RAY_NUMBERS[kind])
    more = {"q": about["q"]} if about.get("q") is not None else {}
    if "randn" in kind:
        word = "q_normal" if more else "normal"
        return {"distribution": word, "mu": about["mean"], "sigma": about["sd"], **more}
    low, high = about["lower"], about["upper"]
    if "randint" in kind:
        low, high = (draft.bound(name, one, is_whole=True) for one in (low, high))
        high -= 0 if more else 1  # the end is not among them
        if "log" in kind:
            return {"min": low, "max": high, "distribution": "q_log_uniform_values", **more}
        return {"min": low, "max": high, **({"distribution": "q_uniform", **more} if more else {})}
    drawn = "log_uniform_values" if "log" in kind else "uniform"
    axis = {"min": draft.bound(name, low), "max": draft.bound(name, high)}
    if not more and drawn == "uniform":
        return axis
    return {**axis, "distribution": f"q_{drawn}" if more else drawn, **more}


def _drawn_from(source: PythonSource, call: ast.Call) -> ast.expr:
    """All that `sample_from(lambda spec: 2 ** np.random.randint(3, 7))` may come to, as a list.
    Raises _Unknown for a function that is no such expression with one draw in it."""
    match call.args:
        case [ast.Lambda(body=body)]:
            draws = [one for one in ast.walk(body) if called(one) in ("randint", "choice")]
        case _:
            draws = []
    match draws:
        case [ast.Call(func, args, []) as drawn]:
            drawing = full_name(func, source.imported)
        case _:
            raise _Unknown
    match drawing, args:
        case "random.choice" | "numpy.random.choice", [each]:
            pass
        case "numpy.random.randint", ends:
            each = ast.Call(ast.Name("range"), ends, [])
        case "random.randint", [first, last]:
            end = ast.BinOp(last, ast.Add(), ast.Constant(1))  # unlike numpy's, the last is drawn
            each = ast.Call(ast.Name("range"), [first, end], [])
        case _:
            raise _Unknown

    class Put(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            return ast.Name("drawn") if node is drawn else node

    made = ast.ListComp(Put().visit(body), [ast.comprehension(ast.Name("drawn"), each, [], 0)])
    return ast.fix_missing_locations(ast.copy_location(made, call))


def _ray_resources(source: PythonSource, draft: StudyDraft, node: ast.expr | None) -> None:
    """A device here is one GPU, or one slot of cores."""
    said = source.named(node)
    found = _as_dict(said) if said is not None else None
    gpus = found and dict(zip(map(_key_of, found.keys), found.values, strict=True)).get("gpu")
    try:
        count = source.usual(gpus) if gpus else 1
    except _Unknown:
        count = None
    count = int(count) if isinstance(count, float) and count.is_integer() else count
    if isinstance(count, int) and count > 1:
        # One process sees them all, as there.
        draft.data["resources"] = {"devices": count, "processes": "one"}
    elif count not in (0, 1) or (said is not None and found is None):
        what = printable(cut(ast.unparse(said))) if said is not None else ""
        draft.note(f"left out: the resources {what}; a trial then has one device")
    draft.note("a device is one GPU, or one slot of a node's cores (docs/study-file.md, resources)")


def _key_of(node: ast.expr | None) -> str:
    return str(node.value).lower() if isinstance(node, ast.Constant) else ""


def _ray_settings(source: PythonSource, draft: StudyDraft, about: Mapping[str, ast.expr]) -> None:
    named = (source.named(about.get(key)) for key in ("search_alg", "scheduler"))
    makers = [one for one in named if isinstance(one, ast.Call)]
    for said in (*map(given, makers), about):
        metric, mode = (_or_none(source, said.get(key)) for key in ("metric", "mode"))
        if metric:
            draft.rank_by(metric, mode, "max")
    if "num_samples" in about:
        try:
            draft.run_up_to(source.usual(about["num_samples"]))
        except _Unknown:
            _or_noted(source, draft, about, "num_samples")
    if "resources_per_trial" in about:
        _ray_resources(source, draft, about["resources_per_trial"])
    for key, take in (("search_alg", draft.search_by), ("scheduler", draft.schedule_by)):
        if maker := called(source.named(about.get(key))):
            settings = _settings(source, about[key])
            for known in ("metric", "mode", "time_attr"):
                settings.pop(known, None)
            take(maker, "ray", settings)
    left = [key for key in _RAY_LEFT if key in about]
    draft.leave_out(dict.fromkeys(left), ())


def _settings(source: PythonSource, maker: ast.expr) -> dict[str, object]:
    """What is given where a scheduler or the like is made; None for what is not written out."""
    call = source.named(maker)
    about = given(call) if isinstance(call, ast.Call) else {}
    return {key: _or_none(source, one) for key, one in about.items()}


# Programs that start W&B's sweeps and NNI's experiments have dicts like those tools' files.


def from_wandb(path: Path) -> StudyDraft:
    """A program with a sweep: a dict, to which some keys may be given later."""
    source, whole = PythonSource(path), _Whole()
    nodes = [*ast.walk(source.tree)]
    sweeps = (each for each in nodes if isinstance(each, ast.Dict) and is_sweep(_words(each)))
    if (sweep := next(sweeps, None)) is not None:
        whole.put(source, (), sweep)
    for node in nodes:
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(), slice=ast.Constant(value=str(key)))]
            ) if key in ("method", "metric", "parameters", "early_terminate"):
                whole.put(source, (key,), node.value)
    if isinstance(command := whole.data.get("command"), str):
        whole.data["command"] = [word.strip(" -") for word in command.split("\n") if word.strip()]
    draft = of_wandb(path, whole.data)
    draft.notes += whole.notes
    for name, call in source.calls():
        if name == "agent" and "count" in (about := given(call)):
            draft.run_up_to(_or_noted(source, draft, about, "count"))
    if not {"program", "command"} & draft.data.keys():
        draft.data["program"] = path.name
    draft.note("the program has to take arguments, where it reads wandb.config")
    return draft


def from_nni(path: Path) -> StudyDraft:
    """A program that gives an Experiment its `config`, setting by setting."""
    source, whole = PythonSource(path), _Whole()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            keys = _settings_of(node.targets[0])
            if "config" in keys[:-1]:
                below = keys[keys.index("config") + 1 :]
                whole.put(source, tuple(map(_camel, below)), node.value)
    draft = of_nni(path, whole.data)
    draft.notes += whole.notes
    return draft


def _words(node: ast.Dict) -> dict[str, None]:
    """The keys of a dict that are written there."""
    return {str(one.value): None for one in node.keys if isinstance(one, ast.Constant)}


def _settings_of(node: ast.expr) -> list[str]:
    """The words of `experiment.config.tuner.class_args["optimize_mode"]`."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=inner, attr=name):
            return [*_settings_of(inner), name]
        case ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
            return [*_settings_of(inner), key]
        case _:
            return []


def _camel(name: str) -> str:
    """As in NNI's files, where `trial_command` is `trialCommand`; what a tuner takes is as is."""
    first, *rest = name.split("_")
    return name if name == "optimize_mode" else first + "".join(word.title() for word in rest)


class _Whole:
    """A mapping that a program makes, as far as its values stand in the source."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.notes: list[str] = []
        self._left = _WRITTEN_OUT_MAX

    def put(self, source: PythonSource, keys: tuple[str, ...], node: ast.expr) -> None:
        """Have the value of an expression below these keys, key by key where it is a dict."""
        self._left -= 1
        if self._left < 0:
            raise source.refusal(node, "at most 256 KiB where each name is written out")
        node = source.named(node) or node
        if isinstance(node, ast.Dict):
            for key, one in zip(node.keys, node.values, strict=True):
                below = (*keys, str(_or_none(source, key))) if key else keys
                self.put(source, below, one)
            return
        try:
            value = source.value(node if keys else None)
        except _Unknown:
            where = ".".join(keys) or cut(ast.unparse(node))
            self.notes.append(
                f"left out: {where} (line {node.lineno}), whose value is not written out"
            )
            return
        there = self.data
        for name in keys[:-1]:
            there = there.setdefault(name, {})
        there[keys[-1]] = value
