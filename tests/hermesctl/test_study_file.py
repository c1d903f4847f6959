"""The study file: what is read as what, everything that is refused, and the way back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermesctl.errors import Problem, StudyFileError
from hermesctl.study_file.load import Scalar, parse, parse_value, place_of, read
from hermesctl.study_file.schema import build_spec, range_path
from hermesctl.study_file.write import study_text
from hermesd.pb.hermes.v1 import types_pb2 as pb


def spec_of(text: str) -> pb.StudySpec:
    document = parse(text.encode(), "study.yaml")
    spec, problems, _ = build_spec(document.root)
    assert not [*document.problems, *problems], [*document.problems, *problems]
    return spec


def problems_of(text: str | bytes) -> list[Problem]:
    data = text.encode() if isinstance(text, str) else text
    try:
        document = parse(data, "study.yaml")
    except StudyFileError as error:
        return list(error.problems)
    return [*document.problems, *build_spec(document.root)[1]]


# What a file means.


def test_tags_of_yaml_itself_say_what_a_value_is() -> None:
    spec = spec_of(
        "program: !!str train.py\nrun_cap: !!int '3'\ndata: !!seq [a]\n"
        "parameters: !!map {lr: {values: [!!float 1, !!float '1e-3', !!str 2, !!bool true]}}"
    )
    values = [getattr(v, v.WhichOneof("kind")) for v in spec.parameters[0].values]
    assert values == [1.0, 0.001, "2", True]
    assert [type(value) for value in values] == [float, float, str, bool]
    assert (spec.program, spec.run_cap, list(spec.data)) == ("train.py", 3, ["a"])


WANDB = """\
program: train.py
name: sweepdemo
project: first_steps
entity: geoff
method: random
metric:
  goal: minimize
  name: validation_loss
  target: 0.1
parameters:
  learning_rate:
    min: 0.0001
    max: 0.1
    distribution: log_uniform_values
  batch_size:
    values: [16, 32, 64]
  optimizer:
    value: adam
  epochs: {distribution: int_uniform, min: 1, max: 20}
  dropout: {values: [0.3, 0.5], probabilities: [0.9, 0.1]}
early_terminate:
  type: hyperband
  min_iter: 3
  eta: 2
run_cap: 100
command:
  - ${env}
  - ${interpreter}
  - ${program}
  - ${args}
"""


def test_a_wandb_sweep_file_is_read_unchanged() -> None:
    document = parse(WANDB.encode(), "sweep.yaml")
    spec, problems, notes = build_spec(document.root)
    assert not document.problems
    assert not problems
    assert notes == ["metric.target was ignored: use stop.target to end a trial at a value"]
    assert spec.method == pb.SEARCH_METHOD_RANDOM
    assert spec.metric == pb.Metric(name="validation_loss", goal=pb.GOAL_MINIMIZE)
    assert [p.name for p in spec.parameters] == [
        "learning_rate",
        "batch_size",
        "optimizer",
        "epochs",
        "dropout",
    ]
    assert spec.parameters[0].min == pb.Value(double_value=0.0001)
    assert spec.parameters[0].distribution == pb.DISTRIBUTION_LOG_UNIFORM_VALUES
    assert spec.parameters[2].value == pb.Value(string_value="adam")
    assert spec.early_terminate == pb.EarlyTerminate(type="hyperband", min_iter=3, eta=2.0)
    assert list(spec.command) == ["${env}", "${interpreter}", "${program}", "${args}"]
    assert spec.run_cap == 100


def test_a_search_by_bayes_is_one_by_tpe() -> None:
    spec = spec_of(WANDB.replace("method: random", "method: bayes"))
    assert spec.method == pb.SEARCH_METHOD_TPE


def test_no_copies_are_asked_for_by_a_zero() -> None:
    suspend = spec_of("program: train.py\nsuspend: {replicas: 0}\n").suspend
    assert suspend.HasField("replicas")
    assert suspend.replicas == 0


def test_the_short_forms() -> None:
    spec = spec_of(
        """\
program: train.py
command: python train.py --name 'a b' --n 3
metric: loss
signal: val_loss
schedule:
  policy: {name: hermes, quantum_seconds: 90s, milestones: [25, 50]}
  placement: free
