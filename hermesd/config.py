"""What the daemons are told at their start: a TOML file, the environment, flags; checked once.

Each daemon reads its own table. `HERMES_HEAD_<KEY>` and `HERMES_NODE_<KEY>` override the file,
flags override both. Nothing else of hermesd reads the environment for its settings, and no
default is set anywhere else.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from hermesd.refusal import FieldError, from_pydantic, nearest, one_of, under

NODE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
GIB = 2**30

Section = TypeVar("Section", bound=BaseModel)


class ConfigError(Exception):
    """Settings that will not do; one line each, naming file, key, value and what was expected."""


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2] not in UNITS:
        raise ValueError("a number of bytes or a size such as 512MiB or 20GiB")
    return int(float(match[1]) * UNITS[match[2]])


def _slots(value: object) -> object:
    """`3` is three slots on the first usable cores; text comes from the environment."""
    if isinstance(value, str):
        try:
            value = tomllib.loads(f"slots = {value}")["slots"]
        except tomllib.TOMLDecodeError:
            raise ValueError("a number of slots or lists of cores such as [[0], [1]]") from None
    if type(value) is int:
        if not 0 <= value <= 4096:
            raise ValueError("from 0 to 4096 slots")
        cores = usable_cores()
        return tuple((cores[slot % len(cores)],) for slot in range(value))
    return value


def _cores_exist(slots: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    known = set(usable_cores())
    for cores in slots:
        if not cores or not known.issuperset(cores):
            raise ValueError(f"lists of cores out of {sorted(known)}, none of them empty")
    return slots


def _node_name(name: str) -> str:
    if not NODE_NAME.fullmatch(name):
        raise ValueError("1 to 63 of a-z, 0-9, dot, hyphen and underscore, a letter or digit first")
    return name


def _address(address: str) -> str:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("host:port, for example 127.0.0.1:7411")
    return address


def _target(target: str) -> str:
    return target if target.startswith("unix:") and len(target) > 5 else _address(target)


Bytes = Annotated[int, BeforeValidator(_size), Field(ge=0, le=2**62)]
Address = Annotated[str, AfterValidator(_address)]
Target = Annotated[str, AfterValidator(_target)]
Slots = Annotated[
    tuple[tuple[int, ...], ...], BeforeValidator(_slots), AfterValidator(_cores_exist)
]
FilePath = Annotated[Path, AfterValidator(Path.expanduser)]


def _names_loopback(address: str) -> bool:
    """By what is written: what a name stands for is another machine's to say, and may change."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def usable_cores() -> list[int]:
    """The cores that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def default_name() -> str:
    """This machine's name as the name of a node."""
    name = re.sub(r"[^a-z0-9._-]", "-", socket.gethostname().split(".")[0].lower())[:63]
    return name if NODE_NAME.fullmatch(name) else "node"


def state_home() -> Path:
    """Where a user's own state lies; `hermesctl` looks for its head in the same place."""
    if named := os.environ.get("HERMES_STATE"):
        return Path(named).expanduser().absolute()
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser().absolute() / "hermes"


class _Daemon(BaseModel):
    """What both daemons have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # One user's own head on a Unix socket that only this user can open: no token.
    embedded: bool = False
    # TLS of the TCP transport; all three or none.
    tls_certificate: FilePath | None = None
    tls_key: FilePath | None = None
    tls_ca: FilePath | None = None

    @model_validator(mode="after")
    def _tls_is_whole(self) -> _Daemon:
        given = [f for f in (self.tls_certificate, self.tls_key, self.tls_ca) if f is not None]
        if len(given) not in (0, 3):
            raise ValueError("tls_certificate, tls_key and tls_ca, all three or none of them")
        return self

    @property
    def tls(self) -> bool:
        return self.tls_certificate is not None


class HeadConfig(_Daemon):
    """The control daemon's settings."""

    # The journal and the uploaded code; a local disk.
    state_dir: FilePath = Field(default_factory=lambda: state_home() / "head")
    # For clients on this machine; unset: `head.sock` in state_dir.
    socket: FilePath | None = None
    # Other machines: host:port. Beyond loopback TLS is needed.
    listen: Address | None = None
    # Uploaded code snapshots: one, and all of them together.
    blob_limit_bytes: Bytes = 2 * GIB
    blobs_limit_bytes: Bytes = 50 * GIB
    # Prometheus' endpoint on loopback; unset: none.
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None

    @model_validator(mode="after")
    def _tcp_asks_for_tokens(self) -> HeadConfig:
        if self.embedded and self.listen:
            raise ValueError(
                "not embedded and listen together: an embedded head asks nobody for a token, so"
                " it may serve nothing but its own user's Unix socket"
            )
        return self

    @property
    def socket_path(self) -> Path:
        return self.socket or self.state_dir / "head.sock"


