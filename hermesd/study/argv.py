"""A trial's command line, from its study's command and its hyper-parameters.

The macros are those of a W&B sweep's `command`, each of which is an element of its own. Anything
else is passed on as it is, including `${` inside a longer text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hermesd.core.model import Setting, as_argument
from hermesd.refusal import FieldError, Refused, nearest, one_of
from hermesd.study.space import Point
from hermesd.study.spec import StudySection

DEFAULT = ("${interpreter}", "${program}", "${args}")
MACROS = (
    "${env}",
    "${interpreter}",
    "${program}",
    "${args}",
    "${args_no_boolean_flags}",
    "${args_no_hyphens}",
    "${args_json}",
)
ENVIRONMENT = re.compile(r"\$\{envvar:([^}]*)\}")
# What the kernel takes as one argument, and a good part of what it takes in all.
ARGUMENT_LIMIT = 128 * 1024
COMMAND_LIMIT = 1024 * 1024
# What the command lines of all trials that a request makes may come to.
COMMANDS_LIMIT = 128 * 1024 * 1024
# An element counts as so many bytes more than it has letters.
_ELEMENT_BYTES = 8


def check(
    command: Sequence[str], program: str, environment: Mapping[str, str]
) -> tuple[FieldError, ...]:
    """What is wrong with a command, whatever the hyper-parameters are."""
    errors = []
    for index, element in enumerate(command):
        path = f"command[{index}]"
        if variable := ENVIRONMENT.fullmatch(element):
            if variable[1] not in environment:
                near = nearest(variable[1], environment)
                expected = "a variable of the submitter's environment"
                errors.append(FieldError(path, variable[1], expected, near))
        elif re.fullmatch(r"\$\{[^}]*\}", element) and element not in MACROS:
            errors.append(FieldError(path, element, one_of(MACROS), nearest(element, MACROS)))
    if not program and (not command or "${program}" in command):
        errors.append(FieldError("program", "", "the script to run, or a command without it"))
    if command and command[0] in ("", "${args}", "${args_no_hyphens}", "${args_json}"):
        errors.append(FieldError("command[0]", command[0], "a program to run"))
    return tuple(errors)


def build_all(
    section: StudySection, environment: Mapping[str, str], points: Iterable[Point]
) -> Iterator[tuple[str, ...]]:
    """The command line of each point. Raises Refused if one is too long, or all are."""
    size = 0
    for point in points:
        line = build(section, environment, point)
        size += sum(map(len, line)) + _ELEMENT_BYTES * len(line)
        if size > COMMANDS_LIMIT:
            value = f"more than {COMMANDS_LIMIT >> 20} MiB of all trials"
            expected = "fewer trials, or shorter command lines"
            raise Refused(FieldError("command", value, expected))
        yield line


def build(section: StudySection, environment: Mapping[str, str], point: Point) -> tuple[str, ...]:
    """The command line of one point. Raises Refused if it is longer than a program may get."""
    argv: list[str] = []
    elements = section.command or (DEFAULT if section.program else ())
    for index, element in enumerate(elements):
        match element:
            case "${env}":
                # `env python` finds what `python` names already, and hides it from the node.
                if elements[index + 1 : index + 2] != ("${interpreter}",):
                    argv.append("/usr/bin/env")
            case "${interpreter}":
                argv.append(section.python or "python")
            case "${program}":
                argv.append(section.program)
            case "${args}":
                argv += [f"--{name}={as_argument(value)}" for name, value in point]
            case "${args_no_boolean_flags}":
                argv += [flag for name, value in point for flag in _flag(name, value)]
            case "${args_no_hyphens}":
                argv += [f"{name}={as_argument(value)}" for name, value in point]
            case "${args_json}":
                argv.append(json.dumps(_as_written(point, section.nested)))
            case _:
                variable = ENVIRONMENT.fullmatch(element)
                argv.append(environment[variable[1]] if variable else element)
    _check_size(argv)
    return tuple(argv)


def _flag(name: str, value: Setting) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    return [f"--{name}={as_argument(value)}"]


def _as_written(point: Point, nested: Container[str]) -> dict[str, Any]:
    """The values, those of parameters inside of others in mappings."""
    written: dict[str, Any] = {}
    for name, value in point:
        *path, last = name.split(".") if name in nested else [name]
        inner = written
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return written


def _check_size(argv: Sequence[str]) -> None:
    sizes = [len(element.encode()) + 1 for element in argv]
    if max(sizes, default=0) > ARGUMENT_LIMIT or sum(sizes) > COMMAND_LIMIT:
        value = f"{sum(sizes)} bytes"
        expected = f"at most {COMMAND_LIMIT} bytes, {ARGUMENT_LIMIT} in one argument"
        raise Refused(FieldError("command", value, expected))
