"""Secrets that are good for so many enrolments: kept by hash, across restarts, until they end.

Rule: what was used up is remembered with the keys that it was used for: whoever did not hear the
answer asks again with the same key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hermesd.core.model import Time
from hermesd.enrolment import write_private
from hermesd.head.statedir import expecting
from hermesd.identity import SECRET_BYTES, Role

OPEN_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Invited:
    """Who may redeem a secret, how often: `name` is empty where any name will do. `keys` are marks
    of those by which it was."""

    role: Role
    name: str
    expires: Time
    uses: int = 1
    keys: tuple[str, ...] = ()


class Invitations:
    """The open ones, in the file `path`; `now` is the head's clock."""

    def __init__(self, path: Path, now: Callable[[], Time]) -> None:
        self._path = path
        self._now = now
        self._open: dict[str, Invited] = {}
        if path.exists():
            remedy = "remove it, and make those tokens anew that nobody has used yet"
            with expecting(path, "the invitations that are open", remedy, secret=True):
                for digest, role, name, expires, uses, *keys in json.loads(path.read_bytes()):
                    self._open[digest] = Invited(Role(role), name, expires, uses, tuple(*keys))

    def invite(self, role: Role, name: str, valid_seconds: float, uses: int = 1) -> bytes:
        """A new secret. Raises OverflowError while too many are open."""
        self._forget_ended()
        if sum(invited.uses > 0 for invited in self._open.values()) >= OPEN_LIMIT:
            raise OverflowError(f"{OPEN_LIMIT} invitations are open")
        secret = secrets.token_bytes(SECRET_BYTES)
        self._open[_digest(secret)] = Invited(role, name, self._now() + valid_seconds, uses)
        self._write()
        return secret

    def find(self, secret: bytes) -> Invited | None:
        """Whom it is for, without uses left where it is used up; None for a secret that is unknown
        or too old."""
        self._forget_ended()
        return self._open.get(_digest(secret))

    def use(self, secret: bytes, key: str) -> None:
        """Count one use, by the key of this mark, of a secret that was found with uses left."""
        digest = _digest(secret)
        found = self._open[digest]
        self._open[digest] = replace(found, uses=found.uses - 1, keys=(*found.keys, key))
        self._write()

    def withdraw(self, role: Role, name: str) -> bool:
        """Take back those that are for this name; False if there are none."""
        self._forget_ended()
        left = {d: i for d, i in self._open.items() if (i.role, i.name) != (role, name)}
        if len(left) == len(self._open):
            return False
        self._open = left
        self._write()
        return True

    def take_back(self, secret: bytes) -> bool:
        """Have this one redeemed no more; False if it is unknown or too old."""
        known = self.find(secret) is not None
        if known:
            del self._open[_digest(secret)]
            self._write()
        return known

    def _forget_ended(self) -> None:
        now = self._now()
        self._open = {d: invited for d, invited in self._open.items() if invited.expires > now}

    def _write(self) -> None:
        entries = [[d, i.role, i.name, i.expires, i.uses, i.keys] for d, i in self._open.items()]
        write_private(self._path, json.dumps(entries).encode())


def _digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()