class NodeConfig(_Daemon):
    """The node daemon's settings."""

    name: Annotated[str, AfterValidator(_node_name)] = Field(default_factory=default_name)
    # Code snapshots, working copies, checkpoints, output.
    state_dir: FilePath = Field(default_factory=lambda: state_home() / "node")
    # Sockets of the live trials; unset: `run` in state_dir.
    runtime_dir: FilePath | None = None
    head: Target = Field(default_factory=lambda: f"unix:{state_home() / 'head' / 'head.sock'}")
    # What a head that is not embedded wants to see; unset: `node-token` beside its socket.
    token_file: FilePath | None = None
    # The cores of each CPU slot; a number means as many slots of one core; none: no CPU slots.
    cpu_slots: Slots = Field(default_factory=lambda: tuple((core,) for core in usable_cores()))
    gpus: bool = True
    # Parked trials beyond this are written to disk.
    parked_memory_bytes: Bytes = Field(default_factory=lambda: _physical_memory() // 2)
    # Working copies, checkpoints and output together.
    disk_budget_bytes: Bytes = 50 * GIB

    @model_validator(mode="after")
    def _plain_text_stays_here(self) -> NodeConfig:
        if not (self.tls or self.head.startswith("unix:") or _names_loopback(self.head)):
            raise ValueError(
                f"head = {self.head} only with tls_certificate, tls_key and tls_ca, since the token"
                " and the studies' code would cross the network in the clear; or a Unix socket, or"
                " a loopback address such as the end of a tunnel"
            )
        return self

    @property
    def token_path(self) -> Path | None:
        if self.token_file is not None or self.embedded or not self.head.startswith("unix:"):
            return self.token_file
        return Path(self.head.removeprefix("unix:")).with_name("node-token")

    @property
    def runtime_path(self) -> Path:
        return self.runtime_dir or self.state_dir / "run"


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def load_head(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> HeadConfig:
    """The head's settings. Raises ConfigError."""
    return _load(HeadConfig, "head", path, environ, flags)


def load_node(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> NodeConfig:
    """The node's settings. Raises ConfigError."""
    return _load(NodeConfig, "node", path, environ, flags)


def _load(
    section: type[Section],
    table: str,
    path: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
) -> Section:
    known = list(section.model_fields)
    values: dict[str, object] = dict(_table(path, table))
    origin = dict.fromkeys(values, str(path))
    prefix = f"HERMES_{table.upper()}_"
    for variable in sorted(v for v in environ if v.startswith(prefix)):
        key = variable.removeprefix(prefix).lower()
        if key not in known:
            names = [prefix + name.upper() for name in known]
            wrong = FieldError(variable, "", one_of(names), nearest(variable, names))
            raise ConfigError(f"environment: {wrong}")
        values[key], origin[key] = environ[variable], f"environment: {variable}"
    for key, flag in flags.items():
        if flag is not None:
            values[key], origin[key] = flag, f"--{key.replace('_', '-')}"
    try:
        return section.model_validate(values)
    except ValidationError as error:
        errors = from_pydantic(error, {"": known})
        lines = _lines(table, errors, origin, str(path or "settings"))
        raise ConfigError("\n".join(lines)) from None


def _lines(
    table: str, errors: Iterable[FieldError], origin: Mapping[str, str], other: str
) -> Iterable[str]:
    for error in errors:
        key = error.field_path.split(".")[0]
        yield f"{origin.get(key, other)}: {under(table, [error])[0]}"


def _table(path: Path | None, table: str) -> Mapping[str, object]:
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None
    for name, value in tables.items():
        if name not in ("head", "node") or not isinstance(value, dict):
            near = nearest(name, ["head", "node"])
            wrong = FieldError(name, "", "the tables [head] and [node]", near)
            raise ConfigError(f"{path}: {wrong}")
    found: dict[str, object] = tables.get(table, {})
    return found
