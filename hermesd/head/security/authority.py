"""The head's own certificate authority, which says who is who in connections from other machines.

A name alone proves nothing. Only the certificate that an identity uses and its renewals count, so
enrolling a name again, or revoking it, ends the earlier certificates. Someone whose renewal was
lost on its way, or could not be written to disk, can ask again. Each renewal is for a new key,
which its owner keeps until it has the certificate. So if a certificate is renewed a second time for
another key, whoever asks either has a copy of the key, or is the owner after a thief.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from hermesd.core.model import PoolId
from hermesd.head.security.roots import RootRotation, Roots
from hermesd.head.statedir import expecting
from hermesd.security import pem
from hermesd.security.enrollment import key_pem, write_private
from hermesd.security.identity import SERVER_NAME, Identity, Role, root_mark, server_name, uri_of

SERVER_LIFE = datetime.timedelta(days=365)
CERTIFICATE_LIFE = datetime.timedelta(days=90)
# For one key: no more are asked for by who gets none of them.
_RENEWALS_COUNTED = 16
_SUPERSEDED_KNOWN = 16
_RESTORE = (
    "restore it from a backup; or move the whole folder away, and have everybody join again with"
    " new tokens"
)


class Grant(NamedTuple):
    """What a node was granted when it was invited."""

    #: Its name was chosen for it.
    named: bool = False
    #: Empty for none.
    pool: PoolId = ""
    #: How many devices it may have; 0 for any number.
    most_devices: int = 0
    #: Whose trials it runs; empty for everybody's.
    owner: str = ""


NOTHING = Grant()


class Keyed(NamedTuple):
    """Certificates for one key, by the key's mark (`key_mark`) and their serial numbers: more than
    one where an answer got lost, and was asked for again."""

    key: str
    serials: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Issued:
    """What is known of an identity: the certificates that count, of the key in use and of the one
    that it was renewed for, if it was; when the newest ends; what was granted by the invitation;
    the last certificates that count no more, as a renewal of theirs was renewed; and the mark of
    the roots that counted when the newest was given."""

    keyed: tuple[Keyed, ...]
    expires_unix_seconds: float
    grant: Grant = NOTHING
    superseded: tuple[int, ...] = ()
    roots: str = ""

    def renewed(self, used: int, key: str, serial: int) -> Issued:
        """With the renewal `serial` for this key of the certificate `used`, which counts; what was
        before that is no longer valid. Raises Stolen where somebody has renewed it for another
        key."""
        place = next(i for i, keyed in enumerate(self.keyed) if used in keyed.serials)
        gone, holder, *later = self.keyed[:place], *self.keyed[place:]
        if key == holder.key and not later:
            renewals = [_with(holder, serial)]
        elif not later:
            renewals = [holder, Keyed(key, (serial,))]
        elif key == later[0].key:
            renewals = [holder, _with(later[0], serial)]
        else:
            raise Stolen
        before = (*self.superseded, *(number for each in gone for number in each.serials))
        return replace(self, keyed=tuple(renewals), superseded=before[-_SUPERSEDED_KNOWN:])


class Stolen(Exception):
    """Two have the key of one certificate, and there is no telling who should."""


def _with(keyed: Keyed, serial: int) -> Keyed:
    return keyed._replace(serials=(*keyed.serials, serial)[-_RENEWALS_COUNTED:])


class Authority:
    """Signs certificates and remembers which of them count. Everything lies in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._ledger_path = folder / "issued.json"
        with expecting(folder, "the directory of the authority", _RESTORE, secret=True):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._roots = Roots(folder)
        self._know()
        with expecting(self._ledger_path, "the certificates that count", _RESTORE):
            self._ledger = _read_ledger(self._ledger_path)
        # What was written of each: only one changes when all of a cluster renew after each other.
        self._lines: dict[Identity, tuple[Issued, str]] = {}
        self._server: pem.Files | None = None
        self._server_anew = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def _know(self) -> None:
        trusted = [root.certificate for root in self._roots.trusted]
        #: The authority's own certificate; two while it changes, the one that signs first. Likewise
        #: `roots_der`, one after the other.
        self.roots_pem = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in trusted)
        self.roots_der = b"".join(one.public_bytes(serialization.Encoding.DER) for one in trusted)
        #: What tells these from others: who knows those is to renew.
        self.mark = root_mark(self.roots_pem)

    @property
    def rotation(self) -> RootRotation | None:
        """The change to a new root that is under way, if one is."""
        return self._roots.rotation

    def rotate(self, overlap_seconds: float) -> None:
        """Begin such a change; none may be under way. Raises OSError."""
        self._roots.begin(overlap_seconds)
        self._know()

    def advance(self) -> None:
        """Go on with it, as far as is due by now. Raises OSError."""
        if self._roots.advance():
            self._know()

    def trusts(self, issuer: str) -> bool:
        """Whether certificates of this root still count."""
        return any(issuer == root.name for root in self._roots.trusted)

    def server_files(self) -> pem.Files:
        """For the head's own ports. The key and the certificate are kept nowhere, and made anew
        long before they end."""
        now, roots = datetime.datetime.now(datetime.UTC), self.roots_pem
        if self._server is None or now >= self._server_anew or self._server.authority != roots:
            key = ec.generate_private_key(ec.SECP256R1())
            names = [x509.DNSName(SERVER_NAME)]
            usages = [ExtendedKeyUsageOID.SERVER_AUTH]
            root = self._roots.server
            signed = root.sign(key.public_key(), SERVER_NAME, names, usages, SERVER_LIFE)
            certificate = signed.public_bytes(serialization.Encoding.PEM)
            self._server = pem.Files(roots, key_pem(key), certificate)
            self._server_anew = now + SERVER_LIFE / 2
        return self._server

    def issue(
        self,
        identity: Identity,
        request: x509.CertificateSigningRequest,
        grant: Grant = NOTHING,
    ) -> bytes:
        """A certificate for `identity`'s first enrollment; earlier ones no longer count."""
        certificate, serial, expires = self._signed(identity, request)
        keyed = Keyed(key_mark(request), (serial,))
        issued = Issued((keyed,), expires, grant, roots=self.mark)
        self._keep({**self._ledger, identity: issued})
        return certificate

    def renew(
        self, identity: Identity, used: int, request: x509.CertificateSigningRequest
    ) -> bytes:
        """A certificate beside the one in use, which has the number `used` and counts. What was
        before that is no longer valid, as its holder has the later one.

        Raises Stolen, once the identity is revoked, where it was renewed for another key before:
        whoever asks again because an answer got lost asks by the same.
        """
        certificate, serial, expires = self._signed(identity, request)
        try:
            issued = self._ledger[identity].renewed(used, key_mark(request), serial)
        except Stolen:
            self.revoke(identity)
            raise
        issued = replace(issued, expires_unix_seconds=expires, roots=self.mark)
        self._keep({**self._ledger, identity: issued})
        return certificate

    def revoke(self, identity: Identity) -> bool:
        """No certificate of it counts from here on; False if it had none."""
        if identity not in self._ledger:
            return False
        self._keep({known: it for known, it in self._ledger.items() if known != identity})
        return True

    def counts(self, identity: Identity, serial: int) -> bool:
        """Whether a certificate that this authority signed still stands for `identity`.

        Raises Stolen, once the identity is revoked, for one whose renewal was renewed: its owner
        has no more use for it, and somebody has a copy.
        """
        known = self._ledger.get(identity)
        if known is not None and serial in known.superseded:
            self.revoke(identity)
            raise Stolen
        return known is not None and any(serial in keyed.serials for keyed in known.keyed)

    def is_held_by(self, identity: Identity, key: str) -> bool:
        """Whether the newest certificate of `identity` is for the key of this mark."""
        known = self._ledger.get(identity)
        return known is not None and known.keyed[-1].key == key

    def is_due(self, identity: Identity) -> bool:
        """Whether it is to renew: it has no certificate of the roots that count now, or that is in
        its last third."""
        known, now = self._ledger.get(identity), datetime.datetime.now(datetime.UTC).timestamp()
        last = CERTIFICATE_LIFE.total_seconds() / 3
        return known is not None and (
            known.roots != self.mark or known.expires_unix_seconds - now < last
        )

    def identities(self) -> dict[Identity, Issued]:
        """Everybody who may connect."""
        return dict(self._ledger)

    def owner_of(self, identity: Identity) -> str:
        """For whose trials alone a node is; empty for everybody's."""
        known = self._ledger.get(identity)
        return known.grant.owner if known is not None else ""

    def nodes_of(self, owner: str) -> set[str]:
        """The names of the nodes for this user's trials alone, less those whose certificates have
        ended."""
        now = datetime.datetime.now(datetime.UTC).timestamp()
        return {
            one.name
            for one, issued in self._ledger.items()
            if issued.grant.owner == owner and issued.expires_unix_seconds > now
        }

    def _signed(
        self, identity: Identity, request: x509.CertificateSigningRequest
    ) -> tuple[bytes, int, float]:
        """A certificate in PEM, its serial number, and when it ends, in Unix seconds."""
        key = request.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri_of(identity))]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity.role is Role.NODE:  # other nodes fetch checkpoints from it
            names.append(x509.DNSName(server_name(identity.name)))
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        signed = self._roots.signing.sign(key, identity.name, names, usages, CERTIFICATE_LIFE)
        expires = signed.not_valid_after_utc.timestamp()
        return signed.public_bytes(serialization.Encoding.PEM), signed.serial_number, expires

    def _keep(self, ledger: dict[Identity, Issued]) -> None:
        """Have this ledger, once it is on the disk. Raises OSError."""
        lines: dict[Identity, tuple[Issued, str]] = {}
        for identity, issued in ledger.items():
            known, line = self._lines.get(identity, (None, ""))
            lines[identity] = issued, line if known is issued else _line(identity, issued)
        body = ",\n".join(line for _, line in lines.values())
        write_private(self._ledger_path, f"[\n{body}\n]\n".encode())
        self._ledger, self._lines = ledger, lines


