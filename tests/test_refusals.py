"""Each daemon, started with the command line that people type and a setting that cannot be had: one
line says which it is, where it was set, what was expected and what to do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from hermesd.cli import DESCRIPTORS_MIN, REFUSED
from hermesd.head.security.authority import Authority
from hermesd.security.enrollment import Membership, key_pem, write_private
from hermesd.security.identity import Identity, Role
from tests.forked import Forked

REPOSITORY = Path(__file__).resolve().parents[1]
# What a test may damage, and makes a setting of.
Broken: TypeAlias = Callable[[Path], str]


def plain() -> dict[str, str]:
    """An environment without settings."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith("HERMES_")}
    return {**ours, "HERMES_NODE_RUN_AS": "self", "PYTHONPATH": str(REPOSITORY)}


def command(*words: str, **variables: str) -> Forked:
    """A daemon with no settings but these."""
    return Forked("hermesd", *words, environment={**plain(), **variables})


def refusal(process: Forked) -> str:
    """The one line with which it ends, besides its log."""
    return said(*process.communicate())


def said(code: int, out: str, errors: str) -> str:
    """The one line of a daemon that refused, besides its log."""
    assert out == ""
    (line,) = (line for line in errors.splitlines() if not line.startswith("timestamp="))
    assert code == REFUSED, line
    return line.removeprefix("hermesd: ")


def a_file(folder: Path) -> str:
    (folder / "file").write_text("mine")
    return str(folder / "file")


def below_a_file(folder: Path) -> str:
    return f"{a_file(folder)}/sub"


def a_folder(folder: Path) -> str:
    (folder / "folder").mkdir()
    return str(folder / "folder")


def in_no_folder(folder: Path) -> str:
    return str(folder / "none" / "x")


def in_proc(_: Path) -> str:
    return "/proc/nope"


def too_long(folder: Path) -> str:
    return str(folder / ("x" * 300))


def too_long_for_a_socket(folder: Path) -> str:
    return str(folder / ("x" * 107))


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        yield port


NO_DIRECTORY = (a_file, below_a_file, in_proc, too_long)
HEAD = [
    *(("state_dir", "--state", broken) for broken in NO_DIRECTORY),
    *(
        ("socket", "--socket", broken)
        for broken in (a_file, a_folder, below_a_file, in_no_folder, too_long_for_a_socket)
    ),
]
NODE = [
    *(("state_dir", "--state", broken) for broken in NO_DIRECTORY),
    *(
        ("runtime_dir", "environment: HERMES_NODE_RUNTIME_DIR", broken)
        for broken in (a_file, too_long_for_a_socket)
    ),
]


@pytest.mark.parametrize(("key", "origin", "broken"), HEAD)
def test_a_head_without_a_place(key: str, origin: str, broken: Broken, tmp_path: Path) -> None:
    value = broken(tmp_path)
    variables = {"HERMES_HEAD_STATE_DIR": str(tmp_path / "state")}
    line = refusal(command("head", origin, value, **variables))
    assert line.startswith(f"{origin}: head.{key} = {value[:60]}")
    assert "; expected " in line
    assert f"head.{key}" in line.rpartition(": ")[2]


@pytest.mark.parametrize(("key", "origin", "broken"), NODE)
def test_a_node_without_a_place(key: str, origin: str, broken: Broken, tmp_path: Path) -> None:
    value = broken(tmp_path)
    variables = {"HERMES_NODE_STATE_DIR": str(tmp_path / "state"), "HERMES_NODE_CPU_SLOTS": "1"}
    words = (origin, value) if origin.startswith("--") else ()
    if not words:
        variables[origin.removeprefix("environment: ")] = value
    line = refusal(command("node", *words, **variables))
    assert line.startswith(f"{origin}: node.{key} = {value[:60]}")
    assert ": File name too long" in line or "; expected " in line


@pytest.mark.parametrize("name", ["lock", "shim", "run"])
def test_a_node_whose_state_holds_something_else(name: str, tmp_path: Path) -> None:
    if name == "lock":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("")
    line = refusal(command("node", "--state", str(tmp_path)))
    assert str(tmp_path / name) in line
    assert "; expected a " in line


@pytest.mark.parametrize("key", ["listen", "enroll", "metrics_port"])
def test_a_head_without_a_port(key: str, tmp_path: Path) -> None:
    with taken_port() as taken, taken_port() as other:
        pass
    with socket.create_server(("127.0.0.1", taken)):
        port = str(taken) if key == "metrics_port" else f"127.0.0.1:{taken}"
        settings = {"enroll": f'enroll = "{port}"\nlisten = "127.0.0.1:{other}"'}
        setting = settings.get(key, f'{key} = "{port}"')
        config = tmp_path / "hermes.toml"
        config.write_text(f"[head]\n{setting}\n".replace(f'"{taken}"', str(taken)))
        line = refusal(command("head", "--config", str(config), "--state", str(tmp_path / "head")))
    assert line.startswith(f"{config}: head.{key} = {port}: Address already in use; expected ")
    assert line.endswith(f": end what listens there, or name another head.{key}")


