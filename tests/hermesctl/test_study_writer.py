"""What the writers write is read back as the same, by our reader and by any other."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from hermesctl.study_file.load import Document, Items, Node, Scalar, Table, parse
from hermesctl.study_file.schema import build_spec
from hermesctl.study_file.write import study_data, study_text
from hermesctl.yaml_text import to_yaml
from hermesd.pb.hermes.v1 import types_pb2 as pb
from tests.hermesctl.strategies import FINITE, INT64, SPECS, TEXT


def spec_of(text: str) -> pb.StudySpec:
    document = parse(text.encode(), "study.yaml")
    spec, problems, _ = build_spec(document.root)
    assert not [*document.problems, *problems], [*document.problems, *problems]
    return spec


@given(SPECS)
def test_what_the_writer_writes_is_read_back(spec: pb.StudySpec) -> None:
    text = study_text(spec)
    assert spec_of(text) == spec


@given(SPECS)
def test_the_writers_text_means_the_same_to_any_yaml_reader(spec: pb.StudySpec) -> None:
    """Words and types survive PyYAML's YAML 1.1 as well, exponents without a dot apart."""
    data = study_data(spec)
    loaded = yaml.safe_load(study_text(spec))
    assert _as_words(loaded) == _as_words(data)


def _as_words(data: object) -> object:
    if isinstance(data, dict):
        return {str(k): _as_words(v) for k, v in data.items()}
    if isinstance(data, list):
        return [_as_words(v) for v in data]
    return repr(data) if isinstance(data, float) else str(data)


DATA = st.recursive(
    st.one_of(st.none(), st.booleans(), INT64, FINITE, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, DATA, min_size=1, max_size=4))
def test_any_data_is_written_as_yaml_that_reads_back(data: dict[str, object]) -> None:
    document = parse(to_yaml(data).encode(), "x")  # type: ignore[arg-type]
    assert not document.problems
    assert _plain(document) == data


def _plain(document: Document) -> object:
    def walk(node: Node) -> object:
        match node:
            case Table(entries=entries):
                return {entry.key: walk(entry.node) for entry in entries}
            case Items(items=items):
                return [walk(item) for item in items]
            case Scalar(value=value):
                return value
            case _:
                raise AssertionError(node)

    return walk(document.root)
