"""What a change is meant for, and what an extension changes: arguments -> messages.

Rule: whatever is passed, what can't be meant is a UsageError that says what could be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from hermesctl.asking import StudyRef, asked, study_id
from hermesctl.errors import StudyFileError, UsageError
from hermesctl.records import Study, Submission, Trial
from hermesctl.schema import build_extension
from hermesctl.study_file import Table
from hermesctl.text import cut, printable
from hermesctl.trees import tree_of
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1.types_pb2 import NamedValue, Stop

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


def extension(
    targets: tuple[object, ...], stop: object, parameters: object
) -> tuple[list[pb.Selection], Stop | None, list[NamedValue]]:
    """What to extend, the new stop rules if there are any, and new values of parameters.

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
    rules = None if stop is None else _changes("stop", stop, '{"max_steps": 1000}')
    message, values, problems = build_extension(
        tree_of(rules, "stop") if isinstance(rules, Mapping) else rules,
        _tree(given[0]) if given else None,
    )
    if problems:
        raise StudyFileError(problems)
    return chosen, message if stop else None, values


def _tree(parameters: Changes) -> Table:
    return parameters if isinstance(parameters, Table) else tree_of(parameters, "parameters")


def _changes(name: str, value: object, example: str) -> Changes:
    if isinstance(value, Mapping | Table):
        return value
    raise UsageError(f"{name}: {_told(value)}: expected a mapping such as {example}")


def _told(value: object) -> str:
    return cut(printable(repr(value)))