def test_a_head_at_an_address_of_another_machine(tmp_path: Path) -> None:
    variables = {"HERMES_HEAD_LISTEN": "192.0.2.1:7411", "HERMES_HEAD_STATE_DIR": str(tmp_path)}
    line = refusal(command("head", **variables))
    told = "environment: HERMES_HEAD_LISTEN: head.listen = 192.0.2.1:7411: "
    assert line.startswith(f"{told}Cannot assign requested address; expected an address of this")


# Keys and certificates.


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def gone(path: Path) -> None:
    path.unlink()


def key_of_somebody_else(path: Path) -> None:
    path.write_bytes(key_pem(ec.generate_private_key(ec.SECP256R1())))


DAMAGES: tuple[Callable[[Path], None], ...] = (empty, cut, garbage, folder_instead, gone)


def joined(folder: Path) -> Membership:
    """What a node has that joined a head at 127.0.0.1:7411."""
    folder.mkdir(parents=True)
    (folder / "head").mkdir()
    authority = Authority(folder / "head" / "authority")
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = authority.issue(Identity(Role.NODE, "box"), request.sign(key, hashes.SHA256()))
    membership = folder / "node" / "membership"
    membership.mkdir(parents=True)
    for name, content in (
        ("authority.crt", authority.roots_pem),
        ("member.key", key_pem(key)),
        ("member.crt", signed),
        ("membership.json", b'{"head": "127.0.0.1:7411", "role": "node", "name": "box"}'),
    ):
        write_private(membership / name, content)
    return Membership(membership)


@pytest.mark.parametrize("daemon", ["head", "node"])
@pytest.mark.parametrize("key", ["tls_ca", "tls_key", "tls_certificate"])
def test_tls_files_that_are_damaged(daemon: str, key: str, tmp_path: Path) -> None:
    processes = []
    for number, damage in enumerate((empty, garbage, folder_instead, key_of_somebody_else)):
        if damage is key_of_somebody_else and key != "tls_key":
            continue
        folder = joined(tmp_path / str(number)).folder
        files = {"ca": "authority.crt", "key": "member.key", "certificate": "member.crt"}
        prefix = f"HERMES_{daemon.upper()}_"
        variables = {f"{prefix}TLS_{k.upper()}": str(folder / file) for k, file in files.items()}
        way = "LISTEN" if daemon == "head" else "HEAD"
        state = str(tmp_path / f"s{number}")
        variables |= {f"{prefix}STATE_DIR": state, f"{prefix}{way}": "127.0.0.1:9"}
        damage(folder / files[key.removeprefix("tls_")])
        processes.append(command(daemon, **variables))
    for process in processes:
        line = refusal(process)
        variable = f"HERMES_{daemon.upper()}_{key.upper()}"
        assert line.startswith(f"environment: {variable}: {daemon}.{key} = ")
        assert "; expected " in line
        assert "PRIVATE" not in line


@pytest.mark.parametrize("name", ["membership.json", "authority.crt", "member.crt", "member.key"])
def test_what_came_of_joining_is_damaged(name: str, tmp_path: Path) -> None:
    processes = {}
    for damage in DAMAGES:
        if damage is gone and name == "membership.json":
            continue  # it has not joined
        path = joined(tmp_path / damage.__name__).folder / name
        damage(path)
        state = path.parent.parent
        processes[path] = command("node", "--state", str(state), HERMES_NODE_CPU_SLOTS="1")
    for path, process in processes.items():
        line = refusal(process)
        assert line.startswith(f"{path}")
        assert "; expected the " in line
        assert f"or remove {path.parent} and join its head again with a new token" in line


def test_a_node_without_its_port_for_checkpoints(tmp_path: Path) -> None:
    state = joined(tmp_path / "one").folder.parent
    with taken_port() as port:
        variables = {"HERMES_NODE_TRANSFER": f"127.0.0.1:{port}", "HERMES_NODE_CPU_SLOTS": "1"}
        line = refusal(command("node", "--state", str(state), **variables))
    told = f"environment: HERMES_NODE_TRANSFER: node.transfer = 127.0.0.1:{port}: "
    assert line.startswith(f"{told}Address already in use; expected an address of this machine")


# Open files.


@pytest.mark.parametrize("daemon", ["head", "node", "local"])
def test_too_few_open_files_are_refused_before_anything_is_begun(
    daemon: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    for limit in (8, 16, DESCRIPTORS_MIN - 1):
        limited = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh"]
        daemon_words = [sys.executable, "-m", "hermesd", daemon, "--state", str(state)]
        done = subprocess.run(
            [*limited, *daemon_words], env=plain(), capture_output=True, text=True
        )
        line = said(done.returncode, done.stdout, done.stderr)
        assert line.startswith(f"limit of open files (ulimit -n) = {limit}: expected 64 or more")
    assert not state.exists()
