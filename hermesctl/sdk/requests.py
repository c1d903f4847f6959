"""From the arguments of the SDK's calls to requests and paths.

An argument that makes no sense is a UsageError that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from hermesctl.errors import Problem, StudyFileError, UsageError
from hermesctl.sdk.records import Study, Submission, Trial
from hermesctl.study_file.load import Table
from hermesctl.study_file.schema import (
    build_parameters,
    build_spec,
    build_values,
    expectation,
    short_enum_name,
)
from hermesctl.study_file.trees import tree_of, with_value
from hermesctl.text import cut, nearest, printable
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types

StudyRef: TypeAlias = str | Study | Submission
TrialRef: TypeAlias = str | Trial

_LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: " of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: " of 64 bits",
    FieldDescriptor.CPPTYPE_STRING: " in UTF-8",
}

Request = TypeVar("Request", bound=Message)


def study_id(study: object) -> str:
    """The id that a reference to a study stands for. Raises UsageError for what is none."""
    match study:
        case Study(id=name) | Submission(study=name) | (str() as name) if name:
            return name
        case _:
            raise refused("study", study, "a study or its id")


def trial_id(trial: object) -> str:
    """The id that a reference to a trial stands for. Raises UsageError for what is none."""
    match trial:
        case Trial(id=name) | (str() as name) if name:
            return name
        case _:
            raise refused("trial", trial, "a trial or its id")


def path_of(name: str, value: object) -> Path:
    """The path that the argument `name` is. Raises UsageError."""
    try:
        path = Path(value)  # type: ignore[arg-type]
    except TypeError:
        raise refused(name, value, "a path") from None
    if "\0" in str(path):
        raise refused(name, value, "a path without NUL")
    return path


def asked(kind: type[Request], **fields: Any) -> Request:
    """A request with these fields. Raises UsageError for a value that its field can't hold."""
    request = kind()
    for name, value in fields.items():
        try:
            request.MergeFrom(kind(**{name: value}))
        except (TypeError, ValueError):
            # The stubs name the C implementation's descriptor beside the public one.
            field = cast(FieldDescriptor, request.DESCRIPTOR.fields_by_name[name])
            expected = expectation(field) + _LIMITS.get(field.cpp_type, "")
            raise refused(name.removesuffix("_sequence"), value, expected) from None
    return request


def ranking(metric: str, goal: str = "", by: str = "") -> types.Metric:
    """What a leaderboard is to rank by; empty words are left to the head. Raises UsageError."""
    return asked(
        types.Metric,
        name=metric,
        goal=_number("goal", goal, types.Goal.DESCRIPTOR) if goal else None,
        mode=_number("by", by, types.MetricMode.DESCRIPTOR) if by else None,
    )


def _number(name: str, word: object, enum: EnumDescriptor) -> int:
    """The value of an enum that a word of the study file stands for."""
    known = {short_enum_name(enum, each.number): each.number for each in enum.values if each.number}
    if not isinstance(word, str) or word not in known:
        raise refused(name, word, f"one of {', '.join(known)}", nearest(str(word), known))
    return known[word]


def refused(name: str, value: object, expected: str, near: str = "") -> UsageError:
    """The error for the argument `name`, which was expected to be something else."""
    told = value if isinstance(value, str) else repr(value)
    return UsageError(name, [Problem(expected, name, told, near)])


# What a change is meant for, and what an extension changes: arguments -> messages.
#
# Whatever is passed, what can't be meant is a UsageError that says what could be.

Target: TypeAlias = StudyRef | Trial
Changes: TypeAlias = Mapping[str, object] | Table


def selections(targets: tuple[object, ...]) -> list[pb.Selection]:
    """One selection for each study: some of its trials (ids with a slash), or all of it.

    Raises UsageError for what is neither.
    """
    trials: dict[str, list[str]] = {}
    studies: list[str] = []
    for target in targets:
        if not isinstance(target, str | Study | Submission | Trial) or not target:
            raise UsageError(f"{_told(target)}: expected a study, a trial or the id of one")
        name = target.id if isinstance(target, Trial) else study_id(target)
        study, slash, _ = name.rpartition("/")
        if slash:
            trials.setdefault(study, []).append(name)
        else:
            studies.append(name)
    chosen = [asked(pb.Selection, trials=names) for names in trials.values()]
    return chosen + [asked(pb.Selection, study=study) for study in studies]


