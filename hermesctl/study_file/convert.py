"""Other tools' search files as the data of a study file, and what could not be carried over.

Nothing in a file is executed. What is not understood is named, never guessed. Values that other
tools write as text (`min: "0.01"`) are read as numbers.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from hermesctl.errors import Place, Problem, UsageError
from hermesctl.study_file.convert_policies import policy_of, word_of
from hermesctl.study_file.regular_files import open_regular
from hermesctl.text import cut, printable

_BYTES_MAX = 1 << 20
# What a file may come to where each alias is written out.
_WRITTEN_OUT_MAX = 2 * _BYTES_MAX
_LEVELS_MAX = 100
_DIGITS_MAX = 100
# So many values in equal steps are written out.
_STEPS_MAX = 1_000
# So many values an axis may have.
VALUES_MAX = 10_000
# e to a power beyond is no floating-point number.
_EXPONENT_MAX = 700
_RUN_CAP = 20
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
# By their names elsewhere.
_METHODS = {
    "grid": "grid", "random": "random", "bruteforce": "grid", "batch": "grid", "single": "grid",
    "tpe": "tpe", "multivariatetpe": "tpe", "motpe": "tpe", "bayes": "tpe",
    "hyperopt": "tpe", "optuna": "tpe",
    "bohb": "tpe", "anneal": "random_walk", "hillclimb": "random_walk",
    "gp": "gp", "bayesianoptimization": "gp", "bayesopt": "gp", "metis": "gp", "smac": "tpe",
    "cmaes": "cmaes", "nsgaii": "nsgaii", "evolution": "genetic", "sobol": "qmc", "qmc": "qmc",
    "hyperband": "random", "asha": "random", "asynchalving": "random", "adaptiveasha": "random",
}  # fmt: skip
_NONE: Mapping[str, object] = {}
_NO_POLICY = frozenset({"fifo", "nop", ""})
# Here that is no method and no rule that stops trials, and needs to know how long a round is.
_POPULATIONS = frozenset({"pbt", "populationbasedtraining", "pbtuner"})
_GOALS = {"min": "minimize", "max": "maximize", "minimize": "minimize", "maximize": "maximize"}


@dataclass
class StudyDraft:
    """The data of a study file so far, and what people have to know of it."""

    #: What it is made from.
    file: Path
    data: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def parameters(self) -> dict[str, Any]:
        """The space so far."""
        found: dict[str, Any] = self.data.setdefault("parameters", {})
        return found

    def note(self, words: str) -> None:
        """Say something, once."""
        if words not in self.notes:
            self.notes.append(words)

    def refusal(self, where: str, value: object, expected: str) -> UsageError:
        """That a field of the file has a value that can't be meant."""
        place = Place(str(self.file))
        return UsageError("", [Problem(expected, where, cut(str(value)), place=place)])

    def bound(self, where: str, value: object, is_whole: bool = False) -> Any:
        """A number that a parameter can't be without. Raises UsageError."""
        found = number(value)
        if found is None or (is_whole and abs(found) >= 2**63):
            kind = "a whole number of 64 bits" if is_whole else "a finite number"
            raise self.refusal(where, value, kind)
        return int(found) if is_whole else float(found)

    def leave_out(self, keys: Mapping[str, Any], known: Sequence[str], where: str = "") -> None:
        """Name the keys that nothing is made of."""
        left = [f"{where}{key}" for key in keys if key not in known]
        if left:
            self.note(f"left out: {', '.join(map(printable, left))}")

    def rank_by(self, name: object, goal: object, default: str = "") -> None:
        """What the trials are ranked by."""
        found = self._goal(goal or default)
        if name:
            self.data["metric"] = {"name": str(name), **({"goal": found} if found else {})}

    def rank_by_values(self, goals: Sequence[object]) -> None:
        """The same where values without a name are returned, one for each of these goals."""
        self.rank_by("value", goals[0] if goals else None, "minimize")
        others = {f"value_{at}": self._goal(goal) for at, goal in enumerate(goals) if at}
        if further := {name: goal for name, goal in others.items() if goal}:
            self.data["objectives"] = further
            self.note(f"the program has to print {', '.join(further)} beside value")

    def _goal(self, goal: object) -> str:
        found = _GOALS.get(str(goal).lower(), "")
        if goal and not found:
            self.note(f"left out: the goal {printable(str(goal))}, which is not understood")
        return found

    def search_by(self, name: object, tool: str = "", given: Mapping[str, object] = _NONE) -> None:
        """How points are chosen, by its name elsewhere and the settings that the file gives it."""
        word = word_of(name)
        method = _METHODS.get(word)
        self.data["method"] = method or "random"
        if word in _POPULATIONS:
            self.schedule_by(name, tool, given)
            return
        if method is None:
            self.note(f"{printable(str(name))}: no similar method is known; random is used instead")
        elif method not in (word, "grid", "random"):
            self.note(f"{printable(str(name))} became the method {method}")
        if policy_of(name, tool, {})[0]:
            self.schedule_by(name, tool, given)
        else:
            self.leave_out(given, (), f"{name}.")

    def schedule_by(
        self, name: object, tool: str = "", given: Mapping[str, object] = _NONE
    ) -> None:
        """Who deserves the devices, by the name of what stops trials early elsewhere, and by the
        settings that the file gives it."""
        policy, taken = policy_of(name, tool, {key: number(one) for key, one in given.items()})
        word = word_of(name)
        if policy:
            self.data["schedule"] = {"policy": policy if len(policy) > 1 else policy["name"]}
            self.note(
                f"{printable(str(name))} became the policy {policy['name']}: it ends no trial"
            )
            if "min_rung" in policy:
                self.note(
                    f"the first rung is at {policy['min_rung']} of what a trial's program trains"
                    " for: let that be as much as a trial may train for there"
                )
            self.leave_out(given, taken, f"{name}.")
        elif word in _POPULATIONS:
            self.note(
                f"left out: {printable(str(name))}; the policy `pbt` needs `ready`, the steps of a"
                " round (docs/policies.md)"
            )
        elif word not in _NO_POLICY:
            self.note(f"left out: {printable(str(name))}, as no similar policy is known")

    def run_up_to(self, count: object) -> None:
        """How many trials there are."""
        found = number(count)
        if isinstance(found, int) and found > 0:
            self.data["run_cap"] = found

    def call(self, command: object) -> None:
        """The command line of a program that takes its hyper-parameters as arguments."""
        words = shlex.split(command) if isinstance(command, str) else [str(one) for one in command]  # type: ignore[attr-defined]
        if any(word in ("&&", "||", ";", "|", ">") for word in words):
            self.note(f"no shell runs the command: fix {printable(' '.join(words))}")
        if not any("${args" in word for word in words):
            words.append("${args}")
        self.data["command"] = words


