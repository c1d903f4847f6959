"""The files of Lightning's checkpoint callbacks and CSV logger, of a run that goes back in time.

Rule: what was written after the checkpoint is written again, so it is neither kept beside nor
added to: a log gets the rows of then, and a saved model of a later time counts as not there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from trainer_shim.adapters.torch_state import State

_LOG_BYTES = 4 << 20


def copy(callbacks: Sequence[Any], loggers: Sequence[Any]) -> State:
    """The names that each callback finds, and the text of each log."""
    return {
        "saved": [_names(callback) for callback in callbacks],
        "logs": [_text(_log(logger)) for logger in loggers],
    }


def put_back(callbacks: Sequence[Any], loggers: Sequence[Any], past: State) -> None:
    """Have callbacks and loggers, whose attributes are put back, go on from then."""
    for callback, names in zip(callbacks, past["saved"]):
        now = _names(callback)
        if names is not None and now is not None and set(now) - set(names):
            _do_not_find(callback, set(now) - set(names))
    for logger, text in zip(loggers, past["logs"]):
        path = _log(logger)
        if text is None or path is None or _text(path) in (None, text):
            continue
        if not text:
            os.remove(path)
            continue
        with open(path, "w", newline="") as file:
            file.write(text)


def _names(callback: Any) -> list[str] | None:
    """The files in the folder of a callback that saves; None for another, or one without."""
    if not hasattr(callback, "file_exists"):
        return None
    with contextlib.suppress(OSError, TypeError):
        return sorted(os.listdir(callback.dirpath))
    return []


def _do_not_find(callback: Any, later: set[str]) -> None:
    original = callback.file_exists
    folder = os.path.abspath(callback.dirpath)

    def file_exists(filepath: Any, trainer: Any) -> bool:
        parent, name = os.path.split(os.path.abspath(filepath))
        if parent == folder and name in later:
            later.discard(name)  # now it is written again
            return False
        return bool(original(filepath, trainer))

    callback.file_exists = file_exists


def _log(logger: Any) -> str | None:
    path: str | None = getattr(getattr(logger, "_experiment", None), "metrics_file_path", None)
    return path


def _text(path: str | None) -> str | None:
    """None for a file that cannot be read, or is too long to be kept."""
    if path is None:
        return None
    try:
        if os.path.getsize(path) > _LOG_BYTES:
            return None
        with open(path, newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None
