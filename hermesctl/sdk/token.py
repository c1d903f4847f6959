"""The token that is sent to a head, from the file named by HERMES_TOKEN_FILE or beside the head's
socket.

A file that is named must be usable. One that is only looked for may be missing; its name is then
mentioned if the head refuses.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hermesctl.errors import UsageError
from hermesctl.sdk.address import Address
from hermesctl.text import printable
from hermesd.security.token import LIMIT_BYTES, Token

TOKEN_VARIABLE = "HERMES_TOKEN_FILE"
_UNKNOWN = (
    f"any account may listen at a port, so expected in {TOKEN_VARIABLE} a copy of the whole file"
    " `token` of a head that has `listen`, with the certificate by which to know that head; or a"
    " Unix socket, such as the end of ssh -N -L $PWD/head.sock:/run/hermes/head.sock HOST, as"
    " --head unix:$PWD/head.sock"
)


@dataclass(frozen=True, slots=True)
class HeadToken:
    """The token for a head, if there is one."""

    #: What to send; None for nothing.
    token: Token | None
    #: Where the token is from, or why there is none.
    origin: str


def find_token(environment: Mapping[str, str], address: Address) -> HeadToken:
    """The token for the head at `address`.

    Raises UsageError when the file that HERMES_TOKEN_FILE names can't be read, for any token that
    others than its owner can read, or that is none, and for a port without one that says who may
    listen there.
    """
    if address.membership is not None:
        return HeadToken(None, f"the certificate that was shown is that of {address.origin}")
    name = environment.get(TOKEN_VARIABLE)
    if name:
        try:
            found = _read(Path(name).expanduser(), f"{TOKEN_VARIABLE}: {printable(name)}")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{TOKEN_VARIABLE}: {printable(name)}: not readable: {error}"
            ) from None
        if address.socket is None and found.token is not None and not found.token.authority:
            raise UsageError(f"{TOKEN_VARIABLE}: {printable(name)}: {_UNKNOWN}")
        return found
    if address.socket is None:
        raise UsageError(f"{address}: {_UNKNOWN}")
    if address.embedded:
        return HeadToken(None, f"no token was sent: {TOKEN_VARIABLE} names no file")
    beside = address.socket.with_name("token")
    try:
        return _read(beside, printable(str(beside)))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a token"
        return HeadToken(
            None,
            f"no token was sent: {TOKEN_VARIABLE} names no file, and beside the socket, "
            f"{printable(str(beside))}: {reason}",
        )


def _read(path: Path, origin: str) -> HeadToken:
    with path.open() as stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        text = stream.read(LIMIT_BYTES)
    if mode & 0o077:
        raise UsageError(
            f"{origin} has mode {mode:04o}, expected 0600: chmod 600 {printable(str(path))}"
        )
    try:
        token = Token.of(text)
    except ValueError:
        raise UsageError(f"{origin}: expected one token in it") from None
    return HeadToken(token, f"the token that was sent is from {origin}")