def number(value: object) -> int | float | None:
    """The number that a value is, or is the text of: a whole one of 64 bits, or a finite one."""
    if isinstance(value, str) and len(value) <= _DIGITS_MAX and _NUMBER.fullmatch(value.strip()):
        text = value.strip()
        value = int(text) if text.lstrip("+-").isdigit() else float(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    fits = abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)
    return value if fits else None


def stepped(
    draft: StudyDraft, name: str, low: int | float, high: int | float, step: int | float
) -> dict[str, Any]:
    """The axis of `low` and what lies whole steps above it up to `high`, each as likely as the
    others; empty, with a note, if there is none. A `q` counts from 0, and not from `low`."""
    first, last, by = (Fraction(repr(one)) for one in (low, high, step))
    is_whole = all(isinstance(one, int) for one in (low, step))
    if by <= 0 or last < first:
        raise draft.refusal(name, f"{low} to {high} by {step}", "a step above 0, and low <= high")
    count = (last - first) // by + 1
    if count <= _STEPS_MAX:
        make = int if is_whole else float
        return {"values": [make(first + at * by) for at in range(count)]}
    if is_whole and step == 1:
        return {"min": low, "max": int(high)}
    if first % by == 0:
        return {"min": low, "max": high, "distribution": "q_uniform", "q": step}
    draft.note(
        f"left out: {name}, as no distribution has its {count:,} values from {low} by {step}"
    )
    return {}


def read(path: Path) -> str:
    """The text of a file. Raises UsageError."""
    try:
        with open_regular(path) as stream:
            text = stream.read(_BYTES_MAX + 1).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{printable(str(path))}: not readable: {error.strerror}") from None
    except UnicodeDecodeError:
        expected = "expected text: a script or a YAML file, not a database or an archive"
        raise UsageError(f"{printable(str(path))}: {expected}") from None
    if len(text) > _BYTES_MAX:
        raise UsageError(f"{printable(str(path))}: expected a file of at most 1 MiB")
    return text


def finished(draft: StudyDraft) -> StudyDraft:
    """The draft with what every study file has to have."""
    data = draft.data
    data.setdefault("method", "random")
    if "program" not in data and "command" not in data:
        data["program"] = "train.py"
        draft.note("program: the file doesn't name it; give the script that takes --name=value")
    # Of a method that proposes trials the head knows how many there are by default.
    if data["method"] == "random" and "run_cap" not in data:
        data["run_cap"] = _RUN_CAP
        draft.note(f"run_cap: the file doesn't say how many trials; {_RUN_CAP} in its place")
    if not draft.parameters:
        raise UsageError(
            f"{printable(str(draft.file))}: no hyper-parameters were found in it; is --from right?"
        )
    order = ("name", "description", "program", "command", "method", "run_cap", "metric")
    first = {key: data[key] for key in order if key in data}
    draft.data = {**first, **{key: value for key, value in data.items() if key not in first}}
    return draft


