"""The program's own variables: those of the functions it is in.

Rule: plain values are copied and put back by name; whatever else a variable holds is the
program's to make again, and is left alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
import types
from typing import TYPE_CHECKING, Any

from trainer_shim.sources import is_programs_own

if TYPE_CHECKING:
    from trainer_shim.adapters.torch_pack import Packer
    from trainer_shim.adapters.torch_unpack import Unpacker

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


def copy_variables(frame: types.FrameType, packer: Packer) -> Copies:
    """Those variables of the program's frames that are plain values."""
    copies: Copies = []
    for own in of_program(frame):
        values = [(name, value) for name, value in own.f_locals.items() if name[:2] != "__"]
        copies.append({"frame": own.f_code.co_name, "values": packer.pack_some(values)})
    return copies


def fit(frame: types.FrameType, copies: Copies) -> bool:
    """Whether the same functions are being executed as when the copies were made."""
    return [own.f_code.co_name for own in of_program(frame)] == [one["frame"] for one in copies]


def put_back_variables(frame: types.FrameType, copies: Copies, unpacker: Unpacker) -> None:
    """Set what `copy_variables` copied, for frames that `fit` it."""
    for own, copy in zip(of_program(frame), copies):
        values = own.f_locals
        unpacker.put_some(copy["values"], values)
        if values is not own.f_globals:
            keep_locals(own)


def keep_locals(frame: types.FrameType) -> None:
    """Make what was written to `f_locals` the function's variables."""
    if sys.version_info < (3, 13):
        keep: Any = ctypes.pythonapi.PyFrame_LocalsToFast
        keep(ctypes.py_object(frame), ctypes.c_int(0))
