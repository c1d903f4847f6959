"""How a machine or a person enrolls with a head: the key, the certificate, and where they are
stored.

The key never leaves the machine where it was made.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hermesd.expecting import expecting
from hermesd.pb.hermes.v1 import enroll_pb2 as pb
from hermesd.pb.hermes.v1 import enroll_pb2_grpc
from hermesd.security import pem
from hermesd.security.accounts import account
from hermesd.security.identity import (
    ROLES,
    SERVER_NAME,
    Identity,
    Invitation,
    NotEnrolled,
    Role,
    root_mark,
)

CALL_SECONDS = 20.0
# An answer that is lost is asked for again; then it is for whoever enrolls to do so.
_ASKED = 2
# After these nobody knows whether the head has said yes.
_UNANSWERED = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
)
# A certificate is renewed in the last third of its 90 days. When it begins tells nothing of them.
_KEY = "the key of member.crt"
_NEXT_KEY = "renewal.key"
_RENEWED_BEFORE_END = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Membership:
    """A folder with what an enrolled machine or person has: key, certificate, the head's own."""

    folder: Path

    @property
    def exists(self) -> bool:
        """Whether an enrollment came to its end here."""
        return self._about.exists()

    @property
    def head(self) -> str:
        """HOST:PORT of the head."""
        return self._read()[0]

    @property
    def identity(self) -> Identity:
        """Who this is to the head."""
        return self._read()[1]

    @property
    def _about(self) -> Path:
        return self.folder / "membership.json"

    def _read(self) -> tuple[str, Identity]:
        with self._reading("membership.json", "the head that was joined, and who this is to it"):
            about = json.loads(self._about.read_bytes())
            head, role, name = about["head"], Role(about["role"]), about["name"]
            if not isinstance(head, str) or not isinstance(name, str) or not (head and name):
                raise ValueError(about)
            return head, Identity(role, name)

    def _reading(
        self, name: str, content: str, *, secret: bool = False
    ) -> AbstractContextManager[None]:
        """Raises StateRefused, StateAway for what is damaged."""
        remedy = (
            f"put it back of a backup, or remove {self.folder} and join its head again with a new"
            " token"
        )
        return expecting(self.folder / name, content, remedy, secret=secret)

    def credentials(self) -> grpc.ChannelCredentials:
        """For a channel with `channel_options` to the head or a node. Raises as `files` does."""
        files = self.files()
        return grpc.ssl_channel_credentials(files.authority, files.key, files.certificate)

    def seconds_to_renewal(self, now: datetime.datetime) -> float:
        """Until the certificate is in the last third of its life; 0 if it is by now. Raises as
        `files` does."""
        certificate = x509.load_pem_x509_certificate(self.files().certificate)
        due = certificate.not_valid_after_utc - _RENEWED_BEFORE_END
        return max(0.0, (due - now).total_seconds())

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a port that takes those alone whom the same head knows, and has the renewals of
        this one's certificate. Raises as `files` does."""
        return pem.server_credentials(self.files, members_only=True)

    def is_of(self, mark: str) -> bool:
        """Whether what is known of the head's authority is what counts there now, by its mark; so
        it is where the head says nothing of it. Raises as `files` does."""
        return mark in ("", root_mark(self.files().authority))

    async def renew(
        self,
        now: datetime.datetime,
        opened: Callable[[], grpc.aio.Channel],
        mark: str = "",
    ) -> bool:
        """Have a newer certificate given, for a new key, over a channel that `opened` opens with
        the present one, and with it the authority's own, which has this `mark` at the head. False
        where neither is due by now, as another process has them.

        To the head, a renewal for another key is one by another holder: so it is asked for by one
        process at a time, and by the same key until there is an answer. Raises AioRpcError,
        OSError (BlockingIOError where another process asks), and as `files` does.
        """
        lock = os.open(self.folder / "renewal.lock", os.O_CREAT | os.O_RDWR, 0o600)
        with os.fdopen(lock, "wb"):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.seconds_to_renewal(now) > 0 and self.is_of(mark):
                return False
            asking = self.folder / _NEXT_KEY
            if not asking.exists():
                write_private(asking, key_pem(ec.generate_private_key(ec.SECP256R1())))
            with self._reading(_NEXT_KEY, _KEY, secret=True):
                request = pb.RenewRequest(signing_request=_signing_request(_read_key(asking)))
            async with opened() as channel:
                stub: Any = enroll_pb2_grpc.EnrollServiceStub(channel)
                response = await stub.Renew(request, timeout=CALL_SECONDS)
            write_private(self.folder / "member.crt", response.certificate)
            replace_file(asking, self.folder / "member.key")
            if response.authority:  # last: by it one sees that the others are of its time
                write_private(self.folder / "authority.crt", response.authority)
        return True

    def files(self) -> pem.Files:
        """What was given at the enrollment. Raises StateRefused for damaged files, StateAway for
        those that cannot be read for now, PermissionError."""
        with self._reading("authority.crt", "the certificate of the head's authority"):
            authority = pem.certificates(self.folder / "authority.crt")
        with self._reading("member.crt", "the certificate that the head gave"):
            certificate = pem.certificates(self.folder / "member.crt")
        with self._reading("member.key", _KEY, secret=True):
            try:
                key = pem.key_of(certificate, self.folder / "member.key")
            except ValueError:
                # The last step of a renewal is still to come, or never came.
                if not (self.folder / _NEXT_KEY).exists():
                    raise
                key = pem.key_of(certificate, self.folder / _NEXT_KEY)
        return pem.Files(authority, key, certificate)


