"""The command line and the Python SDK: they speak to the head by protos only.

    from hermesctl import Client

    with Client(local=True) as hermes:
        study = hermes.submit("study.yaml")
        hermes.wait(study)
        best = hermes.best(study)[0]
        hermes.download_checkpoint(best, "best")

`AsyncClient` is the same on asyncio.
"""

from __future__ import annotations

from hermesctl.async_client import AsyncClient
from hermesctl.client import Client
from hermesctl.errors import HermesError, NotFound, Refused, StudyFileError, Unreachable, UsageError

__all__ = [
    "AsyncClient",
    "Client",
    "HermesError",
    "NotFound",
    "Refused",
    "StudyFileError",
    "Unreachable",
    "UsageError",
]
