"""A token as it is in a file: the secret that is sent, and the certificate by which its head is
known.

At a TCP port, the token is sent to whoever listens there, and on loopback any account can listen
while the head does not. So a token goes to a TCP port only once that has shown a certificate of the
authority that is in the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509

LIMIT_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Token:
    """A secret word, and whom to send it to."""

    word: str
    #: The certificate of the head's authority, PEM; empty where a head listens at its socket only.
    authority: bytes = b""

    @classmethod
    def of(cls, text: str) -> Token:
        """What a file holds. Raises ValueError for anything but one word, and maybe certificates
        below it."""
        word, _, rest = text.strip().partition("\n")
        word, rest = word.strip(), rest.strip()
        if not word or not word.isascii() or not word.isprintable() or " " in word:
            raise ValueError("not one token")
        if rest:
            x509.load_pem_x509_certificates(rest.encode())
        return cls(word, f"{rest}\n".encode() if rest else b"")

    def text(self) -> str:
        """For a file."""
        return f"{self.word}\n{self.authority.decode()}"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """With what a call shows it."""
        return (("authorization", f"Bearer {self.word}"),)
