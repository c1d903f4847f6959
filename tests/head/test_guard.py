"""Nothing is open by oversight, and no failure says more than it should."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from structlog.testing import capture_logs

from hermesd.config.schema import HeadConfig
from hermesd.head.security import guard, listen
from hermesd.head.security.guard import INVITED, METHODS, Guard, token, undeclared
from hermesd.head.security.listen import make_server
from hermesd.head.statedir import StateBusy, StateRefused
from hermesd.pb.hermes import v1
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc
from hermesd.security.accounts import current_user
from hermesd.security.identity import Role
from tests.head.heads import World, request_id, status, world
from tests.study_specs import spec

CODE = grpc.StatusCode
PROTOS = Path(__file__).resolve().parents[2] / "protos" / "hermes" / "v1"


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path, embedded=False) as up:
        yield up


def bearer(word: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {word}"),)


async def ask(system: World, path: str, metadata: Any) -> grpc.StatusCode:
    """How a raw call of a method ends, whatever it is."""
    call = system.channel.stream_stream(path)(metadata=metadata)
    await call.done_writing()
    code = await call.code()
    assert isinstance(code, grpc.StatusCode)
    return code


@pytest.mark.parametrize("path", sorted(METHODS.keys() - {INVITED}))
async def test_no_method_is_open_without_its_own_token(system: World, path: str) -> None:
    files = {Role.ADMIN: "token", Role.NODE: "node-token"}
    foreign = [
        bearer((system.directory / name).read_text().strip())
        for role, name in files.items()
        if role not in METHODS[path]
    ]
    for metadata in ((), bearer(""), bearer("hermes_wrong"), *foreign):
        assert await ask(system, path, metadata) is CODE.UNAUTHENTICATED
    assert system.running.head.committed == 0


async def test_the_right_token_opens(system: World) -> None:
    word = (system.directory / "token").read_text().strip()
    info = await system.control.ServerInfo(pb.ServerInfoRequest(), metadata=bearer(word))
    assert info.policies
    assert info.cluster_id


async def test_tokens_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    made = token(path)
    assert made.startswith("hermes_")
    assert len(made) > 40
    assert path.stat().st_mode & 0o777 == 0o600
    assert token(path) == made
    path.chmod(0o640)
    with pytest.raises(PermissionError, match="chmod 600"):
        token(path)
    path.chmod(0o600)
    path.write_text("")
    with pytest.raises(StateRefused, match="holds nothing; expected one token"):
        token(path)


async def test_sockets_have_their_modes(tmp_path: Path) -> None:
    for embedded, mode in ((True, 0o600), (False, 0o660)):
        async with world(tmp_path / str(embedded), embedded=embedded) as head:
            socket = head.directory / "head.sock"
            assert socket.stat().st_mode & 0o777 == mode
        assert not socket.exists()


def test_a_method_that_is_not_in_the_table_fails_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert undeclared() == set()
    fewer = {path: role for path, role in METHODS.items() if not path.endswith("/PutBlob")}
    monkeypatch.setattr(guard, "METHODS", fewer)
    with pytest.raises(RuntimeError, match="PutBlob"):
        Guard(None)
    monkeypatch.setattr(guard, "METHODS", {**METHODS, "/hermes.v1.ControlService/Old": frozenset()})
    with pytest.raises(RuntimeError, match="Old"):
        Guard(None)


def test_every_service_that_there_is_has_its_rule() -> None:
    """Not those that the guard was told of: whatever the packages of protos define."""
    for module in pkgutil.iter_modules(v1.__path__, f"{v1.__name__}."):
        importlib.import_module(module.name)
    pool = descriptor_pool.Default()
    files = (pool.FindFileByName(f"hermes/v1/{path.name}") for path in PROTOS.glob("*.proto"))
    served = {
        f"/{service.full_name}/{method.name}"
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    }
    # A node's own, see tests/node/test_fetching.
    by_ticket = {f"/hermes.v1.TransferService/{name}" for name in ("Fetch", "Doubt")}
    ours = {method for method in METHODS if method.startswith("/hermes.")}
    assert served == ours | by_ticket
    assert {method.split("/")[1] for method in METHODS.keys() - ours} == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert len(served) > 30
    everybody = {path for path in ours if METHODS[path] == frozenset(Role)}
    assert everybody == {INVITED, "/hermes.v1.EnrollService/Renew"}


async def test_an_unknown_method_is_unimplemented(head: World) -> None:
    code = await ask(head, "/hermes.v1.ControlService/DropTables", ())
    assert code is CODE.UNIMPLEMENTED


class Leaky(control_pb2_grpc.ControlServiceServicer):
    """Every method of it has a defect."""

    async def GetStudy(self, request: Any, context: Any) -> Any:
        raise ValueError("password=1234")

    async def WatchJournal(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield pb.WatchJournalResponse()
        raise ValueError("password=1234")

    async def PutBlob(self, request_iterator: Any, context: Any) -> Any:
        raise ExceptionGroup("several", [ValueError("password=1234"), KeyError("pin")])


for _name in [m for m in dir(control_pb2_grpc.ControlServiceServicer) if m[0].isupper()]:
    if _name not in vars(Leaky):
        setattr(Leaky, _name, Leaky.GetStudy)
Leaky.__abstractmethods__ = frozenset()


async def test_an_uncaught_exception_shows_nothing_but_an_incident(tmp_path: Path) -> None:
    server = grpc.aio.server(interceptors=[Guard(None)])
    control_pb2_grpc.add_ControlServiceServicer_to_server(Leaky(), server)
    server.add_insecure_port(f"unix:{tmp_path}/leaky.sock")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/leaky.sock") as channel:
        stub: Any = control_pb2_grpc.ControlServiceStub(channel)
        with capture_logs() as logged:
            watch = stub.WatchJournal(pb.WatchJournalRequest())
            await watch.read()
            refused = [
                await status(stub.GetStudy(pb.GetStudyRequest())),
                await status(stub.PutBlob(iter(()))),
                await status(watch.read()),
            ]
    assert {code for code, _ in refused} == {CODE.INTERNAL}
    said = "internal error; the head's log has it as "
    assert {w for _, w in refused} == {f"{said}{line['incident']}" for line in logged}
    assert len(logged) == 3
    await server.stop(0)


async def test_a_message_over_the_limit_is_refused(head: World) -> None:
    huge = spec({"x": {"value": "y" * 5_000_000}})
    assert (await status(head.submit(huge)))[0] is CODE.RESOURCE_EXHAUSTED


# Where it listens.


@pytest.mark.parametrize("address", ["0.0.0.0:7411", "[::]:7411", "192.0.2.1:7411"])
async def test_beyond_loopback_only_with_tls(tmp_path: Path, address: str) -> None:
    config = HeadConfig(state_dir=tmp_path, listen=address)
    with pytest.raises(StateRefused, match="can be reached from other machines"):
        await make_server(config, None)


async def test_tcp_never_goes_without_tokens(tmp_path: Path) -> None:
    config = HeadConfig.model_construct(
        state_dir=tmp_path, socket=None, listen="127.0.0.1:7411", embedded=True
    )
    with pytest.raises(StateRefused, match="an embedded head asks nobody for a token"):
        await make_server(config, None)


@pytest.mark.parametrize(
    ("address", "ours"),
    [("127.0.0.1:1", True), ("localhost:1", True), ("[::1]:1", True), ("0.0.0.0:1", False)],
)
def test_loopback_is_what_every_address_of_a_host_is(address: str, ours: bool) -> None:
    assert listen.loopback(address) is ours
    with pytest.raises(StateRefused, match=r"head\.listen = nowhere\.invalid:1"):
        listen.loopback("nowhere.invalid:1")


async def test_a_dead_heads_socket_is_replaced_and_a_long_path_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "head.sock"))
    async with world(tmp_path) as head:
        await head.submit(request_id=request_id())
    with pytest.raises(StateRefused, match="a socket's path has no more than 107 bytes"):
        async with world(tmp_path / ("x" * 120)):
            pass


async def test_another_heads_socket_is_left_alone(tmp_path: Path) -> None:
    """A restored backup is looked at with the settings of the head that runs."""
    async with world(tmp_path / "one") as first:
        path = first.directory / "head.sock"
        before = path.stat().st_ino
        with pytest.raises(StateBusy, match=f"another head answers at {path}: end that one"):
            async with world(tmp_path / "two", socket=path):
                pass
        assert path.stat().st_ino == before
        await first.submit()


async def test_what_is_no_socket_is_not_removed_for_one(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("mine")
    with pytest.raises(StateRefused, match="something other than a socket is there already"):
        async with world(tmp_path / "head", socket=tmp_path / "study.yaml"):
            pass
    assert (tmp_path / "study.yaml").read_text() == "mine"


async def test_a_port_that_is_taken_is_refused_before_the_socket_is_touched(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "head.sock"))
    before = (tmp_path / "head.sock").stat().st_ino
    other = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    with pytest.raises(StateRefused, match=f"head.listen = 127.0.0.1:{port}"):
        async with world(tmp_path, embedded=False, listen=f"127.0.0.1:{port}"):
            pass
    await other.stop(0)
    assert (tmp_path / "head.sock").stat().st_ino == before


def test_the_security_guide_has_the_table_of_methods() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()
    told: dict[str, frozenset[Role]] = {}
    section = guide.split("## Who may call what")[1].split("\n## ")[0]
    for row in re.findall(r"^\| (`.*) \| (.*) \|$", section, re.MULTILINE):
        roles = frozenset(Role(word) for word in row[1].split(", ") if word in tuple(Role))
        told.update(dict.fromkeys(re.findall(r"`(\w+)`", row[0]), roles))
    assert told.pop("Enroll") == frozenset(), "an invitation is what it asks for"
    assert told == {p.rpartition("/")[2]: roles for p, roles in METHODS.items() if p != INVITED}


def test_the_tests_that_the_security_guide_names_are_there() -> None:
    tests = Path(__file__).resolve().parents[1]
    guide = (tests.parent / "docs" / "security.md").read_text()
    named = set(re.findall(r"`((?:\w+/)+test_\w+\.py)`", guide))
    assert len(named) > 10
    assert [name for name in named if not (tests / name.removeprefix("tests/")).is_file()] == []


def test_who_runs_a_head_and_has_no_name_is_known_by_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_011)  # as a container may make one up
    assert current_user() == "2000000011"
