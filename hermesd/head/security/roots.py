"""The keys by which the head's authority signs, and how a new one replaces an old one at run time.

The head is known by its root certificate, and knows everybody by the same one. So a rotation has
two halves. In the first, both roots are trusted, and everybody is told the new one, which signs
nothing yet. In the second, it signs all new certificates, since everybody knows it by then. At the
end the head's own certificate changes too, and the old root is no longer valid.

Only `rotation.json` says that a rotation is under way. So a process that ends at any moment has
either begun it or not, and has either ended it or not.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hermesd.head.statedir import StateRefused, expecting
from hermesd.security.enrollment import key_pem, write_private

ROOT_LIFE = datetime.timedelta(days=3650)
# Clocks of other machines may be behind.
_BEFORE = datetime.timedelta(hours=1)
_RESTORE = (
    "restore it from a backup; or move the whole folder away, and have everybody join again with"
    " new tokens"
)


@lru_cache
def _words(name: x509.Name) -> str:
    """Asked at each message of a node."""
    return name.rfc4514_string()


@dataclass(frozen=True, slots=True)
class Root:
    """A key, and the certificate by which it is known."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def name(self) -> str:
        """What certificates that it signed name as their issuer. No two roots have the same."""
        return _words(self.certificate.subject)

    def sign(
        self,
        key: ec.EllipticCurvePublicKey,
        subject: str,
        names: Sequence[x509.GeneralName],
        usages: Sequence[x509.ObjectIdentifier],
        life: datetime.timedelta,
    ) -> x509.Certificate:
        """It begins with the root: a clock of the head that is ahead locks nobody out."""
        begin = self.certificate.not_valid_before_utc
        return (
            _builder(_named(subject), self.certificate.subject, key, begin, life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self.key, hashes.SHA256())
        )


@dataclass(frozen=True, slots=True)
class RootRotation:
    """When the new root begins to sign, and when the old one is no longer valid."""

    signs_unix_seconds: float
    ends_unix_seconds: float


class Roots:
    """The roots in `folder`; the first is made if there is none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plan = folder / "rotation.json"
        if not (folder / "authority.crt").exists():  # it is written last
            begin = datetime.datetime.now(datetime.UTC) - _BEFORE
            _write(folder, "authority", _new(begin))
        self._load()
        self.advance()

    def _load(self) -> None:
        """Raises StateRefused, StateAway, PermissionError."""
        self.rotation: RootRotation | None = None
        if self._plan.exists():
            with expecting(self._plan, "when a rotation of the authority ends", _RESTORE):
                self.rotation = RootRotation(**json.loads(self._plan.read_bytes()))
            if self.rotation.ends_unix_seconds == 0:
                _write(self._folder, "authority", _read(self._folder, "next"))
                self._plan.unlink()
                _sync(self._folder)
                self.rotation = None
        #: What signs the head's own certificates.
        self.server = _read(self._folder, "authority")
        self._next = _read(self._folder, "next") if self.rotation is not None else None
        if self._next is None:
            for name in ("next.key", "next.crt"):
                (self._folder / name).unlink(missing_ok=True)
        self._next_signs = False

    @property
    def signing(self) -> Root:
        """What signs the certificates of everybody else."""
        return self._next if self._next is not None and self._next_signs else self.server

    @property
    def trusted(self) -> tuple[Root, ...]:
        """The roots that are trusted, the one that signs first: so each stage of a rotation has a
        list of its own."""
        others = (root for root in (self.server, self._next) if root is not None)
        return self.signing, *(root for root in others if root is not self.signing)

    def begin(self, overlap_seconds: float) -> None:
        """Have a new root take over: half of the time for it to be known, half for what it signs.
        None may be under way. Raises OSError."""
        assert self.rotation is None
        _write(self._folder, "next", _new(self.server.certificate.not_valid_before_utc))
        begun = _unix_seconds()
        rotation = RootRotation(begun + overlap_seconds / 2, begun + overlap_seconds)
        write_private(self._plan, json.dumps(asdict(rotation)).encode())
        self._load()

    def advance(self) -> bool:
        """Do what is due by now; False if nothing is. Raises OSError."""
        if self.rotation is None:
            return False
        now, signed = _unix_seconds(), self._next_signs
        self._next_signs = signed or now >= self.rotation.signs_unix_seconds
        if now < self.rotation.ends_unix_seconds:
            return self._next_signs is not signed
        # From here on it ends, whatever a clock says.
        write_private(self._plan, json.dumps(asdict(RootRotation(0, 0))).encode())
        self._load()
        return True


def _unix_seconds() -> float:
    return datetime.datetime.now(datetime.UTC).timestamp()


def _new(begin: datetime.datetime) -> Root:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named(f"Hermes {secrets.token_hex(4)}")
    certificate = (
        _builder(name, name, key.public_key(), begin, ROOT_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Root(key, certificate)


def _write(folder: Path, name: str, root: Root) -> None:
    write_private(folder / f"{name}.key", key_pem(root.key))
    content = root.certificate.public_bytes(serialization.Encoding.PEM)
    write_private(folder / f"{name}.crt", content)


def _read(folder: Path, name: str) -> Root:
    key_path, certificate_path = folder / f"{name}.key", folder / f"{name}.crt"
    if key_path.exists() and os.stat(key_path).st_mode & 0o077:
        raise PermissionError(f"{key_path} can be read by others: chmod 600 {key_path}")
    with expecting(key_path, "the authority's key", _RESTORE, secret=True):
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
    with expecting(certificate_path, "the authority's certificate", _RESTORE):
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
    if certificate.public_key() != key.public_key():
        raise StateRefused(
            f"{certificate_path} does not belong to the key {key_path.name}: {_RESTORE}"
        )
    return Root(key, certificate)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begin: datetime.datetime,
    life: datetime.timedelta,
) -> x509.CertificateBuilder:
    """`life` counts from now."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(datetime.datetime.now(datetime.UTC) + life)
    )
