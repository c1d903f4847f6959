"""A study with every field other than its default, from its file to what a trial's host is told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from hermesctl.study_file import load
from hermesctl.study_file.schema import build_spec
from hermesd import record, wire
from hermesd.core.commands import Launch
from hermesd.core.events import RunCompleted, Submitted
from hermesd.core.model import Program, Quantum, RunId, RunTerms, Study
from hermesd.core.node.messages import Assignment, Work, assignment
from hermesd.core.state import State
from hermesd.node.storage.trial_folder import TrialFolder
from hermesd.pb.hermes.v1 import node_pb2, types_pb2
from hermesd.study.submission import Submission, draft
from tests.node.conftest import CPU0, Head, Node, blob
from tests.node.test_condas import with_conda as with_conda

TEXT = """
name: whole
description: every field
project: ours
entity: us
program: train.py
command: [python, "${program}", --verbose, "${args}"]
run_cap: 2
seed: 11
metric: {name: gain, goal: maximize, mode: smoothed}
keep: [best.pt]
metrics: {hits: 'hits ([0-9]+)'}
signal: {name: gain, goal: maximize}
parameters:
  lr: {min: 0.25, max: 0.75, distribution: uniform}
  layers: {values: [3]}
  later: {values: [0.125]}
  rate: {sequence: {values: [0.5, later], at: [1]}}
suspend: {tier: checkpoint, durability_seconds: 90, deadline_seconds: 45, replicas: 2}
retry: RETRY
where: [lr < 1]
stop: {max_steps: 100, max_seconds: 1000, target: 0.9, on_nan: false}
pool: ours
priority: 3
data: [DATA]
requires: {paths: [/usr]}
"""
USUAL = """
  max_failures: 5
  on_third_failure: study
  on_same_failure: SAME
  rules: [{match: out of memory, do: not_here}]
  hung_seconds: 120
  stalled: retry
"""
# What excludes another, in one study each.
OTHERS = {
    "conda": """
method: random
share: tree
share_with: [olga]
conda: vision
resources: {device_kind: cpu, memory_bytes: 1024}
schedule: {policy: {name: round_robin, quantum_seconds: 3}, placement: homes}
""",
    "venv": """
resources: {device_kind: cpu, memory_bytes: 1024, devices: {min: 2, max: 3}, processes: ranks}
method: genetic
search: {ahead: 2, startup: 1, population: 4}
warm_start: [before]
objectives: {hits: minimize}
constraints: {cost: {min: 1, max: 9}}
python: /usr/bin/python3
requirements: demo
early_terminate: {type: hyperband, min_iter: 2, max_iter: 9, s: 2, eta: 4, strict: true}
""",
    "population": """
