"""The head's permission for a node to fetch a checkpoint from another node.

The key belongs to the giving node, which tells it to the head alone. So no node has to be told of a
ticket. It says for which node it was made, and when it ends by the giving node's own clock, which
the head knows from that node's messages.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct

# A start waits an hour at most for its checkpoint, turns of others included, and a copy is begun at
# once: twice that. It is looked at as each file begins, and a transfer that broke off is continued.
# A node that was revoked can use those that it has for so long.
TICKET_SECONDS = 7_200.0
_KEY_BYTES = 32
_END = struct.Struct("!d")
_BEFORE_NAME = _END.size + hashlib.sha256().digest_size


def new_key() -> bytes:
    """A node's key, for as long as its daemon runs."""
    return secrets.token_bytes(_KEY_BYTES)


def ticket(key: bytes, trial: str, checkpoint: str, bearer: str, ends: float) -> bytes:
    """Good for one checkpoint at the node with this key, until its clock is at `ends`, for the node
    `bearer`."""
    end, name = _END.pack(ends), bearer.encode()
    said = b"\n".join((end, trial.encode(), checkpoint.encode(), name))
    return end + hmac.digest(key, said, hashlib.sha256) + name


def bearer_of(found: bytes, key: bytes, trial: str, checkpoint: str, now: float) -> str | None:
    """For which node it was made, where it is the ticket for that checkpoint; None if it is not, or
    not any more."""
    try:
        (ends,), bearer = _END.unpack(found[: _END.size]), found[_BEFORE_NAME:].decode()
    except (struct.error, UnicodeDecodeError):
        return None
    good = hmac.compare_digest(found, ticket(key, trial, checkpoint, bearer, ends))
    return bearer if good and now < ends else None
