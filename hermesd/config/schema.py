"""What the daemons' settings may be: every key, its valid values, and its default.

No default is set anywhere else. `sources` reads settings from a file, the environment and flags.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    model_validator,
)

from hermesd.config.pools import Pools
from hermesd.config.slots import Slots, one_for_each_core
from hermesd.config.values import (
    NODE_NAME,
    AccountName,
    Address,
    Bytes,
    GpuList,
    NodeName,
    RunAs,
    ServiceHours,
    Target,
    UserName,
    usable_memory,
)
from hermesd.core import failures
from hermesd.core.sharing import HALF_LIFE_SECONDS, USUAL
from hermesd.expecting import expecting
from hermesd.refusal import shown
from hermesd.security import pem
from hermesd.security.enrollment import Membership

GIB = 2**30
StopsBy: TypeAlias = Literal["keep", "end", "part"]

# Absolute: hosts of trials look for what they are told of from directories of their own.
FilePath = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


def _names_loopback(address: str) -> bool:
    """By what is written: what a name stands for is another machine's to say, and may change."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
    # What its table is called, and which key another one follows from where that is not set.
    table: ClassVar[str]
    follows: ClassVar[Mapping[str, str]]

    # Of each key that was set: the file, the variable or the option.
    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

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

    def came_from(self, origins: Mapping[str, str]) -> None:
        """Remember where each key was set."""
        self._origins = origins

    def told(self, key: str) -> str:
        """The key with its value, and where it was set, for people."""
        value = getattr(self, key)
        if value is None and key in self.follows:
            return self.told(self.follows[key])
        origin = f"{self._origins[key]}: " if key in self._origins else ""
        return f"{origin}{self.table}.{key} = {shown(str(value))}"

    @contextmanager
    def taking(
        self, key: str, expected: str, remedy: str, *, secret: bool = False
    ) -> Iterator[None]:
        """Make a resource of a setting in the block. Raises StateRefused and StateAway with the
        setting's name and origin, PermissionError as it came."""
        value = getattr(self, key)
        path = value if isinstance(value, Path) else None
        with expecting(path, expected, remedy, secret=secret, called=self.told(key)):
            yield

    def tls_files(self) -> pem.Files | None:
        """What the three files of TLS hold, if they are set. Raises StateRefused, StateAway,
        PermissionError."""
        if self.tls_ca is None or self.tls_key is None or self.tls_certificate is None:
            return None
        remedy = "name the file, or restore it from where it was issued"
        with self.taking("tls_ca", "certificates in PEM", remedy):
            authority = pem.certificates(self.tls_ca)
        with self.taking("tls_certificate", "a certificate in PEM", remedy):
            certificate = pem.certificates(self.tls_certificate)
        words = "the key of tls_certificate in PEM, without a passphrase"
        with self.taking("tls_key", words, remedy, secret=True):
            key = pem.key_of(certificate, self.tls_key)
        return pem.Files(authority, key, certificate)


