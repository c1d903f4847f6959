"""A StudySpec as typed, checked sections: the proto says what may be there, this file what makes
sense.

`read` turns the message into plain Python, and that into models. Every error is reported with its
path in the study file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Literal, Self, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hermesd.config.values import UserName
from hermesd.core.model import (
    HUNG_SECONDS,
    FailureRule,
    Goal,
    MetricMode,
    OnSameFailure,
    OnStall,
    OnThirdFailure,
    Processes,
    RetryAction,
    Setting,
    Share,
    Tier,
)
from hermesd.pb.hermes.v1 import types_pb2 as pb
from hermesd.refusal import FieldError, Refused, from_pydantic, shown
from hermesd.study.conditions import CONDITIONS_LIMIT

AXES_LIMIT = 1_000
# What `re` itself parses with; there is no public name for it since Python 3.11.
_PARSER: Any = import_module("re._parser")
# Repetitions up to this many times of a part of a pattern cost little whatever they repeat.
_FEW = 8
REPLICAS_LIMIT = 3
DEVICES_LIMIT = 64
# For so long a trial that hangs may keep its device from the others.
DEADLINE_LIMIT_SECONDS = 86_400
REQUIREMENTS_LIMIT = 64 * 1024
SPEC_LIMIT_BYTES = 1024 * 1024


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("text without control characters")
    return text


def _path(text: str) -> str:
    _printable(text)
    if not text or ".." in text.split("/"):
        raise ValueError("a path below the working directory, or an absolute one, without `..`")
    return text


def _below(pattern: str) -> str:
    parts = pattern.removeprefix("./").removesuffix("/").split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        raise ValueError("a path or pattern below the working directory, such as plots/*.png")
    return _printable(pattern)


def _program(text: str) -> str:
    if text and text.rpartition("/")[2] in ("", "."):
        raise ValueError("a file, not a directory")
    return _path(text) if text else text


def _conda(name: str) -> str:
    if any(character in "/:#" or character.isspace() for character in name):
        raise ValueError("the name of an environment, as in the first column of `conda env list`")
    return _printable(name)


def _pattern(text: str) -> str:
    expected = "a regular expression with a group for the value, such as `acc: (?P<value>[0-9.]+)`"
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise ValueError(f"{expected} ({error})") from None
    if not groups:
        raise ValueError(expected)
    if _may_explode(_PARSER.parse(text)):
        raise ValueError(
            "a regular expression without nested repetitions or repeated alternatives, such as"
            " `(a+)+` or `(a|b)*`: on some lines they take forever, and the program waits"
        )
    return text


def _may_explode(part: Any, is_repeated: bool = False) -> bool:
    """Whether a parsed expression repeats, without a bound, what itself repeats or branches: the
    time that it takes may then double with each character of a line."""
    for kind, argument in part:
        repeats = str(kind) in ("MAX_REPEAT", "MIN_REPEAT") and argument[1] > _FEW
        if is_repeated and (repeats or str(kind) == "BRANCH"):
            return True
        values = argument if isinstance(argument, tuple | list) else (argument,)
        nested = [each for value in values for each in (value if type(value) is list else [value])]
        if any(
            _may_explode(each, is_repeated or repeats)
            for each in nested
            if isinstance(each, _PARSER.SubPattern)
        ):
            return True
    return False


def _axis(name: str) -> str:
    if not name or name[0] == "-" or "=" in name or any(c.isspace() for c in name):
        raise ValueError("a name without spaces and `=` that does not begin with a hyphen")
    return _printable(name)


Text = Annotated[str, Field(max_length=2000), AfterValidator(_printable)]
Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_printable)]
Path = Annotated[str, Field(max_length=4096), AfterValidator(_path)]
KeptPattern = Annotated[str, Field(max_length=4096), AfterValidator(_below)]
AxisName = Annotated[str, Field(max_length=128), AfterValidator(_axis)]
Pattern = Annotated[str, Field(max_length=1000), AfterValidator(_pattern)]
Seconds = Annotated[float, Field(ge=1, le=10**9)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


Part = TypeVar("Part", bound="Section")


class Section(BaseModel):
    """A part of the study file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SignalSection(Section):
    """What is read, and which way is better: a way without a name would be taken for another's."""

    name: Name = "loss"
    goal: Goal = Goal.MINIMIZE

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if self.model_fields_set and "name" not in self.model_fields_set:
            raise ValueError(f"a `name` beside {' and '.join(sorted(self.model_fields_set))}")
        return self


class MetricSection(SignalSection):
    """What the leaderboard ranks."""

    mode: MetricMode = MetricMode.LAST


class ObjectiveSection(Section):
    goal: Goal = Goal.MINIMIZE


