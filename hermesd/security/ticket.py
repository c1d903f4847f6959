"""The head's word to a node that another may have a checkpoint.

The key is the giving node's own, told to the head alone; so no node need be told of a ticket.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

_KEY_BYTES = 32


def new_key() -> bytes:
    """A node's key, for as long as its daemon runs."""
    return secrets.token_bytes(_KEY_BYTES)


def ticket(key: bytes, trial: str, checkpoint: str) -> bytes:
    """Good for one checkpoint at the node with this key."""
    return hmac.digest(key, f"{trial}\n{checkpoint}".encode(), hashlib.sha256)


def is_good(found: bytes, key: bytes, trial: str, checkpoint: str) -> bool:
    """Whether it is the ticket for that checkpoint."""
    return hmac.compare_digest(found, ticket(key, trial, checkpoint))
