"""The tokens that an admin has made for people: whose they are, and until when they are valid.

The head keeps only their hashes.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from hermesd.core.model import Time
from hermesd.head.refusals import Doubled, TooMuch
from hermesd.head.statedir import expecting
from hermesd.security.enrollment import write_private
from hermesd.security.identity import Identity, Role
from hermesd.security.token import Token

TOKENS_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token that the head accepts."""

    #: Tells it from the others.
    name: str
    role: Role
    user: str
    made: Time
    expires: Time
    #: Who made it.
    by: str

    @property
    def holder(self) -> Identity:
        """Who calls with it."""
        return Identity(self.role, self.user)


class Tokens:
    """All of them, in the file `path`; `now` is the head's clock, `authority` the certificate by
    which their holders know it, PEM, or empty."""

    def __init__(self, path: Path, now: Callable[[], Time], authority: bytes) -> None:
        self._path = path
        self._now = now
        self._authority = authority
        self._known: dict[str, KnownToken] = {}
        if path.exists():
            remedy = "remove it, and make new tokens for people"
            with expecting(path, "the tokens of people", remedy, secret=True):
                for digest, fields in json.loads(path.read_bytes()).items():
                    role = Role(fields.pop("role"))
                    self._known[digest] = KnownToken(role=role, **fields)

    def issue(self, name: str, holder: Identity, valid_seconds: float, by: str) -> Token:
        """A new one. Raises Doubled for a name that is taken, TooMuch."""
        if any(token.name == name for token in self.all()):
            raise Doubled(f"there is a token {name}: revoke it first, or give another name")
        if len(self.all()) >= TOKENS_LIMIT:
            raise TooMuch(f"there are {TOKENS_LIMIT} tokens: revoke some")
        word, now = f"hermes_{secrets.token_urlsafe(32)}", self._now()
        token = KnownToken(name, holder.role, holder.name, now, now + valid_seconds, by)
        self._keep({**self._known, _digest(word): token})
        return Token(word, self._authority)

    def find(self, word: str) -> KnownToken | None:
        """The token of this word; None if there is none, or none any more."""
        known = self._known.get(_digest(word))
        return known if known is not None and known.expires > self._now() else None

    def stands(self, token: KnownToken) -> bool:
        """Whether one that was found still is."""
        return token.expires > self._now() and token in self._known.values()

    def all(self) -> list[KnownToken]:
        """Those that have not ended, the newest last."""
        return [token for token in self._known.values() if token.expires > self._now()]

    def revoke(self, name: str) -> KnownToken | None:
        """End one; None if there is none of that name."""
        gone = next((token for token in self.all() if token.name == name), None)
        if gone is not None:
            self._keep({digest: token for digest, token in self._known.items() if token != gone})
        return gone

    def revoke_of(self, holder: Identity) -> bool:
        """End all of a person in this role; False if there are none."""
        left = {digest: one for digest, one in self._known.items() if one.holder != holder}
        if len(left) == len(self._known):
            return False
        self._keep(left)
        return True

    def _keep(self, known: dict[str, KnownToken]) -> None:
        """Have these, but for those that have ended, once they are on the disk. Raises OSError."""
        now = self._now()
        known = {digest: token for digest, token in known.items() if token.expires > now}
        entries = {digest: asdict(token) for digest, token in known.items()}
        write_private(self._path, json.dumps(entries, indent=1).encode())
        self._known = known


def _digest(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()
