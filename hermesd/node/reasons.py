"""Why something of a trial went wrong, in words for people."""

from __future__ import annotations

from hermesd.node.code import CodeError
from hermesd.node.frames import FrameError
from hermesd.node.hearing import Nonsense
from hermesd.node.prepare import NotStarted

# What may happen on any machine; anything else is a fault of ours.
FORESEEN = (NotStarted, CodeError, FrameError, Nonsense, OSError)


def words_of(error: Exception) -> str:
    """The reason; with the file, where the system names one."""
    match error:
        case OSError(strerror=str(what), filename=file) if file:
            return f"{what}: {file}"
        case _ if isinstance(error, FORESEEN):
            return str(error)
        case _:
            return f"{type(error).__name__}: {error}"