def channel_options(name: str = SERVER_NAME) -> list[tuple[str, str]]:
    """What a channel to a server of the head's authority needs, whatever its address."""
    return [("grpc.ssl_target_name_override", name)]


def enroll(
    head: str, token: str, name: str, folder: Path, machine: bool | None = None
) -> Membership:
    """Redeem an invitation to the head at HOST:PORT `head`; what comes of it lies in `folder`.

    `machine` says whether one for a node or one for a person will do; None: either. Raises
    NotEnrolled: where the folder cannot be had or `head` is not where the head listens, before the
    invitation is used up. No file is written before the head has said yes, but the key: where its
    answer does not come, the same again asks for it by the same key.
    """
    invitation = Invitation.of(token)
    host = head.rpartition(":")[0]
    if not host:
        raise NotEnrolled(f"{head}: expected HOST:PORT, for example head.example.org:7411")
    _make_folder(folder)
    asking = folder / "asking.key"
    fresh = not asking.exists()
    key = _asking_key(asking)
    authority = _authority_pem(invitation.authority)
    request = pb.EnrollRequest(
        secret=invitation.secret, name=name, signing_request=_signing_request(key)
    )
    if machine is not None:
        request.machine = machine
    try:
        _find(head, invitation.port, authority)
        response = _ask(f"{host}:{invitation.port}", authority, request)
    except NotEnrolled as error:
        if fresh and not isinstance(error, _Unanswered):
            with contextlib.suppress(OSError):
                asking.unlink()
                folder.rmdir()  # unless there is something of an earlier enrollment in it
        raise
    about = {"head": head, "role": ROLES[response.role], "name": response.name}
    membership = Membership(folder)
    try:
        for file, content in (
            ("authority.crt", authority),
            ("member.key", key_pem(key)),
            ("member.crt", response.certificate),
            ("membership.json", json.dumps(about).encode()),
        ):
            write_private(folder / file, content)
        asking.unlink()
        (folder / _NEXT_KEY).unlink(missing_ok=True)
    except OSError as error:
        raise NotEnrolled(
            f"{folder / file}: {error.strerror}; the head has let it in: once the file can be"
            " written, run the same command again"
        ) from None
    return membership