_LIMIT, _BOUND = '{"max_steps": 1000}', '{"lr": {"max": 0.01}}'


def extension(
    targets: tuple[object, ...],
    parameters: object,
    new: object,
    stop: object,
    run_cap: object,
    axes: object,
) -> list[pb.ExtendStudyRequest]:
    """What asks for an extension, one request a study, without their ids.

    A mapping among `targets` is one of parameters. Raises UsageError, StudyFileError.
    """
    given: list[Changes] = [t for t in targets if isinstance(t, Mapping)]
    if parameters is not None:
        given.append(_changes("parameters", parameters, '{"epochs": 20}'))
    if len(given) > 1:
        raise UsageError("extend: expected one mapping of parameters")
    chosen = selections(tuple(t for t in targets if not isinstance(t, Mapping)))
    if not chosen:
        raise UsageError("extend: expected a study, a trial or the id of one, then what to change")
    file, problems = _part_of_file(stop, run_cap, axes)
    values, wrong = build_values(_tree("parameters", given[0] if given else {}))
    named = {} if new is None else _changes("new", new, '{"epochs": 20}')
    arguments, also_wrong = build_values(_tree("parameters", named))
    if problems := [*problems, *wrong, *also_wrong]:
        raise StudyFileError(problems)
    change = pb.ExtendStudyRequest(
        stop=file.stop if file.HasField("stop") else None,
        run_cap=file.run_cap if file.HasField("run_cap") else None,
        axes=file.parameters,
        parameters=values,
        new_parameters=arguments,
    )
    requests = [pb.ExtendStudyRequest(selection=each) for each in chosen]
    for request in requests:
        request.MergeFrom(change)
    return requests


def _part_of_file(
    stop: object, run_cap: object, axes: object
) -> tuple[types.StudySpec, list[Problem]]:
    """The parts of a study file that say so much, and the problems found."""
    root = tree_of({} if run_cap is None else {"run_cap": run_cap}, "run_cap")
    if stop is not None:
        root = with_value(root, ["stop"], _tree("stop", _changes("stop", stop, _LIMIT)))
    if axes is not None:
        root = with_value(root, ["parameters"], _tree("axes", _changes("axes", axes, _BOUND)))
    spec, problems, _ = build_spec(root)
    return spec, problems


def addition(parameters: object, new: object) -> pb.AddTrialsRequest:
    """What asks for further trials at these axes; the rest is to be filled in.

    Raises UsageError, StudyFileError.
    """
    request = pb.AddTrialsRequest()
    problems: list[Problem] = []
    given = {"parameters": (parameters, request.parameters), "new": (new, request.new_parameters)}
    for name, (value, field) in given.items():
        if value is not None:
            axes, wrong = build_parameters(_tree(name, _changes(name, value, '{"lr": [0.1, 0.2]}')))
            field.extend(axes)
            problems += wrong
    if problems:
        raise StudyFileError(problems)
    return request


def fork(parameters: object, new: object) -> pb.ForkTrialRequest:
    """What asks for a fork with these values; the rest is to be filled in.

    Raises UsageError, StudyFileError.
    """
    request, problems = pb.ForkTrialRequest(), []
    given = {"parameters": (parameters, request.parameters), "new": (new, request.new_parameters)}
    for name, (value, field) in given.items():
        if value is not None:
            values, wrong = build_values(_tree("parameters", _changes(name, value, '{"lr": 0.1}')))
            field.extend(values)
            problems += wrong
    if problems:
        raise StudyFileError(problems)
    return request


def _tree(source: str, changes: Changes) -> Table:
    return changes if isinstance(changes, Table) else tree_of(changes, source)


def _changes(name: str, value: object, example: str) -> Changes:
    if isinstance(value, Mapping | Table):
        return value
    raise UsageError(f"{name}: {_told(value)}: expected a mapping such as {example}")


def _told(value: object) -> str:
    return cut(printable(repr(value)))
