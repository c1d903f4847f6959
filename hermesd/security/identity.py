"""Who can be known to a head: roles, names in certificates, invitations.

An invitation holds the head's own authority, so even the first connection goes to the right head.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hermesd.pb.hermes.v1 import enroll_pb2 as pb

# What every head of its own authority is called in its certificate, whatever its address is.
SERVER_NAME = "head.hermes"
# With what an answer tells the mark of the authority's roots that count (`root_mark`).
MARK_KEY = "hermes-authority"
SECRET_BYTES = 16
_CHECK_BYTES = 4
# A token must not look like an option: what follows may begin with a hyphen.
_BEGIN = "invite_"


class Role(StrEnum):
    """What an identity may do."""

    NODE = "node"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


ROLES = {
    pb.IDENTITY_ROLE_NODE: Role.NODE,
    pb.IDENTITY_ROLE_USER: Role.USER,
    pb.IDENTITY_ROLE_OPERATOR: Role.OPERATOR,
    pb.IDENTITY_ROLE_ADMIN: Role.ADMIN,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a certificate is for."""

    role: Role
    name: str


class NotEnrolled(Exception):
    """An enrollment that came to nothing, and why."""


def uri_of(identity: Identity) -> str:
    """The identity as a certificate has it."""
    return f"hermes://{identity.role}/{identity.name}"


def identity_of(uri: str) -> Identity | None:
    """The identity of a certificate's URI; None if it is no such."""
    role, _, name = uri.removeprefix("hermes://").partition("/")
    known = uri.startswith("hermes://") and role in tuple(Role) and name
    return Identity(Role(role), name) if known else None


def said_token(word: str | None, file: Path | None) -> str:
    """A token that is on the command line, where everybody on the machine can read it, or in a file
    (`-`: on the standard input). Raises NotEnrolled."""
    if (word is None) == (file is None):
        raise NotEnrolled("a token, either as TOKEN or in --token-file (`-`: standard input)")
    if file is None:
        return word or ""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="ascii")
    except OSError as error:
        raise NotEnrolled(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NotEnrolled(f"{file}: holds no token") from None


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a token says: the secret, the port where it is redeemed, the roots of the head's
    authority (DER, one after the other)."""

    secret: bytes
    port: int
    authority: bytes

    def token(self) -> str:
        """As one word."""
        content = self.port.to_bytes(2, "big") + self.secret + self.authority
        check = hashlib.sha256(content).digest()[:_CHECK_BYTES]
        return _BEGIN + base64.urlsafe_b64encode(check + content).decode().rstrip("=")

    @classmethod
    def of(cls, token: str) -> Invitation:
        """Read a token. Raises NotEnrolled if it is none, or was cut."""
        word = token.strip().removeprefix(_BEGIN)
        try:
            whole = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
        except (binascii.Error, ValueError):
            whole = b""
        check, content = whole[:_CHECK_BYTES], whole[_CHECK_BYTES:]
        if not content or hashlib.sha256(content).digest()[:_CHECK_BYTES] != check:
            raise NotEnrolled(
                "the token is incomplete: copy the printed command once more, as a whole"
            )
        secret = content[2 : 2 + SECRET_BYTES]
        return cls(secret, int.from_bytes(content[:2], "big"), content[2 + SECRET_BYTES :])


def root_mark(pem: bytes) -> str:
    """What tells the certificates by which a head is known from others."""
    return hashlib.sha256(pem).hexdigest()[:16]


def server_name(node: str) -> str:
    """What a node is called in its certificate by those who fetch from it."""
    return f"{node}.node.hermes"
