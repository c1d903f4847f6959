"""Why something of a trial went wrong, in words for people."""

from __future__ import annotations


class Foreseen(Exception):
    """What may happen on any machine; anything else but an OSError is a fault of ours."""


def is_foreseen(error: Exception) -> bool:
    """Whether it is no fault of ours."""
    return isinstance(error, Foreseen | OSError)


def words_of(error: Exception) -> str:
    """The reason; with the file, where the system names one."""
    match error:
        case OSError(strerror=str(what), filename=file) if file:
            return f"{what}: {file}"
        case _ if is_foreseen(error):
            return str(error)
        case _:
            return f"{type(error).__name__}: {error}"
