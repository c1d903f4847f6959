"""`hermesd expand`: what a study would be, for a client whom no head answers.

The checks and the trials are those of a head that has no studies yet. It reads a SubmitStudyRequest
from standard input, and writes a SubmitStudyResponse to standard output, or FieldErrors with exit
code 2.
"""

from __future__ import annotations

import sys

import typer

REFUSED = 2


def expand() -> None:
    """List the trials of a study for `hermesctl` when no head answers."""
    # Most of a head, which the other commands are not to wait for.
    from hermesd.core.state import State
    from hermesd.head.api import studies
    from hermesd.head.security.guard import field_errors
    from hermesd.pb.hermes.v1 import control_pb2 as pb
    from hermesd.refusal import Refused
    from hermesd.security.accounts import current_user
    from hermesd.study import draft, proposed_id

    request = pb.SubmitStudyRequest.FromString(sys.stdin.buffer.read())
    try:
        drafted = draft(studies.submission(request, studies.texts(request.given_environment)))
    except Refused as refused:
        sys.stdout.buffer.write(field_errors(refused).SerializeToString())
        raise typer.Exit(REFUSED) from None
    id, notes = proposed_id(request.spec), list(drafted.notes)
    response = studies.unstored(State(), drafted, id, current_user(), 0.0, notes)
    sys.stdout.buffer.write(response.SerializeToString())