def mapping_in(path: Path, is_it: Callable[[Mapping[str, Any]], object], expected: str) -> Any:
    """The first mapping of a YAML file that `is_it`. Raises UsageError."""
    for document in _documents(path):
        if isinstance(document, Mapping) and is_it(document):
            return document
    raise UsageError(f"{printable(str(path))}: expected {expected}")


def _documents(path: Path) -> list[Any]:
    """The documents of a YAML file. Raises UsageError."""
    loader, found = yaml.SafeLoader(read(path)), []
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            _see_that_it_ends(path, node)
            found.append(loader.construct_document(node))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        words = str(error).splitlines()[0]
        raise UsageError(f"{printable(str(path))}: not YAML: {printable(words)}") from None
    finally:
        loader.dispose()
    return found


def _see_that_it_ends(path: Path, document: yaml.Node) -> None:
    """See that aliases make nothing endless or huge, before it is made. Raises UsageError."""
    waiting, count = [("", 0, document)], 0
    while waiting:
        where, level, node = waiting.pop()
        count += 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        expected, value = "", "an alias"
        if node.tag.endswith((":int", ":float")) and len(node.value) > _DIGITS_MAX:
            expected, value = f"a number of at most {_DIGITS_MAX} digits", str(node.value)[:200]
        elif level > _LEVELS_MAX:
            expected = f"at most {_LEVELS_MAX} levels, and no alias inside of what it stands for"
        elif count > _WRITTEN_OUT_MAX:
            expected = "at most 2 MiB where each alias is written out"
        if expected:
            place = Place(str(path), node.start_mark.line + 1)
            raise UsageError("", [Problem(expected, cut(where.lstrip(".")), value, place=place)])
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                below = f"{where}.{key.value}" if isinstance(key, yaml.ScalarNode) else where
                waiting += [(where, level + 1, key), (below[:200], level + 1, value)]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(where, level + 1, each) for each in node.value]


def plain_values(draft: StudyDraft, name: str, values: Sequence[Any]) -> list[Any]:
    """Those of the values that a study file can hold."""
    found = []
    for value in values:
        is_list = isinstance(value, (list, tuple))
        items = value if is_list else [value]
        if all(isinstance(one, (str, int, float, bool)) for one in items):
            found.append(list(items) if is_list else _read_number(value))
        else:
            shown = "null" if value is None else printable(str(value))[:60]
            draft.note(f"{name}: the value {shown} was left out")
    return found


def _read_number(value: Any) -> Any:
    found = number(value) if isinstance(value, str) and re.search(r"[.eE]", value) else None
    return value if found is None else found


# A sweep file of Weights & Biases is nearly a study file.

_OF_STUDY = (
    "name", "description", "program", "command", "method", "metric", "parameters", "run_cap",
    "early_terminate", "project", "entity",
)  # fmt: skip


def from_wandb(path: Path) -> StudyDraft:
    """A sweep file."""
    expected = "a sweep file with `parameters`"
    return of_wandb(path, mapping_in(path, is_sweep, expected))


def is_sweep(one: Mapping[str, Any]) -> bool:
    """Whether a mapping may be a sweep."""
    return "parameters" in one or "method" in one


def of_wandb(path: Path, sweep: Mapping[str, Any]) -> StudyDraft:
    """The sweep that a file has."""
    draft = StudyDraft(path, {key: sweep[key] for key in _OF_STUDY if key in sweep})
    draft.leave_out(sweep, _OF_STUDY)
    draft.search_by(sweep.get("method", "random"))
    if isinstance(metric := sweep.get("metric"), Mapping):
        draft.rank_by(metric.get("name"), metric.get("goal"))
        draft.leave_out(metric, ("name", "goal"), "metric.")
    if isinstance(command := sweep.get("command"), list):
        draft.data["command"] = [str(word) for word in command]
    draft.data["parameters"] = _wandb_space(draft, sweep.get("parameters") or {}, "")
    return draft