class _Unanswered(NotEnrolled):
    """The head may have said yes."""


def _asking_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key of an enrollment whose answer never came, or a new one, safe before it is used.

    Raises NotEnrolled.
    """
    try:
        if path.exists():
            return _read_key(path)
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(path, key_pem(key))
    except (OSError, ValueError, TypeError) as error:
        raise NotEnrolled(f"{path}: {error}; the token was not used") from None
    return key


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Raises OSError, ValueError, TypeError."""
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not a key of an elliptic curve")
    return key


def _make_folder(folder: Path) -> None:
    """Raises NotEnrolled where the daemon that it is for could not read what will lie there."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if os.geteuid() == 0 and (owner := there.stat().st_uid) != 0:
        raise NotEnrolled(
            f"{there} belongs to {account(owner)}, who could not read what root writes: run this as"
            f" that user (sudo -u {account(owner)})"
        )
    try:
        for path in reversed([folder, *folder.parents]):
            if not path.is_dir():  # `parents` would leave those above open to everybody
                path.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise NotEnrolled(
            f"{folder} cannot be made ({error.strerror}): run this as the user that its daemon runs"
            " as, or name another folder; the token was not used"
        ) from None


def _find(head: str, reception: int, authority: bytes) -> None:
    """See that the head of this authority listens at `head`: what joins there finds it again.

    Raises NotEnrolled.
    """
    host, _, port = head.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.decode())
    try:
        if int(port) == reception:
            raise NotEnrolled(
                f"{head}: that is where tokens are redeemed; expected the address that the head's"
                " `listen` has, as in the command that was printed; the token was not used"
            )
        with (
            socket.create_connection((host.strip("[]"), int(port)), CALL_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=SERVER_NAME),
        ):
            pass  # it has shown its certificate; ours is still to come
    except (OSError, ValueError, OverflowError) as error:
        raise NotEnrolled(
            f"{head}: no head answers there, or not the one that the token is from: {error};"
            " expected the address that its `listen` has; the token was not used"
        ) from None


def _ask(address: str, authority: bytes, request: pb.EnrollRequest) -> pb.EnrollResponse:
    """Raises NotEnrolled, _Unanswered."""
    credentials = grpc.ssl_channel_credentials(authority)
    options = [*channel_options(), ("grpc.enable_http_proxy", 0)]
    with grpc.secure_channel(address, credentials, options=options) as channel:
        stub = enroll_pb2_grpc.EnrollServiceStub(channel)
        left = _ASKED
        while True:
            try:
                return stub.Enroll(request, timeout=CALL_SECONDS)
            except grpc.RpcError as failed:
                error: grpc.Call = failed  # type: ignore[assignment]  # a failed call is both
                left -= 1
                if error.code() not in _UNANSWERED:
                    raise NotEnrolled(f"{address}: {error.details()}") from None
                if not left:
                    raise _Unanswered(
                        f"{address}: no answer, or not of the head that the token is from:"
                        f" {error.details()}; run the same command again: even if the head had"
                        " answered, the token still works for it"
                    ) from None


def _authority_pem(der: bytes) -> bytes:
    """Of one certificate or more, one after the other: a DER sequence says how long it is."""
    found = b""
    try:
        while der or not found:
            whole = 4 + int.from_bytes(der[2:4], "big")
            certificate = x509.load_der_x509_certificate(der[:whole])
            found += certificate.public_bytes(serialization.Encoding.PEM)
            der = der[whole:]
    except ValueError:
        raise NotEnrolled("the token holds no certificate of a head") from None
    return found


def _signing_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key as a file has it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write_private(path: Path, content: bytes) -> None:
    """Replace a file whole, safe on the disk, readable by its owner alone."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    replace_file(partial, path)


def replace_file(new: Path, path: Path) -> None:
    """Give a file the name of another, safe on the disk."""
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
