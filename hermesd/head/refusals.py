"""Why a request is not carried out, as exceptions; `guard` turns each into its gRPC status.

An invalid field is a `hermesd.refusal.Refused`; what the core refuses is a `Rejected`.
"""

from __future__ import annotations


class NotFound(Exception):
    """There is nothing of that name; says what is near."""


class NotNow(Exception):
    """The request is good, the state is not; says what to do first."""


class Unreachable(Exception):
    """The node that has what is asked for does not answer."""


class TooMuch(Exception):
    """A limit is reached; says which."""


class Reused(Exception):
    """A request id came again with another request."""


class Doubled(Exception):
    """A daemon answers as a node that another one is; says who, and what to do."""
