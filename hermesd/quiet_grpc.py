"""Loads gRPC so that it writes nothing of its own to standard error.

To be imported before anything else that imports grpc. Its C core tells of every connection that
the other end ends, of every handshake that fails, and on a busy machine of threads that end late;
what fails for a caller reaches it as an RpcError all the same. It reads what it may say when it is
loaded; whoever has set that is heard.
"""

from __future__ import annotations

import os

VERBOSITY = "GRPC_VERBOSITY"

_wanted = os.environ.get(VERBOSITY)
os.environ.setdefault(VERBOSITY, "NONE")
try:
    import grpc  # noqa: F401 - it is loaded now
finally:
    if _wanted is None:  # programs that are started from here decide for themselves
        del os.environ[VERBOSITY]