method: random
schedule: {policy: {name: pbt, ready: 50}}
""",
}
PROGRAM = "import os, trainer_shim; trainer_shim.attach().report(1, gain=0.5)"
CODE = blob({"train.py": PROGRAM})
# What a study cannot say, but what happens to it and its trials afterward.
LATER = {
    Study: {"metric_chosen", "signal_chosen", "outside"},
    Work: {"forks"},
    Assignment: {
        "checkpoint", "sources", "result_checkpoint", "kept_parked", "start_allowance_seconds",
        "never_anew",
    },
}  # fmt: skip


def spec_of(data: Path, other: str) -> types_pb2.StudySpec:
    # Which of the two is the default differs between the file and what older journals meant.
    same = {"conda": "go_on", "venv": "study", "population": "study"}[other]
    retry = " {rule: hops}" if other == "population" else USUAL.replace("SAME", same)
    text = TEXT.replace("DATA", data.name).replace(" RETRY", retry) + OTHERS[other]
    document = load.parse(text.encode(), "study.yaml")
    spec, problems, _ = build_spec(document.root)
    assert not problems
    return spec


def replayed(data: Path, other: str) -> tuple[Study, Assignment]:
    """The study and the first launch of a head that has read its journal again."""
    submission = Submission(
        spec_of(data, other),
        hashlib.sha256(CODE).hexdigest(),
        str(data.parent),
        (("LANGUAGE", "de"),),
        (("SHADE", "blue"),),
        program_sha256="ab" * 32,
        code_identity_sha256="cd" * 32,
    )
    study, trials = draft(submission).accepted("whole", "somebody", 5.0)
    submitted = Submitted(replace(study, identity="9f" * 16), trials, "a request")
    again = record.decode(*record.encode(submitted))
    assert again == submitted
    assert isinstance(again, Submitted)
    state = State()
    state.apply(again, 5.0)
    launch = Launch(RunId("whole/1", 1), (CPU0,), Quantum(seconds=9.0), "first in the queue")
    kept = state.studies["whole"]
    assert kept == submitted.study
    order = assignment(launch, kept, state.trials["whole/1"])
    assert order.terms is kept, "nothing of it is copied"
    terms = RunTerms(**{each.name: getattr(kept, each.name) for each in fields(RunTerms)})
    return kept, replace(order, terms=terms)


def unset(message: Message, path: str = "") -> Iterator[str]:
    """The fields of a message that have nothing in them, but for settings and axes."""
    there = {field.name: value for field, value in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        if field.name not in there:
            yield path + field.name
            continue
        value = there[field.name]
        if isinstance(value, Message) and not isinstance(value, types_pb2.Plugin):
            yield from unset(value, f"{path}{field.name}.")


def at_default(value: Any) -> set[str]:
    """The fields of a dataclass that have their default, or nothing in them."""
    later = LATER.get(type(value), set())
    empty = ("", (), None)
    return {
        each.name
        for each in fields(value)
        if (found := getattr(value, each.name)) == each.default or found in empty
    } - later


def test_the_studies_have_every_field_that_there_is(tmp_path: Path) -> None:
    missing = [set(unset(spec_of(tmp_path / "data", other))) for other in OTHERS]
    assert set.intersection(*missing) == set()


def test_every_field_reaches_the_journal_and_the_launch(tmp_path: Path) -> None:
    studies, orders = zip(*(replayed(tmp_path / "data", other) for other in OTHERS), strict=True)
    for found in (studies, orders, [each.work for each in orders], [each.terms for each in orders]):
        assert set.intersection(*map(at_default, found)) == set(), found
    programs: list[Program] = [each.work.program for each in orders]
    assert set.intersection(*map(at_default, programs)) == set(), programs
    for study, order in zip(studies, orders, strict=True):
        assert order.work.program == replace(study.program, argv=order.work.program.argv)
        for name in {each.name for each in fields(Study)} - {"id", "program"}:
            for part in (order, order.work, order.terms):
                if hasattr(part, name):
                    assert getattr(part, name) == getattr(study, name), name
        sent = wire.command_to_proto(order).SerializeToString()
        got = wire.command_from_proto(node_pb2.AttachResponse.FromString(sent), "n1")
        assert got == order


async def test_every_field_reaches_the_trial(
    with_conda: Path, head: Head, node: Node, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    _, order = replayed(data, "conda")
    work: Work = order.work
    head.blobs[work.program.code_sha256] = CODE
    head.send(order)
    await head.hears(RunCompleted, order.run)
    folder = TrialFolder(node.config.state_dir / "trials", tmp_path, "whole/1")
    assert folder.last() == order, "the node's journal has all of it"
    spec = json.loads(folder.spec.read_text())
    assert spec["trial"] == order.run.trial
    assert spec["argv"] == list(work.program.argv)
    assert spec["signal"] == work.signal
    assert spec["metrics"] == dict(work.program.metrics)
    assert spec["seed"] == work.seed
    assert spec["parameters"] == dict(work.parameters)
    assert spec["stages"] == [[1, {"rate": 0.5}, False], [None, {"rate": 0.125}, False]]
    assert spec["hung_seconds"] == order.terms.hung_seconds
    assert (folder.work / "data").resolve() == data, "a link into the submitted directory"
    variables = {**dict(work.program.environment), "CONDA_DEFAULT_ENV": work.program.conda}
    assert variables.items() <= spec["env"].items()
    assert spec["env"]["PATH"].startswith(f"{with_conda}/bin:")
