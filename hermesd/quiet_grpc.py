"""Loads gRPC so that it says no more on standard error than what is an error.

To be imported before anything else that imports grpc. Its C core tells of every connection that
the other end ends, and of every handshake that fails, and reads what it may say when it is loaded;
whoever has set that is heard.
"""

from __future__ import annotations

import os

VERBOSITY = "GRPC_VERBOSITY"

_wanted = os.environ.get(VERBOSITY)
os.environ.setdefault(VERBOSITY, "ERROR")
try:
    import grpc  # noqa: F401 - it is loaded now
finally:
    if _wanted is None:  # programs that are started from here decide for themselves
        del os.environ[VERBOSITY]
