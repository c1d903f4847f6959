"""Which head is found, and what is no address."""

from __future__ import annotations

import json
import os
from pathlib import Path
from socket import AF_UNIX
from socket import socket as Socket

import pytest

from hermesctl.errors import Unreachable, UsageError
from hermesctl.sdk import contexts
from hermesctl.sdk.address import (
    SOCKET_PATH_BYTES_MAX,
    embedded_head,
    find_head,
    parse_address,
    short_state_directory,
    state_directory,
)
from hermesctl.sdk.connection import Connection
from hermesctl.sdk.token import find_token
from hermesd.head.security.authority import Authority
from hermesd.security.token import Token


def test_a_flag_beats_the_environment_beats_the_embedded_head(tmp_path: Path) -> None:
    environment = {"HERMES_HEAD": "127.0.0.1:1", "HERMES_STATE": str(tmp_path)}
    assert find_head("localhost:2", environment).target == "localhost:2"
    assert find_head(None, environment).target == "127.0.0.1:1"
    embedded = find_head(None, {"HERMES_STATE": "/s", "HERMES_HEAD": ""})
    assert (embedded.target, embedded.embedded) == ("unix:/s/head.sock", True)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("unix:/run/hermes/head.sock", "unix:/run/hermes/head.sock"),
        ("unix:///run/h.sock", "unix:/run/h.sock"),
        ("/run/h.sock", "unix:/run/h.sock"),
        ("./h.sock", f"unix:{os.getcwd()}/h.sock"),
        ("127.8.8.8:7411", "127.8.8.8:7411"),
        ("[::1]:7411", "[::1]:7411"),
    ],
)
def test_addresses(text: str, target: str) -> None:
    assert parse_address(text, "--head").target == target


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected HOST:PORT"),
        ("localhost", "expected HOST:PORT"),
        ("localhost:", "expected HOST:PORT"),
        ("localhost:0", "expected HOST:PORT"),
        ("localhost:65536", "expected HOST:PORT"),
        ("localhost:٣", "expected HOST:PORT"),
        (":7411", "expected HOST:PORT"),
        ("0.0.0.0:7411", "not encrypted"),
        ("10.0.0.1:7411", "ssh -N -L $PWD/head.sock:/run/hermes/head.sock 10.0.0.1"),
        ("/" + "x" * 107, "at most 107 bytes"),
    ],
)
def test_what_is_no_address(text: str, words: str) -> None:
    with pytest.raises(UsageError, match="HERMES_HEAD") as caught:
        parse_address(text, "HERMES_HEAD")
    assert words in str(caught.value)


def test_the_embedded_heads_own_record_says_where_it_serves(tmp_path: Path) -> None:
    environment = {"HERMES_STATE": str(tmp_path)}
    record = tmp_path / "local.json"
    for text, socket in (
        (json.dumps({"pid": 1, "socket": "/elsewhere/h.sock"}), "/elsewhere/h.sock"),
        ("[]", str(tmp_path / "head.sock")),
        ("{", str(tmp_path / "head.sock")),
        (json.dumps({"socket": 3}), str(tmp_path / "head.sock")),
    ):
        record.write_text(text)
        assert str(find_head(None, environment).socket) == socket


def test_the_state_directory_follows_the_usual_variables() -> None:
    assert state_directory({"HERMES_STATE": "/s", "XDG_STATE_HOME": "/x"}) == Path("/s")
    assert state_directory({"XDG_STATE_HOME": "/x"}) == Path("/x/hermes")
    assert state_directory({}) == Path("~/.local/state/hermes").expanduser()


def test_a_long_state_directory_has_a_short_name_for_its_socket(tmp_path: Path) -> None:
    state = tmp_path / ("x" * 120)
    state.mkdir()
    environment = {"HERMES_STATE": str(state)}
    short = short_state_directory(environment)
    try:
        assert short == short_state_directory(environment)
        assert len(os.fsencode(short / "head.sock")) <= SOCKET_PATH_BYTES_MAX
        assert short.resolve() == state.resolve()
        assert short.parent.stat().st_mode & 0o777 == 0o700
    finally:
        short.unlink()
    exactly = Path("/" + "y" * (SOCKET_PATH_BYTES_MAX - len("//head.sock")))
    assert short_state_directory({"HERMES_STATE": str(exactly)}) == exactly


def test_a_token_is_read_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "token"
    port = parse_address(str(tmp_path / "head.sock"), "--head")
    environment = {"HERMES_TOKEN_FILE": str(path)}
    with pytest.raises(UsageError, match="not readable"):
        find_token(environment, port)
    path.write_text("hermes_abc\n")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="mode 0640, expected 0600"):
        find_token(environment, port)
    path.chmod(0o600)
    assert find_token(environment, port).token == Token("hermes_abc")
    for text in ("", "two words", "é", "a\x1bb"):
        path.write_text(text)
        with pytest.raises(UsageError, match="expected one token"):
            find_token(environment, port)


