"""The command line and the Python SDK: they speak to the head by protos only.

    from hermesctl import Client

    with Client(local=True) as hermes:
        study = hermes.submit("study.yaml")
        hermes.wait(study)
        best = hermes.best(study)[0]
        hermes.download_checkpoint(best, "best")

`AsyncClient` is the same on asyncio. Everything that either takes, returns or raises is here.
"""

from __future__ import annotations

import hermesctl.invocation  # noqa: F401 - before what takes long to import
import hermesd.quiet_grpc  # noqa: F401 - before anything that loads gRPC
from hermesctl import searches as experiment  # what others call it
from hermesctl.errors import (
    HermesError,
    NotFound,
    Problem,
    Refused,
    SnapshotError,
    StudyFileError,
    Unreachable,
    UsageError,
)
from hermesctl.sdk.async_client import AsyncClient
from hermesctl.sdk.client import Client
from hermesctl.sdk.comparison import ComparedStudy, StudyComparison
from hermesctl.sdk.events import Event, EventKind
from hermesctl.sdk.forecast import Forecast, Preview
from hermesctl.sdk.records import (
    ChangedTrials,
    Checkpoint,
    Curve,
    Device,
    Explanation,
    Failure,
    Fork,
    Invited,
    Leaderboard,
    Member,
    MetricChoice,
    MetricValue,
    Node,
    Quantum,
    Ranked,
    ServerInfo,
    Study,
    StudyDetail,
    Submission,
    Trial,
    TrialDetail,
    TrialFile,
    TrialState,
    Usage,
    User,
)
from hermesctl.searches import Results, grid_search, random_search, search

__all__ = [
    "AsyncClient",
    "ChangedTrials",
    "Checkpoint",
    "Client",
    "ComparedStudy",
    "Curve",
    "Device",
    "Event",
    "EventKind",
    "Explanation",
    "Failure",
    "Forecast",
    "Fork",
    "HermesError",
    "Invited",
    "Leaderboard",
    "Member",
    "MetricChoice",
    "MetricValue",
    "Node",
    "NotFound",
    "Preview",
    "Problem",
    "Quantum",
    "Ranked",
    "Refused",
    "Results",
    "ServerInfo",
    "SnapshotError",
    "Study",
    "StudyComparison",
    "StudyDetail",
    "StudyFileError",
    "Submission",
    "Trial",
    "TrialDetail",
    "TrialFile",
    "TrialState",
    "Unreachable",
    "Usage",
    "UsageError",
    "User",
    "experiment",
    "grid_search",
    "random_search",
    "search",
]


def __dir__() -> list[str]:
    return __all__
