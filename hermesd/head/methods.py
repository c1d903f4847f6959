"""Who may call what: the table of every method of every service.

Rule: one that is missing here fails the start-up, so that nothing is ever open by oversight.
"""

from __future__ import annotations

from collections.abc import Mapping

from hermesd.identity import Role
from hermesd.pb.hermes.v1 import control_pb2, enrol_pb2, node_pb2

CONTROL_METHODS = (
    "SubmitStudy", "PutBlob", "GetStudy", "ListStudies", "GetTrial", "ListTrials", "ListNodes",
    "GetCurve", "ExplainTrial", "BestTrials", "PauseTrials", "ResumeTrials", "StopTrials",
    "RetryTrials", "ExtendStudy", "SetMetric", "RemoveStudy", "WatchJournal", "TailLogs",
    "ExportStudy", "DownloadCheckpoint", "ListUsers", "ServerInfo",
)  # fmt: skip
# What concerns everybody's trials.
UPKEEP_METHODS = ("DrainNode", "UndrainNode", "LoseNode", "ReleaseNode")
PEOPLE = frozenset({Role.USER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
EVERYBODY = frozenset(Role)
METHODS: Mapping[str, frozenset[Role]] = {
    **{f"/hermes.v1.ControlService/{name}": PEOPLE for name in CONTROL_METHODS},
    **{f"/hermes.v1.ControlService/{name}": OPERATORS for name in UPKEEP_METHODS},
    "/hermes.v1.NodeService/Attach": frozenset({Role.NODE}),
    "/hermes.v1.NodeService/GetBlob": frozenset({Role.NODE}),
    "/hermes.v1.EnrolService/Enrol": EVERYBODY,
    "/hermes.v1.EnrolService/Renew": EVERYBODY,
    "/hermes.v1.EnrolService/Invite": frozenset({Role.ADMIN}),
    "/hermes.v1.EnrolService/Revoke": frozenset({Role.ADMIN}),
    "/hermes.v1.EnrolService/ListIdentities": PEOPLE,
}
# The only one that asks for no credential: the secret in its request is one.
INVITED = "/hermes.v1.EnrolService/Enrol"


def undeclared() -> set[str]:
    """Methods that are served and not in the table, or the other way round."""
    served = {
        f"/{service.full_name}/{method.name}"
        for file in (control_pb2.DESCRIPTOR, node_pb2.DESCRIPTOR, enrol_pb2.DESCRIPTOR)
        for service in file.services_by_name.values()
        for method in service.methods
    }
    return served ^ set(METHODS)


def takes(roles: frozenset[Role]) -> str:
    """Which people may do what is open to these roles; nothing where all may, or none."""
    if Role.USER in roles:
        return ""
    people = [f"an {role}" for role in (Role.OPERATOR, Role.ADMIN) if role in roles]
    return f": it takes {' or '.join(people)}" if people else ""