class ConstraintSection(Section):
    """Between which values a metric is to be."""

    min: Finite | None = None
    max: Finite | None = None

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("a `min`, a `max`, or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min <= max, not {self.min:g} and {self.max:g}")
        return self


class PluginSection(Section):
    """A plug-in; a policy's settings may stand in its name (`hermesd.config.policy_line`)."""

    name: Annotated[Text, Field(min_length=1)]
    settings: dict[str, Setting] = Field(default_factory=dict)


class SearchSection(Section):
    """How trials are proposed; see `study.searchers`."""

    ahead: Annotated[int, Field(ge=0, le=1000)] = 1
    startup: Annotated[int, Field(ge=1, le=100_000)] | None = None
    population: Annotated[int, Field(ge=2, le=1000)] | None = None
    asked: bool = False


class ScheduleSection(Section):
    policy: PluginSection | None = None
    placement: PluginSection | None = None


class ResourcesSection(Section):
    device_kind: Text = ""
    memory_bytes: Annotated[int, Field(ge=0)] = 0
    devices: Annotated[int, Field(ge=1, le=DEVICES_LIMIT)] = 1
    max_devices: Annotated[int, Field(ge=1, le=DEVICES_LIMIT)] | None = None
    processes: Processes | None = None

    @field_validator("max_devices")
    @classmethod
    def _is_no_less(cls, most: int | None, info: ValidationInfo) -> int | None:
        if most is not None and most < (least := info.data.get("devices", 1)):
            raise ValueError(f"at least as many as the {least} that it needs")
        return most


def _absolute(text: str) -> str:
    if not text.startswith("/") or (text != "/" and text.endswith("/")):
        raise ValueError("an absolute path, without a slash at its end")
    return _path(text)


RequiredPath = Annotated[str, Field(max_length=4096), AfterValidator(_absolute)]


class RequiresSection(Section):
    paths: Annotated[tuple[RequiredPath, ...], Field(max_length=100)] = ()


class SuspendSection(Section):
    tier: Tier | None = None
    durability_seconds: Seconds = 60.0
    deadline_seconds: Annotated[float, Field(ge=1, le=DEADLINE_LIMIT_SECONDS)] = 60.0
    replicas: Annotated[int, Field(ge=0, le=REPLICAS_LIMIT)] = 1


def _says_something(match: str) -> str:
    if not match.replace("*", "").strip():
        raise ValueError("some text of the error; asterisks alone match every error")
    return match


class RetryRuleSection(Section):
    match: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_says_something)]
    do: RetryAction


class RetrySection(Section):
    max_failures: Annotated[int, Field(ge=1, le=100)] = 3
    on_third_failure: OnThirdFailure = OnThirdFailure.TRIAL
    on_same_failure: OnSameFailure = OnSameFailure.STUDY
    rules: Annotated[tuple[RetryRuleSection, ...], Field(max_length=100)] = ()
    hung_seconds: Annotated[Seconds, Field(ge=60)] = HUNG_SECONDS
    stalled: OnStall = OnStall.TELL
    rule: FailureRule = FailureRule.EVIDENCE

    @field_validator("rule")
    @classmethod
    def _says_all(cls, rule: FailureRule, info: ValidationInfo) -> FailureRule:
        usual = cls.model_fields
        others = [
            name
            for name in ("max_failures", "on_third_failure", "on_same_failure", "rules")
            if name in info.data and info.data[name] != usual[name].default
        ]
        if rule is FailureRule.HOPS and others:
            raise ValueError(f"evidence beside {', '.join(others)}: hops looks at numbers alone")
        return rule

    @field_validator("rules")
    @classmethod
    def _each_once(cls, rules: tuple[RetryRuleSection, ...]) -> tuple[RetryRuleSection, ...]:
        seen = [rule.match.lower() for rule in rules]
        if twice := next((match for match in seen if seen.count(match) > 1), None):
            raise ValueError(f"each match once, not {twice!r} twice: the first counts")
        return rules


class StopSection(Section):
    max_steps: Count | None = None
    max_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    target: Finite | None = None
    on_nan: bool = True


class EarlyTerminateSection(Section):
    """W&B's hyperband; see `study.asha_of`."""

    type: Literal["hyperband"]
    min_iter: Count | None = None
    max_iter: Count | None = None
    s: Annotated[int, Field(ge=1, le=20)] | None = None
    eta: Annotated[float, Field(ge=2, le=100, multiple_of=1)] = 3
    strict: bool = False


