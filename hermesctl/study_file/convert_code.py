"""Searches written in Python, with Optuna or Ray Tune -> the data of a study file.

The source is read, and never run: bounds have to stand there, as numbers, text or names that a
module gives such a value once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermesctl.errors import UsageError
from hermesctl.study_file.convert import StudyDraft, plain_values, read
from hermesctl.text import printable


class _Unknown(Exception):
    """An expression whose value does not stand in the source."""


class PythonSource:
    """A parsed program, with the names that it gives a plain value, once."""

    def __init__(self, path: Path) -> None:
        try:
            self.tree = ast.parse(read(path))
        except (SyntaxError, ValueError, RecursionError) as error:
            raise UsageError(f"{printable(str(path))}: not Python: {error}") from None
        self._named: dict[str, ast.expr | None] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                self._named[name] = None if name in self._named else node.value

    def value(self, node: ast.expr | None) -> Any:
        """What an expression is. Raises _Unknown."""
        if isinstance(node, ast.Name):
            node = self._named.get(node.id)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(one) for one in node.elts]
        if node is None:
            raise _Unknown
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise _Unknown from None

    def named(self, node: ast.expr | None) -> ast.expr | None:
        """The expression that a name stands for."""
        return self._named.get(node.id) if isinstance(node, ast.Name) else node

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """All calls, each with the last word of what is called."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield called(node), node


def called(node: ast.AST | None) -> str:
    """The last word of what a call calls; empty for another expression."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


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
    source, draft = PythonSource(path), StudyDraft()
    _suggested(source, draft, source.tree, {}, {})
    for name, call in source.calls():
        if name == "create_study":
            _optuna_study(source, draft, given(call))
        elif name == "optimize":
            count = given(call, "func", "n_trials").get("n_trials")
            draft.run_up_to(_or_none(source, count))
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
    draft.rank_by("value", _or_none(source, about.get("direction")), "minimize")
    if "directions" in about:
        draft.note("left out: directions; the leaderboard ranks by one metric, `value`")
    if sampler := called(source.named(about.get("sampler"))):
        draft.search_by(sampler)
    if pruner := called(source.named(about.get("pruner"))):
        draft.schedule_by(pruner)


def _grid_of_optuna(source: PythonSource, draft: StudyDraft, about: Mapping[str, ast.expr]) -> None:
    space = _or_none(source, source.named(about.get("search_space")))
    for name, values in space.items() if isinstance(space, dict) else ():
        draft.parameters[name] = {"values": plain_values(draft, name, list(values))}


def _or_none(source: PythonSource, node: ast.expr | None) -> Any:
    try:
        return source.value(node)
    except _Unknown:
        return None


def _suggested(
    source: PythonSource,
    draft: StudyDraft,
    node: ast.AST,
    when: Mapping[str, Any],
    asked: dict[str, str],
) -> None:
    """What is asked for in and below `node`, where these others have these values; `asked` are the
    variables that hold a hyper-parameter."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        words = given(node.value, "name") if isinstance(node.value, ast.Call) else {}
        if called(node.value).startswith("suggest_") and "name" in words:
            asked[node.targets[0].id] = str(_or_none(source, words["name"]))
    if called(node).startswith("suggest_"):
        assert isinstance(node, ast.Call)
        _suggest(source, draft, node, when)
    if isinstance(node, ast.If):
        inside = _condition(source, node.test, asked)
        for then in node.body:
            _suggested(source, draft, then, _both(when, inside), asked)
        if node.orelse and any(_suggests(one) for one in node.orelse):
            others = _others(draft, inside)
            for otherwise in node.orelse:
                _suggested(source, draft, otherwise, _both(when, others), asked)
        return
    for child in ast.iter_child_nodes(node):
        _suggested(source, draft, child, when, asked)


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