def _wandb_space(draft: StudyDraft, space: Mapping[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, given in space.items():
        axis = dict(given) if isinstance(given, Mapping) else {"value": given}
        where = f"{path}{name}"
        if isinstance(inner := axis.get("parameters"), Mapping):
            found[str(name)] = {"parameters": _wandb_space(draft, inner, f"{where}.")}
            continue
        if "values" in axis:
            axis["values"] = plain_values(draft, where, list(axis["values"] or ()))
        if "value" in axis and not plain_values(draft, where, [axis["value"]]):
            continue
        found[str(name)] = {
            key: value if key == "values" else _read_number(value) for key, value in axis.items()
        }
    return found


# Katib's Experiments are resources of Kubernetes: numbers are text there, and the program is a
# container's command.

_KATIB_FIELDS = (
    "objective", "algorithm", "parameters", "trialTemplate", "maxTrialCount",
    "parallelTrialCount", "maxFailedTrialCount", "earlyStopping",
)  # fmt: skip
_REFERENCE = re.compile(r"(?:--?(?P<flag>[\w.-]+)[= ])?\$\{trialParameters\.(?P<name>[\w.-]+)\}")


def from_katib(path: Path) -> StudyDraft:
    """An Experiment of Kubeflow's."""
    whole = mapping_in(path, lambda one: one.get("kind") == "Experiment", "`kind: Experiment`")
    spec, draft = whole.get("spec") or {}, StudyDraft(path)
    if name := (whole.get("metadata") or {}).get("name"):
        draft.data["name"] = name
    objective = spec.get("objective") or {}
    draft.rank_by(objective.get("objectiveMetricName"), objective.get("type"))
    if (goal := number(objective.get("goal"))) is not None:
        draft.data["stop"] = {"target": goal}
        draft.note("objective.goal ends each trial that reaches it, and not the whole study")
    algorithm = spec.get("algorithm") or {}
    draft.search_by(algorithm.get("algorithmName", "random"), "katib", _katib_settings(algorithm))
    if stopping := spec.get("earlyStopping"):
        draft.schedule_by(stopping.get("algorithmName"), "katib", _katib_settings(stopping))
    draft.run_up_to(spec.get("maxTrialCount"))
    for parameter in spec.get("parameters") or ():
        _katib_parameter(draft, parameter)
    draft.leave_out(spec, _KATIB_FIELDS)
    if "parallelTrialCount" in spec or "maxFailedTrialCount" in spec:
        draft.note(
            "parallelTrialCount, maxFailedTrialCount: each device takes a trial, all the time"
        )
    _katib_command(draft, spec.get("trialTemplate") or {})
    return draft


def _katib_settings(algorithm: Mapping[str, Any]) -> dict[str, object]:
    settings = algorithm.get("algorithmSettings") or ()
    return {str(one.get("name")): one.get("value") for one in settings if isinstance(one, Mapping)}


def _katib_parameter(draft: StudyDraft, parameter: Mapping[str, Any]) -> None:
    space, name = parameter.get("feasibleSpace") or {}, str(parameter.get("name"))
    if "list" in space:
        is_text = parameter.get("parameterType") == "categorical"
        listed = [str(one) for one in space["list"]]
        numbers = [one if (found := number(one)) is None else found for one in listed]
        draft.parameters[name] = {"values": listed if is_text else numbers}
        return
    is_whole = parameter.get("parameterType") == "int"
    low, high = (
        draft.bound(f"{name}.feasibleSpace.{key}", space.get(key), is_whole)
        for key in ("min", "max")
    )
    axis: dict[str, Any] = {"min": low, "max": high}
    step, drawn = space.get("step"), word_of(space.get("distribution"))
    if drawn == "loguniform":
        axis["distribution"] = "q_log_uniform_values" if is_whole else "log_uniform_values"
    elif drawn not in ("", "uniform"):
        draft.note(f"{name}: {space['distribution']} became uniform")
    elif step is not None and not (is_whole and number(step) == 1):
        by = draft.bound(f"{name}.feasibleSpace.step", step, is_whole)
        axis = stepped(draft, name, low, high, by)
    if axis:
        draft.parameters[name] = axis


def _katib_command(draft: StudyDraft, template: Mapping[str, Any]) -> None:
    references = {
        str(one.get("name")): str(one.get("reference"))
        for one in template.get("trialParameters") or ()
    }
    container = next(_containers(template.get("trialSpec") or {}), None)
    if container is None:
        draft.note("program: no container's command was found in trialTemplate")
        return
    if image := container.get("image"):
        draft.note(
            f"left out: the image {printable(str(image))}; trials run in `python` or `conda`"
        )
    words, names = [], {}
    given = [*map(str, container.get("command") or ()), *map(str, container.get("args") or ())]
    for at, word in enumerate(given):
        match = _REFERENCE.fullmatch(word)
        if match is None:
            words.append(word)
            continue
        flag = match["flag"]
        if flag is None and words and words[-1].startswith("-"):
            flag = words.pop().lstrip("-")  # `--lr`, `${...}`
        if flag is None:
            draft.note(f"command: word {at + 1} is a hyper-parameter without a name: {word}")
            continue
        names[references.get(match["name"], match["name"])] = flag
    known = draft.parameters
    draft.data["parameters"] = {names.get(name, name): axis for name, axis in known.items()}
    if any(old != new for old, new in names.items()):
        draft.note("hyper-parameters have the names of the program's arguments")
    if words:
        draft.call(words)


def _containers(node: Any) -> Iterator[Mapping[str, Any]]:
    """Those with a command, wherever they are in a job."""
    if isinstance(node, Mapping):
        if isinstance(found := node.get("containers"), list):
            yield from (one for one in found if one.get("command") or one.get("args"))
        for each in node.values():
            yield from _containers(each)
    elif isinstance(node, list):
        for each in node:
            yield from _containers(each)


# NNI's experiments are of two versions, with the space in a file of its own or not.

_NNI_FIELDS = (
    "experimentName", "searchSpace", "searchSpaceFile", "searchSpacePath", "trialCommand", "trial",
    "maxTrialNumber", "maxTrialNum", "tuner", "assessor", "advisor", "trialConcurrency",
    "trialCodeDirectory", "authorName", "useAnnotation", "trainingServicePlatform",
)  # fmt: skip


def from_nni(path: Path) -> StudyDraft:
    """An experiment's configuration, of version 1 or 2."""
    keys = ("searchSpace", "searchSpaceFile", "searchSpacePath", "trialCommand", "trial")
    found = mapping_in(path, lambda one: any(key in one for key in keys), "an NNI experiment")
    return of_nni(path, found)


def of_nni(path: Path, whole: Mapping[str, Any]) -> StudyDraft:
    """The experiment that a file has, as in its configuration."""
    draft, trial = StudyDraft(path), whole.get("trial") or {}
    if name := whole.get("experimentName"):
        draft.data["name"] = str(name)
    tuner = whole.get("tuner") or whole.get("advisor") or {}
    names = ("name", "builtinTunerName", "builtinAdvisorName", "className")
    settings = dict(tuner.get("classArgs") or {})
    mode = settings.pop("optimize_mode", None)
    tuner_name = next((tuner[name] for name in names if tuner.get(name)), "random")
    draft.search_by(tuner_name, "nni", settings)
    draft.rank_by("default", mode, "maximize")
    draft.note("metric: NNI's has no name; the program has to print or log default=VALUE")
    draft.note("the program has to take arguments, where it asks for nni.get_next_parameter()")
    if assessor := whole.get("assessor"):
        its = {k: v for k, v in (assessor.get("classArgs") or {}).items() if k != "optimize_mode"}
        draft.schedule_by(assessor.get("name") or assessor.get("builtinAssessorName"), "nni", its)
    draft.run_up_to(whole.get("maxTrialNumber", whole.get("maxTrialNum")))
    parts = (trial, *(trial.get(key) or {} for key in ("worker", "master", "ps")))
    commands = (part.get("command") for part in parts)
    if command := whole.get("trialCommand") or next(filter(None, commands), None):
        draft.call(str(command))
    draft.leave_out(trial, ("command", "codeDir"), "trial.")
    if (place := whole.get("trialCodeDirectory") or trial.get("codeDir")) not in (None, "."):
        draft.note(f"put the study file into {printable(str(place))}, where the program is")
    draft.leave_out(whole, _NNI_FIELDS)
    _nni_space(draft, _nni_space_of(whole, path), "", {})
    return draft


def _nni_space_of(whole: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    if isinstance(space := whole.get("searchSpace"), Mapping):
        return space
    name = whole.get("searchSpaceFile") or whole.get("searchSpacePath")
    if name is None:
        raise UsageError(f"{printable(str(path))}: expected a searchSpace, or a searchSpaceFile")
    file = path.parent / str(name)
    found: Mapping[str, Any] = mapping_in(file, lambda one: True, "a search space in JSON")
    return found  # JSON is YAML, too


def _nni_space(
    draft: StudyDraft, space: Mapping[str, Any], prefix: str, when: Mapping[str, Any]
) -> None:
    drawn = {
        "uniform": {}, "quniform": {"distribution": "q_uniform"},
        "loguniform": {"distribution": "log_uniform_values"},
        "qloguniform": {"distribution": "q_log_uniform_values"},
    }  # fmt: skip
    for key, given in space.items():
        name = f"{prefix}{key}"
        if not isinstance(given, Mapping) or "_type" not in given:
            draft.note(f"left out: {name}, as it has no `_type`")
            continue
        kind, values = given["_type"], list(given.get("_value") or ())
        more = {"when": dict(when)} if when else {}
        if kind == "choice" and any(isinstance(v, Mapping) and "_name" not in v for v in values):
            draft.note(f"left out: {name}, whose values are several hyper-parameters at once")
        elif kind == "choice":
            named = [one.get("_name", "") if isinstance(one, Mapping) else one for one in values]
            draft.parameters[name] = {"values": plain_values(draft, name, named), **more}
            for one in values:
                if isinstance(one, Mapping):
                    inner = {k: v for k, v in one.items() if k != "_name"}
                    _nni_space(draft, inner, f"{name}.", {**when, name: one.get("_name", "")})
        elif kind == "randint":
            low, end = (draft.bound(name, one, is_whole=True) for one in values[:2])
            draft.parameters[name] = {"min": low, "max": end - 1, **more}
        elif kind in drawn:
            low, high = (draft.bound(name, one) for one in values[:2])
            axis = {"min": low, "max": high, **drawn[kind]}
            draft.parameters[name] = {**axis, **({"q": values[2]} if values[2:] else {}), **more}
        elif kind in ("normal", "qnormal", "lognormal", "qlognormal"):
            word = kind.replace("log", "log_").replace("q", "q_", 1)
            axis = {"distribution": word, "mu": values[0], "sigma": values[1]}
            draft.parameters[name] = {**axis, **({"q": values[2]} if values[2:] else {}), **more}
        else:
            draft.note(f"left out: {name}, of the type {printable(str(kind))}")


# Determined's experiments have hyper-parameters that are nested, and name a class or a command.

_DETERMINED_FIELDS = (
    "name", "description", "hyperparameters", "searcher", "entrypoint", "resources", "max_restarts",
    "project", "workspace",
)  # fmt: skip
_DETERMINED_TYPES = frozenset({"int", "double", "log", "categorical", "const"})


def _length(given: Any) -> Any:
    """The number of a length with its unit, `{batches: 100}`; all else as it is."""
    return next(iter(given.values())) if isinstance(given, Mapping) and len(given) == 1 else given


def from_determined(path: Path) -> StudyDraft:
    """An experiment's configuration."""
    whole = mapping_in(
        path, lambda one: "hyperparameters" in one or "searcher" in one, "`hyperparameters`"
    )
    draft, searcher = StudyDraft(path), whole.get("searcher") or {}
    for key in ("name", "description"):
        if whole.get(key):
            draft.data[key] = str(whole[key])
    known = ("name", "metric", "smaller_is_better", "max_trials")
    settings = {key: _length(one) for key, one in searcher.items() if key not in known}
    draft.search_by(searcher.get("name", "random"), "determined", settings)
    lower = searcher.get("smaller_is_better", True)
    draft.rank_by(searcher.get("metric"), "minimize" if lower else "maximize")
    draft.run_up_to(searcher.get("max_trials", 1 if searcher.get("name") == "single" else None))
    if any(key in searcher for key in ("max_length", "max_time")):
        draft.note("how long a trial trains is up to the program, or stop.max_steps")
    is_grid = draft.data["method"] == "grid"
    _determined_space(draft, whole.get("hyperparameters") or {}, "", is_grid)
    if (slots := number((whole.get("resources") or {}).get("slots_per_trial"))) and slots > 1:
        draft.data["resources"] = {"devices": int(slots)}
        draft.note(
            f"resources.slots_per_trial became {slots} devices of one node for each trial, with a"
            " process on each (docs/several-devices.md)"
        )
    if (restarts := number(whole.get("max_restarts"))) is not None:
        draft.data["retry"] = {"max_failures": int(restarts) + 1}
    _determined_command(draft, whole.get("entrypoint"))
    draft.leave_out(whole, _DETERMINED_FIELDS)
    return draft


_LAUNCHERS = "determined.launch."


def _determined_command(draft: StudyDraft, entry: Any) -> None:
    words = (shlex.split(entry) if isinstance(entry, str) else entry) or []
    launcher = next((word for word in words if str(word).startswith(_LAUNCHERS)), None)
    if launcher is not None:  # what follows it is what each process runs
        words = words[words.index(launcher) + 1 :]
        if "--" in words:  # its own options come before that
            words = words[words.index("--") + 1 :]
        words = words[1:] if words[:1] == ["--trial"] else words
        draft.note(f"left out: {launcher}; a process for each device is started as torchrun does")
    if not words:  # nor is there anything behind the launcher
        return
    if len(words) == 1 and ":" in words[0]:
        module = words[0].partition(":")[0]
        draft.data["program"] = f"{module.replace('.', '/')}.py"
        draft.note(f"{words[0]} is a class for Determined: make {module} a script that trains it")
    else:
        draft.call(words)
    draft.note("the program has to take its hyper-parameters as arguments")


def _determined_space(
    draft: StudyDraft, space: Mapping[str, Any], prefix: str, is_grid: bool
) -> None:
    for key, given in space.items():
        name = f"{prefix}{key}"
        if isinstance(given, Mapping) and given.get("type") not in _DETERMINED_TYPES:
            _determined_space(draft, given, f"{name}.", is_grid)
        elif isinstance(given, Mapping) and given["type"] not in ("const", "categorical"):
            draft.parameters[name] = _determined_range(draft, name, given, is_grid)
        else:
            is_const = not isinstance(given, Mapping) or given["type"] == "const"
            value = given.get("val") if isinstance(given, Mapping) else given
            values = plain_values(draft, name, [value] if is_const else given.get("vals") or ())
            if values:
                draft.parameters[name] = {"value": values[0]} if is_const else {"values": values}


def _determined_range(
    draft: StudyDraft, name: str, given: Mapping[str, Any], is_grid: bool
) -> dict[str, Any]:
    kind, is_whole = given["type"], given["type"] == "int"
    low, high = (
        draft.bound(f"{name}.{key}", given.get(key), is_whole) for key in ("minval", "maxval")
    )
    base = draft.bound(f"{name}.base", given.get("base", 10))
    if kind == "log" and base <= 0:
        raise draft.refusal(f"{name}.base", given["base"], "a number above 0")
    for key, exponent in (("minval", low), ("maxval", high)) if kind == "log" else ():
        if abs(exponent * math.log(base)) > _EXPONENT_MAX:
            expected = "an exponent of the base, of a number that floating point can hold"
            raise draft.refusal(f"{name}.{key}", given[key], expected)
    if is_grid and given.get("count") is not None:
        points = draft.bound(f"{name}.count", given["count"], is_whole=True)
        if not 1 <= points <= VALUES_MAX:
            raise draft.refusal(f"{name}.count", given["count"], f"from 1 to {VALUES_MAX:,}")
        steps = [low + (high - low) * at / max(1, points - 1) for at in range(points)]
        if kind == "log":
            return {"values": [base**step for step in steps]}
        return {"values": list(dict.fromkeys(map(round, steps))) if is_whole else steps}
    if kind == "log":
        return {"min": base**low, "max": base**high, "distribution": "log_uniform_values"}
    return {"min": low, "max": high}


# Hydra's sweepers have languages of their own.

_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
# How the sweepers choose points, by a word in their names, unless they are told.
_HYDRA_SWEEPERS = {"optuna": "tpe", "ax": "gp", "nevergrad": "random"}
_NAMED_ARGUMENT = re.compile(r"\b(start|stop|step)\s*=\s*")


def from_hydra(path: Path) -> StudyDraft:
    """A configuration with `hydra.sweeper`."""
    whole = mapping_in(path, lambda one: "hydra" in one, "a configuration with `hydra: sweeper:`")
    hydra = whole.get("hydra") or {}
    sweeper, draft = hydra.get("sweeper") or {}, StudyDraft(path, {"method": "grid"})
    sampler = sweeper.get("sampler") or {}
    chosen = sampler.get("_target_") or _hydra_default(whole, "hydra/sweeper/sampler")
    kind = str(sweeper.get("_target_") or _hydra_default(whole, "hydra/sweeper")).lower()
    by_default = next((method for word, method in _HYDRA_SWEEPERS.items() if word in kind), "")
    if chosen or by_default:
        draft.search_by(str(chosen).rpartition(".")[2] if chosen else by_default)
    taken = ["_target_"]
    if isinstance(seed := sampler.get("seed"), int) and seed >= 0:
        draft.data["seed"] = seed
        taken.append("seed")
    draft.leave_out(sampler, taken, "hydra.sweeper.sampler.")
    of_ax, optim = sweeper.get("ax_config") or {}, sweeper.get("optim") or {}
    draft.run_up_to(sweeper.get("n_trials", of_ax.get("max_trials", optim.get("budget"))))
    direction = sweeper.get("direction")
    if "minimize" in (experiment := of_ax.get("experiment") or {}):
        direction = "minimize" if experiment["minimize"] else "maximize"
    elif "maximize" in optim:
        direction = "maximize" if optim["maximize"] else "minimize"
    if direction:
        draft.rank_by_values([direction] if isinstance(direction, str) else [*direction])
        draft.note("metric: Hydra's has no name; the program has to print or log value=VALUE")
    draft.leave_out(of_ax, ("params", "max_trials", "experiment"), "hydra.sweeper.ax_config.")
    draft.leave_out(optim, ("budget", "maximize"), "hydra.sweeper.optim.")
    for space in (sweeper.get("params"), sweeper.get("search_space"), of_ax.get("params")):
        for name, axis in (space or {}).items():
            make = _hydra_mapping if isinstance(axis, Mapping) else _hydra_axis
            make(draft, str(name), axis)
    known = (
        "params", "search_space", "ax_config", "sampler", "n_trials", "direction", "_target_",
        "n_jobs", "optim",
    )  # fmt: skip
    draft.leave_out(sweeper, known, "hydra.sweeper.")
    draft.leave_out(hydra, ("sweeper", "mode"), "hydra.")
    if any("values" not in axis and "value" not in axis for axis in draft.parameters.values()):
        draft.data["method"] = draft.data["method"].replace("grid", "random")
    draft.data["command"] = ["${interpreter}", "${program}", "${args_no_hyphens}"]
    draft.data["program"] = "train.py"
    draft.note("program: Hydra's files don't name it; give the script with @hydra.main")
    return draft


def _hydra_axis(draft: StudyDraft, name: str, text: Any) -> None:
    if not isinstance(text, str):
        draft.parameters[name] = {"value": text}
        return
    axis: dict[str, Any]
    log, match = False, _CALL.fullmatch(text.strip())
    if match and match[1] == "tag":
        tags, _, inner = match[2].rpartition(",") if "(" not in match[2] else _before_call(match[2])
        log, match = "log" in tags, _CALL.fullmatch(inner.strip())
        draft.leave_out({tag.strip(): 0 for tag in tags.split(",")}, ("log", ""), f"{name}: tag ")
    is_whole = match is not None and match[1] == "int"
    while match and match[1] in ("int", "shuffle") and (inner := _CALL.fullmatch(match[2].strip())):
        match = inner
    words = _split(_NAMED_ARGUMENT.sub("", match[2])) if match else []
    given = [number(one) if number(one) is not None else one for one in words]
    numbers = [one for one in given if isinstance(one, (int, float))]
    if match is None:
        values = [_hydra_value(one) for one in _split(text)]
        draft.parameters[name] = {"values": values} if len(values) > 1 else {"value": values[0]}
    elif match[1] == "choice":
        draft.parameters[name] = {"values": [_hydra_value(one) for one in _split(match[2])]}
    elif match[1] == "interval" and len(numbers) == 2:
        make, drawn = (int, "q_log_uniform_values") if is_whole else (float, "log_uniform_values")
        axis = {"min": make(numbers[0]), "max": make(numbers[1])}
        draft.parameters[name] = {**axis, **({"distribution": drawn} if log else {})}
    elif match[1] == "range" and 1 <= len(numbers) <= 3 and len(numbers) == len(given):
        low, end, step = [*([0] if len(numbers) == 1 else []), *numbers, 1][:3]
        if axis := _hydra_range(draft, name, text, low, end, step):
            draft.parameters[name] = axis
    else:
        draft.note(f"left out: {name}, as {printable(text)} is not understood")


def _hydra_range(
    draft: StudyDraft, name: str, text: str, low: int | float, end: int | float, step: int | float
) -> dict[str, Any]:
    """From `low` to before `end`; empty, with a note, if no axis is that."""
    first, by = Fraction(repr(low)), Fraction(repr(step))
    count = math.ceil((Fraction(repr(end)) - first) / by) if by else 0
    if count < 1:
        raise draft.refusal(name, text, "a range of at least one value, whose step is not 0")
    last = first + (count - 1) * by
    is_whole = isinstance(low, int) and isinstance(step, int)
    found = int(last) if is_whole else float(last)
    return stepped(draft, name, *((low, found, step) if by > 0 else (found, low, -step)))


def _before_call(text: str) -> tuple[str, str, str]:
    at = text.rindex(",", 0, text.index("(")) if "," in text[: text.index("(")] else -1
    return (text[: max(at, 0)], ",", text[at + 1 :])


def _split(text: str) -> list[str]:
    """What commas divide, outside of brackets and quotation marks."""
    return [part.strip() for part in re.findall(r"(?:\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[^,\[])+", text)]


def _hydra_value(text: str) -> Any:
    if (found := number(text)) is not None:
        return found
    if text.startswith("[") and text.endswith("]"):
        return [_hydra_value(one) for one in _split(text[1:-1])]
    return {"true": True, "false": False}.get(text.lower(), text.strip("'\""))


def _hydra_mapping(draft: StudyDraft, name: str, axis: Mapping[str, Any]) -> None:
    """As the sweepers by Optuna (of old), Ax and Nevergrad are given an axis."""
    listed = axis.get("choices", axis.get("values"))
    low, high = axis.get("low", axis.get("lower")), axis.get("high", axis.get("upper"))
    low, high = axis.get("bounds") or (low, high)
    if listed is not None:
        draft.parameters[name] = {"values": plain_values(draft, name, listed)}
    elif "value" in axis:
        draft.parameters[name] = {"value": axis["value"]}
    elif low is not None and high is not None:
        is_whole = axis.get("type") == "int" or bool(axis.get("integer"))
        least, most = (draft.bound(name, one, is_whole) for one in (low, high))
        found: dict[str, Any] = {"min": least, "max": most}
        step = axis.get("step")
        if axis.get("log") or axis.get("log_scale"):
            found["distribution"] = "q_log_uniform_values" if is_whole else "log_uniform_values"
        elif step is not None and axis.get("type") not in ("int", "float"):
            draft.note(f"left out: {name}.step")
        elif step is not None and not (is_whole and number(step) == 1):
            by = draft.bound(f"{name}.step", step, is_whole)
            found = stepped(draft, name, least, most, by)
        if found:
            draft.parameters[name] = found
    else:
        draft.note(f"left out: {name}, as it has neither bounds nor values")


def _hydra_default(whole: Mapping[str, Any], group: str) -> str:
    """What the defaults list chooses for a group; empty if nothing."""
    for one in whole.get("defaults") or ():
        for key, value in one.items() if isinstance(one, Mapping) else ():
            if str(key).split(" ")[-1].lstrip("/") == group:
                return str(value)
    return ""