class _Table(BaseModel):
    """A table beside those of the daemons."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class UserTerms(_Table):
    """`[users.NAME]`: what one user may have of the devices, and of the head."""

    # The part of the devices beside other users; who is not named has 1.
    weight: Annotated[float, Field(ge=0.001, le=1000)] = USUAL.weight
    # At once; unset: any number.
    max_devices: Annotated[int, Field(ge=0, le=10**6)] | None = None
    max_unfinished_trials: Annotated[int, Field(ge=0, le=10**7)] | None = None
    # In all, those that are over included.
    max_studies: Annotated[int, Field(ge=0, le=10**6)] | None = None
    # For a node: as which account of its machine this user's programs run.
    account: AccountName | None = None


class FairShare(_Table):
    """`[fair_share]`: how what users had counts against them."""

    # What was used so long ago counts half.
    half_life_hours: Annotated[float, Field(ge=0.01, le=10_000)] = HALF_LIFE_SECONDS / 3600.0


class HeadConfig(_Daemon, Pools):
    """The control daemon's settings; its pools are tables of their own, `[pools.NAME]`."""

    table = "head"
    follows: ClassVar[Mapping[str, str]] = {"socket": "state_dir", "enroll": "listen"}

    # The journal and the uploaded code; a local disk.
    state_dir: FilePath = Field(default_factory=lambda: state_home() / "head")
    # For clients on this machine; unset: `head.sock` in state_dir.
    socket: FilePath | None = None
    # Other machines: host:port. Beyond loopback TLS is needed.
    listen: Address | None = None
    # Where machines and people redeem invitations; beyond loopback, if unset, the port after
    # listen's. With it the head is an authority of its own, and issues all certificates.
    enroll: Address | None = None
    # Uploaded code snapshots: one, and all of them together.
    blob_limit_bytes: Bytes = 2 * GIB
    blobs_limit_bytes: Bytes = 50 * GIB
    # How long a node's runs go on unheard; after 1.3 of it they may go on elsewhere (head/fleet).
    lease_seconds: Annotated[float, Field(ge=10, le=86_400)] = 600.0
    # A failure on a device weighs half as much after so long: see `hermesctl node show`.
    strike_half_life_seconds: Annotated[float, Field(ge=1, le=30 * 86_400)] = (
        failures.HALF_LIFE_SECONDS
    )
    # Tables of their own in the file, which is the only place where they can be set.
    users: dict[UserName, UserTerms] = Field(default_factory=dict)
    fair_share: FairShare = FairShare()
    # Prometheus' endpoint on loopback; unset: none.
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None

    @model_validator(mode="after")
    def _tcp_asks_for_tokens(self) -> HeadConfig:
        if self.embedded and self.listen:
            raise ValueError(
                "either embedded or listen, not both: an embedded head asks nobody for a token, so"
                " it may serve nothing but its own user's Unix socket"
            )
        return self

    @model_validator(mode="after")
    def _one_authority(self) -> HeadConfig:
        if self.enroll and (self.tls or not self.listen):
            raise ValueError(
                "enroll only beside listen, and not beside tls_ files: there is one authority"
            )
        return self

    @property
    def socket_path(self) -> Path:
        return self.socket or self.state_dir / "head.sock"

    @property
    def has_authority(self) -> bool:
        """Whether its port has certificates of the head's own."""
        return bool(self.listen) and not self.tls

    @property
    def enroll_address(self) -> str | None:
        """None where the head gives out no certificates."""
        if self.enroll or not self.listen or self.tls or _names_loopback(self.listen):
            return self.enroll
        host, _, port = self.listen.rpartition(":")
        return f"{host}:{int(port) + 1}"


