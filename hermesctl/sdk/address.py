"""Which head to speak to: the one of a flag, of HERMES_HEAD, or this user's own.

An address says where it came from, so that an error can say what to change. Plain text goes only to
Unix sockets and loopback, since the code of a study would otherwise cross the network in the clear;
beyond that a login is needed.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hermesctl.errors import UsageError
from hermesctl.sdk import contexts
from hermesctl.text import printable
from hermesd.security.enrollment import Membership

_PORT = re.compile(r"[1-9][0-9]{0,4}\Z")
HEAD_VARIABLE = "HERMES_HEAD"
SOCKET_PATH_BYTES_MAX = 100  # of the kernel's 108


@dataclass(frozen=True, slots=True)
class Address:
    """A gRPC target."""

    target: str
    #: Where it is known from, in words.
    origin: str
    #: Its Unix socket, if it is one.
    socket: Path | None = None
    #: It is this user's own head.
    embedded: bool = False
    #: What this user came by at its login to it.
    membership: Membership | None = None

    def __str__(self) -> str:
        return f"{printable(self.target)} ({self.origin})"


def find_head(head: str | None, environment: Mapping[str, str]) -> Address:
    """The head named by `head`, else by HERMES_HEAD, else that of the current context, else this
    user's own, embedded or not. The name of a context stands for its head, and the address of a
    head for the login to it.

    Raises UsageError for what is neither.
    """
    for text, origin in ((head, "--head"), (environment.get(HEAD_VARIABLE) or None, HEAD_VARIABLE)):
        if text is not None:
            named = contexts.find(environment, text) or _login_to(text, environment)
            return _of_context(named) if named is not None else parse_address(text, origin)
    if chosen := contexts.current(environment):
        return _of_context(chosen)
    embedded = embedded_head(environment)
    alone = short_state_directory(environment) / "head" / "head.sock"
    # They share a state directory, which one of them owns at a time: the last to start.
    if _made(alone) > _made(embedded.socket):
        return Address(f"unix:{alone}", "your own hermesd head", alone)
    return embedded


def _login_to(address: str, environment: Mapping[str, str]) -> contexts.Context | None:
    """The only login to the head of this address, or the current one of several.

    Raises UsageError if there is none and a login is damaged.
    """
    known, damaged = [], []
    for one in contexts.contexts(environment):
        try:
            known += [one] if one.head == address else []
        except UsageError as error:
            damaged.append(error)
    if damaged and not known:
        raise damaged[0]  # it may be the one
    current = contexts.current(environment)
    return known[0] if len(known) == 1 else current if current in known else None


def _of_context(context: contexts.Context) -> Address:
    origin = f"context {context.name}"
    return Address(context.head, origin, membership=context.membership)


def embedded_head(environment: Mapping[str, str]) -> Address:
    """The address of this user's embedded head, whether it runs or not."""
    socket = embedded_socket(short_state_directory(environment))
    return Address(f"unix:{socket}", "your own local head", socket, embedded=True)


def parse_address(text: str, origin: str) -> Address:
    """`unix:PATH`, a path with a slash, or HOST:PORT on loopback."""
    if text.startswith("unix:") or "/" in text:
        path = Path(text.removeprefix("unix:").removeprefix("//")).expanduser().absolute()
        if len(os.fsencode(path)) > 107:
            raise UsageError(
                f"{origin}: {printable(text)}: expected a socket path of at most 107 bytes"
            )
        return Address(f"unix:{path}", origin, path)
    host, _, port = text.rpartition(":")
    if not host or not _PORT.match(port) or int(port) > 65535:
        raise UsageError(
            f"{origin}: {printable(text)!r}: expected HOST:PORT, for example 127.0.0.1:7411, "
            "unix:PATH, or a name that `hermesctl context` lists"
        )
    if not _is_loopback(host.strip("[]")):
        tunnel = f"ssh -N -L $PWD/head.sock:/run/hermes/head.sock {printable(host)}"
        raise UsageError(
            f"{origin}: {printable(text)}: expected a head that you are logged in to, or a loopback"
            f" address or a Unix socket, because the connection is not encrypted; log in"
            f" (hermesctl login {printable(text)} TOKEN), or tunnel its socket:"
            f" {tunnel}, then --head unix:$PWD/head.sock"
        )
    return Address(text, origin)


def state_directory(environment: Mapping[str, str]) -> Path:
    """Where the embedded head and node keep everything."""
    if environment.get("HERMES_STATE"):
        return Path(environment["HERMES_STATE"]).expanduser().absolute()
    home = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser().absolute() / "hermes"


def short_state_directory(environment: Mapping[str, str]) -> Path:
    """The state directory, by another name if a socket's path in it would be too long.

    The other name is a link in a directory below /tmp that only this user can change. Raises
    UsageError when that directory belongs to somebody else.
    """
    state = state_directory(environment)
    if len(os.fsencode(state / "head.sock")) <= SOCKET_PATH_BYTES_MAX:
        return state
    folder = Path("/tmp") / f"hermes-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise UsageError(
            f"{folder}: expected a directory of mode 0700 that is yours; remove it, or set "
            f"HERMES_STATE to a path short enough for a socket in it"
        )
    link = folder / hashlib.sha256(os.fsencode(state)).hexdigest()[:16]
    if not link.is_symlink():
        link.symlink_to(state)
    return link


def embedded_socket(state: Path) -> Path:
    """The socket that the embedded head serves on: what its own record says, or the usual."""
    try:
        record = json.loads((state / "local.json").read_text())
        named = record.get("socket") if isinstance(record, dict) else None
    except (OSError, ValueError):
        named = None
    return Path(named) if isinstance(named, str) and named.startswith("/") else state / "head.sock"


def embedded_process(state: Path) -> int | None:
    """The process of the embedded head that holds the state directory, ready or not."""
    lock = state / "running.lock"
    try:
        pid = int(lock.read_text())
        held = any(_is_same(descriptor, lock) for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    except (OSError, ValueError):
        return None
    # The number may be somebody else's by now, who has no business with this lock.
    return pid if held else None


def _is_same(descriptor: Path, file: Path) -> bool:
    try:
        return descriptor.samefile(file)
    except OSError:
        return False  # closed meanwhile


def _made(socket: Path | None) -> float:
    """When a socket was made; long ago if there is none."""
    try:
        return socket.stat().st_mtime if socket is not None else 0.0
    except OSError:
        return 0.0


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