resources: {memory_bytes: 8GiB}
suspend: {tier: checkpoint, deadline_seconds: 1.5, replicas: 2}
stop: {max_seconds: 10m, on_nan: false}
"""
    )
    assert list(spec.command) == ["python", "train.py", "--name", "a b", "--n", "3"]
    assert spec.metric == pb.Metric(name="loss")
    assert spec.signal == pb.Signal(name="val_loss")
    assert spec.schedule.placement == pb.Plugin(name="free")
    quantum, milestones = spec.schedule.policy.settings
    assert (quantum.name, quantum.value) == ("quantum_seconds", pb.Value(double_value=90.0))
    assert [v.int_value for v in milestones.value.list_value.values] == [25, 50]
    assert spec.resources.memory_bytes == 8 << 30
    assert (spec.suspend.tier, spec.suspend.replicas) == (pb.TIER_CHECKPOINT, 2)
    assert spec.stop.max_seconds == 600
    assert spec.stop.HasField("on_nan")
    assert not spec.stop.on_nan


def test_arguments_are_text_as_written() -> None:
    assert list(spec_of("command: [python, train.py, --lr, 1e-3, -n, 010]").command) == [
        *("python", "train.py", "--lr", "1e-3", "-n", "010")
    ]


def test_crlf_and_a_byte_order_mark_are_fine() -> None:
    assert spec_of("\ufeffprogram: a.py\r\nrun_cap: 3\r\n").run_cap == 3


# What is refused.

REFUSED = {
    "empty": ("", "", "a study (the file is empty)", ""),
    "only comments": ("# nothing\n", "", "a study (the file is empty)", ""),
    "no mapping": ("- a\n", "", "a mapping with keys", ""),
    "unknown key": ("metirc: loss", "metirc", "one of the keys", "metric"),
    "settings of nobody": (
        "schedule: {policy: {eta: 2}}",
        "schedule.policy.name",
        "a name beside the settings, such as {name: asha, eta: 2}",
        "",
    ),
    "a key too high": ("policy: asha", "policy", "one of the keys", "schedule.policy"),
    "a setting too high": (
        "schedule: {policy: asha, quantum: 5}",
        "schedule.quantum",
        "go beside its name: policy: {name: hermes, quantum_seconds: 10}",
        "",
    ),
    "duplicate key": (
        "run_cap: 1\nrun_cap: 2",
        "run_cap",
        "each key once (it is on line 1",
        "",
    ),
    "anchor": ("name: &a x", "name", "no anchors", ""),
    "alias": ("name: *a", "name", "no aliases", ""),
    "merge key": ("stop: {<<: {max_steps: 1}}", "stop.<<", "one of the keys", ""),
    "tag": ("name: !!python/object:os.system x", "name", "no tags", ""),
    "tag of its own": ("name: !mine x", "name", "no tags but !!float, !!int, !!bool,", ""),
    "float tag": ("stop: {target: !!float x}", "stop.target", "a number after !!float", ""),
    "int tag": ("run_cap: !!int 1.5", "run_cap", "a whole number after !!int", ""),
    "bool tag": ("stop: {on_nan: !!bool 1}", "stop.on_nan", "true or false after !!bool", ""),
    "two documents": ("name: a\n---\nname: b", "", "a single document", ""),
    "syntax": ("a: b: c", "", "valid YAML", ""),
    "colon": ("a: b=5:", "", "or has one before a space, needs quotes", ""),
    "tab": ("a:\n\t- b", "", "valid YAML (a tab: indent with spaces)", ""),
    "list as key": ("? [a]\n: b", "", "a plain word as key", ""),
    "impossible escape": ('name: "\\UFFFFFFFF"', "", "valid YAML", ""),
    "half a surrogate": ('name: "\\ud800"', "name", "characters", ""),
    "huge directive": (f"%YAML 1.{'9' * 6000}\n---\na: b", "", "valid YAML", ""),
    "control character": ("name: \x1b[31m", "", "printable characters", ""),
    "infinity": ("stop: {target: .inf}", "stop.target", "a finite number", ""),
    "null": ("name:", "name", "text (leave the key out", ""),
    "number as text": ("name: 12", "name", "text, in quotes", '"12"'),
    "word as number": ("run_cap: ten", "run_cap", "a whole number", ""),
    "float as integer": ("run_cap: 1e1", "run_cap", "a whole number", "10"),
    "underscores": ("run_cap: 1_000", "run_cap", "a whole number", "1000"),
    "leading zero": ("run_cap: 010", "run_cap", "a whole number", "10"),
    "beyond 32 bits": ("run_cap: 2147483648", "run_cap", "a whole number from -2147483648", ""),
    "beyond 64 bits": ("seed: 9223372036854775808", "seed", "fits in 64 bits", ""),
    "yes": ("stop: {on_nan: yes}", "stop.on_nan", "true or false", "true"),
    "truth as number": ("run_cap: true", "run_cap", "a whole number", ""),
    "bad duration": ("stop: {max_seconds: 10 min}", "stop.max_seconds", "a duration", ""),
    "bad size": ("resources: {memory_bytes: 8 gigs}", "resources.memory_bytes", "a size", ""),
    "enum": ("method: gird", "method", "one of grid, random", "grid"),
    "enum in capitals": ("method: GRID", "method", "one of grid, random", "grid"),
    "unspecified enum": ("method: unspecified", "method", "one of grid, random", ""),
    "unknown distribution": (
        "parameters: {a: {distribution: log_unifrom}}",
        "parameters.a.distribution",
        "one of constant",
        "log_uniform",
    ),
    "word as bound": ("parameters: {a: {min: low}}", "parameters.a.min", "a number", ""),
    "bare parameter": ("parameters: {a: 1}", "parameters.a", "a mapping such as", ""),
    "parameter list": ("parameters: [a]", "parameters", "a mapping from names", ""),
    "named parameter": (
        "parameters: {a: {name: b}}",
        "parameters.a.name",
        "one of the keys",
        "",
    ),
    "null value": (
        "parameters: {a: {values: [null]}}",
        "parameters.a.values[0]",
        "text, a",
        "",
    ),
    "mapping value": ("parameters: {a: {value: {x: 1}}}", "parameters.a.value", "text, a", ""),
    "distribution of another tool": (
        "parameters: {a: {distribution: loguniform, min: 0.1, max: 1.0}}",
        "parameters.a.distribution",
        "one of constant",
        "log_uniform_values",
    ),
    "scalar for list": ("data: files", "data", "a list", "[files]"),
    "list for scalar": ("name: [a]", "name", "text", ""),
    "list for metric": ("metric: [a]", "metric", "a name, or a mapping", ""),
    "scalar for mapping": ("stop: 3", "stop", "a mapping with the keys max_steps", ""),
    "open quote in a command": ("command: python 'x", "command", "a command line", ""),
    "null setting": (
        "schedule: {policy: {name: fifo, x: null}}",
        "schedule.policy.x",
        "text, a number",
        "",
    ),
}


@pytest.mark.parametrize(("text", "path", "expected", "near"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, path: str, expected: str, near: str) -> None:
    problems = problems_of(text)
    assert len(problems) == 1, problems
    (problem,) = problems
    assert problem.field_path == path
    assert expected in problem.expected
    assert problem.nearest == near
    assert problem.place is not None
    assert problem.place.source == "study.yaml"


@pytest.mark.parametrize(
    ("data", "expected", "place"),
    [
        (b"name: a\nx: \xff", "text in UTF-8", "study.yaml:2:4"),
        ("name: a".encode("utf-16"), "NUL", "study.yaml:1:4"),
        (b"a: b\nc: \0", "text without NUL bytes", "study.yaml:2:4"),
        (b"#" * ((1 << 20) + 1), "at most 1 MiB", "study.yaml"),
        (b"[" * 65, "at most 64 levels", "study.yaml:1:65"),
        (b"{a: " * 65, "at most 64 levels", "study.yaml:1:257"),
    ],
)
def test_bytes_that_are_refused(data: bytes, expected: str, place: str) -> None:
    (problem,) = problems_of(data)
    assert expected in problem.expected
    assert str(problem.place) == place


def test_64_levels_are_read() -> None:
    assert "at most" not in str(problems_of(b"[" * 64 + b"]" * 64)[0])


def test_all_problems_are_shown_together_each_with_its_place() -> None:
    text = "metirc: loss\nrun_cap: 1\nrun_cap: 2\nmethod: gird\nname: &x y\n"
    assert sorted(str(p.place) for p in problems_of(text)) == [
        "study.yaml:1:1",
        "study.yaml:3:1",
        "study.yaml:4:9",
        "study.yaml:5:7",
    ]
    with pytest.raises(StudyFileError) as caught:
        raise StudyFileError(problems_of(text))
    told = (
        "study.yaml:1:1: metirc: unknown key: did you mean metric? Expected one of the keys name,"
    )
    assert told in str(caught.value)
    assert len(str(caught.value).splitlines()[0]) < 250
    assert str(caught.value).count("\n") == 3


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StudyFileError, match=r"none\.yaml: expected a readable study file \(No"):
        read(tmp_path / "none.yaml")
    with pytest.raises(StudyFileError, match="readable study file"):
        read(tmp_path)


def test_hostile_text_does_not_reach_the_terminal() -> None:
    (problem,) = problems_of('method: "\\e[31m\\u202ereversed"')
    assert str(problem).isprintable()
    assert "\\x1b[31m\\u202ereversed" in str(problem)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("metric.goal", "study.yaml:1:11"),
        ("parameters.lr.values[1]", "study.yaml:3:20"),
        ("parameters.lr.values.1", "study.yaml:3:20"),
        ("parameters.lr.max", "study.yaml:3:3"),
        ("nowhere", "None"),
    ],
)
def test_a_field_path_of_the_head_is_found_in_the_file(path: str, place: str) -> None:
    text = b"metric: { goal: minimize}\nparameters:\n  lr: {values: [1, 2]}\n"
    assert str(place_of(parse(text, "study.yaml").root, path)) == place


def test_the_value_of_a_flag_has_the_flag_as_its_place() -> None:
    assert parse_value("1e-3", "--set lr").place.line is None  # type: ignore[union-attr]
    assert isinstance(parse_value("", "--set x"), Scalar)
    with pytest.raises(StudyFileError, match=r"--set x=\[1: expected valid YAML"):
        parse_value("[1", "--set x=[1")


# Whatever comes.


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
@example(b"? ? ?")
@example(b"%TAG ! tag:x\n---\n!a b")
@example(b'"\\xZZ"')
@example(b"!<%ff> a")
def test_no_bytes_raise_anything_but_a_study_file_error(data: bytes) -> None:
    for problem in problems_of(data):
        assert str(problem).isprintable()


@given(st.text(st.sampled_from("ab:- [],{}&*!|>'\"%#?\n0.e1_~<"), max_size=60))
def test_no_yaml_like_text_raises_anything_but_a_study_file_error(text: str) -> None:
    for problem in problems_of(text):
        assert str(problem).isprintable()


# What the documentation says.


def test_every_key_and_every_distribution_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "study-file.md").read_text()
    words = set(re.findall(r"`(?:\$\{)?(\w+)\}?`", text))
    messages = [pb.StudySpec, pb.Metric, pb.Signal, pb.Parameter, pb.EarlyTerminate, pb.Schedule]
    messages += [pb.Resources, pb.Suspend, pb.Retry, pb.Stop]
    keys = {field.name for message in messages for field in message.DESCRIPTOR.fields}
    assert keys - words == set()
    names = {
        v.name.removeprefix("DISTRIBUTION_").lower() for v in pb.Distribution.DESCRIPTOR.values
    }
    assert not names - words - {"unspecified"}


def test_the_documented_study_files_are_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "study-file.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 5, "they are found"
    assert [(block, problems_of(block)) for block in blocks if problems_of(block)] == []


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ("{parameters: {b: {vale: 1}}}", "parameters.a.parameters.b.vale: unknown key"),
        ("{value: [1, {b: 2}]}", "parameters.a.value[1]: a mapping: expected text, a number"),
        ("{values: [1, null]}", "parameters.a.values[1]: null: expected text, a number"),
    ],
)
def test_what_a_sweep_file_may_hold_and_a_study_file_not(parameter: str, words: str) -> None:
    (problem,) = problems_of(f"method: grid\nparameters: {{a: {parameter}}}")
    assert words in str(problem)


def test_rules_about_errors_are_written_as_a_list() -> None:
    text = (
        "program: a.py\nretry:\n  on_third_failure: study\n  on_same_failure: go_on\n  rules:\n"
        "    - {match: CUDA out of memory, do: not_here}\n"
    )
    retry = spec_of(text).retry
    assert retry.on_third_failure == pb.ON_THIRD_FAILURE_STUDY
    assert retry.on_same_failure == pb.ON_SAME_FAILURE_GO_ON
    assert [(rule.match, rule.do) for rule in retry.rules] == [
        ("CUDA out of memory", pb.RETRY_ACTION_NOT_HERE)
    ]
    assert spec_of(study_text(spec_of(text))) == spec_of(text)


def test_a_pattern_of_a_metric_stands_beside_its_name() -> None:
    text = "program: a.py\nmetrics:\n  val_acc: 'acc[ =:]+(?P<value>[0-9.]+)'\n"
    (metric,) = spec_of(text).metrics
    assert (metric.name, metric.pattern) == ("val_acc", "acc[ =:]+(?P<value>[0-9.]+)")
    assert spec_of(study_text(spec_of(text))) == spec_of(text)
    (problem,) = problems_of("metrics: {val_acc: [x]}")
    assert problem.field_path == "metrics.val_acc"


def test_what_is_wrong_with_a_rule_is_said_where_it_stands() -> None:
    text = (
        "retry:\n  on_third_failure: studdy\n  rules:\n"
        "    - {match: oom, do: nothere}\n    - {matches: oom}\n    - oom\n"
    )
    found = [(each.field_path, each.nearest) for each in problems_of(text)]
    assert found == [
        ("retry.on_third_failure", "study"),
        ("retry.rules[0].do", "not_here"),
        ("retry.rules[1].matches", "match"),
        ("retry.rules[2]", ""),
    ]


def test_the_ends_of_a_range_are_named_as_they_are_written() -> None:
    assert range_path("resources.max_devices") == "resources.devices.max"
    for path in ("resources.devices", "retry.max_failures", "parameters.max_x.values", "max_x"):
        assert range_path(path) == path