class StudySection(Section):
    """The whole study file but for the meaning of its parameters, which `space` knows."""

    name: Annotated[Text, Field(max_length=200)] = ""
    description: Annotated[str, Field(max_length=20_000)] = ""
    project: Text = ""
    entity: Text = ""
    program: Annotated[str, Field(max_length=4096), AfterValidator(_program)] = ""
    command: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    method: Literal[
        "grid", "random", "tpe", "gp", "cmaes", "nsgaii", "qmc", "genetic", "random_walk"
    ] = "grid"
    search: SearchSection = SearchSection()
    warm_start: Annotated[tuple[Text, ...], Field(max_length=20)] = ()
    signal: SignalSection = SignalSection()
    metric: MetricSection = MetricSection()
    metrics: Annotated[dict[Name, Pattern], Field(max_length=100)] = Field(default_factory=dict)
    parameters: Annotated[dict[AxisName, dict[str, Any]], Field(max_length=AXES_LIMIT)] = Field(
        default_factory=dict
    )
    # Those of the parameters that change while a trial trains; what is in them, `sequences` knows.
    sequences: Annotated[dict[AxisName, dict[str, Any]], Field(max_length=AXES_LIMIT)] = Field(
        default_factory=dict
    )
    objectives: Annotated[dict[Name, ObjectiveSection], Field(max_length=7)] = Field(
        default_factory=dict
    )
    constraints: Annotated[dict[Name, ConstraintSection], Field(max_length=20)] = Field(
        default_factory=dict
    )
    # Conditions on parameters, which `conditions` reads.
    where: Annotated[tuple[Text, ...], Field(max_length=CONDITIONS_LIMIT)] = ()
    run_cap: Count | None = None
    early_terminate: EarlyTerminateSection | None = None
    schedule: ScheduleSection = ScheduleSection()
    resources: ResourcesSection = ResourcesSection()
    suspend: SuspendSection = SuspendSection()
    retry: RetrySection = RetrySection()
    stop: StopSection = StopSection()
    data: Annotated[tuple[Path, ...], Field(max_length=1000)] = ()
    keep: Annotated[tuple[KeptPattern, ...], Field(max_length=100)] = ()
    python: Text = ""
    seed: Annotated[int, Field(ge=0)] = 0
    pool: Text = ""
    # Among the studies of one user.
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    requires: RequiresSection = RequiresSection()
    # Those of the parameters that are written inside of others, by their names with dots.
    nested: frozenset[str] = frozenset()
    requirements: Annotated[str, Field(max_length=REQUIREMENTS_LIMIT)] = ""
    conda: Annotated[str, Field(max_length=200), AfterValidator(_conda)] = ""
    share: Share = Share.NO
    share_with: Annotated[tuple[UserName, ...], Field(max_length=100)] = ()

    @field_validator("share_with")
    @classmethod
    def _shares(cls, users: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if users and info.data.get("share") is not Share.TREE:
            raise ValueError("`share: tree` beside it, or none")
        return users

    @field_validator("metric")
    @classmethod
    def _is_signal_if_smoothed(cls, metric: MetricSection, info: ValidationInfo) -> MetricSection:
        signal = info.data.get("signal")
        if metric.mode is MetricMode.SMOOTHED and signal and metric.name != signal.name:
            raise ValueError(f"the mode last or best: only the signal ({signal.name}) is smoothed")
        return metric

    @field_validator("objectives")
    @classmethod
    def _are_further_ones(
        cls, objectives: dict[str, ObjectiveSection], info: ValidationInfo
    ) -> dict[str, ObjectiveSection]:
        metric = info.data.get("metric")
        if objectives and metric is not None and "name" not in metric.model_fields_set:
            raise ValueError("a `metric` by name, and here the objectives beside it")
        if metric is not None and metric.name in objectives:
            raise ValueError(f"objectives beside {metric.name}, which is the metric already")
        return objectives

    @field_validator("conda")
    @classmethod
    def _says_all(cls, conda: str, info: ValidationInfo) -> str:
        for other in ("python", "requirements"):
            if conda and info.data.get(other):
                raise ValueError(f"no `{other}` beside it: the trials run in that environment")
        return conda


def read(spec: pb.StudySpec) -> StudySection:
    """The checked sections of a spec. Raises Refused."""
    if spec.ByteSize() > SPEC_LIMIT_BYTES:
        value = f"{spec.ByteSize()} bytes"
        raise Refused(FieldError("study", value, f"at most {SPEC_LIMIT_BYTES} bytes"))
    values = plain(spec)
    if errors := tuple(_with_nul(values, "")):
        raise Refused(*errors)
    axes = leaves(spec)
    given = {name: _without_name(axis) for name, axis in axes.items()}
    values["parameters"] = {name: each for name, each in given.items() if "sequence" not in each}
    values["sequences"] = dict(_sequences(given))
    values["nested"] = axes.keys() - {axis.name for axis in spec.parameters}
    return _checked(StudySection, values)


def _sequences(given: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Those of the parameters that have one. Raises Refused for other settings beside it."""
    for name, settings in given.items():
        if others := ", ".join(sorted(settings.keys() - {"sequence"})):
            if "sequence" in settings:
                expected = "`sequence` alone, or the settings of an axis without it"
                raise Refused(FieldError(f"parameters.{name}", others, expected))
        elif "sequence" in settings:
            yield name, settings["sequence"]


def leaves(spec: pb.StudySpec) -> dict[str, pb.Parameter]:
    """The axes of a spec, those inside of others by names with dots. Raises Refused."""
    found: dict[str, pb.Parameter] = {}
    errors = []
    for name, axis in _leaves(spec.parameters, ""):
        settings = [field.name for field, _ in axis.ListFields() if field.name != "name"]
        if axis.parameters:
            expected = "`parameters` alone, or the settings of one axis without it"
            errors.append(FieldError(f"parameters.{name}", ", ".join(settings), expected))
        elif name in found:
            errors.append(FieldError(f"parameters.{name}", "given twice", "each name once"))
        found[name] = axis
    if errors:
        raise Refused(*errors)
    return found


def _leaves(axes: Iterable[pb.Parameter], prefix: str) -> Iterator[tuple[str, pb.Parameter]]:
    """Each axis, and what has settings of its own beside those inside of it."""
    for axis in axes:
        inner = {field.name for field, _ in axis.ListFields()} - {"name"} == {"parameters"}
        if not inner:
            yield f"{prefix}{axis.name}", axis
        yield from _leaves(axis.parameters, f"{prefix}{axis.name}.")


def _with_nul(value: object, path: str) -> Iterator[FieldError]:
    """Each text that holds a NUL: no argument, path or variable of a program can."""
    match value:
        case str() if "\0" in value:
            yield FieldError(path, shown(value), "text without NUL")
        case dict():
            for key, inner in value.items():
                below = f"{path}.{key}" if path else key
                if "\0" in key:
                    yield FieldError(shown(below), shown(key), "a name without NUL")
                yield from _with_nul(inner, below)
        case list():
            for index, inner in enumerate(value):
                yield from _with_nul(inner, f"{path}[{index}]")
        case _:
            pass


def parameters_of(spec: pb.StudySpec) -> dict[str, dict[str, object]]:
    """The axes of a spec as they are, whatever is wrong with the rest. Raises Refused."""
    given = {name: _without_name(axis) for name, axis in leaves(spec).items()}
    return {name: each for name, each in given.items() if "sequence" not in each}


def read_stop(stop: pb.Stop) -> StopSection:
    """The checked stop rule. Raises Refused."""
    return _checked(StopSection, plain(stop), "stop.")


def _checked(section: type[Part], values: Mapping[str, object], prefix: str = "") -> Part:
    try:
        return section.model_validate(values)
    except ValidationError as invalid:
        errors: dict[str, FieldError] = {}
        for e in from_pydantic(invalid):
            path = prefix + e.field_path.removesuffix(".[key]")
            errors.setdefault(path, FieldError(path, e.value, e.expected, e.nearest))
        raise Refused(*errors.values()) from None


def plain(message: Message) -> dict[str, object]:
    """What is set in a message, in Python's own types and the study file's words.

    Enums become their short names, values what they hold, repeated messages with a name a
    mapping from the name to the rest. Raises Refused for a name that is there twice.
    """
    return {field.name: _field(field, value) for field, value in message.ListFields()}


def _field(field: FieldDescriptor, value: Any) -> object:
    if field.is_repeated:
        if field.message_type is not None and "name" in field.message_type.fields_by_name:
            return _by_name(field.name, value)
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: FieldDescriptor, value: Any) -> object:
    if isinstance(value, pb.Value):
        return scalar_or_list(value)
    if isinstance(value, Message):
        return plain(value)
    if field.enum_type is not None:
        prefix = field.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
        known = field.enum_type.values_by_number.get(value)
        return known.name.removeprefix(prefix).lower() if known else str(value)
    return value


def _by_name(path: str, items: Iterable[Any]) -> dict[str, object]:
    found: dict[str, object] = {}
    for item in items:
        if item.name in found:
            raise Refused(FieldError(f"{path}.{item.name}", "given twice", "each name once"))
        if isinstance(item, pb.NamedValue):
            found[item.name] = scalar_or_list(item.value)
        elif isinstance(item, pb.MetricPattern):
            found[item.name] = item.pattern
        else:
            found[item.name] = _without_name(item)
    return found


def _without_name(item: Message) -> dict[str, object]:
    return {key: value for key, value in plain(item).items() if key != "name"}


def scalar_or_list(value: pb.Value) -> object:
    """What a Value holds; None if it holds nothing."""
    match value.WhichOneof("kind"):
        case None:
            return None
        case "list_value":
            return [scalar_or_list(item) for item in value.list_value.values]
        case kind:
            held: object = getattr(value, kind)
            return held
