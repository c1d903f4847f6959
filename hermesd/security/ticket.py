"""The head's permission for a node to fetch a checkpoint from another node.

The key belongs to the giving node, which tells it to the head alone. So no node has to be told of a
ticket.
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
