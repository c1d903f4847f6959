"""What trials of a study have in common, for the tree of stages and for people.

Trials compute the same as long as their programs, what these are given, and the values of their
sequences are the same. All of that except the sequences is their root.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from hermesd.core.lengths import is_length
from hermesd.core.model import Setting, Share, Stage, Study, TrialSpec
from hermesd.core.tree import StageTree, path_of, until
from hermesd.refusal import Refused
from hermesd.study import sequences, space
from hermesd.study.spec import StudySection

# To so many values is an axis reduced to see what that would save.
LEVELS = 5
# Of larger studies this is not worked out: it takes as long as to expand them once for each axis.
_TRIALS_LOOKED_AT = 2_000
_WORTH_TELLING = 1.1


def rooted(study: Study, spec: TrialSpec) -> TrialSpec:
    """The trial with the root that it has in a study whose trials share what they can."""
    if study.share is not Share.TREE or study.elastic:
        return spec
    # Where it was submitted matters only to data that are named relative to that.
    there = study.program.submit_directory
    where = "" if all(os.path.isabs(each) for each in study.program.data) else there
    code = study.code_identity_sha256 or study.program.code_sha256
    program = replace(study.program, argv=spec.argv, code_sha256=code, submit_directory=where)
    said_of_it = asdict(replace(program, keep=()))
    # All of them name all of the others, or have nothing in common.
    users = sorted({study.owner, *study.share_with})
    others = (users, study.pool, study.device_kind, study.signal, study.signal_goal)
    # What they come to depends on how many devices they have, and on which process has which.
    places = (study.devices, study.processes) if study.devices > 1 or study.processes else ()
    said = json.dumps([said_of_it, (*others, *places), spec.given, spec.seed], sort_keys=True)
    return replace(spec, root=hashlib.sha256(said.encode()).hexdigest())


class Merged(NamedTuple):
    """What a study's stages come to."""

    trials: int
    distinct: int
    stages: int
    #: Of all its trials; 0 if their length is not known.
    steps: int
    #: What is left of them if each stage is trained once.
    unique: int

    @property
    def times(self) -> float:
        """How many times fewer steps are trained."""
        return self.steps / self.unique if self.unique else 1.0


def merged(specs: Sequence[TrialSpec], lengths: Sequence[int | None]) -> Merged:
    """What trials have in common that differ in nothing but what they are given."""
    tree, paths = StageTree(), set()
    is_known = None not in lengths
    for spec, length in zip(specs, lengths, strict=True):
        path = until(path_of(spec) or (Stage(None, ()),), length)
        paths.add((spec.given, path))
        tree.insert(spec.given, path, spec.id)
    nodes = list(tree.nodes)
    steps = sum(filter(None, lengths)) if is_known else 0
    unique = sum(node.steps for node in nodes) if is_known else 0
    return Merged(len(specs), len(paths), len(nodes), steps, unique)


def notes(section: StudySection, specs: Sequence[TrialSpec]) -> Iterator[str]:
    """What people are told of what the trials have in common."""
    if section.share is Share.TREE and specs and not specs[0].root:
        yield (
            "share: tree saves nothing here: what a trial comes to depends on how many devices it"
            " has, and here that may change (resources.devices is a range)"
        )
        return
    if not section.sequences or not specs:
        if section.share is Share.TREE:
            yield (
                "share: tree saves nothing here: no parameter has a `sequence`, and trials differ"
                " from their first step on"
            )
        return
    if len(specs) < 2:
        return  # there is nobody to have anything in common with
    known = sequences.sequences(section.sequences)
    unit = max(each.steps_per_epoch for each in known.values())
    lengths = [_length(section, spec, unit) for spec in specs]
    found = merged(specs, lengths)
    each = "is trained once" if section.share is Share.TREE else "would be trained once"
    said = f"{found.trials:,} trials, {found.distinct:,} of them distinct, have {found.stages:,}"
    said += f" stages, each of which {each}"
    said += " (share: tree)" if section.share is Share.TREE else " with `share: tree`"
    if found.unique:
        said += f": {found.unique:,} of {found.steps:,} steps, so that one device-hour trains what"
        said += f" takes {found.times:.2f} without sharing"
    else:
        said += "; what that saves depends on their length (a parameter `epochs`, stop.max_steps)"
    yield said
    yield from _advice(section, known, specs, lengths, found)


def _length(section: StudySection, spec: TrialSpec, unit: int) -> int | None:
    """How many steps a trial is to train, as far as its study says."""
    known = [
        value * (unit if "epoch" in name.lower() else 1)
        for name, value in spec.given
        if is_length(name) and isinstance(value, int)
    ]
    limits = [section.stop.max_steps] if section.stop.max_steps is not None else []
    return min(known + limits, default=None)


def _advice(
    section: StudySection,
    known: Mapping[str, sequences.Sequence],
    specs: Sequence[TrialSpec],
    lengths: Sequence[int | None],
    found: Merged,
) -> Iterator[str]:
    """Which axis keeps the trials apart that could be the same for longer, with fewer values."""
    if not found.unique or len(specs) > _TRIALS_LOOKED_AT:
        return
    best, times = "", found.times * _WORTH_TELLING
    for name, axis in space.axes(section.parameters).items():
        if axis.size is not None and axis.size <= LEVELS:
            continue
        try:
            levels = _levels(name, specs)
            coarse = [_coarser(known, spec, levels) for spec in specs]
        except (Refused, TypeError):
            continue
        other = merged(coarse, lengths).times
        if other > times:
            best, times = name, other
    if best:
        yield (
            f"with {LEVELS} `values` for {best}, or a `q`, they would have more in common: about"
            f" {times:.1f} times fewer steps"
        )


def _levels(name: str, specs: Sequence[TrialSpec]) -> Mapping[str, Mapping[Setting, Setting]]:
    """For each value of an axis the middle one of its fifth of all of them. Raises TypeError for
    values without an order."""
    values = sorted({dict(spec.parameters)[name] for spec in specs})
    size = -(-len(values) // LEVELS)
    parts = [values[begin : begin + size] for begin in range(0, len(values), size)]
    return {name: {value: part[len(part) // 2] for part in parts for value in part}}


def _coarser(
    known: Mapping[str, sequences.Sequence],
    spec: TrialSpec,
    levels: Mapping[str, Mapping[Setting, Setting]],
) -> TrialSpec:
    """The trial at the point of those values instead. Raises Refused."""
    point = tuple(
        (name, levels[name][value] if name in levels else value)
        for name, value in spec.parameters
        if name not in known
    )
    return replace(spec, stages=sequences.stages(known, point))