class NodeConfig(_Daemon):
    """The node daemon's settings."""

    table = "node"
    follows: ClassVar[Mapping[str, str]] = {"runtime_dir": "state_dir", "transfer": "head"}

    name: NodeName = Field(default_factory=default_name)
    # Code snapshots, working copies, checkpoints, output.
    state_dir: FilePath = Field(default_factory=lambda: state_home() / "node")
    # Sockets of the live trials; unset: `run` in state_dir.
    runtime_dir: FilePath | None = None
    head: Target = Field(default_factory=lambda: f"unix:{state_home() / 'head' / 'head.sock'}")
    # What a head that is not embedded wants to see; unset: `node-token` beside its socket.
    token_file: FilePath | None = None
    # Where other nodes fetch checkpoints: host:port as they reach it. Unset: once joined, any port
    # of the address that leads to the head; else a socket, for the nodes of this machine.
    transfer: Address | None = None
    # The cores of each CPU slot, or its share of one ("70%"); a number means as many slots of one
    # core; none: no CPU slots. Unset: one for each core, unless there are GPUs.
    cpu_slots: Slots = Field(default_factory=one_for_each_core)
    gpus: bool = True
    # Of the GPUs these alone: numbers or beginnings of UUIDs, as CUDA_VISIBLE_DEVICES has them.
    visible_gpus: GpuList | None = None
    # Seen by other nodes, too: copies of checkpoints lie there instead of on these.
    shared_dir: FilePath | None = None
    # When it serves, by its own clock: ["Mon-Fri 19:00-07:00", "Sat-Sun"]; unset: always.
    hours: ServiceHours = None
    # What becomes of it when the daemon is told to end: "keep": trials run on, and the next daemon
    # takes them over; "end": they are written down and end, as where a container takes them along;
    # "part": the machine is on loan, all is taken elsewhere, and the head forgets the node.
    at_stop: StopsBy | None = None
    # Give a GPU back when a process of somebody else computes on it; unset: unless embedded.
    yield_gpus: bool | None = None
    # Parked trials beyond this are written to disk.
    parked_memory_bytes: Bytes = Field(default_factory=lambda: usable_memory() // 2)
    # As whom users' programs run: "self", the daemon's own account, on a machine of one person;
    # "users", the account of the user's name; or numbers such as "400000-465535", of which each
    # user gets one. Unset, only an embedded node runs any, as itself.
    run_as: RunAs | None = None
    # A table of its own in the file, of which a node reads the accounts.
    users: dict[UserName, UserTerms] = Field(default_factory=dict)
    # The CRIU that makes images of trials' processes, by name or path; "off": none are made.
    criu: str = "criu"
    # Working copies, checkpoints and output together.
    disk_budget_bytes: Bytes = 50 * GIB

    @model_validator(mode="before")
    @classmethod
    def _head_that_was_joined(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("head") or values.get("embedded"):
            return values
        state = values.get("state_dir") or state_home() / "node"
        membership = Membership(Path(state).expanduser() / "membership")
        if not membership.exists:
            return values
        return {"name": membership.identity.name, **values, "head": membership.head}

    @model_validator(mode="after")
    def _plain_text_stays_here(self) -> NodeConfig:
        if self.membership is not None:
            return self
        if not (self.tls or self.head.startswith("unix:") or _names_loopback(self.head)):
            raise ValueError(
                "a Unix socket or a loopback address, or tls_certificate, tls_key and tls_ca beside"
                f" head = {self.head}, or a node that has joined it (`hermesd node join`):"
                " otherwise the token and the studies' code would cross the network in the clear"
            )
        return self

    @property
    def membership(self) -> Membership | None:
        """What the node came by when it joined its head; None if this is another head."""
        membership = Membership(self.state_dir / "membership")
        is_ours = not self.tls and membership.exists and membership.head == self.head
        return membership if is_ours else None

    @property
    def names_slots(self) -> bool:
        """Whether somebody said which CPU slots there are."""
        return "cpu_slots" in self.model_fields_set

    @property
    def knows_its_head(self) -> bool:
        """Whether one was named or joined: else it is this user's own, if that runs."""
        return "head" in self.model_fields_set

    @property
    def token_path(self) -> Path | None:
        """None where a certificate says who this is: a token beside it would outlive that."""
        if self.membership is not None:
            return None
        if self.token_file is not None or self.embedded or not self.head.startswith("unix:"):
            return self.token_file
        return Path(self.head.removeprefix("unix:")).with_name("node-token")

    @property
    def stops_by(self) -> StopsBy:
        return self.at_stop or ("end" if self.embedded else "keep")

    @property
    def runs_as(self) -> str:
        return self.run_as or "self"

    @property
    def uid_range(self) -> tuple[int, int] | None:
        """The numbers of throw-away accounts, if there are such."""
        first, is_range, last = self.runs_as.partition("-")
        return (int(first), int(last)) if is_range else None

    @property
    def yields_gpus(self) -> bool:
        return not self.embedded if self.yield_gpus is None else self.yield_gpus

    @property
    def runtime_path(self) -> Path:
        return self.runtime_dir or self.state_dir / "run"