def _line(identity: Identity, issued: Issued) -> str:
    """What the ledger has of one identity, in JSON."""
    return json.dumps([
        identity.role, identity.name,
        [[key, [str(serial) for serial in serials]] for key, serials in issued.keyed],
        issued.expires_unix_seconds, issued.grant,
        [str(serial) for serial in issued.superseded], issued.roots,
    ])  # fmt: skip


def key_mark(request: x509.CertificateSigningRequest) -> str:
    """What tells the key that a certificate is asked for from all others."""
    public = request.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(public).hexdigest()[:32]


def _read_ledger(path: Path) -> dict[Identity, Issued]:
    if not path.exists():
        return {}
    entries = json.loads(path.read_bytes())
    return {Identity(role, name): _issued(*known) for role, name, *known in entries}


def _issued(
    keyed: Sequence[Any],
    expires: float,
    grant: Any = (),
    superseded: Sequence[str] = (),
    roots: str = "",
) -> Issued:
    if not isinstance(keyed[0], list):  # before 0.1.0: serial numbers, and then the one key
        keyed, grant = [[grant or "", keyed]], ()
    return Issued(
        tuple(Keyed(key, tuple(map(int, serials))) for key, serials in keyed),
        expires,
        Grant(*grant),
        tuple(map(int, superseded)),
        roots,
    )
