"""The committed code in hermesd/pb is what protos/ generates today, and it loads."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "protos"))
    spec = importlib.util.spec_from_file_location("generate", ROOT / "protos" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_code_is_fresh(generator: ModuleType) -> None:
    assert generator.stale() == [], "run `make proto` and commit what it changes"
    assert generator.REFERENCE.read_text() == generator.reference(), "likewise"


def test_an_edited_and_a_leftover_file_are_both_named(
    generator: ModuleType, tmp_path: Path
) -> None:
    generator.generate(tmp_path)
    assert generator.stale(tmp_path) == []
    package = tmp_path / "hermes" / "v1"
    (package / "node_pb2.py").write_text("edited = True\n")
    (package / "gone_pb2.py").write_text("")
    assert generator.stale(tmp_path) == ["hermes/v1/gone_pb2.py", "hermes/v1/node_pb2.py"]


def test_a_proto_that_does_not_compile_is_reported_in_protocs_words(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "protos" / "hermes" / "v1"
    broken.mkdir(parents=True)
    (broken / "broken.proto").write_text('syntax = "proto3";\nmessage {')
    monkeypatch.setattr(generator, "PROTOS", tmp_path / "protos")
    with pytest.raises(RuntimeError, match=r"broken\.proto:2:9"):
        generator.generate(tmp_path / "out")


def test_messages_and_services_load_on_the_installed_runtime() -> None:
    from hermesd.pb.hermes.v1 import control_pb2_grpc, node_pb2, node_pb2_grpc

    copy = node_pb2.AttachRequest.FromString(node_pb2.AttachRequest().SerializeToString())
    assert copy == node_pb2.AttachRequest()
    assert control_pb2_grpc.ControlServiceServicer
    assert node_pb2_grpc.NodeServiceServicer
