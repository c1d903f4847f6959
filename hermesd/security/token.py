"""A token as a file has it: the word that is sent, and what the head that it is for is known by.

On a TCP port, whoever listens there is sent the token, and any account can listen on loopback while
the head does not. So a token goes to a TCP port only once that has shown a certificate of the
authority beside it.
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
