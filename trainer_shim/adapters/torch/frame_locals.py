"""The program's own variables: those of the functions that it is in.

Plain values are copied and restored by name (see `program_state`). Whatever else a variable holds
is made again by the program, and is left alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
import types
from typing import Any

from trainer_shim.program.source_files import is_programs_own

Copies = list[dict[str, Any]]


def of_program(frame: types.FrameType | None) -> list[types.FrameType]:
    """The program's own frames, from the innermost to its first line."""
    found = []
    while frame is not None:
        if is_programs_own(frame.f_code.co_filename):
            found.append(frame)
        if frame.f_locals is frame.f_globals and frame.f_globals.get("__name__") == "__main__":
            break
        frame = frame.f_back
    return found


def place(frame: types.FrameType | None) -> str:
    """Where the innermost of the program's own frames is: function and file."""
    for own in of_program(frame):
        return f"{own.f_code.co_name} in {os.path.basename(own.f_code.co_filename)}"
    return "no file of the program"


def keep_locals(frame: types.FrameType) -> None:
    """Make what was written to `f_locals` the function's variables."""
    if sys.version_info < (3, 13):
        keep: Any = ctypes.pythonapi.PyFrame_LocalsToFast
        keep(ctypes.py_object(frame), ctypes.c_int(0))