def _condition(source: PythonSource, test: ast.expr, asked: Mapping[str, str]) -> dict[str, Any]:
    """`if kind == "svc"` and `if kind in (...)`, of a hyper-parameter; nothing for another."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return {}
    name = asked.get(test.left.id) if isinstance(test.left, ast.Name) else None
    if name is None or not isinstance(test.ops[0], (ast.Eq, ast.In)):
        return {}
    value = _or_none(source, test.comparators[0])
    return {} if value is None else {name: value}


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
        draft.note(f"left out: line {line}, whose {kind} is given what does not stand there")
        return
    name, more = str(about.get("name")), {"when": dict(when)} if when else {}
    if name in draft.parameters and draft.data.get("method") != "grid":
        draft.note(f"{name} is asked for twice: the first counts")
        return
    if "choices" in about:
        values = plain_values(draft, name, list(about["choices"]))
        draft.parameters[name] = {"values": values, **more}
        return
    if kind == "suggest_int":
        axis: dict[str, Any] = {"min": int(about["low"]), "max": int(about["high"])}
    else:
        axis = {"min": float(about["low"]), "max": float(about["high"])}
    step = about.get("step", about.get("q"))
    if about.get("log") or kind == "suggest_loguniform":
        whole = kind == "suggest_int"
        axis["distribution"] = "q_log_uniform_values" if whole else "log_uniform_values"
    elif step not in (None, 1):
        axis |= {"distribution": "q_uniform", "q": step}
    draft.parameters[name] = {**axis, **more}


# Ray Tune's spaces are dicts in which some values are drawn.

_RAY_NUMBERS = {
    "uniform": ("lower", "upper"), "quniform": ("lower", "upper", "q"),
    "loguniform": ("lower", "upper"), "qloguniform": ("lower", "upper", "q"),
    "randint": ("lower", "upper"), "qrandint": ("lower", "upper", "q"),
    "lograndint": ("lower", "upper"), "qlograndint": ("lower", "upper", "q"),
    "randn": ("mean", "sd"), "qrandn": ("mean", "sd", "q"),
}  # fmt: skip
_RAY_LISTS = ("choice", "grid_search")


def from_ray(path: Path) -> StudyDraft:
    """A program with a Tuner, or `tune.run`."""
    source, draft = PythonSource(path), StudyDraft()
    spaces = [node for node in ast.walk(source.tree) if isinstance(node, ast.Dict)]
    spaces = [node for node in spaces if any(_is_drawn(one) for one in node.values)]
    inner = {id(one) for node in spaces for one in ast.walk(node) if one is not node}
    for node in spaces:
        if id(node) not in inner:
            _ray_space(source, draft, node, "")
    for name, call in source.calls():
        if name in ("TuneConfig", "RunConfig", "run", "Tuner"):
            _ray_settings(source, draft, given(call))
        elif name == "with_resources":
            draft.note(
                "resources: see `resources` in docs/study-file.md; a device is one GPU or slot"
            )
    kinds = {called(one) for node in spaces for one in node.values}
    draft.data.setdefault("method", "random" if kinds - {"", "grid_search"} else "grid")
    if draft.data["method"] == "grid":
        draft.data.pop("run_cap", None)
    elif "grid_search" in kinds:
        draft.note("grid_search beside what is drawn: its values are drawn, too")
    draft.data["program"] = path.name
    draft.note(
        "the program has to take its hyper-parameters as arguments, and print or log its metrics"
        " where it calls tune.report; or keep the function: hermesctl.search(train, {...})"
    )
    return draft


def _is_drawn(node: ast.expr | None) -> bool:
    name = called(node)
    return name in _RAY_NUMBERS or name in _RAY_LISTS or name == "sample_from"


def _ray_space(source: PythonSource, draft: StudyDraft, node: ast.Dict, prefix: str) -> None:
    for key, one in zip(node.keys, node.values, strict=True):
        name = f"{prefix}{_or_none(source, key)}"
        try:
            if isinstance(one, ast.Dict):
                _ray_space(source, draft, one, f"{name}.")
            elif _is_drawn(one):
                draft.parameters[name] = _ray_axis(source, draft, name, one)  # type: ignore[arg-type]
            elif values := plain_values(draft, name, [source.value(one)]):
                draft.parameters[name] = {"value": values[0]}
        except (_Unknown, KeyError, TypeError):
            draft.note(f"left out: {name} (line {one.lineno}), whose value does not stand there")


def _ray_axis(source: PythonSource, draft: StudyDraft, name: str, call: ast.Call) -> dict[str, Any]:
    """Raises _Unknown, and KeyError or TypeError for what the call is not given so."""
    kind = called(call)
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
        low, high = int(low), int(high) - (0 if more else 1)  # the end is not among them
        if "log" in kind:
            return {"min": low, "max": high, "distribution": "q_log_uniform_values", **more}
        return {"min": low, "max": high, **({"distribution": "q_uniform", **more} if more else {})}
    drawn = "log_uniform_values" if "log" in kind else "uniform"
    axis = {"min": float(low), "max": float(high)}
    if not more and drawn == "uniform":
        return axis
    return {**axis, "distribution": f"q_{drawn}" if more else drawn, **more}


def _ray_settings(source: PythonSource, draft: StudyDraft, about: Mapping[str, ast.expr]) -> None:
    metric, mode = (_or_none(source, about.get(key)) for key in ("metric", "mode"))
    if metric:
        draft.rank_by(metric, mode, "max")
    if "num_samples" in about:
        draft.run_up_to(_or_none(source, about["num_samples"]))
    if searcher := called(source.named(about.get("search_alg"))):
        draft.search_by(searcher)
    if scheduler := called(source.named(about.get("scheduler"))):
        draft.schedule_by(scheduler)
    left = [key for key in ("stop", "time_budget_s", "max_concurrent_trials") if key in about]
    draft.leave_out(dict.fromkeys(left), ())