def test_a_token_goes_to_no_port_that_it_cannot_know(tmp_path: Path) -> None:
    """Any account may listen there while the head does not."""
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text("hermes_abc\n")
    port = parse_address("127.0.0.1:1", "--head")
    for environment in ({}, {"HERMES_TOKEN_FILE": str(path)}):
        with pytest.raises(UsageError, match="any account may listen at a port"):
            find_token(environment, port)
    authority = Authority(tmp_path).roots_pem
    path.write_text(f"hermes_abc\n{authority.decode()}")
    assert find_token({"HERMES_TOKEN_FILE": str(path)}, port).token == Token(
        "hermes_abc", authority
    )


def test_the_token_is_looked_for_beside_the_socket(tmp_path: Path) -> None:
    address = parse_address(str(tmp_path / "head.sock"), "--head")
    absent = find_token({}, address)
    assert absent.token is None
    assert f"beside the socket, {tmp_path}/token: No such file" in absent.origin
    (tmp_path / "token").write_text("hermes_abc\n")
    with pytest.raises(UsageError, match="expected 0600"):
        find_token({}, address)
    (tmp_path / "token").chmod(0o600)
    assert find_token({}, address).token == Token("hermes_abc")
    embedded = embedded_head({"HERMES_STATE": str(tmp_path)})
    assert embedded.socket == address.socket
    assert find_token({}, embedded).token is None


def test_of_ones_own_two_heads_the_last_to_start_is_found(tmp_path: Path) -> None:
    environment = {"HERMES_STATE": str(tmp_path)}
    (tmp_path / "head").mkdir()
    alone, embedded = tmp_path / "head" / "head.sock", tmp_path / "head.sock"
    assert find_head(None, environment).socket == embedded
    alone.touch()
    assert find_head(None, environment).socket == alone
    embedded.touch()
    os.utime(embedded, (1, 1))
    assert find_head(None, environment).socket == alone
    os.utime(alone, (0.5, 0.5))
    assert find_head(None, environment).embedded


def test_the_address_of_a_head_is_the_login_to_it(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    folder = tmp_path / "hermes" / "contexts"

    def login(name: str, head: str) -> None:
        (folder / name).mkdir(parents=True)
        (folder / name / "membership.json").write_text(
            json.dumps({"head": head, "role": "user", "name": "alice"})
        )

    login("lab", "10.0.0.1:7411")
    login("tunnel", "127.0.0.1:7411")
    address = find_head("10.0.0.1:7411", environment)
    assert address.membership is not None
    assert address.origin == "context lab"
    assert find_head("127.0.0.1:7411", environment).origin == "context tunnel"
    assert find_head("127.0.0.1:7412", environment).membership is None
    with pytest.raises(UsageError, match="expected a head that you are logged in to"):
        find_head("10.0.0.2:7411", environment)
    login("again", "10.0.0.1:7411")
    with pytest.raises(UsageError, match="expected a head that you are logged in to"):
        find_head("10.0.0.1:7411", environment)
    contexts.use(environment, "again")
    assert find_head("10.0.0.1:7411", environment).origin == "context again"


@pytest.mark.root
def test_a_socket_that_others_may_not_reach_is_told_from_an_absent_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "head.sock").touch()
    connection = Connection(parse_address(str(tmp_path / "head.sock"), "--head"), token=None)
    connection.refuse_absent_socket()
    os.seteuid(65534)
    try:
        with pytest.raises(Unreachable, match="you may not enter"):
            connection.refuse_absent_socket()
        with pytest.raises(UsageError, match="not readable"):
            find_token({"HERMES_TOKEN_FILE": str(tmp_path / "token")}, connection.address)
        assert "Permission denied" in find_token({}, connection.address).origin
    finally:
        os.seteuid(0)
    (tmp_path / "head.sock").unlink()
    with pytest.raises(Unreachable, match="no such socket"):
        connection.refuse_absent_socket()


def test_the_socket_of_a_local_head_that_died_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_STATE", str(tmp_path))
    embedded = embedded_head(os.environ)
    assert embedded.socket is not None
    with Socket(AF_UNIX) as listener:
        listener.bind(str(embedded.socket))
        listener.listen()
        Connection(embedded, token=None).refuse_absent_socket()
    with pytest.raises(Unreachable, match=r"it does not run\n.*hermesctl local start"):
        Connection(embedded, token=None).refuse_absent_socket()
    restarts = Connection(parse_address(embedded.target, "--head"), token=None)
    restarts.refuse_absent_socket()
    with (tmp_path / "running.lock").open("w") as lock:
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        Connection(embedded, token=None).refuse_absent_socket()
