"""Keys and certificates as files in PEM, seen to be that before gRPC has them: it does not say what
is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization


@dataclass(frozen=True, slots=True)
class Files:
    """The content of three: certificates of the authority, key, certificate."""

    authority: bytes
    key: bytes
    certificate: bytes


def certificates(path: Path) -> bytes:
    """A file of at least one. Raises ValueError for another, OSError."""
    content = path.read_bytes()
    x509.load_pem_x509_certificates(content)
    return content


def key_of(certificate: bytes, path: Path) -> bytes:
    """A file with the key of the first certificate in `certificate`. Raises ValueError or TypeError
    for another, OSError."""
    content = path.read_bytes()
    try:
        key = serialization.load_pem_private_key(content, None)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if x509.load_pem_x509_certificates(certificate)[0].public_key() != key.public_key():
        raise ValueError("the key of another certificate")
    return content
