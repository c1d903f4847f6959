"""Keys and certificates in PEM files, checked before gRPC gets them, since it does not say what is
wrong with them; and ports that use them, which outlive them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from hermesd.expecting import StateAway, StateRefused
from hermesd.security.identity import Identity, identity_of


@dataclass(frozen=True, slots=True)
class Files:
    """The content of three: certificates of the authority, key, certificate."""

    authority: bytes
    key: bytes
    certificate: bytes


def server_credentials(read: Callable[[], Files], members_only: bool) -> grpc.ServerCredentials:
    """For a port. Each handshake has what `read` gives then, or gave last where it raises OSError,
    StateRefused or StateAway; the first time raises them. `members_only` lets in those alone who
    have a certificate of the same authority."""

    def configuration(files: Files) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(files.key, files.certificate)], files.authority
        )

    last, lock = read(), threading.Lock()

    def newest() -> grpc.ServerCertificateConfiguration | None:
        """What is new, for gRPC to take instead of what it has. It frees that at once, also while
        another thread begins a handshake with it, which ends the process (grpc/grpc#36693): it is
        given nothing while nothing has changed."""
        nonlocal last
        with lock, contextlib.suppress(OSError, StateRefused, StateAway):
            if (files := read()) != last:
                last = files
                return configuration(files)
        return None

    return grpc.dynamic_ssl_server_credentials(
        configuration(last),
        newest,  # type: ignore[arg-type]  # None is "unchanged", which the stubs do not know
        members_only,
    )


def identity(certificate: x509.Certificate) -> Identity | None:
    """Whom one of the head's authority is for; None where it says nothing of the kind."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return None
    uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    return identity_of(uris[0]) if len(uris) == 1 else None


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
