"""What a file, a directory or an address should have been, for people, where it is not that.

Shared by what reads what was written before, and by what makes a resource of a setting.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# In what a node says of itself, between what it lacks and what to do about it, which `hermesctl
# doctor` shows apart.
REMEDY = "; to change that: "
_SHOWN_BYTES = 40
# These do not pass by themselves: what is named, or what lies there, has to change.
_LASTING = {
    errno.EADDRINUSE,
    errno.EADDRNOTAVAIL,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.ENXIO,
    errno.EROFS,
}


class StateRefused(Exception):
    """The state or a setting cannot be used as it is; says why and what to do."""


class StateAway(Exception):
    """It cannot be used for now, of a full disk for example: it may be another time."""


@contextmanager
def expecting(
    path: Path | None, content: str, remedy: str, *, secret: bool = False, called: str = ""
) -> Iterator[None]:
    """Use what is at `path` in the block: `content` is what is expected there, `remedy` what to do
    where something else is. Nothing of a `secret` file is shown. `called` is what people know it
    by, its path if that is empty; of what has no path it must be said.

    Raises StateRefused for what will not do, StateAway for what cannot be used for now,
    PermissionError as it came.
    """
    name = called or str(path)
    try:
        yield
    except PermissionError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error.filename, str) and not name.endswith(error.filename):
            reason = f"{error.filename}: {reason}" if called else reason
            name = name if called else error.filename
        if error.errno in _LASTING:
            raise StateRefused(f"{name}: {reason}; expected {content}: {remedy}") from None
        raise StateAway(f"{name}: {reason}") from None
    except (ValueError, TypeError, LookupError, AssertionError):
        if path is None:
            raise
        found = path.read_bytes()[:_SHOWN_BYTES]
        shown = repr(found.decode(errors="backslashreplace")) if found else "nothing"
        it = "something else" if secret and found else shown
        raise StateRefused(f"{name} holds {it}; expected {content}: {remedy}") from None
