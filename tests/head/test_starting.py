"""What a head finds at its start that is not as it was left: one line, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from hermesd.head.journal import schema
from hermesd.head.security.authority import Authority
from hermesd.head.statedir import StateRefused
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc
from tests.forked import Forked
from tests.head.heads import Node, world

LISTEN = ("--listen", "127.0.0.1:0")


def holds(content: bytes) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        path.write_bytes(content)
        path.chmod(0o600)

    return damage


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def start(state: Path, *words: str) -> tuple[int, str]:
    """A head that is expected to refuse: its exit code, and what it said."""
    code, _, errors = Forked("hermesd", "head", "--state", str(state), *words).communicate()
    return code, errors


async def lived(state: Path, **settings: object) -> None:
    async with world(state, **settings) as head:
        await Node(head).hello()


@pytest.mark.parametrize("damage", [holds(b""), holds(b"\xff\xfe\n"), holds(b"no, it is not")])
@pytest.mark.parametrize("name", ["longest-silence", "cluster-id", "set-back", "invitations.json"])
async def test_a_damaged_file_is_one_line_with_the_way_out(
    tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    await lived(tmp_path)
    damage(tmp_path / name)
    code, said = start(tmp_path, "--embedded")
    assert code == 2, said
    (line,) = said.splitlines()
    assert line.startswith(f"hermesd: {tmp_path / name} holds ")
    assert "; expected " in line
    assert "remove it" in line or "write the longest" in line


@pytest.mark.parametrize("name", ["token", "node-token"])
async def test_a_damaged_token_is_not_shown(tmp_path: Path, name: str) -> None:
    for content in (b"", b"\xff\xff", b"secret words"):
        holds(content)(tmp_path / name)
        code, said = start(tmp_path)
        assert (code, len(said.splitlines())) == (2, 1), said
        assert f"{tmp_path / name} holds " in said
        assert "secret words" not in said
        (tmp_path / name).unlink()


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"[[1]]", b"-----BEGIN PRIVATE KEY-----"])
@pytest.mark.parametrize("name", ["authority.key", "authority.crt", "issued.json"])
def test_a_damaged_authority_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    content = b"" if (name, content) == ("issued.json", b"{}") else content  # {}: nobody's
    Authority(tmp_path)
    holds(content)(tmp_path / name)
    with pytest.raises(StateRefused, match=f"{name} .*; expected .*: restore it from a backup"):
        Authority(tmp_path)


@pytest.mark.parametrize("name", [schema.NAME, "cluster-id", "longest-silence", "head.lock"])
async def test_a_directory_in_a_files_place_is_one_line(tmp_path: Path, name: str) -> None:
    await lived(tmp_path)
    directory(tmp_path / name)
    code, said = start(tmp_path, "--embedded")
    assert code == 2, said
    (line,) = said.splitlines()
    assert str(tmp_path / name) in line


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_state_directory_that_is_a_file_is_one_line(tmp_path: Path, below: str) -> None:
    (tmp_path / "state").touch()
    code, said = start(tmp_path / "state" / below, "--embedded")
    assert code == 2, said
    (line,) = said.splitlines()
    assert "set head.state_dir" in line


async def test_a_socket_that_is_removed_is_there_again(tmp_path: Path) -> None:
    async with world(tmp_path):
        socket = tmp_path / "head.sock"
        socket.unlink()
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            stub = control_pb2_grpc.ControlServiceStub(channel)
            call = stub.ServerInfo(pb.ServerInfoRequest(), wait_for_ready=True, timeout=60)
            assert (await call).version
        assert socket.exists()
    assert not [path.name for path in tmp_path.iterdir() if "sock" in path.name]
